"""A program: the functions of a network by name, and its parameters bound to arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from te_lite.errors import require

from .errors import GraphError
from .nodes import Array, Constant, Expr, Function, Var
from .types import TensorType
from .visit import free_vars, substitute


@runtime_checkable
class ArrayObject(Protocol):
    """An array on a device, such as those of `ansor.nd` and of PyTorch."""

    def numpy(self) -> Array:
        """Its elements in the memory of this machine."""


def host_array(value: Any) -> Array:
    """The elements of an array object, a NumPy array, or what NumPy makes an array of."""
    return np.asarray(value.numpy() if isinstance(value, ArrayObject) else value)


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


def main_function(graph: IRModule | Function) -> Function:
    """The network of a module, or the function itself.  Raises GraphError for what is neither."""
    law = "an IRModule or a Function is needed, such as relay.Function([x], relay.nn.relu(x))"
    require(isinstance(graph, IRModule | Function), GraphError, "network", law, got=type(graph).__name__)
    return graph["main"] if isinstance(graph, IRModule) else graph


def bind_params(function: Function, params: Mapping[str, Any]) -> Function:
    """Turn the parameters that `params` names into constants; its values are arrays.

    Raises GraphError when a name is no parameter or that of two, or a shape or dtype differs.
    """
    law = "a mapping from names to arrays is needed"
    require(isinstance(params, Mapping), GraphError, "parameters", law, got=type(params).__name__)
    twice = sorted(name for name, n in Counter(v.name for v in function.params).items() if n > 1)
    require(not twice, GraphError, "parameters", "the names of the parameters must differ", twice=twice)
    by_name = {v.name: v for v in function.params}
    _check_params(by_name, params)
    bound: dict[int, Expr] = {id(by_name[name]): Constant(np.asarray(value)) for name, value in params.items()}
    left = tuple(v for v in function.params if v.name not in params)
    return Function(left, substitute(function.body, bound), function.attrs)


def _check_params(by_name: Mapping[str, Var], params: Mapping[str, Any]) -> None:
    for name, value in params.items():
        require(name in by_name, GraphError, "parameters", "the graph has no such parameter", name=name)
        given = TensorType(tuple(np.shape(value)), str(np.asarray(value).dtype))
        law = f"{by_name[name].type} is needed"
        require(given == by_name[name].var_type, GraphError, f"parameter {name}", law, got=given)
