"""What is left out of a sum is left out, infinite or not: running sums, and neighbours whose weight is 0.

A product with 0 would make NaN of an infinity.
"""

from __future__ import annotations

import itertools
import math
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import relay_lite as relay
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_graph, of_onnx

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++"),
              pytest.mark.one_in(2)]  # fmt: skip

INF, NAN = np.inf, np.nan


def spoiled(shape: tuple[int, ...], seed: int, dtype: str = "float32", least: int = 2) -> Array:
    """Small whole numbers, of which sums are exact, with infinities and a NaN among them."""
    rng = np.random.default_rng(seed)
    data = rng.integers(-4, 5, shape).astype(dtype)
    some = rng.choice(data.size, min(data.size, least), replace=False)
    data.reshape(-1)[some] = rng.choice([INF, -INF, NAN], len(some), p=[0.45, 0.45, 0.1])
    return data


def same(got: Array, want: Array, who: str) -> None:
    """NaN where NaN is wanted, the very infinities, and numbers closely."""
    np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), 2e-3 if got.itemsize < 4 else 1e-5, 1e-5,
                               err_msg=who)  # fmt: skip


# ------------------------------------------------------------------------------------------------ running sums


def running(x: Array, axis: int, exclusive: bool, backwards: bool) -> Array:
    """One addition after the other."""
    lines = np.moveaxis(x.astype("float64"), axis, -1)
    out = np.zeros_like(lines)
    for place in np.ndindex(lines.shape[:-1]):
        total, steps = 0.0, range(lines.shape[-1])
        for k in reversed(steps) if backwards else steps:
            before, total = total, total + lines[place][k]
            out[place][k] = before if exclusive else total
    return np.moveaxis(out, -1, axis)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_running_sums(dtype: str) -> None:
    cases = [(np.array([1, INF, 2], dtype), 0, 0, 0)]
    for seed, (exclusive, reverse, axis) in enumerate(itertools.product((0, 1), (0, 1), (0, 1, -1))):
        cases.append((spoiled((3, 4, 5), seed, "float32").astype(dtype), axis, exclusive, reverse))
    for x, axis, exclusive, reverse in cases:
        model = node_model("CumSum", [x], exclusive=exclusive, reverse=reverse)
        model.graph.node[0].input.append("axis")
        model.graph.initializer.append(numpy_helper.from_array(np.array(axis, "int64"), "axis"))
        with np.errstate(invalid="ignore"):
            want = running(x, axis, bool(exclusive), bool(reverse))
        for who, (got,) in nonempty(of_onnx(model, [x])):
            same(got, want, f"{who} {axis} {exclusive} {reverse}")


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_running_sums_of_integers_wrap(dtype: str) -> None:
    ends = np.iinfo(dtype)
    x = np.array([ends.max, 1, 5, ends.min, ends.max], dtype)
    model = node_model("CumSum", [x])
    model.graph.node[0].input.append("axis")
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, "int64"), "axis"))
    exact = np.array([int(v) % 2**ends.bits for v in itertools.accumulate(map(int, x))], "uint64")
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_array_equal(got, exact.astype(dtype), who)


# --------------------------------------------------------------------------------------------- images between pixels


def place(k: int, size: int, target: int, mode: str) -> float:
    """The formulas of ONNX, Resize."""
    match mode:
        case "align_corners":
            return k * (size - 1) / (target - 1) if target > 1 else 0.0
        case "asymmetric":
            return k * size / target
        case "pytorch_half_pixel" if target == 1:
            return 0.0
    return (2 * k * size + size - target) / (2 * target)


def kernel(distance: float, method: str) -> float:
    """The weight of an element so far away; the parameter of cubic ones is -0.75."""
    d, a = abs(distance), -0.75
    if method == "linear":
        return max(1 - d, 0.0)
    if d < 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1 if d else 1.0
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if 1 < d < 2 else 0.0


def weights(size: int, target: int, mode: str, method: str) -> list[dict[int, float]]:
    """For each element of the result the weights of those of the source; outside of it, its last one counts."""
    found = []
    for k in range(target):
        at, own = place(k, size, target, mode), dict[int, float]()
        for p in range(math.floor(at) - 1, math.floor(at) + 3):
            w = kernel(at - p, method)
            if w:
                inside = min(max(p, 0), size - 1)
                own[inside] = own.get(inside, 0.0) + w
        found.append(own)
    return found


def resized(x: Array, targets: tuple[int, ...], mode: str, method: str) -> Array:
    """The last axes of `x`, one after the other."""
    out = x.astype("float64")
    for axis, target in zip(range(x.ndim - len(targets), x.ndim), targets, strict=True):
        if target != out.shape[axis]:
            rows = weights(out.shape[axis], target, mode, method)
            parts = [sum(w * out.take(p, axis) for p, w in own.items()) for own in rows]
            out = np.stack(parts, axis)
    return out


MODES = ("asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel")
SIZES = [
    ((1, 1, 5), (9,)),
    ((1, 2, 4, 5), (8, 9)),
    ((1, 1, 4, 6), (2, 3)),
    ((1, 1, 5, 5), (9, 5)),
    ((1, 1, 3, 3, 3), (5, 6, 3)),
]


