"""The paper's 164 features of each stage (appendix B).

A row describes a computed stage: what one point costs, which of its loops are marked, and for its largest five tensors
how much of them its loops touch, level by level.  Level l of a nest of L loops means: the loops outside of l stand at
0, loops l .. L-1 run.  A fused loop counts as the loops it was fused of.  TVM's formulas have faults, of which the
engine is rid (`ansor/features/schema.py` has the formula of every column); these are the engine's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, fmod, log2, prod

import numpy as np

from .bounds import Bounds, Indices, LoopVar, infer_bounds, standing
from .expr import FOLDS, Binary, Call, Cast, Const, Expr, Not, Reduce, Select, children, loads, terms
from .program import BYTES, FuseRel, Machine, SplitRel, Stage, State
from .steps import split_strides

SAMPLES = 10
OPERATIONS = ("mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")
WORDS = {"+": "addsub", "-": "addsub", "*": "mul", "/": "divmod", "//": "divmod", "%": "divmod"}
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
FLAGS = np.array([any(part in name for part in ("_at_", ".is_", "is_gpu", *REUSE)) for name in NAMES])
"""Columns that are not on a logarithmic scale."""


def features(state: State, machine: Machine) -> np.ndarray:
    """The rows of the computed stages of a state, float32 [rows, 164]; columns are those of `NAMES`."""
    rows = [[row.get(name, 0.0) for name in NAMES] for row in _Program(infer_bounds(state), machine).rows()]
    values = np.array(rows, np.float32)
    return np.where(FLAGS, values, np.log2(1 + values)).astype(np.float32)


# -------------------------------------------------------------------------------------------------------- loop nests


@dataclass(frozen=True)
class NestLoop:
    """Iterator `id` of a stage, which comes from `axis`, or -1 where it was fused of several and split again."""

    stage: int
    id: int
    tag: str
    reduce: bool
    axis: int


def origins(stage: Stage, i: int) -> set[int]:
    """The axes that iterator `i` comes from."""
    found = {i}
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRel) and found & set(rel.parts):
            found = found - set(rel.parts) | {rel.parent}
        elif isinstance(rel, FuseRel) and rel.fused in found:
            found = found - {rel.fused} | set(rel.parts)
    return found & set(range(stage.roots))


def own_loops(k: int, stage: Stage) -> list[NestLoop]:
    """The loops of stage k, fused ones in parts."""
    out = []
    for i, tag in [(i, it.annotation) for it in stage.current for i in stage.unfused(it.id)]:
        axes = origins(stage, i)
        out.append(NestLoop(k, i, tag, bool(axes) and min(axes) >= stage.rank, min(axes) if len(axes) == 1 else -1))
    return out


class Nest:
    """The loops around the statement of stage k, the first `around` of other stages, and what they do to its axes.

    `values[l][axis]` is the number of values of an axis at level l, `steps[j]` by how much a turn of loop j moves each
    axis that it moves.  The loops `fixed` are around a storage: what is left is what this storage sees.
    """

    def __init__(self, bounds: Bounds, k: int, fixed: frozenset[int] = frozenset()) -> None:
        self.stage, self.fixed, self.starts = bounds.state.stages[k], fixed, [r.start for r in bounds.regions[k]]
        stages, still = bounds.state.stages, standing(bounds.state.stages, bounds.scopes, k)
        outside_in = list(dict.fromkeys(s for s, _ in still))[::-1]
        parts = {(s, p) for s, i in still for p in stages[s].unfused(i)}
        around = [loop for s in outside_in for loop in own_loops(s, stages[s]) if (s, loop.id) in parts]
        self.around, self.loops = len(around), [*around, *own_loops(k, self.stage)]
        self.place = {(loop.stage, loop.id): j for j, loop in enumerate(around)}
        self.extents = [float(stages[loop.stage].iters[loop.id].length) for loop in self.loops]
        self.inside = [prod(self.extents[level:]) for level in range(len(self.loops) + 1)]
        self.region = [float(r.extent) for r in bounds.regions[k]]
        self.steps: list[dict[int, float]] = [{} for _ in self.loops]
        changes: list[dict[int, float]] = [{} for _ in self.loops]
        self._own_steps(changes)
        self._start_steps(changes)
        self.values = [[1.0] * len(self.region)]
        for change in reversed(changes):
            self.values.insert(0, [change.get(axis, value) for axis, value in enumerate(self.values[0])])

    def innermost(self, loops: Sequence[int]) -> int:
        """The innermost of `loops` longer than 1; -1 where there is none."""
        return max([j for j in loops if self.extents[j] > 1], default=-1)

    def _own_steps(self, changes: list[dict[int, float]]) -> None:
        strides: dict[int, float] = {}
        """By how much a turn of each iterator moves the axis, or the fused iterator, that it comes from."""
        for rel in [rel for rel in self.stage.relations if isinstance(rel, SplitRel)]:
            for part, stride in zip(rel.parts, split_strides(self.stage, rel), strict=True):
                strides[part] = strides.get(rel.parent, 1.0) * stride
        plain, digits, runs = [1.0] * len(self.region), [1.0] * len(self.region), dict[int, float]()
        for j in [j for j in reversed(range(self.around, len(self.loops))) if j not in self.fixed]:
            loop = self.loops[j]
            if loop.axis >= 0:
                self.steps[j][loop.axis] = strides.get(loop.id, 1.0)
                plain[loop.axis] *= self.extents[j]
            else:
                fused = loop.id
                for before in reversed(self.stage.relations):
                    fused = before.parent if isinstance(before, SplitRel) and fused in before.parts else fused
                runs[fused] = runs.get(fused, 1.0) * self.extents[j]
                self._digits(j, fused, runs[fused], strides, digits)
            changes[j].update({axis: min(plain[axis] * digits[axis], self.region[axis]) for axis in self.steps[j]})

    def _digits(self, j: int, fused: int, run: float, strides: dict[int, float], digits: list[float]) -> None:
        """A loop of a fused iterator that was split again: its run passes the digits from the innermost on."""
        found: dict[int, float] = {}
        turn, inner = strides.get(self.loops[j].id, 1.0), 1.0
        for p in reversed(self.stage.unfused(fused)):
            extent, axis = float(self.stage.iters[p].length), min(origins(self.stage, p))
            taken = min(extent, run)
            found[axis] = found.get(axis, 1.0) * taken
            run = ceil(run / taken)
            step = floor(turn / inner) if inner <= turn < inner * extent else 0.0
            self.steps[j][axis] = self.steps[j].get(axis, 0.0) + step * strides.get(p, 1.0)
            inner *= extent
        for axis, value in found.items():
            digits[axis] = value

    def _start_steps(self, changes: list[dict[int, float]]) -> None:
        """Loops of other stages move the start of the region."""
        for axis, size in enumerate(self.stage.op.shape if self.place else ()):
            for j, step in self._moves(self.starts[axis]):
                self.steps[j][axis] = self.steps[j].get(axis, 0.0) + step
            for j in [j for j in range(self.around) if axis in self.steps[j]]:
                changes[j][axis] = min(self.region[axis] + self._reach(self.starts[axis], j), size)

    def _moves(self, start: Expr) -> list[tuple[int, float]]:
        """By how much a turn of each loop moves the start of a region."""
        found = []
        for t, c in terms(start).items():
            match t:
                case LoopVar(stage=stage, id=i) if self.place.get((stage, i), 0) not in self.fixed:
                    found.append((self.place.get((stage, i), 0), float(c)))
                case Binary(op, base, Const(n)):
                    moves = self._moves(base)
                    found += [(j, c * (fmod(step, n) if op == "%" else float(int(step / n)))) for j, step in moves]
        return found

    def _reach(self, start: Expr, level: int) -> float:
        """How far the start of a region goes while the loops from `level` on run."""
        reach = 0.0
        for t, c in terms(start).items():
            match t:
                case LoopVar(stage=stage, id=i):
                    j = self.place.get((stage, i), 0)
                    reach += abs(c) * (0 if j < level or j in self.fixed else t.extent - 1)
                case Binary(op, base, Const(n)):
                    steps = self._reach(base, level)
                    reach += abs(c) * (min(steps, n - 1) if op == "%" else ceil(steps / n))
        return reach


# ------------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Access:
    """How a row uses a tensor: `count` reads or stores at a point, at `indices`.

    Of its loops those `nest.fixed` are around the storage, which has `sizes`; each of the virtual threads `copies` has
    one of its own.  `shared` is the number of loops that the row has in common with the nearest of `others` users.
    """

    kind: str
    indices: Indices
    count: int
    element: int
    sizes: list[float]
    nest: Nest
    copies: list[int]
    shared: int
    others: int

    def spans(self, level: int) -> list[float]:
        """How many values each index takes while the loops from `level` on run."""
        return [min(self.indices.count(d, self.nest.values[level]), n) for d, n in enumerate(self.sizes)]

    def touched(self, level: int) -> float:
        """Bytes of the tensor that these loops touch."""
        return self.element * prod(self.spans(level)) * prod(self.nest.extents[j] for j in self.copies if j >= level)


class _Program:
    def __init__(self, bounds: Bounds, machine: Machine) -> None:
        self.bounds, self.machine, self.stages, self.ops = bounds, machine, bounds.state.stages, bounds.state.ops
        index = {op.key: k for k, op in enumerate(self.ops)}
        self.nests = {k: Nest(bounds, k) for k, body in enumerate(bounds.bodies) if body is not None}
        self.reads: dict[int, dict[int, list[tuple[Expr, ...]]]] = {k: {} for k in self.nests}
        for k in self.nests:
            for load in loads(bounds.bodies[k]):
                self.reads[k].setdefault(index[load.op.key], []).append(load.indices)

    def rows(self) -> list[dict[str, float]]:
        """The columns of every row that are not 0."""
        return [{**self._row(k), **self._launch(self._root(k))} for k in self.nests]

    def _root(self, k: int) -> int:
        at = self.stages[k].at
        return k if at is None else self._root(at[0])

    def _row(self, k: int) -> dict[str, float]:
        nest, body, op = self.nests[k], self.bounds.bodies[k], self.ops[k]
        around = prod(nest.extents[: nest.around])
        points = around * prod(nest.region)
        counts = op_counts(body) if body is not None else {}
        flops = 2 * counts.get("float_mad", 0) + sum(counts.get(f"float_{kind}", 0) for kind in OPERATIONS[1:])
        out = {name: points * number for name, number in counts.items()}
        for name, tag in MARKS.items():
            out.update(marks(name, [loop.tag == tag for loop in nest.loops], nest))
        largest = sorted(self.reads[k], key=lambda p: -prod(self.ops[p].shape))[:4]
        stored = self._access(k, k, "read_write" if op.reduce_axes else "write", [op.axes])
        accesses = [stored, *[self._access(k, p, "read", self.reads[k][p]) for p in largest]]
        total = [sum(a.touched(level) for a in accesses) for level in range(len(nest.loops) + 1)]
        for b, access in enumerate(accesses):
            columns = self._buffer(access, nest, total, points)
            out.update({f"B{b}.{name}": value for name, value in columns.items()})
        out.update(curve(flops, nest.inside, total) if flops else {})
        if not self.bounds.state.is_argument(k):
            size = prod(nest.region[: len(op.axes)])
            out.update(alloc_size=size * BYTES[op.dtype], alloc_prod=size * around, alloc_outer_prod=around)
            out["alloc_inner_prod"] = nest.inside[nest.around]
        out.update(outer_prod=nest.inside[0], num_loops=sum(extent > 1 for extent in nest.extents))
        return {**out, "auto_unroll": self.bounds.state.unroll_limit(k)}

    def _access(self, k: int, p: int, kind: str, tuples: Sequence[tuple[Expr, ...]]) -> Access:
        nest, op = self.nests[k], self.ops[p]
        placed = self.stages[p].where == "iter" and not self.bounds.state.is_argument(p)
        outside = self.nests[p].loops[: self.nests[p].around] if placed else []
        around = {(loop.stage, loop.id) for loop in outside}
        fixed = frozenset(j for j, loop in enumerate(nest.loops) if (loop.stage, loop.id) in around)
        copies = [j for j in sorted(fixed) if nest.loops[j].tag == "vthread"]
        others = [n for n in self.nests if n != k and (n == p or p in self.reads[n])]
        shared = max([common(nest, self.nests[n]) for n in others], default=0)
        sizes = (
            [float(n) for n in op.shape] if self.bounds.state.is_argument(p) else self.nests[p].region[: len(op.axes)]
        )
        seen, indices = Nest(self.bounds, k, fixed) if fixed else nest, Indices(tuples, self.ops[k].all_axes)
        return Access(kind, indices, len(tuples), BYTES[op.dtype], sizes, seen, copies, shared, len(others))

    def _buffer(self, access: Access, nest: Nest, total: Sequence[float], points: float) -> dict[str, float]:
        """The columns of one tensor; `total` are the bytes that each level touches of all of them."""
        line, sizes, axis_steps = self.machine.cache_line_bytes, access.sizes, access.indices.axis_steps(access.sizes)
        moves: dict[int, float] = {}
        for j, steps in enumerate(access.nest.steps):
            if steps.keys() & axis_steps.keys():
                moves[j] = abs(sum(axis_steps[a] * steps[a] for a in steps if a in axis_steps))
        for n, j in enumerate(access.copies):
            moves[j] = prod(sizes) * prod(nest.extents[copy] for copy in access.copies[n + 1 :])
        found, unique = nest.innermost(list(moves)), access.touched(0)
        part = min(1.0, moves.get(found, 0.0) * access.element / line)
        run = contiguous_run(access.spans(0), sizes) * access.element
        unique_lines = max(1.0, unique / min(run, line))
        out = {
            f"is_{access.kind}": 1.0,
            "bytes": points * access.count * access.element,
            "unique_bytes": unique,
            "lines": max(points / nest.inside[found + 1] * part, unique_lines),
            "unique_lines": unique_lines,
            "stride": moves.get(nest.innermost(range(len(nest.loops))), 0.0),
        }
        out.update(self._reuse(access, nest, moves, total))
        count = out["reuse_ct"] if out["reuse_ct"] > 0.5 else 0.5
        return {**out, **{f"{name}_d_reuse_ct": out[name] / count for name in SIZES}}

    def _reuse(self, access: Access, nest: Nest, moves: dict[int, float], total: Sequence[float]) -> dict[str, float]:
        """The nearest reuse, from the inside out: a loop that leaves the address, or another stage in a common loop."""
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
        most, gpu = dict.fromkeys(TAGS, 1.0), 0.0
        for nest in [nest for k, nest in self.nests.items() if self._root(k) == root]:
            own = dict.fromkeys(TAGS, 1.0)
            for j in [j for j in range(nest.around, len(nest.loops)) if nest.loops[j].tag in TAGS]:
                own[nest.loops[j].tag] *= nest.extents[j]
                gpu = 1.0
            most = {tag: max(extent, own[tag]) for tag, extent in most.items()}
        return {"is_gpu": gpu, **{f"{tag.replace('.', '_')}_len": extent for tag, extent in most.items()}}


def common(nest: Nest, other: Nest) -> int:
    """How many of the outermost loops of a nest are those of another one, too."""
    there = {(loop.stage, loop.id) for loop in other.loops}
    return next((j for j, loop in enumerate(nest.loops) if (loop.stage, loop.id) not in there), len(nest.loops))


def contiguous_run(spans: Sequence[float], sizes: Sequence[float]) -> float:
    """Elements side by side: those of the last dimension, and of the one before where that is whole, and so on."""
    run = 1.0
    for span, size in zip(reversed(spans), reversed(sizes), strict=True):
        run *= span
        if span < size:
            break
    return run


def marks(name: str, marked: Sequence[bool], nest: Nest) -> dict[str, float]:
    """The loops with an annotation: how many, how long, and where."""
    long = [j for j, extent in enumerate(nest.extents) if extent > 1]
    here = [j for j in long if marked[j]]
    if not here:
        return {f"{name}_at_none": 1.0}
    kinds = {"reduce" if nest.loops[j].reduce else "spatial" for j in here}
    place = "inner" if long[-1] in here else "outer" if long[0] in here else "middle"
    where = "mixed" if len(kinds) > 1 else f"{place}_{kinds.pop()}"
    length, whole = nest.extents[here[-1]], prod(nest.extents[j] for j in here)
    return {f"{name}_at_{where}": 1.0, f"{name}_num": len(here), f"{name}_len": length, f"{name}_prod": whole}


def curve(flops: float, inside: Sequence[float], total: Sequence[float]) -> dict[str, float]:
    """Operations per byte under the innermost loops that make up a tenth, two tenths, ... of the turns (their log2)."""
    whole = max(log2(inside[0]), 1e-9)
    places = [SAMPLES, *[floor(log2(turns) / whole * SAMPLES) for turns in inside[1:]]]
    levels = [max(level for level, place in enumerate(places) if place > i) for i in range(SAMPLES)]
    return {f"arith_intensity_{i}": flops * inside[level] / total[level] for i, level in enumerate(levels)}


def op_counts(body: Expr) -> dict[str, int]:
    """Operations of one point, by column; index arithmetic counts as integer operations."""
    found: Counter[str] = Counter()
    if isinstance(body, Reduce):  # the running value and the source, folded
        body = Binary(FOLDS[body.fold][0], Const(0, body.dtype), body.source)

    def product(e: Expr) -> bool:
        return isinstance(e, Binary) and e.op == "*"

    def count(e: Expr) -> None:
        kind, parts = "float" if e.dtype == "float32" else "int", children(e)
        match e:
            case Binary("+" | "-", a, b) if product(a) or product(b):
                found[f"{kind}_mad"] += 1
                factors, other = (a, b) if product(a) else (b, a)
                parts = (*children(factors), other)
            case Binary("&&" | "||", _, _) | Not():
                found["bool_op"] += 1
            case Binary(op, a, _):
                found[f"{'float' if a.dtype == 'float32' else 'int'}_{WORDS.get(op, 'cmp')}"] += 1
            case Select():
                found["select_op"] += 1
            case Call() | Cast():
                found[f"{kind}_{'mathfunc' if isinstance(e, Call) else 'otherfunc'}"] += 1
        for part in parts:
            count(part)

    count(body)
    return dict(found)
