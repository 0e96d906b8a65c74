"""Numbers that are known but for open extents: what exporters compute of shapes, and reshape by.

    Shape -> Gather -> Concat -> Reshape      of x (batch, 128), to (batch, 2, 64): [batch, 2, 64], which is no tensor

They are computed while the model is read, element by element, with integers and extents in one array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import SizeVar

from ...ir.errors import GraphError
from ...ir.extents import bounds, extent
from ...ir.nodes import Array, Call, Constant, Expr, Tuple
from ...ir.op_registry import get
from ...ir.types import TensorType, Type

ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.floordiv,
    "floor_divide": operator.floordiv,
}  # fmt: skip
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
MOVES: Mapping[str, tuple[int, ...]] = {
    "broadcast_to": (0,), "concatenate": (0,), "expand_dims": (0,), "reshape": (0,), "squeeze": (0,),
    "strided_slice": (0,), "take": (0,), "where": (1, 2),
}  # fmt: skip
"""Operators that move elements, and those of their arguments that hold these."""
INTEGERS = ("int32", "int64")


@dataclass(frozen=True, eq=False)
class Numbers(Expr):
    """An array of integers and open extents, in place of a constant; no node of a graph."""

    value: Array
    kind: str = "int64"

    @property
    def type(self) -> Type:
        return TensorType(self.value.shape, self.kind)


def numbers(values: Any, dtype: str = "int64") -> Expr:
    """A list, or one, of integers and extents: a constant where all are integers."""
    if isinstance(values, Sequence):
        return _of(_filled((len(values),), lambda at: values[at[0]]), dtype)
    return _of(_filled((), lambda at: values), dtype)


def _of(array: Array, dtype: str) -> Expr:
    is_open = any([isinstance(v, SizeVar) for v in array.flat])
    return Numbers(array, dtype) if is_open else Constant(np.asarray(array.tolist(), dtype))


def are_numbers(args: Sequence[Expr]) -> bool:
    """Whether an argument has open extents for elements."""
    return any([isinstance(f, Numbers) for a in args for f in (a.fields if isinstance(a, Tuple) else (a,))])


def computed(name: str, args: Sequence[Expr], values: Sequence[Any], attrs: Mapping[str, Any]) -> Expr:
    """The operator `name` applied to `args`, whose values are `values`, None where they are tensors of the network.

    Raises GraphError for other operators than those that shapes are computed by, and for what differs between sizes.
    """
    law = "what is computed of open extents must be a shape: it is no data of the network"
    require(all(v is not None for v in values), GraphError, name, law, types=[str(a.type) for a in args])
    made = Call(get(name), tuple(args), attrs)
    if name in ARITHMETIC:
        return _of(_each(lambda a, b: _extent(ARITHMETIC[name](a, b), name), values), made.dtype)
    if name in COMPARISONS:
        return Constant(np.asarray(_each(lambda a, b: _compared(name, a, b), values), bool))
    if name == "cast" and made.attrs["dtype"] in INTEGERS:
        return _of(values[0], made.dtype)
    require(name in MOVES, GraphError, name, law, attributes=dict(attrs))
    return _of(_moved(made, values), made.dtype)


def _moved(made: Call, values: Sequence[Any]) -> Array:
    """What an operator makes of elements that it only moves: it moves their numbers."""
    elements = list[Any]()

    def numbered(value: Any) -> Any:
        if isinstance(value, list):
            return [numbered(v) for v in value]
        elements.extend(value.flat)
        return np.arange(len(elements) - value.size, len(elements)).reshape(value.shape)

    given = [numbered(v) if k in MOVES[made.op.name] else v for k, v in enumerate(values)]
    places = np.asarray(made.op.numpy(given, made.attrs))
    return _filled(places.shape, lambda at: elements[places[at]])


def _filled(shape: tuple[int, ...], element: Callable[[Any], Any]) -> Array:
    """An array of objects, which NumPy must not look at."""
    made = np.empty(shape, object)
    for at in np.ndindex(shape):
        found = element(at)
        made[at] = int(found) if isinstance(found, np.integer) else found
    return made


def _each(function: Callable[[Any, Any], Any], values: Sequence[Any]) -> Array:
    """A function of two numbers, element by element."""
    left, right = np.broadcast_arrays(*[np.asarray(v, object) for v in values])
    return _filled(left.shape, lambda at: function(left[at], right[at]))


def _extent(value: Any, name: str) -> Any:
    """An integer, which may be any, or an extent."""
    return int(value) if isinstance(value, int | np.integer) else _known(value, name)


def _known(value: Any, name: str) -> Any:
    least, most = bounds(value)
    return least if least == most else extent(value, name)


def _compared(name: str, a: Any, b: Any) -> bool:
    """A comparison that comes out the same for all sizes."""
    least, most = bounds(a - b)
    ends = {COMPARISONS[name](d, 0) for d in (least, most, min(max(least, 0), most))}
    law = "it must come out the same for all sizes"
    require(len(ends) == 1, GraphError, name, law, lhs=a, rhs=b)
    return ends.pop()
