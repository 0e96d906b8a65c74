"""`a + b`, `a * 2.0`, `-a`, `a / b` on tensors: the broadcast operations behind Python's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr import FLOATS, const
from ..tensor import Tensor
from .broadcast import add, divide, floor_divide, floor_mod, multiply, subtract


def _swapped(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: f(other, self)


def _negated(self: Tensor) -> Any:
    return multiply(self, const(-1.0 if self.dtype in FLOATS else -1, self.dtype))


def install() -> None:
    """Give `Tensor` its operators."""
    methods: dict[str, Callable[..., Any]] = {"__neg__": _negated}
    for name, f in (
        ("add", add),
        ("sub", subtract),
        ("mul", multiply),
        ("truediv", divide),
        ("floordiv", floor_divide),
        ("mod", floor_mod),
    ):
        methods |= {f"__{name}__": f, f"__r{name}__": _swapped(f)}
    for name, f in methods.items():
        setattr(Tensor, name, f)
