"""Extents that a program has as text: `s77`, `2*s77`, `s27*Max(1, s77)`, over the symbols that it bounds."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from te_lite.errors import ExprError, require
from te_lite.expr.expr import SizeVar
from te_lite.expr.sizes import size_var

from ...ir.errors import GraphError
from ...ir.extents import extent
from .program import STATIC

OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def sizes_of(ranges: Mapping[str, tuple[Any, Any]]) -> dict[str, SizeVar]:
    """A size for each symbol with a least and a greatest value; those without a greatest one are none."""
    found = {}
    for name, (least, most) in ranges.items():
        if isinstance(least, int) and isinstance(most, int):
            try:
                found[name] = size_var(name, max(least, 1), most)
            except ExprError as refused:
                raise GraphError(f"extent {name}: {refused}") from None
    return found


def extent_of(text: str, sizes: Mapping[str, SizeVar], subject: str) -> Any:
    """The extent that a text stands for.

    Raises GraphError, naming `subject`, for symbols that are no sizes, and for other operators than + - * //.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise GraphError(f"{subject}: {STATIC}, got extent={text!r}") from error

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.Name(id=name) if name in sizes:
                return sizes[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id="Max"), args=[ast.Constant(value=1), other]):  # strides beside extents of 0
                return extent(value(other), subject)
        require(False, GraphError, subject, STATIC, extent=text)

    return extent(value(tree), subject)
