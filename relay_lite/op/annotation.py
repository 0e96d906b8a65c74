"""Marks on values: a mark is the value itself, and tells a later pass something about this place in the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite import topi

from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import Type
from .define import operator, tensors


def _same_type(types: Sequence[Type], attrs: Attrs) -> Type:
    return tensors(types, 1, "annotation.stop_fusion")[0]


@operator(
    "annotation.stop_fusion",
    OpPattern.OPAQUE,
    _same_type,
    lambda args, attrs: np.copy(args[0]),
    lambda args, attrs, target: [topi.cpp.identity(args[0])],
)
def stop_fusion(data: Expr) -> Call:
    """`data`, kept in memory: no kernel reaches across this place."""
    return call("annotation.stop_fusion", data)
