"""Softmax and normalisations: expression, meaning and type agree, and the meaning is the textbook's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import relay_lite as relay
from tests.relay_lite.op_case import check, random_array

SHAPE = (2, 6, 3, 5)


def values(*names_and_shapes: tuple[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {n: random_array(relay.TensorType(s), rng, *((0.2, 2.0) if n == "var" else (-2.0, 2.0)))
            for n, s in names_and_shapes}  # fmt: skip


def variables(given: dict[str, np.ndarray]) -> list[relay.Var]:
    return [relay.var(n, a.shape) for n, a in given.items()]


def along(v: np.ndarray, axis: int) -> np.ndarray:
    return v.reshape([-1 if d == axis % 4 else 1 for d in range(4)])


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2])
def test_softmax(axis: int) -> None:
    given = values(("x", SHAPE))
    (x,) = variables(given)
    (got,) = check(relay.nn.softmax(x, axis), given)
    np.testing.assert_allclose(got, scipy.special.softmax(given["x"], axis), rtol=1e-5)
    (got,) = check(relay.nn.log_softmax(x, axis), given)
    np.testing.assert_allclose(got, scipy.special.log_softmax(given["x"], axis), rtol=1e-5, atol=1e-6)
    assert np.isfinite(check(relay.nn.softmax(x, axis), low=-1e4, high=1e4)[0]).all()


@pytest.mark.parametrize("axis", [1, -1, 2])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, True), (True, False), (False, False)])
def test_batch_norm(axis: int, center: bool, scale: bool) -> None:
    n = (SHAPE[axis],)
    given = values(("x", SHAPE), ("gamma", n), ("beta", n), ("mean", n), ("var", n))
    call = relay.nn.batch_norm(*variables(given), axis=axis, epsilon=1e-3, center=center, scale=scale)
    out, mean, var = check(call, given)
    want = (given["x"] - along(given["mean"], axis)) / np.sqrt(along(given["var"], axis) + 1e-3)
    want = want * along(given["gamma"], axis) if scale else want
    want = want + along(given["beta"], axis) if center else want
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(mean, given["mean"])
    np.testing.assert_array_equal(var, given["var"])


@pytest.mark.parametrize("name", ["layer_norm", "instance_norm", "group_norm"])
@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, True), (True, False)])
@pytest.mark.one_in(5)
def test_norms(name: str, axis: int, center: bool, scale: bool) -> None:
    groups = {1: 3, 2: 1, -1: 5}[axis]
    n = (SHAPE[axis],)
    given = values(("x", SHAPE), ("gamma", n), ("beta", n))
    more = {"num_groups": groups} if name == "group_norm" else {}
    call = getattr(relay.nn, name)(*variables(given), axis=axis, epsilon=1e-3, center=center, scale=scale, **more)
    (got,) = check(call, given, own_rtol=1e-4)
    x, at = given["x"].astype("float64"), axis % 4
    if name == "group_norm":
        shape = (*SHAPE[:at], groups, SHAPE[at] // groups, *SHAPE[at + 1 :])
        x, axes = x.reshape(shape), tuple(d for d in range(5) if d not in (0, at))
    else:
        axes = (at,) if name == "layer_norm" else tuple(d for d in range(4) if d not in (0, at))
    want = ((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-3)).reshape(SHAPE)
    want = want * along(given["gamma"], axis) if scale else want
    want = want + along(given["beta"], axis) if center else want
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [None, 1, [1, 2], [-1, 0]])
def test_l2_normalize(axis: int | list[int] | None) -> None:
    given = values(("x", SHAPE))
    given["x"][0] *= 1e-5
    (got,) = check(relay.nn.l2_normalize(*variables(given), 1e-6, axis), given)
    axes = tuple(range(4)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    squares = np.maximum((given["x"].astype("float64") ** 2).sum(axes, keepdims=True), 1e-6)
    np.testing.assert_allclose(got, given["x"] / np.sqrt(squares), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("axis", [1, 3, -2])
def test_lrn(size: int, axis: int) -> None:
    given = values(("x", SHAPE))
    (got,) = check(relay.nn.lrn(*variables(given), size, axis, 1.5, 0.1, 0.75), given)
    want = np.empty(SHAPE)
    x = np.moveaxis(given["x"].astype("float64"), axis, 0)
    for c in range(SHAPE[axis]):
        near = x[max(c - (size - 1) // 2, 0) : c + size // 2 + 1]
        line = x[c] / (1.5 + 0.1 / size * (near**2).sum(0)) ** 0.75
        np.moveaxis(want, axis, 0)[c] = line
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_dropout_drops_nothing() -> None:
    given = values(("x", SHAPE))
    out, mask = check(relay.nn.dropout_raw(*variables(given)), given)
    np.testing.assert_array_equal(out, given["x"])
    assert (mask == 1).all()
    assert relay.nn.dropout(relay.var("x", (2,)), 0.3).shape == (2,)
