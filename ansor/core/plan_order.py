"""Whether the memory of a plan is sound: no step reads what nothing wrote, or overwrites what is still read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from te_lite.errors import require

from .errors import GraphError


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
    def storages(self) -> tuple[int, ...]: ...
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

    One whose parts are written one by one lives from the first of these on.
    """
    whole = [s if found.of is None else found.of for s, found in enumerate(plan.storages)]
    last = {whole[s]: k for k, step in enumerate(plan.steps) for s in step.storages}
    alive: set[int] = set()
    for k, step in enumerate(plan.steps):
        inside = {s for s in map(whole.__getitem__, step.storages) if plan.storages[s].kind == "arena"}
        begun = inside & set(map(whole.__getitem__, step.written))
        unwritten = inside - begun - alive
        law = f"step {k} reads memory that no step before it wrote"
        require(not unwritten, GraphError, "plan", law, storages=sorted(unwritten))
        kept = [s for s in step.written if plan.storages[whole[s]].kind == "param"]
        require(not kept, GraphError, "plan", f"step {k} writes to a parameter", storages=kept)
        begun -= alive
        alive |= begun
        shared = [(a, b) for a in begun for b in alive if a != b and _meet(plan.storages[a], plan.storages[b])]
        require(not shared, GraphError, "plan", f"step {k} overwrites what is still needed", storages=shared)
        alive -= {s for s in inside if last[s] <= k}


def _meet(a: StorageLike, b: StorageLike) -> bool:
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
