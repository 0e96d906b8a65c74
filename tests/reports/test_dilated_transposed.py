"""Transposed convolutions of dilated kernels: infinite data meets the kernel's elements, and no zeros between them."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest

from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


def scattered(x: Array, w: Array, strides: tuple[int, ...], dilations: tuple[int, ...], group: int) -> Array:
    """Every element of the data adds its kernel to the result, without pads."""
    (batch, channels, *extents), (_, outputs, *kernel) = x.shape, w.shape
    size = [(d - 1) * s + (k - 1) * g + 1 for d, s, k, g in zip(extents, strides, kernel, dilations, strict=True)]
    out = np.zeros((batch, outputs * group, *size))
    for b, c, j in itertools.product(range(batch), range(channels), range(outputs)):
        for at in np.ndindex(*extents):
            for tap in np.ndindex(*kernel):
                to = [i * s + t * g for i, s, t, g in zip(at, strides, tap, dilations, strict=True)]
                out[(b, c // (channels // group) * outputs + j, *to)] += float(x[(b, c, *at)]) * float(w[(c, j, *tap)])
    return out


@pytest.mark.one_in(5)
@pytest.mark.parametrize("strides", [(1, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("dilations", [(2, 1), (2, 3)])
@pytest.mark.parametrize("group", [1, 2])
def test_dilated_kernels(strides: tuple[int, int], dilations: tuple[int, int], group: int) -> None:
    rng = np.random.default_rng(group)
    x = rng.integers(1, 5, (1, 4, 4, 3)).astype("float32")
    x[0, 1, 2, 1], x[0, 3, 0, 0] = np.inf, -np.inf
    w = (rng.integers(1, 4, (4, 3, 2, 3)) * rng.choice([-1, 1], (4, 3, 2, 3))).astype("float32")
    with np.errstate(invalid="ignore"):
        whole = scattered(x, w, strides, dilations, group)
    model = node_model("ConvTranspose", [x, w], strides=strides, dilations=dilations, group=group, pads=[1, 0, 0, 1])
    for who, (got,) in nonempty(of_onnx(model, [x, w])):
        np.testing.assert_array_equal(got, whole[:, :, 1:, :-1], who)
