"""What a converter is given: an operator whose tensors are expressions, and how it asks for its arguments.

Every question names the node when the answer is refused, and an argument that has a meaning and that nobody asked for
is refused, so a converter reads as the definition of its operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from te_lite.errors import require
from te_lite.expr.constant_folding import wrapped
from te_lite.expr.dtype import INTEGER_BITS, accumulated
from te_lite.expr.expr import FLOATS, SizeVar

from ...ir.errors import GraphError
from ...ir.nodes import Expr
from ..onnx.emit import cast, const, value_of
from ..onnx.node import Node
from ..onnx.table import find
from .program import TensorInfo

OPSET = 23
"""The version of ONNX whose converters are used where an operator of ATen is one of ONNX."""
MEANINGLESS = ("device", "layout", "memory_format", "pin_memory", "non_blocking", "scale_grad_by_freq", "sparse",
               "sparse_grad", "implicit", "padding_idx", "momentum")  # fmt: skip
"""Arguments that change nothing in inference."""


@dataclass(frozen=True, eq=False)
class Aten:
    """An operator; `given` are its arguments with expressions for tensors, `result` what it must give.

    `strides` and `dtypes` are those of its tensors as the program has them, by argument, and `asked` collects the
    arguments that a converter asks for.
    """

    op: str
    name: str
    given: Mapping[str, Any]
    result: tuple[TensorInfo | None, ...]
    strides: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}"

    def require(self, ok: object, law: str, **got: object) -> None:
        """Raise GraphError that names the node unless `ok`."""
        require(ok, GraphError, str(self), law, **got)

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument as it is; None and what is absent give the default."""
        self.asked.add(name)
        found = self.given.get(name)
        return default if found is None else found

    def tensor(self, name: str) -> Expr:
        """A tensor that must be there."""
        found = self.optional(name)
        if found is None:
            raise GraphError(f"{self}: the argument {name} must be a tensor")
        return found

    def optional(self, name: str) -> Expr | None:
        """A tensor that may be absent."""
        found = self.argument(name)
        self.require(found is None or isinstance(found, Expr), f"the argument {name} must be a tensor", got=found)
        return found if isinstance(found, Expr) else None

    def tensors(self, name: str) -> tuple[Expr | None, ...]:
        """A list of tensors, some of which may be absent."""
        found = self.argument(name, ())
        fits = isinstance(found, tuple) and all(e is None or isinstance(e, Expr) for e in found)
        self.require(fits, f"the argument {name} must be a list of tensors", got=found)
        return tuple(found)

    def number(self, name: str, default: float | None = None) -> Any:
        """A number, also of a tensor of one element that is known."""
        found = self.argument(name, default)
        value = value_of(found) if isinstance(found, Expr) else None
        found = value.reshape(()).item() if value is not None and value.size == 1 else found
        self.require(isinstance(found, bool | int | float), f"the argument {name} must be a number", got=found)
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer."""
        found = self.number(name, default)
        self.require(isinstance(found, int), f"the argument {name} must be an integer", got=found)
        return int(found)

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of integers; one integer is a list of it."""
        found = self.argument(name, default)
        found = (found,) if isinstance(found, int | SizeVar) else found
        fits = isinstance(found, list | tuple) and all(isinstance(v, int | SizeVar) for v in found)
        self.require(fits, f"the argument {name} must be integers", got=found)
        known: list[Any] = [v if isinstance(v, SizeVar) else int(v) for v in found]
        return tuple(known)

    def each(self, name: str, count: int, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """One integer for each of `count` axes; a single one is for all, an empty list is the default."""
        found = self.integers(name, default) or tuple(default or ())
        found = found * count if len(found) == 1 else found
        self.require(len(found) == count, f"the argument {name} must be {count} integers", got=found)
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        return bool(self.number(name, default))

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front; negative ones count from the back, and a scalar has one axis."""
        rank = max(rank, 1)
        self.require(-rank <= value < rank, f"axes must be in -{rank} to {rank - 1}", axis=value)
        return value % rank

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """The axes that an argument names in ascending order; all of them when it names none."""
        named = self.integers(name, ())
        return tuple(sorted({self.axis(a, rank) for a in named})) if named else tuple(range(rank))

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        assert self.result and self.result[0] is not None
        return self.result[0].dtype

    @property
    def wide(self) -> str:
        """The dtype that the result is computed in: its own, unless that is narrower than float32."""
        return accumulated(self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        assert self.result and self.result[0] is not None
        return self.result[0].shape

    def operand(self, name: str, dtype: str) -> Expr:
        """A tensor or number as a tensor of `dtype`; integers wrap around to it.

        A number beside tensors of a small float is rounded to that, as PyTorch does.
        """
        found = self.factor(name, dtype)
        small = {d for k, d in self.dtypes.items() if isinstance(self.given[k], Expr) and self.given[k].shape}
        rounds = dtype in FLOATS and not found.shape and len(small) == 1 and small <= {"bfloat16", "float16"}
        return cast(cast(found, *small), dtype) if rounds else found

    def factor(self, name: str, dtype: str) -> Expr:
        """As `operand`, but a number beside small floats is not rounded: products and quotients read it as it is."""
        found = self.argument(name)
        return cast(found, dtype) if isinstance(found, Expr) else number_as(self.number(name), dtype)

    def onnx(self, op: str, *inputs: Expr | None, outputs: int = 1, **attrs: Any) -> list[Expr]:
        """What the converter of an ONNX operator makes of these inputs and attributes."""
        converter = find(op, {"": OPSET})
        assert converter is not None
        node = Node(op, self.name, OPSET, inputs, tuple([str(k) for k in range(outputs)]), attrs, {})
        made = converter(node)
        node.refuse_unread(lambda name: False)
        return [made] if isinstance(made, Expr) else list(made)

    def refuse_unread(self) -> None:
        """Raise GraphError for an argument that has a value and that nobody asked for."""
        left = {k: v for k, v in self.given.items() if v is not None and k not in self.asked and k not in MEANINGLESS}
        self.require(not left, "these arguments are not supported", **{k: str(v) for k, v in left.items()})


def number_as(value: Any, dtype: str) -> Expr:
    """A number as PyTorch takes it beside tensors of `dtype`: an integer modulo 2**bits."""
    if dtype in INTEGER_BITS and isinstance(value, int):
        return const(wrapped(value, dtype), dtype)
    with np.errstate(over="ignore"):
        return const(value, dtype)


Converter: TypeAlias = Callable[[Aten], "Expr | Sequence[Expr | None]"]
Converters: TypeAlias = Mapping[str, Converter]
"""By the name of the operator with its overload, as in `aten.add.Tensor`; `default` may be left out."""
