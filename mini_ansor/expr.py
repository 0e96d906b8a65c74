"""Tensor expressions: what each point of a tensor is, and its meaning in NumPy.

    expr = Axis(name, extent) | Const(value) | Binary(op, a, b) | Not(a) | Select(cond, a, b)
         | Cast(dtype, a) | Call(func, args) | Load(op, indices) | Reduce(fold, source, axes)

An operation (`Op`) gives one tensor: an input, or `body` computed at every point of its `axes`.  A reduction is the
whole body of its operation.  Nothing here knows of loops: in which order points are computed is said by steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

import numpy as np

INDEX = "int32"
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
FOLDS = {"sum": ("+", 0.0), "prod": ("*", 1.0), "max": ("max", -inf), "min": ("min", inf)}  # operation and identity


def _operator(op: str, swapped: bool = False) -> Callable[[Expr, Any], Expr]:
    return lambda a, b: binary(op, b, a) if swapped else binary(op, a, b)


class Expr:
    """The base of all nodes: they are values, and Python's operators make new ones."""

    @property
    def dtype(self) -> str:
        """float32, int32 or bool."""
        match self:
            case Select(_, a, _) | Reduce(_, a, _):
                return a.dtype
            case Binary(op, a, _):
                return a.dtype if op in ARITHMETIC else "bool"
            case Load(source, _):
                return source.dtype
            case Const(_, dtype) | Cast(dtype, _) | Call(_, _, dtype):
                return dtype
            case Axis():
                return INDEX
            case _:
                return "bool"

    __add__, __sub__, __mul__ = _operator("+"), _operator("-"), _operator("*")
    __radd__, __rsub__, __rmul__ = _operator("+", True), _operator("-", True), _operator("*", True)
    __truediv__, __floordiv__, __mod__ = _operator("/"), _operator("//"), _operator("%")
    __lt__, __ge__ = _operator("<"), _operator(">=")


@dataclass(frozen=True, eq=False)
class Axis(Expr):
    """An index that runs through `0 .. extent-1`.  Two axes are the same only if they are one object."""

    name: str
    extent: int


@dataclass(frozen=True)
class Const(Expr):
    """A number."""

    value: float
    type: str = INDEX


@dataclass(frozen=True)
class Binary(Expr):
    """Arithmetic, a comparison, `&&` or `||`.  `//` and `%` round towards minus infinity."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True)
class Not(Expr):
    """The opposite of a condition."""

    a: Expr


@dataclass(frozen=True)
class Select(Expr):
    """`a` where `cond` holds, else `b`; only the one that is chosen is evaluated, so it may guard a read."""

    cond: Expr
    a: Expr
    b: Expr


@dataclass(frozen=True)
class Cast(Expr):
    """`a` as a number of another type."""

    type: str
    a: Expr


@dataclass(frozen=True)
class Call(Expr):
    """A function of C's <math.h> and of NumPy: exp, sqrt, tanh, log, fabs, floor, ..."""

    func: str
    args: tuple[Expr, ...]
    type: str = "float32"


@dataclass(frozen=True)
class Load(Expr):
    """An element of the tensor of the operation that now has the key of `op`."""

    op: Op
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class Reduce(Expr):
    """`source` folded over all points of `axes`; `fold` is a key of `FOLDS`."""

    fold: str
    source: Expr
    axes: tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Op:
    """An operation; an input has no body.

    Steps replace operations (a read goes to a cache instead).  `key` stays, so a `Load` of an old version means the
    one that has its key now.  `attrs` are hints for sketch rules, `scope` is where the tensor is kept (`local`, ...).
    """

    name: str
    axes: tuple[Axis, ...]
    body: Expr | None
    dtype: str
    key: str
    attrs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    scope: str = ""

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
        if len(found) != len(self.axes):
            raise ValueError(f"{self.name}: has {len(self.axes)} dimensions, got {len(found)} indices")
        return Load(self, tuple(i if isinstance(i, Expr) else Const(i) for i in found))


