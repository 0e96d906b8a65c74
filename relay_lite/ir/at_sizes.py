"""A graph with open extents at some sizes: the graph of numbers that it is there."""

from __future__ import annotations

from typing import Any

from te_lite.expr.expr import SizeVar

from .errors import GraphError
from .extents import Sizes, shape_at, value_of
from .nodes import Call, Control, Expr, Function, FunctionCall, Var, children, rebuild
from .types import TensorType, fields_of
from .visit import post_order


class AtSizes:
    """Graphs at some sizes.  `functions` has what each function became that a graph calls, by what it became."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.functions: dict[Function, Function] = {}
        self._made: dict[Function, Function] = {}

    def of(self, function: Function) -> Function:
        """A function of numbers.

        Raises GraphError where a type is not what the open one says, for then a rule of an operator is wrong.
        """
        made: dict[int, Expr] = {id(v): Var(v.name, self._type(v.var_type)) for v in function.params}
        params = tuple(made.values())
        for node in post_order(function.body):
            if isinstance(node, Var):
                made.setdefault(id(node), node)  # one that is no parameter is refused by who reads the graph
            elif id(node) not in made:
                made[id(node)] = self._node(node, [made[id(c)] for c in children(node)])
                self._check(node, made[id(node)])
        return Function(params, made[id(function.body)], function.attrs)  # type: ignore[arg-type]

    def _node(self, node: Expr, args: list[Expr]) -> Expr:
        match node:
            case Call(op=op, attrs=attrs):
                return Call(op, tuple(args), {name: self._value(value) for name, value in attrs.items()})
            case FunctionCall(function=function):
                return FunctionCall(self._function(function), tuple(args))
            case Control():
                return node.with_functions([self._function(f) for f in node.functions], args)
        return rebuild(node, args)

    def _function(self, function: Function) -> Function:
        if function not in self._made:
            self._made[function] = made = self.of(function)
            self.functions[made] = function
        return self._made[function]

    def _value(self, value: Any) -> Any:
        """An attribute."""
        if isinstance(value, tuple):
            return tuple([self._value(v) for v in value])
        return value_of(value, self.sizes) if isinstance(value, SizeVar) else value

    def _type(self, kind: TensorType) -> TensorType:
        return TensorType(shape_at(kind.shape, self.sizes), kind.dtype)

    def _check(self, node: Expr, made: Expr) -> None:
        wanted, found = ([*map(self._type, fields_of(node.type))], list(fields_of(made.type)))
        if found != wanted:
            at, law = ", ".join([f"{v.name}={n}" for v, n in self.sizes.items()]), ", ".join(map(str, wanted))
            raise GraphError(f"{node!r}: at {at} its type must be {law}, got {', '.join(map(str, found))}")


def at_sizes(function: Function, sizes: Sizes) -> Function:
    """A function with open extents at some sizes; see `AtSizes`."""
    return AtSizes(sizes).of(function)
