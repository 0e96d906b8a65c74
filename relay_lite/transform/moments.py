"""`Moments`: the mean and the variance of what no block of a GPU can keep, in one reading of the data.

    m = mean(x - s)   v = mean(((s - x) + m) ** 2)      ->      _, m, q = moments(x - s)   v = q / n

Exporters say a variance as what is left of a mean, squared.  As kernels of their own these read the data twice, the
operator `moments` once.  A distance from a mean may be written in any order of sums and differences; it is compared
as a linear form.  Where what is averaged is no difference yet, one of its elements is taken away first: a mean is
rounded to the size of what it is the mean of.

Rows that a block can keep stay as they are: a row program (`fuse_ops.py`) reads them once for everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeGuard

from ansor.sketch.plain import LARGE, LONG_ROW

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function, TupleGetItem, children, const, rebuild
from ..ir.visit import constant_value, expand_to, is_op, post_order, reference_counts, with_body
from ..op.define import Shape, some_axes
from ..op.moments import DTYPES, moments
from .sequential import Pass

DEPTH = 4
"""Sums and differences on top of each other that a distance is written with."""
SHARED = 3
"""Readers of data of which a norm is: a mean, a variance, and what is normalised."""
LONG_COLUMN = 1 << 8
"""Terms of a reduction over other than the last axes that are worth it."""
Leaf = Expr | tuple[Expr, str]
"""A node, or what is cast and to which dtype: every reader has a cast of its own (`CanonicalizeCast`)."""
Form = Mapping[Leaf, int]


def Moments() -> Pass:
    """The pass, for targets whose blocks keep rows; level 3."""
    return Pass("Moments", 3, (), _run)


@dataclass(frozen=True)
class _Fold:
    """A sum or a mean over axes, perhaps of means over some of them: `data` and the number that it is divided by."""

    data: Expr
    axes: Shape
    divisor: int

    @property
    def count(self) -> int:
        return prod([self.data.shape[a] for a in self.axes])

    @property
    def is_mean(self) -> bool:
        return self.divisor == self.count

    @property
    def is_long(self) -> bool:
        """Whether the data are large, and no block keeps a row."""
        shape, dtype = self.data.shape, self.data.dtype
        moving = {a for a in self.axes if shape[a] > 1}
        last = [a for a in range(len(shape)) if shape[a] > 1][-len(moving) :]
        least = LONG_ROW if set(last) == moving else LONG_COLUMN
        return dtype in DTYPES and prod(shape) >= LARGE and self.count >= least


@dataclass(frozen=True)
class _Pair:
    """A mean and what is a variance by it, but for a factor."""

    mean: Call
    variance: Call
    averaged: _Fold
    squared: _Fold


def _run(function: Function) -> Function:
    counts = reference_counts(function.body)
    shared = frozenset(node for node, k in counts.items() if k >= SHARED)
    pairs = [p for node in post_order(function.body) if (p := _pair(node, shared)) is not None]
    means, variances = {p.mean: p for p in pairs}, {p.variance: p for p in pairs}
    made, found = dict[Expr, Expr](), dict[Expr, Call]()
    for node in post_order(function.body):
        if node in means:
            fold = means[node].averaged
            mean, found[node] = _mean(fold, made[fold.data])
            made[node] = _shaped(mean, node.shape)
        elif node in variances:
            made[node] = _variance(variances[node], found[variances[node].mean])
        else:
            new = rebuild(node, [made[c] for c in children(node)])
            made[node] = _norm(new) if is_op(new, "nn.layer_norm", "nn.instance_norm") else new
    return with_body(function, made[function.body])


# ------------------------------------------------------------------------------------------------ what is looked for


def _pair(node: Expr, shared: frozenset[Expr]) -> _Pair | None:
    """A variance with its mean, where a node is one; of data in `shared` nothing is taken apart."""
    squared = _fold(node)
    if squared is None or not squared.is_long:
        return None
    for mean in _means(node, squared.data, shared):
        fold = _fold(mean)
        if fold is not None and _fits(mean, fold, squared) and isinstance(mean, Call) and isinstance(node, Call):
            return _Pair(mean, node, fold, squared)
    return None


def _means(node: Expr, data: Expr, shared: frozenset[Expr]) -> Iterator[Expr]:
    """What the distances are from that a node sums up the squares of; each is a mean of what the distances are of."""
    if is_op(node, "variance"):
        fold = _fold(node.args[1])
        if fold is not None and _leaf(fold.data) == _leaf(data):
            yield node.args[1]
    elif (d := _root_of(data)) is not None:
        for leaf in _form(d, shared - {d}):
            averaged = _fold(leaf) if isinstance(leaf, Expr) else None
            if isinstance(leaf, Expr) and averaged is not None and _is_distance(d, leaf, averaged.data, shared):
                yield leaf


def _root_of(node: Expr) -> Expr | None:
    """What a node is the square of."""
    if is_op(node, "power"):
        exponent = constant_value(node.args[1])
        return node.args[0] if exponent is not None and exponent.ndim == 0 and exponent.item() == 2 else None
    return node.args[0] if is_op(node, "multiply") and node.args[0] is node.args[1] else None


def _fits(mean: Expr, fold: _Fold, squared: _Fold) -> bool:
    """Whether a mean is over the same axes, and is the same along them."""
    same = fold.is_mean and fold.axes == squared.axes and fold.data.shape == squared.data.shape
    return same and _is_same_along(mean, len(fold.data.shape), fold.axes)


def _is_same_along(e: Expr, rank: int, axes: Shape) -> bool:
    shape = (1,) * (rank - len(e.shape)) + e.shape
    return all(shape[a] == 1 for a in axes)


def _fold(node: Expr) -> _Fold | None:
    """What a sum, a mean or a variance is of."""
    if not is_op(node, "sum", "mean", "variance"):
        return None
    data = node.args[0]
    axes = some_axes(node.attrs["axis"], len(data.shape), node.op.name, node.attrs["exclude"])
    inner = _fold(data) if is_op(node, "mean") and is_op(data, "mean") and data.attrs["keepdims"] else None
    if inner is not None:
        both = tuple(sorted({*axes, *inner.axes}))
        return _Fold(inner.data, both, prod([inner.data.shape[a] for a in both]))
    count = prod([data.shape[a] for a in axes])
    fewer = is_op(node, "variance") and node.attrs["unbiased"]
    return _Fold(data, axes, 1 if is_op(node, "sum") else count - bool(fewer)) if axes else None


def _is_distance(d: Expr, mean: Expr, data: Expr, shared: frozenset[Expr]) -> bool:
    """Whether `d` is `data - mean` or `mean - data`; data are compared as a whole, or by their parts."""
    if d.shape != data.shape:
        return False
    for whole, apart in ((frozenset({data}), frozenset({data})), (shared - {d}, shared - {d, data})):
        left, right = dict(_form(d, whole)), _form(data, apart)
        sign = left.pop(mean, 0)
        if sign in (1, -1) and left == {leaf: -sign * n for leaf, n in right.items()}:
            return True
    return False


def _form(node: Expr, whole: Collection[Expr], depth: int = DEPTH) -> Form:
    """A node as a sum of others, with how often each is in it; what is in `whole` is not taken apart."""
    if depth == 0 or node in whole or not is_op(node, "add", "subtract", "negative"):
        return {_leaf(node): 1}
    signs = (-1,) if is_op(node, "negative") else (1, -1 if is_op(node, "subtract") else 1)
    found: Counter[Leaf] = Counter()
    for sign, arg in zip(signs, node.args, strict=True):
        for leaf, n in _form(arg, whole, depth - 1).items():
            found[leaf] += sign * n
    return {leaf: n for leaf, n in found.items() if n}


def _leaf(node: Expr) -> Leaf:
    return (node.args[0], node.dtype) if is_op(node, "cast") else node


# -------------------------------------------------------------------------------------------------- what it becomes


def _mean(fold: _Fold, data: Expr) -> tuple[Expr, Call]:
    """A mean by the operator `moments`, and that; its argument has no other reader, so that it is not stored."""
    if _is_centred(data, fold.axes):
        found = moments(Call(data.op, data.args, data.attrs), fold.axes)
        return TupleGetItem(found, 1), found
    some = _some(data, fold.axes)
    found = moments(call("subtract", data, some), fold.axes)
    return call("add", some, TupleGetItem(found, 1)), found


def _is_centred(data: Expr, axes: Shape) -> TypeGuard[Call]:
    """Whether something that is the same along the axes was taken away from data."""
    taken = is_op(data, "subtract") or (is_op(data, "add") and is_op(data.args[1], "negative"))
    return taken and isinstance(data, Call) and _is_same_along(data.args[1], len(data.shape), axes)


def _some(data: Expr, axes: Shape) -> Expr:
    """One of the elements along the axes, from the middle, as those of a border may be unlike the others."""
    middle = [data.shape[a] // 2 for a in axes]
    end = tuple([k + 1 for k in middle])
    return call("strided_slice", data, begin=tuple(middle), end=end, strides=(1,) * len(axes), axes=axes)


def _variance(pair: _Pair, found: Call) -> Expr:
    total: Expr = TupleGetItem(found, 2)
    divisor = pair.squared.divisor
    total = total if divisor == 1 else call("multiply", total, const(1 / divisor, total.dtype))
    return _shaped(total, pair.variance.shape)


def _shaped(e: Expr, shape: Shape) -> Expr:
    return e if e.shape == shape else call("reshape", e, newshape=shape)


def _norm(node: Call) -> Expr:
    """A layer norm or an instance norm of long rows, spelled out."""
    data, axis, rank = node.args[0], node.attrs["axis"] % len(node.shape), len(node.shape)
    axes = (axis,) if is_op(node, "nn.layer_norm") else tuple([a for a in range(1, rank) if a != axis])
    fold = _Fold(data, axes, 1)
    if not fold.is_long:
        return node
    some = _some(data, axes)
    found = moments(call("subtract", data, some), axes)
    variance = call("multiply", TupleGetItem(found, 2), const(1 / fold.count, data.dtype))
    spread = call("rsqrt", call("add", variance, const(node.attrs["epsilon"], data.dtype)))
    centred = call("subtract", call("subtract", data, some), TupleGetItem(found, 1))
    value = call("multiply", centred, spread)
    for name, wanted, vector in (("multiply", "scale", node.args[1]), ("add", "center", node.args[2])):
        value = call(name, value, expand_to(vector, rank, axis)) if node.attrs[wanted] else value
    return value
