"""A program: the operations of a computation, what each reads of the others, and the loops of its stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from .expr import Axis, Call, Const, Expr, Op, loads, walk

SIMPLIFY = "auto_scheduler_simplify_const_tensor_indices"
"""The hint that an operation multiplies by a constant matrix, as Winograd's algorithm does; it names the axes of it."""


def ordered(args: Sequence[Op]) -> tuple[Op, ...]:
    """All operations of a computation, producers first: from each result, depth first, in the order of its reads."""
    found: dict[str, Op] = {}

    def visit(op: Op) -> None:
        if op.key not in found:
            for load in loads(op.body):
                visit(load.op)
            found[op.key] = op

    for op in args:
        visit(op)
    read = {load.op.key for op in found.values() for load in loads(op.body)}
    found.clear()
    for op in [*[op for op in args if op.body is not None and op.key not in read], *args]:
        visit(op)
    return tuple(found.values())


def shifted_axis(e: Expr, axes: tuple[Axis, ...]) -> int | None:
    """The number of the axis `v` where `e` is `v`, `v + c`, `v - c` or `c + v`; else None."""
    match e:
        case Call("+" | "-", (Axis() as v, Const())) | Call("+", (Const(), Axis() as v)) | (Axis() as v):
            return axes.index(v) if v in axes else None
    return None


def simple(op: Op, indices: tuple[Expr, ...]) -> list[int] | None:
    """The axes of `op` at which a read is, from left to right, shifted or not; None for a read of another kind."""
    matched = [shifted_axis(e, op.axes) for e in indices if not isinstance(e, Const)]
    return None if None in matched else [m for m in matched if m is not None]


class Dag:
    """The reads between operations in the order of the program."""

    def __init__(self, ops: tuple[Op, ...]) -> None:
        self.ops = ops
        index = {op.key: k for k, op in enumerate(ops)}
        self.reads: list[dict[int, list[tuple[Expr, ...]]]] = [{} for _ in ops]
        self.readers: list[dict[int, list[tuple[Expr, ...]]]] = [{} for _ in ops]
        """For each operation all index tuples, by the operation that it reads; by the one that reads it."""
        for k, op in enumerate(ops):
            for load in loads(op.body):
                p = index[load.op.key]
                self.reads[k].setdefault(p, []).append(load.indices)
                self.readers[p].setdefault(k, []).append(load.indices)
        self.tiled = [self._has_reuse(k) for k in range(len(ops))]

    def is_output(self, k: int) -> bool:
        return self.ops[k].body is not None and not self.readers[k]

    def strictly_inlineable(self, k: int) -> bool:
        """Inlining repeats no work: axes read in order, once each, no select, no `exp` (the only dear call)."""
        op = self.ops[k]
        if op.body is None or not self.reads[k]:
            return op.body is not None
        found = [simple(op, indices) for each in self.reads[k].values() for indices in each]
        plain = all(s is not None and s == sorted(set(s)) for s in found)
        return plain and not any(isinstance(e, Call) and e.op in ("select", "exp") for e in walk(op.body))

    def _has_reuse(self, k: int) -> bool:
        """`HasDataReuse`: whether multi-level tiles pay, as inputs are read again and again."""
        op = self.ops[k]
        long = {v for v in op.axes if v.extent > 1}
        missing = sum(not long <= used for p in self.reads[k] for used in self.places_read(k, p))
        pays = missing >= 2 or (missing >= 1 and bool(op.reduce_axes))
        return pays and op.body is not None and SIMPLIFY not in dict(op.attrs)

    def places_read(self, k: int, p: int) -> set[frozenset[Expr]]:
        """The axes in each index tuple: two sets for the `x` of `x[i, r] * x[j, r]`."""
        return {frozenset(v for e in i for v in walk(e) if isinstance(v, Axis)) for i in self.reads[k][p]}

    def common_outer(self, k: int, target: int) -> list[int]:
        """On each way from `k` to its consumer `target`, how many leading axes of all go over the same points."""
        if k == target:
            return [len(self.ops[k].axes)]
        out = []
        for r, found in self.readers[k].items():
            reader, pairs = self.ops[r], zip(self.ops[r].shape, self.ops[k].shape, strict=False)
            plain = [all(shifted_axis(i[d], reader.axes) == d for i in found) for d in range(len(self.ops[k].axes))]
            same = [m == n and plain[d] for d, (m, n) in enumerate(pairs)]
            out += [min([*same, False].index(False), rest) for rest in self.common_outer(r, target)]
        return out

    def elementwise_match(self, k: int, target: int) -> bool:
        """`HasFusibleConsumer`: all that reads `k` leads to `target`, point by point at the same shape."""
        for r, found in self.readers[k].items() if k != target else ():
            every, reader = list(range(len(self.ops[k].axes))), self.ops[r]
            plain = all(simple(reader, indices) == every for indices in found) and reader.shape == self.ops[k].shape
            if not plain or not self.elementwise_match(r, target):
                return False
        return k == target or bool(self.readers[k])


