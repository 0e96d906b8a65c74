"""Resizing and blocks: expression, meaning and type agree, and the meaning is that of the written formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relay_lite as relay
from te_lite.topi.image import COORDINATES
from tests.amount import examples
from tests.nonempty import nonempty
from tests.relay_lite.op_case import check, random_array

PLACES: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "half_pixel": lambda x, size, n: (x + 0.5) * size / n - 0.5,
    "align_corners": lambda x, size, n: x * (size - 1) / (n - 1) if n > 1 else x * 0.0,
    "asymmetric": lambda x, size, n: x * size / n,
    "pytorch_half_pixel": lambda x, size, n: (x + 0.5) * size / n - 0.5 if n > 1 else x * 0.0,
    "tf_half_pixel_for_nn": lambda x, size, n: (x + 0.5) * size / n,
}
ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
SIZES = st.tuples(st.integers(1, 6), st.integers(1, 6))


def along_axis(a: np.ndarray, axis: int, n: int, place: np.ndarray, taps: dict[int, np.ndarray]) -> np.ndarray:
    """The weighted sum of the neighbours at `floor(place) + k`, moved inside."""
    shape = [-1 if d == axis else 1 for d in range(a.ndim)]
    low = np.floor(place).astype(int)
    return sum(a.take((low + k).clip(0, a.shape[axis] - 1), axis) * w.reshape(shape) for k, w in taps.items())


def keys(d: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel."""
    d = np.abs(d)
    inner = (a + 2) * d**3 - (a + 3) * d**2 + 1
    outer = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


def case(size: tuple[int, int], layout: str) -> tuple[relay.Var, np.ndarray, list[int]]:
    extents = dict(zip("NCHW", (2, 3, *size), strict=True))
    x = relay.var("x", [extents[k] for k in layout])
    return x, random_array(x.var_type, np.random.default_rng(1)), [layout.index("H"), layout.index("W")]


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("rounding", ROUND)
@given(size=SIZES, target=SIZES)
@examples(12)
@pytest.mark.one_in(3)
def test_nearest(mode: str, rounding: str, size: tuple[int, int], target: tuple[int, int]) -> None:
    x, a, axes = case(size, "NCHW")
    (got,) = check(relay.image.resize2d(x, target, "NCHW", "nearest_neighbor", mode, rounding), {"x": a})
    for axis, n in zip(axes, target, strict=True):
        place = np.round(PLACES[mode](np.arange(n), a.shape[axis], n), 9)
        a = a.take(ROUND[rounding](place).astype(int).clip(0, a.shape[axis] - 1), axis)
    np.testing.assert_array_equal(got, a)


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@given(size=SIZES, target=SIZES)
@examples(8)
def test_linear(mode: str, layout: str, size: tuple[int, int], target: tuple[int, int]) -> None:
    x, a, axes = case(size, layout)
    (got,) = check(relay.image.resize2d(x, target, layout, "linear", mode), {"x": a})
    for axis, n in zip(axes, target, strict=True):
        place = PLACES[mode](np.arange(n), a.shape[axis], n)
        t = place - np.floor(place)
        a = along_axis(a, axis, n, place, {0: 1 - t, 1: t})
    np.testing.assert_allclose(got, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("exclude", [False, True])
@given(size=SIZES, target=SIZES, alpha=st.sampled_from([-0.75, -0.5]))
@examples(3)
@pytest.mark.one_in(3)
def test_cubic(mode: str, exclude: bool, size: tuple[int, int], target: tuple[int, int], alpha: float) -> None:
    x, a, axes = case(size, "NCHW")
    call = relay.image.resize2d(x, target, "NCHW", "cubic", mode, cubic_alpha=alpha, cubic_exclude=exclude)
    (got,) = check(call, {"x": a})
    for axis, n in zip(axes, target, strict=True):
        place = PLACES[mode](np.arange(n), a.shape[axis], n)
        low = np.floor(place)
        taps = {k: keys(place - low - k, alpha) for k in (-1, 0, 1, 2)}
        if exclude:
            taps = {k: np.where((low + k >= 0) & (low + k < a.shape[axis]), w, 0) for k, w in taps.items()}
            total = sum(taps.values())
            taps = {k: w / total for k, w in taps.items()}
        a = along_axis(a, axis, n, place, taps)
    np.testing.assert_allclose(got, a, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["nearest_neighbor", "bilinear", "bicubic"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_upsampling(method: str, layout: str) -> None:
    x, a, axes = case((3, 5), layout)
    call = relay.nn.upsampling(x, 2, 3, layout, method)
    assert [call.shape[d] for d in axes] == [6, 15]
    (got,) = check(call, {"x": a})
    if method == "nearest_neighbor":
        np.testing.assert_array_equal(got, a.repeat(2, axes[0]).repeat(3, axes[1]))
    corners = tuple(slice(None, None, n - 1) if d in axes else slice(None) for d, n in enumerate(call.shape))
    (got,) = check(relay.nn.upsampling(x, 2, 3, layout, method, align_corners=True), {"x": a})
    borders = tuple(slice(None, None, n - 1) if d in axes else slice(None) for d, n in enumerate(a.shape))
    np.testing.assert_allclose(got[corners], a[borders], rtol=1e-5)


def test_nearest_of_integers_and_another_dtype() -> None:
    check(relay.image.resize2d(relay.var("x", (1, 2, 3, 4), "int32"), 5, method="nearest_neighbor"))
    (got,) = check(relay.image.resize2d(relay.var("x", (1, 2, 3, 4)), (5, 2), out_dtype="float64"), own_rtol=1e-5)
    assert got.dtype == "float64"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_blocks(layout: str, mode: str, block: int) -> None:
    extents = {"N": 2, "C": 2 * block**2, "H": 3, "W": 5}
    x = relay.var("x", [extents[k] for k in layout])
    a = np.arange(np.prod(x.shape), dtype="float32").reshape(x.shape)
    (got,) = check(relay.nn.depth_to_space(x, block, layout, mode), {"x": a})
    plain, spread = (np.moveaxis(v, layout.index("C"), 1) for v in (a, got))
    for y in nonempty(range(block)):
        for z in nonempty(range(block)):
            inner = y * block + z
            part = plain[:, inner * 2 : inner * 2 + 2] if mode == "DCR" else plain[:, inner :: block**2]
            np.testing.assert_array_equal(spread[:, :, y::block, z::block], part)
    if mode == "DCR":
        (back,) = check(relay.nn.space_to_depth(relay.var("y", got.shape), block, layout), {"y": got})
        np.testing.assert_array_equal(back, a)
