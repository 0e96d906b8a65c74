"""The NumPy evaluator: what each node means, reads at the border, reducers, chunks, speed."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import te_lite as te
from benchmarks.workloads import OPERATORS, conv2d_layer, matmul
from relay_lite.op.numpy_windows import convolve as conv2d_nchw_python
from te_lite.expr.expr import Reduce
from te_lite.meaning import reference
from te_lite.meaning.reference import evaluate, random_inputs
from tests.nonempty import nonempty

RNG = np.random.default_rng(7)


def run(tensors: list[te.Tensor], dtype: str | None = None) -> dict[te.Tensor, np.ndarray]:
    arrays = random_inputs(tensors, np.random.default_rng(1))
    return arrays | evaluate(tensors, arrays, dtype)


def test_arithmetic_of_every_node_on_integers() -> None:
    a, b = te.placeholder((11,), "int32", name="a"), te.placeholder((13,), "int32", name="b")

    def body(i: te.Expr, j: te.Expr) -> tuple[te.Expr, ...]:
        x, y = a[i], te.select(b[j].equal(0), 3, b[j])
        return x // y, x % y, te.truncdiv(x, y), te.minimum(x, y), te.maximum(x, y), x * y - x + y

    outs = list(te.compute((11, 13), body, name="out"))
    r = run([a, b, *outs])
    x, y = np.meshgrid(r[a], np.where(r[b] == 0, 3, r[b]), indexing="ij")
    wants = [np.floor_divide(x, y), np.mod(x, y), np.trunc(x / y), np.minimum(x, y), np.maximum(x, y), x * y - x + y]
    for out, want in nonempty(zip(outs, wants, strict=True)):
        assert r[out].dtype == np.int32
        np.testing.assert_array_equal(r[out], want)


def test_conditions_casts_and_calls() -> None:
    a = te.placeholder((5, 7), name="a")

    def body(i: te.Expr, j: te.Expr) -> tuple[te.Expr, ...]:
        x = a[i, j]
        between = te.all(x > -0.5, x <= 0.5)
        return (
            te.select(te.any(x < -0.5, te.logical_not(x <= 0.5)), te.exp(x), te.tanh(x)),
            te.if_then_else(between, te.erf(x), te.sigmoid(x)),
            te.cast("float32", te.cast("int32", x * 10.0)),
            te.power(te.abs(x), 1.5),
            te.cast("float32", between),
        )

    outs = list(te.compute((5, 7), body, name="out"))
    r = run([a, *outs], "float64")
    x = r[a].astype(np.float64)
    inside = (x > -0.5) & (x <= 0.5)
    special = pytest.importorskip("scipy.special")
    wants = [
        np.where(~inside, np.exp(x), np.tanh(x)),
        np.where(inside, special.erf(x), special.expit(x)),
        np.trunc(x * 10),
        np.abs(x) ** 1.5,
        inside,
    ]
    for out, want in nonempty(zip(outs, wants, strict=True)):
        assert r[out].dtype == np.float64
        np.testing.assert_allclose(r[out], want, rtol=1e-13)


def test_if_then_else_protects_reads_and_select_does_not() -> None:
    a = te.placeholder((5,), name="a")
    safe = te.compute((9,), lambda i: te.if_then_else(te.all(i >= 2, i < 7), a[i - 2], -1.0), name="safe")
    r = run([a, safe])
    np.testing.assert_array_equal(r[safe], np.pad(r[a], 2, constant_values=-1))
    eager = te.compute((9,), lambda i: te.select(te.all(i >= 2, i < 7), a[i - 2], -1.0), name="eager")
    with pytest.raises(te.InterpError, match=r"a: read out of range, got dimension=0 index=-2 extent=5"):
        run([a, eager])


def test_nested_guards_and_guarded_gathers() -> None:
    a, index = te.placeholder((6,), name="a"), te.placeholder((10,), "int32", name="index")
    out = te.compute(
        (10,), lambda i: te.if_then_else(index[i] >= 0, te.if_then_else(index[i] < 6, a[index[i]], 2.0), 3.0)
    )
    arrays = {a: RNG.uniform(size=6).astype("float32"), index: np.array([-4, 0, 5, 6, 2, 9, -1, 3, 1, 4], "int32")}
    got = evaluate([a, index, out], arrays)[out]
    want = [3.0 if k < 0 else 2.0 if k >= 6 else arrays[a][k] for k in arrays[index]]
    np.testing.assert_array_equal(got, np.float32(want))


def test_argmax_takes_the_first_of_equals_and_where_restricts() -> None:
    a = te.placeholder((7, 13), "int32", name="a")
    k = te.reduce_axis((0, 13), "k")
    index, value = te.compute((7,), lambda i: te.argmax((k, a[i, k]), axis=k), name="best")
    r = run([a, index, value])
    np.testing.assert_array_equal(r[index], r[a].argmax(1))
    np.testing.assert_array_equal(r[value], r[a].max(1))
    k2 = te.reduce_axis((0, 13), "k2")
    some = te.compute((7,), lambda i: te.max(a[i, k2], axis=k2, where=a[i, k2] < 2), name="some")
    total = te.compute((7,), lambda i: te.sum(a[i, k2], axis=k2, where=k2 % 3 == i % 3), name="total")
    r = run([a, some, total])
    np.testing.assert_array_equal(r[some], np.where(r[a] < 2, r[a], np.iinfo(np.int32).min).max(1))
    keep = np.arange(13) % 3 == np.arange(7)[:, None] % 3
    np.testing.assert_array_equal(r[total], (r[a] * keep).sum(1))


def test_reducers_of_ones_own_keep_the_order_and_start_at_the_identity() -> None:
    compose = te.comm_reducer(  # affine maps x -> p x + q under composition: associative, not commutative
        lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), lambda p, q: (te.const(1, p), te.const(0, q)), "compose"
    )
    p, q = te.placeholder((4, 9), name="p"), te.placeholder((4, 9), name="q")
    k = te.reduce_axis((0, 9), "k")
    slope, shift = te.compute((4,), lambda i: compose((p[i, k], q[i, k]), axis=k), name="map")
    r = run([p, q, slope, shift], "float64")
    s, t = np.ones(4), np.zeros(4)
    for n in range(9):
        s, t = s * r[p][:, n], t * r[p][:, n] + r[q][:, n]
    np.testing.assert_allclose(r[slope], s, rtol=1e-12)
    np.testing.assert_allclose(r[shift], t, rtol=1e-12)


def test_reductions_with_an_initial_value() -> None:
    a = te.placeholder((3, 5), name="a")
    k = te.reduce_axis((0, 5), "k")
    total = te.sum(a[0, k], axis=k)
    out = te.compute((3,), lambda i: Reduce(total.combiner, (a[i, k],), (k,), None, 0, (a[i, 0] * 10.0,)), name="out")
    r = run([a, out], "float64")
    x = r[a].astype("float64")
    np.testing.assert_allclose(r[out], x.sum(1) + x[:, 0] * 10, rtol=1e-12)


def test_reductions_whose_extent_varies() -> None:
    a = te.placeholder((6, 8), name="a")

    def prefix(i: te.Expr) -> te.Expr:
        k = te.reduce_axis((0, i + 2), "k")
        return te.sum(a[i, k], axis=k)

    out = te.compute((6,), prefix, name="prefix")
    r = run([a, out], "float64")
    want = [r[a][i, : i + 2].astype("float64").sum() for i in range(6)]
    np.testing.assert_allclose(r[out], want, rtol=1e-12)


@pytest.mark.parametrize("budget", [64, 1000, 1 << 21])
def test_chunks_do_not_change_the_result(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "BOX_ELEMENTS", budget)
    a, b, c = te.placeholder((5, 17), name="a"), te.placeholder((17, 11), name="b"), te.placeholder((11,), name="c")
    k, j = te.reduce_axis((0, 17), "k"), te.reduce_axis((0, 11), "j")
    product = te.compute((5, 11), lambda i, m: te.sum(a[i, k] * b[k, m] * c[m], axis=k), name="product")
    largest = te.compute((5,), lambda i: te.max(product[i, j] + c[j], axis=j), name="largest")
    index, _ = te.compute((5,), lambda i: te.argmax((j, product[i, j]), axis=j), name="index")
    r = run([a, b, c, product, largest, index], "float64")
    want = (r[a].astype("float64") @ r[b].astype("float64")) * r[c]
    np.testing.assert_allclose(r[product], want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(r[largest], (want + r[c]).max(1), rtol=1e-12)
    np.testing.assert_array_equal(r[index], want.argmax(1))


def test_threads_warn_and_raise_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many boxes are taken by several threads."""
    monkeypatch.setattr(reference, "BOX_ELEMENTS", 64)
    monkeypatch.setattr(reference.os, "cpu_count", lambda: 4)
    a = te.placeholder((40, 50), name="a")
    quotient = te.compute((40, 50), lambda i, j: a[i, j] / (a[i, j] - a[i, j]), name="quotient")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = run([a, quotient], "float64")
    np.testing.assert_array_equal(r[quotient], np.where(r[a] > 0, np.inf, -np.inf))
    beyond = te.compute((40, 50), lambda i, j: a[i + 1, j], name="beyond")
    with pytest.raises(te.TeError, match="a"):
        run([a, beyond], "float64")


