"""How a reduction is carried out on boxes of the points that are reduced, one after the other; in NumPy.

A `sum` of a product is contracted factor by factor through matrix multiplication, which has threads itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..expr.expr import Binary, Combiner, Const, Expr, IterVar, Logical, Reduce
from ..expr.visit import children, with_children
from .reference_expr import BINARY, Array, Evaluator

EXACT = 1 << 53
"""Up to which float64 has all integers."""


class Space(Protocol):
    """The dimensions of the arrays that are folded; `dims[:spatial]` are not reduced."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Their extents."""

    @property
    def spatial(self) -> int:
        """How many are not reduced."""

    def dims_of(self, e: Expr) -> set[int]:
        """The numbers of the dimensions `e` varies along."""


def _ufunc(combiner: Combiner) -> np.ufunc | None:
    """The NumPy reduction that equals `combiner`, if there is one."""
    match combiner.result:
        case (Binary(op=op, a=a, b=b) | Logical(op=op, a=a, b=b),) if a is combiner.lhs[0] and b is combiner.rhs[0]:
            ufunc = BINARY[op]
            return ufunc if isinstance(ufunc, np.ufunc) and op in ("+", "*", "min", "max", "&&", "||") else None
    return None


def summed_product(reduction: Reduce) -> list[Expr]:
    """The factors of a sum that is carried out factor by factor; none for any other reduction."""
    plain = reduction.condition is None and _ufunc(reduction.combiner) is np.add
    return _factors(reduction.sources[0]) if plain else []


def _factors(e: Expr) -> list[Expr]:
    return _factors(e.a) + _factors(e.b) if isinstance(e, Binary) and e.op == "*" else [_without_idle_divisions(e)]


def _joined(factors: list[Expr], space: Space) -> list[Expr]:
    """Factors with those multiplied that vary along the same dimensions: an array of them is no larger than either."""
    alike: dict[frozenset[int], Expr] = {}
    for factor in factors:
        dims = frozenset(space.dims_of(factor))
        alike[dims] = Binary("*", alike[dims], factor) if dims in alike else factor
    return list(alike.values())


def _without_idle_divisions(e: Expr) -> Expr:
    """`e` with `v // c` as 0 and `v % c` as `v` where the axis `v` never reaches `c`: it does not vary along `v`."""
    match e:
        case Binary(op="//" | "%" as op, a=IterVar(extent=int(extent)) as v, b=Const(value=c)) if extent <= c:
            return v if op == "%" else Const(0, v.dtype)
    kids = children(e)
    return with_children(e, tuple([_without_idle_divisions(k) for k in kids])) if kids else e


class Folding:
    """How the reduction of an operation is carried out on one box after the other."""

    def __init__(self, space: Space, bounds: list[Expr], reduction: Reduce | None) -> None:
        self.space = space
        self.reduction = reduction
        self.ufunc = _ufunc(reduction.combiner) if reduction is not None else None
        self.conditions = list(bounds)
        if reduction is not None and reduction.condition is not None:
            self.conditions.append(reduction.condition)
        self.factors: list[Expr] = []
        if reduction is not None and not bounds:
            self.factors = _joined(summed_product(reduction), space)

    def temporaries(self) -> list[set[int]]:
        """The dimensions of each array that is made on the way."""
        if not self.factors:
            return [set(range(len(self.space.dims)))]
        spatial = {d for d in range(self.space.spatial) if self.space.dims[d] > 1}
        used = [self.space.dims_of(f) for f in self.factors]
        out, joined = [*used, spatial], used[0]
        for k in range(1, len(used)):
            joined = (joined | used[k]) & spatial.union(*used[k + 1 :])
            out.append(joined)
        return out

    def reduce(self, evaluator: Evaluator) -> list[Array]:
        """The reduction over one box: reduction dimensions get length 1."""
        assert self.reduction is not None
        dims = tuple(range(self.space.spatial, evaluator.ndim))
        box = np.broadcast_shapes(*[a.shape for a in evaluator.env.values()])
        if self.factors:
            return [_contract_all([evaluator.value(f) for f in self.factors], set(dims), box)]
        mask = None
        for condition in self.conditions:
            holds = evaluator.value(condition, mask)
            mask = holds if mask is None else mask & holds
        sources = [evaluator.value(s, mask) for s in self.reduction.sources]
        if mask is not None:
            identity = [evaluator.value(e) for e in self.reduction.combiner.identity]
            sources = [np.where(mask, s, i) for s, i in zip(sources, identity, strict=True)]
        sources = [np.broadcast_to(s, (*s.shape[: self.space.spatial], *box[self.space.spatial :])) for s in sources]
        if self.ufunc is not None:
            return [self.ufunc.reduce(sources[0], axis=dims, keepdims=True)] if dims else sources
        return self._fold(np.broadcast_arrays(*sources), dims, evaluator)

    def _fold(self, sources: Sequence[Array], dims: tuple[int, ...], evaluator: Evaluator) -> list[Array]:
        lead = sources[0].shape[: self.space.spatial]
        values = [s.reshape(*lead, *(1,) * (len(dims) - 1), -1) for s in sources]
        while (n := values[0].shape[-1]) > 1:
            even, odd = [v[..., 0 : n - n % 2 : 2] for v in values], [v[..., 1::2] for v in values]
            folded = self.combine(even, odd, evaluator)
            values = [np.concatenate([f, v[..., n - n % 2 :]], axis=-1) for f, v in zip(folded, values, strict=True)]
        return values

    def combine(self, a: list[Array], b: list[Array], evaluator: Evaluator) -> list[Array]:
        """The reducer applied element by element."""
        assert self.reduction is not None
        if self.ufunc is not None:
            return [self.ufunc(a[0], b[0])]
        combiner = self.reduction.combiner
        env = dict(zip((*combiner.lhs, *combiner.rhs), (*a, *b), strict=True))
        inner = Evaluator(evaluator.ndim, env, evaluator.arrays, evaluator.float_dtype)
        return [inner.value(e) for e in combiner.result]

    def finish(self, total: list[Array], evaluator: Evaluator) -> list[Array]:
        """Start from the reducer's identity, or the given initial values."""
        assert self.reduction is not None
        if self.ufunc is not None and not self.reduction.init:
            return total
        start = self.reduction.init or self.reduction.combiner.identity
        return self.combine([evaluator.value(e) for e in start], total, evaluator)


