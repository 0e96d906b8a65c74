"""Copies that read along one loop and write along another: what squares of vectors make of them, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_c.processor import PROCESSORS, Options, host_options
from te_lite import Tensor
from tests.nonempty import nonempty
from tests.oracle import poisoned

SHAPES = [(32, 80), (197, 64), (64, 197), (13, 17), (16, 16), (3, 40), (1, 33), (24, 7), (127, 61)]


def turned(rng: np.random.Generator, shape: Sequence[int], axes: Sequence[int], dtype: str) -> tuple[Tensor, Tensor]:
    """A tensor, and a copy with its axes in another order; half of the copies are zero beyond some border."""
    a = te.placeholder(tuple(shape), dtype=dtype, name="A")
    low = [int(rng.integers(0, 1 + n // 3)) for n in shape]
    high = [int(rng.integers(n - n // 3, n + 1)) for n in shape]
    guarded = bool(rng.integers(2))

    def element(*out: te.Expr) -> te.Expr:
        index = [out[list(axes).index(d)] for d in range(len(shape))]
        if not guarded:
            return a[tuple(index)]
        inside = te.all(*[e for i, lo, hi in zip(index, low, high, strict=True) for e in (i >= lo, i < hi)])
        return te.if_then_else(inside, a[tuple(index)], te.const(0, dtype))

    return a, te.compute(tuple(shape[d] for d in axes), element, name="B")


def check(pairs: Sequence[tuple[Tensor, Tensor]], options: Options, rng: np.random.Generator) -> str:
    """Compare every copy with the evaluation of its expression, element by element; gives the C source."""
    tensors = [t for pair in pairs for t in pair]
    func = te.lower(te.ComputeDAG(tensors).init_state, tensors)
    inputs = {a: (rng.standard_normal(a.shape) * 100).astype(a.dtype) for a, _ in pairs}
    args = [inputs[t] if t in inputs else poisoned(t.shape, t.dtype) for t in tensors]
    codegen_c.build(func, options=options)(*args)
    want = te.meaning.reference.evaluate(tensors, inputs, dtype="float64")
    for (_, b), got in nonempty(zip(pairs, args[1::2], strict=True)):
        np.testing.assert_array_equal(got, want[b].astype(b.dtype))
    return codegen_c.emit(func, options=options)


@pytest.mark.parametrize("family", ["sse", "avx2", "host"])
@pytest.mark.one_in(2)
def test_turned_matrices(family: str) -> None:
    options = host_options() if family == "host" else PROCESSORS[family]
    rng = np.random.default_rng(3)
    source = check([turned(rng, shape, (1, 0), "float32") for shape in SHAPES], options, rng)
    assert source.count("turn_f32x") >= 7


def test_random_permutations() -> None:
    """Of up to four axes and any element type; most extents are odd."""
    rng = np.random.default_rng(4)
    pairs = []
    for dtype in ("float32", "float64", "int32", "int8", "uint16", "int64"):
        for _ in range(2):
            shape = [int(n) for n in rng.choice([1, 2, 5, 9, 16, 23, 33], 4)][: int(rng.integers(2, 5))]
            pairs.append(turned(rng, shape, [int(d) for d in rng.permutation(len(shape))], dtype))
    check(pairs, host_options(), rng)
