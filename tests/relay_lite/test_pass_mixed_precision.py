"""`ToMixedPrecision`: what becomes of products, of what follows them and of the rest; values; networks by precision."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.cli.main import main
from ansor.core.errors import TaskError
from ansor.core.target.target import HALVES, Target
from relay_lite import build, reference
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Call, Constant, Expr, Function, FunctionCall, Tuple
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import post_order, rewrite
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.transform import (
    FoldConstant,
    FoldScaleAxis,
    PassContext,
    Sequential,
    SimplifyExpr,
    SimplifyInference,
    ToMixedPrecision,
)
from relay_lite.tuning import cli
from relay_lite.tuning.network import in_precision, load_network
from relay_lite.tuning.tune_network import WrongResult, check, compile_best, limit_of
from tests.relay_lite.pass_graphs import Layers, calls, ops, relu

compiled = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
PRODUCTS = ("nn.conv2d", "nn.dense", "nn.batch_matmul")


def layers(seed: int = 8) -> Function:
    """Convolutions with norms, a skip and a pool; attention; a dense layer.  Two outputs."""
    make = Layers(np.random.default_rng(seed), "NHWC", "float32")
    x = make.input(2, 6, 7, 16)
    first = relu(make.bn(make.conv(x, 16)))
    second = relu(call("add", make.bias(make.conv(first, 16)), first))
    pooled = make.pool(second)
    rows = call("reshape", make.conv(pooled, 24, 1), newshape=(2, 30, 24))
    scores = call("multiply", call("nn.batch_matmul", rows, rows), Constant(np.float32(0.05)))
    mixed = call("nn.batch_matmul", call("nn.softmax", scores), rows, transpose_b=False)
    return Function((x,), Tuple((make.tail(call("reshape", mixed, newshape=(2, 5, 6, 24))), pooled)))


def mixed(graph: Function, dtype: str, **lists: Any) -> Function:
    passes = [SimplifyInference(), FoldConstant(), FoldScaleAxis(), ToMixedPrecision(dtype, **lists), FoldConstant()]
    with PassContext(opt_level=3):
        return Sequential([*passes, SimplifyExpr()])(graph)


def data(graph: Function, seed: int = 0) -> dict[str, np.ndarray]:
    (x,) = graph.params
    return {x.name: np.random.default_rng(seed).standard_normal(x.shape).astype("float32")}


@pytest.mark.parametrize("dtype", UNIT)
def test_factors_are_rounded_and_nothing_else_is_computed_in_16_bits(dtype: str) -> None:
    graph = mixed(layers(), dtype)
    for node in post_order(graph.body):
        if isinstance(node, Call) and node.op.name in PRODUCTS:
            assert {x.dtype for x in node.args} == {dtype} and node.dtype == "float32"
        elif isinstance(node, Call) and node.op.name not in ("cast", "reshape", "nn.max_pool2d", "nn.pad"):
            assert node.dtype == "float32" and all(x.dtype == "float32" for x in node.args), node.op.name
    assert graph.body.type == layers().body.type
    weights = [node.args[1] for name in ("nn.conv2d", "nn.dense") for node in calls(graph, name)]
    assert all(isinstance(w, Constant) and w.value.dtype == dtype for w in weights)
    inner = [node.args[0] for node in calls(graph, "cast")]
    assert not any(isinstance(x, Call) and x.op.name == "cast" and x.dtype == "float32" for x in inner)


def test_values_are_rounded_where_they_are_stored() -> None:
    """A sum, a bias and a relu between two products: one cast; what a softmax reads is not rounded, nor the result."""
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    x = make.input(2, 6, 7, 16)
    graph = mixed(Function((x,), make.conv(relu(make.bias(make.conv(x, 8))), 8)), "float16")
    assert ops(graph)["cast"] == 2
    graph = mixed(Function((x,), call("nn.softmax", make.bias(make.conv(x, 8)))), "float16")
    assert ops(graph)["cast"] == 1
    conv = make.conv(x, 16)
    shared = mixed(Function((x,), call("add", make.conv(conv, 16), conv)), "float16")
    assert ops(shared)["cast"] == 3  # of the input, to 16 bits, and back for the sum


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_of_two_products_that_meet_one_is_stored_in_halves(op: str, turned: bool) -> None:
    """Between kernels nothing large is float32, as in a unit with a convolution beside it; values stay near."""
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    x = make.input(2, 6, 7, 16)
    parts = make.bias(make.conv(relu(make.bias(make.conv(x, 8))), 24)), make.bias(make.conv(x, 24, 1))
    met = relu(call(op, *(parts[::-1] if turned else parts)))
    graph = Function((x,), make.conv(met, 8))
    made = mixed(graph, "float16")
    fused = optimize(made, {}, "cuda")
    types = [n.type for n in post_order(fused.body) if isinstance(n, FunctionCall) and n is not fused.body]
    assert len(types) == 4 and {t.dtype for t in types if isinstance(t, TensorType)} == {"float16"}
    inputs = data(graph)
    assert off([reference.run(made, inputs)], [reference.run(graph, inputs, dtype="float64")]) < 10 * UNIT["float16"]


def test_what_a_norm_gives_a_product_and_a_sum_is_stored_once() -> None:
    """In 16 bits, as BERT has it; what the next norm reads is float32."""
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    x, scale = make.input(2, 6, 7, 16), [Constant(np.full(16, n, "float32")) for n in (1.5, 0.5)]
    normed = call("nn.layer_norm", x, *scale)
    graph = Function((x,), call("nn.layer_norm", call("add", make.conv(normed, 16), normed), *scale))
    made = ToMixedPrecision("float16")(graph)
    fused = optimize(made, {}, "cuda")
    types = [n.type for n in post_order(fused.body) if isinstance(n, FunctionCall)]
    assert [t.dtype for t in types if isinstance(t, TensorType)] == ["float16", "float32", "float32"]
    inputs = data(graph)
    assert off([reference.run(made, inputs)], [reference.run(graph, inputs, dtype="float64")]) < 10 * UNIT["float16"]


def test_sums_that_norms_of_products_read_are_stored_in_halves() -> None:
    """Those of a residual stream, as GPT-2 has it; the last norm gives a result, and reads float32."""
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    x, scale = make.input(2, 6, 7, 16), [Constant(np.full(16, n, "float32")) for n in (1.5, 0.5)]
    stream = call("add", make.conv(x, 16), x)
    for _ in range(2):
        stream = call("add", make.conv(call("nn.layer_norm", stream, *scale), 16), stream)
    graph = Function((x,), call("nn.layer_norm", stream, *scale))
    inputs = data(graph)
    want = reference.run(graph, inputs, dtype="float64")
    for dtype, stored in (("float16", "float16"), ("bfloat16", "float32")):
        made = ToMixedPrecision(dtype)(graph)
        fused = optimize(made, {}, "cuda")
        types = [n.type for n in post_order(fused.body) if isinstance(n, FunctionCall)]
        found = [t.dtype for t in types if isinstance(t, TensorType)]
        assert found == [dtype, stored, dtype, stored, dtype, "float32", "float32"]
        assert off([reference.run(made, inputs)], [want]) < 10 * UNIT[dtype]


def test_what_something_else_reads_than_a_product_keeps_its_digits() -> None:
    """Integers that are made of it, and a result."""
    x, weight = var("x", (4, 16), "float32"), Constant(np.ones((8, 16), "float32"))
    for other in (lambda y: call("cast", y, dtype="int32"), lambda y: y):
        y = call("multiply", x, Constant(np.float32(2)))
        made = ToMixedPrecision("float16")(Function((x,), Tuple((other(y), call("nn.dense", y, weight)))))
        given = {"x": np.linspace(1500.5, 1564, 64, dtype="float32").reshape(4, 16)}
        np.testing.assert_array_equal(reference.run(made, given)[0], (2 * given["x"]).astype(made.body.fields[0].dtype))


def test_two_products_that_do_not_meet_are_not_rounded() -> None:
    """Two results; and what a softmax made of one."""
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    x = make.input(2, 6, 7, 16)
    both = make.bias(make.conv(x, 8)), make.bias(make.conv(x, 8))
    assert ops(mixed(Function((x,), Tuple(both)), "float16"))["cast"] == 1
    assert ops(mixed(Function((x,), call("add", call("nn.softmax", both[0]), both[1])), "float16"))["cast"] == 1


def test_pools_of_halves_stay_in_halves() -> None:
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    x = make.input(2, 6, 7, 16)
    body = make.conv(make.pool(relu(make.conv(x, 8))), 8)
    for dtype, pooled in (("float16", "float16"), ("bfloat16", "float32")):
        (pool,) = calls(mixed(Function((x,), body), dtype), "nn.max_pool2d")
        assert pool.dtype == pooled


def test_what_is_in_halves_already_is_moved_as_it_is() -> None:
    x, y = var("x", (4, 8), "float16"), var("y", (8, 4), "float16")
    wide = call("reshape", call("cast", x, dtype="float32"), newshape=(2, 2, 8))
    turned = call("transpose", call("cast", y, dtype="float32"), axes=(1, 0))
    body = call("nn.batch_matmul", wide, call("reshape", turned, newshape=(2, 2, 8)))
    changed = ToMixedPrecision()(Function((x, y), body))
    assert "cast" not in [node.op.name for node in post_order(changed.body) if isinstance(node, Call)]
    rng = np.random.default_rng(3)
    feed = {v.name: rng.standard_normal(v.shape).astype("float16") for v in (x, y)}
    got, want = [reference.run(f, feed) for f in (changed, Function((x, y), body))]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_lists() -> None:
    graph = layers()
    plain = mixed(graph, "float16", deny=PRODUCTS)
    assert ops(plain)["cast"] == 0
    only = mixed(graph, "float16", allow=["nn.dense"], follow=[])
    assert {n.args[0].dtype for n in calls(only, "nn.conv2d")} == {"float32"} and ops(only)["cast"] == 1
    denied = mixed(graph, "float16", deny=["nn.max_pool2d"])
    assert calls(denied, "nn.max_pool2d")[0].dtype == "float32"
    for lists, law in (
        ({"allow": ["nn.conv9d"]}, "the operator is unknown"),
        ({"allow": ["nn.relu"]}, "only operators with an out_dtype"),
    ):
        with pytest.raises(GraphError, match=law):
            ToMixedPrecision("float16", **lists)
    with pytest.raises(GraphError, match="the dtype is one of float16, bfloat16"):
        ToMixedPrecision("float8")


@pytest.mark.parametrize("turns", [(False, True), (True, False)])
@pytest.mark.parametrize("terms, padded", [(61, 64), (64, 64), (15, 15)])
def test_products_have_whole_vectors_of_terms(turns: tuple[bool, bool], terms: int, padded: int) -> None:
    """Zeros behind them change nothing; those of a constant fold."""
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    shapes = (3, terms, 5) if turns[0] else (3, 5, terms), (3, 7, terms) if turns[1] else (3, terms, 7)
    x = make.input(*shapes[0])
    body = call("nn.batch_matmul", x, make.draw(*shapes[1]), transpose_a=turns[0], transpose_b=turns[1])
    graph = mixed(Function((x,), body), "float16")
    (product,) = calls(graph, "nn.batch_matmul")
    axes = 1 if turns[0] else 2, 2 if turns[1] else 1
    assert [y.shape[axis] for y, axis in zip(product.args, axes, strict=True)] == [padded] * 2
    assert isinstance(product.args[1], Constant)
    given = data(graph)
    a, b = given["data"].astype("float16"), body.args[1].value.astype("float16")
    a, b = [y.swapaxes(1, 2) if turned else y for y, turned in ((a, turns[0]), (b, turns[1]))]
    np.testing.assert_allclose(reference.run(graph, given), a.astype("float64") @ b, rtol=1e-5, atol=1e-5)


def test_products_of_bfloat16_need_a_wider_sum() -> None:
    x, w = [Constant(np.ones(s).astype("bfloat16")) for s in ((4, 8), (6, 8))]
    assert call("nn.dense", x, w, out_dtype="float32").dtype == "float32"
    with pytest.raises(GraphError, match="bfloat16 is only stored: a wider out_dtype is needed"):
        call("nn.dense", x, w)


# ------------------------------------------------------------------------------------------------------ values


def off(got: Any, want: Any) -> float:
    return max(
        float(np.abs(np.asarray(g, "float64") - w).max() / np.abs(w).max()) for g, w in zip(got, want, strict=True)
    )


@pytest.mark.parametrize("dtype", UNIT)
def test_the_graph_is_off_by_what_rounding_explains(dtype: str) -> None:
    for seed in range(5):
        graph = layers(seed)
        inputs = data(graph, seed)
        error = off(reference.run(mixed(graph, dtype), inputs), reference.run(graph, inputs, dtype="float64"))
        assert UNIT[dtype] / 100 < error < 10 * UNIT[dtype]


@pytest.mark.long
@compiled
@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.one_in(2)
def test_compiled_it_computes_the_same(dtype: str) -> None:
    graph = layers()
    inputs = data(graph)
    module = GraphModule(build(mixed(graph, dtype), "c")["default"]())
    module.run(**inputs)
    got = [module.get_output(k).numpy() for k in range(2)]
    assert off(got, reference.run(mixed(graph, dtype), inputs)) < UNIT[dtype]
    assert off(got, reference.run(graph, inputs, dtype="float64")) < 10 * UNIT[dtype]


# ---------------------------------------------------------------------------------------------------- networks


def test_a_network_in_a_precision() -> None:
    network = load_network("mlp", seed=1)
    for precision in ("tf32", "fp32x3"):
        made, target = in_precision(network, "cuda -model=H200", precision)
        assert made.graph is network.graph and (made.precision, target.precision) == (precision, precision)
        with pytest.raises(TaskError, match="only GPUs have tensor cores"):
            in_precision(network, "c", precision)
    for precision, dtype in HALVES.items():
        made, target = in_precision(network, "cuda -precision=tf32", precision)
        assert made.precision == precision and target == Target("cuda") and made.params == {}
        tasks, _ = ansor.extract_tasks(made.graph, made.params, target)
        dense = [t for t in tasks if "dense" in t.desc or "matmul" in t.desc]
        assert dense and all({x.dtype for x in t.compute_dag.tensors[:2]} == {dtype} for t in dense)


def test_limits() -> None:
    assert limit_of("strict", False, 0.0) == limit_of("fp32x3", False, 0.0) == 1e-4
    assert limit_of("strict", True, 0.0) == 1e-3 and limit_of("tf32", True, 0.0) == 2e-2
    assert limit_of("fp16", False, 0.0) == pytest.approx(2e-3) and limit_of("fp16", False, 1.0) == 2e-2
    assert limit_of("bf16", False, 0.02) == pytest.approx(0.08)


@compiled
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.one_in(2)
def test_a_network_in_halves_is_checked(precision: str, tmp_path: Any) -> None:
    """A weight that is wrong by a tenth after compiling is found."""
    log = tmp_path / "log.json"
    log.touch()
    made, target = in_precision(load_network("mlp", batch_size=2, image_size=(5, 3), seed=1), "c", precision)
    module = compile_best(made, target, log)
    found = check(module, made, np.random.default_rng(2))
    unit = UNIT[HALVES[precision]]
    assert unit / 100 < found.error < 4 * unit and found.limit < 0.05

    def spoiled(node: Expr) -> Expr:
        large = isinstance(node, Constant) and node.value.ndim == 2
        return Constant((node.value * 1.1).astype(node.value.dtype)) if large else node

    wrong = IRModule({name: rewrite(f, spoiled) for name, f in made.original.functions.items()})
    with pytest.raises(WrongResult, match="may differ from the reference"):
        check(module, replace(made, original=wrong), np.random.default_rng(2))


@pytest.mark.long
@compiled
def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "MIN_REPEAT_MS", 1)
    line = ["tune-network", "mlp", "--trials", "0", "--image-size", "5x3", "--seed", "3"]
    assert main([*line, "--precision", "fp16"]) == 0
    assert "results agree with the reference" in capsys.readouterr().out
    assert main([*line, "--precision", "tf32"]) == 2
    assert "only GPUs have tensor cores" in capsys.readouterr().err
