"""Columns of one row: its loops and their marks, the storage that it uses, the sums that it keeps in registers.

A loop is vectorized, unrolled or parallel by its annotation; these marks are bool lanes where programs differ in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.bounds.footprint import Cover, contiguous_run
from te_lite.bounds.nest import Loop, Nest
from te_lite.expr.lanes import product
from te_lite.loops.register_tile import VectorUnit

from ..core.target.hardware import HardwareParams
from ..space.programs import Programs
from ..space.trace import Symbol, recorded
from .held_sums import HeldSums, held_sums, reads_of
from .lanes import Lanes, Value
from .matrix import Columns
from .row_plans import Access, Plan, RowPlan
from .schema import POSITIONS

# --------------------------------------------------------------------------------- what several groups of columns share


Level = np.ndarray[Any, np.dtype[np.intp]]
Matrix = np.ndarray[Any, np.dtype[np.float64]]
Marks = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, np.dtype[np.int16]]


class LoopExtents:
    """`inside[l]`: product of the extents of loops l .. L-1, float64 [L+1, n]; `long[j]`: loop j is longer than 1.

    `lengths[j]` is the extent of loop j, with a last row of zeros; `places[j]` is j + 1 where loop j is long, else 0;
    `first` and `last` are the outermost and innermost long loop (-1 where there is none).
    """

    def __init__(self, cover: Cover, n: Any) -> None:
        self.nest, self.cover, self.n = cover.nest, cover, n
        self.extents = cover.extents
        self.inside: Matrix = _inside(self.n, *self.extents)
        self.lengths: Matrix = stacked(self.n, *self.extents, 0.0)
        self.long = _long(self.lengths)
        self.places = _numbered(self.long)
        self.last = self.innermost(list(range(len(self.extents))))
        self.first = _outermost(self.long)

    def innermost(self, loops: list[int]) -> Level:
        """The innermost of `loops` longer than 1, in every lane; -1 where there is none."""
        found: Level = _innermost(self.places, tuple(loops))
        return found


@recorded
def stacked(n: int, *rows: Value) -> Matrix:
    """Row values as the rows of a matrix, [len(rows), n]."""
    out = np.empty((len(rows), n))
    for j, row in enumerate(rows):
        out[j] = row
    return out


@recorded
def at(matrix: Matrix, level: Level) -> Value:
    """The value of each lane at its level (intp [..., n]); -1 is the last one."""
    n = matrix.shape[1]
    return matrix.ravel().take(level * n + np.arange(n))


@recorded
def _inside(n: int, *extents: Value) -> Matrix:
    out = np.ones((len(extents) + 1, n))
    for j in reversed(range(len(extents))):
        np.multiply(out[j + 1], extents[j], out=out[j])
    return out


@recorded
def _long(lengths: Matrix) -> Marks:
    return lengths[:-1] > 1


@recorded
def _numbered(long: Marks) -> Numbers:
    return long * np.arange(1, len(long) + 1, dtype=np.int16)[:, None]


@recorded
def _innermost(places: Numbers, loops: tuple[int, ...]) -> Level:
    found: Level = places[list(loops)].max(axis=0, initial=0).astype(np.intp) - 1
    return found


@recorded
def _outermost(long: Marks) -> Level:
    from_end = (long * np.arange(len(long), 0, -1, dtype=np.int16)[:, None]).max(axis=0, initial=0).astype(np.intp)
    return np.where(from_end > 0, len(long) - from_end, -1)


# ------------------------------------------------------------------------------------------------------- marks of loops


Mark = Any
"""bool, or bool [lanes]."""

TAGS = {"vec": "vectorize", "unroll": "unroll", "parallel": "parallel"}


def loop_marks(name: str, nest: Nest, programs: Programs, lanes: Lanes) -> list[Mark]:
    """Whether each loop of a nest carries the annotation of `name` (a key of `TAGS`)."""
    counts = {"vec": programs.vectorize, "parallel": programs.parallel}.get(name, {})
    return [_mark(loop, TAGS[name], counts, lanes) for loop in nest.loops]


def _mark(loop: Loop, tag: str, counts: Any, lanes: Lanes) -> Mark:
    if loop.stage not in counts:
        return loop.tag == tag
    number = lanes.value(counts[loop.stage])
    return number > loop.place if tag == "parallel" else number >= loop.count - loop.place


def mark_columns(name: str, marks: list[Mark], shape: LoopExtents) -> dict[str, Value]:
    """The columns `<name>_num`, `_prod`, `_len` and `_at_*` of a row."""
    out: dict[str, Value] = {f"{name}_at_{position}": 0.0 for position in POSITIONS}
    if not any([mark is not False for mark in marks]):
        return {**out, f"{name}_num": 0.0, f"{name}_prod": 0.0, f"{name}_len": 0.0, f"{name}_at_none": 1.0}
    reduce = tuple([loop.reduce for loop in shape.nest.loops])
    found = _marked_columns(shape.n, shape.lengths, shape.places, shape.last, shape.first, reduce, *marks)
    keys = [f"{name}_{key}" for key in _MARKED]
    return {**out, **{key: found[i] for i, key in enumerate(keys)}}


_MARKED = (*[f"at_{position}" for position in POSITIONS], "num", "prod", "len")


@recorded
def _marked_columns(
    n: int, lengths: Matrix, places: Any, last: Level, first: Level, is_reduce: tuple[bool, ...], *marks: Mark
) -> list[Value]:
    """The columns `_MARKED` of a row with marks."""
    marked = np.zeros((len(marks) + 1, n), bool)
    for j, mark in enumerate(marks):
        marked[j] = mark
    inner, outer = at(marked, last), at(marked, first)
    marked[:-1] &= places > 0
    number = marked.sum(axis=0)
    innermost = (marked[:-1] * places).max(axis=0, initial=0).astype(np.intp) - 1
    spatial = marked[[j for j, reduce in enumerate(is_reduce) if not reduce]].any(axis=0)
    reduce = marked[[j for j, reduce in enumerate(is_reduce) if reduce]].any(axis=0)
    out = [~(spatial | reduce)]
    for only in (spatial & ~reduce, reduce & ~spatial):
        out += [only & inner, only & ~outer & ~inner, only & outer & ~inner]
    product = np.where(marked, lengths, 1.0).prod(axis=0) * np.minimum(number, 1)
    return [*out, spatial & reduce, number, product, at(lengths, innermost)]


def auto_unroll(k: int, programs: Programs, lanes: Lanes) -> Value:
    """auto_unroll_max_step of stage k, or of the nearest stage around it that has one."""
    stage = programs.bounds.state.stages[k]
    own = lanes.value(programs.unroll.get(k, stage.auto_unroll_max_step))
    if stage.attach is None:
        return own
    return np.where(np.equal(own, 0), auto_unroll(stage.attach.stage, programs, lanes), own)


def pragma_unrolled(limit: Value, parallel: list[Mark], vectors: list[Mark], shape: LoopExtents) -> Value:
    """The copies of the statement that unrolling makes: the inner serial loops whose product stays within `limit`."""
    copies: Value = 1.0
    grows: Mark = True
    for j in reversed(range(shape.nest.around, len(shape.nest.loops))):
        if shape.nest.loops[j].tag not in ("none", "unroll", "vectorize"):
            break
        more = copies * np.where(vectors[j], 1.0, shape.extents[j])
        grows = grows & (more <= limit) & np.logical_not(parallel[j])
        copies = np.where(grows, more, copies)
    return copies


# -------------------------------------------------------------------------------------------------------------- storage


class Memory:
    """Where an access stands in memory; `cover` is that of the loops inside its storage.

    `sizes` are those of the dimensions.  `axis_steps` is by how many elements one step of each axis moves the address,
    `loop_steps[j]` by how many one iteration of loop j does; loops that leave the address in place are missing.
    """

    def __init__(self, access: Access, cover: Cover, lanes: Lanes) -> None:
        self.access, self.cover, self.lanes = access, cover, lanes
        self.sizes = lanes.sizes(access)
        self.axis_steps = cover.axis_steps(access.indices, self.sizes)
        self.loop_steps = cover.loop_steps(self.axis_steps)
        size = product(self.sizes)
        for j in access.copies:
            self.loop_steps[j] = size
            size = size * cover.extents[j]


def buffer_columns(
    memory: Memory, touched: list[Value], total: Matrix, points: Value, line_bytes: int, shape: LoopExtents
) -> dict[str, Value]:
    """The columns of one access (`B?.` left out).

    `touched[l]` and `total[l]` are the bytes that level l touches of this storage and of all storages of the row.
    """
    access = memory.access
    out: dict[str, Value] = {f"is_{kind}": float(access.kind == kind) for kind in ("read", "write", "read_write")}
    out["bytes"] = points * access.count * access.element
    out["unique_bytes"] = touched[0]
    out.update(_lines(memory, touched[0], points, float(line_bytes), shape))
    out.update(_reuse(memory, total, shape))
    reused = out["reuse_ct"] > 0.5
    for name in ("bytes", "unique_bytes", "lines", "unique_lines"):
        out[f"{name}_d_reuse_ct"] = out[name] / np.where(reused, out["reuse_ct"], 0.5)
    return out


def _lines(memory: Memory, unique: Value, points: Value, line: float, shape: LoopExtents) -> dict[str, Value]:
    moving = sorted(memory.loop_steps)
    steps = stacked(shape.n, *[memory.loop_steps[j] for j in moving], 0.0)
    row_of = tuple([moving.index(j) if j in moving else -1 for j in range(len(shape.nest.loops))])
    found = shape.innermost(moving)
    step = at(steps, _looked_up(row_of, found))
    still = at(shape.inside, found + 1)
    lines = np.maximum(1.0, points / still * np.minimum(1.0, step * memory.access.element / line))
    spans = memory.cover.spans(memory.access.indices, memory.sizes, 0)
    run = contiguous_run(spans, memory.sizes) * memory.access.element
    unique_lines = np.maximum(1.0, unique / np.minimum(run, line))
    return {
        "lines": np.maximum(lines, unique_lines),
        "unique_lines": unique_lines,
        "stride": at(steps, _looked_up(row_of, shape.last)),
    }


@recorded
def _looked_up(rows: tuple[int, ...], level: Level) -> Level:
    """The row of each level; -1 for level -1."""
    return np.array((*rows, -1))[level]


def _reuse(memory: Memory, total: Matrix, shape: LoopExtents) -> dict[str, Value]:
    """The nearest reuse, from the inside out: a loop that leaves the address, or another stage in a common loop.

    A loop around the storage is no reuse: what it holds is made anew in every iteration.
    """
    access = memory.access
    loops = len(shape.nest.loops)
    again = [j for j in range(loops) if j not in memory.loop_steps and j not in access.fixed]
    still = shape.innermost(again)
    common = access.serial - 1 if access.others else -1
    serial = common > still
    none = (still < 0) & ~serial
    by_loop = ~serial & ~none
    level = np.where(serial, common + 1, still + 1)
    some = 1.0 - none
    return {
        "reuse_loop": by_loop,
        "reuse_serial": serial,
        "reuse_none": none,
        "reuse_dis_iter": at(shape.inside, level) * some,
        "reuse_dis_bytes": at(total, level) * some,
        "reuse_ct": np.where(serial, float(access.others), at(shape.lengths, still) * by_loop),
    }


# ------------------------------------------------------------------------------------------------------------ registers


def register_columns(programs: Programs, plan: Plan, row: RowPlan, hardware: HardwareParams, lanes: Lanes) -> Columns:
    """The columns of the group "registers"; none for a row that does not reduce by itself."""
    nests = {other.nest.stage: other.nest for other in plan.rows}
    reads = reads_of(programs.bounds, row.nest.stage)
    held = held_sums(programs, row.nest, nests, reads, VectorUnit.of(hardware.vector_unit_bytes))
    if held is None:
        return {}
    return {name: _value(lanes, value) for name, value in _figures(held).items()}


def _figures(held: HeldSums) -> dict[str, Any]:
    pieces = held.pieces
    reads = held.loads + held.broadcasts + held.elements
    return {
        "sums_held": held.registers,
        "sums_steps": held.steps,
        "sums_parts": held.parts,
        "tile_vectors": held.vectors,
        "vector_lanes": pieces.width,
        "vector_fill": pieces.width / pieces.lanes,
        "vector_masked": 1 * pieces.masked,
        "step_vectors": held.loads,
        "step_broadcasts": held.broadcasts,
        "step_elements": held.elements,
        "step_reads": reads / held.vectors,
        "operands_live": held.live,
        "tile_spilled": held.spilled,
    }


def _value(lanes: Lanes, value: Any) -> Any:
    """Lanes as float64; a number as one."""
    return float(value) if not isinstance(value, Symbol) and np.ndim(value) == 0 else lanes.value(value)