def resize_model(x: Array, targets: tuple[int, ...], **attrs: object) -> onnx.ModelProto:
    model = node_model("Resize", [x], opset=19, **attrs)
    model.graph.node[0].input.extend(["", "", "sizes"])
    sizes = np.array([*x.shape[: x.ndim - len(targets)], *targets], "int64")
    model.graph.initializer.append(numpy_helper.from_array(sizes, "sizes"))
    return model


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_resize_beside_infinities(method: str, mode: str) -> None:
    """Cubic weights differ in sign, so one infinity is drawn, away from the border, where it counts once."""
    cases = [case for case in SIZES if method == "linear" or len(case[0]) == 4]
    for seed, (shape, targets) in nonempty(enumerate(cases)):
        x = spoiled(shape, seed, least=2 if method == "linear" else 0)
        if method == "cubic":
            x[0, 0, 1, 2] = INF
        with np.errstate(invalid="ignore"):
            want = resized(x, targets, mode, method)
        model = resize_model(x, targets, mode=method, coordinate_transformation_mode=mode)
        for who, (got,) in nonempty(of_onnx(model, [x])):
            same(got, want, f"{who} {shape} {targets}")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_linear_resize_of_integers(dtype: str) -> None:
    """Without the fraction, as onnxruntime has it; where the exact one is whole, a rounding may go below it."""
    ends = np.iinfo(dtype)
    x = np.random.default_rng(5).integers(max(ends.min, -1000), min(ends.max, 1000) + 1, (1, 2, 4, 5)).astype(dtype)
    for mode, size in nonempty(itertools.product(MODES, ((7, 9), (3, 2), (8, 5)))):
        exact = resized(x, size, mode, "linear")
        model = resize_model(x, size, mode="linear", coordinate_transformation_mode=mode)
        for who, (got,) in nonempty(of_onnx(model, [x])):
            off = np.abs(got.astype("float64") - np.trunc(exact))
            assert got.dtype == x.dtype and np.all(off <= (np.abs(exact - np.rint(exact)) < 1e-3)), (who, mode, size)


@pytest.mark.parametrize("mode", ["asymmetric", "align_corners", "half_pixel"])
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_the_operator_of_images(method: str, mode: str) -> None:
    x = spoiled((1, 2, 4, 5), 3, least=1)
    data = relay.var("x", x.shape)
    attrs = {"method": method, "coordinate_transformation_mode": mode, "cubic_alpha": -0.75}
    outs = [relay.image.resize2d(data, size, **attrs) for size in ((8, 9), (2, 5))]
    with np.errstate(invalid="ignore"):
        wants = [resized(x, size, mode, method) for size in ((8, 9), (2, 5))]
    for who, found in nonempty(of_graph(relay.Function((data,), relay.Tuple(tuple(outs))), [x])):
        for got, want in nonempty(zip(found, wants, strict=True)):
            same(got, want, who)


def test_one_weight_for_an_element_that_is_read_twice() -> None:
    """Beyond a border its last element counts: of an infinity the sum of its weights decides the sign."""
    x = np.ones((1, 1, 1, 8), "float32")
    x[0, 0, 0, 0] = INF
    model = resize_model(x, (1, 4), mode="cubic", antialias=1)
    for who, (got,) in nonempty(of_onnx(model, [x])):
        assert got[0, 0, 0, 0] == INF and not np.isnan(got).any(), (who, got)


# ------------------------------------------------------------------------------------------------------ grids


def sampled(x: Array, grid: Array, padding: str, mode: str) -> Array:
    """GridSample with align_corners of one image (C, H, W) at a grid (P, 2), element by element."""
    c, h, w = x.shape
    out = np.zeros((c, len(grid)))
    for k, (gx, gy) in enumerate(grid.astype("float64")):
        at = [(gy + 1) * (h - 1) / 2, (gx + 1) * (w - 1) / 2]
        at = [round(p) for p in at] if mode == "nearest" else at
        at = [min(max(p, 0), n - 1) for p, n in zip(at, (h, w), strict=True)] if padding == "border" else at
        for r, q in itertools.product(*[(math.floor(p), math.floor(p) + 1) for p in at]):
            weight = kernel(at[0] - r, "linear") * kernel(at[1] - q, "linear")
            if weight and 0 <= r < h and 0 <= q < w:
                out[:, k] += weight * x[:, r, q]
    return out


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grids_beside_infinities(padding: str, mode: str) -> None:
    """At pixels, between them, and outside of the image, whose pixels do not matter there."""
    rng = np.random.default_rng(len(padding) + len(mode))
    x = spoiled((1, 2, 5, 5), 9, least=6)
    grid = rng.choice([-1.75, -1.0, -0.75, -0.5, 0.0, 0.25, 1.0, 1.25], (1, 6, 6, 2)).astype("float32")
    with np.errstate(invalid="ignore"):
        want = sampled(x[0].astype("float64"), grid.reshape(-1, 2), padding, mode).reshape(1, 2, 6, 6)
    model = node_model("GridSample", [x, grid], opset=20, padding_mode=padding, mode=mode, align_corners=1)
    for who, (got,) in nonempty(of_onnx(model, [x, grid])):
        same(got, want, who)
