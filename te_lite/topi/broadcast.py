"""Binary operations on tensors and numbers with NumPy's broadcasting; between two numbers they are the scalar ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

from ..computation.tensor import Tensor
from ..errors import ExprError, require
from ..expr.dtype import python_number
from ..expr.expr import (
    FLOATS,
    Const,
    Expr,
    ExprLike,
    as_expr,
    binary,
    call,
    compare,
    const,
    logical_and,
    logical_or,
    select,
)
from ..expr.expr import logical_not as expr_not
from ..expr.misuse import operands_law
from .tag import BROADCAST, ELEMWISE
from .utils import ax_compute, get_const_tuple

Scalar = Callable[[Any, Any], Expr]


class Broadcast(Protocol):
    """A binary operation: a stage where an operand is a tensor, an expression where none is."""

    @overload
    def __call__(self, lhs: Tensor, rhs: Any) -> Tensor: ...
    @overload
    def __call__(self, lhs: Any, rhs: Tensor) -> Tensor: ...
    @overload
    def __call__(self, lhs: ExprLike, rhs: ExprLike) -> Expr: ...


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape, aligned at the right; raises ExprError when two extents differ and neither is 1."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    out = []
    for dims in zip(*padded, strict=True):
        sizes = set(dims) - {1}
        require(len(sizes) <= 1, ExprError, "broadcast", "the shapes do not fit together", shapes=list(shapes))
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def read_broadcast(t: Tensor, indices: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The element of `t` that stands at `indices` of `shape`: dimensions of 1 that are stretched are read at 0."""
    skip = len(shape) - t.ndim
    return t[[i if len({n, end}) == 1 else 0 for i, n, end in zip(indices[skip:], t.shape, shape[skip:], strict=True)]]


def _broadcast(name: str, f: Scalar) -> Broadcast:
    def apply(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, Tensor) and isinstance(rhs, Tensor):
            shape = broadcast_shape(lhs.shape, rhs.shape)
            return ax_compute(
                shape,
                lambda *i: f(read_broadcast(lhs, i, shape), read_broadcast(rhs, i, shape)),
                f"T_{name}",
                BROADCAST,
            )
        if isinstance(lhs, Tensor):
            return ax_compute(lhs.shape, lambda *i: f(lhs[i], _scalar(rhs, name)), f"T_{name}", ELEMWISE)
        if isinstance(rhs, Tensor):
            return ax_compute(rhs.shape, lambda *i: f(_scalar(lhs, name), rhs[i]), f"T_{name}", ELEMWISE)
        return f(lhs, rhs)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Element by element `{name}` with broadcasting (stage `T_{name}`); numbers are scalars."
    return apply


def _scalar(value: Any, what: str) -> Any:
    value = python_number(value)
    require(isinstance(value, Expr | int | float), ExprError, what, operands_law(value), got=type(value).__name__)
    return value


def _op(symbol: str) -> Scalar:
    return lambda a, b: binary(symbol, a, b)


def _cmp(symbol: str) -> Scalar:
    return lambda a, b: compare(symbol, a, b)


def _truncated_mod(a: Any, b: Any) -> Expr:
    quotient = binary("/", a, b)
    if quotient.dtype in FLOATS:  # a zero has the sign of the dividend
        size = binary("%", call("abs", a), call("abs", b))
        signed = select(compare("<", a, 0), binary("*", size, -1), size)
        return select(compare("==", size, 0), binary("*", a, 0), signed)
    rest = binary("-", a, binary("*", quotient, b))
    divisor = as_expr(b)
    if isinstance(divisor, Const):
        return rest if divisor.value else const(0, quotient.dtype)
    return select(compare("!=", divisor, 0), rest, 0)


def _xor(a: Any, b: Any) -> Expr:
    a, b = as_expr(a), as_expr(b)
    return logical_or(logical_and(a, expr_not(b)), logical_and(expr_not(a), b))


add = _broadcast("add", _op("+"))
subtract = _broadcast("subtract", _op("-"))
multiply = _broadcast("multiply", _op("*"))
divide = _broadcast("divide", _op("/"))
floor_divide = _broadcast("floor_divide", _op("//"))
mod = _broadcast("mod", _truncated_mod)
floor_mod = _broadcast("floor_mod", _op("%"))
maximum = _broadcast("maximum", _op("max"))
minimum = _broadcast("minimum", _op("min"))
power = _broadcast("power", lambda a, b: call("pow", a, b))
bitwise_and = _broadcast("bitwise_and", lambda a, b: call("bit_and", a, b))
bitwise_or = _broadcast("bitwise_or", lambda a, b: call("bit_or", a, b))
bitwise_xor = _broadcast("bitwise_xor", lambda a, b: call("bit_xor", a, b))
equal = _broadcast("equal", _cmp("=="))
not_equal = _broadcast("not_equal", _cmp("!="))
less = _broadcast("less", _cmp("<"))
less_equal = _broadcast("less_equal", _cmp("<="))
greater = _broadcast("greater", _cmp(">"))
greater_equal = _broadcast("greater_equal", _cmp(">="))
logical_and_ = _broadcast("logical_and", logical_and)
logical_or_ = _broadcast("logical_or", logical_or)
logical_xor = _broadcast("logical_xor", _xor)


def logical_not(x: Tensor) -> Tensor:
    """Element by element negation of a bool tensor (stage `T_logical_not`)."""
    return ax_compute(x.shape, lambda *i: expr_not(x[i]), "T_logical_not", ELEMWISE)


def broadcast_to(data: Tensor, shape: Sequence[int]) -> Tensor:
    """Stretch `data` to `shape` (stage `T_broadcast_to`)."""
    dims = get_const_tuple(shape)
    fits = broadcast_shape(data.shape, dims) == dims
    require(fits, ExprError, "broadcast_to", "the tensor does not fit the shape", tensor=data.shape, shape=dims)
    return ax_compute(dims, lambda *i: read_broadcast(data, i, dims), "T_broadcast_to", BROADCAST)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """`x` where `condition` is true (or not zero) else `y`, all broadcast (stage `T_where`)."""
    shape = broadcast_shape(condition.shape, x.shape, y.shape)

    def element(*i: Expr) -> Expr:
        c = read_broadcast(condition, i, shape)
        holds = c if c.dtype == "bool" else compare("!=", c, const(0, c.dtype))
        return select(holds, read_broadcast(x, i, shape), read_broadcast(y, i, shape))

    return ax_compute(shape, element, "T_where", BROADCAST)
