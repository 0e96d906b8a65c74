"""Products and element-wise operations of many programs at once: iterations, micro-ops, and whether a kernel can be.

The rules are those of `compiler/kernel_calls.py`: the two outermost loops that are there become loops of the
instruction, the others are written out as micro-ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.expr.expr import Binary, Cast
from te_lite.expr.lanes import product
from te_lite.expr.visit import walk
from te_lite.schedule.state import REDUCE, Iter

from ..core.config import LOOP_BITS, Config
from ..core.kinds import Memory
from ..runtime.uop_kernel import HAZARD, MAX_LOOPS
from .lane_nest import Kind, Piece
from .lane_transfer import ELEMENT

MOST_ITERATIONS = (1 << LOOP_BITS) - 1
NARROWING = 2
"""Operations that cut accumulators to 8 bits, where no store does."""


@dataclass(frozen=True)
class LaneKernel:
    """`calls` kernels of so many iterations and micro-ops each; `fits`: an instruction can do one."""

    calls: int
    iterations: Any
    uops: Any
    fits: Any


def lane_kernel(bounds: Bounds, piece: Piece, config: Config) -> LaneKernel:
    """The kernels that a piece is, one or, of element-wise operations, one an operation."""
    if piece.kind is Kind.ALU:
        return _element_wise(bounds, piece, config)
    loops = _before_block(piece.loops)
    uops, fits = _written_out(loops, config)
    for it in loops:
        fits = fits & (np.asarray(it.extent) <= MOST_ITERATIONS)
    return LaneKernel(1, product([it.extent for it in loops]), uops, fits)


def _before_block(loops: tuple[Iter, ...]) -> list[Iter]:
    """The loops around a product of the machine; of what is none, those around an element."""
    marked = [k for k, it in enumerate(loops) if it.annotation == "tensorize"]
    return list(loops[: marked[0] if marked else -ELEMENT])


def _written_out(loops: list[Iter], config: Config) -> tuple[Any, Any]:
    """The micro-ops, and whether they fit: so many, and none writes what one shortly before it wrote."""
    seen: Any = np.int64(0)
    uops: Any = np.int64(1)
    written: list[tuple[Any, bool]] = []
    for it in loops:
        length: Any = np.asarray(it.extent)
        long = length > 1
        extent = np.where(long & (seen >= MAX_LOOPS), length, 1)
        uops, seen = uops * extent, seen + long
        written.append((extent, it.kind == REDUCE))
    fits = uops <= config.depth(Memory.UOP)
    inner: Any = np.int64(1)
    for extent, repeats in reversed(written):
        if repeats:
            fits = fits & ((extent == 1) | (inner > HAZARD))
        else:
            inner = inner * extent
    return uops, fits


def _element_wise(bounds: Bounds, piece: Piece, config: Config) -> LaneKernel:
    state, k = bounds.state, piece.stage
    stage = state.stages[k]
    elements = product([r.extent for r in bounds.regions[k][: len(stage.op.axis) - ELEMENT]])
    narrows = not all(state.access.is_output(r) for r in state.access.read_by[k])
    calls = 0
    for e in walk(stage.compute.body[0]):
        calls += isinstance(e, Binary)
        calls += NARROWING if isinstance(e, Cast) and e.dtype == "int8" and narrows else 0
    fits = np.less_equal(elements, min(MOST_ITERATIONS, config.depth(Memory.UOP)))
    return LaneKernel(calls, elements, np.int64(1), fits)
