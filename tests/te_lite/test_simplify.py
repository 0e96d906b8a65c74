"""The simplifier keeps every value, its bounds and proofs are sound, and what split and fuse leave behind vanishes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from te_lite.errors import ExprError
from te_lite.expr.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    cast,
    const,
    if_then_else,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    same,
    select,
)
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import walk
from te_lite.loops.stmt import Buffer
from tests.amount import examples
from tests.nonempty import nonempty
from tests.strategies import evaluate, grid, index_exprs, random_condition, random_index_expr

# ------------------------------------------------------------------------------------------------ random expressions

X, Y, Z = Var("x"), Var("y"), Var("z")
FIXED = {X: (0, 48), Y: (-3, 4), Z: (0, 6)}


def check_value(e: Expr, ranges: dict[Var, tuple[int, int]], s: Simplifier, env: dict[Var, np.ndarray]) -> Expr:
    """Equality of `e` and its simplification at every point; soundness of bounds and of constants."""
    want = np.broadcast_to(evaluate(e, env), env[X].shape)
    out = s.simplify(e)
    got = evaluate(out, env)
    assert (got == want).all(), f"{e!r}\n  became {out!r}\n  ranges {ranges}"
    assert out.dtype == e.dtype and s.simplify(out) is out
    lo, hi = s.bounds(e)
    assert lo is None or lo <= want.min(), f"{e!r}\n  lower bound {lo}, least value {want.min()}, ranges {ranges}"
    assert hi is None or hi >= want.max(), f"{e!r}\n  upper bound {hi}, largest value {want.max()}, ranges {ranges}"
    if e.dtype == "bool":
        assert not s.prove(e) or want.all()
        assert not s.prove(logical_not(e)) or not want.any()
    return out


def random_ranges(rng: np.random.Generator) -> dict[Var, tuple[int, int]]:
    ranges = {}
    for var in (X, Y, Z):
        lo = 0 if rng.random() < 0.7 else int(rng.integers(-12, 6))
        ranges[var] = (lo, lo + int(rng.choice([0, 1, 2, 3, 4, 6, 7, 8, 11, 15])))
    return ranges


def fuzz(seed: int, count: int) -> None:
    """`count` random expressions, ten to a simplifier, a fifth of them conditions, one range in three left unknown."""
    rng = np.random.default_rng(seed)
    for batch in nonempty(range(count // 10)):
        ranges = random_ranges(rng)
        env = grid(ranges)
        s = Simplifier({v: r for v, r in ranges.items() if rng.random() < 0.85})
        for k in range(10):
            depth = 1 + (batch + k) % 5
            make = random_condition if k % 5 == 4 else random_index_expr
            check_value(make(rng, (X, Y, Z), depth), ranges, s, env)


def test_random_expressions_keep_their_value() -> None:
    fuzz(seed=1, count=5_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_random_expressions_keep_their_value(seed: int) -> None:
    fuzz(seed=100 + seed, count=10_000)


@examples(200)
@given(index_exprs((X, Y, Z)))
def test_value_is_kept_with_shrinking(e: Expr) -> None:
    check_value(e, FIXED, Simplifier(FIXED), grid(FIXED))


def test_equal_inputs_give_equal_text() -> None:
    texts = []
    for _ in range(2):
        rng, s = np.random.default_rng(3), Simplifier(FIXED)
        texts.append([repr(s.simplify(random_index_expr(rng, (X, Y, Z), 4))) for _ in range(50)])
    assert texts[0] == texts[1]


# ---------------------------------------------------------------------------------------------------- exact results

i, j, k, n, u, v, t = (Var(name) for name in "ijknuvt")
RANGES = {i: (0, 7), j: (0, 3), k: (0, 6), n: (0, 99), t: (0, 97), v: (-5, 5)}
wide = Var("wide", "int64")

INTEGERS = [
    ((i * 4 + j) // 4, "i"),
    ((i * 4 + j) % 4, "j"),
    ((i * 4 + j) // 2, "((i*2) + floordiv(j, 2))"),
    ((u * 8 + i) // 8 * 8 + (u * 8 + i) % 8, "((u*8) + i)"),
    (u // 7 * 7 + u % 7, "u"),
    (u // 7 * 21 + u % 7 * 3, "(u*3)"),
    (u // 7 * 7 + u % 7 + v * 2 - 3, "(((v*2) + u) - 3)"),
    (u - u // 7 * 7, "floormod(u, 7)"),
    (u - u % 7, "(floordiv(u, 7)*7)"),
    (u // 3 // 5, "floordiv(u, 15)"),
    ((u // 3 + 2) // 5, "floordiv((u + 6), 15)"),
    (u % 12 % 4, "floormod(u, 4)"),
    (u % 12 // 4, "floormod(floordiv(u, 4), 3)"),
    ((u // 7) % 7 * 7 + u % 7, "floormod(u, 49)"),
    (u // 49 * 49 + (u // 7) % 7 * 7 + u % 7, "u"),
    ((u * 6 + j) // 12, "floordiv(u, 2)"),
    ((u * 6 + i) // 12, "floordiv(((u*6) + i), 12)"),
    ((u * 4 + j) // 12, "floordiv(u, 3)"),
    ((u * 4 + j) % 12, "((floormod(u, 3)*4) + j)"),
    ((u * 4 + j + 9) // 4, "((u + floordiv((j + 1), 4)) + 2)"),
    ((u * 6 + 4) % 9, "((floormod(((u*2) + 1), 3)*3) + 1)"),
    ((t + 98) // 49, "(floordiv(t, 49) + 2)"),
    ((i - 8) // 8, "-1"),
    ((i - 8) % 8, "i"),
    (i // 8, "0"),
    (i % 8, "i"),
    (u // -4, "floordiv((u*-1), 4)"),
    (u % -4, "(floormod((u*-1), 4)*-1)"),
    (Binary("/", n, const(7)), "floordiv(n, 7)"),
    (Binary("/", v, const(7)), "(v/7)"),
    (u - (u - i), "i"),
    (i * 0 + j * 3 - j, "(j*2)"),
    (7 - i, "(7 - i)"),
    (j - i * 8, "(j - (i*8))"),
    ((i + 1) * 49 + j * 1568, "(((j*1568) + (i*49)) + 49)"),
    (minimum(i, 9), "i"),
    (maximum(i, i + j), "(i + j)"),
    (minimum(i, 3), "min(i, 3)"),
    (minimum(minimum(i, 5), 6), "min(i, 5)"),
    (select(const(True, "bool"), i, j), "i"),
    (select(i < 8, i, j), "i"),
    (if_then_else(i < 0, i, j), "j"),
    (if_then_else(u < 3, i * 2, i + i), "(i*2)"),
    (if_then_else(u < 3, i + 0, i * 4 // 2), "tir.if_then_else((u < 3), i, (i*2))"),
    (Cast("int64", const(3)) + wide, "(wide + (int64)3)"),
    (cast("int32", Compare("<", i, const(8))), "1"),
    (u * v + v * 0, "(u*v)"),
    (u // minimum(i, 0), "0"),
]


@pytest.mark.parametrize(("e", "text"), INTEGERS, ids=[repr(e) for e, _ in INTEGERS])
def test_integer(e: Expr, text: str) -> None:
    assert repr(Simplifier(RANGES).simplify(e)) == text


CONDITIONS = [
    (i < 8, "(bool)1"),
    (i >= 8, "(bool)0"),
    (i * 4 + j < n * 4, "(i < n)"),
    (i * 4 + j >= 12, "(i >= 3)"),
    (i * 4 + j <= 12, "(((i*4) + j) < 13)"),
    (u * 4 + 3 < v * 4, "(u < v)"),
    (u * 3 < 10, "(u < 4)"),
    (u * -3 < 10, "(u >= -3)"),
    (Compare(">", const(10), u), "(u < 10)"),
    (Compare("<=", const(1), u), "(u >= 1)"),
    (u + 3 < v + 5, "(u < (v + 2))"),
    (u <= v, "(u <= v)"),
    (u > v, "(v < u)"),
    (u // 4 < 3, "(u < 12)"),
    (u // 4 >= 3, "(u >= 12)"),
    (u // 4 * 4 <= u, "(bool)1"),
    (u // 4 * 4 + 3 >= u, "(bool)1"),
    (u % 4 < 4, "(bool)1"),
    (Compare("==", u * 4 + 2, const(6)), "(u == 1)"),
    (Compare("==", u * 4 + 2, const(7)), "(bool)0"),
    (Compare("!=", i, const(8)), "(bool)1"),
    (Compare("!=", u + 1, v + 1), "(u != v)"),
    (logical_and(u < 5, i < 8), "(u < 5)"),
    (logical_and(u < 5, u < 3), "(u < 3)"),
    (logical_and(u < 3, u < 5), "(u < 3)"),
    (logical_or(u < 3, u < 5), "(u < 5)"),
    (logical_and(u < 3, u > 5), "(bool)0"),
    (logical_or(u < 5, u >= 3), "(bool)1"),
    (logical_and(u < 5, v < 3, u + 1 <= 5), "((u < 5) && (v < 3))"),
    (logical_or(u < 5, i < 8), "(bool)1"),
    (logical_not(u < 5), "(u >= 5)"),
    (logical_not(logical_not(Compare("==", u, v))), "(u == v)"),
    (logical_and(Compare("==", u, v), Compare("!=", u, v)), "(bool)0"),
]


@pytest.mark.parametrize(("e", "text"), CONDITIONS, ids=[repr(e) for e, _ in CONDITIONS])
def test_condition(e: Expr, text: str) -> None:
    s = Simplifier(RANGES)
    assert repr(s.simplify(e)) == text
    assert s.prove(e) == (text == "(bool)1")


def test_split_and_fuse_leave_nothing() -> None:
    i0, i1, i2, j0, j1 = (Var(name) for name in ("i.0", "i.1", "i.2", "j.0", "j.1"))
    s = Simplifier({i0: (0, 6), i1: (0, 3), i2: (0, 4), j0: (0, 2), j1: (0, 10)})
    index_i, index_j = (i0 * 4 + i1) * 5 + i2, j0 * 11 + j1
    fused = index_i * 33 + index_j
    assert repr(s.simplify(fused // 33)) == "(((i.0*20) + (i.1*5)) + i.2)"
    assert repr(s.simplify(fused % 33)) == "((j.0*11) + j.1)"
    assert repr(s.simplify(fused // 33 // 20)) == "i.0"
    assert repr(s.simplify(fused // 33 // 5 % 4)) == "i.1"
    assert repr(s.simplify(fused // 11 % 3)) == "j.0"
    assert s.prove(fused < 140 * 33)


def divisions(e: Expr) -> int:
    return sum(isinstance(x, Binary) and x.op in ("//", "%") for x in walk(e))


def conv2d_indices() -> tuple[dict[Var, tuple[int, int]], list[tuple[Expr, str, int]]]:
    """The indices of the tutorial's conv2d kernel as lowering forms them: (expression, short form, divisions)."""
    o, t, b, rc, ry, rx, ff, ci, cj, f = (Var(s) for s in ("o", "t", "b", "rc", "ry", "rx", "ff", "ci", "cj", "f"))
    ranges = {o: (0, 63), t: (0, 97), b: (0, 63), rc: (0, 3), ry: (0, 2), rx: (0, 2), ff: (0, 1), ci: (0, 3)}
    ranges |= {cj: (0, 31), f: (0, 10)}
    p, g = o * 98 + t, f * 98 + t
    h, w = p // 7 % 7 + ry, p % 7 + rx
    data = ((p // 6272 * 512 + rc * 128 + p // 49 % 128) * 7 + (h - 1)) * 7 + (w - 1)
    kernel = (((b * 8 + g // 128) * 512 + rc * 128 + g % 128) * 3 + ry) * 3 + rx
    row, col = "floormod(floordiv(t, 7), 7)", "floormod(t, 7)"
    return ranges, [
        (data, "((((((rc*6272) + (o*98)) + (ry*7)) + t) + rx) - 8)", 0),
        (
            logical_and(h >= 1, h < 8, w >= 1, w < 8),
            f"((((({row} + ry) >= 1) && (({row} + ry) < 8)) && (({col} + rx) >= 1)) && (({col} + rx) < 8))",
            6,
        ),
        (((p // 49 * 7) + p // 7 % 7) * 7 + p % 7, "((o*98) + t)", 0),
        (
            kernel,
            "((((((b*36864) + (floordiv(((f*98) + t), 128)*4608)) + (rc*1152)) + (floormod(((f*98) + t), 128)*9))"
            " + (ry*3)) + rx)",
            2,
        ),
        (((ci * 32 + cj) * 7 + t % 49 // 7) * 7 + t % 7, "(((ci*1568) + (cj*49)) + floormod(t, 49))", 1),
        (
            ((t // 49 * 2 + ff) * 4 + ci) * 32 + cj + 512,
            "(((((floordiv(t, 49)*256) + (ff*128)) + (ci*32)) + cj) + 512)",
            1,
        ),
        (
            ((b * 8 + t // 49 * 2 + ff + 4) * 7 + t // 7 % 7) * 7 + t % 7,
            "(((((b*392) + (floordiv(t, 49)*98)) + (ff*49)) + floormod(t, 49)) + 196)",
            2,
        ),
    ]


def test_conv2d_tutorial_indices_are_as_short_as_the_page() -> None:
    ranges, cases = conv2d_indices()
    for e, text, count in nonempty(cases):
        out = Simplifier(ranges).simplify(e)
        assert (repr(out), divisions(out)) == (text, count)


def test_winograd_tile_indices() -> None:
    """P = batch * 4 * 4 tiles of 2x2 outputs, p fused from a block of 8 and 16 threads."""
    b, t, eps, nu = (Var(s) for s in ("b", "t", "eps", "nu"))
    s = Simplifier({b: (0, 7), t: (0, 15), eps: (0, 3), nu: (0, 3)})
    p = b * 16 + t
    assert repr(s.simplify(p // 16)) == "b"
    assert repr(s.simplify(p // 4 % 4 * 2 + eps)) == "((floordiv(t, 4)*2) + eps)"
    assert repr(s.simplify(p % 4 * 2 + nu)) == "((floormod(t, 4)*2) + nu)"
    tile = ((p // 16 * 4 + p // 4 % 4) * 4 + p % 4) * 64
    assert repr(s.simplify(tile)) == "((b*1024) + (t*64))"


# ------------------------------------------------------------------------------------------------------ what stays


def test_data_arithmetic_keeps_its_shape() -> None:
    a = Buffer("a", "int32", (8,))
    b = Buffer("b", "int8", (8,))
    s = Simplifier(RANGES)
    total = (a[i + 0] * 4 + 2) + (a[i * 4 // 4] * 4 - 2)
    assert repr(s.simplify(total)) == "(((a[i]*4) + 2) + ((a[i]*4) - 2))"
    assert repr(s.simplify((a[i] * 4) // 4)) == "floordiv((a[i]*4), 4)"
    product = cast("int32", b[i + j * 0]) * cast("int32", b[j])
    assert repr(s.simplify(a[i] + product)) == "(a[i] + (int32(b[i])*int32(b[j])))"
    assert s.bounds(product) == (-16256, 16384)
    assert s.bounds(a[i]) == (None, None)
    assert s.prove(b[i].astype("int32") < 128) and not s.prove(a[i] < 2**31 - 1)
    narrow = Binary("+", Binary("+", b[i], Const(100, "int8")), Const(100, "int8"))
    assert s.simplify(narrow) is narrow or same(s.simplify(narrow), narrow)


def test_guard_stays_in_front_of_the_access_it_protects() -> None:
    a = Buffer("a", "int32", (8,))
    s = Simplifier()
    cond = logical_and(u < 10, a[u] > 0, u < 5)
    assert repr(s.simplify(cond)) == "(((u < 10) && (a[u] > 0)) && (u < 5))"


def test_remainders_that_a_condition_asks_about_stay() -> None:
    """In what it protects: what is computed for the condition anyway is not computed again in another form."""
    a = Buffer("a", "float32", (210,))
    s = Simplifier({u: (0, 195), i: (0, 2)})
    read = a[u // 14 * 14 + u % 14 + i]
    assert repr(s.simplify(read)) == "a[(u + i)]"
    guarded = s.simplify(if_then_else(u % 14 + i >= 1, a[u // 14 * 14 + u % 14 + i], 0.0))
    assert "a[(((floordiv(u, 14)*14) + floormod(u, 14)) + i)]" in repr(guarded)
    assert repr(s.simplify(if_then_else(u + i >= 1, a[u // 14 * 14 + u % 14 + i + 1], 0.0))).count("floor") == 0


def test_gathered_index_keeps_its_value() -> None:
    table = Buffer("table", "int32", (8,))
    rng = np.random.default_rng(0)
    ranges = {i: (0, 7), j: (0, 3)}
    env = {**grid(ranges), table: rng.integers(0, 50, 8)}
    s = Simplifier(ranges)
    for e in ((table[i * 4 // 4] * 4 + j) // 4, (i * 4 + table[(i * 4 + j) // 4] % 4) % 4, table[i] - table[i] + j):
        assert (evaluate(s.simplify(e), env) == evaluate(e, env)).all()


def test_float_arithmetic_is_left_in_its_order() -> None:
    a = Buffer("a", "float32", (32,))
    s = Simplifier(RANGES)
    e = (a[(i * 4 + j) // 4] + 1.0) + (a[j] + 2.0) * 0.5
    assert repr(s.simplify(e)) == "((a[i] + 1f) + ((a[j] + 2f)*0.5f))"
    pad = if_then_else(logical_and(i >= 0, i < 5), a[i], 0.0)
    assert repr(s.simplify(pad)) == "tir.if_then_else((i < 5), a[i], 0f)"
    assert repr(s.simplify(Select(i < 8, a[i], const(-0.0)))) == "a[i]"
    zeros = [s.simplify(maximum(a[i], z)) for z in (0.0, -0.0)]
    assert [repr(z) for z in zeros] == ["max(a[i], 0f)", "max(a[i], -0f)"]


def test_casts_of_constants_fold_where_they_fit() -> None:
    s = Simplifier()
    assert repr(s.simplify(Cast("float32", const(3) + u * 0))) == "3f"
    assert repr(s.simplify(Cast("int8", const(300)))) == "(int8)44"
    assert s.bounds(Cast("int8", const(300))) == (-128, 127)
    assert s.bounds(Call("abs", (u,), "int32")) == (None, None)


# --------------------------------------------------------------------------------------------------- bounds, ranges


def test_bounds() -> None:
    s = Simplifier(RANGES)
    assert s.bounds(i * 3 - j + 1) == (-2, 22)
    assert s.bounds(u) == (None, None)
    assert s.bounds(u % 8) == (0, 7)
    assert s.bounds(maximum(u, 3)) == (3, None)
    assert s.bounds(v // 2) == (-3, 2)
    assert s.bounds(i < 8) == (1, 1)
    assert s.bounds(select(u < 3, i, v)) == (-5, 7)
    assert s.bounds(i * v) == (-35, 35)


def test_binding_a_variable_narrows_what_was_known() -> None:
    s = Simplifier()
    assert repr(s.simplify(i // 8)) == "floordiv(i, 8)"
    s.bind(i, 0, 15)
    assert repr(s.simplify(i // 16)) == "0" and repr(s.simplify(i // 8)) == "floordiv(i, 8)"
    s.bind(i, -4, 7)
    assert s.bounds(i) == (0, 7) and repr(s.simplify(i // 8)) == "0"
    with pytest.raises(ExprError, match="range of i: lo must not exceed hi, got lo=9 hi=7"):
        s.bind(i, 9, 12)
