"""Slices, indices, reversal and padding: expression, meaning and type agree, and the meaning is NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relay_lite as relay
from tests.amount import examples
from tests.relay_lite.op_case import check

SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 7]), min_size=1, max_size=3)
few = examples(25)


def numbered(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


@given(shape=SHAPES, data=st.data())
@examples(60)
def test_strided_slice(shape: list[int], data: st.DataObject) -> None:
    """Begins and ends far outside, of both signs, and steps of both signs."""
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    position = st.integers(-9, 9) | st.sampled_from([2**31 - 1, -(2**31), 2**63 - 1])
    begin, end = ([data.draw(position) for _ in axes] for _ in range(2))
    strides = [data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3])) for _ in axes]
    index: list[Any] = [slice(None)] * len(shape)
    for a, b, e, s in zip(axes, begin, end, strides, strict=True):
        index[a] = slice(b, e, s)
    want = numbered(*shape)[tuple(index)]
    named = [a - len(shape) if data.draw(st.booleans()) else a for a in axes]
    call = relay.strided_slice(relay.var("x", shape), begin, end, strides, named)
    assert call.shape == want.shape
    if want.size:
        (got,) = check(call, {"x": numbered(*shape)})
        np.testing.assert_array_equal(got, want)


def test_strided_slice_of_leading_axes_and_by_size() -> None:
    x, values = relay.var("x", (4, 5, 3)), {"x": numbered(4, 5, 3)}
    (got,) = check(relay.strided_slice(x, [1, -3], [4, 5]), values)
    np.testing.assert_array_equal(got, values["x"][1:4, -3:])
    (got,) = check(relay.strided_slice(x, [1, -3], [2, -1], slice_mode="size"), values)
    np.testing.assert_array_equal(got, values["x"][1:3, 2:])
    (got,) = check(relay.strided_slice(x, [3, 4], [-9, -9], [-1]), values)
    np.testing.assert_array_equal(got, values["x"][::-1, ::-1])


@given(shape=SHAPES, data=st.data())
@few
def test_reverse(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    (got,) = check(relay.reverse(relay.var("x", shape), axis), {"x": numbered(*shape)})
    np.testing.assert_array_equal(got, np.flip(numbered(*shape), axis))


@given(shape=SHAPES, where=st.lists(st.integers(1, 3), max_size=2), data=st.data())
@few
def test_take(shape: list[int], where: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    mode = data.draw(st.sampled_from(["clip", "wrap", "fast"]))
    size = int(np.prod(shape)) if axis is None else shape[axis]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    low, high = (0, size) if mode == "fast" else (-2 * size, 2 * size)
    index = np.asarray(rng.integers(low, high, where), "int32")
    call = relay.take(relay.var("x", shape), relay.var("i", where, "int32"), axis, mode)
    (got,) = check(call, {"x": numbered(*shape), "i": index})
    inside = index % size if mode == "wrap" else index.clip(0, size - 1)
    np.testing.assert_array_equal(got, numbered(*shape).take(inside, axis))


@given(shape=SHAPES, count=st.integers(1, 4), data=st.data())
@few
def test_gather(shape: list[int], count: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    where = list(shape)
    where[axis] = count
    index = np.random.default_rng(0).integers(0, shape[axis], where)
    call = relay.gather(relay.var("x", shape), axis, relay.var("i", where, "int64"))
    (got,) = check(call, {"x": numbered(*shape), "i": index})
    np.testing.assert_array_equal(got, np.take_along_axis(numbered(*shape), index, axis))


@given(shape=SHAPES, lead=st.lists(st.integers(1, 3), max_size=2), data=st.data())
@few
def test_gather_nd(shape: list[int], lead: list[int], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(shape)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    index = np.stack([np.asarray(rng.integers(0, n, lead)) for n in shape[:m]]).astype("int32")
    call = relay.gather_nd(relay.var("x", shape), relay.var("i", index.shape, "int32"))
    (got,) = check(call, {"x": numbered(*shape), "i": index})
    np.testing.assert_array_equal(got, numbered(*shape)[tuple(index)])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@given(shape=SHAPES, data=st.data())
@examples(15)
def test_pad(mode: str, shape: list[int], data: st.DataObject) -> None:
    width = [[data.draw(st.integers(0, n - 1 if mode == "reflect" else 3)) for _ in range(2)] for n in shape]
    call = relay.nn.pad(relay.var("x", shape), width, -1.5, mode)
    (got,) = check(call, {"x": numbered(*shape)})
    more = {"constant_values": -1.5} if mode == "constant" else {}
    np.testing.assert_array_equal(got, np.pad(numbered(*shape), width, mode, **more))


def test_pad_of_integers() -> None:
    check(relay.nn.pad(relay.var("x", (3, 2), "int32"), ((1, 0), (0, 2)), 7))
    (got,) = check(relay.nn.pad(relay.var("x", (3, 2)), ((1, 0), (0, 2)), float("-inf")))
    assert np.isneginf(got[0]).all()
