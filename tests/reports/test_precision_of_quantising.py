"""QuantizeLinear and DequantizeLinear where data, scale and result differ in dtype, and where float16 is too short."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
CODES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float32": TensorProto.FLOAT}
CASES = [("float16", "float32", ""), ("float32", "float16", ""), ("float16", "float16", "float32"),
         ("float16", "float16", ""), ("bfloat16", "bfloat16", ""), ("bfloat16", "bfloat16", "float32"),
         ("float32", "float32", "bfloat16"), ("float32", "float32", "float32")]  # fmt: skip
"""Dtypes of the data, of the scale, and `precision` (empty: that of the scale)."""


def forms(op: str, arrays: Sequence[Array], **attrs: Any) -> list[tuple[str, Array]]:
    """Every way to run it, with the scale and zero point as inputs and known."""
    model = node_model(op, arrays, opset=23, **attrs)
    model.ir_version = 11
    known = onnx.ModelProto()
    known.CopyFrom(model)
    del known.graph.input[1:]
    known.graph.initializer.extend(numpy_helper.from_array(a, f"x{k}") for k, a in enumerate(arrays) if k)
    found = [(who, got) for who, (got,) in of_onnx(model, arrays)]
    return [*found, *((f"{who}, known", got) for who, (got,) in of_onnx(known, arrays[:1]))]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("kind", "zero"), [("int8", -77), ("uint8", 200), ("uint16", 32768), ("int16", -3001)])
@pytest.mark.parametrize(("data", "scale", "precision"), CASES)
def test_quotients(data: str, scale: str, precision: str, kind: str, zero: int) -> None:
    """The quotient is of the dtype that the page names, and the zero point is added to a whole number exactly."""
    x = (np.random.default_rng(3).normal(size=600) * 5).astype(DTYPES[data])
    step = np.array(0.0133, DTYPES[scale])
    wide = DTYPES[precision or scale]
    whole = np.rint((x.astype(wide) / step.astype(wide)).astype("float64"))
    limits = np.iinfo(kind)
    want = np.clip(whole + zero, limits.min, limits.max).astype(kind)
    attrs = {"precision": CODES[precision]} if precision else {}
    for who, got in nonempty(forms("QuantizeLinear", [x, step, np.array(zero, kind)], **attrs)):
        assert got.dtype == want.dtype, who
        np.testing.assert_array_equal(got, want, who)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize(("scale", "out"), [("float16", ""), ("float16", "float32"), ("float32", "float16"),
                                            ("bfloat16", ""), ("bfloat16", "float32")])  # fmt: skip
def test_products(scale: str, out: str, kind: str) -> None:
    """Rounded once, to the result's dtype; 65535 is no number of float16, which made it infinite."""
    limits = np.iinfo(kind)
    x = np.array([limits.min, limits.max, limits.max // 3, 5, 0, limits.max - 1], kind)
    step = np.array(0.37 / limits.max if kind == "int32" else 1e-3, DTYPES[scale])
    zero = np.array(0 if kind == "int32" else 7, kind)
    want = ((x.astype("float64") - float(zero)) * float(step)).astype("float32").astype(DTYPES[out or scale])
    attrs = {"output_dtype": CODES[out]} if out else {}
    limit = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-7}[out or scale]
    for who, got in nonempty(forms("DequantizeLinear", [x, step, zero], **attrs)):
        assert got.dtype == want.dtype, who
        np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), limit, err_msg=who)
