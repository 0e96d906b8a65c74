"""Arithmetic of the interpreter is that of the dtype, lane by lane."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from te_lite.expr import expr as ex
from te_lite.expr.expr import call, cast, const, if_then_else, logical_and, select
from te_lite.loops.stmt import ForKind, If, Store, seq
from tests.exact_division import each, quotient, remainder
from tests.te_lite.loops import (
    ALL_KINDS,
    SERIAL,
    VECTORIZED,
    buf,
    execute,
    loop,
    rand,
    refuses,
)

NUMBERS = {
    "int8": [-128, -7, -1, 1, 3, 100, 127],
    "int32": [-(2**31), -7, -1, 1, 3, 2**31 - 1],
    "float16": [-7.5, -1.0, 0.1, 3.0, 60000.0],
    "float32": [-7.5, -1e-3, 0.1, 3.0, 1e30],
    "float64": [-7.5, 0.1, 3.0],
}


def wrapped(value: int, dtype: str) -> int:
    bits = np.iinfo(dtype).bits
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def reference(op: str, a: float, b: float, dtype: str) -> float:
    if dtype.startswith("int"):
        exact = {
            "+": a + b, "-": a - b, "*": a * b, "//": a // b, "%": a % b, "min": min(a, b), "max": max(a, b),
            "/": abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        }[op]  # fmt: skip
        return wrapped(int(exact), dtype)
    t = np.dtype(dtype).type
    with np.errstate(all="ignore"):
        x, y = t(a), t(b)
        return {"+": x + y, "-": x - y, "*": x * y, "/": x / y, "//": quotient(a, b), "%": remainder(a, b),
                "min": min(x, y), "max": max(x, y)}[op]  # fmt: skip


@pytest.mark.parametrize("kind", [SERIAL, VECTORIZED])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%", "min", "max"])
def test_arithmetic_is_done_in_the_dtype(op: str, dtype: str, kind: ForKind, serial: str) -> None:
    pairs = np.array(list(itertools.product(NUMBERS[dtype], repeat=2))).astype(dtype)
    n = len(pairs)
    x, y, out = buf("x", n, dtype=dtype), buf("y", n, dtype=dtype), buf("out", n, dtype=dtype)
    body = loop(n, lambda i: Store(out, i, ex.Binary(op, x[i], y[i])), kind)
    (got,) = execute(body, [x, y, out], pairs[:, 0].copy(), pairs[:, 1].copy())
    want = np.array([reference(op, a.item(), b.item(), dtype) for a, b in pairs])
    if op == "//" and dtype.startswith("float"):  # beyond the whole numbers of the dtype it is rounded twice
        return np.testing.assert_allclose(got, each(quotient, *pairs.T), np.finfo(dtype).eps, 0)
    np.testing.assert_array_equal(got, want if op != "%" else want.astype(dtype))


@pytest.mark.parametrize("kind", [SERIAL, VECTORIZED])
def test_calls(kind: ForKind, rng: np.random.Generator, serial: str) -> None:
    def gelu(v: float) -> float:
        return math.erf(v) + 1 / (1 + math.exp(-v)) + 1 / math.sqrt(abs(v)) + math.pow(abs(v), 1.5) + round(v * 3)

    x, out = buf("x", 23, dtype="float64"), buf("out", 23, dtype="float64")
    data = rand(rng, 23, dtype="float64")

    def value(e: ex.Expr) -> ex.Expr:
        size = call("abs", e)
        smooth = call("erf", e) + call("sigmoid", e) + call("rsqrt", size)
        return smooth + call("pow", size, 1.5) + call("round", e * 3.0)

    (got,) = execute(loop(23, lambda i: Store(out, i, value(x[i])), kind), [x, out], data)
    np.testing.assert_allclose(got, [gelu(v) for v in data], rtol=1e-14)


@pytest.mark.parametrize("func", [f for f in ex.CALLS if f not in ("if_then_else", "pow", "isnan", *ex.BITS)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_float_calls_keep_the_dtype(func: str, dtype: str, rng: np.random.Generator) -> None:
    x, out = buf("x", 9, dtype=dtype), buf("out", 9, dtype=dtype)
    data = (rng.random(9) + {"asin": 0, "acos": 0, "atanh": 0, "acosh": 1}.get(func, 0.5)).astype(dtype)
    (got,) = execute(loop(9, lambda i: Store(out, i, call(func, x[i])), VECTORIZED), [x, out], data)
    arcs = {f: getattr(np, f.replace("a", "arc", 1)) for f in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}
    other = {**arcs, "round": np.rint, "rsqrt": lambda v: v**-0.5, "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
             "erf": np.vectorize(math.erf)}  # fmt: skip
    want = other.get(func, getattr(np, func, None))(data.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol={"float16": 4e-3, "float32": 1e-6, "float64": 1e-14}[dtype])


@pytest.mark.parametrize("func", ex.BITS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_operations_on_bits(func: str, dtype: str, rng: np.random.Generator) -> None:
    x, y, out = (buf(name, 9, dtype=dtype) for name in ("x", "y", "out"))
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, 9, dtype, endpoint=True) for _ in range(2))
    (got,) = execute(loop(9, lambda i: Store(out, i, call(func, x[i], y[i])), VECTORIZED), [x, y, out], a, b)
    np.testing.assert_array_equal(got, getattr(np, func.replace("bit", "bitwise"))(a, b))


def test_casts_truncate_and_wrap() -> None:
    x, i, j = buf("x", 4), buf("i", 4, dtype="int32"), buf("j", 4, dtype="int8")
    body = loop(4, lambda k: seq(Store(i, k, cast("int32", x[k])), Store(j, k, cast("int8", cast("int32", x[k])))))
    whole, small = execute(body, [x, i, j], np.array([-2.9, 2.9, 300.5, -0.5], np.float32))
    np.testing.assert_array_equal(whole, [-2, 2, 300, 0])
    np.testing.assert_array_equal(small, [-2, 2, 44, 0])


def test_float32_sums_round_after_every_step() -> None:
    x, out = buf("x", 3), buf("out", 1)
    body = Store(out, const(0), x[0] + x[1] + x[2])
    (got,) = execute(body, [x, out], np.array([1e8, 1.0, -1e8], np.float32))
    assert got[0] == 0.0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_if_then_else_protects_an_access_and_select_does_not(kind: ForKind, serial: str) -> None:
    x, out = buf("x", 5), buf("out", 9)
    inside = lambda i: logical_and(i >= 2, i < 7)  # noqa: E731
    data = np.arange(1, 6, dtype=np.float32)
    lazy = loop(9, lambda i: Store(out, i, if_then_else(inside(i), x[i - 2], 0.5)), kind)
    (got,) = execute(lazy, [x, out], data)
    np.testing.assert_array_equal(got, [0.5, 0.5, 1, 2, 3, 4, 5, 0.5, 0.5])
    eager = loop(9, lambda i: Store(out, i, select(inside(i), x[i - 2], 0.5)), kind)
    refuses("x: index out of bounds, got index=-2 size=5", eager, [x, out], data)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_if_masks_and_conjunction_is_lazy(kind: ForKind, serial: str) -> None:
    x, out = buf("x", 4), buf("out", 7)
    data = np.array([1, -1, 2, -2], np.float32)
    body = seq(
        loop(7, lambda i: Store(out, i, const(0.0)), kind),
        loop(7, lambda i: If(logical_and(i < 4, x[i] > 0.0), Store(out, i, x[i])), kind),
    )
    (got,) = execute(body, [x, out], data)
    np.testing.assert_array_equal(got, [1, 0, 2, 0, 0, 0, 0])
