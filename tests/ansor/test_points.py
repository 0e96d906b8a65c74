"""At points a computation means what it means on whole arrays, errors of rounding included."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import te_lite as te
from ansor.measure import points
from ansor.measure.points import PointReference
from ansor.measure.rounding import rounding_errors
from te_lite import Tensor, topi
from te_lite.computation.tensor import ComputeOp
from te_lite.errors import InterpError
from te_lite.expr.dtype import DTYPES
from te_lite.meaning.drawn import DRAWN, DrawnArray, key_of
from te_lite.meaning.reference import evaluate
from tests.nonempty import nonempty
from tests.workloads import WORKLOADS


def norm() -> list[Tensor]:
    """Mean and variance of groups of channels, then an offset: reductions that need reductions."""
    x, g = te.placeholder((2, 6, 5, 4), name="x"), te.placeholder((6,), name="g")
    c, h, w = [te.reduce_axis((0, n), name) for n, name in ((3, "c"), (5, "h"), (4, "w"))]
    mean = te.compute((2, 2), lambda n, k: te.sum(x[n, k * 3 + c, h, w] / 60.0, axis=[c, h, w]), name="mean")
    c, h, w = [te.reduce_axis((0, n), name) for n, name in ((3, "c2"), (5, "h2"), (4, "w2"))]

    def square(n: te.Expr, k: te.Expr) -> te.Expr:
        return (x[n, k * 3 + c, h, w] - mean[n, k]) * (x[n, k * 3 + c, h, w] - mean[n, k])

    var = te.compute((2, 2), lambda n, k: te.sum(square(n, k), axis=[c, h, w]), name="var")
    return [x, g, te.compute(
        x.shape, lambda n, k, i, j: (x[n, k, i, j] - mean[n, k // 3]) * te.rsqrt(var[n, k // 3] + 1e-5) * g[k], "y"
    )]  # fmt: skip


def loss() -> list[Tensor]:
    a, b = te.placeholder((23, 31), name="a"), te.placeholder((23, 31), name="b")
    i, j = te.reduce_axis((0, 23), "i"), te.reduce_axis((0, 31), "j")
    return [a, b, te.compute((), lambda: te.sum((a[i, j] - b[i, j]) * (a[i, j] - b[i, j]), axis=[i, j]), "loss")]


def gather() -> list[Tensor]:
    table, where = te.placeholder((9, 5), "float16", "table"), te.placeholder((7,), "uint8", "where")
    return [table, where, te.compute((7, 5), lambda i, j: table[where[i].astype("int32"), j] * 2.0, name="rows")]


def masked() -> list[Tensor]:
    """A reduction with a condition, products, and a maximum over padding."""
    x = te.placeholder((8, 9), name="x")
    k, m = te.reduce_axis((0, 9), "k"), te.reduce_axis((0, 3), "m")
    below = te.compute((8,), lambda i: te.sum(x[i, k], axis=k, where=k <= i), name="below")
    pad = te.compute((10, 9), lambda i, j: te.if_then_else(te.all(i > 0, i < 9), x[i - 1, j] * 3.0, 0.5), name="pad")
    top = te.compute((8, 9), lambda i, j: te.max(pad[i + m, j], axis=m), name="top")
    return [x, below, te.compute((8, 9), lambda i, j: top[i, j] - below[i], name="out")]


def transposed() -> list[Tensor]:
    data, kernel = te.placeholder((2, 3, 5, 4), name="data"), te.placeholder((3, 2, 3, 3), name="kernel")
    return [data, kernel, topi.nn.conv2d_transpose_nchw(data, kernel, (2, 2), (1, 1), "float32", (1, 1))]


def stored() -> list[Tensor]:
    x, y = te.placeholder((6, 40), "bfloat16", "x"), te.placeholder((6, 40), "float16", "y")
    k = te.reduce_axis((0, 40), "k")
    products = te.compute((6,), lambda i: te.sum(x[i, k].astype("float32") * y[i, k].astype("float32"), axis=k), "s")
    return [x, y, te.compute((6,), lambda i: te.cast("bfloat16", te.erf(products[i])), name="z")]


MORE: dict[str, Callable[[], list[Tensor]]] = {
    "norm": norm, "loss": loss, "gather": gather, "masked": masked, "transposed": transposed, "stored": stored,
    "average": lambda: [x := te.placeholder((1, 2, 7, 8), name="x"),
                        topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg", count_include_pad=False)],
    "adaptive": lambda: [x := te.placeholder((1, 2, 7, 8), name="x"), topi.nn.adaptive_pool(x, (3, 5), "avg")],
}  # fmt: skip


@pytest.mark.parametrize("chunk", [7, 1 << 15])
@pytest.mark.parametrize("name", sorted(WORKLOADS | MORE))
def test_points_are_those_of_the_whole(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "CHUNK", chunk)
    dag, rng = te.ComputeDAG((WORKLOADS | MORE)[name]()), np.random.default_rng(1)
    drawn = {t: DrawnArray(t.shape, t.dtype, key_of(3, k)) for k, t in enumerate(dag.tensors) if t in dag.inputs}
    errors = rounding_errors(dag)
    tensors = [x for t in dag.outputs for x in (t, errors.get(t)) if x is not None]
    whole = evaluate([*dag.inputs, *tensors], {t: d.whole() for t, d in drawn.items()}, "float64")
    few = PointReference(tensors, {t: lambda i, d=d: d.at(i, wide=True) for t, d in drawn.items()})
    for t in nonempty(dag.outputs):
        mine = [x for x in (t, errors.get(t)) if x is not None]
        for _ in range(2):
            where = [rng.integers(0, n, 20) for n in t.shape]
            for tensor, got in nonempty(zip(mine, few.at(mine, where), strict=True)):
                want = whole[tensor][tuple(where)]
                assert got.dtype == want.dtype
                np.testing.assert_allclose(got, want if t.shape else want.reshape(1), rtol=1e-11, atol=1e-300)


def test_what_threads_add_at_the_same_time_is_kept() -> None:
    """A sum that is lost would be taken for that of a neighbour."""
    x = te.placeholder((4000, 2), name="x")
    k = te.reduce_axis((0, 2), name="k")
    sums = te.compute((4000,), lambda i: te.sum(x[i, k], axis=k), name="sums")
    assert isinstance(sums.op, ComputeOp)
    folded, before = points._Folded(sums.op), sys.getswitchinterval()

    def add(first: int) -> bool:
        for k in range(first, 4000, 8):
            places = np.array([k])
            folded.add(places, [places * 3.0])
            if folded.at(places)[0][0] != k * 3.0:
                return False
        return True

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(add, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert not folded.missing(np.arange(4000)).size


def test_a_read_out_of_range_is_said() -> None:
    x = te.placeholder((5,), name="x")
    y = te.compute((5,), lambda i: x[i + 1], name="y")
    few = PointReference([y], {x: lambda i: i[0].astype("float64")})
    assert few.at([y], [np.array([0, 3])])[0].tolist() == [1.0, 4.0]
    with pytest.raises(InterpError, match="x: read out of range, got dimension=0 index=5 extent=5"):
        few.at([y], [np.array([4])])


@pytest.mark.parametrize("dtype", sorted(DRAWN))
def test_drawn_numbers_are_spread_as_random_inputs_are(dtype: str) -> None:
    assert dtype in DTYPES
    one, other = [DrawnArray((200, 500), dtype, key_of(1, k)) for k in (0, 1)]
    x = one.whole()
    assert x.dtype == np.dtype(dtype)
    values = x.astype("float64")
    low, high = (0, 1) if dtype == "bool" else (-1, 1) if "float" in dtype else (0, 8) if dtype[0] == "u" else (-4, 4)
    assert values.min() >= low and values.max() <= high
    assert abs(values.mean() - (low + high) / 2) < 0.02 * (high - low)
    assert values.max() > high - 0.01 and values.min() < low + 0.01
    for moved in (values[1:, :], values[:, 1:], other.whole().astype("float64")):
        a, b = values[: moved.shape[0], : moved.shape[1]], moved
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02
    i, j = np.array([3, 199]), np.array([0, 499])
    assert (one.at([i, j]) == x[i, j]).all() and (one.at([i, j], wide=True) == x[i, j].astype("float64")).all()


def test_places_beyond_32_bits_are_drawn_anew() -> None:
    large = DrawnArray((3, 1 << 32), "float64", (5, 6))
    rows = large.at(np.ogrid[0:3, 0:4])
    assert len(np.unique(rows)) == 12
    assert (rows[0] == DrawnArray((4,), "float64", (5, 6)).whole()).all()
