"""Loads and stores of many programs at once: how many instructions, rows and columns a copy takes, and whether it can.

The rules are those of `compiler/transfer.py`: sides that continue each other in DRAM are one, the innermost are the
columns, the next the rows, all others loops of the host.  What is padded is not joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.reads import Affine, index_form
from te_lite.expr.expr import Load
from te_lite.expr.lanes import larger, product, row_major, smaller
from te_lite.expr.visit import walk
from te_lite.schedule.region import LoopAtom, Region

from ..compiler.scopes import ACC, MEMORY_OF
from ..compiler.transfer import MAX_PAD, MAX_SIZE
from ..core.kinds import Memory
from .lane_nest import Kind, Piece

ELEMENT = 2
"""The last axes of a packed tensor are one element."""
PLANE = 2
"""The axes before them are rows and columns, which the host does not run."""


@dataclass(frozen=True)
class LaneTransfer:
    """A copy: so many `instructions`, each of `rows` rows of `columns` elements; numbers are ints or lanes.

    `elements` and `gaps` are what an instruction reads of DRAM on average, where padding is free: elements, and rows
    that do not continue the one before.  `fits`: each can be encoded.
    """

    memory: Memory
    instructions: Any
    elements: Any
    gaps: Any
    fits: Any


def lane_transfer(bounds: Bounds, piece: Piece) -> LaneTransfer:
    """The load or store that a piece is."""
    state, k = bounds.state, piece.stage
    op = state.stages[k].compute
    load = next(e for e in walk(op.body[0]) if isinstance(e, Load))
    stores = piece.kind is Kind.STORE
    (source,) = state.access.read_from[k]
    regions = bounds.regions[source if stores else k][: len(op.axis)]
    shape = op.shape if stores else load.tensor.shape
    memory = Memory.OUT if stores else _loaded(op.scope, load.dtype)
    before = [_padding(e, (*op.axis,)) for e in load.indices] if not stores else [0] * len(shape)
    padded = any(op.shape[d] != shape[d] for d in range(len(shape)))
    sides = _Sides(len(shape) - ELEMENT - PLANE)
    strides = row_major(shape[:-ELEMENT])
    for d in reversed(range(len(shape) - ELEMENT)):
        sides.add(d, regions[d].extent, strides[d], padded)
    fits = sides.fits & (sides.rows <= MAX_SIZE) & (sides.columns <= MAX_SIZE) & (sides.step <= MAX_SIZE)
    gaps: Any = sides.rows
    elements: Any = sides.rows * sides.columns
    if padded:
        inside = {d: _inside(regions[d], before[d], shape[d]) for d in range(len(shape)) if op.shape[d] != shape[d]}
        fits = fits & _pads_fit(op.shape, shape, before, regions, sides.rows)
        last, some = len(shape) - ELEMENT - 1, 1.0
        for d, (share, any_of_it) in inside.items():
            elements, some = elements * share, some * any_of_it
            gaps = gaps * (any_of_it if d == last else share)
        # rows as long as those of the tensor continue each other in DRAM: the tile is one run, if there is any of it
        whole = inside.get(last, (1.0, 1.0))[0] * regions[last].extent == shape[last]
        gaps = np.where(whole, some, gaps)
    return LaneTransfer(memory, sides.instructions, elements, gaps, fits)


def _loaded(scope: str, dtype: str) -> Memory:
    if scope == ACC:
        return Memory.ACC_8BIT if dtype == "int8" else Memory.ACC
    return MEMORY_OF[scope]


class _Sides:
    """The sides of a copy, added innermost first; the host may run those of the first `outer` axes."""

    def __init__(self, outer: int) -> None:
        self.outer = outer
        self.columns: Any = np.int64(1)
        self.rows: Any = np.int64(1)
        self.instructions: Any = np.int64(1)
        self.step: Any = np.int64(1)
        self.fits: Any = np.bool_(True)
        self._groups: Any = np.int64(1)
        self._reach: Any = np.int64(1)

    def add(self, axis: int, extent: Any, stride: int, padded: bool) -> None:
        """One more side around the others."""
        long = np.greater(extent, 1)
        joins = long & (self._reach == stride)
        if padded:
            joins = joins & (self.columns == 1) & (self._groups == 1)
        begins = long & ~joins
        self._groups = self._groups + begins
        self.columns = np.where(long & (self._groups == 1), self.columns * extent, self.columns)
        self.rows = np.where(long & (self._groups == 2), self.rows * extent, self.rows)
        self.instructions = np.where(long & (self._groups > 2), self.instructions * extent, self.instructions)
        self.step = np.where(begins & (self._groups == 2), stride, self.step)
        self._reach = np.where(long, stride * np.asarray(extent), self._reach)
        if axis >= self.outer:
            self.fits = self.fits & ~(long & (self._groups > 2))


def _padding(index: Any, axes: tuple[Any, ...]) -> int:
    """How many elements of padding stand before the first one that an index reads."""
    form = index_form(index, {v: n for n, v in enumerate(axes)})
    return -form.const if isinstance(form, Affine) else 0


def _pads_fit(
    padded: Sequence[int], shape: Sequence[int], before: Sequence[int], regions: Sequence[Region], rows: Any
) -> Any:
    """Whether the frame of every tile fits an instruction, and what may be all padding is few enough rows."""
    ok: Any = np.bool_(True)
    for d, (whole, size, first) in enumerate(zip(padded, shape, before, strict=True)):
        most = max(first, whole - size - first)
        ok = ok & (most <= MAX_PAD) & ((np.asarray(regions[d].extent) > most) | (rows <= 2 * MAX_PAD))
    return ok


def _inside(region: Region, before: int, size: int) -> tuple[Any, Any]:
    """The share of a tile's length that is not padding, on average over the tiles, and the share of tiles with some."""
    atoms = [(c, a.extent) for a, c in region.min.terms.items() if isinstance(a, LoopAtom)]
    count = product([extent for _, extent in atoms])
    far = np.iinfo(np.int64).max
    step: Any = far
    for c, extent in atoms:
        step = smaller(step, np.where(np.greater(extent, 1), c, far))
    step = np.where(np.equal(step, far), 0, step)
    total: Any = 0.0
    some: Any = 0.0
    for t in range(int(np.max(count))):
        low = t * step + region.min.const
        length = smaller(low + region.extent, before + size) - larger(low, before)
        total = total + np.where(t < count, larger(length, 0), 0)
        some = some + ((t < count) & np.greater(length, 0))
    return total / (count * np.asarray(region.extent)), some / count
