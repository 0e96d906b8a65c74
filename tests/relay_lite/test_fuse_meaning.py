"""All passes together leave the meaning of a network alone, and so does writing its groups as tensor expressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from relay_lite.compiler.optimize import group_uses, optimize
from relay_lite.ir.errors import GraphError
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Function, Tuple
from relay_lite.ir.reference import run
from relay_lite.op.lower_group import lower_group
from relay_lite.testing import get_workload
from relay_lite.transform import FuseOps, PassContext
from te_lite.meaning.reference import evaluate
from tests.nonempty import nonempty

Arrays = dict[str, Any]

NETWORKS = {
    "resnet-18/NHWC": {"image_shape": (35, 37, 3)},
    "resnet-18/NCHW": {"image_shape": (3, 32, 24)},
    "resnet3d-18/NHWC": {"image_shape": (2, 29, 30, 2)},
    "mobilenet/NHWC": {"image_shape": (33, 35, 3)},
    "squeezenet_v1.1/NCHW": {"image_shape": (3, 47, 51)},
    "dcgan/NHWC": {},
    "mlp/NHWC": {},
    "lstm/NHWC": {"iterations": 3, "num_hidden": 11},
    "bert-base/NHWC": {"num_layers": 1, "hidden": 24, "num_heads": 3, "ffn": 20, "seq_len": 7, "vocab_size": 13},
}


def workload(network: str, rng: np.random.Generator) -> tuple[Function, Arrays, Arrays]:
    """The network, its inputs and parameters that fold into something: negative scales, means, shifts."""
    name, layout = network.split("/")
    options: Any = NETWORKS[network]
    graph, params = get_workload(name, batch_size=2, layout=layout, **options)
    for key, array in params.items():
        if not key.endswith("weight"):
            positive = key.endswith("var")
            params[key] = rng.uniform(0.5 if positive else -1.0, 1.5, array.shape).astype(array.dtype)
    inputs: Arrays = {}
    for v in graph["main"].params:
        if v.name not in params:
            integers = "int" in v.dtype
            inputs[v.name] = (rng.integers(0, 2, v.shape) if integers else rng.normal(size=v.shape)).astype(v.dtype)
    return graph["main"], inputs, params


LONG = ("resnet-18/NHWC",)
SLOW = ("resnet3d-18/NHWC", "dcgan/NHWC", "squeezenet_v1.1/NCHW")


def marked(networks: Iterable[str]) -> list[Any]:
    """The networks as parameters; marked where they take long."""
    marks = dict.fromkeys(LONG, pytest.mark.long) | dict.fromkeys(SLOW, pytest.mark.slow)
    return [pytest.param(n, marks=marks.get(n, ())) for n in networks]


@pytest.mark.parametrize("network", marked(NETWORKS))
@pytest.mark.one_in(2)
def test_optimised_networks_mean_the_same(network: str) -> None:
    rng = np.random.default_rng(len(network))
    function, inputs, params = workload(network, rng)
    expected = run(function, inputs, params, dtype="float64")
    for target in ("cuda", "c"):
        with PassContext(opt_level=3):
            fused = optimize(function, params, target)
        got = run(fused, inputs, dtype="float64")
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "network", marked(["resnet-18/NHWC", "mobilenet/NHWC", "dcgan/NHWC", "lstm/NHWC", "bert-base/NHWC"])
)
@pytest.mark.parametrize("target", ["cuda", "c"])
@pytest.mark.one_in(3)
def test_groups_as_tensor_expressions(network: str, target: str) -> None:
    rng = np.random.default_rng(len(network))
    function, _, params = workload(network, rng)
    with PassContext(opt_level=3):
        fused = optimize(function, params, target)
    for group in nonempty(group_uses(fused)):
        check_group(group, target, rng)


def check_group(function: Function, target: str, rng: np.random.Generator) -> None:
    """A group evaluated as tensor expressions gives what its operators give in NumPy."""
    lowered = lower_group(function, target)
    arrays = [
        (rng.integers(0, 2, p.shape) if "int" in p.dtype else rng.uniform(0.1, 1.0, p.shape)).astype(p.dtype)
        for p in function.params
    ]
    expected = run(function, arrays, dtype="float64")
    given = {t: arrays[k] for t, k in zip(lowered.tensors, lowered.inputs, strict=False)}
    values = evaluate(lowered.tensors, given, dtype="float64")
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(lowered.outputs) == len(expected)
    for t, want in zip(lowered.outputs, expected, strict=True):
        np.testing.assert_allclose(
            values[t], want, rtol=0, atol=1e-6 * np.abs(want).max(initial=1e-6), err_msg=lowered.name
        )


def primitive(body: Any, **attrs: object) -> Function:
    return Function(IRModule.from_expr(body)["main"].params, body, {"primitive": True, **attrs})


def test_inputs_follow_the_computation_not_the_parameters() -> None:
    rng = np.random.default_rng(3)
    x, y, unused = (relay.var(name, shape=(3, 5)) for name in "xyz")
    body = relay.add(relay.multiply(y, relay.const(2.0)), relay.subtract(x, y))
    function = Function((x, unused, y), body, {"name": "mine"})
    lowered = lower_group(function, "c")
    assert (lowered.name, lowered.inputs, lowered.is_complex) == ("mine", (2, 0), False)
    assert [t.name for t in lowered.tensors[:2]] == ["p2", "p0"]
    check_group(function, "c", rng)


def test_several_outputs_and_one_that_is_an_input() -> None:
    rng = np.random.default_rng(4)
    x = relay.var("x", shape=(4, 6))
    parts = relay.split(x, 3, axis=1)
    pair = Tuple((relay.ir.TupleGetItem(parts, 2), x, relay.sum(relay.ir.TupleGetItem(parts, 0), axis=1)))
    function = primitive(pair)
    lowered = lower_group(function, "c")
    assert [t.shape for t in lowered.outputs] == [(4, 2), (4, 6), (4,)]
    assert lowered.is_complex
    check_group(function, "c", rng)


def test_what_cannot_be_lowered_is_refused() -> None:
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(GraphError, match="must be a scalar"):
        lower_group(primitive(relay.add(x, relay.const(np.ones((2, 3), np.float32)))), "c")


def kernels(body: Any) -> list[str]:
    """The names of the kernels of a graph that move elements; with it, that their meaning is the graph's."""
    graph = IRModule.from_expr(body)["main"]
    rng = np.random.default_rng(0)
    inputs = {v.name: rng.uniform(-1, 1, v.shape) for v in graph.params}
    fused = FuseOps()(graph)
    want, got = [run(f, inputs, dtype="float64") for f in (graph, fused)]
    for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (want, got)], strict=True):
        np.testing.assert_array_equal(a, b)
    return sorted(f.attrs["name"].removeprefix("fused_") for f in group_uses(fused) if not f.attrs["reshape_only"])


