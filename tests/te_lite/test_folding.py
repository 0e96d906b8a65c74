"""Folding keeps the value of every expression, at the values where laws break; the oracle is NumPy, not te_lite."""

from __future__ import annotations

import math

import numpy as np
import pytest

import te_lite as te
from te_lite.errors import ExprError
from te_lite.expr.constant_folding import IDENTITIES, OTHER, dtype_class
from te_lite.expr.expr import Binary, Const, Var, binary, cast, compare, const
from te_lite.expr.simplify import Simplifier
from te_lite.loops.c_text import CText
from te_lite.loops.width import Widths
from te_lite.meaning import reference
from tests.drawn_arithmetic import (
    DTYPES,
    FLOATS,
    Draw,
    equal_where_defined,
    folded,
    lanes,
    loads,
    meaning,
    special_values,
)

COUNT = 40


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.one_in(5)
def test_drawn_expressions_keep_their_value(dtype: str) -> None:
    """Folded when built, folded by the simplifier, and as they are: one value."""
    buffers, at = loads(COUNT)
    env = {b: lanes(1, COUNT)[b.dtype] for b in buffers}
    draw = Draw(np.random.default_rng(DTYPES.index(dtype)), at(Var("i")))
    for k in range(250):
        e = draw.expr(dtype, 1 + k % 3)
        want, ok = meaning(e, env)
        for form in (folded(e), Simplifier().simplify(e)):
            got, _ = meaning(form, env)
            assert equal_where_defined(got, want, ok), f"{e!r} became {form!r}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_law_holds_for_every_special_value(dtype: str) -> None:
    """The table itself; and what it leaves out of `x op 0` and `x op 1` has a counterexample."""
    x = Var("x", dtype)
    values = special_values(dtype)
    for op in ("+", "-", "*", "/", "//", "%"):
        for number in (0, 1, -0.0) if dtype in FLOATS else (0, 1):
            c = Const(number if dtype != "bool" else bool(number), dtype)
            for raw in (Binary(op, x, c), Binary(op, c, x)):
                want, ok = meaning(raw, {x: values})
                got, _ = meaning(binary(op, raw.a, raw.b), {x: values})
                assert equal_where_defined(got, want, ok), raw


def test_the_laws_of_a_class_are_those_of_its_dtypes() -> None:
    assert {dtype_class(d) for d in DTYPES} == set(IDENTITIES)
    assert set(IDENTITIES["float"].values()) == {OTHER}  # no float operation is a constant


