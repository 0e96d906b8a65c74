"""If, Loop and Scan whose course is known only when the model runs, or has many steps: by hand, and by onnxruntime."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx.parser

import relay_lite as relay
from codegen_cuda.driver.compile import available_compilers
from relay_lite.frontend import from_onnx
from relay_lite.ir.control import Branch, Loop
from relay_lite.ir.nodes import Control, Expr
from relay_lite.ir.reference import run
from relay_lite.ir.visit import post_order
from relay_lite.transform.select_branches import SelectBranches
from tests.nonempty import nonempty
from tests.relay_lite.test_build_cuda import TARGET, emulate

try:
    import onnxruntime
except ImportError:  # then by hand only
    onnxruntime = None

Array = np.ndarray[Any, np.dtype[Any]]
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def model_of(text: str) -> Any:
    return onnx.parser.parse_model(f"{HEAD}\n{text}")


@dataclass(frozen=True)
class Case:
    """A model, what it gives, and several inputs; `kept` are the nodes of control flow that its graph must have."""

    text: str
    want: Callable[..., Sequence[Array]]
    inputs: Callable[[np.random.Generator], Iterator[Sequence[Array]]]
    kept: tuple[type, ...] = ()


def f32(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


def flags(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Iterator[Sequence[Array]]]:
    """A bool that is true, then false, and floats."""

    def drawn(rng: np.random.Generator) -> Iterator[Sequence[Array]]:
        for flag in (True, False):
            yield [np.array(flag), *[f32(rng, *s) for s in shapes]]

    return drawn


def numbers(values: Sequence[int], *shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Iterator[Any]]:
    """An int64 of shape (), and floats."""

    def drawn(rng: np.random.Generator) -> Iterator[Sequence[Array]]:
        for value in values:
            yield [np.array(value), *[f32(rng, *s) for s in shapes]]

    return drawn


def products(rng: np.random.Generator, *shapes: tuple[int, ...]) -> Iterator[Sequence[Array]]:
    for _ in range(2):
        yield [f32(rng, *s) for s in shapes]


def _running(x: Array) -> Sequence[Array]:
    total = np.cumsum(x.astype("float64"), 0)
    return [total[-1], total * 2]


def _backwards(x: Array, y: Array) -> Sequence[Array]:
    """x from its end, y from its start; the product so far, put in front of what was given before."""
    h, given = np.ones(2), []
    for t in range(6):
        h = h * 0.5 + x[:, 5 - t].astype("float64") * y[t]
        given.append(h)
    return [h, np.stack(given[::-1], 1)]


def _matrices(x: Array, w: Array) -> Sequence[Array]:
    for i in range(5):
        x = np.tanh(x.astype("float64") @ w + i)
    return [x]


def _until(x: Array) -> Sequence[Array]:
    """Halved until no element is above 1, at most 12 times; how often."""
    x, n = x.astype("float64"), 0
    while n < 12 and x.max() > 1:
        x, n = x / 2, n + 1
    return [x, np.array(n)]


def _products(m: Array, x: Array, w: Array) -> Sequence[Array]:
    x = x.astype("float64")
    for _ in range(min(max(int(m), 0), 6)):
        x = np.tanh(x @ w)
    return [x]


def nested(n: Array, x: Array, w: Array, v: Array) -> Sequence[Array]:
    if n == 16000:
        return [np.tanh(x.astype("float64") @ w), np.array(1)]
    return [np.maximum(x.astype("float64") @ v, 0), np.array(2)] if n == 8000 else [x, np.array(3)]


def _every_second(x: Array, w: Array) -> Sequence[Array]:
    """A product in every second step, a sum in the others, and what the state was before."""
    h, given = np.zeros((1, 4)), []
    for t in range(len(x)):
        given.append(h)
        h = np.tanh(h @ w + x[t].astype("float64")) if x[t].sum() > 0 else h + x[t]
    return [h, np.stack(given)]


CASES = {
    "both ways are short": Case(
        """g (bool c, float[3,4] x, float[3,4] y) => (float[3,4] z) {
            z = If (c) <then_branch = t () => (float[3,4] a) { a = Add(x, y) },
                        else_branch = e () => (float[3,4] b) { b = Mul(x, y) }> }""",
        lambda c, x, y: [x + y if c else x * y],
        flags((3, 4), (3, 4)),
        (Branch,),
    ),
    "a condition of one element": Case(
        """g (bool[1] c, float[3] x) => (float[3] z) {
            z = If (c) <then_branch = t () => (float[3] a) { a = Neg(x) },
                        else_branch = e () => (float[3] b) { b = Exp(x) }> }""",
        lambda c, x: [-x if c else np.exp(x)],
        lambda rng: iter([[np.array([f]), f32(rng, 3)] for f in (True, False)]),
        (Branch,),
    ),
    "products": Case(
        """g (bool c, float[3,4] x, float[4,4] w, float[4,4] v) => (float[3,4] z) {
            z = If (c) <then_branch = t () => (float[3,4] a) { m = MatMul(x, w) a = Tanh(m) },
                        else_branch = e () => (float[3,4] b) { n = MatMul(x, v) o = Relu(n) b = MatMul(o, w) }> }""",
        lambda c, x, w, v: [np.tanh(x.astype("float64") @ w) if c else np.maximum(x.astype("float64") @ v, 0) @ w],
        flags((3, 4), (4, 4), (4, 4)),
        (Branch,),
    ),
    "constants, what is outside, bools, integers": Case(
        """g (bool c, float[3,4] x, float[4,4] w) => (float[3,4] z, int64[2] k, bool b, float[3,4] s) {
            y = MatMul(x, w)
            z, k, b, s = If (c) <then_branch = t () => (float[3,4] z1, int64[2] k1, bool b1, float[3,4] s1) {
                    z1 = Identity(y) k1 = Constant<value_ints = [3, 4]>() b1 = Identity(c) s1 = MatMul(y, w) },
                else_branch = e () => (float[3,4] z2, int64[2] k2, bool b2, float[3,4] s2) {
                    z2 = Identity(x) k2 = Constant<value_ints = [5, 6]>() b2 = Not(c) s2 = Identity(x) }> }""",
        lambda c, x, w: [
            x.astype("float64") @ w if c else x,
            np.array([3, 4] if c else [5, 6]),
            np.array(True),
            x.astype("float64") @ w @ w if c else x,
        ],
        flags((3, 4), (4, 4)),
        (Branch,),
    ),
    "one result twice": Case(
        """g (bool c, float[3,4] x, float[4,4] w) => (float[3,4] z, float[3,4] k, float[12] r) {
            z, k, r = If (c) <then_branch = t () => (float[3,4] z1, float[3,4] k1, float[12] r1) {
                    z1 = MatMul(x, w) k1 = Identity(z1) s = Constant<value_ints = [-1]>() r1 = Reshape(z1, s) },
                else_branch = e () => (float[3,4] z2, float[3,4] k2, float[12] r2) {
                    z2 = Identity(x) k2 = Identity(x) t = Constant<value_ints = [12]>() r2 = Reshape(x, t) }> }""",
        lambda c, x, w: [(y := x.astype("float64") @ w if c else x), y, y.reshape(-1)],
        flags((3, 4), (4, 4)),
        (Branch,),
    ),
    "branches inside of branches": Case(
        """g (int64 n, float[3,4] x, float[4,4] w, float[4,4] v) => (float[3,4] z, int64 k) {
            a = Constant<value_int = 16000>() b = Constant<value_int = 8000>()
            wide = Equal(n, a) narrow = Equal(n, b)
            z, k = If (wide) <then_branch = t () => (float[3,4] z1, int64 k1) {
                    m = MatMul(x, w) z1 = Tanh(m) k1 = Constant<value_int = 1>() },
                else_branch = e () => (float[3,4] z2, int64 k2) {
                    z2, k2 = If (narrow) <then_branch = t2 () => (float[3,4] z3, int64 k3) {
                            o = MatMul(x, v) z3 = Relu(o) k3 = Constant<value_int = 2>() },
                        else_branch = e2 () => (float[3,4] z4, int64 k4) {
                            z4 = Identity(x) k4 = Constant<value_int = 3>() }> }> }""",
        nested,
        numbers([16000, 8000, 1], (3, 4), (4, 4), (4, 4)),
        (Branch,),
    ),
    "NaN in the other way": Case(
        """g (bool c, float[3] x, int64[3] k, float[3] zero, int64[3] none) => (float[3] z, int64[3] j) {
            z, j = If (c) <then_branch = t () => (float[3] a, int64[3] p) { a = Neg(x) p = Neg(k) },
                else_branch = e () => (float[3] b, int64[3] q) { b = Div(zero, zero) q = Div(k, none) }> }""",
        lambda c, x, k, zero, none: [-x, -k],
        lambda rng: iter(
            [[np.array(True), f32(rng, 3), np.array([4, 5, -6]), np.zeros(3, "float32"), np.zeros(3, int)]]
        ),
    ),
    "a running sum": Case(
        """g (float[40,3] x) => (float[3] s, float[40,3] y) {
            z = Constant<value = float[3] {0.0, 0.0, 0.0}>()
            s, y = Scan <num_scan_inputs = 1, body = b (float[3] h, float[3] r) => (float[3] n, float[3] o) {
                n = Add(h, r) two = Constant<value_float = 2.0>() o = Mul(n, two) }> (z, x) }""",
        _running,
        lambda rng: products(rng, (40, 3)),
        (Loop,),
    ),
    "a scan of other axes and directions": Case(
        """g (float[2,6] x, float[6,2] y) => (float[2] s, float[2,6] o) {
            h = Constant<value = float[2] {1.0, 1.0}>()
            s, o = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                         scan_output_axes = [-1], scan_output_directions = [1],
                         body = b (float[2] h0, float[2] p, float[2] q) => (float[2] n, float[2] m) {
                half = Constant<value_float = 0.5>() a = Mul(h0, half) r = Mul(p, q) n = Add(a, r)
                m = Identity(n) }> (h, x, y) }""",
        _backwards,
        lambda rng: products(rng, (2, 6), (6, 2)),
        (Loop,),
    ),
    "trips of which the body reads the number": Case(
        """g (float[3,4] x, float[4,4] w) => (float[3,4] y) {
            m = Constant<value_int = 5>() on = Constant<value = bool {1}>()
            y = Loop (m, on, x) <body = b (int64 i, bool go, float[3,4] s) => (bool go2, float[3,4] t) {
                go2 = Identity(go) p = MatMul(s, w) f = Cast<to = 1>(i) q = Add(p, f) t = Tanh(q) }> }""",
        _matrices,
        lambda rng: products(rng, (3, 4), (4, 4)),
        (Loop,),
    ),
    "rows in a loop without states": Case(
        """g (float[9,4] x) => (float[9,4] y) {
            m = Constant<value_int = 9>() on = Constant<value = bool {1}>()
            y = Loop (m, on) <body = b (int64 i, bool go) => (bool go2, float[4] t) {
                go2 = Constant<value = bool {1}>() r = Gather(x, i) e = Exp(r) k = ReduceSum<keepdims = 1>(e)
                t = Div(e, k) }> }""",
        lambda x: [np.exp(x.astype("float64")) / np.exp(x.astype("float64")).sum(1, keepdims=True)],
        lambda rng: products(rng, (9, 4)),
        (Loop,),
    ),
    "a counter that is known, and a shape made of it": Case(
        """g (float[8] x) => (float[8] y, float[2,4] z) {
            m = Constant<value_int = 4>() k0 = Constant<value_int = 0>() two = Constant<value_ints = [2]>()
            k, y = Loop (m, , k0, x) <body = b (int64 i, bool go, int64 k1, float[8] s)
                => (bool go2, int64 k2, float[8] t) {
                go2 = Identity(go) one = Constant<value_int = 1>() k2 = Add(k1, one) f = Cast<to = 1>(k2)
                t = Mul(s, f) }>
            axes = Constant<value_ints = [0]>() last = Unsqueeze(k, axes) shape = Concat<axis = 0>(two, last)
            z = Reshape(x, shape) }""",
        lambda x: [x * 24, x.reshape(2, 4)],
        lambda rng: products(rng, (8,)),
        (Loop,),
    ),
    "ends when its condition says so": Case(
        """g (float[5] x) => (float[5] y, int64 n) {
            m = Constant<value_int = 12>() k0 = Constant<value_int = 0>() one = Constant<value = float {1.0}>()
            t0 = ReduceMax<keepdims = 0>(x) c0 = Greater(t0, one)
            y, n = Loop (m, c0, x, k0) <body = b (int64 i, bool go, float[5] s, int64 k1)
                => (bool go2, float[5] t, int64 k2) {
                half = Constant<value_float = 0.5>() t = Mul(s, half) u = ReduceMax<keepdims = 0>(t)
                go2 = Greater(u, one) o = Constant<value_int = 1>() k2 = Add(k1, o) }> }""",
        _until,
        lambda rng: iter([[f32(rng, 5) * scale] for scale in (0.1, 3, 1000, 1e9)]),
        (Loop, Branch),
    ),
    "a trip count that has a bound": Case(
        """g (int64 m, float[3,4] x, float[4,4] w) => (float[3,4] y) {
            six = Constant<value_int = 6>() n = Min(m, six)
            y = Loop (n, , x) <body = b (int64 i, bool go, float[3,4] s) => (bool go2, float[3,4] t) {
                go2 = Identity(go) p = MatMul(s, w) t = Tanh(p) }> }""",
        _products,
        numbers([-1, 0, 1, 4, 6, 100], (3, 4), (4, 4)),
        (Loop, Branch),
    ),
    "a branch in every step": Case(
        """g (float[7,1,4] x, float[4,4] w) => (float[1,4] s, float[7,1,4] y) {
            h0 = Constant<value = float[1,4] {0.0, 0.0, 0.0, 0.0}>()
            s, y = Scan <num_scan_inputs = 1, body = b (float[1,4] h, float[1,4] r) => (float[1,4] n, float[1,4] o) {
                zero = Constant<value = float {0.0}>() t = ReduceSum<keepdims = 0>(r) c = Greater(t, zero)
                n = If (c) <then_branch = t1 () => (float[1,4] a) { p = MatMul(h, w) q = Add(p, r) a = Tanh(q) },
                    else_branch = e1 () => (float[1,4] d) { d = Add(h, r) }>
                o = Identity(h) }> (h0, x) }""",
        _every_second,
        lambda rng: products(rng, (7, 1, 4), (4, 4)),
        (Loop, Branch),
    ),
    "a loop in a branch": Case(
        """g (bool c, float[20,3] x) => (float[3] s, float[20,3] y) {
            s, y = If (c) <then_branch = t () => (float[3] s1, float[20,3] y1) {
                z = Constant<value = float[3] {0.0, 0.0, 0.0}>()
                s1, y1 = Scan <num_scan_inputs = 1, body = b (float[3] h, float[3] r) => (float[3] n, float[3] o) {
                    n = Add(h, r) two = Constant<value_float = 2.0>() o = Mul(n, two) }> (z, x) },
              else_branch = e () => (float[3] s2, float[20,3] y2) {
                a = Constant<value_ints = [0]>() s2 = ReduceSum<keepdims = 0>(x, a) y2 = Exp(x) }> }""",
        lambda c, x: _running(x) if c else [x.astype("float64").sum(0), np.exp(x)],
        flags((20, 3)),
        (Branch, Loop),
    ),
    "a loop in a loop": Case(
        """g (float[5,3] x, float[3,3] w) => (float[1,3] s, float[5,4,1,3] y) {
            z = Constant<value = float[1,3] {0.0, 0.0, 0.0}>() m = Constant<value_int = 4>()
            s, y = Scan <num_scan_inputs = 1, body = b (float[1,3] h, float[3] r)
                => (float[1,3] n, float[4,1,3] o) {
                n, o = Loop (m, , h) <body = b2 (int64 i, bool go, float[1,3] p)
                    => (bool go2, float[1,3] q, float[1,3] k) {
                    go2 = Identity(go) u = MatMul(p, w) v = Add(u, r) q = Tanh(v) k = Identity(p) }> }> (z, x) }""",
        lambda x, w: _loop_in_loop(x.astype("float64"), w),
        lambda rng: products(rng, (5, 3), (3, 3)),
        (Loop,),
    ),
}


def _loop_in_loop(x: Array, w: Array) -> Sequence[Array]:
    h, given = np.zeros((1, 3)), np.zeros((5, 4, 1, 3))
    for t in range(5):
        for k in range(4):
            given[t, k] = h
            h = np.tanh(h @ w + x[t])
    return [h, given]


def kinds_of(body: Expr) -> set[type]:
    """The kinds of control flow in a graph."""
    nodes = [node for node in post_order(body) if isinstance(node, Control)]
    return {type(node) for node in nodes}.union(*[kinds_of(f.body) for node in nodes for f in node.functions])


def outputs(module: Any, count: int) -> list[Array]:
    return [module.get_output(k).numpy() for k in range(count)]


def listed(found: Any) -> list[Array]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", CASES)
def test_control_flow(name: str) -> None:
    check(CASES[name])


def check(case: Case) -> None:
    """What a case gives by the reference, on `c`, with both ways of every branch computed, and by onnxruntime."""
    model = model_of(case.text)
    graph, _ = from_onnx(model)
    main = graph["main"]
    assert kinds_of(main.body) >= set(case.kept)
    selected = SelectBranches(everywhere=True)(main)
    assert Branch not in kinds_of(selected.body)
    network = relay.graph_executor.GraphModule(relay.build(graph, "c")["default"]())
    names = [v.name for v in main.params]
    for arrays in nonempty(case.inputs(np.random.default_rng(0))):
        want = case.want(*arrays)
        feeds = {n: a for n, a in zip((i.name for i in model.graph.input), arrays, strict=True)}
        given = {n: feeds[n] for n in names}
        network.run(**given)
        ways = {
            "reference": listed(run(graph, given)),
            "c": outputs(network, len(want)),
            "both": listed(run(selected, given)),
        }
        if onnxruntime is not None:
            ways["onnxruntime"] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        for who, found in ways.items():
            for k, (a, b) in nonempty(enumerate(zip(found, want, strict=True))):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5, err_msg=f"{who}, output {k}")


def test_one_tensor_that_a_branch_names_as_two_results() -> None:
    """By hand only: onnxruntime leaves the first of both unwritten (findings/onnxruntime_if_result_named_twice.sh)."""
    text = """g (bool c, float[3] x) => (float[3] y, float[3] z) {
        y, z = If (c) <then_branch = t () => (float[3] a, float[3] a) { a = Neg(x) },
            else_branch = e () => (float[3] b, float[3] d) { b = Abs(x) d = Exp(x) }> }"""
    graph, _ = from_onnx(model_of(text))
    network, x = relay.graph_executor.GraphModule(relay.build(graph, "c")["default"]()), np.array([1, 2, -3], "float32")
    for flag, want in ((True, [-x, -x]), (False, [np.abs(x), np.exp(x)])):
        network.run(c=np.array(flag), x=x)
        np.testing.assert_allclose(outputs(network, 2), want, rtol=1e-6)


@pytest.mark.long
@pytest.mark.skipif(not available_compilers() or shutil.which("g++") is None, reason="no CUDA compiler, or no g++")
@pytest.mark.parametrize(
    "name", ["branches inside of branches", "a trip count that has a bound", "a branch in every step"]
)
def test_control_flow_on_the_emulator(name: str) -> None:
    check_on_the_emulator(CASES[name])


def check_on_the_emulator(case: Case) -> None:
    """Both ways of every branch are computed, on memory full of NaN, and one is selected."""
    graph, _ = from_onnx(model_of(case.text))
    library = relay.build(graph, TARGET)
    assert not any(step.kernel and (step.where or step.unless) for step in library.plan.steps)
    names = [v.name for v in graph["main"].params]
    for arrays in nonempty(case.inputs(np.random.default_rng(1))):
        got = emulate(library, dict(zip(names, arrays, strict=True)))
        for a, b in nonempty(zip(got, case.want(*arrays), strict=True)):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def test_why_many_steps_are_no_loop_of_the_graph_is_said() -> None:
    text = """g (float[1] x) => (float[n] y) <int64 m = {3000}, bool c = {1}> {
        y = Loop (m, c, x) <body = b (int64 i, bool going, float[k] s) => (bool on, float[l] t) {
            on = Identity (going)
            t = Concat <axis = 0> (s, x)
        }>
    }"""
    law = "at most 1024 steps are written out, and as a loop of the graph it is refused: .*, got steps=3000"
    with pytest.raises(relay.GraphError, match=law):
        from_onnx(model_of(text))
