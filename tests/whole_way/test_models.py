"""The oracle of ONNX models is right where that is known by hand, and the fuzz of them finds planted faults."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from onnx import helper, shape_inference
from onnx.reference import ReferenceEvaluator

from relay_lite.frontend.onnx.emit import mul
from relay_lite.frontend.onnx.stored import converted_wide
from tests.nonempty import nonempty

from . import model_draw
from .blocks import softmax
from .bounded import Value, exact, mismatch
from .model import Model, arrays, onnx_of
from .model_oracle import evaluate
from .model_run import ModelJob, run_models
from .operators import cast

NAN, INF = np.nan, np.inf


def node(op: str, inputs: list[Any], dtype: str = "float32", **attrs: Any) -> Value:
    """What the oracle says of one node; lists of floats have the dtype, lists of integers are int64."""
    nodes: list[Any] = []
    for x in inputs:
        array = np.array(x)
        kind = dtype if array.dtype.kind == "f" else array.dtype.name
        nodes.append(("list", (), {"values": x, "dtype": kind}))
    nodes.append((op, tuple(range(len(inputs))), attrs))
    found = evaluate(Model(tuple(nodes), (len(inputs),), 0))[len(inputs)]
    return found[0] if isinstance(found, list) else found


REFERENCE_DIFFERS = ("Loop", "Scan", "MaxPool", "GlobalMaxPool")


BY_HAND: list[tuple[str, list[Any], dict[str, Any], list[Any]]] = [
    ("Mod", [[5.0, -5.0, 5.0, INF], [INF, 3.0, -3.0, 2.0]], {"fmod": 1}, [5.0, -2.0, 2.0, NAN]),
    ("Mod", [[7, -7, 7, 5], [3, 3, -3, 0]], {"fmod": 0}, [1, 2, -2, 0]),
    ("Mod", [[7, -7, 7, 5], [3, 3, -3, 0]], {"fmod": 1}, [1, -1, 1, 0]),
    ("CumSum", [[1.0, INF, 2.0], 0], {}, [1.0, INF, INF]),
    ("CumSum", [[1.0, 2.0, 4.0], 0], {"exclusive": 1, "reverse": 1}, [6.0, 4.0, 0.0]),
    ("ReduceLogSumExp", [[-INF, -INF], [0]], {"keepdims": 0}, -INF),
    ("ReduceMax", [[1.0, NAN], [0]], {"keepdims": 0}, NAN),
    ("LpNormalization", [[[0.0, 0.0], [3.0, 4.0]]], {}, [[0.0, 0.0], [0.6, 0.8]]),
    ("TopK", [[3, 1, 3, 2], [3]], {"results": 2}, [3, 3, 2]),
    ("ArgMax", [[1.0, 5.0, 5.0]], {"select_last_index": 1, "keepdims": 0}, 2),
    ("Slice", [[1, 2, 3, 4], [-1], [-1000], [0], [-2]], {}, [4, 2]),
    ("Pad", [[1, 2, 3], [2, 1]], {"mode": "reflect"}, [3, 2, 1, 2, 3, 2]),
    ("Resize", [[[[[1.0, 3.0]]]], [0], [0], [1, 1, 1, 4]], {"mode": "linear"}, [[[[1.0, 1.5, 2.5, 3.0]]]]),
    ("Resize", [[[[[1.0, 3.0]]]], [0], [0], [1, 1, 1, 4]], {"mode": "nearest"}, [[[[1.0, 1.0, 3.0, 3.0]]]]),
    ("ConvTranspose", [[[[1.0, 2.0]]], [[[1.0, 1.0, 1.0]]]], {"strides": (2,)}, [[[1.0, 1.0, 3.0, 2.0, 2.0]]]),
    ("AveragePool", [[[[1.0, 3.0, 5.0]]]], {"kernel_shape": (2,), "pads": (1, 0)}, [[[1.0, 2.0, 4.0]]]),
    ("QuantizeLinear", [[0.25, 0.75, -9.0, 200.0], 0.5, 0], {}, [0, 2, -18, 127]),
    ("Softplus", [[-100.0, 0.0]], {}, [np.exp(-100), np.log(2)]),
]  # fmt: skip


@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: f"{case[0]} {case[2]}")
def test_by_hand(case: tuple[str, list[Any], dict[str, Any], list[Any]]) -> None:
    op, inputs, attrs, want = case
    if op == "QuantizeLinear":
        x, scale = (exact(np.array(v), "float32") for v in inputs[:2])
        found = model_oracle_of_quantize(x, scale)
    else:
        found = node(op, inputs, **attrs)
    assert (np.asarray(found.e) < INF).all()
    np.testing.assert_allclose(found.v, np.array(want), rtol=1e-12)


def model_oracle_of_quantize(x: Value, scale: Value) -> Value:
    from .onnx_elements import ELEMENTS

    return ELEMENTS["QuantizeLinear"]([x, scale, exact(np.array(0), "int8")], {})


def test_halves_are_computed_in_float32_and_rounded_once() -> None:
    ones = node("MatMul", [[[1.0] * 4096], [[1.0]] * 4096], "float16")
    assert (ones.v.item(), ones.e.item(), ones.dtype) == (4096.0, 0.0, "float16")
    mean = node("ReduceMean", [[60000.0] * 8, [0]], "float16", keepdims=0)
    assert mismatch(mean, np.array(60000, "float16")) is None and mismatch(mean, np.array(INF, "float16"))


def test_what_rounding_may_do_is_known() -> None:
    """A quotient by what is no power of two may be a product, an axis that overflows on the way may be the last one."""
    sevenths = node("Mean", [[[-6.125]], *[[[0.0]]] * 6])
    assert mismatch(sevenths, np.array([[-0.8750000596]], "float32")) is None
    assert mismatch(sevenths, np.array([[-0.87501]], "float32")) is not None
    assert node("Div", [[3.0], [4.0]]).e == 0 == node("Div", [[0.0], [7.0]]).e
    large = float(np.finfo("float32").max)
    cubic = {"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}
    sides = [[0], [0], [1, 1, 4, 4]]
    up = node("Resize", [[[[[0.0, large], [0.0, 0.0]]]], *sides], **cubic)
    assert not up.known.all() and up.known.any()
    half = node("Resize", [[[[[0.0, large / 2], [0.0, 0.0]]]], *sides], **cubic)
    assert half.known.all() and mismatch(half, np.asarray(half.v * 1.0001, "float32")) is not None


def test_nothing_is_known_of_a_row_with_an_unknown_element() -> None:
    """Not even where the others are so large that a bound overflows."""
    row = Value(np.array([0.0, 8e307]), np.array([INF, 1e293]), "float64")
    with np.errstate(all="ignore"):
        soft, log = softmax(row, 0), softmax(row, 0, log=True)
        whole = cast(soft, "uint32")
    assert not soft.known.any() and not log.known.any()
    assert mismatch(whole, np.array([1, 0], "uint32")) is None and mismatch(whole, np.array([0, 1], "uint32")) is None


def test_what_is_drawn_are_models_of_onnx() -> None:
    """By the types and shapes that the package `onnx` infers, which are those of the oracle."""
    models = [(seed, model_draw.draw(seed)) for seed in range(40)]
    # the body of that one has a Constant without a value
    good = [(s, m) for s, m in models if not any(n[0] == "MeanVarianceNormalization" for n in m.nodes)]
    for seed, drawn in nonempty(good):
        known = evaluate(drawn)
        inferred = shape_inference.infer_shapes(onnx_of(drawn), check_type=True, strict_mode=True)
        for info, o in nonempty(zip(inferred.graph.output, drawn.outputs, strict=True)):
            assert helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).name == known[o].dtype
            shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
            if info.type.tensor_type.HasField("shape") and all(shape):
                assert shape == list(known[o].v.shape), seed


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of float16 that is 0.4 % too large: four units in the last place."""

    def wrong(converter: Any, node: Any) -> Any:
        found = converted_wide(converter, node)
        return [mul(x, 1.004) for x in found] if node.op == "ReduceSum" else found

    x = ("input", (), {"shape": (2, 40), "dtype": "float16", "values": "wide"})
    nodes = (x, ("list", (), {"values": (1,), "dtype": "int64"}), ("ReduceSum", (0, 1), {"keepdims": 0}))
    job = ModelJob(0, Model(nodes, (2,), 3))
    with monkeypatch.context() as patched:
        patched.setattr(
            "relay_lite.frontend.onnx.importer.converted_wide",
            wrong,
        )
        (broken,) = run_models([job])
    (right,) = run_models([job])
    assert [f.kind for f in broken.findings] == ["mismatch"]
    assert right.findings == [] and right.programs["outputs of models"] == 1


