"""Gathers by shuffles: scattered elements as a vector, from a few overlapping vector loads.

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
    starts = _windows(wanted, lanes)
    if not 0 < len(starts) <= MAX_WINDOWS:
        return None
    source = [next(w for w, s in enumerate(starts) if s <= k < s + lanes) for k in wanted]
    picks = []
    for w in range(1, max(len(starts), 2)):
        picks.append(tuple([_pick(lane, k, source[lane], w, starts, lanes) for lane, k in enumerate(wanted)]))
    return Gather(tuple(s + low for s in starts), tuple(picks))


def _windows(wanted: Sequence[int], lanes: int) -> list[int]:
    """Where windows over the wanted elements begin; none when the elements span less than one."""
    span = max(wanted) + 1
    starts: list[int] = []
    for k in sorted(set(wanted)) if span >= lanes else ():
        if not starts or k >= starts[-1] + lanes:
            starts.append(min(k, span - lanes))
    return starts


def _pick(lane: int, k: int, source: int, w: int, starts: Sequence[int], lanes: int) -> int:
    """What shuffle `w` puts into a lane that wants element `k`, which window `source` holds."""
    if source == w:
        return lanes + k - starts[w]
    if source == 0 and w == 1:
        return k - starts[0]
    return lane if source < w else 0
