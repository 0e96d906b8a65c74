"""The graph of operators: what a network is before any loop is thought of.

An expression is an immutable node; nodes that are used twice are shared, so an expression is a DAG.  Nodes are equal
when they are the same object.  Every node knows its type the moment it is made, so a graph that exists is well typed.
A pass never changes a node: it gives a new one (see `rewrite` in `visit.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import FLOATS
from te_lite.expr.expr import Expr as Scalar

from .errors import GraphError
from .extents import extent
from .op_registry import Op, get
from .types import TensorType, TupleType, Type

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Expr:
    """A node of the graph; `type` is its inferred type."""

    @property
    def type(self) -> Type:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor.  Raises GraphError for a tuple."""
        return tensor_type(self).shape

    @property
    def dtype(self) -> str:
        """The dtype of a tensor.  Raises GraphError for a tuple."""
        return tensor_type(self).dtype

    # ---------------------------------------------------------------------------------- Python's signs

    def __getitem__(self, index: int) -> TupleGetItem:
        """One field of a tuple; raises GraphError when there is none."""
        found = self.type
        count = len(found.fields) if isinstance(found, TupleType) else 0
        law = f"the index must be below {count}" if count else "only a tuple has fields"
        ok = isinstance(index, int) and 0 <= index < count
        require(ok, GraphError, "tuple item", law, index=index, type=str(found))
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[TupleGetItem]:
        """The fields of a tuple, so that `out, mean, var = relay.nn.batch_norm(...)` works."""
        found = self.type
        require(isinstance(found, TupleType), GraphError, "graph", "only a tuple can be taken apart", type=found)
        assert isinstance(found, TupleType)
        return iter([TupleGetItem(self, k) for k in range(len(found.fields))])

    def __neg__(self) -> Call:
        return Call(get("negative"), (self,))

    def __add__(self, other: Any) -> Call:
        return apply_binary("add", self, other)

    def __radd__(self, other: Any) -> Call:
        return apply_binary("add", other, self)

    def __sub__(self, other: Any) -> Call:
        return apply_binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Call:
        return apply_binary("subtract", other, self)

    def __mul__(self, other: Any) -> Call:
        return apply_binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Call:
        return apply_binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Call:
        return apply_binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Call:
        return apply_binary("divide", other, self)


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """An input or a parameter by name."""

    name: str
    var_type: TensorType

    @property
    def type(self) -> Type:
        return self.var_type

    def __repr__(self) -> str:
        return f"%{self.name}"


def _is_frozen(array: Array) -> bool:
    """Whether nobody writes the memory of an array: it is read-only, and so is what it is a view of."""
    base = array.base
    return not array.flags.writeable and (base is None or (isinstance(base, np.ndarray) and _is_frozen(base)))


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """A value that is known; the array is C-contiguous and read-only.

    One that is so already, down to the memory that it is a view of, is used as it is; others are copied.
    """

    value: Array

    def __post_init__(self) -> None:
        value = self.value
        if not (isinstance(value, np.ndarray) and value.flags.c_contiguous and _is_frozen(value)):
            value = np.array(value, order="C")
            value.setflags(write=False)
        object.__setattr__(self, "value", value)

    @cached_property
    def type(self) -> Type:
        return TensorType(tuple(self.value.shape), str(self.value.dtype))

    def __repr__(self) -> str:
        return f"const({self.type})"


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """An operator applied to arguments.  `attrs` holds every attribute of the operator, defaults filled in."""

    op: Op
    args: tuple[Expr, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    inferred: Type = field(init=False)

    def __post_init__(self) -> None:
        unknown = set(self.attrs) - set(self.op.defaults)
        require(not unknown, GraphError, self.op.name, f"attributes are {', '.join(self.op.defaults)}", unknown=unknown)
        attrs = {name: _value(self.attrs.get(name, default)) for name, default in self.op.defaults.items()}
        object.__setattr__(self, "attrs", MappingProxyType(attrs))
        object.__setattr__(self, "inferred", self.op.infer([a.type for a in self.args], self.attrs))

    @property
    def type(self) -> Type:
        return self.inferred

    def __repr__(self) -> str:
        return f"{self.op.name}(...) : {self.type}"


@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    """Several tensors as one value."""

    fields: tuple[Expr, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))

    @property
    def type(self) -> Type:
        return TupleType(tuple(tensor_type(f) for f in self.fields))


@dataclass(frozen=True, eq=False)
class TupleGetItem(Expr):
    """One tensor of a tuple."""

    tuple_value: Expr
    index: int

    @property
    def type(self) -> Type:
        found = self.tuple_value.type
        require(isinstance(found, TupleType), GraphError, "tuple item", "a tuple is needed", type=found)
        assert isinstance(found, TupleType)
        inside = 0 <= self.index < len(found.fields)
        require(inside, GraphError, "tuple item", f"the index must be below {len(found.fields)}", index=self.index)
        return found.fields[self.index]


