"""Which calls of constants are computed before the network runs: those that take a moment and a modest memory.

The others stay in the graph, where they mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ansor.core.values.sizes import computed_limit, nbytes

from .nodes import Call, Expr
from .op_registry import OpPattern
from .types import TensorType, TupleType, Type

MOST_PRODUCTS = 1 << 34
"""Of a matrix product, which NumPy hands to a library."""
MOST_WINDOWED = 1 << 28
"""Elements that a convolution or pool reads, and those of its padded data."""


def cheap(call: Call) -> bool:
    """Whether the value of a call, all of whose arguments are known, may be computed now."""
    sizes = [nbytes(t.shape, t.dtype) for e in (call, *call.args) for t in _tensors(e.type)]
    return max(sizes) <= computed_limit() and (call.op.pattern != OpPattern.OUT_ELEMWISE_FUSABLE or _brief(call))


def _tensors(found: Type) -> Sequence[TensorType]:
    return found.fields if isinstance(found, TupleType) else (found,)


def _brief(call: Call) -> bool:
    """Whether a product, convolution or pool is small; not more than this is counted of any of them."""
    out = sum(t.size for t in _tensors(call.type))
    if "padding" not in call.attrs:
        return out * max(_extents(call.args)) <= MOST_PRODUCTS
    window = call.attrs["pool_size"] if "pool_size" in call.attrs else call.args[1].shape
    pads = call.attrs["padding"]
    room = [max(s) + 1 for s in (_numbers(pads), _numbers(window), _numbers(call.attrs["strides"]))]
    sides = len(call.args[0].shape) - 2
    padded = call.args[0].shape[:2], [d + 2 * max(room) for d in call.args[0].shape[-sides:]]
    return max(out * prod(_numbers(window)), prod((*padded[0], *padded[1]))) <= MOST_WINDOWED


def _extents(args: Sequence[Expr]) -> list[int]:
    """The last two extents of every argument: one of them is summed over."""
    return [1, *[d for e in args for t in _tensors(e.type) for d in t.shape[-2:]]]


def _numbers(value: int | Sequence[int]) -> Sequence[int]:
    return (value,) if isinstance(value, int) else value
