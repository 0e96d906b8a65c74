"""Element by element functions of one tensor.

Written in two dialects that differ in the text of the stage only: the functions here make a stage `compute` with
axes `i0, i1, ...`; those of `topi.cpp`, which graph front ends use, make `T_<name>` with axes `ax0, ax1, ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..computation.tensor import Tensor, compute
from ..expr.expr import FLOATS, Expr, ExprLike, as_expr, binary, call, compare, const, select
from ..expr.expr import cast as cast_expr
from .tag import ELEMWISE
from .utils import ax_compute

LN_10 = 2.302585092994046


def map_elements(x: Tensor, f: Callable[[Expr], ExprLike], name: str | None) -> Tensor:
    """`f` of every element: stage `T_<name>` with axes `ax*`, or `compute` with axes `i*` without a name."""
    if name is None:
        return compute(x.shape, lambda *i: f(x[i]), tag=ELEMWISE)
    return ax_compute(x.shape, lambda *i: f(x[i]), f"T_{name}", ELEMWISE)


def unary(func: str, named: bool) -> Callable[[Tensor], Tensor]:
    """The tensor function of the intrinsic `func`, in one of the two dialects."""

    def apply(x: Tensor) -> Tensor:
        return map_elements(x, lambda e: call(func, e), func if named else None)

    apply.__name__ = apply.__qualname__ = func
    apply.__doc__ = f"Element by element `{func}`; shape and dtype of `x`."
    return apply


exp = unary("exp", named=False)
exp2 = unary("exp2", named=False)
erf = unary("erf", named=False)
tanh = unary("tanh", named=False)
tan = unary("tan", named=False)
cos = unary("cos", named=False)
cosh = unary("cosh", named=False)
sin = unary("sin", named=False)
sinh = unary("sinh", named=False)
asin = unary("asin", named=False)
acos = unary("acos", named=False)
atan = unary("atan", named=False)
asinh = unary("asinh", named=False)
acosh = unary("acosh", named=False)
atanh = unary("atanh", named=False)
floor = unary("floor", named=False)
ceil = unary("ceil", named=False)
trunc = unary("trunc", named=False)
abs = unary("abs", named=False)
round = unary("round", named=False)
log = unary("log", named=False)
log2 = unary("log2", named=False)
sqrt = unary("sqrt", named=False)
rsqrt = unary("rsqrt", named=False)
sigmoid = unary("sigmoid", named=False)
isnan = unary("isnan", named=False)


def log10(x: Tensor) -> Tensor:
    """Element by element logarithm to the base 10."""
    return map_elements(x, lambda e: call("log", e) / LN_10, None)


def identity(x: Tensor) -> Tensor:
    """A copy of `x`."""
    return map_elements(x, lambda e: e, None)


def negative(x: Tensor) -> Tensor:
    """Element by element `-x`."""
    return map_elements(x, lambda e: -e, None)


def cast(x: Tensor, dtype: str) -> Tensor:
    """Element by element conversion to `dtype`."""
    return map_elements(x, lambda e: cast_expr(dtype, e), None)


def clip(x: Tensor, a_min: ExprLike, a_max: ExprLike) -> Tensor:
    """Element by element `max(min(x, a_max), a_min)`."""
    return map_elements(x, lambda e: binary("max", binary("min", e, a_max), a_min), None)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1, in the dtype of `x` (stage `T_sign`); of both zeros it is 0, and NaN stays."""

    def element(e: Expr) -> Expr:
        zero, one = const(0, e.dtype), const(1, e.dtype)
        minus = cast_expr(e.dtype, -1)
        rest = binary("+", e, zero) if e.dtype in FLOATS else zero
        return select(compare("<", e, zero), minus, select(compare(">", e, zero), one, rest))

    return map_elements(x, element, "sign")


def full(shape: Sequence[int], dtype: str, fill_value: ExprLike) -> Tensor:
    """A tensor that holds `fill_value` everywhere (stage `T_full`)."""
    value = cast_expr(dtype, as_expr(fill_value))
    return ax_compute(shape, lambda *i: value, "T_full", ELEMWISE)


def full_like(x: Tensor, fill_value: ExprLike) -> Tensor:
    """`full` with the shape and dtype of `x` (stage `T_full_like`)."""
    value = cast_expr(x.dtype, as_expr(fill_value))
    return ax_compute(x.shape, lambda *i: value, "T_full_like", ELEMWISE)


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of equal shape (stage `T_elemwise_sum`)."""

    def element(*i: Expr) -> Expr:
        total = xs[0][i]
        for x in xs[1:]:
            total = total + x[i]
        return total

    return ax_compute(xs[0].shape, element, "T_elemwise_sum", ELEMWISE)
