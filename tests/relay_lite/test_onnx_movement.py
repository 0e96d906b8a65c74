"""ONNX operators that move, pick and resize elements, in the forms of every opset, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Constant
from tests.relay_lite.onnx_models import Builder, compare, operators

INT64 = TensorProto.INT64
END = 2**63 - 1


@pytest.mark.parametrize("wanted", [(3, -1), (0, 0, -1), (0, 20), (-1,), (2, 0, 2, -1, 1), (5, 4, 0)], ids=str)
def test_reshape(wanted: tuple[int, ...]) -> None:
    shape = (3, 4, 5) if wanted != (5, 4, 0) else (3, 5, 4)
    b = Builder(13)
    wanted = (5, 3, 0) if wanted == (5, 4, 0) else wanted
    wanted = (3, 2, 2, 5) if wanted == (2, 0, 2, -1, 1) else wanted
    compare(b.model(b.add("Reshape", b.input(shape), b.ints(*wanted))), b.feeds)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_flatten(axis: int) -> None:
    b = Builder(13)
    ops = operators(compare(b.model(b.add("Flatten", b.input((2, 3, 4)), axis=axis)), b.feeds))
    assert ops == (["nn.batch_flatten"] if axis == 1 else ["reshape"]) or axis == -2


@pytest.mark.parametrize("opset", [11, 13, 21])
def test_squeeze_and_unsqueeze(opset: int) -> None:
    b = Builder(opset)
    x = b.input((1, 3, 1, 4, 1))
    outs = [b.with_list("Squeeze", x, axes, 13) for axes in ([0], [-1, 2], [4, 0])]
    outs += [b.add("Squeeze", x)]
    y = b.input((3, 4))
    outs += [b.with_list("Unsqueeze", y, axes, 13) for axes in ([0], [-1], [3, 0], [1, -1, 0], [-2])]
    compare(b.model(*outs), b.feeds)


def test_expand_and_tile() -> None:
    b = Builder(13)
    x = b.input((3, 1, 4))
    outs = [b.add("Expand", x, b.ints(*s)) for s in ((3, 5, 4), (2, 1, 1, 4), (1,), (2, 3, 5, 1))]
    outs += [b.add("Tile", x, b.ints(*r)) for r in ((1, 2, 3), (2, 1, 1), (1, 1, 1))]
    compare(b.model(*outs), b.feeds)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode: str) -> None:
    b = Builder(13)
    x = b.input((2, 18, 3, 5))
    y = b.add("DepthToSpace", x, blocksize=3, mode=mode)
    compare(b.model(y, b.add("SpaceToDepth", y, blocksize=3)), b.feeds)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int) -> None:
    b = Builder(13)
    x = b.input((4, 5, 6))
    index = b.input((2, 3), np.int64, high=8)
    b.feeds[index] -= 4
    outs = [
        b.add("Gather", x, i, axis=axis) for i in (index, b.array(-1, np.int64), b.ints(0, -2, 3), b.array(2, np.int32))
    ]
    compare(b.model(*outs), b.feeds)


def test_gather_elements() -> None:
    b = Builder(13)
    index = b.input((4, 3), np.int64, high=10)
    b.feeds[index] -= 5
    compare(b.model(b.add("GatherElements", b.input((4, 5)), index, axis=1)), b.feeds)


def test_indices_are_int32_in_the_graph() -> None:
    b = Builder(13)
    index = b.input((2, 3), np.int64, high=7)
    module, _ = from_onnx(b.model(b.add("Gather", b.weight(7, 4), index)), dtype={index: "int32"})
    assert module["main"].params[0].dtype == "int32" and "cast" not in operators(module)


@pytest.mark.parametrize("seed", range(12))
def test_slice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(int(rng.choice([9, 10, 11, 13])))
    shape = tuple(int(d) for d in rng.integers(4, 9, 3))
    axes = [int(a) for a in rng.permutation(3)[: rng.integers(1, 4)]]
    starts, ends, steps = [], [], []
    for axis in axes:
        step = int(rng.choice([1, 2, 3, -1, -2])) if b.opset >= 10 else 1
        low, high = sorted(int(v) for v in rng.choice(shape[axis], 2, replace=False))
        high = END if rng.integers(2) else high
        first, last = (low, high) if step > 0 else (high, low - 1 if low else -END)
        starts.append(first - shape[axis] if 0 < first < shape[axis] and rng.integers(2) else first)
        ends.append(last)
        steps.append(step)
    x = b.input(shape)
    if b.opset < 10:
        y = b.add("Slice", x, starts=starts, ends=ends, axes=axes)
    else:
        named = [a - 3 if rng.integers(2) else a for a in axes]
        y = b.add("Slice", x, b.ints(*starts), b.ints(*ends), b.ints(*named), b.ints(*steps))
    compare(b.model(y), b.feeds)


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_split(opset: int) -> None:
    b = Builder(opset)
    x = b.input((2, 12, 5))
    outs = b.split_equal(x, 3, axis=1)
    sizes = [2, 7, 3]
    outs += b.add("Split", x, outputs=3, axis=-2, split=sizes) if opset < 13 else \
        b.add("Split", x, b.ints(*sizes), outputs=3, axis=-2)  # fmt: skip
    if opset >= 18:
        outs += b.split_equal(x, 3, axis=2)
    if opset >= 13:
        outs += b.add("Split", x, b.ints(2, 0, 10), outputs=3, axis=1)
    compare(b.model(*outs), b.feeds)


def test_concat() -> None:
    b = Builder(13)
    x, y = b.input((2, 3, 4)), b.input((2, 5, 4))
    outs = [
        b.add("Concat", x, y, b.weight(2, 1, 4), axis=1),
        b.add("Concat", x, y, axis=-2),
        b.add("Concat", x, axis=0),
    ]
    compare(b.model(*outs), b.feeds)


PADS = [(0, 1, 2, 3), (1, 0, 0, 0), (-1, 0, 0, -2), (2, -1, -1, 2)]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", PADS, ids=str)
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    if mode != "constant" and min(pads) < 0:
        pads = tuple(abs(p) for p in pads)
    b = Builder(19)
    x = b.input((4, 5))
    value = [b.array(1.5, np.float32)] if mode == "constant" else []
    compare(b.model(b.add("Pad", x, b.ints(*pads), *value, mode=mode)), b.feeds)


def test_pad_in_its_other_forms() -> None:
    b = Builder(10)
    compare(b.model(b.add("Pad", b.input((2, 3, 4)), pads=[0, 1, 0, 2, 0, 1], value=0.5)), b.feeds)
    b = Builder(18)
    compare(b.model(b.add("Pad", b.input((2, 3, 4)), b.ints(1, 0, 2, 1), "", b.ints(-1, 1))), b.feeds)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 2])
def test_triangle(upper: int, k: int | None) -> None:
    b = Builder(14)
    inputs = [b.input((2, 4, 5))] + ([] if k is None else [b.array(k, np.int64)])
    compare(b.model(b.add("Trilu", *inputs, upper=upper)), b.feeds)


def test_one_hot() -> None:
    b = Builder(11)
    index = b.input((3, 4), np.int64, high=6)
    b.feeds[index] -= 3
    values = b.array([0.5, 2.0], np.float32)
    compare(b.model(*(b.add("OneHot", index, b.array(6, np.int64), values, axis=a) for a in (-1, 0, 1))), b.feeds)


# ------------------------------------------------------------------------------------------------------ resize

SCALES = [(2, 2), (3, 1), (0.5, 0.5), (1.5, 2.5), (0.65, 0.7), (1.3, 3)]


@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
                                         "tf_half_pixel_for_nn", "half_pixel_symmetric"])  # fmt: skip
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.one_in(5)
def test_resize(mode: str, coordinates: str) -> None:
    opset = 19 if coordinates == "half_pixel_symmetric" else 11 if coordinates == "tf_half_pixel_for_nn" else 13
    for scale in SCALES:
        for rounding in (
            ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") if mode == "nearest" else ("floor",)
        ):
            b = Builder(opset)
            x = b.input((2, 3, 7, 10))
            roi = b.array([], np.float32) if opset < 13 else ""
            attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
            outs = [b.add("Resize", x, roi, b.array([1, 1, *scale], np.float32), **attrs)]
            sizes = b.ints(2, 3, int(7 * scale[0]), int(10 * scale[1]))
            empty = b.array([], np.float32) if opset < 13 else ""
            outs.append(b.add("Resize", x, roi, empty, sizes, **attrs))
            compare(b.model(*outs), b.feeds)


def test_resize_by_a_whole_factor_is_one_operator() -> None:
    for mode, coordinates, rounding in (("nearest", "asymmetric", "floor"), ("nearest", "half_pixel", "floor"),
                                        ("linear", "half_pixel", "floor"), ("linear", "align_corners", "floor"),
                                        ("cubic", "half_pixel", "floor")):  # fmt: skip
        b = Builder(13)
        y = b.add("Resize", b.input((1, 2, 5, 4)), "", b.array([1, 1, 2, 3], np.float32), mode=mode,
                  coordinate_transformation_mode=coordinates, nearest_mode=rounding)  # fmt: skip
        assert operators(compare(b.model(y), b.feeds)) == ["image.resize2d"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("op", ["Upsample", "Resize"])
def test_resize_before_11(op: str, mode: str) -> None:
    for scale in SCALES if op == "Resize" else SCALES[:2]:
        b = Builder(9 if op == "Upsample" else 10)
        y = b.add(op, b.input((2, 3, 7, 10)), b.array([1, 1, *scale], np.float32), mode=mode)
        compare(b.model(y), b.feeds)


def test_resize_of_other_ranks_axes_and_weights() -> None:
    b = Builder(18)
    x = b.input((2, 3, 5, 6, 4))
    outs = [
        b.add("Resize", b.input((3, 8)), "", b.array([1, 1.5], np.float32), mode="linear"),
        b.add("Resize", x, "", b.array([1, 1, 2, 1.5, 0.5], np.float32), mode="nearest"),
        b.add("Resize", b.input((1, 2, 5, 6)), "", "", b.ints(9, 11), mode="linear", axes=[3, 2]),
        b.add("Resize", b.input((1, 2, 5, 6)), "", "", b.ints(1, 2, 9, 3), mode="cubic", cubic_coeff_a=-0.5,
              exclude_outside=1),
    ]  # fmt: skip
    compare(b.model(*outs), b.feeds)


# --------------------------------------------------------------------------------------------------- constants


@pytest.mark.parametrize("form", ["value", "value_float", "value_floats", "value_int", "value_ints"])
def test_every_form_of_a_constant(form: str) -> None:
    b = Builder(13)
    values: dict[str, Any] = {
        "value": helper.make_tensor("t", 1, [2], [1.5, 2.5]), "value_float": 1.5, "value_floats": [1.5, 2.5],
        "value_int": 3, "value_ints": [3, 4],
    }  # fmt: skip
    out = b.add("Constant", **{form: values[form]})
    kind = INT64 if "int" in form else TensorProto.FLOAT
    module = compare(
        b.model(b.add("Identity", out), b.input((1,)), declared={f"identity_{b.count - 2}": kind}), b.feeds
    )
    assert operators(module) == []


def test_what_shapes_give_is_constant() -> None:
    b = Builder(15)
    x = b.input((2, 3, 5), declared=["a", 3, "c"])
    outs = [
        b.add("Shape", x), b.add("Shape", x, start=1), b.add("Shape", x, start=-2, end=-1), b.add("Size", x),
        b.add("Range", b.array(1, np.int64), b.add("Size", x), b.array(7, np.int64)),
        b.add("Gather", b.add("Shape", x), b.ints(-1, 0)),
        b.add("Concat", b.add("Shape", x), b.ints(9), axis=0),
        b.add("ConstantOfShape", b.add("Shape", x), value=helper.make_tensor("v", INT64, [1], [4])),
        b.add("Slice", b.add("Shape", x), b.ints(2), b.ints(-END), b.ints(0), b.ints(-1)),
        b.add("NonZero", b.array([[0, 1, 1], [1, 0, 0]], np.int64)),
        b.add("Div", b.add("Shape", x), b.ints(-2)),
        b.add("ReduceProd", b.add("Shape", x), keepdims=0),
        b.add("Where", b.add("Equal", b.add("Shape", x), b.ints(3)), b.ints(7), b.add("Shape", x)),
        b.add("Pow", b.add("Shape", x), b.ints(2)),
    ]  # fmt: skip
    module = compare(b.model(*outs, declared=dict.fromkeys(outs, INT64)), b.feeds)
    assert operators(module) == []


def test_values_that_must_be_known_are_asked_for() -> None:
    b = Builder(13)
    y = b.add("Reshape", b.input((2, 3)), b.input((1,), np.int64, high=2))
    with pytest.raises(GraphError, match=r"Reshape 'Reshape_\d': input 1 must be known when the model is read"):
        from_onnx(b.model(y))


def test_a_constant_output_is_a_constant() -> None:
    b = Builder(13)
    out = b.add("Add", b.array([1.0, 2.0], np.float32), b.array(3.0, np.float32))
    module = compare(b.model(out), {})
    assert isinstance(module["main"].body, Constant)


@pytest.mark.parametrize("extent", [1, 3])
def test_a_branch_that_shapes_decide_is_taken(extent: int) -> None:
    """What exporters write for squeeze(1) of an open axis; all branches use the same names inside."""
    b = Builder(13)
    x = b.input((2, extent, 4), declared=["a", "b", "c"])
    one = b.add("Equal", b.add("Gather", b.add("Shape", x), b.array(1, np.int64)), b.array(1, np.int64))
    y = b.add("Abs", x)
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    infos = [helper.make_tensor_value_info("inner", 1, None)]
    squeeze = helper.make_node("Squeeze", [y, "axes"], ["inner"], name="inner")
    negate = helper.make_node("Neg", [y], ["inner"], name="inner")
    then = helper.make_graph([squeeze], "then", [], infos, [axes])
    other = helper.make_graph([negate], "else", [], infos)
    outs = [b.add("If", one, then_branch=then, else_branch=other) for _ in range(2)]
    module = compare(b.model(b.add("Add", *outs)), b.feeds)
    taken = "squeeze" if extent == 1 else "negative"
    assert operators(module) == ["abs", taken, taken, "add"]
