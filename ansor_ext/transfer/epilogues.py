"""Programs of a computation as steps of another one, which goes on differently after the last reduction.

Where the stages in between are inlined and nothing else, what is left of the steps is the same in both.  Whatever reads
what in which order, they are steps of the other computation; whether they are good ones is measured.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.step import Step


def with_other_epilogue(
    steps: Sequence[Step], own: Collection[int], pattern: Sequence[Step], others: Collection[int]
) -> list[Step] | None:
    """The steps of a program for a computation that has the stages `others`, where that of the program has `own`.

    `pattern` are the steps of the sketch that it shall be of: they say when `others` are inlined.  None where there is
    more to these stages than that.
    """
    bare = _without(steps, own)
    return None if bare is None else _with(bare, pattern, others)


def _without(steps: Sequence[Step], own: Collection[int]) -> list[Step] | None:
    """The steps as if the computation had no stages `own`."""
    out: list[Step] = []
    places: dict[int, int] = {}
    for position, step in enumerate(steps):
        if step.stage in own and isinstance(step, ComputeInline):
            continue
        if any(k in own for k in step.stages):
            return None
        places[position] = len(out)
        out.append(step.renumbered(partial(_left_of, own), places.__getitem__))
        own = _moved(own, step)
    return out


def _with(bare: Sequence[Step], pattern: Sequence[Step], own: Collection[int]) -> list[Step] | None:
    """The inverse of `_without`."""
    out: list[Step] = []
    places: dict[int, int] = {}

    def add(own: Collection[int]) -> Collection[int]:
        step = bare[len(places)]
        places[len(places)] = len(out)
        out.append(step.renumbered(partial(_among, own), places.__getitem__))
        return _moved(own, out[-1])

    for step in pattern:
        if step.stage in own and isinstance(step, ComputeInline):
            out.append(step)
        elif step.stage in own or len(places) == len(bare):
            return None
        else:
            own = add(own)
    while len(places) < len(bare):
        own = add(own)
    return out


def _left_of(own: Collection[int], k: int) -> int:
    """The number that stage `k` has without `own`."""
    return k - sum(o < k for o in own)


def _among(own: Collection[int], k: int) -> int:
    """The inverse of `_left_of`."""
    for o in sorted(own):
        k += o <= k
    return k


def _moved(own: Collection[int], step: Step) -> Collection[int]:
    """The numbers of the stages after a step that may have made one."""
    return own if step.inserts_at is None else {o + (o > step.inserts_at) for o in own}
