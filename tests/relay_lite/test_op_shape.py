"""Operators that change how elements are indexed, and that put tensors together or take them apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relay_lite as relay
from relay_lite.op import shape as shapes
from relay_lite.op.shape import resolve
from tests.amount import examples
from tests.nonempty import nonempty
from tests.relay_lite.op_case import check

SHAPES = st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=4)
few = examples(20)


def numbered(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


@given(shape=SHAPES, data=st.data())
@few
def test_expand_dims_and_squeeze(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    count = data.draw(st.integers(0, 3))
    x = relay.var("x", shape)
    call = relay.expand_dims(x, axis, count)
    check(call)
    at = axis % (len(shape) + 1)
    assert call.shape == (*shape[:at], *[1] * count, *shape[at:])
    check(relay.squeeze(call))
    check(relay.squeeze(call, list(range(at, at + count))))
    check(relay.squeeze(call, []))


@given(shape=SHAPES, data=st.data())
@few
def test_reshape_to_factors_in_another_order(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(shape))
    unknown = data.draw(st.integers(0, len(order)))
    asked = [-1 if d == unknown else n for d, n in enumerate(order)]
    call = relay.reshape(relay.var("x", shape), asked)
    assert call.shape == tuple(order)
    check(call)


@pytest.mark.parametrize(
    ("shape", "asked", "want"),
    [
        ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 3, 4), (2, -2), (2, 3, 4)),
        ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)),
        ((2, 3, 4), (-3, 4), (6, 4)),
        ((2, 3, 4), (0, -3), (2, 12)),
        ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)),
        ((5,), (), None),
        ((1, 1), (), ()),
    ],
)
def test_codes_of_reshape(shape: tuple[int, ...], asked: tuple[int, ...], want: tuple[int, ...] | None) -> None:
    if want is None:
        with pytest.raises(relay.GraphError):
            relay.reshape(relay.var("x", shape), asked)
        return
    assert resolve(asked, shape) == want
    (got,) = check(relay.reshape(relay.var("x", shape), asked), {"x": numbered(*shape)})
    np.testing.assert_array_equal(got.ravel(), np.arange(got.size))


@given(shape=SHAPES, data=st.data())
@few
def test_transpose_and_layouts(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    signed = [a - len(shape) if data.draw(st.booleans()) else a for a in order]
    x, values = relay.var("x", shape), {"x": numbered(*shape)}
    (got,) = check(relay.transpose(x, signed), values)
    np.testing.assert_array_equal(got, values["x"].transpose(order))
    check(relay.transpose(x), values)
    source = "NDHW"[: len(shape)]
    (moved,) = check(relay.layout_transform(x, source, "".join(source[d] for d in order)), values)
    np.testing.assert_array_equal(moved, got)


def test_layout_transform_of_an_image() -> None:
    (got,) = check(relay.layout_transform(relay.var("x", (2, 3, 5, 7)), "NCHW", "NHWC"), {"x": numbered(2, 3, 5, 7)})
    np.testing.assert_array_equal(got, numbered(2, 3, 5, 7).transpose(0, 2, 3, 1))


@given(shape=SHAPES, lead=st.lists(st.integers(1, 3), max_size=2), data=st.data())
@few
def test_broadcast_to(shape: list[int], lead: list[int], data: st.DataObject) -> None:
    start = [1 if data.draw(st.booleans()) else n for n in shape]
    check(relay.broadcast_to(relay.var("x", start), lead + shape))


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 4), (5,)])
def test_batch_flatten_and_shape_of(shape: tuple[int, ...]) -> None:
    x = relay.var("x", shape)
    (got,) = check(relay.nn.batch_flatten(x), {"x": numbered(*shape)})
    np.testing.assert_array_equal(got, numbered(*shape).reshape(shape[0], -1))
    (got,) = check(relay.shape_of(x, "int64"))
    assert tuple(got) == shape and got.dtype == "int64"


# ------------------------------------------------------------------------------------ together and apart


@given(shape=SHAPES, sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
@few
def test_concatenate_and_split_again(shape: list[int], sizes: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    at = axis % len(shape)
    parts = [numbered(*shape[:at], n, *shape[at + 1 :]) + 100 * k for k, n in enumerate(sizes)]
    call = relay.concatenate([relay.var(f"x{k}", p.shape) for k, p in enumerate(parts)], axis)
    (whole,) = check(call, {f"x{k}": p for k, p in enumerate(parts)})
    np.testing.assert_array_equal(whole, np.concatenate(parts, at))
    cuts = list(itertools.accumulate(sizes))[:-1]
    apart = check(relay.split(relay.var("x", whole.shape), cuts, axis), {"x": whole})
    for a, b in zip(apart, parts, strict=True):
        np.testing.assert_array_equal(a, b)


def test_split_into_equal_parts() -> None:
    got = check(relay.split(relay.var("x", (2, 6, 5)), 3, -2), {"x": numbered(2, 6, 5)})
    for k, part in nonempty(enumerate(got)):
        np.testing.assert_array_equal(part, numbered(2, 6, 5)[:, 2 * k : 2 * k + 2])


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_stack(axis: int) -> None:
    arrays = [numbered(3, 5) + 100 * k for k in range(4)]
    tensors = [relay.var(f"x{k}", (3, 5)) for k in range(4)]
    (got,) = check(relay.stack(tensors, axis), {f"x{k}": a for k, a in enumerate(arrays)})
    np.testing.assert_array_equal(got, np.stack(arrays, axis))


@given(shape=SHAPES, reps=st.lists(st.integers(1, 3), min_size=1, max_size=5))
@few
def test_tile(shape: list[int], reps: list[int]) -> None:
    (got,) = check(relay.tile(relay.var("x", shape), reps), {"x": numbered(*shape)})
    np.testing.assert_array_equal(got, np.tile(numbered(*shape), reps))


@given(shape=SHAPES, repeats=st.integers(1, 4), data=st.data())
@few
def test_repeat(shape: list[int], repeats: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    (got,) = check(relay.repeat(relay.var("x", shape), repeats, axis), {"x": numbered(*shape)})
    np.testing.assert_array_equal(got, np.repeat(numbered(*shape), repeats, axis))


@pytest.mark.parametrize("seed", range(12))
def test_large_arrays_are_permuted_in_tiles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "LARGE", 1)
    monkeypatch.setattr(shapes, "TILE", 4)
    rng = np.random.default_rng(seed)
    extents = rng.integers(1, 12, size=rng.integers(1, 5))
    x = rng.standard_normal(extents).astype(np.float32)
    for axes in nonempty(itertools.permutations(range(x.ndim))):
        got = shapes.permuted(x, axes)
        assert got.flags.c_contiguous and np.array_equal(got, x.transpose(axes))
