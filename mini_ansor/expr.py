"""Tensor expressions: what each point of a tensor is, and its meaning in NumPy.

An operation (`Op`) gives one tensor: an input, or `body` computed at every point of its `axes`.  Nothing here knows of
loops: in which order points are computed is said by steps.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

import numpy as np

INDEX = "int32"
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
MEANING: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "min": np.minimum, "max": np.maximum, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&&": np.logical_and, "||": np.logical_or,
    "!": np.logical_not, "select": np.where,
}  # fmt: skip
"""What operators do to arrays; other functions have the names that NumPy gives them.  `//` and `%` round down."""
FOLDS = {"sum": ("+", 0.0), "prod": ("*", 1.0), "max": ("max", -inf), "min": ("min", inf)}
"""The operation of each reduction, and the identity that it begins with."""


def _method(op: str, swapped: bool = False) -> Callable[[Expr, Any], Expr]:
    return lambda a, b: binary(op, b, a) if swapped else binary(op, a, b)


class Expr:
    """The base of all nodes: they are values, and Python's operators make new ones."""

    @property
    def dtype(self) -> str:
        """float32, int32 or bool."""
        match self:
            case Const(_, dtype) | Call(_, _, dtype):
                return dtype
            case Load(source, _) | Reduce(_, source, _):
                return source.dtype
        return INDEX

    __add__, __sub__, __mul__ = _method("+"), _method("-"), _method("*")
    __radd__, __rsub__, __rmul__ = _method("+", True), _method("-", True), _method("*", True)
    __truediv__, __floordiv__, __mod__ = _method("/"), _method("//"), _method("%")
    __lt__, __ge__ = _method("<"), _method(">=")


@dataclass(frozen=True, eq=False)
class Axis(Expr):
    """An index, which takes the values `0 .. extent-1`.  Two axes are the same only if they are one object."""

    name: str
    extent: int

    def __post_init__(self) -> None:
        if self.extent < 1:
            raise ValueError(f"the extent of {self.name} must be at least 1, got {self.extent}")


@dataclass(frozen=True)
class Const(Expr):
    """A number."""

    value: float
    type: str = INDEX


@dataclass(frozen=True)
class Call(Expr):
    """An operator of `MEANING`, a "cast", or a function of C's <math.h>; "select" evaluates only what it chooses."""

    op: str
    args: tuple[Expr, ...]
    type: str = "float32"


@dataclass(frozen=True)
class Load(Expr):
    """An element of the tensor of an operation."""

    op: Op
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class Reduce(Expr):
    """`source` folded over all points of `axes`: always the whole body of its operation."""

    fold: str
    source: Expr
    axes: tuple[Axis, ...]

    @property
    def identity(self) -> Const:
        return Const(FOLDS[self.fold][1], self.dtype)

    def fold_in(self, a: Expr, b: Expr) -> Expr:
        return binary(FOLDS[self.fold][0], a, b)


@dataclass(frozen=True, eq=False)
class Op:
    """An operation.  Steps replace it by others of the same key, and a `Load` of the old one means the new one."""

    name: str
    axes: tuple[Axis, ...]
    body: Expr | None  # None for an input
    dtype: str
    key: str
    attrs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # hints for sketch rules
    scope: str = ""  # where a cache keeps the tensor: local, shared

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        return self.body.axes if isinstance(self.body, Reduce) else ()

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        return (*self.axes, *self.reduce_axes)

    def __getitem__(self, indices: Any) -> Load:
        found = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(i if isinstance(i, Expr) else Const(i) for i in found))


# --------------------------------------------------------------------------------------- construction and traversal
def binary(op: str, a: Any, b: Any) -> Expr:
    """`a op b`; a number takes the type of the other operand, and index arithmetic with constants is folded."""
    x: Expr = a if isinstance(a, Expr) else Const(a, b.dtype if isinstance(b, Expr) else INDEX)
    y: Expr = b if isinstance(b, Expr) else Const(b, x.dtype)
    match op, x, y:
        case ("+" | "-" | "*" | "//" | "%", Const(m, "int32"), Const(n, "int32")):
            return Const(MEANING[op](m, n))
        case ("+" | "-", e, Const(0, "int32")) | ("*" | "//", e, Const(1, "int32")):
            return e
        case ("+", Const(0, "int32"), e) | ("*", Const(1, "int32"), e):
            return e
        case ("*", _, Const(0, "int32")) | ("*", Const(0, "int32"), _) | ("%", _, Const(1, "int32")):
            return Const(0)
    return Call(op, (x, y), x.dtype if op in ARITHMETIC else "bool")


