"""Index arithmetic has the values of Python's integers on every backend, whatever part of it exceeds 32 bits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_cuda import EmitError, emit
from te_lite.errors import LowerError
from te_lite.expr.expr import Const, Expr, Var, binary, cast, compare, const, select
from te_lite.loops.stmt import Buffer, For, ForKind, LoweredFunc, Store, seq
from te_lite.loops.width import Widths
from te_lite.meaning import interp
from tests.arithmetic.backends import USUAL, results
from tests.arithmetic.test_integers import WANT, wrap
from tests.nonempty import nonempty

Point = dict[str, int]
Value = Callable[[Point], int]
CONSTANTS = (0, 1, -1, 2, 3, 7, -5, 64, 46341, 65536, 100000, -100003, 2**31 - 1, 2**31, -(2**31), 2**33 + 1)
MOST = 2**62


def drawn(rng: random.Random, axes: dict[str, Expr], depth: int) -> tuple[Expr, Value]:
    """An index expression, and what it means in Python."""
    if depth == 0 or rng.random() < 0.1:
        if rng.random() < 0.6:
            name = rng.choice(list(axes))
            return axes[name], lambda p: p[name]
        c = rng.choice(CONSTANTS)
        return Const(c), lambda p: c
    (a, f), (b, g) = drawn(rng, axes, depth - 1), drawn(rng, axes, depth - 1)
    op = rng.choice(["+", "-", "*", "*", "//", "%", "/", "min", "max", "select"])
    if op == "select":
        return select(compare("<", a, b), a, b), lambda p: min(f(p), g(p))
    return binary(op, a, b), lambda p: WANT[op](f(p), g(p))


def small(e: Expr, extents: dict[Any, int], usual: bool) -> bool:
    """All of `e` fits 64 bits by far; part of it does not fit 32 bits, or it is `usual`."""
    widths = Widths({v: (0, n - 1) for v, n in extents.items()})
    try:
        low, high = widths.range(e)[0]
    except LowerError:
        return False
    return low > -MOST and high < MOST and widths.range(e)[1] and (usual or widths.wide(e) is not e)


MORE = [pytest.param(seed, 60, marks=pytest.mark.slow) for seed in range(1, 21)]


@pytest.mark.parametrize(("seed", "count"), [(0, 24), *MORE])
def test_drawn_index_expressions(seed: int, count: int) -> None:
    rng, shape = random.Random(seed), (3, 16)
    values: list[Value] = []

    def body(i: Var, j: Var) -> tuple[Expr, ...]:
        out: list[Expr] = []
        while len(out) < count:
            e, f = drawn(rng, {"i": i * 40000 + 19999, "j": j * 6001 - 31}, rng.choice([1, 2, 2, 3, 3]))
            if e.dtype == "int32" and small(e, {i: 3, j: 16}, usual=len(out) % 8 < 2):
                out.append(cast("int64", e) if len(out) % 2 else e)
                values.append(f if len(out) % 2 == 0 else lambda p, f=f: wrap(f(p), "int32"))  # type: ignore[misc]
        return tuple(out)

    outputs = te.compute(shape, body, name="t")
    points = [[{"i": i * 40000 + 19999, "j": j * 6001 - 31} for j in range(16)] for i in range(3)]
    want = [np.array([[f(p) for p in row] for row in points], t.dtype) for f, t in zip(values, outputs, strict=True)]
    assert sum(bool((abs(w) >= 2**31).any()) for w in want) >= count // 10
    backends = (*USUAL, "C unrolled") if seed else USUAL
    for backend, found in results(outputs, {}, backends).items():
        for t, got, right in zip(outputs, found, want, strict=True):
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, {t.op.body[t.value_index]}")


def test_reads_through_large_products() -> None:
    """The issue's index, and relatives: squares, a product of two axes, a remainder of a product, data in between."""
    n, m = 512, 64
    x, k = te.placeholder((m,), "float32", name="x"), te.placeholder((n,), "int32", name="k")
    forms: list[tuple[Callable[[Any], Any], Callable[[int], int]]] = [
        (lambda i: (i * 195 * (i * 195)) // 156250000, lambda i: (i * 195) ** 2 // 156250000),
        (lambda i: (i * 10**7 * 300 - 1) % 64, lambda i: (i * 10**7 * 300 - 1) % 64),
        (lambda i: (i * 4210753 + 2**31) // 2**26 % 64, lambda i: (i * 4210753 + 2**31) // 2**26 % 64),
        (lambda i: te.minimum(i * 50000000, 63), lambda i: min(i * 50000000, 63)),
        (lambda i: (511 - i) * 123456789 // 10**9, lambda i: (511 - i) * 123456789 // 10**9),
    ]
    body = lambda i: tuple([x[f(i)] for f, _ in forms] + [x[te.floormod(k[i] * 65536, 64)]])  # noqa: E731
    outputs = te.compute((n,), body, name="t")
    given, keys = np.arange(m, dtype="float32") + 0.5, np.arange(n, dtype="int32") * 9973
    want = [given[[g(i) for i in range(n)]] for _, g in forms]
    want.append(given[[wrap(int(key) * 65536, "int32") % 64 for key in keys]])
    for backend, found in nonempty(results(outputs, {x: given, k: keys}).items()):
        for number, (got, right) in nonempty(enumerate(zip(found, want, strict=True))):
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, form {number}")


def test_counters_are_operands_of_data_arithmetic() -> None:
    """What wraps around in 32 bits does so beside loop variables, which have 64 bits in C."""
    n, rng = 96, random.Random(7)
    k = te.placeholder((n,), "int32", name="k")
    keys = np.array([rng.choice([2**31 - 1, -(2**31), rng.randrange(-(2**31), 2**31)]) for _ in range(n)], "int32")
    forms: list[tuple[Callable[[Any], Any], Callable[[int, int], int | float]]] = [
        (lambda i: (k[i] + i * 7) // 3, lambda i, x: wrap(x + i * 7, "int32") // 3),
        (lambda i: te.if_then_else(k[i] > i, i, k[i] - i) * 65537 % 1000,
         lambda i, x: wrap((i if x > i else wrap(x - i, "int32")) * 65537, "int32") % 1000),
        (lambda i: te.maximum(k[i], i * 3 - 50) // 2, lambda i, x: max(x, i * 3 - 50) // 2),
        (lambda i: (k[i] * i).astype("float64"), lambda i, x: float(wrap(x * i, "int32"))),
        (lambda i: te.if_then_else(k[i] + i < 0, i, -i), lambda i, x: i if wrap(x + i, "int32") < 0 else -i),
        (lambda i: (i * 40000000).astype("float32") + k[i], lambda i, x: np.float32(i * 40000000) + np.float32(x)),
    ]  # fmt: skip
    outputs = te.compute((n,), lambda i: tuple([f(i) for f, _ in forms]), name="t")
    points = list(enumerate(map(int, keys)))
    want = [np.array([g(*p) for p in points], t.dtype) for (_, g), t in zip(forms, outputs, strict=True)]
    for backend, found in nonempty(results(outputs, {k: keys}, (*USUAL, "C unrolled")).items()):
        for number, (got, right) in nonempty(enumerate(zip(found, want, strict=True))):
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, form {number}")


def test_counters_are_converted_to_floats_from_32_bits() -> None:
    """Vectors of 64 bits take far longer, or have no conversion; what does not fit 32 bits is converted as it is."""
    y = te.compute((96,), lambda i: i.astype("float32") + (i * 3).astype("float32"), name="y")
    wide = te.compute((96,), lambda i: (i * 2**27).astype("float32"), name="wide")
    text = codegen_c.emit(te.lower(te.create_schedule([y.op, wide.op]), [y, wide]))
    assert "(float)(int32_t)i" in text and "(float)(int32_t)(i * 3)" in text and "(float)((int64_t)i" in text


def copy_of(extents: tuple[int, ...], fuse: bool) -> te.LoweredFunc:
    x = te.placeholder(extents, "int8", name="x")
    y = te.compute(extents, lambda *i: x[i] + 1, name="y")
    s = te.create_schedule(y.op)
    if fuse:
        s[y].fuse(*s[y].op.axis)
    return te.lower(s, [x, y])


@pytest.mark.parametrize(("extents", "fuse", "wide"), [
    ((46341, 46341), True, True), ((46340, 46341), True, False), ((46341, 46341), False, True),
    ((2, 2**30 + 1), True, True), ((2**31 - 1,), False, False), ((2**31 + 1,), False, True),
    ((3, 5, 2**28), True, True),
])  # fmt: skip
def test_the_text_of_loops_and_indices(extents: tuple[int, ...], fuse: bool, wide: bool) -> None:
    text = codegen_c.emit(copy_of(extents, fuse)).split("seconds")[0]
    assert "for (int64_t " in text and "for (int " not in text and ("(int64_t)" in text) == wide


def test_lanes_of_a_grid_over_large_arrays() -> None:
    x = te.placeholder((2**33,), "int8", name="x")
    y = te.compute((2**33,), lambda i: x[i], name="y")
    s = te.create_schedule(y.op)
    outer, inner = s[y].split(y.op.axis[0], 1024)
    s[y].bind(outer, te.thread_axis("blockIdx.x"))
    s[y].bind(inner, te.thread_axis("threadIdx.x"))
    source = emit(te.lower(s, [x, y])).source
    assert "y[(long long)(int)blockIdx.x * 1024LL + (long long)(int)threadIdx.x]" in source
    s = te.create_schedule(y.op)
    s[y].bind(s[y].split(y.op.axis[0], 2)[0], te.thread_axis("blockIdx.x"))
    with pytest.raises(EmitError, match=r"blockIdx\.x: no device has more than 2147483647 along it"):
        emit(te.lower(s, [x, y]))


def test_what_does_not_fit_64_bits_is_refused() -> None:
    i, out = Var("i"), Buffer("out", "int64", (8,))
    e = cast("int64", i * (2**40) * (2**40))
    for body in (For(i, 8, ForKind.SERIAL, Store(out, i, e)), For(i, 2**64, ForKind.SERIAL, Store(out, i % 8, e))):
        func = LoweredFunc("f", (out,), body)
        for use in (codegen_c.emit, emit, lambda f: interp.run(f, [np.zeros(8, "int64")])):
            with pytest.raises(LowerError, match=r"fit 64 bits|counts in 64 bits"):
                use(func)


def test_data_counts_in_64_bits_where_the_array_is_large() -> None:
    """Row numbers are int32, elements are more."""
    x, rows = te.placeholder((2**20, 2**12), "int8", name="x"), te.placeholder((4,), "int32", name="rows")
    y = te.compute((4, 2**12), lambda i, j: x[te.minimum(te.maximum(rows[i], 0), 2**20 - 1), j], name="y")
    text = codegen_c.emit(te.lower(te.create_schedule(y.op)))
    assert re.search(r"x\[\(int64_t\)\w+\(.*rows\[i\].*\) \* INT64_C\(4096\) \+ \(int64_t\)j\]", text)


@pytest.mark.slow
def test_an_array_of_more_than_2_gib() -> None:
    size = 46341 * 46341 + 3
    x = te.placeholder((size,), "int8", name="x")
    y = te.compute((8,), lambda i: x[i * 306783611 + 3], name="y")
    given = np.zeros(size, "int8")
    given[3::306783611] = np.arange(8)
    for s in (ForKind.SERIAL, ForKind.VECTORIZED):
        i, out = Var("i"), Buffer("out", "int8", (8,))
        data = Buffer("x", "int8", (size,))
        func = LoweredFunc("f", (data, out), seq(For(i, 8, s, Store(out, i, data[i * 306783611 + 3]))))
        for run in (lambda f, a: codegen_c.build(f)(*a), interp.run):
            got = np.full(8, 113, "int8")
            run(func, [given, got])
            np.testing.assert_array_equal(got, np.arange(8))
    assert y.shape == (8,) and isinstance(const(1), Const)
