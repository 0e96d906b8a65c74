"""te_lite: the language of ansor: expressions, tensors, schedules, loops and their meaning."""

from .dag import ComputeDAG
from .errors import ExprError, InterpError, LowerError, RecordError, ScheduleError, TeError
from .expr import (
    Expr,
    IterVar,
    Var,
    call,
    cast,
    const,
    if_then_else,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    select,
)
from .lower import lower
from .reduction import argmax, argmin, comm_reducer, max, max_value, min, min_value, prod, reduce_axis, sum
from .schedule import Schedule, create_schedule, thread_axis
from .state import State
from .stmt import LoweredFunc
from .tensor import ComputeOp, PlaceholderOp, Tensor, compute, placeholder

__all__ = [
    "ComputeDAG", "ComputeOp", "Expr", "ExprError", "InterpError", "IterVar", "LowerError", "LoweredFunc", "PlaceholderOp",
    "RecordError", "Schedule", "ScheduleError", "State", "TeError", "Tensor", "Var", "argmax", "argmin", "call", "cast", "comm_reducer",
    "compute", "const", "create_schedule", "if_then_else", "logical_and", "logical_not", "logical_or", "lower", "max", "max_value", "maximum",
    "min", "min_value", "minimum", "placeholder", "prod", "reduce_axis", "select", "sum", "thread_axis",
]  # fmt: skip
