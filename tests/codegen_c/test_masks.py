"""Conditions in vector loops: a comparison of numbers is a mask, no lane has a branch; and vectors inside of ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_c.processor import PROCESSORS
from te_lite.expr.expr import Expr
from te_lite.loops.c_text import TYPES
from te_lite.loops.register_tile import VECTOR_DTYPES
from tests.codegen_c.test_masked_vectors import before_a_wall
from tests.nonempty import nonempty

Array = np.ndarray
COMPARISONS: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[[Array, Array], Array]]] = {
    "<": (lambda a, b: a < b, np.less),
    "<=": (lambda a, b: a <= b, np.less_equal),
    ">": (lambda a, b: a > b, np.greater),
    ">=": (lambda a, b: a >= b, np.greater_equal),
    "==": (lambda a, b: a.equal(b), np.equal),
    "!=": (lambda a, b: te.logical_not(a.equal(b)), np.not_equal),
}
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Few different ones, so that many are equal; the ends of the dtype, NaN, infinities and zeros of both signs."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0 if dtype.startswith("u") else -3, 4, shape).astype(dtype)
    kind = np.dtype(dtype)
    odd = [np.nan, np.inf, -np.inf, -0.0] if kind.kind == "f" else [np.iinfo(kind).min, np.iinfo(kind).max]
    places = rng.integers(0, found.size, 2 * len(odd))
    found.reshape(-1)[places] = np.array(odd * 2, kind)
    return found


def chosen(cols: int, kind: str, dtype: str, test: Callable[[Expr, Expr], Expr]) -> te.LoweredFunc:
    """out[i, j] = test(a[i, j], b[j]) ? x[i, j] : y[i], the j loop vectorized."""
    a, b = te.placeholder((3, cols), kind, name="a"), te.placeholder((cols,), kind, name="b")
    x, y = te.placeholder((3, cols), dtype, name="x"), te.placeholder((3,), dtype, name="y")
    out = te.compute((3, cols), lambda i, j: te.select(test(a[i, j], b[j]), x[i, j], y[i]), name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize(s[out].op.axis[1])
    return te.lower(s, [a, b, x, y, out])


def run(func: te.LoweredFunc, kind: str, dtype: str, cols: int) -> tuple[Array, ...]:
    a, b, x, y = (
        numbers((3, cols), kind, 1),
        numbers((cols,), kind, 2),
        *(numbers(s, dtype, 3) for s in ((3, cols), (3,))),
    )
    out = np.full((3, cols), 77, dtype)
    codegen_c.build(func)(a, b, x, y, out)
    return a, b, x, y, out


@pytest.mark.parametrize("sign", COMPARISONS)
@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
def test_lanes_are_chosen_as_numbers_are(dtype: str, sign: str) -> None:
    mine, numpys = COMPARISONS[sign]
    a, b, x, y, out = run(chosen(37, dtype, dtype, mine), dtype, dtype, 37)
    want = np.where(numpys(a, b), x, y[:, None])
    np.testing.assert_array_equal(out, want)
    if np.dtype(dtype).kind == "f":
        np.testing.assert_array_equal(np.signbit(out), np.signbit(want))


@pytest.mark.parametrize("kind", ["int8", "uint32", "int64", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_numbers_of_other_sizes_decide(kind: str, dtype: str) -> None:
    a, b, x, y, out = run(chosen(40, kind, dtype, COMPARISONS["<"][0]), kind, dtype, 40)
    np.testing.assert_array_equal(out, np.where(a < b, x, y[:, None]))


@pytest.mark.parametrize("cols", [3, 7, 16, 31])
def test_joined_conditions(cols: int) -> None:
    def test(a: Expr, b: Expr) -> Expr:
        return te.logical_or(te.logical_and(a > b, te.logical_not(a > 2.0)), te.logical_not(b.equal(b)))

    a, b, x, y, out = run(chosen(cols, "float32", "float32", test), "float32", "float32", cols)
    with np.errstate(invalid="ignore"):
        want = np.where(((a > b) & ~(a > 2.0)) | np.isnan(b), x, y[:, None])
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("lanes", [5, 16, 24])
def test_sums_of_what_is_chosen(lanes: int) -> None:
    at, value = te.placeholder((29,), "int32", name="at"), te.placeholder((29,), name="value")
    k = te.reduce_axis((0, 29), "k")
    places = te.placeholder((lanes,), "int32", name="places")
    out = te.compute((lanes,), lambda i: te.sum(te.select(at[k].equal(places[i]), value[k], 0.0), k), name="out")
    s = te.create_schedule(out.op)
    (i,), (r,) = s[out].op.axis, s[out].op.reduce_axis
    s[out].reorder(r, i)
    s[out].vectorize(i)
    rng = np.random.default_rng(0)
    given = rng.integers(0, lanes, 29).astype("int32"), rng.integers(-9, 9, 29).astype("float32")
    got, want = np.full(lanes, 77, "float32"), np.zeros(lanes, "float32")
    np.add.at(want, given[0], given[1])
    codegen_c.build(te.lower(s, [at, value, places, out]))(*given, np.arange(lanes, dtype="int32"), got)
    np.testing.assert_array_equal(got, want)


def test_no_lane_has_a_branch() -> None:
    texts = [codegen_c.emit(chosen(64, d, d, COMPARISONS["<"][0])) for d in VECTOR_DTYPES]
    for dtype, text in nonempty(zip(VECTOR_DTYPES, texts, strict=True)):
        body = text.partition("_seconds")[0].partition("noinline")[2]
        assert " ? " not in body and "pick_" in body and TYPES[dtype] in body


def test_what_may_not_be_computed_keeps_its_branch() -> None:
    a, at = te.placeholder((64,), name="a"), te.placeholder((64,), "int32", name="at")
    out = te.compute((64,), lambda i: te.if_then_else(at[i] >= 0, a[i], 0.0), name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize(s[out].op.axis[0])
    assert " ? a[" in codegen_c.emit(te.lower(s, [a, at, out]))


def padded(rows: int, cols: int, around: tuple[int, int], dtype: str, step: int = 1) -> te.LoweredFunc:
    """out[i, j]: every `step`th element of a row of `a`, with -1 `around` it, and rows before and behind."""
    before, behind = around
    a, kept = te.placeholder((rows, cols), dtype, name="a"), -(-cols // step)

    def element(i: Expr, j: Expr) -> Expr:
        inside = te.all(i >= 1, i < rows + 1, j >= before, j < before + kept)
        return te.if_then_else(inside, a[i - 1, (j - before) * step] * 2, te.const(-1, dtype))

    out = te.compute((rows + 2, before + kept + behind), element, name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize(s[out].op.axis[1])
    return te.lower(s, [a, out])


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
@pytest.mark.parametrize("cols", [3, 16, 61, 64])
def test_padded_rows_are_read_inside_alone(cols: int, dtype: str, step: int) -> None:
    for around in nonempty([(0, 5), (1, 1), (9, 0), (40, 40)]):
        drawn = np.random.default_rng(cols).integers(-9, 9, (3, cols)).astype(dtype)
        a, memory = before_a_wall(drawn)
        want = np.pad(drawn[:, ::step] * np.asarray(2, dtype), [(1, 1), around], constant_values=-1)
        out = np.full(want.shape, 77, dtype)
        codegen_c.build(padded(3, cols, around, dtype, step))(a, out)
        np.testing.assert_array_equal(out, want)
        del a, memory


def test_vectors_inside_are_read_whole() -> None:
    lines = codegen_c.emit(padded(3, 192, (3, 5), "float32"), options=PROCESSORS["avx512vl"]).splitlines()
    (loop,) = [line for line in lines if "VEC(f32x16, out[" in line]
    test, _, rest = loop.partition(" ? ")
    assert "j_v" in test and rest.startswith("(f32x16)(VEC(f32x16, a[")


@pytest.mark.parametrize("sign", ["<", ">="])
def test_conditions_that_are_no_ends_stay_with_each_lane(sign: str) -> None:
    """What a remainder or a table says of the lanes between the first and the last follows from neither."""
    a, table = te.placeholder((48,), name="a"), te.placeholder((48,), "int32", name="table")
    tests = (lambda i: i % 3, lambda i: table[i], lambda i: te.min(i, 47 - i))
    x, t = np.arange(48, dtype="float32") + 1, np.arange(48, dtype="int32") * 7 % 5
    values = (np.arange(48) % 3, t, np.minimum(np.arange(48), np.arange(48)[::-1]))
    for test, value in nonempty(zip(tests, values, strict=True)):
        out = te.compute((48,), lambda i, f=test: te.if_then_else(COMPARISONS[sign][0](f(i), 1), a[i], 0.0), name="out")
        s = te.create_schedule(out.op)
        s[out].vectorize(s[out].op.axis[0])
        got = np.full(48, 77, "float32")
        codegen_c.build(te.lower(s, [a, table, out]))(x, t, got)
        np.testing.assert_array_equal(got, np.where(COMPARISONS[sign][1](value, 1), x, 0))
