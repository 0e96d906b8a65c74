"""The graph of operators: what a network is before any loop is thought of.

An expression is an immutable node; nodes that are used twice are shared, so an expression is a DAG.  Nodes are equal
when they are the same object.  Every node knows its type the moment it is made, so a graph that exists is well typed.
A pass never changes a node: it gives a new one (see `relay_lite.visit.Rewriter`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from te_lite.errors import require

from .errors import GraphError
from .op.registry import Op
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

    if TYPE_CHECKING:  # installed by `op.operators`

        def __getitem__(self, index: int) -> TupleGetItem: ...
        def __iter__(self) -> Iterator[TupleGetItem]: ...
        def __neg__(self) -> Call: ...
        def __add__(self, other: Any) -> Call: ...
        def __radd__(self, other: Any) -> Call: ...
        def __sub__(self, other: Any) -> Call: ...
        def __rsub__(self, other: Any) -> Call: ...
        def __mul__(self, other: Any) -> Call: ...
        def __rmul__(self, other: Any) -> Call: ...
        def __truediv__(self, other: Any) -> Call: ...
        def __rtruediv__(self, other: Any) -> Call: ...


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


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """A value that is known; the array is C-contiguous and read-only."""

    value: Array

    def __post_init__(self) -> None:
        value = np.array(self.value, order="C")
        value.setflags(write=False)
        object.__setattr__(self, "value", value)

    @property
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


@dataclass(frozen=True, eq=False)
class IRModule:
    """The functions of a program by name; `main` is the network."""

    functions: Mapping[str, Function]

    @staticmethod
    def from_expr(value: Function | Expr) -> IRModule:
        """A module whose `main` is `value`; the free variables of an expression become its inputs, in order of use."""
        return IRModule({"main": value if isinstance(value, Function) else Function(free_vars(value), value)})

    def __getitem__(self, name: str) -> Function:
        require(name in self.functions, GraphError, "module", f"functions are {', '.join(self.functions)}", name=name)
        return self.functions[name]


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
        case Tuple(fields=fields):
            return fields
        case TupleGetItem(tuple_value=value):
            return (value,)
        case _:
            return ()


def post_order(body: Expr, is_leaf: Callable[[Expr], bool] = lambda node: False) -> list[Expr]:
    """Every node once, arguments before their readers and left to right; deep graphs need no deep stack.

    What only a node with `is_leaf` reads is left out.
    """
    done: set[int] = set()
    out: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(body, False)]
    while stack:
        node, finished = stack.pop()
        if id(node) in done:
            continue
        if finished:
            done.add(id(node))
            out.append(node)
        else:
            stack.append((node, True))
            below = () if is_leaf(node) else children(node)
            stack.extend((child, False) for child in reversed(below) if id(child) not in done)
    return out


def free_vars(body: Expr) -> tuple[Var, ...]:
    """The variables of an expression in order of first use."""
    return tuple(node for node in post_order(body) if isinstance(node, Var))


def main_function(graph: IRModule | Function) -> Function:
    """The network of a module, or the function itself."""
    return graph["main"] if isinstance(graph, IRModule) else graph


def bind_params(function: Function, params: Mapping[str, Any]) -> Function:
    """Turn the parameters that `params` names into constants; its values are arrays.

    Raises GraphError when a name is no parameter or that of two, or a shape or dtype differs.
    """
    by_name = {v.name: v for v in function.params}
    twice = sorted(name for name, n in Counter(v.name for v in function.params).items() if n > 1)
    require(not twice, GraphError, "parameters", "the names of the parameters must differ", twice=twice)
    for name, value in params.items():
        require(name in by_name, GraphError, "parameters", "the graph has no such parameter", name=name)
        given = TensorType(tuple(np.shape(value)), str(np.asarray(value).dtype))
        law = f"{by_name[name].type} is needed"
        require(given == by_name[name].var_type, GraphError, f"parameter {name}", law, got=given)
    bound: dict[int, Expr] = {id(by_name[name]): Constant(np.asarray(value)) for name, value in params.items()}
    left = tuple(v for v in function.params if v.name not in params)
    return Function(left, substitute(function.body, bound), function.attrs)


def substitute(body: Expr, values: Mapping[int, Expr]) -> Expr:
    """Replace nodes by id; everything that does not change stays the same node."""
    made: dict[int, Expr] = {}
    for node in post_order(body):
        made[id(node)] = (
            values[id(node)] if id(node) in values else rebuild(node, [made[id(c)] for c in children(node)])
        )
    return made[id(body)]


def rebuild(node: Expr, args: Sequence[Expr]) -> Expr:
    """The node with other children; the node itself when they are the same."""
    if all(a is b for a, b in zip(args, children(node), strict=True)):
        return node
    match node:
        case Call(op=op, attrs=attrs):
            return Call(op, tuple(args), attrs)
        case FunctionCall(function=function):
            return FunctionCall(function, tuple(args))
        case Tuple():
            return Tuple(tuple(args))
        case TupleGetItem(index=index):
            return TupleGetItem(args[0], index)
        case _:
            return node


def _value(value: Any) -> Any:
    """Attributes are compared and hashed, so lists become tuples."""
    return tuple(_value(v) for v in value) if isinstance(value, list | tuple) else value
