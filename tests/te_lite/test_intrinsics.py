"""The table of intrinsics: each means what `math` says, in the interpreter, the reference and C; one can be added."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen_c
import codegen_cuda
import te_lite as te
from ansor.measure.rounding import rounding_errors
from te_lite.errors import ExprError
from te_lite.expr.intrinsics import BITS, CALLS, Intrinsic, register
from te_lite.meaning.interp import run
from te_lite.meaning.reference import evaluate
from tests.nonempty import nonempty
from tests.oracle import Oracle

OWN = {
    "abs": abs,
    "round": round,
    "rsqrt": lambda x: x**-0.5,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}
APART = ("if_then_else", "pow", *BITS)
"""Those of two or three arguments; tests/te_lite/test_interp_arithmetic.py is about them."""
OF_ONE = [name for name in CALLS if name not in APART]
POINTS = {"acosh": (1.0, 1.5, 7.0)}


def compute(name: str, dtype: str) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((3,), dtype, name="x")
    return x, te.compute((3,), lambda i: te.call(name, x[i]), name="y")


def wanted(name: str, points: tuple[float, ...]) -> list[Any]:
    """By another library than the table's."""
    function: Callable[[float], Any] = OWN[name] if name in OWN else getattr(math, name)
    return [function(x) for x in points]


@pytest.mark.parametrize("name", OF_ONE)
def test_everybody_gives_it_the_meaning_that_math_gives(name: str) -> None:
    points = POINTS.get(name, (0.25, 0.5, 0.875))
    x, y = compute(name, "float64")
    func = te.lower(te.create_schedule(y.op), [x, y])
    given = np.array(points)
    results = {"reference": evaluate([x, y], {x: given})[y]}
    for who, runs in (("interpreter", run), ("C", lambda f, args: codegen_c.build(f)(*args))):
        out = np.zeros(3, y.dtype)
        runs(func, [given, out])
        results[who] = out
    for who, got in nonempty(results.items()):
        np.testing.assert_allclose(got, wanted(name, points), rtol=1e-12, err_msg=who)


@pytest.mark.parametrize("name", [name for name in OF_ONE if CALLS[name].of_integers is not None])
def test_integers_keep_their_value_or_lose_their_sign(name: str) -> None:
    x, y = compute(name, "int32")
    given, out = np.array([-3, 0, 2], "int32"), np.zeros(3, y.dtype)
    run(te.lower(te.create_schedule(y.op), [x, y]), [given, out])
    assert out.tolist() == {"abs": [3, 0, 2], "isnan": [False] * 3}.get(name, [-3, 0, 2])


SOFTPLUS = Intrinsic("softplus", lambda x: np.log1p(np.exp(x)), c="log1p{f}(exp{f}({x}))", dialects={"CUDA": "sp({x})"})


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> str:
    """A function of one's own, for a while."""
    monkeypatch.setitem(CALLS, "softplus", SOFTPLUS)
    return register(SOFTPLUS).name


def test_a_function_of_ones_own_is_computed_by_everybody(added: str) -> None:
    x, y = compute(added, "float32")
    dag = te.ComputeDAG([x, y])
    oracle, func = Oracle(dag, np.random.default_rng(0)), te.lower(te.create_schedule(y.op), [x, y])
    assert oracle.mismatch(func, run) is None
    assert oracle.mismatch(func, lambda f, args: codegen_c.build(f)(*args)) is None
    assert "log1pf(expf(x[i]))" in codegen_c.emit(func)
    (error,) = rounding_errors(dag).values()
    allowed = evaluate([x, error], oracle.inputs)[error]
    assert (allowed > 0).all() and (allowed < 1e-4).all()


def test_a_dialect_may_have_its_own_text(added: str) -> None:
    x, y = compute(added, "float32")
    s = te.create_schedule(y.op)
    s[y].bind(y.op.axis[0], te.thread_axis("threadIdx.x"))
    assert "sp(x[" in codegen_cuda.emit(te.lower(s, [x, y])).source


def test_a_function_without_a_meaning_for_integers_refuses_them(added: str) -> None:
    with pytest.raises(ExprError, match=r"^softplus: a float is needed"):
        compute(added, "int32")


def test_nobody_takes_the_name_of_another() -> None:
    with pytest.raises(ExprError, match=r"^intrinsic exp: another function has this name$"):
        register(Intrinsic("exp", np.exp2))
    assert CALLS["exp"].value is np.exp
