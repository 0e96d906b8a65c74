"""te_lite: the language of ansor: expressions, tensors, schedules, loops and their meaning."""

from . import methods, topi
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
from .intrin import (
    abs,
    all,
    any,
    atan,
    ceil,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    floor,
    floordiv,
    floormod,
    indexdiv,
    indexmod,
    isnan,
    log,
    log2,
    power,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
)
from .lower import lower
from .reduction import argmax, argmin, comm_reducer, max, max_value, min, min_value, prod, reduce_axis, sum
from .schedule import Schedule, create_schedule, thread_axis
from .state import State
from .stmt import LoweredFunc
from .tensor import ComputeOp, PlaceholderOp, Tensor, compute, placeholder

methods.install()

__all__ = [
    "ComputeDAG", "ComputeOp", "Expr", "ExprError", "InterpError", "IterVar", "LowerError", "LoweredFunc",
    "PlaceholderOp", "RecordError", "Schedule", "ScheduleError", "State", "TeError", "Tensor", "Var", "abs", "all",
    "any", "argmax", "argmin", "atan", "call", "cast", "ceil", "comm_reducer", "compute", "const", "cos", "cosh",
    "create_schedule", "erf", "exp", "exp2", "floor", "floordiv", "floormod", "if_then_else", "indexdiv",
    "indexmod", "isnan", "log", "log2", "logical_and", "logical_not", "logical_or", "lower", "max", "max_value",
    "maximum", "min", "min_value", "minimum", "placeholder", "power", "prod", "reduce_axis", "round", "rsqrt",
    "select", "sigmoid", "sin", "sinh", "sqrt", "sum", "tan", "tanh", "thread_axis", "topi", "trunc", "truncdiv",
]  # fmt: skip
