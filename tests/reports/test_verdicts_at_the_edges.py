"""What the check of outputs must accept, and what it must refuse, where conversions, wrapping and overflow meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.measure.check import accepted_values, mismatch
from te_lite import topi
from te_lite.meaning.reference import evaluate


def verdict(body: Any, x: Any, y: Any, got: Any, dtype: str = "float32") -> str:
    """What is said of one element `got` of `body(x, y)`."""
    a, b = [te.placeholder((1,), dtype, n) for n in "ab"]
    out = te.compute((1,), lambda i: body(a[i], b[i]), "out")
    inputs = {a: np.array([x], dtype), b: np.array([y], dtype)}
    return mismatch(np.array([got], out.dtype), accepted_values(te.ComputeDAG([a, b, out]), inputs)[out])


MOST = 2**31 - 1
CASES: dict[str, tuple[Any, float, float, list[Any], list[Any]]] = {
    "bits": (lambda x, y: te.call("bit_and", (x * y).astype("int32"), te.const(255, "int32")), 10.0, 30.0, [44], []),
    "bits, second": (lambda x, y: te.call("bit_and", te.const(255, "int32"), (x * y).astype("int32")), 3.7, 10.0,
                     [36, 37], []),
    "int64 beyond its end": (lambda x, y: (x * y).astype("int64"), 1e20, 3.0, [2**63 - 1], [5]),
    "large int64": (lambda x, y: (x * y).astype("int64"), 2.0**62, 1.5, [3 * 2**61], [5]),
    "large uint64": (lambda x, y: (x * y).astype("uint64"), 2.0**62, 3.0, [3 * 2**62], [5]),
    "int32 beyond its end": (lambda x, y: (x * y).astype("int32"), 1e20, 3.0, [MOST], [-5, 0]),
    "int32 below its end": (lambda x, y: (x * y).astype("int32"), -1e20, 3.0, [-MOST - 1], [5]),
    "bool": (lambda x, y: (x * y).astype("bool"), 10.0, 3.0, [True], [False]),
    "bool of a difference": (lambda x, y: (x * y - x * y).astype("bool"), 10.3, 3.1, [False, True], []),
    "wrapping": (lambda x, y: (x * y).astype("int8") + te.const(1, "int8"), 12.7, 10.0, [-128, 127], []),
    "not a number": (lambda x, y: te.isnan(x * y - x * y * 0.5), 1e30, 1e30, [True, False], []),
    "a number": (lambda x, y: te.isnan(x * y), 3.0, 4.0, [False], [True]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_conversions(name: str) -> None:
    body, x, y, right, wrong = CASES[name]
    assert [verdict(body, x, y, got) for got in right] == [""] * len(right)
    assert "" not in [verdict(body, x, y, got) for got in wrong]


@pytest.mark.parametrize(
    ("dtype", "terms", "both"),
    [
        ("float8_e5m2", [61440.0, 2e-3, -1e-3, 0.0], (np.inf, 57344.0)),
        ("float8_e4m3fn", [464.0, 2e-5, -1e-5, 1e-5], (np.nan, 448.0)),
    ],
)
def test_a_sum_beside_the_end_of_a_small_float(dtype: str, terms: list[float], both: tuple[float, float]) -> None:
    x, k = te.placeholder((1, 4), name="x"), te.reduce_axis((0, 4), "k")
    out = te.compute((1,), lambda i: te.sum(x[i, k], axis=k).astype(dtype), "out")
    right = accepted_values(te.ComputeDAG([x, out]), {x: np.array([terms], "float32")})[out]
    assert [mismatch(np.array([v], dtype), right) for v in both] == ["", ""]
    far = accepted_values(te.ComputeDAG([x, out]), {x: np.array([[4e5, 1, 1, 1]], "float32")})[out]
    assert mismatch(np.array([both[1]], dtype), far) != "" and mismatch(np.array([both[0]], dtype), far) == ""


def test_a_conversion_that_is_written_is_kept() -> None:
    """One formula, one value: the product is rounded in a stage of its own, and within the sum."""
    x, y = [te.placeholder((1, 4), name=n) for n in "xy"]
    k = te.reduce_axis((0, 4), "k")
    within = te.compute((1,), lambda i: te.sum((x[i, k] * y[i, k]).astype("bfloat16"), axis=k), "within")
    stage = te.compute((1, 4), lambda i, j: (x[i, j] * y[i, j]).astype("bfloat16"), "stage")
    apart = te.compute((1,), lambda i: te.sum(stage[i, k], axis=k), "apart")
    inputs = {x: np.array([[1 + 2.0**-9, -1, 0, 0]], "float32"), y: np.ones((1, 4), "float32")}
    found = evaluate([within, apart], inputs)
    assert float(found[within][0]) == float(found[apart][0]) == 0.0


def test_a_sum_of_halves_is_read_as_floats() -> None:
    x, k = te.placeholder((1, 300), "bfloat16", "x"), te.reduce_axis((0, 300), "k")
    out = te.compute((1,), lambda i: te.sum(x[i, k], axis=k).astype("float32"), "out")
    assert float(evaluate([out], {x: np.ones((1, 300), "bfloat16")})[out][0]) == 300.0  # a bfloat16, too
    out = te.compute((1,), lambda i: te.sum(x[i, k], axis=k).astype("float32"), "out")
    assert [op.name for op in te.ComputeDAG([x, out]).ops] == ["x", "out.sum", "out"]


def test_a_product_that_overflows_on_the_way_may_be_anything() -> None:
    x, k = te.placeholder((2, 4), name="x"), te.reduce_axis((0, 4), "k")
    out = te.compute((2,), lambda i: te.prod(x[i, k], axis=k), "out")
    rows = np.array([[1e30, 1e30, 1e-30, 1e-30], [2, 3, 4, 5]], "float32")
    right = accepted_values(te.ComputeDAG([x, out]), {x: rows})[out]
    assert mismatch(np.array([np.inf, 120], "float32"), right) == ""
    assert mismatch(np.array([1, 120], "float32"), right) == ""
    assert mismatch(np.array([1, 120.01], "float32"), right) != ""


def test_halves_lose_nothing_as_tf32() -> None:
    a, b = te.placeholder((1, 64), "bfloat16", "a"), te.placeholder((64, 1), "bfloat16", "b")
    k = te.reduce_axis((0, 64), "k")
    out = te.compute((1, 1), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), "out")
    inputs = {a: np.ones((1, 64), "bfloat16"), b: np.ones((64, 1), "bfloat16")}
    strict, cut = [accepted_values(te.ComputeDAG([a, b, out]), inputs, p)[out] for p in ("strict", "tf32")]
    assert strict.low == cut.low and strict.high == cut.high


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_norms_take_their_arguments_by_name(dtype: str) -> None:
    x = te.placeholder((2, 8), dtype, "x")
    assert topi.nn.softmax(x=x).dtype == topi.nn.log_softmax(x=x, axis=-1).dtype == dtype
    assert topi.nn.rms_norm(data=x, weight=te.placeholder((8,), dtype, "w")).dtype == dtype
