"""`a + b`, `a * 2.0`, `-a`, `a[0]` on nodes: the operators behind Python's signs; `a[k]` is a field of a tuple."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from te_lite.errors import require

from ..errors import GraphError
from ..ir import Expr, TupleGetItem
from ..types import TupleType
from .binary import add, divide, multiply, subtract
from .elementwise import negative


def _swapped(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: f(other, self)


def _field(self: Expr, index: int) -> TupleGetItem:
    """One field of a tuple; raises GraphError when there is none."""
    found = self.type
    count = len(found.fields) if isinstance(found, TupleType) else 0
    law = f"the index must be below {count}" if count else "only a tuple has fields"
    require(isinstance(index, int) and 0 <= index < count, GraphError, "tuple item", law, index=index, type=str(found))
    return TupleGetItem(self, index)


def _fields(self: Expr) -> Iterator[TupleGetItem]:
    """The fields of a tuple, so that `out, mean, var = relay.nn.batch_norm(...)` works."""
    found = self.type
    require(isinstance(found, TupleType), GraphError, "graph", "only a tuple can be taken apart", type=found)
    assert isinstance(found, TupleType)
    return iter([TupleGetItem(self, k) for k in range(len(found.fields))])


def install() -> None:
    """Give nodes their signs."""
    methods: dict[str, Callable[..., Any]] = {"__getitem__": _field, "__iter__": _fields, "__neg__": negative}
    for name, f in (("add", add), ("sub", subtract), ("mul", multiply), ("truediv", divide)):
        methods |= {f"__{name}__": f, f"__r{name}__": _swapped(f)}
    for name, method in methods.items():
        setattr(Expr, name, method)
