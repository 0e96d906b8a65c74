"""Graphs of operators: nodes, types, operators by name, texts, and their meaning in NumPy.

The law of this folder: it knows of operators by their entries in one table only, and of no loops and no targets.
"""

from .module import IRModule, bind_params, main_function
from .nodes import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    FunctionCall,
    Tuple,
    TupleGetItem,
    Var,
    children,
    rebuild,
    tensor_type,
)
from .types import TensorType, TupleType, Type
from .visit import free_vars, post_order, substitute

__all__ = [
    "Array",
    "Call",
    "Constant",
    "Expr",
    "Function",
    "FunctionCall",
    "IRModule",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "Var",
    "bind_params",
    "children",
    "free_vars",
    "main_function",
    "post_order",
    "rebuild",
    "substitute",
    "tensor_type",
]
