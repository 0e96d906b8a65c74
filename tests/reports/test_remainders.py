"""Remainders and quotients of floats that are rounded down: exact, whatever the quotient's size.

The oracle (`tests/exact_division.py`) computes in fractions.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
import te_lite as te
from ansor.measure.check import accepted_values, mismatch
from te_lite import topi
from tests.exact_division import each, quotient, remainder, truncated
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_graph, of_onnx, of_vectors, same_bits

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")

INF, NAN = math.inf, math.nan
REPORTED = [(1.0, 0.1), (1e9, 7.0), (5.0, INF), (-5.0, INF), (INF, 2.0), (1.0, 0.0), (-0.0, 2.0), (-4.0, 2.0)]


ORACLES: dict[str, tuple[Callable[[float, float], float], Any, Any]] = {
    "mod": (truncated, topi.mod, relay.mod),
    "floor_mod": (remainder, te.floormod, relay.floor_mod),
    "floor_divide": (quotient, te.floordiv, relay.floor_divide),
}


def drawn(dtype: str, seed: int, count: int = 48) -> tuple[Array, Array]:
    """The reported pairs, multiples of their divisors and their neighbours, special values, all sizes; 64 pairs."""
    rng = np.random.default_rng(seed)
    b = rng.choice([0.1, 0.2, 0.3, 1.0, 3.0, 7.0, -0.1, -7.0], count).astype(dtype)
    a = (b * rng.integers(-40, 40, count).astype(dtype)).astype(dtype)
    a = np.where(rng.random(count) < 0.3, np.nextafter(a, np.asarray(rng.choice([-INF, INF]), dtype)), a)
    a = np.where(rng.random(count) < 0.3, rng.normal(size=count) * 10.0 ** rng.integers(0, 5, count), a).astype(dtype)
    special = np.array([0.0, -0.0, INF, -INF, NAN, 1.5, -2.0], dtype)
    pairs = np.array(REPORTED).T
    reported = [x.clip(-6e4, 6e4) if dtype == "float16" else x for x in pairs]
    reported = [np.where(np.isinf(x), x, y) for x, y in zip(pairs, reported, strict=True)]
    more = [rng.choice(special, 64 - count - len(REPORTED)) for _ in "ab"]
    made = [np.concatenate([x, y, z]).astype(dtype) for x, y, z in zip((a, b), reported, more, strict=True)]
    return made[0], made[1]


def wanted(name: str, a: Array, b: Array) -> Array:
    return each(ORACLES[name][0], a, b)


def assert_right(name: str, got: Array, want: Array, who: str) -> None:
    """The very bits; a quotient beyond the whole numbers of its dtype may be rounded twice."""
    if name == "floor_divide":
        with np.errstate(all="ignore"):
            twice = np.isfinite(want) & (np.abs(want) > 2.0 ** np.finfo(want.dtype).nmant)
            got = np.where(twice & (np.abs(got - want) <= np.spacing(np.abs(want))), want, got).astype(got.dtype)
    same_bits(got, want, f"{name}: {who}")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ORACLES)
def test_of_elements(name: str, dtype: str) -> None:
    a, b = drawn(dtype, seed=len(name))
    want = wanted(name, a, b)
    for who, got in nonempty(of_vectors(ORACLES[name][1], [a, b])):
        assert_right(name, got, want, who)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ORACLES)
def test_wrong_remainders_are_not_accepted(name: str, dtype: str) -> None:
    """Of numbers that are read, nothing but a rounding is: a step to the next divisor, or a quotient of one less."""
    a, b = drawn(dtype, seed=5)
    x, y = te.placeholder(a.shape, dtype, "x"), te.placeholder(b.shape, dtype, "y")
    out = te.compute(a.shape, lambda i: ORACLES[name][1](x[i], y[i]), "out")
    right = accepted_values(te.ComputeDAG([x, y, out]), {x: a, y: b})[out]
    want = wanted(name, a, b)
    assert not mismatch(want, right)
    with np.errstate(all="ignore"):
        step = np.where(np.isfinite(b), b, 1) if name != "floor_divide" else np.ones_like(b)
        told = [k for k in range(len(a)) if np.isfinite(want[k]) and want[k] + step[k] != want[k]]
    for k in nonempty(told):
        spoiled = want.copy()
        spoiled[k] += step[k]
        assert mismatch(spoiled, right), (a[k], b[k], want[k], spoiled[k])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_of_graphs(dtype: str) -> None:
    a, b = drawn(dtype, seed=7)
    x, y = relay.var("x", a.shape, dtype), relay.var("y", b.shape, dtype)
    graph = relay.Function([x, y], relay.Tuple([make(x, y) for _, _, make in ORACLES.values()]))
    for who, found in nonempty(of_graph(graph, [a, b])):
        for name, got in nonempty(zip(ORACLES, found, strict=True)):
            assert_right(name, got, wanted(name, a, b), who)


def test_divisors_that_are_known() -> None:
    """A constant divisor folds nothing that is not so."""
    a, _ = drawn("float32", seed=3)
    for divisor in (0.1, 1.0, -1.0, 7.0, INF):
        b = np.full(a.shape, divisor, "float32")
        for name, (_, make, _) in ORACLES.items():
            for who, got in nonempty(of_vectors(lambda x, make=make, d=divisor: make(x, te.const(d, "float32")), [a])):
                assert_right(name, got, wanted(name, a, b), f"{who} by {divisor}")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_mod_of_onnx(dtype: str) -> None:
    a, b = (x.astype(dtype) for x in drawn("float32" if dtype == "bfloat16" else dtype, seed=11))
    model = node_model("Mod", [a, b], fmod=1)
    for who, (got,) in nonempty(of_onnx(model, [a, b])):
        same_bits(got, wanted("mod", a, b), who)
