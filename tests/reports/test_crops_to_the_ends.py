"""Resize with `tf_crop_and_resize`: positions by fractions, so that the last element of a crop is not beyond it."""

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from relay_lite.ir.reference import run
from tests.nonempty import nonempty

MODES: dict[str, Any] = {
    "floor": lambda at: floor(at),
    "ceil": lambda at: ceil(at),
    "round_prefer_floor": lambda at: ceil(at - Fraction(1, 2)),
    "round_prefer_ceil": lambda at: floor(at + Fraction(1, 2)),
}
FILL = -7.0


def positions(extent: int, out: int, start: Fraction, end: Fraction) -> list[Fraction]:
    if out == 1:
        return [(start + end) * (extent - 1) / 2]
    return [start * (extent - 1) + o * (end - start) * (extent - 1) / (out - 1) for o in range(out)]


@pytest.mark.parametrize("mode", MODES)
def test_ends_of_crops(mode: str) -> None:
    onnx = pytest.importorskip("onnx")
    from relay_lite.frontend import from_onnx

    helper = onnx.helper
    for extent, out in nonempty([(3, 6), (5, 11), (4, 7), (7, 11), (2, 50), (9, 4), (6, 1), (1, 5), (13, 8)]):
        for start, end in nonempty(
            [(0, 1), (Fraction(1, 4), 1), (0, Fraction(1, 2)), (Fraction(-1, 2), Fraction(3, 2))]
        ):
            wanted = [
                10.0 + MODES[mode](at) if 0 <= at <= extent - 1 else FILL
                for at in positions(extent, out, Fraction(start), Fraction(end))
            ]
            node = helper.make_node(
                "Resize", ["x", "roi", "", "sizes"], ["y"], mode="nearest", nearest_mode=mode,
                coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=FILL,
            )  # fmt: skip
            known = [helper.make_tensor("roi", 1, [2], [float(start), float(end)]),
                     helper.make_tensor("sizes", 7, [1], [out])]  # fmt: skip
            ends = [[helper.make_tensor_value_info(n, 1, [s])] for n, s in (("x", extent), ("y", out))]
            graph = helper.make_graph([node], "g", ends[0], ends[1], known)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
            got = run(from_onnx(model)[0]["main"], [10 + np.arange(extent, dtype="float32")])
            np.testing.assert_array_equal(got, np.float32(wanted), f"{extent} to {out}, {start} to {end}")