# --------------------------------------------------------------------------------------------- contraction


def _contract_all(factors: list[Array], reduced: set[int], box: tuple[int, ...]) -> Array:
    """The product of `factors` on a box, summed over the dimensions `reduced`."""
    total: Array = factors[0]
    for k, factor in enumerate(factors[1:], 1):
        later = {d for f in factors[k + 1 :] for d in _long(f)}
        total = _contract(total, factor, reduced - later)
    total = total.sum(axis=tuple(d for d in reduced if total.shape[d] > 1), keepdims=True)
    seen = set().union(*[_long(f) for f in factors])
    missing = math.prod([box[d] for d in reduced if d not in seen])
    return total if missing == 1 else np.multiply(total, missing, dtype=total.dtype)


def _long(array: Array) -> set[int]:
    return {d for d, n in enumerate(array.shape) if n > 1}


def _contract(a: Array, b: Array, reduced: set[int]) -> Array:
    """`sum(a * b)` over the dimensions `reduced`, as a batch of matrix products; dimensions are kept."""
    a = a.sum(axis=tuple((_long(a) - _long(b)) & reduced), keepdims=True)
    b = b.sum(axis=tuple((_long(b) - _long(a)) & reduced), keepdims=True)
    both = _long(a) & _long(b)
    batch, inner = sorted(both - reduced), sorted(both & reduced)
    rows, columns = sorted(_long(a) - both), sorted(_long(b) - both)
    left = _matrix(a, batch, rows, inner)
    right = _matrix(b, batch, inner, columns)
    order = batch + rows + columns
    sizes = [max(a.shape[d], b.shape[d]) for d in order]
    product = _matmul(left, right).reshape(sizes)
    out = product.transpose(np.argsort(order)) if order else product
    return out.reshape([1 if d not in order else max(a.shape[d], b.shape[d]) for d in range(a.ndim)])


def _matmul(left: Array, right: Array) -> Array:
    """The product of matrices; of integers in float64, which NumPy multiplies fast, where it has all of their sums."""
    if left.dtype.kind in "iu" and left.shape[-1] * _largest(left) * _largest(right) <= EXACT:
        exact: Array = np.matmul(left.astype(np.float64), right.astype(np.float64))
        return exact.astype(np.int64).astype(left.dtype)
    product: Array = np.matmul(left, right)
    return product


def _largest(integers: Array) -> int:
    """The largest absolute value."""
    return max(int(integers.max(initial=0)), -int(integers.min(initial=0)))


def _matrix(array: Array, batch: list[int], rows: list[int], columns: list[int]) -> Array:
    """`array` as [batch, rows, columns]; the dimensions not named have length 1."""
    rest = [d for d in range(array.ndim) if d not in batch + rows + columns]
    sizes = [math.prod([array.shape[d] for d in group]) for group in (batch, rows, columns)]
    matrix: Array = array.transpose(batch + rows + columns + rest).reshape(sizes)
    return matrix
