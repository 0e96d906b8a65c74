"""Graphs of operators: nodes, types, operators by name, texts, and their meaning in NumPy.

Law: nodes never change; operators are known by their entries in one table only.
"""

from .control import Branch, Loop
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
    "Branch",
    "Call",
    "Constant",
    "Expr",
    "Function",
    "FunctionCall",
    "IRModule",
    "Loop",
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
