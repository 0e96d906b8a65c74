"""A partially scheduled program: an immutable value that is the replay of its steps.

A stage keeps every iterator it ever had (`vars`, roots first), the order of its current loops (`leaf`), and the
split and fuse relations that lead from one to the other.  Extents are ints, int64 arrays with one lane per
candidate, or None while unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from ..computation.access import AccessInfo, access_info
from ..computation.computation import Computation
from ..computation.tensor import ComputeOp, Operation, PlaceholderOp
from ..errors import ScheduleError
from ..expr.expr import Expr, IterVar
from ..expr.simplify import Simplifier
from ..hooks import Hook
from .region import Linear
from .step import Length, Step

Kept = TypeVar("Kept")

Extent = int | np.ndarray

ROOT, INLINED, ATTACHED = "root", "inlined", "iter"
SPATIAL, REDUCE, MIXED, SPECIAL = "spatial", "reduce", "mixed", "special"


@dataclass(frozen=True, slots=True)
class Iter:
    """One iterator; `uid` is its place in `Stage.vars`.

    `start` is where an axis begins, in terms of the loops around its stage (None: at 0); only inferred bounds know it.
    """

    uid: int
    name: str
    extent: Extent | None
    kind: str
    annotation: str = "none"
    start: Linear | None = None

    @property
    def length(self) -> int:
        """The extent where it is one known number."""
        assert isinstance(self.extent, int), f"the extent of {self.name} is not known"
        return self.extent


@dataclass(frozen=True, slots=True)
class SplitRel:
    """`parent` = sum over children of child * product of the extents to its right."""

    parent: int
    children: tuple[int, ...]
    lengths: tuple[Length, ...]
    inner_to_outer: bool


@dataclass(frozen=True, slots=True)
class FuseRel:
    """`fused` counts through `parts`, the last one fastest."""

    parts: tuple[int, ...]
    fused: int


Relation = SplitRel | FuseRel


@dataclass(frozen=True, slots=True)
class Ask:
    """What a step asks of a stage beyond its loops, its place and its storage.

    `text` is its line in the text of a state.  `lowering` is `module:function`: `function(facts)`, called once for a
    program, gives a rewriting `(root, nest) -> nest` of the nests of root stages before any pass (`lower.py`), which
    `numbers` are for.  The storage has room for `tiles` of what is computed at once.  `layout` is `module:class`: a
    `Layout` (`layout.py`), which says where it keeps its elements.  `nests` is `module:class`: a `NestBuilder`
    (`lower_nest.py`) of programs with such a stage; it is computed along the loop that it is attached to, folds what is
    summed up there in one turn, and is kept from turn to turn.
    """

    text: str
    lowering: str = ""
    numbers: tuple[int, ...] = ()
    tiles: int = 1
    layout: str = ""
    nests: str = ""


@dataclass(frozen=True, slots=True)
class Attach:
    """Computed inside loop `iter` (a uid) of stage `stage`; `seq` orders the stages of one loop."""

    stage: int
    iter: int
    seq: int


@dataclass(frozen=True)
class Stage:
    """The loops of one operation."""

    op: Operation
    vars: tuple[Iter, ...] = ()
    leaf: tuple[int, ...] = ()
    relations: tuple[Relation, ...] = ()
    where: str = ROOT
    attach: Attach | None = None
    auto_unroll_max_step: int = 0
    storage_align: tuple[int, int, int] | None = None
    storage_order: tuple[int, ...] | None = None
    pragmas: tuple[tuple[str, str], ...] = ()
    asks: tuple[Ask, ...] = ()

    @property
    def tiles(self) -> int:
        """How many of what is computed at once there is room for."""
        return max([ask.tiles for ask in self.asks], default=1)

    @property
    def double_buffer(self) -> bool:
        """Whether tiles are fetched before they are used: there is room for `tiles` of them."""
        return self.tiles > 1

    @property
    def along(self) -> bool:
        """Whether it is computed along a loop."""
        return any(ask.nests for ask in self.asks)

    @property
    def is_placeholder(self) -> bool:
        return isinstance(self.op, PlaceholderOp)

    @property
    def compute(self) -> ComputeOp:
        assert isinstance(self.op, ComputeOp)
        return self.op

    def stored(self, of_axes: Sequence[Kept]) -> tuple[Kept, ...]:
        """What belongs to each axis, in the order in which the stage stores its axes."""
        return tuple(of_axes if self.storage_order is None else [of_axes[d] for d in self.storage_order])

    @property
    def iters(self) -> tuple[Iter, ...]:
        """The current loops, outermost first."""
        return tuple([self.vars[u] for u in self.leaf])

    @property
    def num_roots(self) -> int:
        return len(self.op.axis) + len(self.op.reduce_axis)

    def position(self, uid: int) -> int:
        """The place of iterator `uid` among the current loops.  Raises ScheduleError where it is none of them."""
        if uid not in self.leaf:
            raise ScheduleError(f"stage {self.op.name}: its loops are those numbered {list(self.leaf)}, got {uid!r}")
        return self.leaf.index(uid)


@dataclass(frozen=True)
class State:
    """Stages in program order, and the steps that made them from `dag`."""

    dag: Computation
    stages: tuple[Stage, ...]
    steps: tuple[Step, ...] = ()

    @cached_property
    def ops(self) -> tuple[Operation, ...]:
        return tuple([s.op for s in self.stages])

    @property
    def access(self) -> AccessInfo:
        """The access analysis of the current operations (caches included)."""
        return access_info(self.ops)

    def attached_to(self, stage: int, uid: int) -> list[int]:
        """The stages computed at loop `uid` of `stage`, in the order in which they were attached."""
        found = [
            (s.attach.seq, k)
            for k, s in enumerate(self.stages)
            if s.attach is not None and s.attach.stage == stage and s.attach.iter == uid
        ]
        return [k for _, k in sorted(found)]

    def with_stage(self, k: int, stage: Stage) -> State:
        return replace(self, stages=(*self.stages[:k], stage, *self.stages[k + 1 :]))

    @property
    def concrete(self) -> bool:
        """No split length is a hole."""
        return all(length is not None for step in self.steps for length in step.lengths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self.dag is other.dag and self.steps == other.steps and self.stages == other.stages

    def __hash__(self) -> int:
        return hash((id(self.dag), self.steps))

    def __str__(self) -> str:
        return STATE_TEXT(self)

    def __repr__(self) -> str:
        return f"State({len(self.stages)} stages, {len(self.steps)} steps)"


STATE_TEXT: Hook[[State], str] = Hook("the text of a state")


MAX_NAME = 400
"""Characters of a loop's name.  A fused loop names its parts: uncut, each split and fuse would double the name."""


