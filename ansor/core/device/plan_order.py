"""Whether the memory of a plan is sound: no step reads what nothing wrote, or overwrites what is still read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from te_lite.errors import require

from ..errors import GraphError

Span: TypeAlias = tuple[int, int]


class StorageLike(Protocol):
    """A storage of `network_plan`."""

    @property
    def kind(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def of(self) -> int | None: ...


class StepLike(Protocol):
    """A step of `network_plan`."""

    @property
    def used(self) -> tuple[int, ...]: ...
    @property
    def written(self) -> tuple[int, ...]: ...


class PlanLike(Protocol):
    """A plan of `network_plan`."""

    @property
    def storages(self) -> Sequence[StorageLike]: ...
    @property
    def steps(self) -> Sequence[StepLike]: ...


def require_order(plan: PlanLike) -> None:
    """Raises GraphError.  A storage of the arena lives from the step that writes it to the last that uses it.

    One whose parts are written one by one lives from the first of these on, and what is read of it was written.
    """
    whole = [s if found.of is None else found.of for s, found in enumerate(plan.storages)]
    last = {whole[s]: k for k, step in enumerate(plan.steps) for s in step.used}
    alive: set[int] = set()
    written: dict[int, list[Span]] = {}
    for k, step in enumerate(plan.steps):
        inside = {whole[s] for s in step.used if plan.storages[whole[s]].kind == "arena"}
        begun = {whole[s] for s in step.written} & inside
        read = [s for s in set(step.used) - set(step.written) if whole[s] in inside]
        unwritten = [s for s in read if not _covers(written.get(whole[s], []), _span(plan, s))]
        law = f"step {k} reads memory that no step before it wrote"
        require(not unwritten, GraphError, "plan", law, storages=sorted(unwritten))
        kept = [s for s in step.written if plan.storages[whole[s]].kind == "param"]
        require(not kept, GraphError, "plan", f"step {k} writes to a parameter", storages=kept)
        begun -= alive
        alive |= begun
        shared = [(a, b) for a in begun for b in alive if a != b and _meet(plan.storages[a], plan.storages[b])]
        require(not shared, GraphError, "plan", f"step {k} overwrites what is still needed", storages=shared)
        for s in step.written:
            written[whole[s]] = _joined(written.get(whole[s], []), _span(plan, s))
        ended = {s for s in inside if last[s] <= k}
        alive -= ended
        for s in ended:
            written.pop(s, None)


def _span(plan: PlanLike, storage: int) -> Span:
    """The bytes of a storage in the whole that it is, or is a part of."""
    found = plan.storages[storage]
    start = 0 if found.of is None else found.offset
    return start, start + found.nbytes


def _covers(spans: Sequence[Span], wanted: Span) -> bool:
    """Whether bytes lie within one of the spans, which do not touch each other."""
    return wanted[0] >= wanted[1] or any(start <= wanted[0] and wanted[1] <= end for start, end in spans)


def _joined(spans: Sequence[Span], new: Span) -> list[Span]:
    """The spans with one more; those that touch it become one with it."""
    touching = [span for span in spans if span[0] <= new[1] and new[0] <= span[1]]
    start, end = (choose([new[k], *[span[k] for span in touching]]) for k, choose in ((0, min), (1, max)))
    return [*[span for span in spans if span not in touching], (start, end)]


def _meet(a: StorageLike, b: StorageLike) -> bool:
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