def children(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly under `e`."""
    match e:
        case Call(_, parts) | Load(_, parts):
            return parts
        case Reduce(_, source, _):
            return (source,)
    return ()


def rebuild(e: Expr, parts: Sequence[Expr]) -> Expr:
    """`e` with other children."""
    match e:
        case Call(op, (_, _)) if op in MEANING:
            return binary(op, *parts)
        case Call():
            return replace(e, args=tuple(parts))
        case Load():
            return replace(e, indices=tuple(parts))
        case Reduce():
            return replace(e, source=parts[0])
    return e


def transform(e: Expr, f: Callable[[Expr], Expr | None]) -> Expr:
    """`e` with every node replaced for which `f` gives something else than None, outermost first."""
    new = f(e)
    return rebuild(e, [transform(c, f) for c in children(e)]) if new is None else new


def substitute(e: Expr, values: Mapping[Any, Expr]) -> Expr:
    """`e` with axes and variables replaced."""
    return transform(e, lambda x: values.get(x) if isinstance(x, Axis) else None)


def walk(e: Expr) -> Iterator[Expr]:
    """`e` and everything under it."""
    yield e
    for c in children(e):
        yield from walk(c)


def loads(e: Expr | None) -> list[Load]:
    """All reads of tensors in `e`, those in indices included."""
    return [x for x in walk(e) if isinstance(x, Load)] if e else []


# ---------------------------------------------------------------------------------------------------------- indices
Value = TypeVar("Value")
Sum = Callable[[Value, Value, int], Value]
Quotient = Callable[[Value, str, int], Value]
Interval = tuple[float, float]
ONE = Const(1)


def terms(e: Expr) -> dict[Expr, int]:
    """An index as a sum: coefficients by what they multiply, which is no sum itself; the constant multiplies `ONE`."""
    match e:
        case Const(value):
            return {ONE: int(value)} if value else {}
        case Call("+" | "-" as op, (a, b)):
            x, y, sign = terms(a), terms(b), 1 if op == "+" else -1
            return {t: c for t in {**x, **y} if (c := x.get(t, 0) + sign * y.get(t, 0))}
        case Call("*", (a, Const(n)) | (Const(n), a)):
            return {t: int(n) * c for t, c in terms(a).items() if n}
    return {e: 1}


def total(parts: Mapping[Expr, int]) -> Expr:
    """The sum that `terms` takes apart."""
    out: Expr = Const(0)
    for t, c in parts.items():
        out = out + t * c
    return out


def index_value(e: Expr, leaf: Callable[[Any], Value], add: Sum[Value], divide: Quotient[Value]) -> Value | None:
    """What an index is in some kind of values, such as intervals; None where nothing is known of it.

    `leaf` makes a value of an axis or a constant, `add` one of `a + factor * b`, `divide` one of `a // n` or `a % n`.
    """
    out = leaf(Const(0))
    for t, c in terms(e).items():
        match t:
            case Axis() | Const():
                out = add(out, leaf(t), c)
            case Call("//" | "%" as op, (a, Const(n))) if n > 0:
                inner = index_value(a, leaf, add, divide)
                if inner is None:
                    return None
                out = add(out, divide(inner, op, int(n)), c)
            case _:
                return None
    return out


def interval_sum(a: Interval, b: Interval, factor: int) -> Interval:
    """All values of `a + factor * b`."""
    return a[0] + min(factor * b[0], factor * b[1]), a[1] + max(factor * b[0], factor * b[1])


def interval_quotient(a: Interval, op: str, n: int) -> Interval:
    """All values of `a // n` or `a % n`."""
    first, last = a[0] // n, a[1] // n
    if op == "//":
        return first, last
    return (a[0] - first * n, a[1] - first * n) if first == last else (0, n - 1)


def span(e: Expr) -> Interval:
    """The smallest and the largest value that an index may have, from the extents of its axes."""

    def leaf(x: Axis | Const) -> Interval:
        return (0, x.extent - 1) if isinstance(x, Axis) else (x.value, x.value)

    return index_value(e, leaf, interval_sum, interval_quotient) or (-inf, inf)


def proven(cond: Expr) -> bool:
    """Whether `a < b` surely holds."""
    return isinstance(cond, Call) and cond.op == "<" and span(cond.args[1] - cond.args[0])[0] > 0


# ---------------------------------------------------------------------------------------------------------- meaning
def evaluate(ops: Sequence[Op], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of all operations, by key, in float64 for float32; `ops` are in order, `inputs` by name."""
    done: dict[str, np.ndarray] = {}
    for op in ops:
        grid = dict(zip(op.axes, np.ogrid[tuple(slice(0, n) for n in op.shape)], strict=True))
        with np.errstate(all="ignore"):
            value = inputs[op.name] if op.body is None else np.broadcast_to(_value(op.body, grid, done), op.shape)
        done[op.key] = np.asarray(value, np.float64 if op.dtype == "float32" else None)
    return done


def _value(e: Expr, grid: Mapping[Axis, Any], done: Mapping[str, np.ndarray]) -> Any:
    """The values of `e` at all points of a grid at once."""
    match e:
        case Axis():
            return grid[e]
        case Const(value, dtype):
            return bool(value) if dtype == "bool" else value
        case Reduce(fold, source, axes):
            operation, result = FOLDS[fold]
            for point in itertools.product(*[range(a.extent) for a in axes]):
                here = {**grid, **dict(zip(axes, point, strict=True))}
                result = MEANING[operation](result, _value(source, here, done))
            return result
    parts = [_value(c, grid, done) for c in children(e)]
    match e:
        case Load(op, _):
            # What a "select" guards is read here at points that it leaves out, too: these get any element.
            table = done[op.key]
            return table[tuple(np.clip(i, 0, n - 1) for i, n in zip(parts, table.shape, strict=True))]
        case Call("cast", _, dtype):
            return np.asarray(parts[0]).astype(np.float64 if dtype == "float32" else dtype)
        case Call("/", _, "int32"):
            return np.trunc(parts[0] / parts[1]).astype(np.int64)
        case Call(op):
            return (MEANING[op] if op in MEANING else getattr(np, op))(*parts)
