"""Order along an axis: sorts by merging, and running sums, products and extremes.

A sort counts within blocks of `BLOCK` elements how many go before each, then merges neighbouring runs, twice as long
in every pass.  A pass writes blocks side by side: which elements of the two runs the outputs before a block take is
found by bisection along the diagonal of the merge (Odeh, Green, Mwassi, Shmueli and Birk, Merge Path, IPDPSW 2012),
and a scan merges from there.  A running value of a long line is that of its part of `PART` elements joined with all
parts before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from te_lite import Tensor, compute
from te_lite.computation.scan import scan
from te_lite.errors import require
from te_lite.expr.dtype import computed
from te_lite.expr.element import Before
from te_lite.expr.expr import (
    FLOATS,
    cast,
    const,
    if_then_else,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    select,
)
from te_lite.expr.expr import Expr as Value
from te_lite.expr.reduction import reduce_axis
from te_lite.expr.reduction import sum as sum_reduce
from te_lite.topi.tag import INJECTIVE
from te_lite.topi.utils import normal_axis

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr, Tuple, TupleGetItem
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, TupleType, Type
from .define import Array, choice, define, numbers, one_axis, operator, tensors

BLOCK = 32
"""Elements that are ordered by counting, and that a scan merges: a power of two."""
PART = 64
"""Elements of a line that one scan runs through; of up to twice as many, or of `MANY` lines, the whole line."""
MANY = 1024
"""Lines that are enough for the threads of any machine."""


@dataclass(frozen=True)
class Run:
    """Lines [rows, blocks, BLOCK] of keys and their positions, in order within runs of `width` elements.

    Only the first `count` of a line are elements of it; blocks are numbered along the line.
    """

    keys: Tensor
    positions: Tensor
    width: int
    count: int

    def key(self, row: Value, at: Value) -> Value:
        return self._read(self.keys, row, at)

    def position(self, row: Value, at: Value) -> Value:
        return self._read(self.positions, row, at)

    def _read(self, tensor: Tensor, row: Value, at: Value) -> Value:
        at = maximum(minimum(at, self.keys.shape[1] * BLOCK - 1), 0)
        return tensor[row, at // BLOCK, at % BLOCK]

    def pair(self, block: Value) -> tuple[Value, Value, Value]:
        """Where the two runs that a block is merged from begin, and how long each is."""
        begin = block * BLOCK // (2 * self.width) * (2 * self.width)
        left = minimum(self.count - begin, self.width)
        right = minimum(maximum(self.count - begin - self.width, 0), self.width)
        return begin, left, right


def _goes_before(a: Value, b: Value, descending: bool) -> Value:
    """Whether `a` goes before an equal or smaller `b` in front of it: NaN is larger than any number."""
    kind = "int32" if a.dtype == "bool" else computed(a.dtype)
    a, b = cast(kind, a), cast(kind, b)
    least = a > b if descending else a < b
    if kind not in FLOATS:
        return least
    nan, number = (a, b) if descending else (b, a)
    return logical_or(least, logical_and(logical_not(nan.equal(nan)), number.equal(number)))


def _blocks(x: Tensor, descending: bool) -> Run:
    """Blocks of the lines of `x` [rows, count], each in order."""
    rows, count = x.shape
    shape = (rows, -(-count // BLOCK), BLOCK)
    last = count - 1
    whole = count % BLOCK == 0
    other, place = reduce_axis((0, BLOCK), "other"), reduce_axis((0, BLOCK), "place")

    def inside(at: Value) -> Value:
        return at if whole else minimum(at, last)

    def ahead(i: Value, c: Value, j: Value) -> Value:
        mine, its = (x[i, inside(c * BLOCK + p)] for p in (j, other))
        tie = logical_and(logical_not(_goes_before(mine, its, descending)), other < j)
        there = logical_or(_goes_before(its, mine, descending), tie)
        there = there if whole else logical_and(there, c * BLOCK + other < count)
        return sum_reduce(cast("int32", there), axis=other)

    rank = compute(shape, ahead, "rank")

    def at(i: Value, c: Value, j: Value) -> Value:
        holds = rank[i, c, place].equal(j)
        holds = holds if whole else logical_and(holds, c * BLOCK + place < count)
        return sum_reduce(select(holds, cast("int32", place), 0), axis=place)

    within = compute(shape, at, "within")
    positions = compute(shape, lambda i, c, j: c * BLOCK + within[i, c, j], "positions")
    keys = compute(shape, lambda i, c, j: x[i, maximum(minimum(positions[i, c, j], last), 0)], "keys")
    return Run(keys, positions, BLOCK, count)


def _merged(runs: Run, descending: bool) -> Run:
    """Neighbouring runs merged; of equal keys the one of the left run goes first."""
    rows, blocks, _ = runs.keys.shape
    steps = runs.count.bit_length()  # of the longest runs, so that all passes take turns in the same memory

    def halved(before: Sequence[Before], i: Value, c: Value, t: Value) -> Sequence[Value]:
        begin, left, right = runs.pair(c)
        outputs = c * BLOCK - begin
        least, most, middle, below = [b.now for b in before[:4]]
        mine, its = runs.key(i, begin + middle), runs.key(i, begin + runs.width + outputs - 1 - middle)
        return (
            if_then_else(t.equal(0), maximum(outputs - right, 0), before[4]),
            if_then_else(t.equal(0), minimum(outputs, left), before[5]),
            (least + most) // 2,
            logical_or(least >= most, _goes_before(its, mine, descending)),
            select(below, least, middle + 1),
            select(below, minimum(middle, most), most),
        )

    kinds = ("int32", "int32", "int32", "bool", "int32", "int32")
    taken = scan((rows, blocks, steps), halved, kinds, "taken")[4]

    def merge(before: Sequence[Before], i: Value, c: Value, j: Value) -> Sequence[Value]:
        begin, left, right = runs.pair(c)
        a, b, mine, its, from_left = [b.now for b in before[:5]]
        first = logical_or(b >= right, logical_not(_goes_before(its, mine, descending)))
        return (
            if_then_else(j.equal(0), taken[i, c, steps - 1], before[5]),
            c * BLOCK - begin + j - a,
            runs.key(i, begin + a),
            runs.key(i, begin + runs.width + b),
            logical_and(a < left, first),
            a + cast("int32", from_left),
            select(from_left, mine, its),
            runs.position(i, begin + select(from_left, a, runs.width + b)),
        )

    kind = runs.keys.dtype
    merged = ("int32", "int32", kind, kind, "bool", "int32", kind, "int32")
    found = scan(runs.keys.shape, merge, merged, "merged")
    return Run(found[6], found[7], 2 * runs.width, runs.count)


def _sorted(x: Tensor, axis: int, descending: bool) -> list[Tensor]:
    """The lines of `x` along an axis in order, and the positions that their elements had."""
    runs = _blocks(_lines_of(x, axis, False), descending)
    while runs.width < runs.count:
        runs = _merged(runs, descending)
    return [_as(x, axis, read, n) for read, n in ((runs.key, "ordered"), (runs.position, "order"))]


def _lines_of(x: Tensor, axis: int, reverse: bool) -> Tensor:
    """The lines of `x` along an axis, from their ends if `reverse`, as [rows, count]."""
    rest, count = (*x.shape[:axis], *x.shape[axis + 1 :]), x.shape[axis]

    def element(row: Value, t: Value) -> Value:
        at = [row // prod(rest[d + 1 :]) % n for d, n in enumerate(rest)]
        return x[[*at[:axis], count - 1 - t if reverse else t, *at[axis:]]]

    return compute((prod(rest), count), element, "lines", INJECTIVE)


def _as(x: Tensor, axis: int, read: Callable[[Value, Value], Value], name: str) -> Tensor:
    """What `read` gives of each line and position, where `x` has its lines along an axis."""

    def element(*at: Value) -> Value:
        row: Value = const(0, "int32")
        for d, n in enumerate(x.shape):
            row = row if d == axis else row * n + at[d]
        return read(row, at[axis])

    return compute(x.shape, element, name)


# ------------------------------------------------------------------------------------------------- running values


def _running(x: Tensor, join: Callable[[Value, Value], Value]) -> Tensor:
    """The elements of each line of `x` [rows, count] joined with all those before."""
    rows, count = x.shape
    if count <= 2 * PART or rows >= MANY:
        return _lines(x, join)
    parts = compute((rows, -(-count // PART), PART), lambda i, c, j: x[i, minimum(c * PART + j, count - 1)], "parts")
    within = _lines(parts, join)
    totals = _running(compute(parts.shape[:2], lambda i, c: within[i, c, PART - 1], "totals"), join)

    def element(i: Value, t: Value) -> Value:
        own, ahead = within[i, t // PART, t % PART], totals[i, maximum(t // PART - 1, 0)]
        return select(t < PART, own, join(ahead, own))

    return compute(x.shape, element, "running")


def _lines(x: Tensor, join: Callable[[Value, Value], Value]) -> Tensor:
    def element(before: Value, *at: Value) -> Value:
        return select(at[-1].equal(0), x[at], join(before, x[at]))

    found = scan(x.shape, element, x.dtype, "running")
    assert isinstance(found, Tensor)
    return found


def _define_running(name: str, join: Callable[[Value, Value], Value], numpy: Callable[..., Array], first: int) -> None:
    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        x, _ = _with_axis(types, attrs, name)
        numbers(x, name)
        return x

    def meaning(args: Sequence[Any], attrs: Attrs) -> Array:
        x = np.moveaxis(args[0], attrs["axis"], -1)
        x = x[..., ::-1] if attrs["reverse"] else x
        found = numpy(x, -1, dtype=x.dtype)
        if attrs["exclusive"]:
            found = np.concatenate([np.full_like(x[..., :1], first), found[..., :-1]], -1)
        return np.ascontiguousarray(np.moveaxis(found[..., ::-1] if attrs["reverse"] else found, -1, attrs["axis"]))

    def te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
        (x,), axis = args, normal_axis(attrs["axis"], args[0].ndim, name)
        found = _running(_lines_of(x, axis, attrs["reverse"]), join)

        def read(row: Value, t: Value) -> Value:
            t = x.shape[axis] - 1 - t if attrs["reverse"] else t
            if not attrs["exclusive"]:
                return found[row, t]
            return select(t.equal(0), const(first, x.dtype), found[row, maximum(t - 1, 0)])

        return [_as(x, axis, read, name)]

    define(name, OpPattern.OPAQUE, infer, meaning, te, axis=0, exclusive=False, reverse=False)


_define_running("cumsum", lambda a, b: a + b, np.cumsum, 0)
_define_running("cumprod", lambda a, b: a * b, np.cumprod, 1)


def cumsum(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool = False, reverse: bool = False
) -> Call:
    """The sums of all elements up to each one along `axis` (of the flat tensor when None), in linear time.

    `dtype`: of the sums, that of `data` when None; `exclusive`: without the element itself; `reverse`: from the end.
    """
    return _running_call("cumsum", data, axis, dtype, exclusive, reverse)


def cumprod(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool = False, reverse: bool = False
) -> Call:
    """The products of all elements up to each one; see `cumsum`."""
    return _running_call("cumprod", data, axis, dtype, exclusive, reverse)


def _running_call(name: str, data: Expr, axis: int | None, dtype: str | None, exclusive: bool, reverse: bool) -> Call:
    data = data if dtype is None or dtype == data.dtype else call("cast", data, dtype=dtype)
    data = call("reshape", data, newshape=(-1,)) if axis is None else data
    return call(name, data, axis=axis or 0, exclusive=bool(exclusive), reverse=bool(reverse))


# ---------------------------------------------------------------------------------------------------------- sorts


def _with_axis(types: Sequence[Type], attrs: Attrs, what: str) -> tuple[TensorType, int]:
    (x,) = tensors(types, 1, what)
    axis = one_axis(attrs["axis"], len(x.shape), what)
    require(0 not in x.shape, GraphError, what, "there must be elements", shape=x.shape)
    return x, axis


def _sort_type(types: Sequence[Type], attrs: Attrs) -> Type:
    x, _ = _with_axis(types, attrs, "sort_with_positions")
    return TupleType((x, TensorType(x.shape, "int32")))


def _sort_numpy(args: Sequence[Any], attrs: Attrs) -> tuple[Array, Array]:
    (x,), axis = args, attrs["axis"]
    keys = np.asarray(x, computed(str(x.dtype)))  # NumPy does not know which stored values are NaN
    if attrs["descending"]:  # a stable order of the line from its end, read from its end
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis, kind="stable")
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


def _sort_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    return _sorted(args[0], normal_axis(attrs["axis"], args[0].ndim, "sort"), attrs["descending"])


@operator("sort_with_positions", OpPattern.OPAQUE, _sort_type, _sort_numpy, _sort_te)
def sort_with_positions(data: Expr, axis: int = -1, descending: bool = False) -> Call:
    """A tuple: the lines of `data` along `axis` in order, and the positions (int32) that their elements had.

    Equal elements stay in order; NaN is larger than any number.  Time is n log n a line, memory linear.
    """
    return call("sort_with_positions", data, axis=axis, descending=descending)


def sort(data: Expr, axis: int = -1, is_ascend: bool = True) -> Expr:
    """The elements in order along `axis`; see `sort_with_positions`."""
    return TupleGetItem(sort_with_positions(data, axis, not is_ascend), 0)


def argsort(data: Expr, axis: int = -1, is_ascend: bool = True, dtype: str = "int32") -> Expr:
    """The positions of the elements in order along `axis`; see `sort_with_positions`."""
    found = TupleGetItem(sort_with_positions(data, axis, not is_ascend), 1)
    return found if dtype == "int32" else call("cast", found, dtype=dtype)


def topk(
    data: Expr, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int32"
) -> Expr:
    """The first `k` (all where it is below 1) elements of the order along `axis`, their positions, or a tuple of both.

    `ret_type` is "values", "indices" or "both".
    """
    choice(ret_type, ("values", "indices", "both"), "topk", "ret_type")
    found = sort_with_positions(data, axis, not is_ascend)
    parts: list[Expr] = [TupleGetItem(found, j) for j in range(2)]
    if k >= 1:
        parts = [call("strided_slice", part, begin=(0,), end=(k,), axes=(axis,)) for part in parts]
    values, positions = parts[0], parts[1] if dtype == "int32" else call("cast", parts[1], dtype=dtype)
    return {"values": values, "indices": positions}.get(ret_type) or Tuple((values, positions))
