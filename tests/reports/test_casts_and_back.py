"""A float cast to an integer and back: what had a fraction only is 0.0, not -0.0, whatever compilers know of casts.

The oracle is Python's `int`, cut to the ends of the dtype.
"""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

import relay_lite as relay
import te_lite as te
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.transform import PassContext
from tests.nonempty import nonempty

from .everywhere import of_vectors, same_bits

pytestmark = [pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler"),
              pytest.mark.one_in(3)]  # fmt: skip
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = [-0.5, -0.0, 0.0, 0.5, -0.999, 0.999, -1.0, 1.0, -1.5, 1.5, -2.75, 7.99, math.nan, math.inf, -math.inf, 1e-40]


def whole(x: float, dtype: str) -> int:
    """`x` without its fraction; the end of the dtype beyond it, and 0 for NaN."""
    ends = np.iinfo(dtype)
    if math.isnan(x):
        return 0
    return int(ends.max if x > ends.max else ends.min if x < ends.min else int(x))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("given", ["float16", "float32", "float64"])
@pytest.mark.one_in(2)
def test_there_and_back(given: str, dtype: str) -> None:
    x = np.array([*NUMBERS, *np.random.default_rng(3).normal(0, 1, 16)], given)
    want = np.array([whole(float(v), dtype) for v in x], dtype)
    with np.errstate(over="ignore"):
        back = want.astype(given)
    for who, got in of_vectors(lambda a: te.cast(given, te.cast(dtype, a)), [x]):
        same_bits(got, back, f"{dtype} of {given}, {who}")
    for who, got in of_vectors(lambda a: te.const(1.0, given) / te.cast(given, te.cast(dtype, a)), [x]):
        with np.errstate(divide="ignore"):
            same_bits(got, np.array(1, given) / back, f"1 / {dtype} of {given}, {who}")


def test_integers_beyond_halves_are_infinite() -> None:
    """gcc folds a difference of conversions to 0 where it takes neither for infinite."""
    x = np.array([2**62, -(2**63), 70_000, 65_520, 65_519, 7, 0, -65_520], "int64")
    wide = x.astype("float64")
    half = np.where(np.abs(wide) >= 65_520, np.sign(wide) * np.inf, wide)
    with np.errstate(invalid="ignore"):
        want = (half - half).astype("float16")
    for who, got in nonempty(of_vectors(lambda v: te.cast("float16", v) - te.cast("float16", v), [x])):
        np.testing.assert_array_equal(got, want, who)


@pytest.mark.parametrize("given", ["uint8", "int16", "uint16", "int32", "uint64"])
@pytest.mark.parametrize("middle", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "int32", "bool", "uint64"])
@pytest.mark.one_in(3)
def test_integers_as_floats_take_the_ends(given: str, middle: str, dtype: str) -> None:
    """A network drops a cast that loses nothing, but what it changes: integers wrap, and floats take the ends."""
    ends = np.iinfo(given)
    x = np.array([0, 1, 8, 100, 127, 128, 200, 255, ends.max // 2 + 1, ends.max - 1, ends.max, ends.min], given)
    v = relay.var("v", x.shape, given)
    graph = relay.Function([v], relay.cast(relay.cast(v, middle), dtype))
    wide = x.astype(middle)
    want = wide != 0 if dtype == "bool" else np.array([whole(float(f), dtype) for f in wide], dtype)
    for level in (0, 3):
        with PassContext(opt_level=level):
            module = GraphModule(relay.build(graph, "c")["default"]())
        module.run(v=x)
        np.testing.assert_array_equal(module.get_output(0).numpy(), want, f"level {level}")
