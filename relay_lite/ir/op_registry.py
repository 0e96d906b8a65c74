"""What an operator is: its type rule, its meaning in NumPy, its tensor expression, and how it fuses.

    inferred = op.infer([TensorType((1, 8, 8, 3)), TensorType((3, 3, 3, 16))], attrs)
    array = op.numpy([data, weight], attrs)            # the definition: the reference executor runs this
    tensors = op.compute([te_data, te_weight], attrs, target)   # what is tuned and compiled

An argument that is a tuple is a TupleType, a list of arrays or a list of tensors to the three functions; an operator
of several results gives a TupleType, a tuple of arrays, or several tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from te_lite import Tensor
from te_lite.errors import require

from .errors import GraphError
from .types import Type

Attrs: TypeAlias = Mapping[str, Any]
Infer: TypeAlias = Callable[[Sequence[Type], Attrs], Type]
Numpy: TypeAlias = Callable[[Sequence[Any], Attrs], Any]
Compute: TypeAlias = Callable[[Sequence[Any], Attrs, str], list[Tensor]]


class OpPattern(IntEnum):
    """How an operator fuses; the order is used in comparisons."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


@dataclass(frozen=True, eq=False)
class Op:
    """An operator; `compute` takes the kind of the target (`c` or `cuda`), and is None for one that only folds."""

    name: str
    pattern: OpPattern
    infer: Infer
    numpy: Numpy
    compute: Compute | None
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Make an operator known by name.  Raises GraphError when the name is taken."""
    require(op.name not in OPS, GraphError, "operator", "the name is taken", name=op.name)
    OPS[op.name] = op
    return op


def get(name: str) -> Op:
    """The operator of a name.  Raises GraphError for an unknown one."""
    require(name in OPS, GraphError, "operator", "the name is unknown", name=name)
    return OPS[name]