def clean_name(name: str) -> str:
    """The name of a loop as states print it: `k.outer.v` becomes `k_o_v`."""
    parts = name.replace("@", ".").split(".")
    return "_".join({"outer": "o", "inner": "i"}.get(p, p) for p in parts)


def root_extent(axis: IterVar, outer: tuple[IterVar, ...]) -> int:
    """The extent of an axis; for one that depends on the axes `outer`, its upper bound."""
    if not isinstance(axis.extent, Expr):
        return axis.extent
    ranges = Simplifier({v: (0, v.extent - 1) for v in outer if isinstance(v.extent, int)})
    high = ranges.bounds(ranges.simplify(axis.extent))[1]
    if high is None:
        raise ValueError(f"{axis.name}: the extent {axis.extent!r} has no upper bound")
    return high


def fresh_stage(op: Operation) -> Stage:
    """The stage of an operation that nothing was done to."""
    if isinstance(op, PlaceholderOp):
        return Stage(op)
    axes = [(v, root_extent(v, ()), SPATIAL) for v in op.axis]
    if op.scans:
        axes[-1] = (*axes[-1][:2], REDUCE)
    axes += [(v, root_extent(v, op.axis), REDUCE) for v in op.reduce_axis]
    vars_ = tuple([Iter(k, clean_name(v.name), extent, kind) for k, (v, extent, kind) in enumerate(axes)])
    return Stage(op, vars_, tuple(range(len(vars_))))


@lru_cache(maxsize=64)
def initial_state(dag: Computation) -> State:
    """The state of a computation that nothing was done to; remembered for those in use."""
    return State(dag, tuple([fresh_stage(op) for op in dag.ops]))
