"""Element-wise operators that the accelerator has instructions for, on int32 tensors."""

from __future__ import annotations

from collections.abc import Callable

from te_lite import Tensor, compute
from te_lite.expr.expr import Expr, maximum, minimum
from te_lite.topi import tag


def _each(x: Tensor, f: Callable[[Expr], Expr], name: str) -> Tensor:
    made: Tensor = compute(x.shape, lambda *i: f(x(*i)), name, tag.ELEMWISE)
    return made


def shift_right(x: Tensor, bits: int, name: str = "shift_right") -> Tensor:
    """The quotient by `2**bits`, rounded down: an arithmetic shift; `bits` is 0 to 30."""
    return _each(x, lambda e: e // (1 << bits), name)


def at_most(x: Tensor, high: int, name: str = "at_most") -> Tensor:
    """The minimum of each element and `high`."""
    return _each(x, lambda e: minimum(e, high), name)


def at_least(x: Tensor, low: int, name: str = "at_least") -> Tensor:
    """The maximum of each element and `low`."""
    return _each(x, lambda e: maximum(e, low), name)


def as_type(x: Tensor, dtype: str, name: str = "as_type") -> Tensor:
    """Each element as `dtype`; narrowing keeps the low bits."""
    return _each(x, lambda e: e.astype(dtype), name)


def add(x: Tensor, y: Tensor, name: str = "add") -> Tensor:
    """The sum of two tensors of equal rank; `y` is repeated along dimensions of length 1."""

    def element(*i: Expr) -> Expr:
        return x(*i) + y(*[0 if n == 1 else v for v, n in zip(i, y.shape, strict=True)])

    made: Tensor = compute(x.shape, element, name, tag.BROADCAST)
    return made


def requantized(x: Tensor, bits: int = 8, low: int = 0, high: int = 127) -> Tensor:
    """int32 as int8: shifted to the right, clipped to `low..high`, and narrowed.  The end of a tuned convolution."""
    return as_type(at_least(at_most(shift_right(x, bits), high), low), "int8", "res")
