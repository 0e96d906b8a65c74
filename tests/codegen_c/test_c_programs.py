"""Compiled programs compute what NumPy computes: matrix products, convolutions, guards, reductions, all dtypes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import codegen_c
from te_lite.expr.expr import call, cast, const, if_then_else, maximum, minimum, select
from te_lite.loops.stmt import Alloc, Buffer, If, Store, allocated, seq
from tests.amount import some

from .c_programs import P, S, U, V, assert_close, check, conv2d, conv2d_numpy, func, matmul, nest, random_array, v

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    "m, n, k, tile",
    [
        (24, 96, 20, (6, 32)),
        (16, 64, 8, (8, 16)),
        (14, 21, 12, (7, 7)),
        (9, 26, 4, (3, 13)),
        (64, 128, 16, (16, 64)),
        (5, 240, 8, (5, 24)),
        (6, 6, 8, (1, 1)),
        (8, 400, 8, (2, 200)),
    ],
)
@pytest.mark.one_in(3)
def test_matmul(m, n, k, tile, local):
    f = matmul(m, n, k, tile, local=local)
    a, b = (random_array(RNG, x) for x in f.args[:2])
    check(f, [a, b], [a.astype("float64") @ b.astype("float64")])


@pytest.mark.parametrize(
    "dtype, acc",
    [
        ("float64", "float64"),
        ("int8", "int32"),
        ("uint8", "int32"),
        ("int16", "int64"),
        ("float32", "float64"),
        ("int32", "int32"),
        ("float16", "float32"),
        ("float16", "float16"),
        ("int8", "int8"),
    ],
)
@pytest.mark.one_in(2)
def test_matmul_dtypes(dtype, acc):
    f = matmul(12, 32, 8, (3, 16), dtype, acc)
    a, b = (random_array(RNG, x) for x in f.args[:2])
    wide = "float64" if acc.startswith("float") else "int64"
    want = (a.astype(wide) @ b.astype(wide)).astype(wide if acc.startswith("float") else acc)
    check(f, [a, b], [want])


@pytest.mark.parametrize(
    "options", [codegen_c.Options(registers=0), codegen_c.Options(16, 12), codegen_c.Options(32, 12)]
)
def test_matmul_other_vectors(options):
    f = matmul(12, 56, 12, (3, 28))
    a, b = (random_array(RNG, x) for x in f.args[:2])
    check(f, [a, b], [a.astype("float64") @ b.astype("float64")], options)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 7, 3, 1, 1), (1, 4, 3, 16, 3, 2, 1), (2, 2, 3, 9, 1, 2, 0), (1, 3, 2, 11, 5, 1, 2)]
)
@pytest.mark.one_in(3)
def test_conv2d(shape, fuse):
    *_, stride, pad = shape
    f = conv2d(*shape, fuse=fuse)
    d, w = (random_array(RNG, x) for x in f.args[:2])
    check(f, [d, w], [conv2d_numpy(d, w, stride, pad)])


@pytest.mark.parametrize("kind", [S, V, U])
def test_guarded_split(kind):
    n, tile = 37, 8
    x, y = Buffer("x", "float32", (n,)), Buffer("y", "float32", (n,))
    o, i = v("i.outer", "i.inner")
    at = o * tile + i
    f = func([x, y], nest((o, 5, P), (i, tile, kind), If(at < n, Store(y, at, x[at] * 2.0 + 1.0))))
    a = random_array(RNG, x)
    check(f, [a], [2.0 * a.astype("float64") + 1])


def test_guard_that_does_not_vary_with_the_lane():
    x, y = Buffer("x", "float32", (5, 16)), Buffer("y", "float32", (5, 16))
    i, j, z = v("i", "j", "z")
    f = func(
        [x, y],
        seq(
            nest((z, 80, V), Store(y, z, const(0.0, "float32"))),
            nest((i, 5, S), (j, 16, V), If(i % 2 < 1, Store(y, i * 16 + j, x[i * 16 + j]))),
        ),
    )
    a = random_array(RNG, x)
    check(f, [a], [np.where(np.arange(5)[:, None] % 2 < 1, a, 0).astype("float64")])


@pytest.mark.parametrize(
    "dtype, n",
    [
        *itertools.product(["float32", "int8"], [1, 2, 3, 7, 13, 16, 24, 49, 100, 600]),
        *itertools.product(["float64", "int32", "int64", "uint8", "int16", "float16"], [3, 13, 24, 600]),
    ],
)
@pytest.mark.one_in(3)
def test_vector_lengths(dtype, n):
    x, y = Buffer("x", dtype, (3, n)), Buffer("y", dtype, (3, n))
    i, j = v("i", "j")
    at = i * n + j
    value = maximum(minimum(x[at] + x[i * n] * const(2, dtype), const(90, dtype)), const(3, dtype)) - x[at]
    a = random_array(RNG, x)
    f = func([x, y], nest((i, 3, S), (j, n, V), Store(y, at, value)))
    with np.errstate(over="ignore"):
        want = np.clip(a + (a[:, :1] * np.array(2, dtype)).astype(dtype), np.array(3, dtype), np.array(90, dtype)) - a
    check(f, [a], [want.astype("float64") if dtype.startswith("float") else want])


@pytest.mark.parametrize("kind", [S, V])
@pytest.mark.parametrize("reduce", ["max", "min", "sum", "prod"])
def test_reductions(reduce, kind):
    m, n = 13, 16
    x, y = Buffer("x", "float32", (m, n)), Buffer("y", "float32", (n,))
    r, j, z = v("r", "j", "z")
    start = {"max": -3e38, "min": 3e38, "sum": 0.0, "prod": 1.0}[reduce]
    fold = {"max": maximum, "min": minimum, "sum": lambda a, b: a + b, "prod": lambda a, b: a * b}[reduce]
    f = func(
        [x, y],
        seq(
            nest((z, n, kind), Store(y, z, const(start, "float32"))),
            nest((r, m, S), (j, n, kind), Store(y, j, fold(y[j], x[r * n + j]))),
        ),
    )
    a = random_array(RNG, x)
    check(f, [a], [getattr(np, reduce)(a.astype("float64"), axis=0)])


def test_row_sum_keeps_its_accumulator_in_a_register():
    x, y = Buffer("x", "float32", (7, 33)), Buffer("y", "float32", (7,))
    i, r = v("i", "r")
    f = func(
        [x, y],
        nest((i, 7, S), seq(Store(y, i, const(0.0, "float32")), nest((r, 33, S), Store(y, i, y[i] + x[i * 33 + r])))),
    )
    a = random_array(RNG, x)
    source = check(f, [a], [a.astype("float64").sum(1)]).source
    assert "y_r0 += x[i * 33 + r];" in source


def test_argmax_two_outputs():
    m, n = 5, 19
    x, k, w = Buffer("x", "float32", (m, n)), Buffer("k", "int32", (m,)), Buffer("w", "float32", (m,))
    i, r = v("i", "r")
    better = x[i * n + r] > w[i]
    body = seq(
        Store(k, i, const(-1)),
        Store(w, i, const(-3e38, "float32")),
        nest((r, n, S), seq(Store(k, i, select(better, r, k[i])), Store(w, i, select(better, x[i * n + r], w[i])))),
    )
    a = random_array(RNG, x)
    check(func([x, k, w], nest((i, m, P), body)), [a], [a.argmax(1).astype("int32"), a.max(1).astype("float64")])


FUNCTIONS = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "abs": np.abs,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions(dtype):
    from scipy.special import erf

    table = FUNCTIONS | {"erf": erf}
    n = 19
    x = Buffer("x", dtype, (n,))
    a = (np.abs(random_array(RNG, x)) + np.array(0.25, dtype)).astype(dtype)
    a[:6] = np.array([0.5, 1.5, 2.5, 2.0, 1.0, 0.25], dtype)
    outs, body, want = [], [], []
    for name, reference in table.items():
        o, (i,) = Buffer(f"y_{name}", dtype, (n,)), v("i")
        sign = const(1.0 if name in ("log", "log2", "sqrt", "rsqrt") else -1.0, dtype)
        outs.append(o)
        body.append(nest((i, n, V), Store(o, i, call(name, x[i] * sign))))
        want.append(reference(a.astype("float64") * sign.value))
    o, (i,) = Buffer("y_pow", dtype, (n,)), v("i")
    check(
        func([x, *outs, o], seq(*body, nest((i, n, S), Store(o, i, call("pow", x[i], const(1.5, dtype)))))),
        [a],
        [*want, a.astype("float64") ** 1.5],
    )


def test_isnan_and_bool():
    x, y, z = Buffer("x", "float32", (9,)), Buffer("y", "bool", (9,)), Buffer("z", "int32", (9,))
    (i,) = v("i")
    a = np.array([0, 1, np.nan, -1, np.nan, 2, 0, 0, 5], "float32")
    body = nest((i, 9, V), seq(Store(y, i, call("isnan", x[i])), Store(z, i, cast("int32", cast("bool", i % 3)) * 7)))
    check(func([x, y, z], body), [a], [np.isnan(a), (np.arange(9) % 3 != 0).astype("int32") * 7])


def test_division_of_negative_integers():
    values = np.arange(-7, 8, dtype="int32")
    a, b = (g.ravel().copy() for g in np.meshgrid(values, values[values != 0]))
    n = a.size
    x, y = Buffer("x", "int32", (n,)), Buffer("y", "int32", (n,))
    q, r, t = (Buffer(s, "int32", (n,)) for s in "qrt")
    (i,) = v("i")
    body = nest((i, n, S), seq(Store(q, i, x[i] // y[i]), Store(r, i, x[i] % y[i]), Store(t, i, x[i] / y[i])))
    check(func([x, y, q, r, t], body), [a, b], [a // b, a % b, np.trunc(a / b).astype("int32")])


def test_division_of_loop_variables_uses_the_operators_of_c():
    y, z = Buffer("y", "int32", (24,)), Buffer("z", "int32", (24,))
    (i,) = v("i")
    f = func(
        [y, z], nest((i, 24, S), seq(Store(y, i, i // 5 * 10 + i % 5), Store(z, i, (i - 12) // 5 * 10 + (i - 12) % 5)))
    )
    n = np.arange(24, dtype="int32")
    source = check(f, [], [n // 5 * 10 + n % 5, (n - 12) // 5 * 10 + (n - 12) % 5]).source
    assert "y[i] = i / 5 * 10 + i % 5" in source and "floordiv_i32(i - 12, 5)" in source


def test_float_floor_division():
    x, q, r = Buffer("x", "float32", (9,)), Buffer("q", "float32", (9,)), Buffer("r", "float32", (9,))
    (i,) = v("i")
    a = np.array([-7.5, -3, -0.5, 0, 0.5, 3, 7.5, 2, 1], "float32")
    f = func([x, q, r], nest((i, 9, S), seq(Store(q, i, x[i] // 2.0), Store(r, i, x[i] % 2.0))))
    check(f, [a], [np.floor(a / 2).astype("float64"), np.mod(a, 2).astype("float64")])


def test_if_then_else_protects_an_access_inside_a_shared_load():
    """Two accumulators read the same guarded element: the guard goes where the load goes."""
    n = 6
    x, y = Buffer("x", "float32", (n,)), Buffer("y", "float32", (2, 4))
    r, i, j, z = v("r", "i", "j", "z")
    safe = if_then_else(r < n, x[r], const(0.5, "float32"))
    f = func(
        [x, y],
        seq(
            nest((z, 8, S), Store(y, z, const(0.0, "float32"))),
            nest((r, 9, S), (i, 2, S), (j, 4, V), Store(y, i * 4 + j, y[i * 4 + j] + safe * cast("float32", i + 1))),
        ),
    )
    a = random_array(RNG, x)
    total = a.astype("float64").sum() + 1.5
    check(f, [a], [np.repeat([[total], [2 * total]], 4, axis=1)])


def test_large_scratch_inside_and_outside_of_a_parallel_loop():
    n = 20000
    x, y = Buffer("x", "float32", (4, n)), Buffer("y", "float32", (4, n))
    t, u = Buffer("t", "float32", (n,)), Buffer("u", "float32", (4 * n,))
    i, j, k, p = v("i", "j", "k", "p")
    inner = Alloc(
        t, seq(nest((j, n, V), Store(t, j, u[i * n + j] + 1.0)), nest((k, n, V), Store(y, i * n + k, t[n - 1 - k])))
    )
    f = func([x, y], Alloc(u, seq(nest((p, 4 * n, V), Store(u, p, x[p] * 2.0)), nest((i, 4, P), inner))))
    a = random_array(RNG, x)
    source = check(f, [a], [(2 * a.astype("float64") + 1)[:, ::-1]]).source
    assert source.count("scratch(sizeof") == 2 and source.count("free(") == 2


def test_gathered_accumulation():
    """Strided operands of an accumulation are gathered; the accumulators stay in registers."""
    m, n, k = 4, 16, 10
    x, w, y = Buffer("x", "float32", (k, 2 * n)), Buffer("w", "float32", (m, k)), Buffer("y", "float32", (m, n))
    r, i, j, z = v("r", "i", "j", "z")
    at = i * n + j
    f = func(
        [x, w, y],
        seq(
            nest((z, m * n, V), Store(y, z, const(0.0, "float32"))),
            nest((r, k, S), (i, m, S), (j, n, V), Store(y, at, y[at] + w[i * k + r] * x[r * 2 * n + 2 * j])),
        ),
    )
    a, b = random_array(RNG, x), random_array(RNG, w)
    want = b.astype("float64") @ a[:, ::2].astype("float64")
    assert "y_r0 += w[r] * x_v;" in check(f, [a, b], [want], codegen_c.Options(vector_bytes=64)).source


def test_softmax_of_rows():
    m, n = 6, 21
    x, y = Buffer("x", "float32", (m, n)), Buffer("y", "float32", (m, n))
    top, total = Buffer("top", "float32", (1,), "local"), Buffer("total", "float32", (1,), "local")
    i, a, b, c = v("i", "a", "b", "c")
    zero = const(0)
    body = Alloc(
        top,
        Alloc(
            total,
            seq(
                Store(top, zero, const(-3e38, "float32")),
                nest((a, n, S), Store(top, zero, maximum(top[0], x[i * n + a]))),
                Store(total, zero, const(0.0, "float32")),
                nest((b, n, S), Store(total, zero, total[0] + call("exp", x[i * n + b] - top[0]))),
                nest((c, n, V), Store(y, i * n + c, call("exp", x[i * n + c] - top[0]) / total[0])),
            ),
        ),
    )
    f = func([x, y], nest((i, m, P), body))
    d = random_array(RNG, x)
    e = np.exp(d.astype("float64") - d.max(1, keepdims=True))
    assert "top[" not in check(f, [d], [e / e.sum(1, keepdims=True)]).source


def test_random_integer_expressions():
    """Precedence: random trees, evaluated by C and by Python."""
    rng, count = np.random.default_rng(3), some(120, 40)
    values = rng.integers(-9, 10, 6).astype("int32")
    x, y = Buffer("x", "int32", (6,)), Buffer("y", "int32", (count,))

    def tree(depth):
        if depth == 0 or rng.random() < 0.15:
            k = int(rng.integers(0, 6))
            return (x[k], int(values[k])) if rng.random() < 0.7 else (const(k - 3), k - 3)
        (a, p), (b, q) = tree(depth - 1), tree(depth - 1)
        op = rng.choice(["+", "-", "*", "//", "%", "min", "?", "neg"])
        match op:
            case "+":
                return a + b, p + q
            case "-":
                return a - b, p - q
            case "*":
                return (a % 7) * (b % 7), (p % 7) * (q % 7)
            case "//":
                return a // (b % 5 + 1), p // (q % 5 + 1)
            case "%":
                return a % (b % 5 - 5), p % (q % 5 - 5)
            case "min":
                return minimum(a, b), min(p, q)
            case "neg":
                return -a, -p
        return select(a < b, a, b - a), p if p < q else q - p

    trees = [tree(4) for _ in range(count)]
    body = seq(*[Store(y, const(k), e) for k, (e, _) in enumerate(trees)])
    check(func([x, y], body), [values], [np.array([p for _, p in trees], "int32")])


def test_scalar_results_agree_with_float64():
    assert_close(np.array([1.0], "float32"), np.array([1.00001]), "float32")
    with pytest.raises(AssertionError):
        assert_close(np.array([1.0], "float32"), np.array([1.01]), "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("lanes", [3, 8, 24, 64])
@pytest.mark.parametrize("place", ["own", "own, two deep", "turned", "one for all", "two each"])
@pytest.mark.one_in(7)
def test_values_kept_until_all_are_known(lanes: int, dtype: str, place: str) -> None:
    """sums + x, weighted + sums * x: through arrays of an iteration, in vectors where lanes own them."""
    rows = 5
    a = Buffer("a", dtype, (rows, lanes))
    outs = [Buffer(n, dtype, (lanes,)) for n in ("sums", "weighted")]
    shape = {
        "own": (lanes,),
        "own, two deep": (lanes, 1),
        "turned": (lanes,),
        "one for all": (1,),
        "two each": (lanes + 1,),
    }[place]
    kept = [Buffer(f"{b.name}_next", dtype, shape, "local") for b in outs]
    r, j, i = v("r", "j", "i")
    at = {"turned": const(lanes - 1) - j, "one for all": const(0)}.get(place, j)
    x, (old, weighted) = a[r * lanes + j], [b[j] for b in outs]
    stores = [Store(kept[0], at, old + x), Store(kept[1], at, weighted + old * x)]
    stores += [Store(t, j + 1, const(0, dtype)) for t in kept if place == "two each"]
    stores += [Store(b, j, t[at]) for b, t in zip(outs, kept, strict=True)]
    first = nest((i, lanes, V), seq(*[Store(b, i, const(0, dtype)) for b in outs]))
    f = func([a, *outs], seq(first, nest((r, rows, S), (j, lanes, V), allocated(kept, seq(*stores)))))
    data = random_array(np.random.default_rng(lanes), a)
    sums, total = np.zeros(lanes, dtype), np.zeros(lanes, dtype)
    for row in data:
        sums, total = sums + row, total + sums * row
    check(f, [data], [sums, total])
    if lanes == 24 and dtype == "float32":
        source = codegen_c.emit(f, options=codegen_c.Options(vector_bytes=32))
        assert ("f32x8 sums_next0, sums_next1, sums_next2;" in source) == place.startswith("own")
