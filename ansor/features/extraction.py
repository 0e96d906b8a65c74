"""Features of whole populations: one matrix of rows and columns per program, all programs in one pass.

What depends on structure only is planned once (`plan.py`); the rest is arithmetic on float64 lanes, in chunks of
lanes that keep the memory small.  One program is one lane, so both give the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.bounds import infer_bounds
from te_lite.state import State

from ..hardware import HardwareParams
from ..population.programs import Programs
from .buffers import Memory, buffer_columns
from .cover import Cover, Lanes, Value, touched
from .kernel import kernel_columns, launch, launch_columns, storage_bytes
from .marks import auto_unroll, loop_marks, mark_columns, pragma_unrolled
from .plan import Plan, RowPlan, plan_of
from .schema import INDEX, SAMPLES, SCHEMA
from .shape import Matrix, Shape
from .warp import fetched_bytes, warp_columns

Features = np.ndarray[Any, np.dtype[np.float32]]
Columns = dict[str, Value]

CHUNK = 2048
_PAD = 16
_PLAIN = [i for i, c in enumerate(SCHEMA) if c.scale == "none"]


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
    plan = plan_of(programs.bounds)
    out: Features = np.empty((programs.n, len(plan.rows), len(SCHEMA)), np.float32)
    work: Features = np.empty((2, len(SCHEMA), min(programs.n, CHUNK) + _PAD), np.float32)
    for start in range(0, programs.n, CHUNK):
        chunk = slice(start, min(start + CHUNK, programs.n))
        for r, columns in enumerate(_Extraction(programs, plan, hardware, chunk).run()):
            _fill(out[chunk, r], columns, *work)
    return out


def _fill(out: Features, columns: Columns, values: Features, logs: Features) -> None:
    """Put columns (all at least 0) on their scale, log2(1 + x) or as they are, into `out`, float32 [n, columns].

    The rows of the working arrays `values` and `logs` are a little longer than n: with a power of two between them,
    reading across would make them fight for the same lines of the cache.
    """
    n = len(out)
    values.fill(0)
    for name, value in columns.items():
        values[INDEX[name], :n] = value
    np.log2(np.add(values, 1, out=logs), out=logs)
    logs[_PLAIN] = values[_PLAIN]
    out[...] = logs[:, :n].T


class _Extraction:
    """The unscaled columns of the rows of one chunk of lanes."""

    def __init__(self, programs: Programs, plan: Plan, hardware: HardwareParams, chunk: slice) -> None:
        self.programs, self.plan, self.hardware = programs, plan, hardware
        self.lanes = Lanes(programs.bounds, chunk)
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
        shape = Shape(Cover(row.nest, self.lanes))
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
        self.flops[row.nest.root] = self.flops.get(row.nest.root, 0.0) + points * row.flops
        return out

    def _buffers(self, row: RowPlan, shape: Shape, points: Value) -> Columns:
        fixed = {access.fixed for access in row.accesses} - {frozenset()}
        covers = {frozenset(): shape.cover, **{f: Cover(row.nest, self.lanes, f) for f in fixed}}
        seen = [touched(access, covers[access.fixed]) for access in row.accesses]
        total = shape.rows(len(shape.extents) + 1)
        for level, line in enumerate(total):
            for bytes_ in seen:
                line += bytes_[level]
        out = _curve(row, total, shape)
        fetched: Value = 0.0
        for b, (access, bytes_) in enumerate(zip(row.accesses, seen, strict=True)):
            memory = Memory(access, covers[access.fixed])
            columns = buffer_columns(memory, bytes_, total, points, self.hardware.cache_line_bytes, shape)
            if self.plan.gpu[row.nest.root]:
                columns.update(warp_columns(memory))
                fetched = fetched + fetched_bytes(row, memory, columns["bytes"], bytes_, shape)
            out.update({f"B{b}.{name}": value for name, value in columns.items()})
        self.fetched[row.nest.root] = self.fetched.get(row.nest.root, 0.0) + fetched
        return {**out, "row_bytes_per_block": fetched}

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


def _outer(row: RowPlan, shape: Shape, around: Value, lanes: Lanes) -> Columns:
    """Allocation, and the size of the nest."""
    number = shape.long.sum(axis=0)
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


def _curve(row: RowPlan, total: Matrix, shape: Shape) -> Columns:
    """Operations per byte of the innermost level whose iterations reach each sample."""
    if not row.flops:
        return {}
    logs = np.log2(shape.inside)
    place = np.floor(logs / np.maximum(logs[0], 1e-9) * SAMPLES).astype(np.intp)
    place[0] = SAMPLES
    intensity = row.flops * shape.inside / total
    curve = np.full((SAMPLES + 1, shape.n), -1.0)
    lanes = np.arange(shape.n)
    for level in range(len(logs)):
        curve[place[level], lanes] = intensity[level]
    for i in reversed(range(SAMPLES)):
        np.copyto(curve[i], curve[i + 1], where=curve[i] < 0)
    return {f"arith_intensity_{i}": curve[i + 1] for i in range(SAMPLES)}
