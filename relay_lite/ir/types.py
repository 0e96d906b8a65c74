"""What is known of a value before the network runs: shape and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from ansor.core.values.checks import require_tensor
from te_lite.errors import require
from te_lite.expr.expr import DTYPES

from .errors import GraphError

DTYPE_LAW = f"dtypes are {', '.join(DTYPES)}"


@dataclass(frozen=True)
class TensorType:
    """A static shape and a dtype; a scalar has shape ().

    Raises GraphError for what is none, and for more axes or bytes than `ansor.core.values.checks` allows: no graph
    exists whose tensors cannot be had.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        whole = all(isinstance(d, int) and d >= 0 for d in self.shape)
        require(whole, GraphError, "tensor type", "extents must be integers of at least 0", shape=self.shape)
        require(self.dtype in DTYPES, GraphError, "tensor type", DTYPE_LAW, dtype=self.dtype)
        require_tensor(self.shape, self.dtype, "tensor type")

    @property
    def size(self) -> int:
        """How many elements."""
        return prod(self.shape)

    def __str__(self) -> str:
        return f"Tensor[{self.shape}, {self.dtype}]"


@dataclass(frozen=True)
class TupleType:
    """Several tensors."""

    fields: tuple[TensorType, ...]


Type: TypeAlias = TensorType | TupleType
