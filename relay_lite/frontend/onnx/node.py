"""What a converter is given: a node whose inputs are expressions, and how it asks for them.

Every question names the node when the answer is refused, so a converter reads as the definition of its operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import SizeVar

from ...ir.errors import GraphError
from ...ir.nodes import Array, Call, Expr
from .emit import value_of
from .sizes import Numbers


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the model: `inputs` are None where absent, `outputs` are the names of what it gives.

    `parameters` holds the values of inputs that are parameters of the graph and not constants, by id.  `asked` collects
    the inputs (by index) and the attributes (by name) that a converter asks for; others it would ignore.  `lacking`
    says of outputs by index why they cannot be given, as part of a sentence; what a converter gives there is not read.
    """

    op: str
    name: str
    opset: int
    inputs: tuple[Expr | None, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    parameters: Mapping[int, Array]
    asked: set[int | str] = field(default_factory=set)
    lacking: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"ONNX {self.op} {self.name!r}"

    def require(self, ok: object, law: str, **got: object) -> None:
        """Raise GraphError that names the node unless `ok`."""
        require(ok, GraphError, str(self), law, **got)

    def with_inputs(self, inputs: tuple[Expr | None, ...]) -> Node:
        """The node with other inputs; what is asked of it counts as asked of this one."""
        return replace(self, inputs=inputs)

    def input(self, index: int) -> Expr:
        """An input that must be there."""
        found = self.optional(index)
        if found is None:
            raise GraphError(f"{self}: input {index} is needed, got {len(self.inputs)} inputs")
        return found

    def optional(self, index: int) -> Expr | None:
        """An input that may be absent: left out at the end, or named by the empty text."""
        self.asked.add(index)
        return self.inputs[index] if index < len(self.inputs) else None

    def refuse_unread(self, harmless: Callable[[str], bool]) -> None:
        """Raise GraphError for an attribute (unless `harmless`) or input that has a meaning nobody asked for."""
        attrs = [name for name in self.attrs if name not in self.asked and not harmless(name)]
        self.require(not attrs, "these attributes are not supported", attributes=attrs)
        inputs = [i for i, e in enumerate(self.inputs) if e is not None and i not in self.asked]
        self.require(not inputs, "these inputs are not supported", inputs=inputs)

    def value(self, index: int) -> Array | None:
        """The value of an input that must be known before the network runs; None when it is absent."""
        found, e = self.known(index), self.optional(index)
        law = "must be known when the model is read: a constant, or computed from shapes and inputs that `fixed` has"
        self.require(found is not None or e is None, f"input {index} {law}", type="" if e is None else str(e.type))
        return found

    def known(self, index: int) -> Array | None:
        """The value of an input when it is a constant or a parameter, else None."""
        e = self.optional(index)
        value = value_of(e)
        if value is None and isinstance(e, Call) and e.op.name == "qnn.dequantize":
            parts = [value_of(a) for a in e.args]
            return None if any(p is None for p in parts) else np.asarray(e.op.numpy(parts, e.attrs))
        return self.parameters.get(id(e)) if value is None else value

    def scalar(self, index: int) -> Any:
        """The single number of a known input, None when it is absent."""
        found = self.value(index)
        if found is None:
            return None
        self.require(found.size == 1, f"input {index} must hold one number", shape=found.shape)
        return found.reshape(()).item()

    def extent(self, index: int) -> SizeVar | None:
        """The one open extent that an input is, None for any other input."""
        e = self.optional(index)
        return e.value.reshape(-1)[0] if isinstance(e, Numbers) and e.value.size == 1 else None

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        self.asked.add(name)
        return name in self.attrs

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer."""
        return int(self._attr(name, default, int, "an integer"))

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that is a number; the default is rounded to float32, as ONNX stores it."""
        stored = None if default is None else float(np.float32(default))
        return float(self._attr(name, stored, (int, float), "a number"))

    def text(self, name: str, default: str | None = None) -> str:
        """An attribute that is text."""
        return str(self._attr(name, default, str, "text"))

    def texts(self, name: str, default: Sequence[str]) -> tuple[str, ...]:
        """An attribute that is a list of texts."""
        found = self._attr(name, default, (tuple, list), "a list of texts")
        self.require(all(isinstance(v, str) for v in found), f"attribute {name} must be a list of texts", value=found)
        return tuple(found)

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        found = self._attr(name, default, (tuple, list), "a list of integers")
        self.require(
            all(isinstance(v, int) for v in found), f"attribute {name} must be a list of integers", value=found
        )
        return tuple(found)

    def numbers(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """An attribute that is a list of numbers."""
        found = self._attr(name, default, (tuple, list), "a list of numbers")
        return tuple(float(v) for v in found)

    def tensor(self, name: str, default: Array) -> Array:
        """An attribute that is a tensor."""
        return np.asarray(self._attr(name, default, np.ndarray, "a tensor"))

    def _attr(self, name: str, default: Any, kind: Any, word: str) -> Any:
        self.asked.add(name)
        self.require(name in self.attrs or default is not None, f"attribute {name} is needed")
        found = self.attrs.get(name, default)
        self.require(isinstance(found, kind), f"attribute {name} must be {word}", value=found)
        return found

    def list_at(self, index: int, name: str, since: int) -> tuple[int, ...] | None:
        """Integers that are attribute `name` before opset `since` and input `index` from then on; None when absent."""
        if self.opset < since:
            return self.integers(name) if self.has(name) else None
        if isinstance(e := self.optional(index), Numbers):
            self.require(e.value.ndim <= 1, f"input {index} must be a list of integers", shape=e.shape)
            return tuple(e.value.reshape(-1))
        found = self.value(index)
        if found is None:
            return None
        whole = np.issubdtype(found.dtype, np.integer) and found.ndim <= 1
        self.require(whole, f"input {index} must be a list of integers", shape=found.shape, dtype=str(found.dtype))
        return tuple(int(v) for v in found.reshape(-1))

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front; negative ones count from the back."""
        self.require(-rank <= value < rank, f"axes must be in -{rank} to {rank - 1}", axis=value)
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, in ascending order and each only once."""
        found = tuple(sorted(self.axis(v, rank) for v in values))
        self.require(len(set(found)) == len(found), "an axis must be named only once", axes=tuple(values))
        return found


Converter: TypeAlias = Callable[[Node], "Expr | Sequence[Expr]"]
Versions: TypeAlias = Mapping[int, Converter]
"""The converters of an operator by the opset since which each holds."""
Converters: TypeAlias = Mapping[str, Versions]
"""By operator; one of another domain is written `domain::Operator`."""
