"""What expressions read: elements of tensors and of buffers; and reductions, the bodies of operations.

A tensor is one output of an operation.  Operations are identified by `key`: an operation that is rewritten by a
schedule (its reads redirected to a cache, say) keeps its key, and every tensor that names the key means the
current version of the operation.  Two tensors are equal when key and output index are.

Expressions read tensors, and tensors come from operations whose bodies are expressions: so the base class of
operations is here, and the two kinds of them, with the traversals that they need, in `tensor.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, NoReturn

from ..errors import ExprError, require
from ..hooks import Hook
from .dtype import INDEX, INTEGER_BITS, python_number
from .misuse import NoArray, Operators
from .node import Const, Expr, ExprLike, IterVar, SizeVar, Var, as_expr, const
from .storage import storage_class

AXIS_LETTERS = "ijklmnopqrstuvwxyz"


def greatest(extent: Any) -> int:
    """An extent, or the greatest one where it is open."""
    return int(extent.range[1] if isinstance(extent, SizeVar) else extent)


class Operation:
    """Base of what gives tensors: an input (`PlaceholderOp`) or a computation (`ComputeOp`).

    Both are dataclasses; a field that stands for a property of this class is declared with `field()`.
    """

    name: str
    key: Any
    attrs: Mapping[str, Any]
    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    scope: str = ""

    @property
    def extents(self) -> tuple[Any, ...]:
        """The extents of each output, numbers and `SizeVar`s."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of each output, of those that are open the greatest."""
        return tuple(map(greatest, self.extents))

    @property
    def dtype(self) -> str:
        """The type of the first output."""
        return self.output_dtype(0)

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def reduction(self) -> Reduce | None:
        """The reduction this operation computes, or None."""
        return None

    @property
    def scans(self) -> bool:
        """Whether elements follow from those before along the last axis."""
        return False

    def output_dtype(self, index: int) -> str:
        """The type of output `index`."""
        raise NotImplementedError

    def output(self, index: int = 0) -> Tensor:
        return Tensor(self, index)

    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are read, in the order of their first use."""
        return ()


class Tensor(Operators["Tensor", Any], NoArray):
    """One output of an operation; `tensor[i, j]` (or `tensor(i, j)`) reads an element."""

    __slots__ = ("op", "value_index")

    def __init__(self, op: Operation, value_index: int = 0) -> None:
        self.op = op
        self.value_index = value_index

    @property
    def name(self) -> str:
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents; one that is open is a `SizeVar`, no number, and `op.shape` has the greatest."""
        return self.op.extents

    @property
    def ndim(self) -> int:
        return len(self.op.extents)

    @property
    def dtype(self) -> str:
        return self.op.output_dtype(self.value_index)

    def __getitem__(self, indices: Any) -> Expr:
        items = indices if isinstance(indices, tuple | list) else (indices,)
        if len(items) != self.ndim or any(isinstance(i, slice | EllipsisType | None) for i in items):
            raise self._misread(items)
        read = Load(self, tuple([self._index(i) for i in items]))
        self._require_inside(read.indices)
        return read

    def _index(self, value: Any) -> Expr:
        law = "an index must be an integer; write te.floor(x).astype('int32') or the like"
        number = python_number(value)
        whole = isinstance(number, Expr | int) or (isinstance(number, float) and number.is_integer())
        require(whole, ExprError, self.name, law, index=number)
        index = as_expr(number, INDEX)
        require(index.dtype in INTEGER_BITS, ExprError, self.name, law, index=index, dtype=index.dtype)
        return index

    def _require_inside(self, indices: Sequence[Expr]) -> None:
        """Raise ExprError for a constant that is no index; what varies is looked at when a program is made."""
        for d, (index, extent) in enumerate(zip(indices, self.shape, strict=True)):
            if isinstance(index, Const) and isinstance(extent, int):
                law = f"an index of dimension {d} must be one of 0 to {extent - 1}"
                require(0 <= index.value < extent, ExprError, self.name, law, index=index.value, shape=self.shape)

    def _misread(self, items: Sequence[Any]) -> ExprError:
        element = f"{self.name}[{', '.join(AXIS_LETTERS[: self.ndim])}]"
        if len(items) != self.ndim:
            needed = f"{self.ndim} {'index is' if self.ndim == 1 else 'indices are'} needed, as in {element}"
            return ExprError(f"{self.name}: {needed}, got indices={len(items)}")
        law = f"an element is read, {element}, no slice; a te.compute over its axes or topi.strided_slice gives a part"
        return ExprError(f"{self.name}: {law}")

    def __setitem__(self, indices: Any, value: Any) -> NoReturn:
        law = (
            "a tensor is never assigned to; te.compute gives a new one, with te.if_then_else where only a part changes"
        )
        raise ExprError(f"{self.name}: {law}")

    def __iter__(self) -> Iterator[Any]:
        law = "a tensor has no elements in Python; te.compute goes over all of them, and te.reduce_axis sums"
        raise ExprError(f"{self.name}: {law}")

    def __len__(self) -> int:
        law = f"a tensor has no length in Python; write {self.name}.shape[0]"
        raise ExprError(f"{self.name}: {law}")

    def __bool__(self) -> bool:
        return True

    def __call__(self, *indices: ExprLike) -> Expr:
        return self[tuple(indices)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.op.key == other.op.key and self.value_index == other.value_index

    def __hash__(self) -> int:
        return hash((self.op.key, self.value_index))

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={list(self.shape)}, dtype={self.dtype})"

    def _operator(self, op: str, a: Any, b: Any) -> Tensor:
        return TENSOR_OPERATOR(op, a, b)

    def __neg__(self) -> Tensor:
        return self * const(-1, self.dtype)


