"""Calls of operators that become a constant at once when all they read is constant.

Exporters compute shapes by operators: Shape, Gather, Concat, Reshape.  Shapes are known here, but for sizes
(`sizes.py`), so such a chain starts at a constant, and by folding every call as it is made no trace of it is left in
the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from te_lite.expr.dtype import accumulated
from te_lite.expr.expr import FLOATS

from ...ir.extents import extent
from ...ir.nodes import Array, Call, Constant, Expr, Tuple, TupleGetItem
from ...ir.op_registry import get
from ...ir.types import TensorType, fields_of
from ...ir.visit import is_op
from ...transform.fold_constant import cheap
from .rows import before_reshape
from .sizes import Numbers, are_numbers, computed

Operand: TypeAlias = Expr | float
MOVES = ("reshape", "transpose", "expand_dims", "squeeze", "strided_slice", "broadcast_to")
"""Operators of one tensor that move its elements."""


def call(name: str, *args: Expr, **attrs: Any) -> Expr:
    """The operator `name` applied to `args`; its value when all of them are constants, and computing it is cheap."""
    values = [_value(a) for a in args]
    if are_numbers(args):
        return computed(name, args, values, attrs)
    if not args or any(v is None for v in values):
        moved = before_reshape(call, name, args, attrs)
        return known_if_empty(_made(name, args, attrs) if moved is None else moved)
    made = Call(get(name), args, attrs)
    if any([t.is_open for t in fields_of(made.type)]) or not cheap(made):
        return made
    with np.errstate(all="ignore"):
        result = made.op.numpy(values, made.attrs)
    if isinstance(result, tuple | list):
        return Tuple(tuple(Constant(np.asarray(r)) for r in result))
    return Constant(np.asarray(result))


def known_if_empty(e: Expr) -> Expr:
    """`e`; a tensor without elements as a constant, for it holds nothing that could be computed."""
    empty = isinstance(e.type, TensorType) and 0 in e.type.shape
    return const(np.zeros(e.shape), e.dtype) if empty else e


def _made(name: str, args: Sequence[Expr], attrs: Mapping[str, Any]) -> Expr:
    """The call; a reshape of a reshape is one."""
    if name == "reshape" and isinstance(args[0], Call) and args[0].op.name == "reshape":
        source = args[0].args[0]
        return source if source.shape == attrs["newshape"] else Call(get(name), (source,), attrs)
    return Call(get(name), tuple(args), attrs)


def _value(e: Expr) -> Any:
    if isinstance(e, Tuple):
        fields = [_value(f) for f in e.fields]
        return None if any(f is None for f in fields) else fields
    return e.value if isinstance(e, Numbers) else value_of(e)


def value_of(e: Expr | None) -> Array | None:
    """The array of a constant, None for anything else."""
    return e.value if isinstance(e, Constant) else None


def const(value: Any, dtype: str) -> Constant:
    """A constant of a dtype; a number has shape ()."""
    return Constant(np.asarray(value, dtype=dtype))


def item(e: Expr, index: int) -> Expr:
    """One tensor of a tuple; a literal tuple is looked into."""
    return e.fields[index] if isinstance(e, Tuple) else known_if_empty(TupleGetItem(e, index))


def binary(name: str, a: Operand, b: Operand) -> Expr:
    """A broadcasting operator of two operands; a number takes the dtype of the other operand."""
    like = a if isinstance(a, Expr) else b
    assert isinstance(like, Expr)
    left, right = (v if isinstance(v, Expr) else const(v, like.dtype) for v in (a, b))
    return call(name, left, right)


def add(a: Operand, b: Operand) -> Expr:
    """a + b."""
    return binary("add", a, b)


def sub(a: Operand, b: Operand) -> Expr:
    """a - b."""
    return binary("subtract", a, b)


def mul(a: Operand, b: Operand) -> Expr:
    """a * b."""
    return binary("multiply", a, b)


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of both, element by element."""
    return binary("minimum", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of both, element by element."""
    return binary("maximum", a, b)


def div(a: Operand, b: Operand) -> Expr:
    """a / b: integers are divided towards zero; by a constant float is a multiplication, if 1/b is a number."""
    if isinstance(b, Expr) and b.dtype in FLOATS and (value := value_of(b)) is not None:
        with np.errstate(all="ignore"):
            inverse = (np.ones((), b.dtype) / value).astype(b.dtype)
        if np.all(np.isfinite(inverse) & (np.abs(inverse) >= np.finfo(b.dtype).tiny)):
            return mul(a, Constant(inverse))
    return binary("divide", a, b)


def cast(x: Expr, dtype: str) -> Expr:
    """`x` in another dtype; nothing when it has it, or had it before it was widened."""
    if x.dtype == dtype:
        return x
    before = unwidened(x)
    return before if before.dtype == dtype else call("cast", x, dtype=dtype)


def unwidened(x: Expr) -> Expr:
    """`x` before the cast of halves to float32 that stands in front of it, or of what only moves elements."""
    if is_op(x, "cast") and x.dtype != x.args[0].dtype and accumulated(x.args[0].dtype) == x.dtype:
        return x.args[0]
    if is_op(x, *MOVES) and (inner := unwidened(x.args[0])) is not x.args[0]:
        return call(x.op.name, inner, **x.attrs)
    return x


def reshape(x: Expr, shape: Sequence[int]) -> Expr:
    """`x` in another shape of extents that are all known; nothing when it has it."""
    value, shape = value_of(x), tuple([extent(d, "reshape") for d in shape])
    if x.shape == shape:
        return x
    return call("reshape", x, newshape=shape) if value is None else Constant(value.reshape(shape))


def transpose(x: Expr, axes: Sequence[int]) -> Expr:
    """`x` with permuted axes; nothing when they are in order."""
    return x if tuple(axes) == tuple(range(len(x.shape))) else call("transpose", x, axes=tuple(axes))


def broadcast_to(x: Expr, shape: Sequence[int]) -> Expr:
    """`x` repeated along axes of extent 1 and new leading ones; nothing when the shape is the same."""
    return x if x.shape == tuple(shape) else call("broadcast_to", x, shape=tuple(shape))


def concatenate(parts: Sequence[Expr], axis: int) -> Expr:
    """The parts one after the other along an axis; a single part as it is."""
    return parts[0] if len(parts) == 1 else call("concatenate", Tuple(tuple(parts)), axis=axis)
