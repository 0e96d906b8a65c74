"""What a computation means: the ops of a DAG evaluated in NumPy, without schedule, lowering or compiler.

This is the oracle of tests and of measured programs, so it shares no code with the rest of the system beyond the
expressions, which it takes as they are written: nothing is folded.  The iteration space is cut into
boxes, so small that temporaries stay below some 64 MB; threads take boxes, each of which writes elements of its own.
`reference_fold.py` reduces.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..computation.computation import Computation
from ..computation.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from ..errors import InterpError, require
from ..expr.expr import FLOATS, Binary, Const, Expr, IterVar, Reduce, Var
from ..expr.visit import free_vars, walk
from .reference_expr import Array, Evaluator, np_dtype
from .reference_fold import Folding, summed_product
from .reference_scan import scanned

BOX_ELEMENTS = 1 << 21
MOST_THREADS = 8

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


def boxes(dims: Sequence[int], shape: Sequence[int]) -> Iterator[Box]:
    ranges = [[(lo, min(lo + s, n)) for lo in range(0, n, s)] for n, s in zip(dims, shape, strict=True)]
    return itertools.product(*ranges)


# ---------------------------------------------------------------------------------------------- operations


def _evaluate_op(op: ComputeOp, arrays: Mapping[Tensor, Array], dtype: str | None) -> list[Array]:
    if op.scans:
        return scanned(op, lambda env, e: Evaluator(1, env, arrays, dtype).value(e), dtype)
    space, bounds = _dimensions(op, arrays, dtype)
    folding = Folding(space, bounds, op.reduction)
    spatial = space.spatial
    dims, shape = space.dims, _box_shape(space.dims, folding.temporaries())
    out = [np.empty(dims[:spatial], np_dtype(body.dtype, dtype)) for body in op.body]

    def fill(outer: Box) -> None:
        inner = boxes(dims[spatial:], shape[spatial:])
        evaluators = (Evaluator(len(dims), space.env(outer + box), arrays, dtype) for box in inner)
        where = tuple([slice(lo, hi) for lo, hi in outer])
        with np.errstate(all="ignore"):  # threads do not inherit it
            for target, array in zip(out, _on_boxes(op, folding, evaluators), strict=True):
                target[where] = array.reshape(array.shape[:spatial])

    _for_each(fill, list(boxes(dims[:spatial], shape[:spatial])), alone=len(folding.factors) > 1)
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


def _on_boxes(op: ComputeOp, folding: Folding, evaluators: Iterator[Evaluator]) -> list[Array]:
    """The outputs on one box of spatial points, from the boxes of the points that are folded."""
    evaluator = next(evaluators)
    if folding.reduction is None:
        return [evaluator.value(body) for body in op.body]
    total = folding.reduce(evaluator)
    for evaluator in evaluators:
        total = folding.combine(total, folding.reduce(evaluator), evaluator)
    total = folding.finish(total, evaluator)
    return [total[body.value_index] for body in op.body if isinstance(body, Reduce)]


def multiplies_matrices(tensors: Sequence[Tensor]) -> bool:
    """Whether `evaluate` computes any of these tensors, or what they depend on, by products of matrices."""
    bodies = [body for op in Computation(tensors).ops if isinstance(op, ComputeOp) for body in op.body]
    return any(len(summed_product(body)) > 1 for body in bodies if isinstance(body, Reduce))
