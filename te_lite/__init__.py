"""te_lite: the language of ansor: expressions, tensors, schedules, loops and their meaning.

Read the folders in this order; none imports one that comes after it, and each gives such an order of its own.

    what all need       errors, later, hooks, environment, timing, extensions
    expressions         expr
    computations        computation
    schedules           schedule
    loop programs       loops
    bounds              bounds
    verifier            verify
    meaning             meaning
    lowering            lowering
    printing            printing
    operators           topi

A student begins with `expr/expr.py`, `computation/tensor.py`, `schedule/step.py` and `schedule/state.py`; `topi` is
the library of operators.
"""

from typing import TYPE_CHECKING

from .computation.tensor import ComputeOp, PlaceholderOp, Tensor, compute, placeholder
from .errors import ExprError, InterpError, LowerError, RecordError, ScheduleError, TeError
from .expr.expr import (
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
from .expr.intrin import (
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
from .expr.reduction import max, max_value, min, min_value, prod, reduce_axis, sum
from .later import later
from .loops.stmt import LoweredFunc
from .lowering.lower import lower
from .printing import methods
from .schedule.dag import ComputeDAG
from .schedule.schedule import Schedule, create_schedule, thread_axis
from .schedule.state import State

if TYPE_CHECKING:
    from . import topi
    from .computation.scan import scan
    from .expr.own_reducers import argmax, argmin, comm_reducer
    from .expr.sizes import size_var
else:
    __getattr__, __dir__ = later(__name__)

INSTEAD = {
    "div": "write a / b of floats, te.truncdiv(a, b) of integers",
    "var": "write te.size_var(name, least, most)",
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atanh"), "write te.call(name, x), as in te.call('acos', x)"),
    **dict.fromkeys(("add", "subtract", "multiply"), "write a + b, a - b, a * b"),
    "fmod": "write topi.mod(a, b) of tensors of floats, which is exact",
    "truncmod": "write a - te.truncdiv(a, b) * b",
    "extern": "what cannot be written as an expression of an element is no operation here",
}
"""What to write for names that users of TVM look for."""

methods.install()

__all__ = [
    "ComputeDAG", "ComputeOp", "Expr", "ExprError", "InterpError", "IterVar", "LowerError", "LoweredFunc",
    "PlaceholderOp", "RecordError", "Schedule", "ScheduleError", "State", "TeError", "Tensor", "Var", "abs", "all",
    "any", "argmax", "argmin", "atan", "call", "cast", "ceil", "comm_reducer", "compute", "const", "cos", "cosh",
    "create_schedule", "erf", "exp", "exp2", "floor", "floordiv", "floormod", "if_then_else", "indexdiv",
    "indexmod", "isnan", "log", "log2", "logical_and", "logical_not", "logical_or", "lower", "max", "max_value",
    "maximum", "min", "min_value", "minimum", "placeholder", "power", "prod", "reduce_axis", "round", "rsqrt",
    "scan", "select", "sigmoid", "sin", "sinh", "size_var", "sqrt", "sum", "tan", "tanh", "thread_axis", "topi",
    "trunc", "truncdiv",
]  # fmt: skip
