"""Integer arithmetic that C leaves undefined is defined, and the same on every backend (docs/arithmetic.md).

The oracle computes with Python's integers and shares nothing with the packages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import te_lite as te
from te_lite.expr.expr import Const, Expr, Var, binary, call, cast, const
from te_lite.topi.broadcast import mod
from tests.arithmetic.backends import results
from tests.nonempty import nonempty

BITS = {f"{sign}int{bits}": bits for bits in (8, 16, 32, 64) for sign in ("", "u")}


def ends(dtype: str) -> tuple[int, int]:
    bits = BITS[dtype]
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wrap(value: int, dtype: str) -> int:
    low, _ = ends(dtype)
    return (value - low) % 2 ** BITS[dtype] + low


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def power(a: int, b: int) -> int:
    if b < 0:
        return 0 if a == 0 else math.trunc(Fraction(1) / Fraction(a) ** min(-b, 64 + b % 2))
    return int(pow(a, b, 2**64))


WANT: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: 0 if b == 0 else a // b,
    "%": lambda a, b: 0 if b == 0 else a % b,
    "/": truncated,
    "truncated mod": lambda a, b: 0 if b == 0 else a - truncated(a, b) * b,
    "min": min,
    "max": max,
    "pow": power,
    "abs": lambda a, b: abs(a),
    "neg": lambda a, b: -a,
    "sum of products": lambda a, b: a * b + a * a + b,
}


def expression(op: str, a: Expr, b: Expr) -> Expr:
    match op:
        case "truncated mod":
            return mod(a, b)
        case "pow":
            return call("pow", a, b)
        case "abs":
            return call("abs", a)
        case "neg":
            return binary("-", const(0, a.dtype), a)
        case "sum of products":
            return a * b + a * a + b
    return binary(op, a, b)


def pairs(dtype: str) -> list[tuple[int, int]]:
    low, high = ends(dtype)
    numbers = {low, low + 1, -7, -2, -1, 0, 1, 2, 3, 100, high // 3, high - 1, high}
    return list(itertools.product(sorted(n for n in numbers if low <= n <= high), repeat=2))


def test_arithmetic_of_every_integer_dtype() -> None:
    inputs, outputs, want = {}, [], []
    for dtype in BITS:
        given = pairs(dtype)
        a, b = [te.placeholder((len(given),), dtype, name=f"{n}_{dtype}") for n in "ab"]
        inputs |= {t: np.array([p[k] for p in given], dtype) for k, t in enumerate((a, b))}
        body = lambda i, a=a, b=b: tuple([expression(op, a[i], b[i]) for op in WANT])  # noqa: E731
        outputs += te.compute((len(given),), body, name=f"t_{dtype}")
        want += [np.array([wrap(f(x, y), dtype) for x, y in given], dtype) for f in WANT.values()]
    for backend, found in nonempty(results(outputs, inputs).items()):
        for k, (got, right) in nonempty(enumerate(zip(found, want, strict=True))):
            at = f"{list(BITS)[k // len(WANT)]} {list(WANT)[k % len(WANT)]}"
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, {at}")


def test_divisions_by_constants_that_trap() -> None:
    """A constant divisor of 0 or -1, and one that only folding makes 0."""
    x = te.placeholder((8,), "int32", name="x")
    given = np.array([-(2**31), -(2**31) + 1, -7, -1, 0, 1, 7, 2**31 - 1], "int32")
    cases = [(op, d) for op in ("//", "%", "/") for d in (0, -1, -2, -(2**31), 7)]
    outputs = te.compute((8,), lambda i: tuple([binary(op, x[i], const(d, "int32")) for op, d in cases]), name="t")
    folded = te.compute((8, 2), lambda i, j: tuple([binary(op, x[i], j) for op in ("//", "%", "/")]), name="u")
    want = [np.array([wrap(WANT[op](int(v), d), "int32") for v in given], "int32") for op, d in cases]
    want += [np.array([[wrap(WANT[op](int(v), d), "int32") for d in (0, 1)] for v in given]) for op in ("//", "%", "/")]
    for backend, found in nonempty(results([*outputs, *folded], {x: given}).items()):
        for got, right in nonempty(zip(found, want, strict=True)):
            np.testing.assert_array_equal(got, right, err_msg=backend)


def test_powers_meet_in_one_dtype() -> None:
    """The wider dtype of base and exponent is that of the power; a number takes the dtype of the other."""
    given = {d: te.placeholder((4,), d, name=d) for d in ("int8", "int32", "float16", "float32", "float64")}
    values = {d: np.array([2, 3, -1, 5], d) for d in given} | {"float32": np.array([0.5, -1, 3, 1.5], "float32")}
    mixed = [("int32", "float32", "float32"), ("float32", "int32", "float32"), ("int8", "int32", "int32"),
             ("float16", "float32", "float32"), ("float32", "float64", "float64")]  # fmt: skip
    outputs = [te.compute((4,), lambda i, a=a, b=b: te.power(given[a][i], given[b][i])) for a, b, _ in mixed]
    outputs += [te.compute((4,), lambda i: te.power(given["float64"][i] + 4, 0.1))]
    want = [values[a].astype("float64") ** values[b].astype("float64") for a, b, _ in mixed]
    want += [(values["float64"] + 4) ** 0.1]
    dtypes = [*(dtype for _, _, dtype in mixed), "float64"]
    for backend, found in nonempty(results(outputs, {t: values[d] for d, t in given.items()}).items()):
        for got, right, dtype in nonempty(zip(found, want, dtypes, strict=True)):
            assert got.dtype == dtype, backend
            np.testing.assert_allclose(got, right, 1e-15 if dtype == "float64" else 1e-6, err_msg=backend)


@pytest.mark.parametrize("op", ["//", "%", "/"])
@pytest.mark.parametrize("dtype", BITS)
def test_a_fold_by_zero_is_zero(op: str, dtype: str) -> None:
    folded = [binary(op, const(5, dtype), const(0, dtype))]
    folded += [binary(op, Var("i", dtype), const(0, dtype))] if dtype in ("int32", "int64") else []
    for zero in nonempty(folded):
        assert isinstance(zero, Const) and zero.value == 0 and zero.dtype == dtype


def saturated(x: float, dtype: str) -> int:
    low, high = ends(dtype)
    return 0 if math.isnan(x) else low if x <= low else high if x >= high else math.trunc(x)


def test_floats_to_integers() -> None:
    inputs, outputs, want = {}, [], []
    for source in ("float16", "float32", "float64"):
        numbers = {0.0, -0.5, 0.99, -1.0, 1.5, -1.5, 254.9, 1e9, math.inf, math.nan}
        numbers |= {e + d for t in BITS for e in ends(t) for d in (-1.0, -0.5, 0.0, 0.5, 1.0)} | {6e18, 1e19, 3e38}
        with np.errstate(over="ignore"):
            given = np.array(sorted([*numbers, *[-n for n in numbers]], key=str), source)
        x = te.placeholder((len(given),), source, name=f"x_{source}")
        inputs[x] = given
        body = lambda i, x=x: tuple([cast(dtype, x[i]) for dtype in BITS])  # noqa: E731
        outputs += te.compute((len(given),), body, name=f"t_{source}")
        want += [np.array([saturated(float(v), dtype) for v in given], dtype) for dtype in BITS]
    for backend, found in nonempty(results(outputs, inputs).items()):
        for k, (got, right) in nonempty(enumerate(zip(found, want, strict=True))):
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, output {k}")


def test_axes_of_64_bits_at_the_ends() -> None:
    """Arithmetic of an axis that was cast to int64, and what is compared with it, wraps as other values do."""
    low, high = ends("int64")
    numbers = (low, low + 1, low + 7, -1, 0, 3, high - 7, high)
    cases = [(op, c, swap) for op in ("+", "-", "*", "//", "%") for c in numbers for swap in (False, True)]

    def value(i: Expr, op: str, c: int, swap: bool) -> Expr:
        a, b = cast("int64", i), const(c, "int64")
        return binary(op, b, a) if swap else binary(op, a, b)

    def body(i: Expr) -> tuple[Expr, ...]:
        return tuple(
            [x for case in cases for x in (value(i, *case), cast("int64", value(i, *case) < const(5, "int64")))]
        )

    outputs = te.compute((8,), body, name="t")
    want = []
    for op, c, swap in cases:
        numbers_of = [wrap(WANT[op](*((c, i) if swap else (i, c))), "int64") for i in range(8)]
        want += [np.array(numbers_of), np.array([n < 5 for n in numbers_of], "int64")]
    for backend, found in nonempty(results(outputs, {}).items()):
        for got, right, at in nonempty(zip(found, want, [x for case in cases for x in (case, case)], strict=True)):
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, {at}")


def test_integers_to_integers_wrap() -> None:
    inputs, outputs, want = {}, [], []
    for source in BITS:
        given = np.array(sorted({p[0] for p in pairs(source)}), source)
        x = te.placeholder((len(given),), source, name=f"x_{source}")
        inputs[x] = given
        others = [dtype for dtype in BITS if dtype != source]
        body = lambda i, x=x, others=others: tuple([cast(dtype, x[i]) for dtype in others])  # noqa: E731
        outputs += te.compute((len(given),), body, name=f"t_{source}")
        want += [np.array([wrap(int(v), dtype) for v in given], dtype) for dtype in others]
    for backend, found in nonempty(results(outputs, inputs, ("reference", "interpreter", "C vectors")).items()):
        for got, right in nonempty(zip(found, want, strict=True)):
            np.testing.assert_array_equal(got, right, err_msg=backend)
