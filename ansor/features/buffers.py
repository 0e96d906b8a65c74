"""Columns of the storage that a row uses: bytes, lines, reuse, stride."""

from __future__ import annotations

import numpy as np

from te_lite.bounds.footprint import Cover, contiguous_run
from te_lite.expr.lanes import product

from ..space.trace import recorded
from .lanes import Lanes, Value
from .row_plans import Access
from .shape import Level, Matrix, Shape, at, stacked


class Memory:
    """Where an access stands in memory; `cover` is that of the loops inside its storage.

    `sizes` are those of the dimensions.  `axis_steps` is by how many elements one step of each axis moves the address,
    `loop_steps[j]` by how many one turn of loop j does; loops that leave the address in place are missing.
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
    memory: Memory, touched: list[Value], total: Matrix, points: Value, line_bytes: int, shape: Shape
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


def _lines(memory: Memory, unique: Value, points: Value, line: float, shape: Shape) -> dict[str, Value]:
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


def _reuse(memory: Memory, total: Matrix, shape: Shape) -> dict[str, Value]:
    """The nearest reuse, from the inside out: a loop that leaves the address, or another stage in a common loop.

    A loop around the storage is no reuse: what it holds is made anew in every turn.
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
