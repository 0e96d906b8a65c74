"""The nodes of a model that is being drawn, with their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import defs

from .model import OPSET, Node
from .model_oracle import known_share, meaning

MOST_ELEMENTS = 2500
LEAST_KNOWN = 0.5
NUMBERS_OF_A_BODY = 1000
EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16)


TYPES = {"float32": "float", "float64": "double"}


def allowed(op: str, dtypes: Sequence[str | None]) -> bool:
    """Whether ONNX has an operator for inputs of these dtypes."""
    if not defs.has(op):
        return True
    schema = defs.get_schema(op, OPSET)
    known = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    for k, dtype in enumerate(dtypes):
        name = schema.inputs[min(k, len(schema.inputs) - 1)].type_str
        if dtype and f"tensor({TYPES.get(dtype, dtype)})" not in known.get(name, [name]):
            return False
    return True


class Drawing:
    """Nodes in order, the value of each by its number, and what is drawn of them."""

    def __init__(self, rng: np.random.Generator, seed: int) -> None:
        self.rng, self.seed = rng, seed
        self.nodes: list[Node] = []
        self.known: dict[int, Any] = {}
        self.around: dict[int, Any] = {}
        self.first, self.most, self.count = 0, MOST_ELEMENTS, 0

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    # ---------------------------------------------------------------------------------------------- nodes

    def put(self, op: str, *inputs: int, **attrs: Any) -> int | None:
        """A node; None for one that has no meaning, is too large, or of which too little is known."""
        node: Node = (op, inputs, attrs)
        k = self.first + len(self.nodes)
        if not allowed(
            op, [None if i < 0 else self.known[i].dtype for i in inputs if not isinstance(self.known.get(i), list)]
        ):
            return None
        try:
            found = meaning(node, k, self.known, self.seed)
        except (ValueError, IndexError):
            return None
        for x in found if isinstance(found, list) else [found]:
            if not 0 < x.v.size <= self.most or (known_share(x) < LEAST_KNOWN and op != "input"):
                return None
        self.nodes.append(node)
        self.known[k] = found
        self.count += op not in ("const", "list", "item", "input")
        return k

    def several(self, op: str, *inputs: int, results: int, **attrs: Any) -> int | None:
        """A node with several results, one of which is taken."""
        if results == 1:
            return self.put(op, *inputs, **attrs)
        k = self.put(op, *inputs, results=results, **attrs)
        if k is None:
            return None
        made = [self.put("item", k, index=i) for i in range(results)]
        return made[0] if self.chance(0.5) else made[-1]

    def given(self, value: Any = None, **attrs: Any) -> int:
        """What a body is given."""
        k = self.first + len(self.nodes)
        self.nodes.append(("given", (), attrs))
        if value is not None:
            self.known[k] = value
        return k

    def list_of(self, values: Any, dtype: str) -> int:
        """A constant that is written down."""
        k = self.put("list", values=tuple(values) if isinstance(values, list) else values, dtype=dtype)
        assert k is not None
        return k

    def said(self, value: Any, dtype: str) -> int:
        """One element, which is written down, or an input."""
        if self.chance(0.4):
            return self.list_of(value, dtype)
        k = self.put("input", shape=(), dtype=dtype, values=value)
        assert k is not None
        return k

    def ints(self, values: Sequence[int]) -> int:
        return self.list_of([int(n) for n in values], "int64")

    # --------------------------------------------------------------------------------------------- tensors

    def tensors(self) -> list[int]:
        """The numbers of the tensors of this graph that are no constants."""
        kinds = ("const", "list", "given", "nothing")
        own = [k for k, n in enumerate(self.nodes, self.first) if n[0] not in kinds and k in self.known]
        return [k for k in own if not isinstance(self.known[k], list)]

    def recent(self) -> int:
        """One of the last tensors, mostly."""
        found = self.tensors()
        return found[-1] if self.chance(0.6) else self.pick(found)

    def a_shape(self) -> tuple[int, ...]:
        rank = self.pick([0, 1, 2, 2, 3, 3, 4, 4, 4])
        shape: list[int] = []
        for k in range(rank):
            n = self.pick(EXTENTS if k > 0 or rank < 3 else (1, 1, 2, 3))
            shape.append(n if math.prod(shape) * n <= 700 else 1)
        return tuple(shape)

    def like(self, x: int, shape: Sequence[int], kind: str, values: str = "small") -> int:
        """A new constant or input of the dtype of x: one element where so many are too many."""
        dtype = self.known[x].dtype
        k = self.put(kind, shape=tuple(shape), dtype=dtype, values=values)
        k = self.put(kind, shape=(), dtype=dtype, values=values) if k is None else k
        assert k is not None
        return k

    def broadcast_to(self, x: int) -> tuple[int, ...]:
        """A shape that broadcasts with that of x, to it."""
        shape = self.known[x].v.shape
        if self.chance(0.3) or not shape:
            return tuple(shape)
        if self.chance(0.3):
            return ()
        made = [n if self.chance(0.5) else 1 for n in shape]
        return tuple(made[int(self.rng.integers(len(made))) if self.chance(0.5) else 0 :])

    def partner(self, x: int) -> int:
        """Another tensor of its dtype that broadcasts with x, or a constant that does."""
        value = self.known[x]
        fitting = [k for k in self.tensors() if self.known[k].dtype == value.dtype and self._meet(self.known[k], value)]
        if fitting and self.chance(0.6):
            return int(self.pick(fitting))
        return self.like(x, self.broadcast_to(x), "const", self.pick(["small", "small", "wide"]))

    def _meet(self, a: Any, b: Any) -> bool:
        try:
            shape = np.broadcast_shapes(a.v.shape, b.v.shape)
        except ValueError:
            return False
        return math.prod(shape) <= self.most
