"""Functions of a model's own have attributes by default, wherever they are called."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.nonempty import nonempty
from tests.reports.everywhere import Array, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

X = np.array([[-2, -1, 3]], "float32")
node = helper.make_node


def leaky(alpha: float) -> Array:
    return np.where(X > 0, X, np.float32(alpha) * X)


def function(name: str, nodes: list[Any], **defaults: float) -> Any:
    """A function of `a` that gives `c`, with attributes that are floats by default."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    attributes = [helper.make_attribute(k, v) for k, v in defaults.items()]
    return helper.make_function("own", name, ["a"], ["c"], nodes, opsets, attribute_protos=attributes)


def slope_of(attribute: str) -> Any:
    """A LeakyRelu whose slope is an attribute of the function around it."""
    made = node("LeakyRelu", ["a"], ["c"])
    made.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name=attribute, type=onnx.AttributeProto.FLOAT))
    return made


def check(functions: list[Any], nodes: list[Any], *want: Array) -> None:
    """The outputs y0, y1, ... of the nodes, which read x."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    outputs = [onnx.ValueInfoProto(name=f"y{k}") for k in range(len(want))]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    before = model.SerializeToString()
    for who, found in nonempty(of_onnx(model, [X])):
        for got, right in zip(found, want, strict=True):
            np.testing.assert_array_equal(got, right, who)
    assert model.SerializeToString() == before, "the model that is read stays as it is"


def test_attributes_by_default() -> None:
    calls = [node("Sloped", ["x"], ["y0"], domain="own"), node("Sloped", ["x"], ["y1"], domain="own", slope=0.5)]
    check([function("Sloped", [slope_of("slope")], slope=0.25)], calls, leaky(0.25), leaky(0.5))


def test_attributes_by_default_inside_of_others() -> None:
    outer = function("Outer", [node("Sloped", ["a"], ["c"], domain="own")])
    functions = [function("Sloped", [slope_of("slope")], slope=0.25), outer]
    check(functions, [node("Outer", ["x"], ["y0"], domain="own")], leaky(0.25))


def test_attributes_by_default_in_branches() -> None:
    def branch(**attrs: float) -> Any:
        call = node("Sloped", ["x"], ["z"], domain="own", **attrs)
        return helper.make_graph([call], "branch", [], [onnx.ValueInfoProto(name="z")])

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0), node("Cast", ["s"], ["b"], to=TensorProto.BOOL),
        node("If", ["b"], ["y0"], then_branch=branch(slope=0.5), else_branch=branch()), node("Not", ["b"], ["n"]),
        node("If", ["n"], ["y1"], then_branch=branch(slope=0.5), else_branch=branch()),
    ]  # fmt: skip
    check([function("Sloped", [slope_of("slope")], slope=0.25)], nodes, leaky(0.25), leaky(0.5))
