"""ONNX models whose named extents stay open: one compilation, any size within the bounds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import relay_lite as relay
from relay_lite import GraphError
from relay_lite.frontend import from_onnx
from tests.nonempty import nonempty
from tests.relay_lite.open_networks.models import NETWORKS, Builder, mlp

compiled = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


@compiled
@pytest.mark.parametrize("name", NETWORKS)
def test_one_compilation_is_right_at_all_sizes(name: str) -> None:
    network = NETWORKS[name]()
    module, _ = from_onnx(network.model, open=network.bounds)
    lib = relay.build(module, "c")
    net = relay.graph_executor.GraphModule(lib["default"]())
    for point in nonempty(network.points):
        feeds = network.inputs(*point)
        net.run(**feeds)
        for k, want in enumerate(nonempty(network.expected(feeds))):
            np.testing.assert_allclose(net.get_output(k).numpy(), want, rtol=1e-3, atol=1e-4)


def imported(made: Callable[[Builder], str], dims: tuple[Any, ...] = ("n", 6), **given: Any) -> Any:
    """The graph of a model of one input x."""
    b = Builder()
    out = made(b)
    model = b.model({"x": (1, list(dims))}, out)
    return from_onnx(model, **{"open": {"n": (1, 9)}, **given})[0]["main"].body


def test_chains_of_shapes_become_extents() -> None:
    def chain(b: Builder) -> str:
        """x by [n * 2, 3], n taken from the shape in a slice."""
        first = b.add("Slice", b.add("Shape", "x"), b.known([0]), b.known([1]))
        twice = b.add("Mul", first, b.known([2]))
        both = b.add("Where", b.add("Equal", twice, b.known([-1])), b.known([7]), twice)
        return str(b.add("Reshape", "x", b.add("Concat", both, b.add("Sub", b.known([5]), b.known([2])), axis=0)))

    body = imported(chain)
    assert str(body.type) == "Tensor[(n_2, 3), float32]"
    spread = imported(lambda b: b.add("Add", "x", b.add("ConstantOfShape", b.add("Shape", "x"))))
    assert str(spread.type) == "Tensor[(n, 6), float32]"
    same = imported(lambda b: b.add("Expand", b.known(np.ones((1, 6), "float32")), b.add("Shape", "x")))
    assert str(same.type) == "Tensor[(n, 6), float32]"


def test_names_may_be_given_in_a_shape() -> None:
    body = imported(lambda b: b.add("Relu", "x"), (None, 6), shape={"x": ("n", 6)})
    assert str(body.type) == "Tensor[(n, 6), float32]"
    known = imported(lambda b: b.add("Relu", "x"), ("n", 6), shape={"x": (4, 6)}, open={})
    assert known.type.shape == (4, 6)


def _cut(b: Builder) -> str:
    return str(b.add("Slice", "x", b.known([0]), b.known([5]), b.known([0])))


def _data(b: Builder) -> str:
    return str(b.add("Mul", "x", b.add("Cast", b.add("Size", "x"), to=1)))


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda b: b.add("EyeLike", "x"), r"ONNX EyeLike .*it must be the same for all sizes, got shapes=\[\(n, 6\)\]"),
        (_cut, "ONNX Slice .*along an open extent a slice begins at a number, in steps of 1, and ends inside"),
        (_data, "ONNX Cast .*what is computed of open extents must be a shape: it is no data of the network"),
        (lambda b: b.add("Shape", "x"), r"a shape with open extents is no output of a network, got outputs=\['t0_0'\]"),
        (lambda b: b.add("Reshape", "x", b.known([4, -1])), "ONNX Reshape .*must divide an open extent for all sizes"),
        (lambda b: b.add("Gather", "x", b.known([2])), "ONNX Gather .*from 0, and inside for all sizes"),
    ],
)
def test_what_is_not_the_same_for_all_sizes_is_refused(made: Callable[[Builder], str], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        imported(made)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"rows": (1, 4)}, r"`open` names extents of inputs; those of the model are 'batch', got unknown=\['rows'\]"),
        ({"batch": 4}, "ONNX extent 'batch': an open extent has its least and its greatest value, as open={'batch'"),
        ({"batch": (0, 4)}, "batch: a size has bounds"),
        ({}, r"a static shape is needed, give shape={'x': \(...\)}, or open={NAME: \(least, most\)}"),
    ],
)
def test_names_and_bounds_are_checked(named: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        from_onnx(mlp().model, open=named)
