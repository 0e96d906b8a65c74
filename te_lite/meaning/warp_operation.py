"""What an instruction of a warp reads, does and writes, on the elements that each lane names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..expr.dtype import BYTES
from ..expr.expr import BufferLoad, binary
from ..loops.mma_meaning import execute, scattered
from ..loops.stmt import WarpLoad, WarpMultiply
from ..tensor_core.mma import ROW_BYTES


@dataclass(frozen=True)
class WarpOperation:
    """`execute` takes an array [..., lanes, elements] for each of `reads`, and gives one for `writes`."""

    reads: tuple[tuple[BufferLoad, ...], ...]
    writes: tuple[BufferLoad, ...]
    execute: Callable[..., Any]


def warp_operation(s: WarpMultiply | WarpLoad) -> WarpOperation:
    """The operation of a statement."""
    if isinstance(s, WarpMultiply):
        parts = [_elements(e, s.op.fragment(x).values) for e, x in ((s.a, "a"), (s.b, "b"), (s.d, "d"))]
        return WarpOperation(tuple(parts), parts[-1], lambda a, b, d: execute(s.op, a, b, d))
    nbytes = BYTES[s.row.buffer.dtype]
    fragment = s.form.fragment(nbytes)
    rows = _elements(s.row, ROW_BYTES // nbytes)
    given = 8 * s.form.count
    return WarpOperation((rows,), _elements(s.to, fragment.values), lambda x: scattered(fragment, x[..., :given, :]))


def _elements(first: BufferLoad, count: int) -> tuple[BufferLoad, ...]:
    """An element and those behind it."""
    return tuple([BufferLoad(first.buffer, binary("+", first.index, k)) for k in range(count)])