def test_sums_with_axes_that_are_not_read() -> None:
    a = te.placeholder((3, 5), name="a")
    k, m = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 7), "m")
    out = te.compute((3, 2), lambda i, j: te.sum(a[i, k] * 2.0, axis=[k, m]), name="out")
    r = run([a, out], "float64")
    np.testing.assert_allclose(r[out], np.repeat(r[a].astype("float64").sum(1)[:, None] * 14, 2, 1), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("C1D", (2, 13, 6, 10, 3, 2, 1)),
        ("C2D", (2, 5, 6, 3, 4, 3, 2, 1)),
        ("GRP", (1, 4, 3, 8, 4, 3, 1, 1, 1, 4)),
        ("DIL", (1, 7, 6, 2, 3, 3, 1, 1, 2)),
        ("C3D", (1, 3, 4, 5, 2, 3, 3, 2, 1)),
        ("DEP", (2, 7, 5, 6, 3, 2, 1)),
        ("T2D", (1, 3, 2, 3, 2, 4, 2, 1)),
        ("CAP", (1, 3, 4, 2, 1, 3, 2, 1)),
        ("GMM", (3, 5, 4, 7)),
        ("NRM", (3, 5, 7)),
        ("SFM", (5, 7)),
        ("CBR", (2, 6, 5, 3, 4, 3, 2, 1)),
        ("TBG", (2, 5, 3, 4)),
    ],
)
def test_the_fast_paths_equal_a_plain_evaluation(name: str, args: tuple[int, ...]) -> None:
    """Point by point, with Python's own loops, on the benchmark operators."""
    tensors = OPERATORS[name](*args)
    arrays = random_inputs(tensors, np.random.default_rng(3))
    got = evaluate(tensors, arrays, "float64")[tensors[-1]]
    known: dict[te.Tensor, np.ndarray] = {t: a.astype("float64") for t, a in arrays.items()}
    for op in te.ComputeDAG(tensors).ops:
        if isinstance(op, te.ComputeOp):
            known[op.output()] = plain(op, known)
    np.testing.assert_allclose(got, known[tensors[-1]], rtol=1e-11, atol=1e-12)


