"""What is known of a value before the network runs: shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from ansor.core.values.checks import require_tensor
from te_lite.errors import require
from te_lite.expr.expr import DTYPES, Expr

from .errors import GraphError
from .extents import extent, greatest

DTYPE_LAW = f"dtypes are {', '.join(DTYPES)}"


@dataclass(frozen=True)
class TensorType:
    """A shape and a dtype; a scalar has shape ().

    Extents are integers of at least 0, or open: sizes as `te.size_var("n", 1, 64)`, and what is computed of them
    (`extents.py`).  Raises GraphError for what is none, and for more axes or bytes than `ansor.core.values.checks`
    allows: no graph exists whose tensors cannot be had.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.is_open:
            object.__setattr__(self, "shape", tuple([extent(d, "tensor type") for d in self.shape]))
        most = greatest(self.shape) if self.is_open else self.shape
        whole = all(isinstance(d, int) and d >= 0 for d in most)
        require(whole, GraphError, "tensor type", "extents must be integers of at least 0", shape=self.shape)
        require(self.dtype in DTYPES, GraphError, "tensor type", DTYPE_LAW, dtype=self.dtype)
        require_tensor(most, self.dtype, "tensor type")

    @property
    def size(self) -> int:
        """How many elements, at most."""
        return prod(greatest(self.shape) if self.is_open else self.shape)

    @property
    def is_open(self) -> bool:
        """Whether the shape has extents that are known when the network runs."""
        return any([isinstance(d, Expr) for d in self.shape])

    def __str__(self) -> str:
        return f"Tensor[{self.shape}, {self.dtype}]"


@dataclass(frozen=True)
class TupleType:
    """Several tensors."""

    fields: tuple[TensorType, ...]


Type: TypeAlias = TensorType | TupleType


def fields_of(kind: Type) -> tuple[TensorType, ...]:
    """The tensors of a type."""
    return kind.fields if isinstance(kind, TupleType) else (kind,)


def open_shapes(types: Sequence[Type]) -> list[tuple[int, ...]]:
    """The shapes of arguments that have open extents."""
    return [t.shape for kind in types for t in fields_of(kind) if t.is_open]
