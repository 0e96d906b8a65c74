"""te_lite: the language of ansor: expressions, tensors, schedules, loops and their meaning.

Read the modules in this order; none imports one that comes after it.

    what all need       errors, later
    tensor cores        fragment, fragment_text, mma
    expressions         dtype, hooks, laws, arithmetic, storage, spelling, instead, misuse, node, element, expr, intrin
    their ranges        interval, visit, reduction, linear, simplify
    computations        tensor, text, access, computation
    steps               lanes, fragment_storage, swizzle, region, step, step_json
    states              state, derive, online, carried, loop_value
    schedules           apply_loop, apply_stage, replay, dag, thread_axes, schedule
    loop programs       stmt, perfect_nest, register_tile, stmt_text, mma_meaning, names, width, stored_text, c_text
    bounds              data_arithmetic, reads, loop_scope, overrun, counted, bounds, nest, index_span, footprint
    verifier            verify_span, verify_points, verify_form, verify_common, verify_bounds
    laws                verify_scope, verify_warp, verify_walk
    accesses            verify_access, verify_reads
    verdicts            verify_clash, verify_guards, verify_digits, verify_phases, verify_races, verify
    dependence          interp_expr, independent
    lowering            zero_terms, lower_along, lower_facts, edges, lower_point
    its nests           lower_operand, lower_mma, lower_matrix_load, lower_growth, lower_nest
    shared              double_buffer, thread_parts
    passes              vthread, unroll, whole_turns, sync, lower, written_over
    meaning             reference_expr, reference_fold, reference, interp_memory, interp_scope, warp_operation, interp
    at points           drawn, expr_numbers, reference_points, reference_demand
    printing            state_text, python_text, dag_json, dag_check, dag_difference
    beside them         environment, timing, methods, topi

A student begins with `expr`, `tensor`, `step` and `state`; `topi`, the library of operators, has an order of its own.
"""

from typing import TYPE_CHECKING

from . import methods
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
from .later import later
from .lower import lower
from .reduction import argmax, argmin, comm_reducer, max, max_value, min, min_value, prod, reduce_axis, sum
from .schedule import Schedule, create_schedule
from .state import State
from .stmt import LoweredFunc
from .tensor import ComputeOp, PlaceholderOp, Tensor, compute, placeholder
from .thread_axes import thread_axis

if TYPE_CHECKING:
    from . import topi
else:
    __getattr__, __dir__ = later(__name__)

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
