"""A program: the operations of a computation, what each reads of the others, and the loops of its stages.

Operations are named by their position in the order of the program, which is also the number of their stage.  The
first half is what sketch rules ask of operations (table 1 of the paper), the second what steps change: the loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any, ClassVar

from .expr import Axis, Binary, Call, Const, Expr, Op, Select, loads, walk

SIMPLIFY = "auto_scheduler_simplify_const_tensor_indices"

Indices = tuple[Expr, ...]


def ordered(args: Sequence[Op]) -> tuple[Op, ...]:
    """All operations of a computation, producers first: from each result, depth first, in the order of its reads."""
    found: dict[str, Op] = {}

    def visit(op: Op) -> None:
        if op.key not in found:
            for load in loads(op.body):
                visit(load.op)
            found[op.key] = op

    for op in [*results_of(args), *args]:
        visit(op)
    return tuple(found.values())


def results_of(args: Sequence[Op]) -> list[Op]:
    """Those of `args` that are computed, and that no other one needs."""
    needed: set[str] = set()
    todo = list(args)
    while todo:
        below = [load.op for load in loads(todo.pop().body) if load.op.key not in needed]
        needed |= {op.key for op in below}
        todo += below
    return [op for op in args if op.body is not None and op.key not in needed]


def shifted_axis(e: Expr, axes: tuple[Axis, ...]) -> int | None:
    """The number of the axis `v` where `e` is `v`, `v + c`, `v - c` or `c + v`; else None."""
    match e:
        case Binary("+" | "-", Axis() as v, Const()) | Binary("+", Const(), Axis() as v) | (Axis() as v):
            return axes.index(v) if v in axes else None
        case _:
            return None


def simple(op: Op, indices: Indices) -> list[int] | None:
    """The axes of `op` at which a read is, from left to right, shifted or not; None for a read of another kind."""
    matched = [shifted_axis(e, op.axes) for e in indices if not isinstance(e, Const)]
    return None if None in matched else [m for m in matched if m is not None]


class Dag:
    """The reads between operations in the order of the program."""

    def __init__(self, ops: tuple[Op, ...]) -> None:
        self.ops = ops
        index = {op.key: k for k, op in enumerate(ops)}
        self.reads: list[dict[int, list[Indices]]] = [{} for _ in ops]
        """For each operation, by the operation that it reads, all index tuples."""
        self.readers: list[dict[int, list[Indices]]] = [{} for _ in ops]
        for k, op in enumerate(ops):
            for load in loads(op.body):
                self.reads[k].setdefault(index[load.op.key], []).append(load.indices)
        for k, producers in enumerate(self.reads):
            for p, found in producers.items():
                self.readers[p][k] = found

    def is_input(self, k: int) -> bool:
        return self.ops[k].body is None

    def is_output(self, k: int) -> bool:
        return not self.is_input(k) and not self.readers[k]

    def strictly_inlineable(self, k: int) -> bool:
        """Inlining never repeats work: reads in order, no branch, no `exp` (the one call that counts as dear)."""
        op = self.ops[k]
        if op.body is None or not self.reads[k]:
            return op.body is not None
        found = [simple(op, indices) for each in self.reads[k].values() for indices in each]
        plain = all(s is not None and s == sorted(set(s)) for s in found)
        dear = any(isinstance(e, Select) or (isinstance(e, Call) and e.func == "exp") for e in walk(op.body))
        return plain and not dear

    @cached_property
    def tiled(self) -> list[bool]:
        """`HasDataReuse`: whether multi-level tiles pay, as inputs are read again and again."""
        return [self._has_reuse(k) for k in range(len(self.ops))]

    def _has_reuse(self, k: int) -> bool:
        op = self.ops[k]
        if op.body is None or SIMPLIFY in dict(op.attrs):
            return False
        missing = 0
        for tuples in self.reads[k].values():
            used = {v for indices in tuples for e in indices for v in walk(e) if isinstance(v, Axis)}
            missing += any(v.extent > 1 and v not in used for v in op.axes)
        return missing >= 2 or (missing >= 1 and bool(op.reduce_axes))

    def common_outer(self, k: int, producer: int) -> int:
        """How many leading axes of `k` and `producer` run over the same points."""
        op, source = self.ops[k], self.ops[producer]
        for d, (a, b) in enumerate(zip(op.shape, source.shape, strict=False)):
            if a != b or any(shifted_axis(indices[d], op.axes) != d for indices in self.reads[k][producer]):
                return d
        return min(len(op.shape), len(source.shape))

    def common_outer_path(self, k: int, target: int) -> int:
        """The least `common_outer` on any way from `k` to its consumer `target`; 0 when there is no way."""

        def least(k: int, so_far: int) -> list[int]:
            if k == target:
                return [so_far]
            return [x for r in self.readers[k] for x in least(r, min(so_far, self.common_outer(r, k)))]

        return min(least(k, len(self.ops[k].shape)), default=0)

    def elementwise_match(self, k: int, target: int) -> bool:
        """`HasFusibleConsumer`: all that reads `k` leads to `target`, point by point at the same shape."""
        todo, seen = [k], {target}
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                if self.is_input(here) or not self.readers[here]:
                    return False
                if not all(self._pointwise(r, here) for r in self.readers[here]):
                    return False
                todo += self.readers[here]
        return True

    def _pointwise(self, reader: int, k: int) -> bool:
        every = list(range(len(self.ops[reader].axes)))
        plain = all(simple(self.ops[reader], indices) == every for indices in self.readers[k][reader])
        return plain and self.ops[reader].shape == self.ops[k].shape


@lru_cache(maxsize=1024)
def dag_of(ops: tuple[Op, ...]) -> Dag:
    """The graph of `ops`; states that share their operations share it."""
    return Dag(ops)


# ------------------------------------------------------------------------------------------------------------- loops

ANNOTATIONS = (
    "none", "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x", "blockIdx.y", "threadIdx.y",
    "blockIdx.z", "threadIdx.z",
)  # fmt: skip
BYTES = {"float32": 4, "int32": 4, "bool": 1}
Length = int | None


class StepError(ValueError):
    """A step that does not fit its state."""


@dataclass(frozen=True)
class Iter:
    """A loop, or a loop that became others; `id` is its place in `Stage.iters`, the axes of the operation first.

    `kind` is space, reduce, or mixed (fused of both).  The extent is None as long as it is not known.
    """

    id: int
    name: str
    extent: int | None
    kind: str
    annotation: str = "none"

    @property
    def length(self) -> int:
        """The extent, which must be known."""
        if self.extent is None:
            raise StepError(f"{self.name}: its extent is not known yet")
        return self.extent


@dataclass(frozen=True)
class SplitRel:
    """`parent = sum of part * product of the lengths of later parts`."""

    parent: int
    parts: tuple[int, ...]
    lengths: tuple[Length, ...]
    inner_to_outer: bool


@dataclass(frozen=True)
class FuseRel:
    """`fused` counts through `parts`, the last one fastest."""

    parts: tuple[int, ...]
    fused: int


@dataclass(frozen=True)
class Stage:
    """The loops of one operation: `loops` are the ids of the current ones, outermost first.

    `where` is root, inlined, or iter: computed inside the loop `at`, a pair of stage and id.  `turn` orders the stages
    that are computed in one loop.
    """

    op: Op
    iters: tuple[Iter, ...]
    loops: tuple[int, ...]
    relations: tuple[SplitRel | FuseRel, ...] = ()
    where: str = "root"
    at: tuple[int, int] | None = None
    turn: int = 0
    auto_unroll: int = 0
    align: tuple[int, int, int] | None = None

    @property
    def current(self) -> tuple[Iter, ...]:
        return tuple(self.iters[i] for i in self.loops)

    @property
    def rank(self) -> int:
        return len(self.op.axes)

    def split_of(self, i: int) -> SplitRel | None:
        """The split of iterator `i`, if it was split."""
        return next((rel for rel in self.relations if isinstance(rel, SplitRel) and rel.parent == i), None)

    def fused_into(self, i: int) -> int:
        """The iterator that `i` is a part of by fusing alone."""
        for rel in self.relations:
            if isinstance(rel, FuseRel) and i in rel.parts:
                i = rel.fused
        return i

    def unfused(self, i: int) -> list[int]:
        """The iterators that `i` was fused of."""
        rel = next((rel for rel in self.relations if isinstance(rel, FuseRel) and rel.fused == i), None)
        return [i] if rel is None else [q for p in rel.parts for q in self.unfused(p)]

    @property
    def roots(self) -> int:
        """The number of axes, which are the first iterators."""
        return len(self.op.all_axes)


def fresh(op: Op) -> Stage:
    """The stage of an operation as it was written."""
    iters = tuple(
        Iter(n, clean_name(a.name), a.extent, "space" if n < len(op.axes) else "reduce")
        for n, a in enumerate(op.all_axes)
    )
    return Stage(op, iters if op.body is not None else (), tuple(range(len(iters))) if op.body is not None else ())


def product(lengths: Sequence[Length]) -> Length:
    """The product of extents, None where one is not known."""
    return None if None in lengths else prod(n for n in lengths if n is not None)


def clean_name(name: str) -> str:
    """The name of an axis as states print it: `k.outer.v` is `k_o_v`."""
    return "_".join({"outer": "o", "inner": "i"}.get(word, word) for word in name.replace("@", ".").split("."))


@dataclass(frozen=True)
class Step:
    """What all steps have.  `apply` gives the next state, without the step in its list."""

    tag: ClassVar[str]
    stage: int

    def apply(self, state: State) -> State:
        raise NotImplementedError

    def loop(self, state: State, position: int) -> Iter:
        """The loop at a position of the stage, which must be there."""
        stage = state.stages[self.stage]
        if not 0 <= position < len(stage.loops):
            raise StepError(f"{self.tag} {stage.op.name}: it has {len(stage.loops)} loops, got number {position}")
        return stage.iters[stage.loops[position]]


@dataclass(frozen=True)
class State:
    """The stages that `steps` made of the computation of `args`, its inputs and results in order."""

    args: tuple[Op, ...]
    stages: tuple[Stage, ...]
    steps: tuple[Step, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(s.op for s in self.stages)

    def is_argument(self, k: int) -> bool:
        """Whether stage k is an input or a result of the program, which is stored as a whole."""
        return self.stages[k].op.body is None or self.stages[k].op.key in [op.key for op in self.args]

    @property
    def dag(self) -> Dag:
        return dag_of(self.ops)

    def attached(self, k: int, loop: int) -> list[int]:
        """The stages that are computed in loop `loop` (an id) of stage k, in the order in which they came there."""
        found = [(s.turn, n) for n, s in enumerate(self.stages) if s.at == (k, loop)]
        return [n for _, n in sorted(found)]

    def unroll_limit(self, k: int) -> int:
        """The unroll limit of stage k, or of the nearest stage around it that has one."""
        stage = self.stages[k]
        return stage.auto_unroll or (0 if stage.at is None else self.unroll_limit(stage.at[0]))

    def update(self, k: int, **changes: Any) -> State:
        """The state with other fields of stage k."""
        stages = list(self.stages)
        stages[k] = replace(stages[k], **changes)
        return replace(self, stages=tuple(stages))

    def inserted(self, k: int, stage: Stage) -> State:
        """The state with one more stage, number k; those behind it move on."""
        ats = [(s.at[0] + 1, s.at[1]) if s.at is not None and s.at[0] >= k else s.at for s in self.stages]
        moved = [replace(s, at=at) for s, at in zip(self.stages, ats, strict=True)]
        return replace(self, stages=(*moved[:k], stage, *moved[k:]))

    def apply(self, step: Step) -> State:
        """The state after one more step.  Raises StepError when it does not fit."""
        if not 0 <= step.stage < len(self.stages):
            raise StepError(f"{step.tag}: there are {len(self.stages)} stages, got stage {step.stage}")
        return replace(step.apply(self), steps=(*self.steps, step))

    def __str__(self) -> str:
        lines = ["Placeholder: " + ", ".join(op.name for op in self.ops if op.body is None)]
        for k, stage in enumerate(self.stages):
            if stage.where == "root" and stage.op.body is not None:
                lines += _stage_lines(self, k, "")
        return "\n".join(lines) + "\n"


def _stage_lines(state: State, k: int, indent: str) -> list[str]:
    stage = state.stages[k]
    lines = [f"{indent}{stage.op.name} auto_unroll: {stage.auto_unroll}"] if stage.auto_unroll else []
    for it in stage.current:
        if it.extent != 1:
            extent = "(None)" if it.extent is None else f"(0,{it.extent})"
            lines.append(f"{indent}{'for' if it.annotation == 'none' else it.annotation} {it.name} {extent}")
            indent += "  "
        for child in state.attached(k, it.id):
            lines += _stage_lines(state, child, indent)
    return [*lines, f"{indent}{stage.op.name} = ..."]


def initial(args: Sequence[Op]) -> State:
    """The computation of `args`, inputs and results, as it was written."""
    return State(tuple(args), tuple(fresh(op) for op in ordered(args)))


@dataclass(frozen=True)
class Machine:
    """What rules and samples ask of the target, `c` or `cuda`; the fields after `target` are those of records."""

    target: str = "c"
    num_cores: int = 4
    vector_unit_bytes: int = 64
    cache_line_bytes: int = 64
    max_shared_memory_per_block: int = 0
    max_local_memory_per_block: int = 0
    max_threads_per_block: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0

    @property
    def is_gpu(self) -> bool:
        return self.target == "cuda"

    @property
    def structure(self) -> str:
        """The levels of tiles: space and reduction loops."""
        return "SSSRRSRS" if self.is_gpu else "SSRSRS"


GPU = Machine("cuda", -1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32)
