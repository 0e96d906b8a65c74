"""What is accepted as right: honest programs in any order of additions, and no program with a wrong element."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import te_lite as te
from ansor.measure import check
from ansor.measure.check import Accepted, accepted_values, mismatch
from te_lite.meaning.interp import run
from te_lite.meaning.reference import random_inputs
from tests.nonempty import nonempty
from tests.oracle import poisoned
from tests.schedule_fuzz import Fuzzer
from tests.workloads import WORKLOADS, matmul

ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "forwards": lambda t: t,
    "backwards": lambda t: t[::-1],
    "shuffled": lambda t: np.random.default_rng(1).permutation(t),
    "odd ones first": lambda t: np.concatenate([t[1::2], t[::2]]),
}


def added_up(terms: np.ndarray, lanes: int) -> np.ndarray:
    """The sums of `terms` (the first axis is added up, in the dtype at hand), in `lanes` partial sums."""
    part = np.zeros((lanes, *terms.shape[1:]), terms.dtype)
    for start in range(0, len(terms), lanes):
        piece = terms[start : start + lanes]
        part[: len(piece)] += piece
    total = part[0]
    for one in part[1:]:
        total = total + one
    return total


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("n", [3, 65, 1000])
def test_sums_are_right_in_any_order(dtype, n):
    dag = te.ComputeDAG(matmul(12, 9, n, dtype))
    inputs = random_inputs(dag.tensors, np.random.default_rng(n))
    right = accepted_values(dag, inputs)[dag.outputs[0]]
    a, b = inputs[dag.tensors[0]], inputs[dag.tensors[1]]
    for name, order in ORDERS.items():
        terms = order(a.T[:, :, None] * b[:, None, :])
        for lanes in (1, 8):
            assert mismatch(added_up(terms, lanes), right) == "", (name, lanes)


@pytest.mark.parametrize("name", ["positive", "largest first", "cancelling"])
def test_sums_that_are_hard_on_float32(name):
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 1, (3, 4000)).astype("float32")
    if name == "largest first":
        x = -np.sort(-(x**20), axis=1)
    if name == "cancelling":
        x = np.concatenate([x, -x[:, ::-1]], axis=1)
    data = te.placeholder(x.shape, name="x")
    k = te.reduce_axis((0, x.shape[1]), "k")
    dag = te.ComputeDAG([data, te.compute((3,), lambda i: te.sum(data[i, k], axis=k), name="s")])
    right = accepted_values(dag, {data: x})[dag.outputs[0]]
    for order in ORDERS.values():
        assert mismatch(added_up(order(x.T), 1), right) == ""
    assert mismatch(added_up(x.T, 1) + np.float32(5e-5 * np.abs(x[0]).sum()), right) != ""


def outputs(dag: te.ComputeDAG, func: te.LoweredFunc, inputs: dict[te.Tensor, np.ndarray]) -> dict:
    arrays = [inputs[t].copy() if t in inputs else poisoned(t.shape, t.dtype) for t in dag.tensors]
    run(func, arrays)
    return {t: array for t, array in zip(dag.tensors, arrays, strict=True) if t not in inputs}


@pytest.mark.parametrize("name", WORKLOADS)
def test_random_schedules_are_right(name):
    rng = np.random.default_rng(5)
    dag = te.ComputeDAG(WORKLOADS[name]())
    inputs = random_inputs(dag.tensors, rng)
    right = accepted_values(dag, inputs)
    for _ in range(2):
        got = outputs(dag, Fuzzer(dag, rng, False).draw()[1], inputs)
        assert all(mismatch(array, right[t]) == "" for t, array in nonempty(got.items()))


Formula = Callable[[te.Expr], te.Expr]
FORMULAS: dict[str, Formula] = {
    "exp": lambda x: te.exp(x * 20.0), "log": lambda x: te.log(x * x + 0.001), "tanh": lambda x: te.tanh(x * 3.0),
    "sigmoid": lambda x: te.sigmoid(x * 9.0), "sqrt": lambda x: te.sqrt(te.abs(x)), "erf": lambda x: te.erf(x),
    "power": lambda x: te.power(x + 1.5, 2.5), "gelu": lambda x: x * 0.5 * (1.0 + te.erf(x * 0.70710678)),
    "quotient": lambda x: x / (te.abs(x) + 0.01), "waves": lambda x: te.sin(x * 5.0) * te.cos(x),
    "steps": lambda x: te.floor(x * 7.5) + te.round(x * 3.0), "centred": lambda x: (x + 100.0) - 100.0,
    "select": lambda x: te.if_then_else(x * 0.3 < 0.1, te.exp(x), x * 0.25),
}  # fmt: skip


def one_formula(formula: Formula, dtype: str, size: int = 4096) -> tuple[te.ComputeDAG, dict, np.ndarray, Accepted]:
    x = te.placeholder((size,), dtype, "x")
    dag = te.ComputeDAG([x, te.compute((size,), lambda i: te.cast(dtype, formula(x[i])), name="y")])
    inputs = random_inputs(dag.tensors, np.random.default_rng(3))
    with np.errstate(all="ignore"):
        got = outputs(dag, te.lower(dag.init_state, dag.tensors), inputs)[dag.outputs[0]]
    return dag, inputs, got, accepted_values(dag, inputs)[dag.outputs[0]]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_are_right(name, dtype):
    _, _, got, right = one_formula(FORMULAS[name], dtype, 512)
    assert mismatch(got, right) == ""


@pytest.mark.parametrize("name", ["exp", "tanh", "power", "gelu", "quotient", "waves", "sqrt", "select"])
def test_every_element_is_checked_however_small(name):
    """The figure of the old rule: of exp(20 x), 2,754 of 4,096 elements might be 0."""
    _, _, got, right = one_formula(FORMULAS[name], "float32")
    for fault in (lambda x: x * 0, lambda x: x * np.float32(1.01), lambda x: -x, lambda x: x * np.float32(np.nan)):
        wrong = fault(got)
        caught = ~((wrong >= right.low) & (wrong <= right.high))
        assert caught[np.abs(got) > 1e-30].all()
    small = int(np.argmin(np.where(np.abs(got) > 1e-30, np.abs(got), np.inf)))
    got[small] = 0
    assert mismatch(got, right).startswith(f"1 element is wrong of 4096, the worst at ({small},): 0.0, not ")


@pytest.mark.parametrize("name", WORKLOADS)
def test_faults_are_caught(name):
    rng = np.random.default_rng(7)
    dag = te.ComputeDAG(WORKLOADS[name]())
    inputs = random_inputs(dag.tensors, rng)
    right = accepted_values(dag, inputs)
    for t, good in nonempty(outputs(dag, te.lower(dag.init_state, dag.tensors), inputs).items()):
        live = np.argwhere(good != 0)
        for at in nonempty(map(tuple, live[rng.permutation(len(live))[:20]])):
            for fault in (0, good[at] * 1.01 if good.dtype.kind == "f" else good[at] + 1):
                wrong = good.copy()
                wrong[at] = fault
                assert mismatch(wrong, right[t]) != "", (t.name, at, good[at], fault)
        wrong = good.copy()
        wrong[..., good.shape[-1] // 2 :] = 0  # a tile that nobody has computed
        assert mismatch(wrong, right[t]) != ""


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_wrong_sum_is_caught(dtype):
    """In a long sum of float16, a hundredth of a small element is less than rounding is; a fifth is not."""
    dag = te.ComputeDAG(matmul(16, 16, 512, dtype))
    inputs = random_inputs(dag.tensors, np.random.default_rng(1))
    right = accepted_values(dag, inputs)[dag.outputs[0]]
    a, b = [inputs[t].astype("float64") for t in dag.tensors[:2]]
    exact = a @ b
    typical = np.abs(exact) > 0.5 * exact.std()
    for fault in (0.0, 0.99, 1.01) if dtype == "float32" else (0.0, 0.5):
        wrong = (exact * fault).astype(dtype)
        caught = ~((wrong >= right.low) & (wrong <= right.high))
        assert caught[typical].mean() > 0.99, fault
    term = (exact - np.outer(a[:, 5], b[5])).astype(dtype)
    assert mismatch(term, right) != "" if dtype == "float32" else True


def test_classes_of_values_are_compared():
    x = np.array([-1.0, 0.0, 1.0, 4.0, np.nan, np.inf, -np.inf], "float32")
    data = te.placeholder(x.shape, name="x")
    bodies = {
        "log": (te.log, np.log), "reciprocal": (lambda v: 1.0 / v, lambda v: 1 / v),
        "twice": (lambda v: v * 2.0, lambda v: v * 2), "copy": (lambda v: v, lambda v: v),
    }  # fmt: skip
    for name, (body, numpy) in bodies.items():
        dag = te.ComputeDAG([data, te.compute(x.shape, lambda i, f=body: f(data[i]), name="y")])
        right = accepted_values(dag, {data: x})[dag.outputs[0]]
        with np.errstate(all="ignore"):
            good = numpy(x)
        assert mismatch(good, right) == "", name
        for at in np.flatnonzero(~np.isfinite(good)):
            for other in (0.0, 1.0, np.nan, np.inf, -np.inf):
                if not np.array_equal(other, good[at], equal_nan=True):
                    wrong = good.copy()
                    wrong[at] = other
                    assert mismatch(wrong, right) != "", (name, at, other)


def test_shares_may_be_rounded_before_they_are_divided() -> None:
    """As attention in one kernel does; shares that are left out, or not of the whole, are seen."""
    x, v = te.placeholder((9, 200), name="x"), te.placeholder((200, 5), name="v", dtype="bfloat16")
    k, j = te.reduce_axis((0, 200), "k"), te.reduce_axis((0, 200), "j")
    terms = te.compute(x.shape, lambda *at: te.exp(x[at]), name="terms")
    whole = te.compute((9,), lambda i: te.sum(terms[i, k], axis=k), name="whole")
    shares = te.compute(x.shape, lambda i, k: te.cast("bfloat16", terms[i, k] / whole[i]), name="shares")
    out = te.compute(
        (9, 5), lambda i, o: te.sum(te.cast("float32", shares[i, j]) * te.cast("float32", v[j, o]), axis=j)
    )
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(9, 200)) * 4, rng.uniform(-1, 1, (200, 5)).astype(ml_dtypes.bfloat16)
    a = a.astype("float32")
    right = accepted_values(te.ComputeDAG([x, v, out]), {x: a, v: b})[out]
    e = np.exp(a.astype(float))
    rounded = e.astype("float32").astype(ml_dtypes.bfloat16).astype(float)
    early, wide = rounded @ b.astype(float), b.astype(float)
    assert not mismatch((early / e.sum(1, keepdims=True)).astype("float32"), right)
    assert mismatch((early / e[:, 1:].sum(1, keepdims=True) * 1.02).astype("float32"), right)
    assert mismatch(((e[:, :150] @ wide[:150]) / e.sum(1, keepdims=True)).astype("float32"), right)


def test_overflow_in_the_dtype_of_the_program_is_no_fault():
    _, _, got, right = one_formula(lambda x: te.exp(x * 100.0), "float32")
    assert np.isinf(got).any() and mismatch(got, right) == ""
    assert mismatch(np.where(np.isinf(got), np.float32(0), got), right) != ""


@pytest.mark.parametrize("seed", range(4))
def test_a_best_index_may_change_only_where_values_are_close(seed):
    x = te.placeholder((40, 9), name="x")
    noisy = te.compute((40, 9), lambda i, j: te.exp(x[i, j]) - 1.0, name="noisy")
    r = te.reduce_axis((0, 9), "k")
    index, value = te.compute((40,), lambda i: te.argmax((r, noisy[i, r]), axis=r), name="best")
    dag = te.ComputeDAG([x, index, value])
    given = np.random.default_rng(seed).uniform(-1, 1, (40, 9)).astype("float32")
    given[0, 3], given[0, 7] = 1.5, np.nextafter(np.float32(1.5), np.float32(2))
    right = accepted_values(dag, {x: given})
    got = np.argmax(given, axis=1).astype("int32")
    assert mismatch(got, right[index]) == ""
    got[0] = 3
    assert mismatch(got, right[index]) == ""
    got[1] = (got[1] + 1) % 9
    assert "1 element is wrong" in mismatch(got, right[index])


def test_integers_and_copies_are_exact():
    x = te.placeholder((6,), "int32", "x")
    y = te.placeholder((6,), name="y")
    thrice = te.compute((6,), lambda i: x[i] * 3, name="thrice")
    dag = te.ComputeDAG([x, y, thrice, te.compute((6,), lambda i: y[5 - i], name="turned")])
    given = {x: np.arange(6, dtype="int32"), y: np.linspace(0, 1, 6, dtype="float32")}
    right = accepted_values(dag, given)
    a, b = dag.outputs
    assert mismatch(given[x] * 3, right[a]) == "" and mismatch(given[y][::-1].copy(), right[b]) == ""
    assert mismatch(given[x] * 3 + 1, right[a]) != ""
    assert mismatch(np.nextafter(given[y][::-1], np.float32(2)), right[b]) != ""


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bounds_are_the_same_piece_by_piece(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    values = np.array([0.0, -0.0, 1.0, -3.5, 1e39, -1e5, np.inf, -np.inf, np.nan, 1e-46])
    reference = rng.choice(values, (23, 5, 7))
    error = np.abs(rng.choice(np.array([0.0, 1e-7, 0.5, np.inf, np.nan]), (7, 5, 23)).T)
    whole = check.accepted(reference, error, dtype)
    monkeypatch.setattr(check, "PIECE", 11)
    pieces = check.accepted(reference, error, dtype)
    assert whole.nan is not None and pieces.nan is not None
    for a, b in ((whole.low, pieces.low), (whole.high, pieces.high), (whole.nan, pieces.nan)):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    assert check.accepted(np.ones((5, 9)), np.zeros((5, 9)), dtype).nan is None
