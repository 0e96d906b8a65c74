"""The nearest pixel, where no rounding is named: TVM's for `topi.image.resize2d`, ONNX's for nodes of ONNX."""

import numpy as np
import pytest

import te_lite as te
from te_lite import topi
from te_lite.meaning.reference import evaluate

WANTED = {
    ("half_pixel", 8): [0, 0, 0, 1, 1, 2, 2, 3],  # -0.25, 0.25, 0.75 ... rounded down
    ("half_pixel", 3): [0, 1, 2],  # 1/6, 1.5, 17/6
    ("asymmetric", 8): [0, 0, 1, 1, 2, 2, 3, 3],
    ("asymmetric", 3): [0, 1, 2],
    ("align_corners", 8): [0, 0, 1, 1, 2, 2, 3, 3],  # thirds of sevenths, to the nearest
    ("align_corners", 3): [0, 2, 3],  # 1.5 goes up
}


@pytest.mark.parametrize(("mode", "size"), WANTED)
def test_as_tvm_has_it(mode: str, size: int) -> None:
    row = te.placeholder((1, 1, 1, 4), name="row")
    out = topi.image.resize2d(row, (1, size), "NCHW", "nearest_neighbor", mode)
    x = np.arange(4, dtype="float32").reshape(1, 1, 1, 4)
    np.testing.assert_array_equal(evaluate([out], {row: x})[out].ravel(), WANTED[mode, size])


def test_as_onnx_has_it() -> None:
    """`round_prefer_floor`: 0.25 and 0.75 go to the nearest, and a half down."""
    helper = pytest.importorskip("onnx").helper
    from relay_lite.frontend import from_onnx
    from relay_lite.ir.reference import run

    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")
    ends = [[helper.make_tensor_value_info(n, 1, s)] for n, s in (("x", [1, 1, 1, 4]), ("y", [1, 1, 1, 8]))]
    sizes = helper.make_tensor("sizes", 7, [4], [1, 1, 1, 8])
    model = helper.make_model(
        helper.make_graph([node], "g", ends[0], ends[1], [sizes]), opset_imports=[helper.make_opsetid("", 18)]
    )
    x = np.arange(4, dtype="float32").reshape(1, 1, 1, 4)
    got = np.asarray(run(from_onnx(model)[0], {"x": x}))
    np.testing.assert_array_equal(got.ravel(), [0, 0, 1, 1, 2, 2, 3, 3])
