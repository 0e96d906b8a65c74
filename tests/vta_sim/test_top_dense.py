"""Compiled matrix products: their numbers, and what they move."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from te_lite import Tensor
from te_lite.errors import ExprError
from tests.amount import examples
from tests.vta_sim.packed import Array, divisors
from vta_sim import Device
from vta_sim.compiler.module import build
from vta_sim.core.errors import CompileError
from vta_sim.sim import Launch
from vta_sim.top import DenseKnobs, add, dense_packed, requantized, schedule_dense_packed


def tensors_of(n: int, ci: int, co: int, bias: bool = False) -> list[Tensor]:
    data = te.placeholder((n, ci, 1, 16), name="data", dtype="int8")
    weights = te.placeholder((co, ci, 16, 16), name="weights", dtype="int8")
    result = dense_packed(data, weights)
    if not bias:
        return [data, weights, requantized(result)]
    extra = te.placeholder((1, co, 1, 16), name="bias", dtype="int32")
    return [data, weights, extra, requantized(add(result, extra), 4, -128, 127)]


def run(tensors: list[Tensor], knobs: DenseKnobs, arrays: list[Array]) -> tuple[Array, Launch]:
    device = Device()
    device.finds_races = True
    output = np.full(tensors[-1].shape, -77, np.int8)
    module = build(schedule_dense_packed(knobs, tensors[-1]), tensors, device=device)
    return output, module.launch(*arrays, output, rng=np.random.default_rng(1))


@examples(80)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.booleans(), st.integers(0, 2**32 - 1), st.data())
def test_any_product(n: int, ci: int, co: int, bias: bool, seed: int, data: st.DataObject) -> None:
    points = [
        DenseKnobs(b, i, c, t)
        for b, i, c, t in itertools.product(divisors(n), divisors(ci), divisors(co), (1, 2))
        if co // c % t == 0
    ]
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (n, ci, 1, 16), dtype=np.int8)
    w = rng.integers(-128, 128, (co, ci, 16, 16), dtype=np.int8)
    expected = np.einsum("nkbi,okji->nobj", x.astype(np.int64), w.astype(np.int64))
    arrays: list[Array] = [x, w]
    if bias:
        arrays.append(rng.integers(-30000, 30000, (1, co, 1, 16), dtype=np.int32))
        expected = expected + arrays[-1]
    expected = np.clip(expected >> 4, -128, 127) if bias else np.clip(expected >> 8, 0, 127)
    output, _ = run(tensors_of(n, ci, co, bias), data.draw(st.sampled_from(points)), arrays)
    np.testing.assert_array_equal(output, expected)


def test_traffic() -> None:
    """Weights are read once, inputs once for each tile of output channels."""
    tensors = tensors_of(8, 8, 8)
    arrays = [np.zeros(t.shape, np.int8) for t in tensors[:2]]
    _, launch = run(tensors, DenseKnobs(8, 2, 4, 2), arrays)
    c = launch.counters
    assert (c.gemm_counter, c.alu_counter) == (8 * 8 * 8, 3 * 8 * 8)
    assert (c.wgt_load_nbytes, c.inp_load_nbytes, c.out_store_nbytes) == (64 * 256, 2 * 64 * 16, 64 * 16)


def test_refusals() -> None:
    for knobs, reason in (
        (DenseKnobs(1, 64, 64), "the tiles of 1 virtual threads must fit the 1024 elements of WGT"),
        (DenseKnobs(1, 1, 5), "tiles must divide their loops"),
        (DenseKnobs(1, 1, 64, 2), "tiles must divide their loops"),
    ):
        tensors = tensors_of(1, 64, 64)
        with pytest.raises(CompileError, match=reason):
            build(schedule_dense_packed(knobs, tensors[-1]), tensors)
    with pytest.raises(ExprError, match="the input channels of data and weights must agree"):
        dense_packed(te.placeholder((1, 2, 1, 16), dtype="int8"), te.placeholder((1, 3, 16, 16), dtype="int8"))
    with pytest.raises(ExprError, match="int8 by int8 gives int32"):
        dense_packed(te.placeholder((1, 2, 1, 16)), te.placeholder((1, 2, 16, 16), dtype="int8"))
