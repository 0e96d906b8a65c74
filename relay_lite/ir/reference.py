"""What a graph means: its operators one after the other in NumPy.

This is the oracle of everything that rewrites or compiles graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import FLOATS

from .control import Branch, Loop
from .errors import GraphError
from .module import IRModule, main_function
from .nodes import Array, Call, Constant, Expr, Function, FunctionCall, Tuple, TupleGetItem, Var, children
from .types import TensorType, TupleType
from .visit import post_order

Value: TypeAlias = Any  # an array, or a tuple of arrays
Inputs: TypeAlias = Mapping[str, Any] | Sequence[Any]

DTYPE_ATTRS = ("dtype", "out_dtype")


def run(
    graph: IRModule | Function, inputs: Inputs, params: Mapping[str, Any] | None = None, dtype: str | None = None
) -> Any:
    """The result of a network: an array, or a tuple of arrays.

    `inputs` are arrays by the names of the parameters, or in their order (without those in `params`).  `dtype`
    ("float64") replaces the dtype of all floats: what tolerances are measured against.
    Raises GraphError for an input that is missing, unknown or of another shape or dtype.
    """
    function = main_function(graph)
    given = _by_name(function, inputs, params or {})
    values = [_argument(v, given, dtype) for v in function.params]
    with np.errstate(all="ignore"):
        return _function(function, values, dtype)


def _by_name(function: Function, inputs: Inputs, params: Mapping[str, Any]) -> dict[str, Any]:
    every = [v.name for v in function.params]
    require(len(set(every)) == len(every), GraphError, "inputs", "the names of the parameters must differ", names=every)
    if not isinstance(inputs, Mapping):
        names = [name for name in every if name not in params]
        law = f"one array for each of {', '.join(names)} is needed"
        require(len(inputs) == len(names), GraphError, "inputs", law, given=len(inputs))
        inputs = dict(zip(names, inputs, strict=True))
    given = {**params, **inputs}
    unknown = set(given) - set(every)
    require(not unknown, GraphError, "inputs", "the graph has no such input", unknown=sorted(unknown))
    return given


def _argument(v: Var, given: Mapping[str, Any], dtype: str | None) -> Array:
    require(v.name in given, GraphError, "inputs", "an input is missing", name=v.name)
    array = np.asarray(given[v.name])
    kind = TensorType(tuple(array.shape), str(array.dtype))
    known = kind == v.var_type or (kind.shape == v.shape and {kind.dtype, v.dtype} <= set(FLOATS) and dtype is not None)
    require(known, GraphError, f"input {v.name}", f"{v.var_type} is needed", got=str(kind))
    return _wide(array, dtype)


def _wide(array: Array, dtype: str | None) -> Array:
    return array if dtype is None or str(array.dtype) not in FLOATS else array.astype(dtype)


def _function(function: Function, arguments: Sequence[Value], dtype: str | None) -> Any:
    """Evaluate the body; a value is dropped after its last reader."""
    order = post_order(function.body)
    readers = Counter(id(child) for node in order for child in children(node))
    readers[id(function.body)] += 1
    values: dict[int, Value] = {id(v): a for v, a in zip(function.params, arguments, strict=True)}
    for node in order:
        if id(node) not in values:
            values[id(node)] = _node(node, values, dtype)
        for child in children(node):
            readers[id(child)] -= 1
            if readers[id(child)] == 0:
                del values[id(child)]
    return values[id(function.body)]


def _node(node: Expr, values: Mapping[int, Value], dtype: str | None) -> Value:
    match node:
        case Constant(value=value):
            return _wide(value, dtype)
        case Call():
            return _call(node, [values[id(a)] for a in node.args], dtype)
        case FunctionCall(function=function, args=args):
            return _function(function, [values[id(a)] for a in args], dtype)
        case Loop():
            return _loop(node, [values[id(a)] for a in node.args], dtype)
        case Branch(args=(condition, *others)):
            taken = node.then if values[id(condition)] else node.otherwise
            return _function(taken, [values[id(a)] for a in others], dtype)
        case Tuple(fields=fields):
            return tuple(values[id(f)] for f in fields)
        case TupleGetItem(tuple_value=value, index=index):
            return values[id(value)][index]
        case Var(name=name):
            raise GraphError(f"reference: the variable {name} is not a parameter of the function")
    raise GraphError(f"reference: a {type(node).__name__} cannot be evaluated")


def _loop(node: Loop, args: Sequence[Value], dtype: str | None) -> Value:
    """The last states, and what all steps gave, in the order of their slices."""
    kept = node.sliced + node.states
    sliced = [np.split(a, node.slices(k)) for k, a in enumerate(args[: node.sliced])]
    states, given = list(args[node.sliced : kept]), dict[int, Sequence[Value]]()
    step = 0
    while states[0] if node.unbounded else step < node.steps:
        slices = [s[node.slice_taken(k, step)] for k, s in enumerate(sliced)]
        found = _function(node.function, [*slices, *states, *args[kept:]], dtype)
        states, given[node.slice_of(step)] = list(found[: node.states]), found[node.states :]
        step += 1
    return *states, *[np.concatenate(every) for every in zip(*[given[k] for k in sorted(given)], strict=True)]


def _call(node: Call, args: list[Value], dtype: str | None) -> Value:
    """One operator, checked: what it gives is what its type rule promised."""
    attrs = dict(node.attrs)
    if dtype is not None:
        attrs |= {k: dtype for k in DTYPE_ATTRS if attrs.get(k) in FLOATS}
    value = node.op.numpy(args, attrs)
    _check(node, value, dtype)
    return value


def _check(node: Call, value: Value, dtype: str | None) -> None:
    many = isinstance(node.type, TupleType)
    for found, promised in zip(
        value if many else (value,), node.type.fields if isinstance(node.type, TupleType) else (node.type,), strict=True
    ):
        assert isinstance(promised, TensorType)
        kind = dtype if dtype is not None and promised.dtype in FLOATS else promised.dtype
        ok = tuple(found.shape) == promised.shape and str(found.dtype) == kind
        law = f"the type rule says {promised}"
        require(ok, GraphError, node.op.name, law, shape=tuple(found.shape), dtype=str(found.dtype))
