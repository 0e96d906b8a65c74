"""Read scattered elements as a vector: a few overlapping vector loads and shuffles between them.

The lanes want `base + offset[lane]`.  Windows of full vectors are laid over the span of the offsets; as both ends of
the span are elements that some lane reads, no window leaves the buffer.  Rows of a padded image (offsets 0..6, 9..15,
18, 19) take two windows and one shuffle, and so does every second element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_WINDOWS = 4


@dataclass(frozen=True)
class Gather:
    """`starts` are the windows, as distances from lane 0's element.

    The result begins as the first window; shuffle k makes it `picks[k]` of (result, window k + 1), where indices
    from the number of lanes on mean the second.  With one window it is shuffled with itself.
    """

    starts: tuple[int, ...]
    picks: tuple[tuple[int, ...], ...]


def plan_gather(offsets: Sequence[int]) -> Gather | None:
    """The windows and shuffles for one offset per lane; None when lane by lane is the better way."""
    lanes, low = len(offsets), min(offsets)
    wanted = [k - low for k in offsets]
    span = max(wanted) + 1
    if span < lanes:
        return None
    starts: list[int] = []
    for k in sorted(set(wanted)):
        if not starts or k >= starts[-1] + lanes:
            starts.append(min(k, span - lanes))
    if len(starts) > MAX_WINDOWS:
        return None
    source = [next(w for w, s in enumerate(starts) if s <= k < s + lanes) for k in wanted]
    picks = []
    for w in range(1, max(len(starts), 2)):
        pick = []
        for lane, k in enumerate(wanted):
            if source[lane] == w:
                pick.append(lanes + k - starts[w])
            elif source[lane] == 0 and w == 1:
                pick.append(k - starts[0])
            else:
                pick.append(lane if source[lane] < w else 0)
        picks.append(tuple(pick))
    return Gather(tuple(s + low for s in starts), tuple(picks))
