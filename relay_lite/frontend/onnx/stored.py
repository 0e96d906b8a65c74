"""Operators on stored dtypes and halves: inputs are cast to a wider dtype, and outputs are rounded once, at the end."""

from __future__ import annotations

from collections.abc import Sequence

from te_lite.expr.dtype import accumulated

from ...ir.nodes import Expr
from ...ir.types import TensorType
from .emit import cast
from .model import kinds
from .node import Converter, Node

KEPT = ("Cast", "CastLike", "DequantizeLinear", "EyeLike", "Identity", "QuantizeLinear", "Shape", "Size")
"""What converts dtypes itself, or reads no values."""


def converted_wide(converter: Converter, node: Node) -> Expr | Sequence[Expr]:
    """The outputs of a node; where it reads narrow dtypes, it is computed as ONNX's pages say for the wider ones."""
    if node.op in KEPT or not any(_narrow(e) for e in node.inputs):
        return converter(node)
    domain, _, op = node.op.rpartition("::")
    given, made = kinds(op, node.opset, domain)
    wide = node.with_inputs(tuple([_widened(e) for e in node.inputs]))
    narrow = {_at(given, k): e.dtype for k, e in enumerate(node.inputs) if e is not None and _narrow(e)}
    found = converter(wide)
    outputs = [found] if isinstance(found, Expr) else list(found)
    if not made:  # nobody says which outputs have whose type: floats, as wide as they were computed
        kind = next(iter(narrow.values()))
        return [cast(e, kind) if e.dtype == accumulated(kind) else e for e in outputs]
    return [cast(e, narrow.get(_at(made, k), e.dtype)) for k, e in enumerate(outputs)]


def _narrow(e: Expr | None) -> bool:
    return e is not None and isinstance(e.type, TensorType) and accumulated(e.type.dtype) != e.type.dtype


def _widened(e: Expr | None) -> Expr | None:
    return cast(e, accumulated(e.dtype)) if e is not None and isinstance(e.type, TensorType) else e


def _at(names: Sequence[str], index: int) -> str:
    """The name of a type; the last one repeats, and an operator that ONNX does not define has one for all."""
    return names[min(index, len(names) - 1)] if names else ""