def plain(op: te.ComputeOp, known: dict[te.Tensor, np.ndarray]) -> np.ndarray:
    body, out = op.body[0], np.full(op.shape, np.nan)
    evaluator = reference.Evaluator
    for point in itertools.product(*map(range, op.shape)):
        env = {v: np.array(x) for v, x in zip(op.axis, point, strict=True)}
        if op.reduction is None:
            out[point] = evaluator(0, env, known, "float64").value(body)
            continue
        acc = []
        for inner in itertools.product(*[range(int(v.extent)) for v in op.reduce_axis]):
            env |= {v: np.array(x) for v, x in zip(op.reduce_axis, inner, strict=True)}
            acc.append(evaluator(0, env, known, "float64").value(op.reduction.sources[0]))
        out[point] = np.sum(acc) if op.reduction.combiner.name == "sum" else np.max(acc)
    return out


def test_large_products() -> None:
    tensors = matmul(1024, 1024, 1024)
    arrays = random_inputs(tensors, RNG)
    got = evaluate(tensors, arrays)[tensors[-1]]
    np.testing.assert_allclose(got, arrays[tensors[0]] @ arrays[tensors[1]], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "sums", "most"),
    [("int8", "int32", 2**7), ("uint8", "int32", 2**8 - 1), ("int16", "int32", 2**15), ("int32", "int32", 2**31),
     ("int32", "int64", 2**20), ("int32", "int64", 2**31), ("int64", "int64", 2**62)],
)  # fmt: skip
def test_products_of_integers_are_exact_and_wrap(dtype: str, sums: str, most: int) -> None:
    """The least numbers among them; sums beyond what float64 has, and beyond their own dtype, too."""
    a, b = te.placeholder((13, 61), name="a", dtype=dtype), te.placeholder((61, 17), name="b", dtype=dtype)
    k = te.reduce_axis((0, 61), name="k")
    c = te.compute((13, 17), lambda i, j: te.sum(a[i, k].astype(sums) * b[k, j].astype(sums), axis=k), name="c")
    rng, least = np.random.default_rng(0), max(-most, np.iinfo(dtype).min)
    x, y = [rng.integers(least, min(most, np.iinfo(dtype).max), s, dtype, endpoint=True) for s in ((13, 61), (61, 17))]
    x[0], y[:, 0] = least, least
    exact, half = x.astype(object) @ y.astype(object), 2 ** (np.iinfo(sums).bits - 1)
    assert np.array_equal(evaluate([a, b, c], {a: x, b: y})[c], (exact + half) % (2 * half) - half)


