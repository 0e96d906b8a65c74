"""Sums of a program's own arrays by vectors: values of any length, operation and dtype, and where they are taken so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codegen_c
import te_lite as te
from codegen_c.processor import PROCESSORS
from tests.amount import examples

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

product = te.comm_reducer(lambda x, y: x * y, lambda dtype: te.const(1, dtype), name="product")
OPERATIONS: dict[str, tuple[Callable[..., te.Tensor], Any]] = {
    "+": (te.sum, np.sum), "max": (te.max, np.max), "min": (te.min, np.min), "*": (product, np.prod),
}  # fmt: skip


def summed(length: int, op: str, dtype: str, unrolled: bool = False, own: bool = True) -> te.LoweredFunc:
    """`op` over the rows of 3 x `length`, one row after the other, copied before unless not `own`."""
    x = te.placeholder((3, length), dtype, name="x")
    copy = te.compute(x.shape, lambda i, k: x[i, k], name="copy") if own else x
    axis = te.reduce_axis((0, length), name="k")
    y = te.compute((3,), lambda i: OPERATIONS[op][0](copy[i, axis], axis=axis), name="y")
    s = te.create_schedule(y.op)
    if own:
        s[copy].compute_at(s[y], y.op.axis[0])
    if unrolled:
        s[y].unroll(axis)
    return te.lower(s, [x, y], name="summed")


@examples(40)
@given(
    st.integers(1, 200), st.sampled_from(sorted(OPERATIONS)), st.sampled_from(["float32", "float64", "int32", "uint8"]),
    st.booleans(), st.integers(0, 1 << 30),
)  # fmt: skip
def test_sums_are_those_of_numpy(length: int, op: str, dtype: str, unrolled: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        x = rng.uniform(0.9, 1.1, (3, length)).astype(dtype) * rng.choice([-1, 1], (3, length)).astype(dtype)
        x[1, rng.integers(length)] = rng.choice([np.inf, -np.inf, np.nan])
    else:
        x = rng.integers(0, 200, (3, length)).astype(dtype)
    y = np.full(3, 77, dtype)
    codegen_c.build(summed(length, op, dtype, unrolled))(x, y)
    with np.errstate(all="ignore"):
        want = OPERATIONS[op][1](x if x.dtype.kind != "f" else x.astype("f8"), axis=1).astype(dtype)
    np.testing.assert_allclose(y, want, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-5)


@pytest.mark.parametrize(("length", "lanes"), [(64, 16), (24, 8), (12, 4), (1000, 8), (6, 0), (7, 0), (1, 0)])
def test_as_many_lanes_as_divide_the_sum(length: int, lanes: int) -> None:
    text = codegen_c.emit(summed(length, "max", "float32"), options=PROCESSORS["avx512vl"])
    assert ("copy_lanes[" in text) == bool(lanes)
    if lanes:
        assert f"float copy_lanes[{lanes}]" in text


def test_arguments_are_summed_up_as_they_are_scheduled() -> None:
    text = codegen_c.emit(summed(64, "+", "float32", own=False), options=PROCESSORS["avx2"])
    assert "_lanes" not in text and "f32x" not in text
