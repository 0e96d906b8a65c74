"""What does not depend on the inputs is computed now, by the operators' meaning in NumPy.

The others stay in the graph, where they mean the same.

After it a batch norm is `x * constant + constant`, and weights that were rewritten are plain arrays again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ansor.core.values.checks import computed_limit, nbytes
from te_lite.errors import require
from te_lite.expr.dtype import INTEGER_BITS

from ..ir.errors import GraphError
from ..ir.nodes import Array, Call, Constant, Expr, Tuple, TupleGetItem, Var, children
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType, TupleType, Type, fields_of
from ..ir.visit import is_op, post_order, rewrite
from .sequential import Pass

MOST_PRODUCTS = 1 << 34
"""Of a matrix product, which NumPy hands to a library."""
MOST_WINDOWED = 1 << 28
"""Elements that a convolution or pool reads, and those of its padded data."""


def cheap(call: Call) -> bool:
    """Whether the value of a call, all of whose arguments are known, may be computed now."""
    sizes = [nbytes(t.shape, t.dtype) for e in (call, *call.args) for t in fields_of(e.type)]
    return max(sizes) <= computed_limit() and (call.op.pattern != OpPattern.OUT_ELEMWISE_FUSABLE or _brief(call))


def _brief(call: Call) -> bool:
    """Whether a product, convolution or pool is small; not more than this is counted of any of them."""
    out = sum(t.size for t in fields_of(call.type))
    if "padding" not in call.attrs:
        return out * max(_extents(call.args)) <= MOST_PRODUCTS
    window = call.attrs["pool_size"] if "pool_size" in call.attrs else call.args[1].shape
    pads = call.attrs["padding"]
    room = [max(s) + 1 for s in (_numbers(pads), _numbers(window), _numbers(call.attrs["strides"]))]
    sides = len(call.args[0].shape) - 2
    padded = call.args[0].shape[:2], [d + 2 * max(room) for d in call.args[0].shape[-sides:]]
    return max(out * prod(_numbers(window)), prod((*padded[0], *padded[1]))) <= MOST_WINDOWED


def _extents(args: Sequence[Expr]) -> list[int]:
    """The last two extents of every argument: one of them is summed over."""
    return [1, *[d for e in args for t in fields_of(e.type) for d in t.shape[-2:]]]


def _numbers(value: int | Sequence[int]) -> Sequence[int]:
    return (value,) if isinstance(value, int) else value


KEPT = ("zeros", "ones", "full")
"""Fills stay calls: an array of one number is cheaper to write anew than to store."""

_OF_TYPE = ("shape_of", "ndarray_size")


def FoldConstant() -> Pass:
    """Replace calls whose arguments are all constants, and items of literal tuples."""
    return Pass("FoldConstant", 2, (), lambda function: rewrite(function, fold))


def fold(node: Expr) -> Expr:
    """The value of a node whose arguments are constants, as a constant (or a tuple of them); else the node itself.

    So it stays where computing it takes long or much memory.
    """
    match node:
        case TupleGetItem(tuple_value=Tuple(fields=fields), index=index):
            return fields[index]
        case Call(op=op) if op.name in KEPT:
            return node
        case Call(op=op, args=args, attrs=attrs) if _is_computable(node):
            return _as_constant(node, op.numpy([_value(a) for a in args], attrs))
        case Call() if is_op(node, *_OF_TYPE):
            return _as_constant(node, node.op.numpy([np.broadcast_to(0, node.args[0].shape)], node.attrs))
    return node


def input_free(body: Expr) -> set[Expr]:
    """The nodes of a graph that depend on no variable, and on no size."""
    free: set[Expr] = set()
    for node in post_order(body):
        known = not isinstance(node, Var) and all(c in free for c in children(node))
        if known and not any([t.is_open for t in fields_of(node.type)]):
            free.add(node)
    return free


def evaluate(body: Expr) -> Array:
    """The value of a tensor that depends on no variable.  Raises GraphError when it depends on one."""
    made: dict[Expr, Any] = {}
    for node in post_order(body):
        read = [made[c] for c in children(node)]
        match node:
            case Constant(value=value):
                made[node] = value
            case Call(op=op, attrs=attrs):
                made[node] = op.numpy(read, attrs)
            case Tuple():
                made[node] = read
            case TupleGetItem(index=index):
                made[node] = read[0][index]
            case _:
                require(False, GraphError, "constant folding", "the value must depend on no input", node=node)
    return np.asarray(made[body])


def _is_computable(node: Call) -> bool:
    known = bool(node.args) and all(map(_is_known, node.args)) and not any([t.is_open for t in fields_of(node.type)])
    return known and cheap(node) and not _is_open(node)


def _is_open(node: Call) -> bool:
    """A cast of floats that the integer has no room for: its value is not that of NumPy."""
    if node.op.name != "cast" or node.dtype not in INTEGER_BITS:
        return False
    value = _value(node.args[0])
    assert isinstance(value, np.ndarray)
    if value.dtype.kind != "f":
        return False
    ends, whole = np.iinfo(node.dtype), np.trunc(value)
    with np.errstate(invalid="ignore"):
        return not bool(np.all((whole >= float(ends.min)) & (whole < float(ends.max) + 1)))


def _is_known(node: Expr) -> bool:
    match node:
        case Constant():
            return True
        case Tuple(fields=fields):
            return all(isinstance(f, Constant) for f in fields)
    return False


def _value(node: Expr) -> Array | list[Array]:
    match node:
        case Constant(value=value):
            return value
        case Tuple(fields=fields):
            return [f.value for f in fields if isinstance(f, Constant)]
    raise AssertionError(node)


def _as_constant(node: Call, result: Array | Sequence[Array]) -> Expr:
    match node.type:
        case TupleType(fields=types):
            return Tuple(tuple(_checked(node, value, t) for value, t in zip(result, types, strict=True)))
        case TensorType():
            return _checked(node, result, node.type)
    raise AssertionError(node.type)


def _checked(node: Call, value: Any, promised: Type) -> Constant:
    array = np.asarray(value)
    array.setflags(write=False)
    made = Constant(array)
    require(made.type == promised, GraphError, node.op.name, f"its value is a {promised}", got=made.type)
    return made
