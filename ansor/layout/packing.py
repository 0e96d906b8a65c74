"""Packed layouts: a constant tensor stored in the order in which a loop nest reads it.

Every dimension is written as digits of a mixed radix, and the digits of all dimensions are the dimensions of the
packed tensor, in the order of the loops that count them.  A 512 x 512 weight read by loops j0 j1 j2 j3 k of extents
4, 8, 4, 4, 512 (k is the first dimension, j the second) becomes `4j8j4j4j512k`:

    packed[j0, j1, j2, j3, k] = weight[k, ((j0 * 8 + j1) * 4 + j2) * 4 + j3]

Where the digits count further than the dimension does, the packed tensor has zeros that no program reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from te_lite import Tensor
from te_lite.errors import require
from te_lite.expr.expr import INDEX, Expr, Load, as_expr, binary

from ..core.errors import TaskError

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class PackedLayout:
    """How a tensor of `shape` is packed: `digits` are `(dimension, extent)`, outermost first.

    `names` are what the dimensions are called in text.  Raises TaskError when the digits of a dimension cannot count
    through it.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    digits: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for d, extent in enumerate(self.shape):
            reach = prod(self.extents(d))
            law = f"dimension {d} of extent {extent} must be counted through"
            require(reach >= extent, TaskError, "packed layout", law, digits=self.digits)

    def extents(self, d: int) -> list[int]:
        """The digits of dimension `d`, the most significant first."""
        return [extent for dimension, extent in self.digits if dimension == d]

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape of the packed tensor."""
        return tuple([extent for _, extent in self.digits])

    @property
    def moves_nothing(self) -> bool:
        """Whether the packed tensor is the tensor, byte for byte."""
        order = [d for d, _ in self.digits]
        return order == sorted(order) and all(prod(self.extents(d)) == e for d, e in enumerate(self.shape))

    @property
    def before(self) -> str:
        """The declared layout as text, `512k512j`."""
        return "".join(f"{extent}{name}" for extent, name in zip(self.shape, self.names, strict=True))

    def __str__(self) -> str:
        return "".join(f"{extent}{self.names[d]}" for d, extent in self.digits)

    def index(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the element at `indices` of the declared tensor stands in the packed one."""
        out = []
        for k, (d, extent) in enumerate(self.digits):
            later = prod([e for dimension, e in self.digits[k + 1 :] if dimension == d])
            first = all(dimension != d for dimension, _ in self.digits[:k])
            digit = binary("//", as_expr(indices[d], INDEX), later) if later > 1 else as_expr(indices[d], INDEX)
            out.append(digit if first else binary("%", digit, extent))
        return tuple(out)

    def pack(self, array: Array) -> Array:
        """The packed form of an array of `shape`; same dtype."""
        require(array.shape == self.shape, TaskError, "pack", f"the shape {self.shape} is needed", got=array.shape)
        reach = tuple([prod(self.extents(d)) for d in range(len(self.shape))])
        whole = array
        if reach != self.shape:
            whole = np.zeros(reach, array.dtype)
            whole[tuple([slice(0, extent) for extent in self.shape])] = array
        order = self._by_dimension()
        split = whole.reshape([self.digits[k][1] for k in order])
        return np.ascontiguousarray(split.transpose(np.argsort(order)))

    def unpack(self, packed: Array) -> Array:
        """The array of `shape` that `pack` gave `packed` for."""
        require(
            packed.shape == self.packed_shape, TaskError, "unpack", f"{self.packed_shape} is needed", got=packed.shape
        )
        whole = packed.transpose(self._by_dimension()).reshape([prod(self.extents(d)) for d in range(len(self.shape))])
        return np.ascontiguousarray(whole[tuple([slice(0, extent) for extent in self.shape])])

    def _by_dimension(self) -> list[int]:
        """The places of the digits, sorted by the dimension that they are of."""
        return sorted(range(len(self.digits)), key=lambda k: self.digits[k][0])


class PackedView(Tensor):
    """A packed tensor that is read as if it were not: what reads it gets reads of the packed one."""

    __slots__ = ("layout",)

    def __init__(self, packed: Tensor, layout: PackedLayout) -> None:
        same = packed.shape == layout.packed_shape
        require(same, TaskError, packed.name, f"the shape {layout.packed_shape} is needed", got=packed.shape)
        super().__init__(packed.op, packed.value_index)
        self.layout = layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def ndim(self) -> int:
        return len(self.layout.shape)

    def __getitem__(self, indices: Any) -> Expr:
        items = indices if isinstance(indices, tuple | list) else (indices,)
        require(len(items) == self.ndim, TaskError, self.name, f"{self.ndim} indices are needed", indices=len(items))
        return Load(Tensor(self.op, self.value_index), self.layout.index([as_expr(i, INDEX) for i in items]))
