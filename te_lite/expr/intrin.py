"""Scalar functions as users of `te` know them: `te.exp(x)`, `te.power(x, y)`, `te.floordiv(a, b)`, `te.all(...)`."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ExprError, require
from .expr import Expr, ExprLike, binary, call, logical_and, logical_or


def _unary(func: str) -> Callable[[ExprLike], Expr]:
    def apply(x: ExprLike) -> Expr:
        require(not callable(x), ExprError, func, f"it is for elements; of a whole tensor write topi.{func}(x)", got=x)
        return call(func, x)

    apply.__name__ = apply.__qualname__ = func
    apply.__doc__ = f"`{func}` of an expression; the result has its dtype."
    return apply


exp = _unary("exp")
exp2 = _unary("exp2")
log = _unary("log")
log2 = _unary("log2")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
tanh = _unary("tanh")
erf = _unary("erf")
sigmoid = _unary("sigmoid")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
sinh = _unary("sinh")
cosh = _unary("cosh")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
floor = _unary("floor")
ceil = _unary("ceil")
round = _unary("round")
trunc = _unary("trunc")
abs = _unary("abs")
isnan = _unary("isnan")


def power(x: ExprLike, y: ExprLike) -> Expr:
    """`x` to the power of `y`, in the dtype of their promotion."""
    return call("pow", x, y)


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """The quotient rounded towards minus infinity."""
    return binary("//", a, b)


def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """`a - b * floordiv(a, b)`."""
    return binary("%", a, b)


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """The integer quotient rounded towards zero (the true quotient of floats)."""
    return binary("/", a, b)


indexdiv = floordiv
indexmod = floormod


def all(*conditions: ExprLike) -> Expr:
    """True where every condition holds."""
    return logical_and(*conditions)


def any(*conditions: ExprLike) -> Expr:
    """True where some condition holds."""
    return logical_or(*conditions)
