"""Random models of If, Loop and Scan inside of each other, against an interpreter of their nodes, and onnxruntime."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import relay_lite as relay
from relay_lite.frontend import from_onnx
from relay_lite.ir.reference import run as run_graph
from relay_lite.transform.select_branches import SelectBranches
from tests.amount import some
from tests.nonempty import nonempty

try:
    import onnxruntime
except ImportError:  # then by the interpreter only
    onnxruntime = None

Array = np.ndarray[Any, np.dtype[Any]]
SHAPE, STEPS = (2, 3), 5
SEEDS = range(some(80, 8))


# ------------------------------------------------------------------------------------------------------- random models


@dataclass
class Draw:
    """Draws graphs; every name is given once."""

    rng: np.random.Generator
    names: int = 0
    weights: list[Any] = field(default_factory=list)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def constant(self, value: Any, dtype: str) -> str:
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), self.name()))
        return str(self.weights[-1].name)

    def pick(self, values: Sequence[str]) -> str:
        return values[int(self.rng.integers(len(values)))]

    def nodes(self, values: Sequence[str], depth: int, most: int = 3) -> tuple[list[Any], list[str]]:
        """Nodes, and the names of all tensors of `SHAPE` after them."""
        made, known = list[Any](), list(values)
        for _ in range(int(self.rng.integers(1, most + 1))):
            kind = self.pick(["If", "Loop", "Scan"]) if depth and self.rng.random() < 0.6 else "plain"
            one, names = getattr(self, kind.lower())(known, depth - 1)
            made, known = [*made, *one], [*known, *names]
        return made, known

    def plain(self, values: Sequence[str], depth: int) -> tuple[list[Any], list[str]]:
        out, inner = self.name(), self.name()
        op = self.pick(["Add", "Mul", "Sub", "Max", "MatMul", "Neg", "Tanh"])
        factor = self.constant(self.rng.standard_normal((3, 3)), "float32") if op == "MatMul" else self.pick(values)
        given = [self.pick(values)] if op in ("Neg", "Tanh") else [self.pick(values), factor]
        return [helper.make_node(op, given, [inner]), helper.make_node("Tanh", [inner], [out])], [out]

    def test(self, values: Sequence[str]) -> tuple[list[Any], str]:
        total, out = self.name(), self.name()
        limit = self.constant(self.rng.uniform(-1, 1), "float32")
        return [helper.make_node("ReduceSum", [self.pick(values)], [total], keepdims=0),
                helper.make_node("Greater", [total, limit], [out])], out  # fmt: skip

    def body(self, kind: str, inputs: Sequence[Any], outputs: Sequence[tuple[str, int]], nodes: Sequence[Any]) -> Any:
        shapes = {TensorProto.FLOAT: SHAPE, TensorProto.BOOL: (), TensorProto.INT64: ()}
        ends = [helper.make_tensor_value_info(n, t, shapes[t]) for n, t in outputs]
        return helper.make_graph(nodes, kind, inputs, ends)

    def results(self, values: Sequence[str], count: int) -> tuple[list[Any], list[tuple[str, int]]]:
        """Names of their own for some of the tensors, new ones or from outside."""
        names = [self.name() for _ in range(count)]
        chosen = [values[-1 - int(self.rng.integers(min(3, len(values))))] for _ in names]
        nodes = [helper.make_node("Identity", [c], [n]) for c, n in zip(chosen, names, strict=True)]
        return nodes, [(n, TensorProto.FLOAT) for n in names]

    def if_(self, values: Sequence[str], depth: int) -> tuple[list[Any], list[str]]:
        before, flag = self.test(values)
        count, ways = int(self.rng.integers(1, 3)), []
        for _ in range(2):
            nodes, known = self.nodes(values, depth)
            last, outs = self.results(known, count)
            ways.append(self.body("way", [], outs, [*nodes, *last]))
        outs = [self.name() for _ in range(count)]
        return [*before, helper.make_node("If", [flag], outs, then_branch=ways[0], else_branch=ways[1])], outs

    def loop(self, values: Sequence[str], depth: int) -> tuple[list[Any], list[str]]:
        """Of a count that is known, or the smaller one of `n` and a number; its condition stays, or is computed."""
        ends, open_count = bool(self.rng.random() < 0.4), bool(self.rng.random() < 0.4)
        most, trips = self.constant(int(self.rng.integers(1, 6)), "int64"), self.name()
        i, go, on = (self.name() for _ in range(3))
        states, count = [self.name() for _ in range(int(self.rng.integers(1, 3)))], 0 if ends or open_count else 1
        nodes, known = self.nodes([*values, *states], depth)
        flag = [helper.make_node("Identity", [go], [on])]
        if ends:
            tests, verdict = self.test(known)
            flag = [*tests, helper.make_node("Identity", [verdict], [on])]
        last, outs = self.results(known, len(states) + count)
        inputs = [helper.make_tensor_value_info(i, TensorProto.INT64, []),
                  helper.make_tensor_value_info(go, TensorProto.BOOL, []),
                  *[helper.make_tensor_value_info(s, TensorProto.FLOAT, SHAPE) for s in states]]  # fmt: skip
        body = self.body("body", inputs, [(on, TensorProto.BOOL), *outs], [*nodes, *flag, *last])
        before = [helper.make_node("Min", ["n", most] if open_count else [most], [trips])]
        made = [self.name() for _ in outs]
        loop = helper.make_node("Loop", [trips, self.constant(True, "bool"), *[self.pick(values) for _ in states]],
                                made, body=body)  # fmt: skip
        behind, shown = self.summed(made[len(states) :])
        return [*before, loop, *behind], [*made[: len(states)], *shown]

    def scan(self, values: Sequence[str], depth: int) -> tuple[list[Any], list[str]]:
        states, slice_ = [self.name() for _ in range(int(self.rng.integers(1, 3)))], self.name()
        nodes, known = self.nodes([*values, slice_, *states], depth)
        last, outs = self.results(known, len(states) + 1)
        inputs = [helper.make_tensor_value_info(s, TensorProto.FLOAT, SHAPE) for s in (*states, slice_)]
        body, made = self.body("body", inputs, outs, [*nodes, *last]), [self.name() for _ in outs]
        scan = helper.make_node(
            "Scan", [*[self.pick(values) for _ in states], "x"], made, body=body, num_scan_inputs=1,
            scan_input_directions=[int(self.rng.integers(2))], scan_output_directions=[int(self.rng.integers(2))],
        )  # fmt: skip
        behind, shown = self.summed(made[len(states) :])
        return [scan, *behind], [*made[: len(states)], *shown]

    def summed(self, stacked: Sequence[str]) -> tuple[list[Any], list[str]]:
        """Tensors of `SHAPE` of such as have a row a step: sums in which rows count as much as their number says."""
        made, out = list[Any](), list[str]()
        for name in stacked:
            total, low = self.name(), self.name()
            made += [helper.make_node("CumSum", [name, self.constant(0, "int64")], [total]),
                     helper.make_node("ReduceMean", [total], [low], axes=[0], keepdims=0)]  # fmt: skip
            out.append(low)
        return made, out


def random_model(seed: int) -> Any:
    draw = Draw(np.random.default_rng([53, seed]))
    setattr(draw, "if", draw.if_)
    nodes, known = draw.nodes(["a", "b"], 2, 4)
    floats = [("a", SHAPE), ("b", SHAPE), ("x", (STEPS, *SHAPE))]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in floats]
    inputs.append(helper.make_tensor_value_info("n", TensorProto.INT64, []))
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in dict.fromkeys(known[-3:])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, draw.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# ------------------------------------------------------------------------------------------------------- their meaning


def interpret(graph: Any, env: Mapping[str, Array]) -> list[Array]:
    """The outputs of a graph whose names are those of `env`, and its own."""
    known = {**env, **{w.name: numpy_helper.to_array(w) for w in graph.initializer}}
    for node in graph.node:
        known.update(zip(node.output, _node(node, [known[n] for n in node.input], known), strict=True))
    return [known[o.name] for o in graph.output]


def _node(node: Any, args: Sequence[Array], known: Mapping[str, Array]) -> Sequence[Array]:
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    match node.op_type:
        case "If":
            return interpret(attrs["then_branch"] if args[0] else attrs["else_branch"], known)
        case "Loop":
            return _loop(attrs["body"], int(args[0]), list(args[2:]), known)
        case "Scan":
            return _scan(attrs, list(args), known)
        case "MatMul":
            return [args[0] @ args[1]]
        case "ReduceSum":
            return [args[0].sum()]
        case "ReduceMean":
            return [args[0].mean(0)]
        case "CumSum":
            return [np.cumsum(args[0], 0)]
        case "Min":
            return [min(args)]
    plain = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Max": np.maximum, "Neg": np.negative,
             "Tanh": np.tanh, "Greater": np.greater, "Identity": np.copy}  # fmt: skip
    return [plain[node.op_type](*args)]  # type: ignore[operator]


def _loop(body: Any, trips: int, states: list[Array], known: Mapping[str, Array]) -> list[Array]:
    going, step, rows = True, 0, list[list[Array]]()
    while going and step < trips:
        given = [np.array(step), np.array(True), *states]
        made = interpret(body, {**known, **dict(zip([i.name for i in body.input], given, strict=True))})
        going, states, step = bool(made[0]), made[1 : 1 + len(states)], step + 1
        rows.append(made[1 + len(states) :])
    return [*states, *[np.stack(column) for column in zip(*rows, strict=True)]]


def _scan(attrs: Mapping[str, Any], args: list[Array], known: Mapping[str, Array]) -> list[Array]:
    body, states, x = attrs["body"], args[:-1], args[-1]
    rows = []
    for row in x[::-1] if attrs["scan_input_directions"][0] else x:
        named = dict(zip([i.name for i in body.input], [*states, row], strict=True))
        made = interpret(body, {**known, **named})
        states, rows = made[: len(states)], [*rows, made[-1]]
    return [*states, np.stack(rows[::-1] if attrs["scan_output_directions"][0] else rows)]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.one_in(2)
def test_random_control_flow(seed: int) -> None:
    """By the graph, with all branches selected, and compiled; for several trips and values, which take other ways."""
    model, rng = random_model(seed), np.random.default_rng(seed)
    graph, _ = from_onnx(model)
    selected = SelectBranches(everywhere=True)(graph["main"])
    network = relay.graph_executor.GraphModule(relay.build(graph, "c")["default"]())
    for trips in (0, 2, 100):
        feeds: dict[str, Any] = {n: rng.standard_normal(SHAPE).astype("float32") for n in "ab"}
        feeds |= {"x": rng.standard_normal((STEPS, *SHAPE)).astype("float32"), "n": np.array(trips)}
        want = interpret(model.graph, feeds)
        network.run(**feeds)
        ways = {"graph": run_graph(graph, feeds), "selected": run_graph(selected, feeds),
                "c": [network.get_output(k).numpy() for k in range(len(want))]}  # fmt: skip
        if onnxruntime is not None:
            ways["onnxruntime"] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        for who, found in ways.items():
            for a, b in nonempty(zip(found if isinstance(found, list | tuple) else [found], want, strict=True)):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5, err_msg=f"{who}, {trips} trips")