TENSOR_OPERATOR: Hook[[str, Any, Any], Tensor] = Hook("operators on tensors", "te_lite.topi.operators")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Expr):
    """`tensor[indices]` before lowering."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.tensor.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Carried(Var):
    """In the body of a scan: output `output` of this step, which bodies of outputs behind it may read."""

    output: int = 0

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Before(Carried):
    """Output `output` one step before along the last axis, 0 in the first step; `now` is that of this step."""

    now: Carried = field(default_factory=lambda: Carried("now"))

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Flat storage of `size` elements.  Two buffers are the same only if they are the same object.

    `scope` is `global`, `shared`, `local` or `local.<name>`, `storage` its class (see `storage.py`).  `shape` is the
    logical shape (for printing and arguments).
    `pipelined` storage holds several tiles, and the barriers of its pipeline order all accesses; it says who fetches
    them where threads do not (`ansor_ext/pipeline/steps.py`).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scope: str = "global"
    strides: tuple[int, ...] | None = None
    pipelined: bool | str = False

    @property
    def storage(self) -> str:
        """`global`, `shared` or `local`: a memory `local.<name>` is local storage."""
        return storage_class(self.scope)

    @property
    def size(self) -> int:
        """Number of elements that are allocated, for the greatest sizes where some are open."""
        if self.strides is None or not self.shape:
            size = 1
            for dim in self.shape:
                size *= greatest(dim)
            return size
        return 1 + sum((d - 1) * s for d, s in zip(self.shape, self.strides, strict=True))

    def __getitem__(self, index: Expr | int) -> Expr:
        return BufferLoad(self, as_expr(index))

    def __repr__(self) -> str:
        return f"Buffer({self.name}, {self.dtype}, {list(self.shape)}, {self.scope})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferLoad(Expr):
    """`buffer[index]` after lowering; the index counts elements of the flat buffer."""

    buffer: Buffer
    index: Expr

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Combiner:
    """A commutative reducer: `result = f(lhs, rhs)` with an identity, one entry a value."""

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """Output `value_index` of folding `sources` over `axes` where `condition` holds."""

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    condition: Expr | None = None
    value_index: int = 0
    init: tuple[Expr, ...] = field(default=())

    @property
    def dtype(self) -> str:
        return self.sources[self.value_index].dtype
