"""Stored dtypes (bfloat16, floats of 8 and 4 bits, integers of 4 bits) are the same on every backend.

The oracle knows a format by its exponents and mantissas only, written here from the papers and ONNX's pages: it lists
all values of a format and finds the nearest one in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import te_lite as te
from te_lite.expr.expr import binary, call, cast, compare, const, select
from tests.arithmetic.backends import results
from tests.nonempty import nonempty

# bits of exponent and mantissa, bias, infinity and NaN as bits without a sign (None: there is none), one zero only
FORMATS: dict[str, tuple[int, int, int, int | None, int | None, bool]] = {
    "bfloat16": (8, 7, 127, 0x7F80, 0x7FC0, False),
    "float8_e4m3fn": (4, 3, 7, None, 0x7F, False),
    "float8_e4m3fnuz": (4, 3, 8, None, 0x80, True),
    "float8_e5m2": (5, 2, 15, 0x7C, 0x7E, False),
    "float8_e5m2fnuz": (5, 2, 16, None, 0x80, True),
    "float4_e2m1fn": (2, 1, 1, None, None, False),
}


def values(dtype: str) -> np.ndarray:
    """All numbers of a format that are not negative, in the order of their bits; NaN where the bits are no number."""
    exponents, mantissa, bias, infinity, nan, one_zero = FORMATS[dtype]
    bits = np.arange(1 << (exponents + mantissa))
    e, m = bits >> mantissa, bits & ((1 << mantissa) - 1)
    normal = np.ldexp(1 + m / (1 << mantissa), (e - bias).astype(int))
    out = np.where(e > 0, normal, np.ldexp(m / (1 << mantissa), 1 - bias))
    end = infinity if infinity is not None else nan if nan is not None and not one_zero else len(bits)
    out[end:] = np.nan
    if infinity is not None:
        out[infinity] = math.inf
    return out


def decoded(dtype: str, bits: np.ndarray) -> np.ndarray:
    """What bits mean."""
    table = values(dtype)
    size = np.where(bits >= len(table), -1.0, 1.0) * table[bits % len(table)]
    return np.where(bits == 0x80, np.nan, size) if FORMATS[dtype][5] else size


def encoded(dtype: str, x: np.ndarray) -> np.ndarray:
    """The nearest value, of two the even one; beyond the largest: infinity, else NaN, else the largest."""
    _, _, _, infinity, nan, one_zero = FORMATS[dtype]
    table = values(dtype)
    finite = table[np.isfinite(table)]
    steps = np.append(finite, 2 * finite[-1] - finite[-2])  # one more, which is what is too large
    size = np.abs(x.astype(np.float64))
    at = np.searchsorted(steps, np.where(np.isfinite(size), size, 0), side="left").clip(1, len(steps) - 1)
    up, down = steps[at] - size, size - steps[at - 1]
    k = np.where((up < down) | ((up == down) & (at % 2 == 0)), at, at - 1)
    above = infinity if infinity is not None else nan if nan is not None else len(finite) - 1
    k = np.where((k == len(finite)) | (size > steps[-1]), above, k)
    sign = np.where(np.signbit(x), len(table), 0)
    k = np.where((k == 0) & one_zero, 0, np.where(k == 0x80, 0x80, k + sign)) if one_zero else k + sign
    return np.where(np.isnan(x), len(table) if nan is None else nan, k)


def drawn(dtype: str, count: int = 20_000) -> np.ndarray:
    """Floats at and around the values of a format, their middles, and far away."""
    rng = np.random.default_rng(7)
    exact = values(dtype)[np.isfinite(values(dtype))].astype(np.float32)
    middles = exact[1:] / 2 + exact[:-1] / 2
    with np.errstate(over="ignore"):
        near = np.concatenate([exact, middles, [exact[-1] / 2 * 2.06, exact[-1] / 2 * 2.14, 3e38, 1e-45, 0.0]]).astype(
            np.float32
        )
    near = rng.choice(near, count) if len(near) > count else near
    near = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))])
    far = np.exp(rng.uniform(-80, 80, 500)).astype(np.float32)
    both = np.concatenate([near, far, [np.inf, np.nan]]).astype(np.float32)
    return np.concatenate([both, -both])


def same(got: np.ndarray, want: np.ndarray, dtype: str) -> bool:
    """The same bits, where any NaN is as good as another, and any zero in a format without NaN."""
    if FORMATS[dtype][4] is None:
        return bool((decoded(dtype, got) == decoded(dtype, want)).all())
    number = ~np.isnan(decoded(dtype, want))
    return bool((got[number] == want[number]).all() and np.isnan(decoded(dtype, got[~number])).all())


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_value_is_read_and_written(dtype: str) -> None:
    unsigned = np.uint16 if dtype == "bfloat16" else np.uint8
    given = drawn(dtype)
    bits = np.arange(2 * len(values(dtype))).astype(unsigned)
    x, b = te.placeholder(given.shape, "float32", name="x"), te.placeholder(bits.shape, dtype, name="b")
    outputs = [te.compute(given.shape, lambda i: cast(dtype, x[i]), name="write"),
               te.compute(bits.shape, lambda i: cast("float32", b[i]), name="read"),
               te.compute(bits.shape, lambda i: b[len(bits) - 1 - i], name="move")]  # fmt: skip
    for backend, (written, read, moved) in nonempty(results(outputs, {x: given, b: bits.view(dtype)}).items()):
        assert same(written.view(unsigned), encoded(dtype, given), dtype), backend
        np.testing.assert_array_equal(read, decoded(dtype, bits).astype(np.float32), err_msg=backend)
        np.testing.assert_array_equal(moved.view(unsigned), bits[::-1], err_msg=backend)


OPERATIONS: dict[str, tuple[Callable[[te.Expr, te.Expr], te.Expr], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "sum": (lambda a, b: binary("+", a, b), np.add),
    "product": (lambda a, b: binary("*", a, b), np.multiply),
    "quotient": (lambda a, b: binary("/", a, b), np.divide),
    "largest": (lambda a, b: binary("max", a, b), np.maximum),
    "two steps": (lambda a, b: binary("+", binary("*", a, b), const(1, a.dtype)), lambda a, b: a * b),
    "root": (lambda a, b: call("sqrt", call("abs", a)), lambda a, b: np.sqrt(np.abs(a))),
    "choice": (lambda a, b: select(compare("<", a, b), a, b), lambda a, b: np.where(a < b, a, b)),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "float4_e2m1fn"])
def test_every_operation_is_rounded_once(dtype: str) -> None:
    rng = np.random.default_rng(3)
    unsigned = np.uint16 if dtype == "bfloat16" else np.uint8
    bits = rng.integers(0, 2 * len(values(dtype)), (2, 600)).astype(unsigned)
    a, b = [te.placeholder((600,), dtype, name=n) for n in "ab"]
    x, y = [decoded(dtype, row).astype(np.float32) for row in bits]
    outputs = te.compute((600,), lambda i: tuple([f(a[i], b[i]) for f, _ in OPERATIONS.values()]), name="t")
    with np.errstate(all="ignore"):
        want = {name: encoded(dtype, f(x, y).astype(np.float32)) for name, (_, f) in OPERATIONS.items()}
        want["two steps"] = encoded(dtype, decoded(dtype, want["two steps"]).astype(np.float32) + np.float32(1))
    for backend, found in nonempty(results(outputs, {a: bits[0].view(dtype), b: bits[1].view(dtype)}).items()):
        for got, (name, right) in nonempty(zip(found, want.items(), strict=True)):
            assert same(got.view(unsigned), right, dtype), (backend, name)


def four(value: int, signed: bool) -> int:
    return (value + 8) % 16 - 8 if signed else value % 16


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_integers_of_four_bits(dtype: str) -> None:
    signed = dtype == "int4"
    every = np.arange(-8, 8) if signed else np.arange(16)
    p, q = [grid.reshape(-1).astype(np.int8) for grid in np.meshgrid(every, every)]
    wide = np.array([-300, -129, -9, -8, -1, 0, 7, 8, 15, 16, 127, 300], np.int32)
    real = np.array([-1e9, -8.9, -8.0, -0.9, 0.9, 6.5, 7.9, 15.9, 16, 300, math.inf, math.nan], np.float32)
    a, b = [te.placeholder((256,), dtype, name=n) for n in "ab"]
    w, r = te.placeholder((12,), "int32", name="w"), te.placeholder((12,), "float32", name="r")
    ops = ("+", "-", "*", "min", "max")
    outputs = [*te.compute((256,), lambda i: tuple([binary(op, a[i], b[i]) for op in ops]), name="t"),
               te.compute((12,), lambda i: cast(dtype, w[i]), name="wrapped"),
               te.compute((12,), lambda i: cast(dtype, r[i]), name="ended"),
               te.compute((256,), lambda i: cast("float16", a[i]), name="back")]  # fmt: skip
    exact = {"+": p + q, "-": p - q, "*": p * q, "min": np.minimum(p, q), "max": np.maximum(p, q)}
    low, high = (-8, 7) if signed else (0, 15)
    nearest = [0 if math.isnan(v) else int(min(max(v, low), high)) for v in real.tolist()]
    want = [np.array([four(int(v), signed) for v in exact[op]]) for op in ops]
    want += [np.array([four(int(v), signed) for v in wide]), np.array(nearest), p]
    inputs = {a: p.astype(dtype), b: q.astype(dtype), w: wide, r: real}
    for backend, found in nonempty(results(outputs, inputs).items()):
        for k, (got, right) in nonempty(enumerate(zip(found, want, strict=True))):
            np.testing.assert_array_equal(got.astype(np.int64), right, err_msg=f"{backend}, output {k}")


def test_the_dtypes_are_those_of_the_package() -> None:
    """NumPy knows the names, which is what the arrays of a user have."""
    for name in (*FORMATS, "int4", "uint4"):
        assert np.dtype(name) == np.dtype(getattr(ml_dtypes, name))
