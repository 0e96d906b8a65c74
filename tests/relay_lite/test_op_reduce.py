"""Reductions: expression, meaning and type agree, and the meaning is NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relay_lite as relay
from tests.amount import examples
from tests.relay_lite.op_case import check, random_array

SHAPES = st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=4)
few = examples(20)


def some_axis(data: st.DataObject, ndim: int) -> int | list[int] | None:
    """None, one axis, or a few, of either sign."""
    axes = data.draw(st.lists(st.integers(0, ndim - 1), unique=True, min_size=1))
    signed = [a - ndim if data.draw(st.booleans()) else a for a in axes]
    return data.draw(st.sampled_from([None, signed[0], signed]))


def as_tuple(axis: Any, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axis is None else tuple(a % ndim for a in ([axis] if isinstance(axis, int) else axis))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
@given(shape=SHAPES, keepdims=st.booleans(), data=st.data())
@few
def test_numbers(name: str, shape: list[int], keepdims: bool, data: st.DataObject) -> None:
    axis = some_axis(data, len(shape))
    x = relay.var("x", shape)
    values = {"x": random_array(x.var_type, np.random.default_rng(3))}
    (got,) = check(getattr(relay, name)(x, axis, keepdims), values)
    want = getattr(np, name)(values["x"], as_tuple(axis, len(shape)), keepdims=keepdims)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "max", "min"])
def test_integers(name: str) -> None:
    check(getattr(relay, name)(relay.var("x", (3, 5, 2), "int32"), (0, -1)))


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_bools(name: str, keepdims: bool) -> None:
    x = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], "bool")
    (got,) = check(getattr(relay, name)(relay.var("x", (3, 3), "bool"), 1, keepdims), {"x": x})
    np.testing.assert_array_equal(got, getattr(np, name)(x, 1, keepdims=keepdims))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@given(shape=SHAPES, keepdims=st.booleans(), data=st.data())
@few
def test_positions(name: str, shape: list[int], keepdims: bool, data: st.DataObject) -> None:
    """Small integers, so that the extreme occurs more than once: the first one counts."""
    axis = some_axis(data, len(shape))
    values = np.random.default_rng(5).integers(0, 3, shape).astype("float32")
    (got,) = check(getattr(relay, name)(relay.var("x", shape), axis, keepdims), {"x": values})
    # NumPy knows one axis, or all: several are one when they are moved to the end, in their order, and joined
    axes = tuple(sorted(as_tuple(axis, len(shape))))
    last = np.moveaxis(values, axes, range(-len(axes), 0))
    want = getattr(np, name)(last.reshape(*last.shape[: last.ndim - len(axes)], -1), -1)
    np.testing.assert_array_equal(got, np.expand_dims(want, axes) if keepdims else want)


def test_exclude_reduces_the_other_axes() -> None:
    x = relay.var("x", (2, 3, 5))
    for name in ("sum", "mean", "max"):
        assert getattr(relay, name)(x, [1], exclude=True).shape == (3,)
        check(getattr(relay, name)(x, [1, -1], True, exclude=True))
    assert check(relay.sum(x, [0, 1, 2], exclude=True))[0].shape == (2, 3, 5)


@given(shape=SHAPES, keepdims=st.booleans(), unbiased=st.booleans(), data=st.data())
@few
def test_variance(shape: list[int], keepdims: bool, unbiased: bool, data: st.DataObject) -> None:
    axis = some_axis(data, len(shape))
    axes = as_tuple(axis, len(shape))
    unbiased = unbiased and np.prod([shape[a] for a in axes]) > 1
    x = relay.var("x", shape)
    assert relay.variance(x, axis, keepdims, unbiased=unbiased).args[1].op.name == "mean"
    array = random_array(x.var_type, np.random.default_rng(7))
    values = {"x": array, "mean": array.mean(axes, keepdims=True)}
    mean = relay.var("mean", values["mean"].shape)
    (got,) = check(relay.variance(x, axis, keepdims, unbiased=unbiased, with_mean=mean), values)
    np.testing.assert_allclose(got, array.var(axes, keepdims=keepdims, ddof=int(unbiased)), rtol=1e-4, atol=1e-6)


def test_mean_and_variance_share_the_mean() -> None:
    pair = relay.mean_variance(relay.var("x", (2, 3)), 1, True)
    assert pair.fields[1].args[1] is pair.fields[0]
    assert relay.std(relay.var("x", (2, 3)), 1).op.name == "sqrt"