dag_of = lru_cache(maxsize=1024)(Dag)  # states that share their operations share their graph


# ------------------------------------------------------------------------------------------------------------- loops
THREADS = tuple(f"{kind}Idx.{axis}" for axis in "xyz" for kind in ("block", "thread"))
ANNOTATIONS = ("none", "unroll", "vectorize", "parallel", "vthread", *THREADS)
BYTES = {"float32": 4, "int32": 4, "bool": 1}
Length = int | None
Lengths = tuple[Length, ...]


class StepError(ValueError):
    """A step that does not fit its state."""


@dataclass(frozen=True)
class Iter:
    """A loop, or a loop that became others."""

    id: int  # its place in `Stage.iters`, the axes of the operation first
    name: str
    extent: int | None  # None as long as it is not known
    kind: str  # space, reduce, or mixed: fused of both
    annotation: str = "none"

    @property
    def length(self) -> int:
        """The extent, which must be known."""
        if self.extent is None:
            raise StepError(f"{self.name}: its extent is not known yet")
        return self.extent


@dataclass(frozen=True)
class SplitRel:
    """`parent` became `parts`, outermost first; `lengths` are those of all parts but the first."""

    parent: int
    parts: tuple[int, ...]
    lengths: Lengths

    @property
    def strides(self) -> list[int]:
        """By how much an iteration of each part moves the parent."""
        return [prod(n for n in self.lengths[p:] if n is not None) for p in range(len(self.parts))]


@dataclass(frozen=True)
class FuseRel:
    """`fused` counts through `parts`, the last one fastest."""

    parts: tuple[int, ...]
    fused: int


Relation = SplitRel | FuseRel


@dataclass(frozen=True)
class Stage:
    """The loops of one operation."""

    op: Op
    iters: tuple[Iter, ...]
    loops: tuple[int, ...]  # the ids of the current ones, outermost first
    relations: tuple[Relation, ...] = ()
    where: str = "root"  # or inlined, or iter: computed inside the loop `at`
    at: tuple[int, int] | None = None  # the number of a stage, and the id of its loop
    since: int = 0  # the number of steps before, which orders the stages that are computed in one loop
    auto_unroll: int = 0

    @property
    def current(self) -> tuple[Iter, ...]:
        return tuple(self.iters[i] for i in self.loops)

    @property
    def rank(self) -> int:
        return len(self.op.axes)

    @property
    def roots(self) -> int:
        """The number of axes, which are the first iterators."""
        return len(self.op.all_axes)

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


def fresh(op: Op) -> Stage:
    """The stage of an operation as it was written; of an axis `k.outer.v` the loop is `k_o_v`."""
    axes, short = op.all_axes if op.body is not None else (), {"outer": "o", "inner": "i"}
    kinds = ["space"] * len(op.axes) + ["reduce"] * len(op.reduce_axes)
    names = ["_".join(short.get(word, word) for word in a.name.replace("@", ".").split(".")) for a in axes]
    iters = tuple(Iter(n, names[n], a.extent, kinds[n]) for n, a in enumerate(axes))
    return Stage(op, iters, tuple(range(len(iters))))


def product(lengths: Sequence[Length]) -> Length:
    """The product of extents, None where one is not known."""
    return None if None in lengths else prod(n for n in lengths if n is not None)


@dataclass(frozen=True)
class Step:
    """A step as a value: its letters and fields in TVM's record format; the first field is the number of the stage."""

    tag: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class State:
    """The stages that `steps` made of the computation of `args`, its inputs and results in order."""

    args: tuple[Op, ...]
    stages: tuple[Stage, ...]
    steps: tuple[Step, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(s.op for s in self.stages)

    @property
    def dag(self) -> Dag:
        return dag_of(self.ops)

    def is_argument(self, k: int) -> bool:
        """Whether stage k is an input or a result of the program, which is stored as a whole."""
        return self.stages[k].op.body is None or self.stages[k].op.key in [op.key for op in self.args]

    def attached(self, k: int, loop: int) -> list[int]:
        """The stages that are computed in loop `loop` (an id) of stage k, in the order in which they came there."""
        found = [(s.since, n) for n, s in enumerate(self.stages) if s.at == (k, loop)]
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

    def __str__(self) -> str:
        lines = ["Placeholder: " + ", ".join(op.name for op in self.ops if op.body is None)]
        for k, stage in enumerate(self.stages):
            if stage.where == "root" and stage.op.body is not None:
                lines += self._lines(k, "")
        return "\n".join(lines) + "\n"

    def _lines(self, k: int, indent: str) -> list[str]:
        stage = self.stages[k]
        lines = [f"{indent}{stage.op.name} auto_unroll: {stage.auto_unroll}"] if stage.auto_unroll else []
        for it in stage.current:
            if it.extent != 1:
                extent = "(None)" if it.extent is None else f"(0,{it.extent})"
                lines.append(f"{indent}{'for' if it.annotation == 'none' else it.annotation} {it.name} {extent}")
                indent += "  "
            for child in self.attached(k, it.id):
                lines += self._lines(child, indent)
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