# ------------------------------------------------------------------------------------------------------ construction


def binary(op: str, a: Any, b: Any) -> Expr:
    """`a op b`; a number takes the type of the other operand, and index arithmetic with constants is folded."""
    x: Expr = a if isinstance(a, Expr) else Const(a, b.dtype if isinstance(b, Expr) else INDEX)
    y: Expr = b if isinstance(b, Expr) else Const(b, x.dtype)
    match op, x, y:
        case ("+" | "-" | "*" | "//" | "%", Const(m, "int32"), Const(n, "int32")):
            return Const(_NUMPY[op](m, n))
        case ("+" | "-", e, Const(0, "int32")) | ("*" | "//", e, Const(1, "int32")):
            return e
        case ("+", Const(0, "int32"), e) | ("*", Const(1, "int32"), e):
            return e
        case ("*", _, Const(0, "int32")) | ("*", Const(0, "int32"), _) | ("%", _, Const(1, "int32")):
            return Const(0)
    return Binary(op, x, y)


# -------------------------------------------------------------------------------------------------------- traversal


def children(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly under `e`."""
    match e:
        case Binary(_, a, b):
            return (a, b)
        case Select(c, a, b):
            return (c, a, b)
        case Not(a) | Cast(_, a) | Reduce(_, a, _):
            return (a,)
        case Call(_, args) | Load(_, args):
            return args
        case _:
            return ()


def rebuild(e: Expr, parts: Sequence[Expr]) -> Expr:
    """`e` with other children."""
    match e:
        case Binary(op, _, _):
            return binary(op, *parts)
        case Select():
            return Select(*parts)
        case Not() | Cast():
            return replace(e, a=parts[0])
        case Reduce():
            return replace(e, source=parts[0])
        case Call():
            return replace(e, args=tuple(parts))
        case Load():
            return replace(e, indices=tuple(parts))
        case _:
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
ONE = Const(1)


def terms(e: Expr) -> dict[Expr, int]:
    """An index as a sum: coefficients by what they multiply, which is no sum itself; the constant multiplies `ONE`."""
    match e:
        case Const(value):
            return {ONE: int(value)} if value else {}
        case Binary("+" | "-" as op, a, b):
            x, y, sign = terms(a), terms(b), 1 if op == "+" else -1
            return {t: c for t in {**x, **y} if (c := x.get(t, 0) + sign * y.get(t, 0))}
        case Binary("*", a, Const(n)) | Binary("*", Const(n), a):
            return {t: int(n) * c for t, c in terms(a).items() if n}
        case _:
            return {e: 1}


def total(parts: Mapping[Expr, int]) -> Expr:
    """The sum that `terms` takes apart."""
    out: Expr = Const(0)
    for t, c in parts.items():
        out = out + t * c
    return out


def affine(e: Expr) -> tuple[dict[Any, int], int] | None:
    """`e` as `(coefficient of each axis, constant)`; None when it is no such sum."""
    found = terms(e)
    const = found.pop(ONE, 0)
    return (found, const) if all(isinstance(t, Axis) for t in found) else None


def index_value(
    e: Expr,
    linear: Callable[[dict[Any, int], int], Value],
    add: Callable[[Value, Value, int], Value],
    divide: Callable[[str, Value, int], Value],
) -> Value | None:
    """What an index is in some kind of values; None where nothing is known of it.

    `linear` makes a value of a sum of axes, `add` one of `a + factor * b`, `divide` one of `a // n` or `a % n`.
    """

    def of(e: Expr) -> Value | None:
        terms = affine(e)
        if terms is not None:
            return linear(*terms)
        match e:
            case Binary("+" | "-" as op, a, b):
                x, y = of(a), of(b)
                return None if x is None or y is None else add(x, y, 1 if op == "+" else -1)
            case Binary("*", a, Const(c)) | Binary("*", Const(c), a):
                x = of(a)
                return None if x is None else add(linear({}, 0), x, int(c))
            case Binary("//" | "%" as op, a, Const(n)) if n > 0:
                x = of(a)
                return None if x is None else divide(op, x, int(n))
        return None

    return of(e)


Interval = tuple[float, float]


def interval_sum(a: Interval, b: Interval, factor: int) -> Interval:
    """All values of `a + factor * b`."""
    return a[0] + min(factor * b[0], factor * b[1]), a[1] + max(factor * b[0], factor * b[1])


def interval_quotient(op: str, a: Interval, n: int) -> Interval:
    """All values of `a // n` or `a % n`."""
    first, last = a[0] // n, a[1] // n
    if op == "//":
        return first, last
    return (a[0] - first * n, a[1] - first * n) if first == last else (0, n - 1)


def span(e: Expr) -> Interval:
    """The smallest and the largest value that an index may have, from the extents of its axes."""

    def linear(terms: dict[Any, int], const: int) -> Interval:
        reach = [c * (v.extent - 1) for v, c in terms.items()]
        return const + sum(min(r, 0) for r in reach), const + sum(max(r, 0) for r in reach)

    return index_value(e, linear, interval_sum, interval_quotient) or (-inf, inf)


def proven(cond: Expr) -> bool:
    """Whether `a < b` surely holds."""
    return isinstance(cond, Binary) and cond.op == "<" and span(cond.b - cond.a)[0] > 0


# ---------------------------------------------------------------------------------------------------------- meaning

_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "min": np.minimum, "max": np.maximum,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "&&": np.logical_and, "||": np.logical_or,
}  # fmt: skip


def evaluate(ops: Sequence[Op], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of all operations, by key; `ops` are in order, `inputs` by name.

    Floats are computed in float64, so that the result can judge programs that compute in float32.
    """
    done: dict[str, np.ndarray] = {}
    for op in ops:
        if op.body is None:
            value = np.asarray(inputs[op.name])
            done[op.key] = value.astype(np.float64) if op.dtype == "float32" else value
            continue
        grid: dict[Expr, Any] = dict(zip(op.axes, np.ogrid[tuple(slice(0, n) for n in op.shape)], strict=True))
        value = _folded(op.body, grid, done) if isinstance(op.body, Reduce) else _value(op.body, grid, done)
        done[op.key] = np.broadcast_to(value, op.shape)
    return done


def _folded(e: Reduce, grid: dict[Expr, Any], done: Mapping[str, np.ndarray]) -> Any:
    operation, total = FOLDS[e.fold]
    value: Any = total
    for point in itertools.product(*[range(a.extent) for a in e.axes]):
        value = _NUMPY[operation](value, _value(e.source, {**grid, **dict(zip(e.axes, point, strict=True))}, done))
    return value


def _value(e: Expr, grid: Mapping[Expr, Any], done: Mapping[str, np.ndarray]) -> Any:
    """The values of `e` at all points of a grid at once."""
    if isinstance(e, Axis):
        return grid[e]
    if isinstance(e, Const):
        return bool(e.value) if e.dtype == "bool" else e.value
    parts = [_value(c, grid, done) for c in children(e)]
    match e:
        case Binary("/", _, _) if e.dtype != "float32":
            return np.trunc(parts[0] / parts[1]).astype(np.int64)
        case Binary(op, _, _):
            return _NUMPY[op](*parts)
        case Not():
            return np.logical_not(*parts)
        case Select():
            return np.where(*parts)
        case Cast(dtype, _):
            return np.asarray(parts[0]).astype(np.float64 if dtype == "float32" else dtype)
        case Call(func, _, _):
            with np.errstate(all="ignore"):
                return getattr(np, func)(*parts)
        case Load(op, _):
            # What a `Select` guards is read here at points that it leaves out: these get any element.
            table = done[op.key]
            return table[tuple(np.clip(i, 0, n - 1) for i, n in zip(parts, table.shape, strict=True))]
    raise ValueError(f"{type(e).__name__}: has no value of its own")
