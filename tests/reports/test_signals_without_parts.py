"""PyTorch's exporter writes STFT with a signal (batch, length), which onnxruntime takes as one of real numbers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.nonempty import nonempty
from tests.reports.everywhere import of_onnx

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("shape", [(2, 21), (2, 21, 1)])
def test_stft(shape: tuple[int, ...], onesided: int) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype("float32")
    window = np.hanning(8).astype("float32")
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"], onesided=onesided)
    known = [numpy_helper.from_array(np.array(3, "int64"), "step"), numpy_helper.from_array(window, "window")]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_empty_tensor_value_info("y")]
    model = helper.make_model(helper.make_graph([node], "g", *ends, known), opset_imports=[helper.make_opsetid("", 17)])
    frames = np.lib.stride_tricks.sliding_window_view(x.reshape(2, 21).astype(float), 8, axis=1)[:, ::3]
    found = np.fft.fft(frames * window)[..., : 5 if onesided else 8]
    want = np.stack([found.real, found.imag], -1)
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=who)