@pytest.mark.parametrize("op", ["%", "//", "*"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_not_integers(op: str, dtype: str) -> None:
    x = Var("x", dtype)
    for e in (binary(op, x, 0.0), binary(op, 0.0, x), binary("//", x, 1.0), binary("%", x, 1.0)):
        assert isinstance(e, Binary)
    assert binary("*", x, 1.0) is x and binary("/", x, 1.0) is x and binary("-", x, 0.0) is x
    assert isinstance(binary("-", x, -0.0), Binary) and isinstance(x + 0.0, Binary) and binary("+", x, -0.0) is x
    assert isinstance(binary("-", x, x), Binary) and isinstance(binary("/", x, x), Binary)
    assert isinstance(compare("==", x, x), te.Expr) and not isinstance(compare("==", x, x), Const)
    assert isinstance(te.logical_not(x < 1.0), type(te.logical_not(Var("b", "bool"))))


CASTS = [
    (300, "int32", "int8", 44), (-1, "int32", "uint8", 255), (2**40 + 7, "int64", "int32", 7),
    (2.9, "float32", "int8", 2),
    (-2.9, "float64", "int32", -2), (math.nan, "float32", "bool", True), (0.0, "float32", "bool", False),
    (16777217, "int32", "float32", 16777216.0), (70000.0, "float32", "float16", math.inf), (-1, "int8", "bool", True),
    (0.1, "float32", "float64", 0.10000000149011612), (2**53 + 1, "int64", "float64", 2.0**53),
]  # fmt: skip


@pytest.mark.parametrize(("value", "source", "target", "want"), CASTS)
def test_constants_are_cast_as_values_are(value: float, source: str, target: str, want: float) -> None:
    e = cast(target, const(value, source))
    assert isinstance(e, Const) and (e.value, e.dtype) == (want, target)


@pytest.mark.parametrize("value", [300.0, -129.0, math.nan, math.inf, -math.inf])
def test_a_float_that_does_not_fit_is_not_folded(value: float) -> None:
    assert not isinstance(cast("int8", const(value, "float32")), Const)
    assert not isinstance(Simplifier().simplify(cast("int8", const(value, "float32"))), Const)


OPERATIONS = [
    ("+", 100, 100, "int8", -56), ("-", 0, 1, "uint8", 255), ("*", 200, 2, "uint8", 144), ("*", 256, 256, "int16", 0),
    ("/", -128, -1, "int8", -128), ("//", 7, 0, "int8", 0), ("%", 7, 0, "int32", 0), ("/", 7, 0, "int64", 0),
    ("+", 0.1, 0.2, "float32", float(np.float32(0.1) + np.float32(0.2))), ("*", 300.0, 300.0, "float16", math.inf),
    ("//", 1.0, 0.1, "float64", 9.0), ("max", math.nan, 1.0, "float32", math.nan), ("+", True, True, "bool", True),
    ("min", 1.0, math.nan, "float32", math.nan),
]  # fmt: skip


@pytest.mark.parametrize(("op", "a", "b", "dtype", "want"), OPERATIONS)
def test_constants_meet_in_their_dtype(op: str, a: float, b: float, dtype: str, want: float) -> None:
    e = binary(op, Const(a, dtype), Const(b, dtype))
    assert isinstance(e, Const) and e.dtype == dtype
    assert e.value == want or (math.isnan(want) and math.isnan(e.value))


@pytest.mark.parametrize(("op", "a", "b"), [("+", 2**31 - 1, 1), ("*", 46341, 46341), ("-", -(2**31), 1)])
def test_what_leaves_int32_is_not_folded(op: str, a: int, b: int) -> None:
    """It wraps as data, and does not as an index: the expression stays, for the emitter to decide."""
    e = binary(op, const(a), const(b))
    assert isinstance(e, Binary)
    assert isinstance(Simplifier().simplify(e), Binary)


def test_the_lowest_integer_is_added_not_subtracted() -> None:
    """The opposite of -2**31 is no int of C: with it, the sum was a long, and never negative."""
    text = CText(lambda v: v.name, lambda e: "x", lambda e: False, Widths())
    assert text.expr(Var("x") + const(-(2**31))) == "x + (-2147483647 - 1)"
    assert text.expr(Var("x") + const(-(2**31) + 1)) == "x - 2147483647"


@pytest.mark.parametrize(("value", "dtype"), [(300, "int8"), (-1, "uint8"), (2.5, "int32"), (math.nan, "int16")])
def test_a_constant_is_a_value_of_its_dtype(value: float, dtype: str) -> None:
    with pytest.raises(ExprError, match=f"the value must be one of {dtype}; cast wraps and truncates"):
        const(value, dtype)


def test_unary_minus_of_unsigned_and_bool() -> None:
    x = Var("x", "uint8")
    values = np.arange(256).astype("uint8")
    assert np.array_equal(meaning(-x, {x: values})[0], (-values.astype(int)).astype("uint8"))
    with pytest.raises(ExprError, match="unary minus: a number is needed"):
        -Var("b", "bool")


def test_the_reference_folds_nothing() -> None:
    """A sum of products with an axis that divides to 0: `inf * 0` stays NaN."""
    a, k = te.placeholder((3,), name="a"), te.reduce_axis((0, 4), "k")
    zero = te.cast("float32", te.floordiv(k, 8))
    out = te.compute((3,), lambda i: te.sum(Binary("*", a[i], zero), axis=k), name="out")
    got = reference.evaluate([a, out], {a: np.array([np.inf, np.nan, 1.0], np.float32)})[out]
    assert np.array_equal(np.isnan(got), [True, True, False])
