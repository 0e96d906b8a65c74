"""Sums, means and norms of float16 and bfloat16 are kept in float32 and rounded once, as nodes of ONNX.

The oracle is each operator's formula in float64, rounded; a node may be one unit in the last place away.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper, numpy_helper

import relay_lite as relay
import te_lite as te
import te_lite.topi
from relay_lite.frontend import from_onnx
from relay_lite.ir.make import call
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Function, Var
from relay_lite.ir.reference import run
from relay_lite.ir.types import TensorType
from relay_lite.tuning.network import Network
from relay_lite.tuning.tune_network import WrongResult, check
from te_lite.meaning.reference import evaluate

pytestmark = [pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler"),
              pytest.mark.one_in(2)]  # fmt: skip
Array = np.ndarray[Any, np.dtype[Any]]


def normal(*shape: int, spread: float = 1.0, offset: float = 0.0) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape) * spread + offset


def standard(x: Array, axes: tuple[int, ...], epsilon: float = 1e-5) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def log_sum_exp(x: Array) -> Array:
    top = x.max(1, keepdims=True)
    return np.log(np.exp(x - top).sum(1, keepdims=True)) + top


def softmax(x: Array) -> Array:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def window(x: Array) -> Array:
    return np.lib.stride_tricks.sliding_window_view(x, (16, 16), (2, 3))[:, :, ::16, ::16]


@dataclass(frozen=True)
class Case:
    """An operator, its arrays (the first is the input), its meaning in float64; constants that are no floats last."""

    op: str
    arrays: tuple[Array, ...]
    meaning: Callable[..., Array]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 18
    whole: tuple[Array, ...] = ()


ONES = np.ones
LAST = np.array([1])
CASES = {
    "MatMul of ones": Case("MatMul", (ONES((1, 4096)), ONES((4096, 2))), lambda a, b: a @ b),
    "MatMul": Case("MatMul", (normal(5, 1000), normal(1000, 7)), lambda a, b: a @ b),
    "bmm": Case("MatMul", (normal(2, 5, 500, offset=1), normal(2, 500, 3, offset=1)), lambda a, b: a @ b),
    "Gemm": Case("Gemm", (ONES((2, 4096)), ONES((3, 4096)), ONES(3)), lambda a, b, c: a @ b.T + c, {"transB": 1}),
    "Conv": Case("Conv", (ONES((1, 512, 3, 3)), ONES((2, 512, 3, 3))),
                 lambda x, w: np.einsum("nchw,dchw->nd", x, w)[..., None, None]),
    "Einsum": Case("Einsum", (ONES((2, 4096)), ONES((4096, 3))), lambda a, b: a @ b, {"equation": "ik,kj->ij"}),
    "Einsum of three": Case("Einsum", (ONES((70, 70)), ONES((70, 70)), ONES(70)),
                            lambda a, b, c: np.einsum("ij,jk,k->i", a, b, c), {"equation": "ij,jk,k->i"}),
    "GlobalAveragePool": Case("GlobalAveragePool", (ONES((1, 2, 128, 128)),), lambda x: x.mean((2, 3), keepdims=True)),
    "AveragePool": Case("AveragePool", (normal(1, 2, 32, 32, offset=300),), lambda x: window(x).mean((4, 5)),
                        {"kernel_shape": [16, 16], "strides": [16, 16]}),
    "ReduceSum": Case("ReduceSum", (ONES((2, 4099)),), lambda x: x.sum(1, keepdims=True), whole=(LAST,)),
    "ReduceMean": Case("ReduceMean", (normal(2, 2000, offset=100),), lambda x: x.mean(1, keepdims=True), whole=(LAST,)),
    "ReduceL1": Case("ReduceL1", (ONES((2, 4099)),), lambda x: np.abs(x).sum(1, keepdims=True), whole=(LAST,)),
    "ReduceL2": Case("ReduceL2", (normal(2, 512, spread=300),), lambda x: np.sqrt((x * x).sum(1, keepdims=True)),
                     whole=(LAST,)),
    "ReduceSumSquare": Case("ReduceSumSquare", (normal(2, 3000, spread=4),), lambda x: (x * x).sum(1, keepdims=True),
                            whole=(LAST,)),
    "ReduceLogSum": Case("ReduceLogSum", (normal(2, 4099, offset=90),), lambda x: np.log(x.sum(1, keepdims=True)),
                         whole=(LAST,)),
    "ReduceLogSumExp": Case("ReduceLogSumExp", (normal(2, 4099, offset=15),), log_sum_exp, whole=(LAST,)),
    "CumSum": Case("CumSum", (ONES((2, 4099)),), lambda x: x.cumsum(1), whole=(np.array(1),)),
    "LayerNormalization": Case("LayerNormalization", (normal(3, 512, spread=20), ONES(512)),
                               lambda x, g: standard(x, (1,)) * g),
    "far from 0": Case("LayerNormalization", (normal(3, 512, spread=2, offset=60), ONES(512)),
                       lambda x, g: standard(x, (1,)) * g),
    "InstanceNormalization": Case("InstanceNormalization", (normal(2, 3, 40, 40, spread=90), ONES(3), np.zeros(3)),
                                  lambda x, g, b: standard(x, (2, 3))),
    "GroupNormalization": Case("GroupNormalization", (normal(2, 4, 40, 40, spread=90), ONES(4), np.zeros(4)),
                               lambda x, g, b: standard(x.reshape(2, 2, -1), (2,)).reshape(x.shape),
                               {"num_groups": 2}, 21),
    "RMSNormalization": Case("RMSNormalization", (normal(3, 512, spread=90), ONES(512)),
                             lambda x, g: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5), opset=23),
    "MeanVarianceNormalization": Case("MeanVarianceNormalization", (normal(2, 3, 40, 40, spread=90),),
                                      lambda x: standard(x, (0, 2, 3), 0)),
    "LpNormalization": Case("LpNormalization", (normal(3, 512, spread=90),),
                            lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
    "LRN": Case("LRN", (normal(1, 8, 4, 4, spread=150),), lambda x: lrn(x), {"size": 3, "alpha": 0.5}),
    "Softmax": Case("Softmax", (normal(2, 3000) / 16,), softmax),
    "LogSoftmax": Case("LogSoftmax", (normal(2, 3000),), lambda x: x - log_sum_exp(x)),
}  # fmt: skip


def lrn(x: Array) -> Array:
    squares = np.pad(x * x, [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    return np.asarray(x / (1 + 0.5 / 3 * total) ** 0.75)


def module_of(case: Case, given: list[Array]) -> Any:
    names = [f"x{k}" for k in range(len(given) + len(case.whole))]
    node = helper.make_node(case.op, names, ["y"], **case.attrs)
    kind = helper.np_dtype_to_tensor_dtype(given[0].dtype)
    values = [numpy_helper.from_array(a, n) for a, n in zip((*given[1:], *case.whole), names[1:], strict=True)]
    ends = [helper.make_tensor_value_info("x0", kind, given[0].shape)], [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph([node], "g", *ends, values)
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)]))[0]


def assert_rounded(got: Array, want: Array, dtype: str) -> None:
    """Within one unit in the last place, or of the size of what float32 loses of a sum that nearly cancels."""
    assert got.dtype == np.dtype(dtype) and got.shape == want.shape
    unit = 2.0 ** (-10 if dtype == "float16" else -7)
    np.testing.assert_allclose(got.astype("float64"), want, rtol=unit, atol=2e-4 * unit * np.abs(want).max() + 2.0**-24)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_a_node_rounds_once(name: str, dtype: str) -> None:
    case = CASES[name]
    given = [a.astype(dtype) for a in case.arrays]
    want = case.meaning(*[a.astype("float64") for a in given])
    assert np.abs(want).max() < 60000
    module = module_of(case, given)
    assert_rounded(np.asarray(run(module, {"x0": given[0]})), want, dtype)
    network = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    network.run(x0=given[0])
    assert_rounded(np.asarray(network.get_output(0)), want, dtype)


def test_each_operator_rounds_its_own_result() -> None:
    """Equal graphs, equal bits: what lies between two nodes is a half."""
    x = np.full((1, 8), 1.0, "float16")
    nodes = [helper.make_node("Add", ["x", "small"], ["t"]), helper.make_node("Sub", ["t", "x"], ["y"])]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    ends = [[helper.make_tensor_value_info(n, kind, [1, 8])] for n in "xy"]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(np.array(2.0**-11, "float16"), "small")])
    module, _ = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    network = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    network.run(x=x)
    np.testing.assert_array_equal(np.asarray(network.get_output(0)), np.zeros((1, 8)))


OPERATORS: dict[str, tuple[list[tuple[int, ...]], dict[str, Any], float]] = {
    "nn.dense": ([(1, 4096), (2, 4096)], {}, 4096),
    "nn.matmul": ([(1, 4096), (4096, 2)], {}, 4096),
    "nn.batch_matmul": ([(2, 1, 4096), (2, 3, 4096)], {}, 4096),
    "nn.conv2d": ([(1, 512, 3, 3), (4, 512, 3, 3)], {}, 4608),
    "nn.avg_pool2d": ([(1, 2, 128, 128)], {"pool_size": (128, 128), "strides": (128, 128)}, 1),
    "nn.global_avg_pool2d": ([(1, 2, 128, 128)], {}, 1),
    "sum": ([(2, 5000)], {"axis": 1}, 5000),
    "mean": ([(2, 70000)], {"axis": 1}, 1),
    "nn.softmax": ([(1, 4096)], {}, 2.0**-12),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_graphs_are_right_on_ones(name: str) -> None:
    shapes, attrs, want = OPERATORS[name]
    given = [Var(f"v{k}", TensorType(s, "float16")) for k, s in enumerate(shapes)]
    module = IRModule.from_expr(Function(given, call(name, *given, **attrs)))
    arrays = {v.name: np.ones(v.type.shape, "float16") for v in given}
    found = np.asarray(run(module, arrays))
    np.testing.assert_array_equal(found, np.full(found.shape, want))
    network = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    network.run(**arrays)
    got = np.asarray(network.get_output(0))
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["layer_norm", "instance_norm", "rms_norm", "lrn", "softmax", "log_softmax"])
def test_norms_of_topi(name: str, dtype: str) -> None:
    x = normal(2, 4, 300, spread=90 if "softmax" not in name else 1).astype(dtype)
    data, ones = te.placeholder(x.shape, dtype, "data"), {n: te.placeholder((n,), dtype, f"g{n}") for n in (4, 300)}
    more = {"layer_norm": (ones[300], None), "instance_norm": (ones[4], ones[4], 1, (2,)), "rms_norm": (ones[300],),
            "lrn": (3, 1, 0.5, 0.75, 1.0)}.get(name, ())  # fmt: skip
    out = getattr(te.topi.nn, name)(data, *more)
    inputs = {data: x, **{t: np.ones(t.shape, dtype) for t in ones.values()}}
    w = x.astype("float64")
    want = {
        "layer_norm": lambda: standard(w, (2,)), "instance_norm": lambda: standard(w, (2,)) + 1,
        "rms_norm": lambda: w / np.sqrt((w * w).mean(2, keepdims=True) + 1e-5),
        "lrn": lambda: lrn(w[..., None])[..., 0],
        "softmax": lambda: softmax(w), "log_softmax": lambda: np.log(softmax(w)),
    }[name]()  # fmt: skip
    assert_rounded(evaluate([out], inputs)[out], want, dtype)


def test_a_model_of_halves_passes_its_check_and_a_wrong_one_does_not() -> None:
    """`ansor tune-network` ended with status 1 after all its tuning: 1e-4 is less than a half can keep."""
    rng = np.random.default_rng(4)
    weights = [rng.standard_normal(s).astype("float16") / 16 for s in ((256, 256), (256, 64))]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["t"]), helper.make_node("Relu", ["t"], ["r"]),
             helper.make_node("MatMul", ["r", "w1"], ["y"])]  # fmt: skip
    ends = [[helper.make_tensor_value_info(n, 10, s)] for n, s in (("x", [4, 256]), ("y", [4, 64]))]
    values = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", *ends, values)
    module, params = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    network = Network("halves", module, params, module)
    compiled = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    assert 0 < check(compiled, network, np.random.default_rng(1)).error < 1e-2

    class Wrong(relay.graph_executor.GraphModule):
        def get_output(self, index: int, *more: Any) -> Any:
            return type(self).scaled(super().get_output(index, *more))

        @staticmethod
        def scaled(found: Any) -> Any:
            return SimpleNamespace(numpy=lambda: found.numpy() * np.float16(1.02))

    with pytest.raises(WrongResult, match="halves: its results may differ"):
        check(Wrong(relay.build(module, "c")["default"]()), network, np.random.default_rng(1))
