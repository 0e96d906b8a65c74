"""Which steps of a plan may run at the same time, and on which of several queues each is put.

A step waits for an earlier one when one of them writes bytes that the other touches; tensors that share bytes of the
arena count, so any order that keeps the waits gives the same results.  Steps of one stream run in order; a step waits
for those of other streams that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansor.core.network_plan import ExecutionPlan


@dataclass(frozen=True)
class Queued:
    """A step's stream, and the earlier steps of other streams that it waits for."""

    stream: int
    waits: tuple[int, ...]


def dependencies(plan: ExecutionPlan) -> list[set[int]]:
    """For every step the earlier steps that it must wait for, those behind others included."""
    touched = [_regions(plan, step.storages) for step in plan.steps]
    written = [_regions(plan, step.written) for step in plan.steps]
    return [
        {i for i in range(j) if _meet(written[i], touched[j]) or _meet(touched[i], written[j])}
        for j in range(len(plan.steps))
    ]


Region = tuple[int, int, int]
"""Memory (the arena is -1), first byte, end."""


def _regions(plan: ExecutionPlan, storages: Sequence[int]) -> list[Region]:
    out = []
    for k in storages:
        s = plan.storages[k]
        inside = k >= plan.externals
        out.append((-1, s.offset, s.offset + s.nbytes) if inside else (k, 0, s.nbytes))
    return out


def _meet(a: Sequence[Region], b: Sequence[Region]) -> bool:
    return any(x[0] == y[0] and x[1] < y[2] and y[1] < x[2] for x in a for y in b)


def queues(needed: Sequence[set[int]], most: int) -> list[Queued]:
    """Put steps on at most `most` streams; `needed` names, for every step, earlier ones that it must wait for.

    A step goes behind the latest step it needs that is still the last of its stream; otherwise to a stream whose last
    step it needs anyway, or to a new one.
    """
    before: list[set[int]] = []
    last: list[int] = []
    out: list[Queued] = []
    for j, needs in enumerate(needed):
        whole = set().union(needs, *[before[i] for i in needs])
        free = [s for s, i in enumerate(last) if i in whole]
        if free:
            stream = max(free, key=lambda s: (last[s] in needs, last[s]))
        elif len(last) < most:
            stream = len(last)
            last.append(-1)
        else:
            stream = min(range(len(last)), key=lambda s: last[s])
        known = {last[stream], *before[last[stream]]} if last[stream] >= 0 else set()
        waits = []
        for i in sorted(whole - known, reverse=True):
            if i not in known:
                waits.append(i)
                known |= {i, *before[i]}
        before.append(known)
        last[stream] = j
        out.append(Queued(stream, tuple(waits)))
    return out
