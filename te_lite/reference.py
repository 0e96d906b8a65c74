"""What a computation means: the ops of a DAG evaluated in NumPy, without schedule, lowering or compiler.

This is the oracle of tests and of measured programs, so it shares no code with the rest of the system beyond the
expressions, which it takes as they are written: nothing is folded.  Work is done on boxes of the iteration space small
enough that temporaries stay below some 64 MB; several threads take boxes, each of which writes elements of its own.  A
`sum` of a product is contracted factor by factor through matrix multiplication, which has threads itself.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .computation import Computation
from .errors import InterpError, require
from .expr import FLOATS, Binary, Combiner, Const, Expr, IterVar, Logical, Reduce, Var
from .reference_expr import BINARY, Array, Evaluator, np_dtype
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from .visit import children, free_vars, walk, with_children

BOX_ELEMENTS = 1 << 21
MOST_THREADS = 8
EXACT = 1 << 53
"""Up to which float64 has all integers."""

Box = tuple[tuple[int, int], ...]


def evaluate(
    tensors: Sequence[Tensor], inputs: Mapping[Tensor, Array], dtype: str | None = None
) -> dict[Tensor, Array]:
    """The arrays of `tensors` (given and computed), from the arrays of the placeholders they depend on.

    `dtype` ("float64") replaces the dtype of all float arithmetic and of the float results: the reference that
    tolerances are measured against.  Raises InterpError for a missing or misshapen input or a read out of range.
    """
    dag = Computation(tensors)
    arrays: dict[Tensor, Array] = {}
    with np.errstate(all="ignore"):
        for op in dag.ops:
            if isinstance(op, ComputeOp):
                for k, array in enumerate(_evaluate_op(op, arrays, dtype)):
                    arrays[op.output(k)] = array
            else:
                arrays[op.output()] = _input(op, inputs, dtype)
    return {t: arrays[t] for t in dag.tensors}


def random_inputs(tensors: Sequence[Tensor], rng: np.random.Generator) -> dict[Tensor, Array]:
    """Random arrays for every placeholder: floats in [-1, 1], signed integers in [-4, 4], unsigned in [0, 8]."""
    out = {}
    for op in Computation(tensors).ops:
        if isinstance(op, PlaceholderOp):
            if op.dtype in FLOATS:
                array: Array = rng.uniform(-1, 1, op.shape)
            elif op.dtype == "bool":
                array = rng.integers(0, 2, op.shape)
            else:
                array = rng.integers(-4, 5, op.shape) + 4 * op.dtype.startswith("u")
            out[op.output()] = np.asarray(array).astype(op.dtype)
    return out


def _input(op: Operation, inputs: Mapping[Tensor, Array], dtype: str | None) -> Array:
    tensor = op.output()
    require(tensor in inputs, InterpError, op.name, "no array is given for this input")
    array = np.asarray(inputs[tensor])
    require(array.shape == op.shape, InterpError, op.name, "the shape must be that of the tensor",
            array=array.shape, tensor=op.shape)  # fmt: skip
    return np.ascontiguousarray(array, np_dtype(op.dtype, dtype)).reshape(op.shape)


# ------------------------------------------------------------------------------------------ iteration space


@dataclass(frozen=True)
class _Dimensions:
    """The dimensions an operation is evaluated on.

    An axis that is divided by a constant somewhere (`c // 4`, `c % 4`) takes two dimensions, so that its reads are
    affine; every other axis takes one.  `dims[:spatial]` are the spatial ones.
    """

    axes: tuple[IterVar, ...]
    parts: tuple[tuple[int, ...], ...]
    spatial: int

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(itertools.chain.from_iterable(self.parts))

    def dims_of(self, e: Expr) -> set[int]:
        """The numbers of the dimensions `e` varies along."""
        used, out, first = free_vars(e), set(), 0
        for v, part in zip(self.axes, self.parts, strict=True):
            if v in used:
                out |= {d for d in range(first, first + len(part)) if self.dims[d] > 1}
            first += len(part)
        return out

    def env(self, box: Box) -> dict[Var, Array]:
        """The values of every axis on a box."""
        out: dict[Var, Array] = {}
        ndim, first = len(box), 0
        for v, part in zip(self.axes, self.parts, strict=True):
            total: Array = np.zeros((1,) * ndim, np.int64)
            for d in range(first, first + len(part)):
                shape = [1] * ndim
                shape[d] = -1
                total = total * self.dims[d] + np.arange(*box[d], dtype=np.int64).reshape(shape)
            out[v] = total
            first += len(part)
        return out


def _parts(v: IterVar, extent: int, op: ComputeOp) -> tuple[int, ...]:
    """`(extent,)`, or `(extent / d, d)` for the smallest divisor `d` by which the body divides `v`."""
    divisors = []
    for body in op.body:
        for node in walk(body):
            if isinstance(node, Binary) and node.op in ("//", "%") and node.a is v and isinstance(node.b, Const):
                divisors.append(int(node.b.value))
    good = [d for d in divisors if 1 < d < extent and extent % d == 0]
    return (extent // min(good), min(good)) if good else (extent,)


def _dimensions(op: ComputeOp, arrays: Mapping[Tensor, Array], dtype: str | None) -> tuple[_Dimensions, list[Expr]]:
    """The space of `op`, and the conditions that cut off reduction axes whose extent varies."""
    spatial = _Dimensions(op.axis, tuple((n,) for n in op.shape), len(op.shape))
    everywhere = spatial.env(tuple((0, n) for n in op.shape))
    parts = [_parts(v, n, op) for v, n in zip(op.axis, op.shape, strict=True)]
    count = sum(map(len, parts))
    bounds: list[Expr] = []
    for v in op.reduce_axis:
        extent = v.extent
        if isinstance(extent, Expr):
            extents = Evaluator(len(op.shape), everywhere, arrays, dtype).value(extent)
            if extents.min() != extents.max():
                bounds.append(v < extent)
            extent = int(extents.max())
        parts.append(_parts(v, extent, op))
    return _Dimensions((*op.axis, *op.reduce_axis), tuple(parts), count), bounds


def _box_shape(dims: Sequence[int], temporaries: Sequence[set[int]]) -> tuple[int, ...]:
    """Extents of a box on which every temporary (given by its dimensions) has at most BOX_ELEMENTS elements."""
    shape = list(dims)
    for used in temporaries:
        while math.prod(shape[d] for d in used) > BOX_ELEMENTS:
            longest = max(used, key=lambda d: shape[d])
            shape[longest] = -(-shape[longest] // 2)
    return tuple(shape)


def _boxes(dims: Sequence[int], shape: Sequence[int]) -> Iterator[Box]:
    ranges = [[(lo, min(lo + s, n)) for lo in range(0, n, s)] for n, s in zip(dims, shape, strict=True)]
    return itertools.product(*ranges)


# ---------------------------------------------------------------------------------------------- operations


def _evaluate_op(op: ComputeOp, arrays: Mapping[Tensor, Array], dtype: str | None) -> list[Array]:
    space, bounds = _dimensions(op, arrays, dtype)
    folding = _Folding(space, bounds, op.reduction)
    spatial = space.spatial
    dims, shape = space.dims, _box_shape(space.dims, folding.temporaries())
    out = [np.empty(dims[:spatial], np_dtype(body.dtype, dtype)) for body in op.body]

    def fill(outer: Box) -> None:
        inner = _boxes(dims[spatial:], shape[spatial:])
        evaluators = (Evaluator(len(dims), space.env(outer + box), arrays, dtype) for box in inner)
        where = tuple([slice(lo, hi) for lo, hi in outer])
        with np.errstate(all="ignore"):  # threads do not inherit it
            for target, array in zip(out, _on_boxes(op, folding, evaluators), strict=True):
                target[where] = array.reshape(array.shape[:spatial])

    _for_each(fill, list(_boxes(dims[:spatial], shape[:spatial])), alone=len(folding.factors) > 1)
    return [array.reshape(op.shape) for array in out]


def _for_each(fill: Callable[[Box], None], boxes: Sequence[Box], alone: bool) -> None:
    """Call `fill` for all boxes, side by side unless it must be `alone`.  Raises what the first failing one raises."""
    threads = min(len(boxes), MOST_THREADS, os.cpu_count() or 1)
    if alone or threads < 2:
        for box in boxes:
            fill(box)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, boxes))


def _on_boxes(op: ComputeOp, folding: _Folding, evaluators: Iterator[Evaluator]) -> list[Array]:
    """The outputs on one box of spatial points, from the boxes of the points that are folded."""
    evaluator = next(evaluators)
    if folding.reduction is None:
        return [evaluator.value(body) for body in op.body]
    total = folding.reduce(evaluator)
    for evaluator in evaluators:
        total = folding.combine(total, folding.reduce(evaluator), evaluator)
    total = folding.finish(total, evaluator)
    return [total[body.value_index] for body in op.body if isinstance(body, Reduce)]


def _ufunc(combiner: Combiner) -> np.ufunc | None:
    """The NumPy reduction that equals `combiner`, if there is one."""
    match combiner.result:
        case (Binary(op=op, a=a, b=b) | Logical(op=op, a=a, b=b),) if a is combiner.lhs[0] and b is combiner.rhs[0]:
            ufunc = BINARY[op]
            return ufunc if isinstance(ufunc, np.ufunc) and op in ("+", "*", "min", "max", "&&", "||") else None
    return None


def multiplies_matrices(tensors: Sequence[Tensor]) -> bool:
    """Whether `evaluate` computes any of these tensors, or what they depend on, by products of matrices."""
    bodies = [body for op in Computation(tensors).ops if isinstance(op, ComputeOp) for body in op.body]
    return any(len(_summed_product(body)) > 1 for body in bodies if isinstance(body, Reduce))


def _summed_product(reduction: Reduce) -> list[Expr]:
    """The factors of a sum that is carried out factor by factor; none for any other reduction."""
    plain = reduction.condition is None and _ufunc(reduction.combiner) is np.add
    return _factors(reduction.sources[0]) if plain else []


def _factors(e: Expr) -> list[Expr]:
    return _factors(e.a) + _factors(e.b) if isinstance(e, Binary) and e.op == "*" else [_without_idle_divisions(e)]


def _joined(factors: list[Expr], space: _Dimensions) -> list[Expr]:
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


class _Folding:
    """How the reduction of an operation is carried out on one box after the other."""

    def __init__(self, space: _Dimensions, bounds: list[Expr], reduction: Reduce | None) -> None:
        self.space = space
        self.reduction = reduction
        self.ufunc = _ufunc(reduction.combiner) if reduction is not None else None
        self.conditions = list(bounds)
        if reduction is not None and reduction.condition is not None:
            self.conditions.append(reduction.condition)
        self.factors: list[Expr] = []
        if reduction is not None and not bounds:
            self.factors = _joined(_summed_product(reduction), space)

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