def test_slices_of_a_transposition_read_what_it_reads() -> None:
    """As exporters write queries, keys and values; the product in which they meet reads three kernels' results."""
    x = relay.var("x", shape=(5, 24), dtype="float64")
    turned = relay.squeeze(relay.transpose(relay.reshape(x, (1, 5, 3, 8)), (2, 1, 0, 3)), (2,))
    q, k, v = [relay.reshape(relay.strided_slice(turned, (n,), (n + 1,), axes=(0,)), (1, 5, 8)) for n in range(3)]
    body = relay.nn.batch_matmul(relay.nn.batch_matmul(q, k, transpose_b=True), v, transpose_b=False)
    one = "reshape_transpose_squeeze_strided_slice_reshape"
    assert [n for n in kernels(body) if "matmul" not in n] == [one, f"{one}_1", f"{one}_2"]


def test_a_transposition_with_other_readers_is_computed_once() -> None:
    x = relay.var("x", shape=(5, 6), dtype="float64")
    turned = relay.transpose(x)
    part = relay.strided_slice(turned, (0,), (2,), axes=(0,))
    for other in (relay.nn.matmul(turned, x), relay.nn.relu(turned), relay.reshape(turned, (5, 6))):
        assert sum("transpose" in name for name in kernels(Tuple((part, other)))) == 1
