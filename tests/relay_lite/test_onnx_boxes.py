"""Operators that read images at boxes and positions, and others of compositions of their own, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run
from tests.relay_lite.onnx_models import Array, Builder, compare


def fed(b: Builder, value: Array) -> str:
    """A graph input with these values, in their dtype."""
    name = b.input(value.shape, value.dtype.type, 1)
    b.feeds[name] = value
    return name


def boxes(rng: np.random.Generator, count: int, extent: float) -> Array:
    """Boxes (x1, y1, x2, y2), some of them outside of the image, some turned inside out."""
    return rng.uniform(-0.2 * extent, 1.2 * extent, (count, 4)).astype(np.float32)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_non_max_suppression_of_known_boxes(seed: int, centred: int) -> None:
    """Boxes that overlap, corners in any order, two images, three classes, with and without a least score."""
    rng = np.random.default_rng(seed)
    b = Builder(11)
    where = rng.uniform(0, 1, (2, 17, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 3, 17)).astype(np.float32).round(1)
    limits = [b.array(int(rng.integers(0, 9)), np.int64), b.array(rng.uniform(0.05, 0.6), np.float32)]
    limits += [b.array(0.35, np.float32)] if seed % 2 else []
    names = [b.array(v, np.float32) for v in (where, scores)]
    y = b.add("NonMaxSuppression", *names, *limits, center_point_box=centred)
    compare(b.model(y, declared={y: TensorProto.INT64}), b.feeds)


def test_boxes_that_are_not_known_are_refused() -> None:
    b = Builder(11)
    y = b.add("NonMaxSuppression", b.input((1, 4, 4)), b.input((1, 1, 4)), b.array(3, np.int64))
    law = "NonMaxSuppression .*input 0 must be known when the model is read"
    with pytest.raises(GraphError, match=law):
        from_onnx(b.model(y, declared={y: TensorProto.INT64}))


@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("place", ["half_pixel", "output_half_pixel", None])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str, place: str | None, ratio: int) -> None:
    """Boxes beyond the image, bins of no extent; where a box says how many samples it has, it is known."""
    rng = np.random.default_rng(ratio)
    b = Builder(16 if place else 10)
    x, found = b.input((2, 3, 7, 9)), boxes(rng, 6, 14)
    if place == "half_pixel" and not ratio:
        found = np.sort(found.reshape(6, 2, 2), 1).reshape(6, 4)
    rois = fed(b, found) if ratio else b.array(found, np.float32)
    images = fed(b, rng.integers(0, 2, 6))
    more: dict[str, Any] = {"coordinate_transformation_mode": place} if place else {}
    y = b.add("RoiAlign", x, rois, images, mode=mode, output_height=2, output_width=3, sampling_ratio=ratio,
              spatial_scale=0.5, **more)  # fmt: skip
    compare(b.model(y), b.feeds)


def test_samples_that_the_data_decide_are_refused() -> None:
    b = Builder(16)
    y = b.add("RoiAlign", b.input((1, 1, 4, 4)), b.input((2, 4)), fed(b, np.zeros(2, np.int64)))
    with pytest.raises(GraphError, match="sampling_ratio must be at least 1, or the rois known"):
        from_onnx(b.model(y))


@pytest.mark.parametrize("seed", range(3))
def test_max_roi_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(13)
    x = b.input((2, 3, 8, 7))
    rois = np.concatenate([rng.integers(0, 2, (5, 1)), np.sort(boxes(rng, 5, 14).reshape(5, 2, 2), 1).reshape(5, 4)], 1)
    y = b.add("MaxRoiPool", x, fed(b, rois.astype(np.float32)), pooled_shape=[3, 2], spatial_scale=0.5)
    compare(b.model(y), b.feeds)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("offset_group", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(masked: bool, offset_group: int, group: int) -> None:
    b = Builder(19)
    x, weight = b.input((2, 4, 6, 7)), b.weight(6, 4 // group, 3, 2)
    offset = b.input((2, offset_group * 12, 3, 6))
    b.feeds[offset] *= 2
    more = [b.around(0, 6), b.input((2, offset_group * 6, 3, 6))] if masked else []
    y = b.add("DeformConv", x, weight, offset, *more, group=group, offset_group=offset_group, strides=[2, 1],
              pads=[1, 0, 1, 1], dilations=[1, 2])  # fmt: skip
    compare(b.model(y), b.feeds)


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 2, 8, 6), (1, 2, 4, 6, 2)])
def test_max_unpool_of_a_max_pool(shape: tuple[int, ...]) -> None:
    n, b = len(shape) - 2, Builder(13)
    window: dict[str, Any] = {"kernel_shape": [2] * n, "strides": [2] * n}
    y, at = b.add("MaxPool", b.input(shape), outputs=2, **window)
    compare(b.model(b.add("MaxUnpool", y, at, **window)), b.feeds)


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_determinants(rows: int) -> None:
    """Of random matrices, of one that begins with zeros, and of one without an inverse."""
    b = Builder(11)
    x = b.input((3, 2, rows, rows))
    b.feeds[x][0, 0, 0] *= np.arange(rows) > 0
    b.feeds[x][1, 0, -1] = b.feeds[x][1, 0, 0]
    module, _ = from_onnx(b.model(b.add("Det", x)))
    want = np.linalg.det(b.feeds[x].astype(np.float64))
    np.testing.assert_allclose(run(module, b.feeds), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1, 3])
def test_tensor_scatter(axis: int, mode: str) -> None:
    rng = np.random.default_rng(axis % 4)
    b, shape = Builder(24), [3, 4, 6, 5]
    extent, steps = shape[axis], 2
    first = rng.integers(0, extent if mode == "circular" else extent - steps + 1, 3)
    x, update = b.input(shape), b.input([steps if a == axis % 4 else n for a, n in enumerate(shape)])
    module, _ = from_onnx(b.model(b.add("TensorScatter", x, update, fed(b, first), axis=axis, mode=mode)))
    want = b.feeds[x].copy()
    for item, at in enumerate(first):
        for t in range(steps):
            into = np.moveaxis(want[item], axis % 4 - 1, 0)
            into[(at + t) % extent] = np.moveaxis(b.feeds[update][item], axis % 4 - 1, 0)[t]
    np.testing.assert_array_equal(run(module, b.feeds), want)


@pytest.mark.parametrize("length", [None, 6, 7, 9])
def test_the_real_signal_of_half_a_spectrum(length: int | None) -> None:
    b = Builder(20)
    x = b.input((3, 5, 2))
    more = [] if length is None else [b.array(length, np.int64)]
    module, _ = from_onnx(b.model(b.add("DFT", x, *more, inverse=1, onesided=1)))
    want = np.fft.irfft(b.feeds[x][..., 0] + 1j * b.feeds[x][..., 1], length, axis=1)[..., None]
    np.testing.assert_allclose(run(module, b.feeds), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [(-1, -1), (2, 1), (0, -1)])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [False, True])
def test_attention_in_a_window(past: bool, causal: int, window: tuple[int, int]) -> None:
    """Of opset 25, by a loop over the queries: a past, or a cache of which each item uses its own length."""
    b, rows, columns = Builder(25), 3, 7
    q, k, v = b.input((2, 2, rows, 4)), b.input((2, 2, columns - 2 * past, 4)), b.input((2, 2, columns - 2 * past, 5))
    used = np.array([5, 2])
    more = [b.input((2, 2, 2, 4)), b.input((2, 2, 2, 5))] if past else ["", "", fed(b, used)]
    y = b.add(
        "Attention", q, k, v, "", *more, is_causal=causal, left_window_size=window[0], right_window_size=window[1]
    )
    got = run(from_onnx(b.model(y))[0], b.feeds)
    keys, values = (
        np.concatenate([b.feeds[more[i]], b.feeds[n]], 2) if past else b.feeds[n] for i, n in ((0, k), (1, v))
    )
    for item, head, i in np.ndindex(2, 2, rows):
        at = i + (2 if past else int(used[item]) - rows)
        seen = [j for j in range(columns if past else used[item]) if (not causal or j <= at)
                and (window[0] < 0 or j >= at - window[0]) and (window[1] < 0 or j <= at + window[1])]  # fmt: skip
        scores = np.exp(keys[item, head, seen].astype(np.float64) @ b.feeds[q][item, head, i] / 2)
        want = scores @ values[item, head, seen] / max(scores.sum(), 1e-30)
        np.testing.assert_allclose(got[item, head, i], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("skips", [0, 2])
def test_tf_idf(skips: int, lengths: tuple[int, int], mode: str) -> None:
    """Pools of numbers below 3, most of which occur; coordinates in another order than the n-grams."""
    rng = np.random.default_rng(skips)
    b = Builder(9)
    pools = [rng.permutation(np.stack(np.meshgrid(*[np.arange(3)] * n)).reshape(n, -1).T)[:3] for n in (1, 2, 3)]
    y = b.add(
        "TfIdfVectorizer", b.input((2, 12), np.int64, 3), mode=mode, min_gram_length=lengths[0],
        max_gram_length=lengths[1], max_skip_count=skips, ngram_counts=[0, 3, 9],
        ngram_indexes=[int(v) for v in rng.permutation(10)[:9]], weights=[float(v) for v in rng.uniform(0.5, 2, 9)],
        pool_int64s=[int(v) for p in pools for v in p.reshape(-1)],
    )  # fmt: skip
    compare(b.model(y), b.feeds)


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_of_opset_8(backwards: int) -> None:
    """A running sum of every item of a batch, which is the first axis of all inputs."""
    b = Builder(8)
    state, x = b.input((3, 2)), b.input((3, 5, 2))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("s", "v", "out", "shown")]
    body = helper.make_graph([helper.make_node("Add", ["s", "v"], ["out"]), helper.make_node("Mul", ["out", "v"],
                             ["shown"])], "body", value[:2], value[2:])  # fmt: skip
    outs = b.add("Scan", "", state, x, outputs=2, body=body, num_scan_inputs=1, directions=[backwards])
    compare(b.model(*outs), b.feeds)


def test_an_opset_below_7_is_read_where_it_means_the_same() -> None:
    b = Builder(1)
    x = b.input((2, 3))
    b.feeds[x] = b.feeds[x] > 0
    b.inputs[-1] = helper.make_tensor_value_info(x, TensorProto.BOOL, [2, 3])
    y = b.add("Not", x)
    compare(b.model(y, declared={y: TensorProto.BOOL}), b.feeds)
    old = Builder(6)
    law = "these operators of opset 6 are not supported: Add"
    with pytest.raises(GraphError, match=law):
        from_onnx(old.model(old.add("Add", old.input((2, 3)), old.input((3,)), broadcast=1)))
