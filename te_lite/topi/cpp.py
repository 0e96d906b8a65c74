"""The stages as graph front ends name them: `T_relu(ax0, ax1, ...)` where `topi.nn.relu` says `compute(i0, i1, ...)`.

Workload keys are made of the text of the stages, so a task that comes out of a network differs from one that is
written with the functions of `topi` and `topi.nn`.  The functions compute the same.
"""

from __future__ import annotations

from ..computation.tensor import Tensor
from ..expr.expr import FLOATS, Expr, ExprLike, binary, call, compare, const, select
from ..expr.expr import cast as cast_expr
from .elementwise import LN_10, map_elements, unary
from .tag import BROADCAST
from .utils import ax_compute, normal_axis

exp = unary("exp", named=True)
erf = unary("erf", named=True)
tanh = unary("tanh", named=True)
tan = unary("tan", named=True)
cos = unary("cos", named=True)
sin = unary("sin", named=True)
asin = unary("asin", named=True)
acos = unary("acos", named=True)
atan = unary("atan", named=True)
asinh = unary("asinh", named=True)
acosh = unary("acosh", named=True)
atanh = unary("atanh", named=True)
floor = unary("floor", named=True)
ceil = unary("ceil", named=True)
trunc = unary("trunc", named=True)
abs = unary("abs", named=True)
round = unary("round", named=True)
log = unary("log", named=True)
log2 = unary("log2", named=True)
sqrt = unary("sqrt", named=True)
rsqrt = unary("rsqrt", named=True)
sigmoid = unary("sigmoid", named=True)
sinh = unary("sinh", named=True)
cosh = unary("cosh", named=True)
isnan = unary("isnan", named=True)


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)` (stage `T_relu`)."""
    return map_elements(x, lambda e: binary("max", e, const(0, e.dtype)), "relu")


def leaky_relu(x: Tensor, alpha: float = 0.1) -> Tensor:
    """`x` where positive else `x * alpha` (stage `T_leaky_relu`)."""
    return map_elements(x, lambda e: select(compare(">", e, const(0, e.dtype)), e, e * alpha), "leaky_relu")


def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """`x` where positive else `x * slope[channel]` (stage `T_prelu`)."""
    at = normal_axis(axis, x.ndim, "prelu")

    def element(*i: Expr) -> Expr:
        return select(compare(">", x[i], const(0, x.dtype)), x[i], x[i] * slope[i[at]])

    return ax_compute(x.shape, element, "T_prelu", BROADCAST)


def log10(x: Tensor) -> Tensor:
    """The logarithm to the base 10 (stage `T_log10`)."""
    return map_elements(x, lambda e: call("log", e) / LN_10, "log10")


def negative(x: Tensor) -> Tensor:
    """`-x` (stage `T_negative`): `x * -1` of floats, where `0 - x` has another zero."""
    return map_elements(x, lambda e: -e if e.dtype in FLOATS else binary("-", const(0, e.dtype), e), "negative")


def cast(x: Tensor, dtype: str) -> Tensor:
    """Conversion to `dtype` (stage `T_cast`)."""
    return map_elements(x, lambda e: cast_expr(dtype, e), "cast")


def clip(x: Tensor, a_min: ExprLike, a_max: ExprLike) -> Tensor:
    """`max(min(x, a_max), a_min)` (stage `T_clip`)."""
    return map_elements(x, lambda e: binary("max", binary("min", e, a_max), a_min), "clip")


def identity(x: Tensor) -> Tensor:
    """A copy (stage `T_identity`)."""
    return map_elements(x, lambda e: e, "identity")