def test_products_of_more_factors_are_products_of_matrices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of both operands, as bounds of rounding have them: factors of one operand meet before they are summed."""
    a, b = te.placeholder((31, 67), name="a"), te.placeholder((67, 29), name="b")
    k = te.reduce_axis((0, 67), name="k")
    c = te.compute((31, 29), lambda i, j: te.sum(a[i, k] * a[i, k] * b[k, j] * b[k, j], axis=k), name="c")
    products, multiplied = [], np.matmul
    monkeypatch.setattr(np, "matmul", lambda x, y: products.append((x.shape[-2:], y.shape[-2:])) or multiplied(x, y))
    arrays = random_inputs([a, b, c], RNG)
    got = evaluate([a, b, c], arrays, "float64")[c]
    np.testing.assert_allclose(got, np.einsum("ik,kj->ij", arrays[a] ** 2.0, arrays[b] ** 2.0), rtol=1e-5)
    assert products == [((31, 67), (67, 29))]


def test_the_tutorial_layer() -> None:
    tensors = conv2d_layer(1, 7, 7, 512, 512, 3, 3, 1, 1)
    arrays = random_inputs(tensors, RNG)
    result = evaluate(tensors, arrays, "float64")
    data, weight, bias = [arrays[t].astype("float64") for t in tensors[:3]]
    conv = conv2d_nchw_python(data, weight, 1, 1)
    np.testing.assert_allclose(result[tensors[-1]], np.maximum(conv + bias, 0), rtol=1e-9, atol=1e-11)


def test_convolutions_with_idle_divisions_contract_too() -> None:
    """`co // 256 * 256 + rc` with 256 filters does not vary along `co`: the read is a view, not a gather."""
    tensors = OPERATORS["C2D"](1, 14, 14, 256, 256, 3, 1, 1)
    arrays = random_inputs(tensors, RNG)
    padded = np.pad(arrays[tensors[0]].astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    want = np.einsum("nhwcyx,yxco->nhwo", views, arrays[tensors[1]], optimize=True)
    np.testing.assert_allclose(evaluate(tensors, arrays, "float64")[tensors[-1]], want, rtol=1e-9, atol=1e-9)


def test_inputs_are_checked() -> None:
    a = te.placeholder((3, 4), name="a")
    out = te.compute((3, 4), lambda i, j: a[i, j] + 1.0, name="out")
    with pytest.raises(te.InterpError, match="a: no array is given for this input"):
        evaluate([a, out], {})
    with pytest.raises(te.InterpError, match=r"a: the shape must be that of the tensor, got array=\(4, 3\)"):
        evaluate([a, out], {a: np.zeros((4, 3))})


def test_random_inputs_have_the_declared_types() -> None:
    kinds = ["float32", "float64", "float16", "int8", "uint8", "int32", "bool"]
    tensors = [te.placeholder((50,), k, name=k) for k in kinds]
    arrays = random_inputs(tensors, np.random.default_rng(0))
    for t in tensors:
        assert arrays[t].dtype == np.dtype(t.dtype) and arrays[t].shape == (50,)
        assert len(np.unique(arrays[t])) > 1
    assert np.abs(arrays[tensors[0]]).max() <= 1
