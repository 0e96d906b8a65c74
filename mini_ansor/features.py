"""The paper's 164 features of each stage (appendix B).

A row describes a computed stage: how many operations it does, which of its loops are annotated, and how many bytes its
loops touch of the tensor that it writes and the four largest that it reads, level by level.  Level l of a nest of L
loops means: the loops outside of l are fixed at 0, loops l .. L-1 vary.  A fused loop counts as its parts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil, floor, fmod, inf, log2, prod
from typing import Any

import numpy as np

from .bounds import Bounds, Loop, LoopVar, enclosing, fixed_loops
from .expr import MEANING, Axis, Call, Const, Expr, Interval, Reduce, children, index_value, interval_quotient
from .expr import interval_sum, loads, walk
from .program import BYTES, Iter, Machine, Stage, State
from .steps import axis_values

SAMPLES = 10
OPERATIONS = ("mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")
WORDS = {"+": "addsub", "-": "addsub", "*": "mul", "/": "divmod", "//": "divmod", "%": "divmod", "cast": "otherfunc"}
KINDS = {"float32": "float", "int32": "int", "bool": "int"}
MARKS = {"vec": "vectorize", "unroll": "unroll", "parallel": "parallel"}
PLACES = ("none", *[f"{p}_{kind}" for kind in ("spatial", "reduce") for p in ("inner", "middle", "outer")], "mixed")
TAGS = (*[f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz"], "vthread")
SIZES = ("bytes", "unique_bytes", "lines", "unique_lines")
REUSE = ("reuse_loop", "reuse_serial", "reuse_none")
BUFFER = (
    *("is_read", "is_write", "is_read_write"), *SIZES, *REUSE, "reuse_dis_iter", "reuse_dis_bytes", "reuse_ct",
    *[f"{name}_d_reuse_ct" for name in SIZES], "stride",
)  # fmt: skip
NAMES = (
    *[f"{kind}_{op}" for kind in ("float", "int") for op in OPERATIONS], "bool_op", "select_op",
    *[f"{mark}_{what}" for mark in MARKS for what in ("num", "prod", "len", *[f"at_{p}" for p in PLACES])],
    "is_gpu", *[f"{tag.replace('.', '_')}_len" for tag in TAGS],
    *[f"B{b}.{name}" for b in range(5) for name in BUFFER],
    *[f"arith_intensity_{i}" for i in range(SAMPLES)],
    *("alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod", "outer_prod", "num_loops", "auto_unroll"),
)  # fmt: skip
FLAGS = np.array([any(part in name for part in ("_at_", ".is_", "is_gpu", *REUSE)) for name in NAMES])  # no logarithm


def features(state: State, machine: Machine) -> np.ndarray:
    """The rows of the computed stages of a state, float32 [rows, 164]; columns are those of `NAMES`."""
    program = _Program(Bounds(state), machine)
    values = np.array([[row.get(name, 0.0) for name in NAMES] for row in map(program.row, program.nests)], np.float32)
    return np.where(FLAGS, values, np.log2(1 + values)).astype(np.float32)


# -------------------------------------------------------------------------------------------------------- loop nests
Moves = dict[int, float]  # by how much an iteration of some loops, or a step along some axes, moves something


def moves_sum(a: Moves, b: Moves, factor: int) -> Moves:
    return {j: a.get(j, 0.0) + factor * b.get(j, 0.0) for j in {**a, **b}}


def moves_quotient(a: Moves, op: str, n: int) -> Moves:
    """What most steps move: quotients step where remainders fall back."""
    return {j: fmod(step, n) if op == "%" else float(int(step / n)) for j, step in a.items()}


def own_loops(k: int, stage: Stage) -> dict[Loop, Iter]:
    """The loops of stage k, fused ones in parts, which have the annotation of the whole."""
    parts = [(it, i) for it in stage.current for i in stage.unfused(it.id)]
    return {(k, i): replace(stage.iters[i], annotation=it.annotation) for it, i in parts}


class Nest:
    """The loops around the statement of stage k, the first `around` of other stages, and what they do to its axes.

    `values[l][axis]` is the number of values of an axis at level l, `steps[j]` by how much an iteration of loop j moves
    each axis that it moves.  The loops `fixed` are around a storage: what is left is what this storage sees.
    """

    def __init__(self, bounds: Bounds, k: int, fixed: frozenset[int] = frozenset()) -> None:
        stages, outer = bounds.state.stages, fixed_loops(bounds.state.stages, bounds.scopes, k)
        self.stage, self.fixed, self.starts = stages[k], fixed, [r.start for r in bounds.regions[k]]
        parts = {(s, p) for s, i in outer for p in stages[s].unfused(i)}
        outside_in = list(dict.fromkeys(s for s, _ in outer))[::-1]
        around = {loop: it for s in outside_in for loop, it in own_loops(s, stages[s]).items() if loop in parts}
        own = own_loops(k, self.stage)
        self.around, self.loops, self.iters = len(around), [*around, *own], [*around.values(), *own.values()]
        self.place = {loop: j for j, loop in enumerate(self.loops)}
        self.extents = [float(it.length) for it in self.iters]
        levels, self.region = range(len(self.loops) + 1), [float(r.extent) for r in bounds.regions[k]]
        self.inside = [prod(self.extents[level:]) for level in levels]
        variables = axis_values(self.stage, {i: LoopVar(it.name, it.length, k, i) for (_, i), it in own.items()})
        self.axes = [variables[axis] for axis in range(self.stage.roots)]
        moves = [self._moves(a + start) for a, start in zip(self.axes, self.starts, strict=True)]
        self.steps = [{axis: steps[j] for axis, steps in enumerate(moves) if j in steps} for j in levels[:-1]]
        self.values = [[self._count(level, axis) for axis in range(self.stage.roots)] for level in levels]

    def innermost(self, loops: Sequence[int]) -> int:
        """The innermost of `loops` longer than 1; -1 where there is none."""
        return max([j for j in loops if self.extents[j] > 1], default=-1)

    def _moves(self, e: Expr) -> Moves:
        """By how much an iteration of each loop moves the value of an expression of loops."""
        return index_value(e, lambda x: {j: 1.0 for j in self._varying(x)}, moves_sum, moves_quotient) or {}

    def _varying(self, x: LoopVar | Const) -> list[int]:
        """The number of a loop that is not fixed."""
        j = self.place[x.stage, x.id] if isinstance(x, LoopVar) else None
        return [] if j is None or j in self.fixed else [j]

    def _count(self, level: int, axis: int) -> float:
        """The number of values of an axis while the loops from `level` on vary."""
        if any(axis in self.steps[j] for j in range(level, self.around)):
            return min(self.region[axis] + self._reach(self.starts[axis], level), self.stage.op.shape[axis])
        loops = [x for x in walk(self.axes[axis]) if isinstance(x, LoopVar)]
        varying = {x: prod(self.extents[j] for j in self._varying(x) if j >= level) for x in loops}
        return min(different([self.axes[axis]], varying), self.region[axis])

    def _reach(self, start: Expr, level: int) -> float:
        """How far the start of a region goes while the loops from `level` on vary."""

        def leaf(x: LoopVar | Const) -> float:
            return sum(self.extents[j] - 1 for j in self._varying(x) if j >= level)

        def quotient(reach: float, op: str, n: int) -> float:
            return min(reach, n - 1) if op == "%" else ceil(reach / n)

        return index_value(start, leaf, lambda a, b, c: a + abs(c) * b, quotient) or 0.0

    def marks(self, name: str, tag: str) -> dict[str, float]:
        """The loops with an annotation: how many, how long, and where."""
        long = [j for j, extent in enumerate(self.extents) if extent > 1]
        here = [j for j in long if self.iters[j].annotation == tag]
        if not here:
            return {f"{name}_at_none": 1.0}
        kinds = {"reduce" if self.iters[j].kind == "reduce" else "spatial" for j in here}
        place = "inner" if long[-1] in here else "outer" if long[0] in here else "middle"
        where = "mixed" if len(kinds) > 1 else f"{place}_{kinds.pop()}"
        length, whole = self.extents[here[-1]], prod(self.extents[j] for j in here)
        return {f"{name}_at_{where}": 1.0, f"{name}_num": len(here), f"{name}_len": length, f"{name}_prod": whole}

    def curve(self, flops: float, total: Sequence[float]) -> dict[str, float]:
        """Operations per byte of the smallest inner nests with at least n^0.1, n^0.2, ... of all n iterations."""
        whole = max(log2(self.inside[0]), 1e-9)
        places = [SAMPLES, *[floor(log2(iterations) / whole * SAMPLES) for iterations in self.inside[1:]]]
        levels = [max(level for level, place in enumerate(places) if place > i) for i in range(SAMPLES)]
        return {f"arith_intensity_{i}": flops * self.inside[level] / total[level] for i, level in enumerate(levels)}


@dataclass(frozen=True)
class Access:
    """How a row uses a tensor."""

    kind: str  # read, write or read_write
    tuples: Sequence[tuple[Expr, ...]]  # the indices of each element that it uses at a point
    axes: tuple[Axis, ...]  # what these are indices of
    element: int  # bytes
    sizes: list[float]  # of the storage
    nest: Nest  # its loops, of which those that are `fixed` are around the storage
    copies: list[int]  # loops of virtual threads, of which each has a storage of its own
    others: int  # the number of other users
    shared: int  # the number of loops that the row has in common with the nearest of these

    def spans(self, level: int) -> list[float]:
        """How many values each index takes while the loops from `level` on vary."""
        values = dict(zip(self.axes, self.nest.values[level], strict=True))
        return [min(different([t[d] for t in dict.fromkeys(self.tuples)], values), n) for d, n in enumerate(self.sizes)]

    def touched(self, level: int) -> float:
        """Bytes of the tensor that these loops touch."""
        return self.element * prod(self.spans(level)) * prod(self.nest.extents[j] for j in self.copies if j >= level)

    def axis_steps(self) -> Moves:
        """By how many elements a step along each axis moves the address, in most places."""

        def leaf(x: Axis | Const) -> Moves:
            return {self.axes.index(x): 1.0} if isinstance(x, Axis) else {}

        out: Moves = {}
        for indices in reversed(self.tuples):
            place: Moves = {}
            for i, size in zip(indices, self.sizes, strict=True):
                step = index_value(i, leaf, moves_sum, moves_quotient) or {}
                place = moves_sum({a: s * size for a, s in place.items()}, step, 1)
            out.update(place)
        return out


def different(indices: Sequence[Expr], values: Mapping[Any, float]) -> float:
    """How many different values some indices take while each axis takes a number of values, from 0 on."""

    def leaf(x: Axis | Const) -> tuple[Interval, float]:
        """The smallest and the largest value, and the number of points that the index depends on."""
        return ((0.0, values[x] - 1), values[x]) if isinstance(x, Axis) else ((x.value, x.value), 1.0)

    def add(a: tuple[Interval, float], b: tuple[Interval, float], c: int) -> tuple[Interval, float]:
        return interval_sum(a[0], b[0], c), a[1] * b[1]

    def divide(a: tuple[Interval, float], op: str, n: int) -> tuple[Interval, float]:
        return interval_quotient(a[0], op, n), a[1]

    found = [index_value(e, leaf, add, divide) for e in indices]
    known = [f for f in found if f is not None]
    if len(known) < len(found):
        return inf
    reach = max(ends[1] for ends, _ in known) - min(ends[0] for ends, _ in known) + 1
    return min(sum(points for _, points in known), reach)


class _Program:
    def __init__(self, bounds: Bounds, machine: Machine) -> None:
        self.bounds, self.machine, self.stages, self.ops = bounds, machine, bounds.state.stages, bounds.state.ops
        index = {op.key: k for k, op in enumerate(self.ops)}
        self.nests = {k: Nest(bounds, k) for k, body in enumerate(bounds.bodies) if body is not None}
        self.roots = {k: [k, *[s for s, _ in enclosing(self.stages, k)]][-1] for k in self.nests}
        self.reads: dict[int, dict[int, list[tuple[Expr, ...]]]] = {k: {} for k in self.nests}
        for k in self.nests:
            for load in loads(bounds.bodies[k]):
                self.reads[k].setdefault(index[load.op.key], []).append(load.indices)

    def row(self, k: int) -> dict[str, float]:
        """The columns of stage k that are not 0."""
        nest, body, op = self.nests[k], self.bounds.bodies[k], self.ops[k]
        around = prod(nest.extents[: nest.around])
        points = around * prod(nest.region)
        counts = op_counts(body) if body is not None else {}
        flops = 2 * counts.get("float_mad", 0) + sum(counts.get(f"float_{kind}", 0) for kind in OPERATIONS[1:])
        out = {name: points * number for name, number in counts.items()}
        for name, tag in MARKS.items():
            out.update(nest.marks(name, tag))
        largest = sorted(self.reads[k], key=lambda p: -prod(self.ops[p].shape))[:4]
        stored = self._access(k, k, "read_write" if op.reduce_axes else "write", [op.axes])
        accesses = [stored, *[self._access(k, p, "read", self.reads[k][p]) for p in largest]]
        total = [sum(a.touched(level) for a in accesses) for level in range(len(nest.loops) + 1)]
        for b, access in enumerate(accesses):
            columns = self._buffer(access, nest, total, points)
            out.update({f"B{b}.{name}": value for name, value in columns.items()})
        out.update(nest.curve(flops, total) if flops else {})
        if not self.bounds.state.is_argument(k):
            size = prod(nest.region[: len(op.axes)])
            out.update(alloc_size=size * BYTES[op.dtype], alloc_prod=size * around, alloc_outer_prod=around)
            out["alloc_inner_prod"] = nest.inside[nest.around]
        out.update(outer_prod=nest.inside[0], num_loops=sum(extent > 1 for extent in nest.extents))
        return {**out, "auto_unroll": self.bounds.state.unroll_limit(k), **self._launch(self.roots[k])}

    def _access(self, k: int, p: int, kind: str, tuples: Sequence[tuple[Expr, ...]]) -> Access:
        nest, op, whole = self.nests[k], self.ops[p], self.bounds.state.is_argument(p)
        placed = self.stages[p].where == "iter" and not whole
        around = self.nests[p].loops[: self.nests[p].around] if placed else []
        fixed = frozenset(j for j, loop in enumerate(nest.loops) if loop in around)
        copies = [j for j in sorted(fixed) if nest.iters[j].annotation == "vthread"]
        others = [n for n in self.nests if n != k and (n == p or p in self.reads[n])]
        together = [list(takewhile(self.nests[n].loops.__contains__, nest.loops)) for n in others]
        shared = max(map(len, together), default=0)
        sizes = [float(n) for n in op.shape] if whole else self.nests[p].region[: len(op.axes)]
        seen, axes = Nest(self.bounds, k, fixed) if fixed else nest, self.ops[k].all_axes
        return Access(kind, tuples, axes, BYTES[op.dtype], sizes, seen, copies, len(others), shared)

    def _buffer(self, access: Access, nest: Nest, total: Sequence[float], points: float) -> dict[str, float]:
        """The columns of one tensor; `total` are the bytes that each level touches of all of them."""
        line, sizes, axis_steps = self.machine.cache_line_bytes, access.sizes, access.axis_steps()
        moves: dict[int, float] = {}
        for j, steps in enumerate(access.nest.steps):
            if steps.keys() & axis_steps.keys():
                moves[j] = abs(sum(axis_steps[a] * steps[a] for a in steps if a in axis_steps))
        for n, j in enumerate(access.copies):
            moves[j] = prod(sizes) * prod(nest.extents[copy] for copy in access.copies[n + 1 :])
        found, unique = nest.innermost(list(moves)), access.touched(0)
        part = min(1.0, moves.get(found, 0.0) * access.element / line)
        # Side by side are elements of the last dimension, of the one before where that is whole, and so on.
        spans = access.spans(0)
        first = max([d for d, size in enumerate(sizes) if spans[d] < size], default=0)
        unique_lines = max(1.0, unique / min(prod(spans[first:]) * access.element, line))
        out = {
            f"is_{access.kind}": 1.0,
            "bytes": points * len(access.tuples) * access.element,
            "unique_bytes": unique,
            "lines": max(points / nest.inside[found + 1] * part, unique_lines),
            "unique_lines": unique_lines,
            "stride": moves.get(nest.innermost(range(len(nest.loops))), 0.0),
        }
        out.update(self._reuse(access, nest, moves, total))
        count = out["reuse_ct"] if out["reuse_ct"] > 0.5 else 0.5
        return {**out, **{f"{name}_d_reuse_ct": out[name] / count for name in SIZES}}

    def _reuse(self, access: Access, nest: Nest, moves: dict[int, float], total: Sequence[float]) -> dict[str, float]:
        """The innermost reuse: a loop that does not change the address, or another reader in a common loop."""
        still = nest.innermost([j for j in range(len(nest.loops)) if j not in moves and j not in access.nest.fixed])
        common_loop = access.shared - 1 if access.others else -1
        if still < 0 and common_loop < 0:
            return {"reuse_none": 1.0, "reuse_ct": 0.0}
        level, serial = max(common_loop, still) + 1, common_loop > still
        kind, count = ("serial", float(access.others)) if serial else ("loop", nest.extents[still])
        found = {"reuse_dis_iter": nest.inside[level], "reuse_dis_bytes": total[level]}
        return {f"reuse_{kind}": 1.0, "reuse_ct": count, **found}

    def _launch(self, root: int) -> dict[str, float]:
        """The blocks and threads of a kernel: the most that one of its stages binds."""
        own = [nest.iters[nest.around :] for k, nest in self.nests.items() if self.roots[k] == root]
        out = {"is_gpu": float(any(it.annotation in TAGS for iters in own for it in iters))}
        for tag in TAGS:
            most = max(prod(it.length for it in iters if it.annotation == tag) for iters in own)
            out[f"{tag.replace('.', '_')}_len"] = float(most)
        return out


def op_counts(body: Expr) -> dict[str, int]:
    """Operations of one point, by column; index arithmetic counts as integer operations."""
    found: Counter[str] = Counter()
    if isinstance(body, Reduce):  # the running value and the source, folded
        body = body.fold_in(body.identity, body.source)
    todo = [body]
    while todo:
        e = todo.pop()
        match e:
            case Call("+" | "-", (Call("*", factors), other) | (other, Call("*", factors)), dtype):
                found[f"{KINDS[dtype]}_mad"] += 1
                todo += [*factors, other]
                continue
            case Call("&&" | "||" | "!"):
                found["bool_op"] += 1
            case Call("select"):
                found["select_op"] += 1
            case Call(op, (a, *_), dtype):
                compared = a.dtype if op in MEANING else dtype
                word = WORDS.get(op, "cmp" if op in MEANING else "mathfunc")
                found[f"{KINDS[compared]}_{word}"] += 1
        todo += children(e)
    return dict(found)
