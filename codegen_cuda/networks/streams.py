"""Stream assignment: the steps of a plan that may run at the same time, and the queue of each.

A step waits for an earlier one when one of them writes bytes that the other touches; tensors that share bytes of the
arena count, so any order that keeps the waits gives the same results.  Steps of one stream run in order; a step waits
for those of other streams that it names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ansor.core.device.network_plan import ExecutionPlan


@dataclass(frozen=True)
class Queued:
    """A step's stream, and the earlier steps of other streams that it waits for."""

    stream: int
    waits: tuple[int, ...]


def dependencies(plan: ExecutionPlan) -> list[set[int]]:
    """For every step the earlier steps that it must wait for, but those that these wait for, or that wait for these.

    Memory is kept as pieces that were touched alike: who wrote each last, and who has read it since.
    """
    memory: dict[int | None, list[_Piece]] = {}
    out: list[set[int]] = []
    for j, step in enumerate(plan.steps):
        needs: set[int] = set()
        written = set(step.written)
        for storage in dict.fromkeys(step.storages):
            whole, start = plan.place(storage)
            end = start + plan.storages[storage].nbytes
            _touch(memory.setdefault(whole, []), start, end, j, storage in written, needs)
        out.append(needs - {j})
    return out


@dataclass(frozen=True)
class _Piece:
    """Bytes `start` to `end` of a memory: the step that wrote them last, -1 for none, and those that have read it."""

    start: int
    end: int
    writer: int
    readers: frozenset[int] = frozenset()

    def cut(self, start: int, end: int) -> _Piece:
        return replace(self, start=max(start, self.start), end=min(end, self.end))


def _touch(pieces: list[_Piece], start: int, end: int, step: int, writes: bool, needs: set[int]) -> None:
    """Let a step read or write bytes of a memory, whose pieces stay in order; `needs` gets what it must wait for."""
    if start == end:
        return
    first = bisect_right(pieces, start, key=lambda piece: piece.end)
    last = bisect_left(pieces, end, key=lambda piece: piece.start)
    met = pieces[first:last]
    for piece in met:
        needs |= (piece.readers or {piece.writer}) if writes else {piece.writer}
    needs.discard(-1)
    rest = [piece.cut(*ends) for piece in (*met[:1], *met[-1:]) for ends in ((0, start), (end, piece.end))]
    left = [piece for piece in rest if piece.start < piece.end]
    if writes:
        inside = [_Piece(start, end, step)]
    else:
        inside = [replace(piece.cut(start, end), readers=piece.readers | {step}) for piece in met]
        inside += [_Piece(a, b, -1, frozenset([step])) for a, b in _between(met, start, end)]
    pieces[first:last] = sorted({*left, *inside}, key=lambda piece: piece.start)


def _between(pieces: Sequence[_Piece], start: int, end: int) -> list[tuple[int, int]]:
    """The gaps between pieces, from `start` to `end`."""
    ends = [start, *[min(piece.end, end) for piece in pieces]]
    starts = [*[max(piece.start, start) for piece in pieces], end]
    return [(a, b) for a, b in zip(ends, starts, strict=True) if a < b]


def queues(needed: Sequence[set[int]], most: int) -> list[Queued]:
    """Put steps on at most `most` streams; `needed` names, for every step, earlier ones that it must wait for.

    A step goes behind the last step of a stream that it needs, the one that ends latest if all take as long; otherwise
    to a new stream, or to the one that ends first.  What a step knows to be done are, on each stream, all steps up to
    one.
    """
    known: list[list[int]] = []
    ends: list[int] = []
    last: list[int] = []
    out: list[Queued] = []
    for j, needs in enumerate(needed):
        whole = _all_done([_up_to(i, out, known, most) for i in needs], most)
        free = [s for s, i in enumerate(last) if i <= whole[s]]
        if free:
            stream = max(free, key=lambda s: (last[s] in needs, ends[last[s]], last[s]))
        elif len(last) < most:
            stream = len(last)
            last.append(-1)
        else:
            stream = min(range(len(last)), key=lambda s: (ends[last[s]], last[s]))
        mine = _up_to(last[stream], out, known, most) if last[stream] >= 0 else [-1] * most
        waits = []
        for i in sorted(whole, reverse=True):
            if i >= 0 and i > mine[out[i].stream]:
                waits.append(i)
                mine = _all_done([mine, _up_to(i, out, known, most)], most)
        ends.append(1 + max([ends[i] for i in (last[stream], *waits) if i >= 0], default=0))
        known.append(mine)
        last[stream] = j
        out.append(Queued(stream, tuple(waits)))
    return out


def _up_to(step: int, out: Sequence[Queued], known: Sequence[Sequence[int]], most: int) -> list[int]:
    """What is done when a step is: on each stream, up to which step."""
    return [step if s == out[step].stream else known[step][s] for s in range(most)]


def _all_done(every: Sequence[Sequence[int]], most: int) -> list[int]:
    return [max([done[s] for done in every], default=-1) for s in range(most)]
