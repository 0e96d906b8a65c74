"""Passes keep NaN, infinities, both zeros and wrapping: a network before and after gives the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relay_lite as relay
from relay_lite.ir.nodes import Call, Constant, Expr
from relay_lite.ir.reference import run
from tests.drawn_arithmetic import special_values

PASSES = (relay.transform.SimplifyExpr, relay.transform.SimplifyExprPostAlterOp, relay.transform.FoldConstant)


def number(value: float, dtype: str = "float32") -> Constant:
    return Constant(np.asarray(value, dtype))


KEPT: dict[str, tuple[str, Callable[[Expr], Expr]]] = {
    "x + 0": ("float32", lambda x: number(1.0) / (x + number(0.0))),
    "0 + x": ("float32", lambda x: number(1.0) / (number(0.0) + x)),
    "x - 0": ("float32", lambda x: number(1.0) / (x - number(0.0))),
    "x * 1": ("float32", lambda x: number(1.0) / (x * number(1.0))),
    "x * tiny * tiny": ("float32", lambda x: x * number(1e-30) * number(1e-30)),
    "(x + 0) * inf": ("float32", lambda x: (x + number(0.0)) * number(np.inf)),
    "(x - 5) * inf": ("float32", lambda x: (x + number(-5.0)) * number(np.inf)),
    "int64 as float64 as int32": ("int64", lambda x: relay.cast(relay.cast(x, "float64"), "int32")),
    "x + 0 of int8": ("int8", lambda x: x + number(0, "int8")),
    "x * 2 * 64 of int8": ("int8", lambda x: x * number(2, "int8") * number(64, "int8")),
    "x % 1": ("float32", lambda x: relay.floor_mod(x, number(1.0))),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_pass_keeps_the_answer(name: str) -> None:
    dtype, make = KEPT[name]
    data = special_values(dtype)
    if dtype == "int64":
        data = np.array([0, 1, -1, 2**53 + 1, 2**31 - 1, -(2**31)], dtype) if "as" not in name else np.array([3, -3])
    x = relay.var("x", data.shape, dtype)
    module = relay.IRModule({"main": relay.Function([x], make(x))})
    want = run(module, [data])
    for each in PASSES:
        with relay.transform.PassContext(opt_level=3):
            np.testing.assert_array_equal(run(each()(module), [data]), want)


def test_a_cast_that_rounds_is_not_left_out() -> None:
    x = relay.var("x", (1,), "int64")
    body = relay.cast(relay.cast(x, "float64"), "int64")
    simplified = relay.transform.SimplifyExpr()(relay.IRModule({"main": relay.Function([x], body)}))
    assert run(simplified, [np.array([2**53 + 1])])[0] == 2**53


def test_a_float_that_does_not_fit_is_not_folded() -> None:
    x = relay.var("x", (3,), "int8")
    for values, folds in (([300.0, 1.0, np.nan], False), ([-128.9, 127.9, 0.0], True)):
        body = x + relay.cast(Constant(np.array(values, "float32")), "int8")
        with relay.transform.PassContext(opt_level=3):
            folded = relay.transform.FoldConstant()(relay.IRModule({"main": relay.Function([x], body)}))["main"].body
        assert isinstance(folded, Call) and isinstance(folded.args[1], Constant) == folds
