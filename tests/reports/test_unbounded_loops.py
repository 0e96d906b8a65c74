"""Loops whose end is known only when the model runs: by hand, and by onnxruntime."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from codegen_cuda.driver.compile import available_compilers
from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx import control
from relay_lite.ir.control import Loop
from tests.nonempty import nonempty
from tests.reports.test_control_flow import Array, Case, check, check_on_the_emulator, f32, model_of, numbers, outputs

NEEDS_GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


def _products(m: Array, x: Array, w: Array) -> Sequence[Array]:
    x = x.astype("float64")
    for trip in range(int(m)):
        x = np.tanh(x @ w + trip)
    return [x]


def _collatz(n: Array) -> Sequence[Array]:
    value, steps = int(n), 0
    while value != 1:
        value, steps = value // 2 if value % 2 == 0 else 3 * value + 1, steps + 1
    return [np.array(steps), np.array(value)]


def _exchanged(m: Array, a: Array, b: Array) -> Sequence[Array]:
    for _ in range(int(m)):
        a, b = b, a
    return [a, b]


def _fibonacci(m: Array) -> Sequence[Array]:
    a, b = 0, 1
    for _ in range(int(m)):
        a, b = b, a + b
    return [np.array(a), np.array(b)]


def _halved(x: Array) -> tuple[Array, int]:
    """Halved while an element is above 1."""
    x, n = x.astype("float64"), 0
    while x.max() > 1:
        x, n = x / 2, n + 1
    return x, n


def _nested(m: Array, x: Array) -> Sequence[Array]:
    total = 0
    for trip in range(int(m)):
        x, n = _halved(x * (trip + 3.0))
        total += n
    return [x, np.array(total)]


def _in_a_way(c: Array, x: Array) -> Sequence[Array]:
    return [_halved(x)[0] if c else -x]


def _in_both_ways(m: Array, x: Array, w: Array) -> Sequence[Array]:
    x = x.astype("float64")
    for trip in range(int(m)):
        x, _ = _halved(x - w if trip % 2 else w - x)
    return [x]


def _in_steps(x: Array) -> Sequence[Array]:
    h, given = np.zeros(3), []
    for row in x:
        h, n = _halved(h + np.abs(row.astype("float64")) * 5)
        given.append(np.float64(n))
    return [h, np.array(given)]


def _in_steps_of_a_way(c: Array, x: Array) -> Sequence[Array]:
    h = np.zeros(3)
    for row in x if c else ():
        h, _ = _halved(h + row)
    return [h if c else x[0]]


def flagged(
    drawn: Callable[[np.random.Generator], Array],
) -> Callable[[np.random.Generator], Iterator[Sequence[Array]]]:
    """A loop that is taken, and one that is not and would never end."""

    def given(rng: np.random.Generator) -> Iterator[Sequence[Array]]:
        x = drawn(rng)
        yield [np.array(True), x]
        yield [np.array(False), np.where(x == x.max(), np.float32("inf"), x)]

    return given


HALVE = """Loop (, c0, v0) <body = b{k} (int64 i{k}, bool g{k}, float[3] s{k}) => (bool h{k}, float[3] t{k}) {{
    half{k} = Constant<value_float = 0.5>() t{k} = Mul(s{k}, half{k}) u{k} = ReduceMax<keepdims = 0>(t{k})
    bound{k} = Constant<value_float = 1.0>() h{k} = Greater(u{k}, bound{k}) }}>"""

CASES = {
    "an input says how many trips": Case(
        """g (int64 m, float[3,4] x, float[4,4] w) => (float[3,4] y) {
            y = Loop (m, , x) <body = b (int64 i, bool go, float[3,4] s) => (bool go2, float[3,4] t) {
                go2 = Identity(go) p = MatMul(s, w) f = Cast<to = 1>(i) q = Add(p, f) t = Tanh(q) }> }""",
        _products,
        numbers([0, 1, 2, 3, 4, 5, 6, 7, 200], (3, 4), (4, 4)),
        (Loop,),
    ),
    "2^63 - 1 trips at most": Case(
        """g (int64 n) => (int64 k, int64 v) {
            m = Constant<value_int = 9223372036854775807>() k0 = Constant<value_int = 0>()
            one = Constant<value_int = 1>() e0 = Equal(n, one) c0 = Not(e0)
            k, v = Loop (m, c0, k0, n) <body = b (int64 i, bool go, int64 k1, int64 a)
                => (bool go2, int64 k2, int64 z) {
                two = Constant<value_int = 2>() three = Constant<value_int = 3>() half = Div(a, two)
                low = Mul(half, two) even = Equal(low, a) t = Mul(a, three) o = Add(t, one)
                z = Where(even, half, o) k2 = Add(k1, one) e = Equal(z, one) go2 = Not(e) }> }""",
        _collatz,
        numbers([1, 2, 3, 7, 27, 97]),
        (Loop,),
    ),
    "two states that are exchanged": Case(
        """g (int64 m, float[3] a, float[3] b) => (float[3] y, float[3] z) {
            y, z = Loop (m, , a, b) <body = f (int64 i, bool go, float[3] s, float[3] t)
                => (bool go2, float[3] t2, float[3] s2) {
                go2 = Identity(go) t2 = Identity(t) s2 = Identity(s) }> }""",
        _exchanged,
        numbers([0, 1, 2, 3, 4, 5], (3,), (3,)),
        (Loop,),
    ),
    "Fibonacci's numbers": Case(
        """g (int64 m) => (int64 y, int64 z) {
            zero = Constant<value_int = 0>() one = Constant<value_int = 1>()
            y, z = Loop (m, , zero, one) <body = f (int64 i, bool go, int64 s, int64 t)
                => (bool go2, int64 t2, int64 s2) { go2 = Identity(go) t2 = Identity(t) s2 = Add(s, t) }> }""",
        _fibonacci,
        numbers([0, 1, 2, 3, 4, 5, 40]),
        (Loop,),
    ),
    "states that begin alike, one of which stays": Case(
        """g (int64 m, float[3] x) => (float[3] y, float[3] z, float[3] w) {
            y, z, w = Loop (m, , x, x, x) <body = f (int64 i, bool go, float[3] a, float[3] b, float[3] c)
                => (bool go2, float[3] a2, float[3] b2, float[3] c2) {
                go2 = Identity(go) a2 = Add(a, x) b2 = Identity(b) c2 = Neg(c) }> }""",
        lambda m, x: [x * (max(int(m), 0) + 1.0), x, x * (-1.0) ** max(int(m), 0)],
        numbers([-3, 0, 1, 2, 5], (3,)),
        (Loop,),
    ),
    "a loop without an end in one without an end": Case(
        """g (int64 m, float[3] x) => (float[3] y, int64 n) {
            k0 = Constant<value_int = 0>()
            y, n = Loop (m, , x, k0) <body = f (int64 i, bool go, float[3] s, int64 k1)
                => (bool go2, float[3] t, int64 k2) {
                go2 = Identity(go) f = Cast<to = 1>(i) three = Constant<value_float = 3.0>() q = Add(f, three)
                v0 = Mul(s, q) one = Constant<value_float = 1.0>() u = ReduceMax<keepdims = 0>(v0)
                c0 = Greater(u, one) zero = Constant<value_int = 0>()
                t, k = Loop (, c0, v0, zero) <body = b (int64 i2, bool g2, float[3] s2, int64 n2)
                    => (bool h2, float[3] t2, int64 m2) {
                    half = Constant<value_float = 0.5>() t2 = Mul(s2, half) u2 = ReduceMax<keepdims = 0>(t2)
                    h2 = Greater(u2, one) step = Constant<value_int = 1>() m2 = Add(n2, step) }>
                k2 = Add(k1, k) }> }""",
        _nested,
        numbers([0, 1, 2, 3, 9], (3,)),
        (Loop,),
    ),
    "a loop in a way of a branch": Case(
        f"""g (bool c, float[3] x) => (float[3] y) {{
            y = If (c) <then_branch = t () => (float[3] a) {{
                    one = Constant<value_float = 1.0>() u = ReduceMax<keepdims = 0>(x) c0 = Greater(u, one)
                    v0 = Identity(x) a = {HALVE.format(k=1)} }},
                else_branch = e () => (float[3] b) {{ b = Neg(x) }}> }}""",
        _in_a_way,
        flagged(lambda rng: f32(rng, 3) * 100),
        (Loop,),
    ),
    "a loop in both ways of a branch in a loop": Case(
        f"""g (int64 m, float[3] x, float[3] w) => (float[3] y) {{
            two = Constant<value_int = 2>() zero = Constant<value_int = 0>() one = Constant<value_float = 1.0>()
            y = Loop (m, , x) <body = f (int64 i, bool go, float[3] s) => (bool go2, float[3] t) {{
                go2 = Identity(go) rest = Mod(i, two) even = Equal(rest, zero)
                t = If (even) <then_branch = t () => (float[3] a) {{
                        v0 = Sub(w, s) e0 = ReduceMax<keepdims = 0>(v0) c0 = Greater(e0, one)
                        a = {HALVE.format(k=1)} }},
                    else_branch = e () => (float[3] b) {{
                        v0 = Sub(s, w) e0 = ReduceMax<keepdims = 0>(v0) c0 = Greater(e0, one)
                        b = {HALVE.format(k=2)} }}> }}> }}""",
        _in_both_ways,
        lambda rng: iter([[np.array(m), f32(rng, 3) * 50, f32(rng, 3) * 50] for m in range(6)]),
        (Loop,),
    ),
    "a loop in each step": Case(
        """g (float[6,3] x) => (float[3] h, float[6] k) {
            z = Constant<value = float[3] {0.0, 0.0, 0.0}>()
            h, k = Scan <num_scan_inputs = 1, body = f (float[3] s, float[3] r) => (float[3] t, float n) {
                a = Abs(r) five = Constant<value_float = 5.0>() p = Mul(a, five) v0 = Add(s, p)
                one = Constant<value_float = 1.0>() u = ReduceMax<keepdims = 0>(v0) c0 = Greater(u, one)
                k0 = Constant<value_float = 0.0>()
                t, n = Loop (, c0, v0, k0) <body = b (int64 i2, bool g2, float[3] s2, float n2)
                    => (bool h2, float[3] t2, float m2) {
                    half = Constant<value_float = 0.5>() t2 = Mul(s2, half) u2 = ReduceMax<keepdims = 0>(t2)
                    h2 = Greater(u2, one) m2 = Add(n2, one) }> }> (z, x) }""",
        _in_steps,
        lambda rng: iter([[f32(rng, 6, 3)], [f32(rng, 6, 3) * 1000]]),
        (Loop,),
    ),
    "a loop in each step of a way of a branch": Case(
        f"""g (bool c, float[4,3] x) => (float[3] y) {{
            y = If (c) <then_branch = t () => (float[3] a) {{
                    z = Constant<value = float[3] {{0.0, 0.0, 0.0}}>()
                    a = Scan <num_scan_inputs = 1, body = f (float[3] s, float[3] r) => (float[3] q) {{
                        v0 = Add(s, r) one = Constant<value_float = 1.0>() u = ReduceMax<keepdims = 0>(v0)
                        c0 = Greater(u, one) q = {HALVE.format(k=1)} }}> (z, x) }},
                else_branch = e () => (float[3] b) {{
                    zero = Constant<value_int = 0>() b = Gather(x, zero) }}> }}""",
        _in_steps_of_a_way,
        flagged(lambda rng: np.abs(f32(rng, 4, 3)) * 10),
        (Loop,),
    ),
}


@NEEDS_GCC
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(2)
def test_unbounded_loops(name: str) -> None:
    check(CASES[name])


@pytest.mark.long
@pytest.mark.skipif(not available_compilers() or shutil.which("g++") is None, reason="no CUDA compiler, or no g++")
@pytest.mark.parametrize("name", CASES)
def test_unbounded_loops_on_the_emulator(name: str) -> None:
    check_on_the_emulator(CASES[name])


@NEEDS_GCC
def test_a_network_that_is_exported_and_profiled(tmp_path: Path) -> None:
    """Kernels are timed alone, without going back."""
    case, rng = CASES["an input says how many trips"], np.random.default_rng(3)
    graph, _ = from_onnx(model_of(case.text))
    library = relay.build(graph, "c")
    assert library.plan.steps[-1].kernel == ""
    library.export(tmp_path / "network")
    again = relay.load(tmp_path / "network")
    assert again.plan == library.plan
    network = relay.graph_executor.GraphModule(again["default"]())
    names = [v.name for v in graph["main"].params]
    for arrays in nonempty(case.inputs(rng)):
        network.run(**dict(zip(names, arrays, strict=True)))
        np.testing.assert_allclose(outputs(network, 1)[0], case.want(*arrays)[0], rtol=2e-5, atol=1e-5)
    times = network.profile(2)
    assert len(times) == sum(bool(step.kernel) for step in library.plan.steps) and all(s > 0 for _, s in times)
    assert network.benchmark(number=2, repeat=2, min_repeat_ms=1).mean > 0


def test_what_is_refused() -> None:
    stacked = """g (int64 m, float[3] x) => (float[n,3] y) {
        y = Loop (m, ) <body = b (int64 i, bool go) => (bool go2, float[3] t) { go2 = Identity(go) t = Neg(x) }> }"""
    law = "how many trips there are is known only when the model runs, and so is the length of .*; .*--fix m="
    with pytest.raises(relay.GraphError, match=law):
        from_onnx(model_of(stacked))
    growing = """g (int64 m, float[1] x) => (float[n] y) {
        y = Loop (m, , x) <body = b (int64 i, bool go, float[k] s) => (bool go2, float[l] t) {
            go2 = Identity(go) t = Concat<axis = 0>(s, x) }> }"""
    with pytest.raises(relay.GraphError, match="the states of a loop that may end early must keep their types"):
        from_onnx(model_of(growing))


def test_an_unbounded_loop_has_states_alone() -> None:
    x = relay.var("x", (3,), "float32")
    body = relay.Function((x,), relay.Tuple((relay.nn.relu(x),)))
    with pytest.raises(relay.GraphError, match="has states alone, the first a bool of shape"):
        Loop(body, (x,), 4, 0, 1, unbounded=True)


def test_many_trips_that_are_known() -> None:
    """More than are written out: they go on until a count is reached."""
    text = """g (float[2] x) => (float[2] y) <int64 m = {70000}, bool c = {1}> {
        y = Loop (m, c, x) <body = b (int64 i, bool go, float[2] s) => (bool go2, float[2] t) {
            go2 = Identity(go) one = Constant<value_float = 1.0>() t = Add(s, one) }> }"""
    graph, _ = from_onnx(model_of(text))
    network: Any = relay.graph_executor.GraphModule(relay.build(graph, "c")["default"]())
    network.run(x=np.array([0, 0.5], "float32"))
    np.testing.assert_array_equal(outputs(network, 1)[0], np.array([70000, 70000.5], "float32"))


@NEEDS_GCC
def test_loops_of_many_trips_in_each_other_are_written_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner one is known to have too many trips for it after the outer one's first."""
    monkeypatch.setattr(control, "MOST_WRITTEN", 50)
    monkeypatch.setattr(control, "MOST_STEPS", 100)
    text = """g (float[2] x) => (float[2] y) <int64 m = {300}> {
        y = Loop (m, , x) <body = b (int64 i, bool go, float[2] s) => (bool go, float[2] t) {
            t = Loop (m, , s) <body = c (int64 j, bool on, float[2] u) => (bool on, float[2] v) {
                one = Constant<value_float = 1.0>() v = Add(u, one) }> }> }"""
    trips, trip = list[Any](), control._trip
    monkeypatch.setattr(control, "_trip", lambda *given: trips.append(given) or trip(*given))
    graph, _ = from_onnx(model_of(text))
    assert 150 < len(trips) < 200  # 50 of both, and one in each of the outer ones
    network: Any = relay.graph_executor.GraphModule(relay.build(graph, "c")["default"]())
    network.run(x=np.array([0, 0.5], "float32"))
    np.testing.assert_array_equal(outputs(network, 1)[0], np.array([90000, 90000.5], "float32"))