@dataclass(frozen=True, eq=False)
class Function:
    """A graph with named inputs: `params` in order, `body` the result (a tensor or a tuple).

    A fused group of operators is a Function with `attrs["primitive"]`, and is called through a `FunctionCall`.
    """

    params: tuple[Var, ...]
    body: Expr
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(self.params))


@dataclass(frozen=True, eq=False)
class FunctionCall(Expr):
    """A function applied to arguments: how a fused graph calls its groups."""

    function: Function
    args: tuple[Expr, ...]

    @property
    def type(self) -> Type:
        return self.function.body.type


class Control(Expr):
    """A node that runs functions of its own on its arguments (see `control.py`)."""

    @property
    def given(self) -> tuple[Expr, ...]:
        """Its arguments."""
        raise NotImplementedError

    @property
    def functions(self) -> tuple[Function, ...]:
        """What it runs."""
        raise NotImplementedError

    def with_functions(self, functions: Sequence[Function], args: Sequence[Expr] | None = None) -> Expr:
        """The node with other functions of the same types; with other arguments, too, where these are given."""
        raise NotImplementedError


def tensor_type(e: Expr) -> TensorType:
    """The type of a tensor.  Raises GraphError for a tuple."""
    found = e.type
    require(isinstance(found, TensorType), GraphError, "graph", "a tensor is needed, not a tuple", type=found)
    assert isinstance(found, TensorType)
    return found


def children(e: Expr) -> tuple[Expr, ...]:
    """What a node reads, in order."""
    match e:
        case Call(args=args) | FunctionCall(args=args):
            return args
        case Control():
            return e.given
        case Tuple(fields=fields):
            return fields
        case TupleGetItem(tuple_value=value):
            return (value,)
        case _:
            return ()


def rebuild(node: Expr, args: Sequence[Expr]) -> Expr:
    """The node with other children; the node itself when they are the same."""
    if all(a is b for a, b in zip(args, children(node), strict=True)):
        return node
    match node:
        case Call(op=op, attrs=attrs):
            return Call(op, tuple(args), attrs)
        case FunctionCall(function=function):
            return FunctionCall(function, tuple(args))
        case Control():
            return node.with_functions(node.functions, args)
        case Tuple():
            return Tuple(tuple(args))
        case TupleGetItem(index=index):
            return TupleGetItem(args[0], index)
        case _:
            return node


def _value(value: Any) -> Any:
    """Attributes are compared and hashed, so lists become tuples, and what is computed of sizes becomes an extent."""
    if isinstance(value, Scalar):
        return extent(value, "attribute")
    return tuple(_value(v) for v in value) if isinstance(value, list | tuple) else value


# ------------------------------------------------------------------------------------------- Python's values


def const(value: Any, dtype: str | None = None) -> Constant:
    """A constant from a number, a nested list or an array.

    Without `dtype`, Python's floats become float32 and its integers int32; an array keeps its own.  Raises GraphError
    for integers that are too large for that.
    """
    array = np.asarray(value)
    if dtype is None and not isinstance(value, np.ndarray | np.generic):
        dtype = {"float64": "float32", "int64": "int32"}.get(str(array.dtype))
        fits = dtype != "int32" or np.array_equal(array.astype("int32"), array)
        require(fits, GraphError, "constant", "an integer that is no int32 needs a dtype", got=value)
    return Constant(array if dtype is None else array.astype(dtype))


def as_expr(value: Any, like: Expr | None = None) -> Expr:
    """`value` as a node: a number becomes a constant of the dtype of `like`.

    Raises GraphError for what is no value, and for a number that an integer dtype cannot hold, such as 0.5.
    """
    if isinstance(value, Expr):
        return value
    ok = isinstance(value, bool | int | float | np.generic | np.ndarray)
    require(ok, GraphError, "graph", "a node, a number or an array is needed", got=type(value).__name__)
    if like is None or isinstance(value, np.ndarray):
        return const(value)
    made = const(value, like.dtype)
    exact = like.dtype in FLOATS or made.value == value
    require(exact, GraphError, "graph", f"a number of dtype {like.dtype} is needed", got=value)
    return made


def apply_binary(name: str, lhs: Any, rhs: Any) -> Call:
    """The operator `name` applied to two nodes; a number takes the dtype of the other side."""
    left = as_expr(lhs, rhs if isinstance(rhs, Expr) else None)
    return Call(get(name), (left, as_expr(rhs, left)))
