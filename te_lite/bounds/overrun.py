"""Points beyond the edge: what tiles that do not divide compute in the storage of a kernel.

A tile of 8 rows over 197 covers 200.  Where its values are kept for the kernel alone (accumulators, copies in shared
memory or of a packed panel), the three rows beyond the edge have room too, and are computed like the others, so that
no inner loop asks whether it is inside:

    copies          what reads memory writes zeros beyond the edge: `inside ? A[i, k] : 0`
    accumulators    run over all points; an element of memory that they read themselves is that of the last point inside
    write-back      keeps its guard: what is stored where others see it is never beyond the edge

Why this is legal.  Beyond the edge of a space axis it does not matter what is computed, since nobody inside reads it;
only that every access stays in its buffer, which holds by the room that copies have, or by moving the index to the
edge.  Beyond the edge of a reduction axis what is folded must be neutral: the source is taken with zeros for the copies
that it reads there, and has to fold to the identity of the reduction by the table of `constant_folding.py`.  A sum of
products of two copies is (0 * 0 = 0); a maximum is not (its identity is the least value), nor is a sum of exponentials
(exp(0) = 1), nor one with a factor that is no copy (0 * inf is NaN): these keep the guard in their loop.

Which stages run over, and how far, is here; what lowering makes of it is in `edges.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..expr.lanes import ceildiv, larger
from ..schedule.region import Region
from ..schedule.state import ATTACHED, State
from .reads import Affine, Form, Quotient, Scaled, Sum, Unknown


def runs_over(state: State, k: int, arguments: Collection[int]) -> bool:
    """Whether stage k has storage of its own inside a kernel; `arguments` are the keys of operations that have not."""
    stage = state.stages[k]
    return stage.where == ATTACHED and not state.access.is_output(k) and stage.op.key not in arguments


def reach_beyond(region: Region, size: int) -> Any:
    """How many points of a region of an axis of `size` lie behind its end: an int or lanes."""
    _, last = region.min.range()
    return larger(last + region.extent - size, 0)


def index_beyond(form: Form, over: Sequence[Any]) -> Any:
    """How far an index goes behind the end, where axis `a` of its stage does by `over[a]`; 0 where nothing is known."""
    match form:
        case Affine(terms=terms):
            return _total([over[axis] * abs(c) for axis, c in terms if axis < len(over)])
        case Sum(parts=parts):
            return _total([index_beyond(p, over) for p in parts])
        case Scaled(part=part, factor=factor):
            return index_beyond(part, over) * abs(factor)
        case Quotient(part=part, divisor=divisor, mod=False):
            return ceildiv(index_beyond(part, over), divisor)
        case Quotient() | Unknown():
            return 0


def _total(parts: Sequence[Any]) -> Any:
    total: Any = 0
    for part in parts:
        total = total + part
    return total
