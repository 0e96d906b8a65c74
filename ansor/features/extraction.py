"""Features of whole populations: one matrix of rows and columns per program, all programs in one pass.

What depends on structure only is planned once (`row_plans.py`); the rest is arithmetic on float64 lanes, in chunks of
lanes that keep the memory small.  One program is one lane, so both give the same numbers.

For the rows of a variant this arithmetic is recorded, from the decisions to the columns, and replayed from then on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.footprint import Cover
from te_lite.later import when_called
from te_lite.schedule.state import State

from ..core.target.hardware import HardwareParams
from ..space.programs import Programs
from ..space.trace import Replayer, recorded
from .gpu_kernel import kernel_columns, launch, launch_columns, storage_bytes
from .lanes import Lanes, Value
from .matrix import Columns, Features, Layout
from .row_columns import (
    LoopExtents,
    Marks,
    Matrix,
    Memory,
    at,
    auto_unroll,
    buffer_columns,
    loop_marks,
    mark_columns,
    pragma_unrolled,
    register_columns,
    stacked,
)
from .row_plans import Access, Plan, RowPlan, plan_of
from .schema import SAMPLES

CHUNK = 2048
warp_columns: Callable[[Memory], Columns] = when_called("ansor.features.warp", "warp_columns")
fetched_bytes: Callable[[RowPlan, Memory, Value, Value, LoopExtents], Value] = when_called(
    "ansor.features.warp", "fetched_bytes"
)


def programs_of(state: State) -> Programs:
    """One concrete program.  Raises LowerError when its bounds cannot be inferred."""
    return Programs(infer_bounds(state))


def state_features(state: State, hardware: HardwareParams) -> Features:
    """The features of one concrete state, float32 [rows, columns]; the rows are its computed stages in order."""
    found: Features = extract(programs_of(state), hardware)[0]
    return found


def extract(programs: Programs, hardware: HardwareParams) -> Features:
    """The features of all lanes of `programs`, float32 [lanes, rows, columns].

    Rows are the computed stages (neither inputs nor inlined) in order, columns those of `SCHEMA`.
    """
    replayed = _player.replayed(programs, hardware)
    parts = []
    for chunk in _chunks(programs.n):
        if replayed is None:
            lanes, layout = _columns(programs, hardware, chunk)
        else:
            lanes, layout = replayed.lanes(chunk), replayed.meaning
        parts.append(layout.matrix(lanes, chunk.stop - chunk.start))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _chunks(n: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, n)) for start in range(0, max(n, 1), CHUNK)]


def _columns(programs: Programs, hardware: HardwareParams, chunk: slice | None = None) -> tuple[list[Value], Layout]:
    """The columns of all rows, of all programs or a chunk: the different lanes, and where they go."""
    n = programs.n if chunk is None else chunk.stop - chunk.start
    lanes = Lanes(programs.bounds, n, chunk)
    layout = Layout(_Extraction(programs, plan_of(programs.bounds), hardware, lanes).run())
    return layout.sources, layout


_player = Replayer(_columns)


class _Extraction:
    """The unscaled columns of the rows of one chunk of lanes."""

    def __init__(self, programs: Programs, plan: Plan, hardware: HardwareParams, lanes: Lanes) -> None:
        self.programs, self.plan, self.hardware, self.lanes = programs, plan, hardware, lanes
        self.flops: dict[int, Value] = {}
        self.fetched: dict[int, Value] = {}

    def run(self) -> list[Columns]:
        found = [self._row(row) for row in self.plan.rows]
        kernels = {root: self._kernel(root, gpu) for root, gpu in self.plan.gpu.items()}
        for row, columns in zip(self.plan.rows, found, strict=True):
            columns.update(kernels[row.nest.root])
            if not self.plan.gpu[row.nest.root]:
                columns["parallel_balance"] = self._balance(columns["parallel_prod"])
        return found

    def _row(self, row: RowPlan) -> Columns:
        shape = LoopExtents(Cover(row.nest, self.lanes), self.lanes.n)
        around: Value = 1.0
        for extent in shape.extents[: row.nest.around]:
            around = around * extent
        points = around
        for extent in shape.cover.region:
            points = points * extent
        out: Columns = {name: points * count for name, count in row.counts.items()}
        marks = {name: loop_marks(name, row.nest, self.programs, self.lanes) for name in ("vec", "unroll", "parallel")}
        for name, marked in marks.items():
            out.update(mark_columns(name, marked, shape))
        limit = auto_unroll(row.nest.stage, self.programs, self.lanes)
        copies = pragma_unrolled(limit, marks["parallel"], marks["vec"], shape)
        out.update({"auto_unroll": limit, "pragma_unrolled": copies, "points": points})
        out.update(_outer(row, shape, around, self.lanes))
        out.update(self._buffers(row, shape, points))
        if not self.plan.gpu[row.nest.root]:
            out.update(register_columns(self.programs, self.plan, row, self.hardware, self.lanes))
        self.flops[row.nest.root] = self.flops.get(row.nest.root, 0.0) + points * row.flops
        return out

    def _buffers(self, row: RowPlan, shape: LoopExtents, points: Value) -> Columns:
        fixed = {access.fixed for access in row.accesses} - {frozenset()}
        covers = {frozenset(): shape.cover, **{f: Cover(row.nest, self.lanes, f) for f in fixed}}
        seen = [self._touched(access, covers[access.fixed]) for access in row.accesses]
        total = stacked(shape.n, *[sum(levels, 0.0) for levels in zip(*seen, strict=True)])
        out = _curve(row, total, shape)
        fetched: Value = 0.0
        for b, (access, bytes_) in enumerate(zip(row.accesses, seen, strict=True)):
            memory = Memory(access, covers[access.fixed], self.lanes)
            columns = buffer_columns(memory, bytes_, total, points, self.hardware.cache_line_bytes, shape)
            if self.plan.gpu[row.nest.root]:
                columns.update(warp_columns(memory))
                fetched = fetched + fetched_bytes(row, memory, columns["bytes"], bytes_, shape)
            out.update({f"B{b}.{name}": value for name, value in columns.items()})
        self.fetched[row.nest.root] = self.fetched.get(row.nest.root, 0.0) + fetched
        return {**out, "row_bytes_per_block": fetched}

    def _touched(self, access: Access, cover: Cover) -> list[Value]:
        return cover.touched(access.indices, self.lanes.sizes(access), float(access.element), access.copies)

    def _kernel(self, root: int, gpu: bool) -> Columns:
        found = launch(self.plan, root, self.lanes)
        out = launch_columns(gpu, found)
        if gpu:
            out.update(kernel_columns(self.plan, root, self.lanes, found, self.hardware))
            out["kernel_flops"] = self.flops[root]
            out["kernel_flops_per_thread"] = self.flops[root] / (out["blocks"] * out["threads"])
            out["kernel_bytes_per_block"] = self.fetched[root]
            out["kernel_intensity"] = self.flops[root] / np.maximum(out["blocks"] * self.fetched[root], 1.0)
        return out

    def _balance(self, tasks: Value) -> Value:
        cores = float(max(self.hardware.num_cores, 1))
        return tasks / (cores * np.maximum(np.ceil(tasks / cores), 1.0))


def _outer(row: RowPlan, shape: LoopExtents, around: Value, lanes: Lanes) -> Columns:
    """Allocation, and the size of the nest."""
    number = _count(shape.long)
    out = {"outer_prod": shape.inside[0], "num_loops": number}
    if row.argument:
        return out
    size = storage_bytes(row, lanes)
    return {
        **out,
        "alloc_size": size,
        "alloc_prod": size / row.element * around,
        "alloc_outer_prod": around,
        "alloc_inner_prod": shape.inside[row.nest.around],
    }


def _curve(row: RowPlan, total: Matrix, shape: LoopExtents) -> Columns:
    """Operations per byte of the innermost level whose iterations reach each sample."""
    if not row.flops:
        return {}
    curve = _sampled(row.flops * shape.inside / total, shape.inside)
    return {f"arith_intensity_{i}": curve[i] for i in range(SAMPLES)}


@recorded
def _count(marks: Marks) -> Value:
    return marks.sum(axis=0)


@recorded
def _sampled(intensity: Matrix, inside: Matrix) -> Value:
    """The intensity of each sample, [SAMPLES, n]: that of the innermost level whose place is at least the sample's."""
    logs = np.log2(inside)
    place = np.floor(logs / np.maximum(logs[0], 1e-9) * SAMPLES).astype(np.int8)
    place[0] = SAMPLES
    reached = place[:, None] >= np.arange(1, SAMPLES + 1, dtype=np.int8)[:, None]
    level = reached.view(np.uint8).sum(axis=0, dtype=np.uint8).astype(np.intp) - 1
    return at(intensity, level)