def test_the_oracle_agrees_with_the_reference_of_onnx() -> None:
    """Of models of float32 with ordinary inputs; the reference's own errors are not a unit in the last place."""
    compared = 0
    for seed in range(400):
        drawn = model_draw.draw(seed)
        inputs = [n[2] for n in drawn.nodes if n[0] == "input"]
        if any((x["dtype"], x["values"]) not in (("float32", "small"), ("int64", "small")) for x in inputs):
            continue
        if any(op in REFERENCE_DIFFERS or attrs.get("to", "").startswith("u") for op, _, attrs in drawn.nodes):
            continue  # the reference joins what a Loop stacks, gives some pools another shape, and casts as C may
        feeds = {f"n{k}": x for k, x in arrays(drawn).items()}
        try:
            with np.errstate(all="ignore"):
                got = ReferenceEvaluator(onnx_of(drawn)).run(None, feeds)
        except Exception:  # it has not everything
            continue
        known = evaluate(drawn)
        for o, y in zip(drawn.outputs, got, strict=True):
            want = known[o]
            assert y.shape == want.v.shape, (seed, drawn.nodes)
            text = (
                None if want.dtype in ("float16", "bfloat16") else mismatch(Value(want.v, 64 * want.e, want.dtype), y)
            )
            assert text is None, f"seed {seed}: {text}"
            compared += 1
    assert compared > 10
