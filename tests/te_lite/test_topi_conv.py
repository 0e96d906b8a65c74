"""Convolutions of every kind, checked in float64; the NumPy references themselves are checked against SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import te_lite as te
from benchmarks import workloads as benchmarks
from benchmarks.workloads import operators
from te_lite import topi
from te_lite.errors import ExprError
from tests import topi_testing as testing
from tests.nonempty import nonempty
from tests.te_lite.topi_case import check, inputs_of

RNG = np.random.default_rng(5)


def random(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


# ------------------------------------------------------------------------------------ the references themselves


def by_scipy(x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int, groups: int) -> np.ndarray:
    signal = pytest.importorskip("scipy.signal")  # takes a second to load
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * n])
    spread = np.zeros((*w.shape[:2], *[(k - 1) * dilation + 1 for k in w.shape[2:]]))
    spread[(slice(None), slice(None), *[slice(None, None, dilation)] * n)] = w
    per = w.shape[0] // groups
    out = [
        [
            sum(
                signal.correlate(x[b, o // per * w.shape[1] + c], spread[o, c], "valid", "direct")
                for c in range(w.shape[1])
            )
            for o in range(w.shape[0])
        ]
        for b in range(x.shape[0])
    ]
    return np.array(out)[(slice(None), slice(None), *[slice(None, None, stride)] * n)]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("stride", "pad", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 3), (3, 2, 2, 1)])
@pytest.mark.one_in(2)
def test_reference_convolution_against_scipy(n: int, stride: int, pad: int, dilation: int, groups: int) -> None:
    x, w = random(2, 6, *(11, 7, 9)[:n]), random(9, 6 // groups, *(3, 2, 3)[:n])
    got = testing.convolve(x, w, stride, pad, dilation, groups)
    np.testing.assert_allclose(got, by_scipy(x, w, stride, pad, dilation, groups), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("stride", "pad", "extra"), [(1, 0, 0), (2, 1, 1), (3, 1, 2)])
def test_reference_transposed_convolution_is_the_adjoint(n: int, stride: int, pad: int, extra: int) -> None:
    """`<conv(y), x> == <y, conv_transpose(x)>` for the convolution with the same stride and padding."""
    x, w = random(2, 3, *(5, 4, 3)[:n]), random(3, 4, *(3, 4, 3)[:n])
    back = testing.convolve_transposed(x, w, stride, pad, extra)
    y = random(*back.shape)
    forth = testing.convolve(y, w, stride, pad)
    assert back.shape[2:] == tuple(
        [(d - 1) * stride + k - 2 * pad + extra for d, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    )
    cut = forth[(slice(None), slice(None), *[slice(d) for d in x.shape[2:]])]
    np.testing.assert_allclose((cut * x).sum(), (y * back).sum(), rtol=1e-11)


# -------------------------------------------------------------------------------------------------- operators

CASES: list[tuple[Any, Any, Any]] = [  # stride, padding, dilation
    (1, 0, 1),
    (2, 1, 1),
    (1, "SAME", 1),
    (2, "VALID", 2),
    (3, 2, 2),
]


@pytest.mark.parametrize(("stride", "padding", "dilation"), CASES)
def test_conv1d(stride: int, padding: Any, dilation: int) -> None:
    x, w = inputs_of((2, 5, 13), (7, 5, 3))
    check(topi.nn.conv1d_ncw(x, w, stride, padding, dilation), [x, w],
          lambda a, b: testing.convolve(a, b, stride, padding, dilation))  # fmt: skip
    x, w = inputs_of((2, 13, 5), (3, 5, 7))
    check(topi.nn.conv1d_nwc(x, w, stride, padding, dilation), [x, w],
          lambda a, b: testing.convolve_last(a, b, stride, padding, dilation))  # fmt: skip
    x, w = inputs_of((2, 6, 13), (9, 2, 3))
    check(topi.nn.group_conv1d_ncw(x, w, stride, padding, dilation, 3), [x, w],
          lambda a, b: testing.convolve(a, b, stride, padding, dilation, 3))  # fmt: skip
    x, w = inputs_of((2, 13, 6), (3, 2, 9))
    check(topi.nn.group_conv1d_nwc(x, w, stride, padding, dilation, 3), [x, w],
          lambda a, b: testing.convolve(
              a.transpose(0, 2, 1), b.transpose(2, 1, 0), stride, padding, dilation, 3).transpose(0, 2, 1))  # fmt: skip


@pytest.mark.parametrize(("stride", "padding", "dilation"), [*CASES, ((2, 1), (1, 0, 2, 1), (1, 2)), (1, (2, 1), 1)])
def test_conv2d(stride: Any, padding: Any, dilation: Any) -> None:
    x, w = inputs_of((2, 5, 11, 13), (7, 5, 3, 2))
    check(topi.nn.conv2d_nchw(x, w, stride, padding, dilation), [x, w],
          lambda a, b: testing.convolve(a, b, stride, padding, dilation=dilation))  # fmt: skip
    x, w = inputs_of((2, 11, 13, 5), (3, 2, 5, 7))
    check(topi.nn.conv2d_nhwc(x, w, stride, padding, dilation), [x, w],
          lambda a, b: testing.convolve_last(a, b, stride, padding, dilation=dilation))  # fmt: skip
    x, w = inputs_of((11, 13, 5, 2), (3, 2, 5, 7))
    check(topi.nn.conv2d_hwcn(x, w, stride, padding, dilation), [x, w],
          lambda a, b: testing.convolve_hwcn(a, b, stride, padding, dilation))  # fmt: skip


@pytest.mark.parametrize(("stride", "padding", "dilation"), CASES)
@pytest.mark.parametrize("groups", [2, 6])
def test_group_conv2d(stride: int, padding: Any, dilation: int, groups: int) -> None:
    x, w = inputs_of((2, 6, 11, 7), (12, 6 // groups, 3, 3))
    check(topi.nn.group_conv2d_nchw(x, w, stride, padding, dilation, groups), [x, w],
          lambda a, b: testing.convolve(a, b, stride, padding, dilation, groups))  # fmt: skip
    x, w = inputs_of((2, 11, 7, 6), (3, 3, 6 // groups, 12))
    check(topi.nn.group_conv2d_nhwc(x, w, stride, padding, dilation, groups), [x, w],
          lambda a, b: testing.convolve_last(a, b, stride, padding, dilation, groups))  # fmt: skip


@pytest.mark.parametrize(("stride", "padding", "dilation"), CASES[:4])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv3d(stride: int, padding: Any, dilation: int, groups: int) -> None:
    x, w = inputs_of((2, 4, 7, 5, 6), (6, 4 // groups, 3, 2, 3))
    check(topi.nn.conv3d_ncdhw(x, w, stride, padding, dilation, groups), [x, w],
          lambda a, b: testing.convolve(a, b, stride, padding, dilation, groups))  # fmt: skip
    x, w = inputs_of((2, 7, 5, 6, 4), (3, 2, 3, 4 // groups, 6))
    check(topi.nn.conv3d_ndhwc(x, w, stride, padding, dilation, groups), [x, w],
          lambda a, b: testing.convolve_last(a, b, stride, padding, dilation, groups))  # fmt: skip


@pytest.mark.parametrize(("stride", "padding", "dilation"), CASES)
@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise_conv2d(stride: int, padding: Any, dilation: int, multiplier: int) -> None:
    x, w = inputs_of((2, 5, 11, 7), (5, multiplier, 3, 3))
    check(topi.nn.depthwise_conv2d_nchw(x, w, stride, padding, dilation), [x, w],
          lambda a, b: testing.convolve_depthwise(a, b, stride, padding, dilation))  # fmt: skip
    x, w = inputs_of((2, 11, 7, 5), (3, 3, 5, multiplier))
    check(topi.nn.depthwise_conv2d_nhwc(x, w, stride, padding, dilation), [x, w],
          lambda a, b: testing.convolve_depthwise_last(a, b, stride, padding, dilation))  # fmt: skip


TRANSPOSED: list[tuple[Any, Any, Any]] = [(1, 0, 0), (2, 1, 1), (3, "VALID", 2), (1, "SAME", 0)]


@pytest.mark.parametrize(("stride", "padding", "extra"), TRANSPOSED)
def test_transposed_convolutions(stride: int, padding: Any, extra: int) -> None:
    x, w = inputs_of((2, 3, 7), (3, 5, 4))
    check(topi.nn.conv1d_transpose_ncw(x, w, stride, padding, "float32", extra), [x, w],
          lambda a, b: testing.convolve_transposed(a, b, stride, padding, extra))  # fmt: skip
    x, w = inputs_of((2, 3, 5, 7), (3, 4, 4, 3))
    for op in (topi.nn.conv2d_transpose_nchw, topi.cuda.conv2d_transpose_nchw):
        check(op(x, w, stride, padding, "float32", extra), [x, w],
              lambda a, b: testing.convolve_transposed(a, b, stride, padding, extra))  # fmt: skip
    x, w = inputs_of((1, 2, 3, 4, 5), (2, 3, 4, 3, 3))
    check(topi.nn.conv3d_transpose_ncdhw(x, w, stride, padding, "float32", extra), [x, w],
          lambda a, b: testing.convolve_transposed(a, b, stride, padding, extra))  # fmt: skip


def test_grouped_transposed_convolution() -> None:
    x, w = inputs_of((2, 6, 5, 4), (6, 2, 3, 3))

    def want(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = [testing.convolve_transposed(a[:, s], b[s], 2, 1) for s in (slice(0, 3), slice(3, 6))]
        return np.concatenate(parts, 1)

    check(topi.cuda.conv2d_transpose_nchw(x, w, 2, 1, "float32", 0, groups=2), [x, w], want)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(4, 2, 1), (3, 1, 0), (5, 3, 1), (4, 3, 2)])
def test_transposed_convolution_of_the_benchmark(kernel: int, stride: int, padding: int) -> None:
    tensors = benchmarks.conv2d_transpose(2, 5, 3, 4, 6, kernel, stride, padding)
    check(tensors[-1], tensors[:-1],
          lambda a, b: testing.convolve_transposed_last(a, b, stride, padding))  # fmt: skip


@pytest.mark.parametrize("m", [2, 4, 5, 6])
def test_winograd_matrices_are_exact(m: int) -> None:
    a, b, g = [np.array(x, dtype=object) for x in topi.nn.winograd_transform_matrices(m)]
    for d in nonempty(np.eye(m + 2, dtype=int)):
        for f in nonempty(np.eye(3, dtype=int)):
            want = [sum(d[i + k] * f[k] for k in range(3)) for i in range(m)]
            assert list(a.T @ ((g @ f) * (b.T @ d))) == want


def test_winograd_matrices_are_those_that_are_recorded() -> None:
    a, b, g = [np.array(x, float) for x in topi.nn.winograd_transform_matrices(2)]
    assert a.tolist() == [[1, 0], [1, -1], [1, 1], [0, 1]]
    assert g.tolist() == [[1, 0, 0], [0.5, -0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 1]]
    assert b.tolist() == [[1, 0, 0, 0], [0, -1, 1, -1], [-1, 1, 1, 0], [0, 0, 0, 1]]
    a, b, g = [np.array(x, float) for x in topi.nn.winograd_transform_matrices(4)]
    assert a[3].tolist() == [1, 0.5, 0.25, 0.125] and a[4].tolist() == [1, -2, 4, -8]
    np.testing.assert_allclose(g[3], np.array([-16, -8, -4]) / 15)
    assert b[1].tolist() == [-1.5, 1, -1, -2, 0.5, 1] and b[2].tolist() == [-2, -2.5, 0.5, -1, -1, -1.5]
    assert b[3].tolist() == [1.5, 0.5, 2.5, 2, -0.5, -2] and b[4].tolist() == [1, 1, 1, 1, 1, 1.5]


@pytest.mark.parametrize(("size", "padding"), [((7, 7), 1), ((8, 8), 1), ((11, 6), "VALID"), ((9, 13), (1, 0, 2, 1))])
@pytest.mark.parametrize("m", [None, 2, 4])
def test_winograd(size: tuple[int, int], padding: Any, m: int | None) -> None:
    x, w = inputs_of((2, *size, 3), (3, 3, 3, 5))
    check(topi.nn.conv2d_winograd_nhwc(x, w, 1, padding, 1, tile_size=m), [x, w],
          lambda a, b: testing.convolve_last(a, b, 1, padding), rtol=1e-10)  # fmt: skip


@pytest.mark.parametrize("m", [2, 4])
def test_winograd_by_axis(m: int) -> None:
    """Of images and of volumes, with sizes that tiles of m do not divide."""
    x, w = inputs_of((2, 9, 6, 3), (3, 3, 3, 5))
    check(topi.nn.conv_winograd_by_axis(x, w, (1, 0), m), [x, w],
          lambda a, b: testing.convolve_last(a, b, 1, (1, 0)), rtol=1e-10)  # fmt: skip
    x, w = inputs_of((1, 4, 5, 7, 3), (2, 3, 3, 3, 2))

    def want(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a = np.pad(a, [(0, 0), (1, 1), (1, 1), (2, 2), (0, 0)])
        places = itertools.product(range(2), range(3), range(3))
        return sum(a[:, d : d + 5, y : y + 5, z : z + 9] @ b[d, y, z] for d, y, z in places)

    check(topi.nn.conv_winograd_by_axis(x, w, (1, 1, 2), m), [x, w], want, rtol=1e-10)


@pytest.mark.parametrize("m", [2, 4])
def test_winograd_by_axis_with_a_transformed_weight(m: int) -> None:
    """Padded otherwise on each side."""
    x, w = inputs_of((2, 9, 6, 3), (5, 3, 3, 3))
    weight = topi.nn.conv2d_winograd_weight_transform(w, m)
    out = topi.nn.conv_winograd_by_axis(x, weight, (1, 0, 2, 1), m, transformed=True)
    check(out, [x, w], lambda a, b: testing.convolve_last(a, b.transpose(2, 3, 1, 0), 1, (1, 0, 2, 1)), rtol=1e-10)
    with pytest.raises(ExprError, match=r"or \[a, a, CO, CI\], and there must be a padding for D, H and W, got data"):
        topi.nn.conv_winograd_by_axis(x, weight, (1, 0, 2), m, transformed=True)


def test_winograd_by_axis_says_what_it_needs() -> None:
    x, w = inputs_of((1, 5, 5, 3), (3, 1, 3, 2))
    with pytest.raises(ExprError, match=r"winograd by axis: the weight must be \[\*K, 3, 3, CI, CO\]"):
        topi.nn.conv_winograd_by_axis(x, w, (1, 1), 2)


def test_winograd_with_a_transformed_weight() -> None:
    x, w = inputs_of((2, 9, 9, 3), (5, 3, 3, 3))
    out = topi.nn.conv2d_winograd_nhwc_without_weight_transform(
        x, topi.nn.conv2d_winograd_weight_transform(w, 4), 1, 1, 1, tile_size=4
    )
    check(out, [x, w], lambda a, b: testing.convolve_last(a, b.transpose(2, 3, 1, 0), 1, 1), rtol=1e-10)
    inverse = out.op.input_tensors()[0].op
    assert inverse.attrs["auto_scheduler_simplify_const_tensor_indices"] == ["vh", "vw", "r_a", "r_b"]
    bgemm, matrix = inverse.input_tensors()
    assert matrix.op.attrs == {"const_matrix": True} and "layout_free_placeholders" in bgemm.op.attrs


def test_capsule_convolution_is_a_convolution_of_matrices() -> None:
    tensors = benchmarks.conv2d_capsule(2, 5, 7, 3, 2, 3, 2, 1)

    def want(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        out = np.zeros((2, 3, 4, 4, 4, 2))
        for i, j, k in itertools.product(range(4), repeat=3):
            out[:, :, :, i, j] += testing.convolve_last(a[:, :, :, i, k], b[:, :, k, j], 2, 1)
        return out

    check(tensors[-1], tensors[:-1], want)


def test_integer_convolution_accumulates_in_the_given_type() -> None:
    x, w = inputs_of((1, 5, 6, 8), (3, 3, 8, 4), dtype="int8")
    out = topi.nn.conv2d_nhwc(x, w, 1, 1, 1, out_dtype="int32")
    assert out.dtype == "int32"
    check(out, [x, w], lambda a, b: testing.convolve_last(a.astype("int32"), b.astype("int32"), 1, 1))


def test_weights_whose_layout_is_free_are_marked() -> None:
    x, w = inputs_of((1, 5, 5, 4), (3, 3, 4, 6))
    assert topi.nn.conv2d_nhwc(x, w, 1, 1, 1).op.attrs == {"layout_free_placeholders": [w]}
    assert topi.nn.conv2d(x, w, 1, 1, 1, "NHWC").op.attrs == {}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1), "conv: the channels of data, weight and groups do not fit"),
        (lambda x, w: topi.nn.conv2d(x, w, 1, 1, 1, "NHXX"), "conv: the layout must name N, C and 2 spatial"),
        (lambda x, w: topi.nn.conv2d_nhwc(x, w, (1, 2, 3), 1, 1), "conv stride: one integer or 2 are needed"),
        (lambda x, w: topi.nn.conv2d_nhwc(x, w, 0, 1, 1), "window: the stride must be at least 1, got 0"),
        (lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, 1, 0), "window: the dilation must be at least 1, got 0"),
        (
            lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, 0, 3),
            r"window: a kernel must not be larger than the padded input, by its dilation, got kernel=7 input=5",
        ),
        (lambda x, w: topi.nn.pool2d(x, 8, 2, 1, [1] * 4, "max", layout="NHWC"), "larger than the padded input"),
        (lambda x, w: operators.conv2d(1, 2, 2, 8, 8, 5), "larger than the padded input, got kernel=5 input=2"),
        (lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, "FULL", 1), "padding: must be integers, VALID or SAME"),
        (lambda x, w: topi.nn.conv2d_winograd_nhwc(x, w, 2, 1, 1), "winograd: strides and dilation must be 1"),
        (lambda x, w: topi.nn.conv2d_winograd_nhwc(x, w, 1, 1, 1, tile_size=3), "winograd: tile sizes are 2, 4, 5, 6"),
    ],
)
def test_what_does_not_fit_is_said(build: Any, message: str) -> None:
    x, w = inputs_of((1, 5, 5, 4), (3, 3, 4, 6))
    with pytest.raises(te.ExprError, match=message):
        build(x, w)
