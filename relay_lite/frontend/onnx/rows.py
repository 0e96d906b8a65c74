"""Products keep their own shape as long as nothing asks for another one.

ONNX multiplies (batch, sequence, hidden) by a matrix; here that is a product of matrices between two reshapes, and a
reshape behind a product keeps the bias and the activation from being fused into it.  What works element by element, or
along the last axis only, gives the same before such a reshape as behind it, so it is moved in front:

    gelu(add(reshape(dense(x, w)), b))   becomes   reshape(gelu(add(dense(x, w), b)))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from ...ir.nodes import Call, Expr
from ...ir.op_registry import OpPattern, get
from ...ir.visit import is_op

ALONG_LAST = ("mean", "sum", "max", "min")
BINARY = ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum")

Make = Callable[..., Expr]


def before_reshape(make: Make, name: str, args: Sequence[Expr], attrs: Mapping[str, Any]) -> Expr | None:
    """The call `make(name, *args, **attrs)` moved in front of the reshape that it reads; None when it cannot be.

    A reshape is passed when it keeps the last axis and adds others, so that it only groups rows.  A norm is one of the
    rows of a matrix in any case, for what multiplies it then reads it without a reshape.
    """
    if name == "nn.layer_norm" and len(args[0].shape) > 2 and attrs["axis"] in (-1, len(args[0].shape) - 1):
        rows = make("reshape", args[0], newshape=(prod(args[0].shape[:-1]), args[0].shape[-1]))
        return _behind(make, args[0], make(name, rows, *args[1:], **{**attrs, "axis": -1}))
    if not any(_is_rows(a) for a in args):
        return None
    if name in ALONG_LAST and attrs["keepdims"] and attrs["axis"] == (len(args[0].shape) - 1,):
        inner = _source(args[0])
        return _behind(make, args[0], make(name, inner, **{**attrs, "axis": (len(inner.shape) - 1,)}))
    if name in BINARY:
        return _binary(make, name, args[0], args[1])
    if get(name).pattern == OpPattern.ELEMWISE and len(args) == 1:
        return _behind(make, args[0], make(name, _source(args[0]), **attrs))
    return None


def _is_rows(x: Expr) -> bool:
    """Whether `x` is a reshape that splits the rows of a matrix over more axes and keeps the last axis."""
    return is_op(x, "reshape") and 2 <= len(x.args[0].shape) < len(x.shape) and x.args[0].shape[-1] == x.shape[-1]


def _source(x: Expr) -> Expr:
    assert isinstance(x, Call)
    return x.args[0]


def _behind(make: Make, reshaped: Expr, inner: Expr) -> Expr:
    """`inner` in the rows of `reshaped`."""
    return make("reshape", inner, newshape=(*reshaped.shape[:-1], inner.shape[-1]))


def _binary(make: Make, name: str, a: Expr, b: Expr) -> Expr | None:
    """Both operands in the rows of the first that is reshaped; the result may not have more rows than that one."""
    model = a if _is_rows(a) else b
    rows = _source(model).shape[:-1]
    inner = [_in_rows(make, x, model, rows) for x in (a, b)]
    if inner[0] is None or inner[1] is None:
        return None
    return _behind(make, model, make(name, *inner))


def _in_rows(make: Make, x: Expr, model: Expr, rows: Sequence[int]) -> Expr | None:
    """`x` in other rows: one vector for all rows becomes a vector, a tensor of the same rows is reshaped."""
    if prod(x.shape[:-1]) == 1 and len(x.shape) <= len(model.shape):
        return x if len(x.shape) < 2 else make("reshape", x, newshape=x.shape[-1:])
    if x.shape[:-1] != model.shape[:-1]:
        return None
    if _is_rows(x) and _source(x).shape[:-1] == tuple(rows):
        return _source(x)
    return make("reshape", x, newshape=(*rows, x.shape[-1]))
