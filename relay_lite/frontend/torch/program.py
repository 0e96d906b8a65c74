"""An exported program as plain values: what the two readers, of files and of traced graphs, both give.

Arguments go by the names of the operator's schema, and those with their default values may be absent.  An argument is
None, a bool, a number, text, a `Ref` to a tensor, or a tuple of such; dtypes are names of NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.nodes import Array

SUBJECT = "exported program"
WRITES_NOTHING = "it must not write to buffers or inputs; export the model in evaluation mode"
STATIC = "a static shape is needed, or an extent that torch.export.Dim(name, max=...) bounds"


@dataclass(frozen=True)
class Ref:
    """A tensor by name."""

    name: str


@dataclass(frozen=True)
class TensorInfo:
    """What the program says about a tensor; strides count elements."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AtenNode:
    """One operator (`aten.add.Tensor`), its arguments, and the names of the tensors it gives (None: none is there)."""

    op: str
    name: str
    args: Mapping[str, Any]
    outputs: tuple[str | None, ...]

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}"


@dataclass(frozen=True, eq=False)
class AtenGraph:
    """A program without side effects.  `tensors` has every tensor that is an input, a weight or given by a node."""

    inputs: tuple[str, ...]
    weights: Mapping[str, Array]
    nodes: tuple[AtenNode, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, TensorInfo]


def refs(value: Any) -> Iterator[str]:
    """The tensors that an argument names."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, tuple):
        for part in value:
            yield from refs(part)
