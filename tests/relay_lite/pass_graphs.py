"""Small networks for the tests of passes, by hand and at random, and what to compare of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from relay_lite import reference
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from relay_lite.ir.visit import free_vars, post_order
from tests.nonempty import nonempty

Rng = np.random.Generator


@dataclass
class Layers:
    """Layers with drawn weights, in one layout and dtype; float64 makes rounding too small to hide a mistake."""

    rng: Rng
    layout: str = "NHWC"
    dtype: str = "float64"
    negative: bool = True

    def input(self, *shape: int) -> Var:
        return var("data", shape, self.dtype)

    def draw(self, *shape: int) -> Constant:
        return Constant(self.rng.uniform(-1, 1, shape).astype(self.dtype))

    def axis(self, x: Expr) -> int:
        return self.layout.index("C") if len(x.shape) == len(self.layout) else len(x.shape) - 1

    def channels(self, x: Expr) -> int:
        return x.shape[self.axis(x)]

    def conv(self, x: Expr, filters: int, kernel: int = 3, stride: int = 1, depthwise: bool = False) -> Call:
        c = self.channels(x)
        out, each = (c, 1) if depthwise else (filters, c)
        if self.layout == "NCHW":
            layout, shape = "OIHW", (out, each, kernel, kernel)
        elif depthwise:
            layout, shape = "HWOI", (kernel, kernel, out, each)
        else:
            layout, shape = "HWIO", (kernel, kernel, each, out)
        p = kernel // 2
        return call("nn.conv2d", x, self.draw(*shape), strides=(stride, stride), padding=(p, p, p, p), groups=c
                    if depthwise else 1, channels=out, kernel_size=(kernel, kernel), data_layout=self.layout,
                    kernel_layout=layout)  # fmt: skip

    def bn(self, x: Expr, **attrs: Any) -> Expr:
        c = self.channels(x)
        signs = self.rng.choice([-1, 1], c) if self.negative else np.ones(c)
        gamma = Constant((signs * self.rng.uniform(0.5, 2, c)).astype(self.dtype))
        spread = Constant(self.rng.uniform(0.5, 2, c).astype(self.dtype))
        norm = call("nn.batch_norm", x, gamma, self.draw(c), self.draw(c), spread, axis=self.axis(x), **attrs)
        return TupleGetItem(norm, 0)

    def bias(self, x: Expr) -> Call:
        return call("nn.bias_add", x, self.draw(self.channels(x)), axis=self.axis(x))

    def dense(self, x: Expr, units: int) -> Call:
        return call("nn.dense", x, self.draw(units, x.shape[-1]))

    def pool(self, x: Expr) -> Call:
        return call("nn.max_pool2d", x, pool_size=(2, 2), strides=(1, 1), layout=self.layout)

    def tail(self, x: Expr, units: int = 5) -> Call:
        return self.dense(call("nn.batch_flatten", call("nn.global_avg_pool2d", x, layout=self.layout)), units)


def relu(x: Expr) -> Call:
    return call("nn.relu", x)


def function(body: Expr) -> Function:
    return Function(free_vars(body), body)


def ops(graph: Function) -> Counter[str]:
    """How often every operator occurs."""
    return Counter(node.op.name for node in post_order(graph.body) if isinstance(node, Call))


def calls(graph: Function, name: str) -> list[Call]:
    return [node for node in post_order(graph.body) if isinstance(node, Call) and node.op.name == name]


def run(graph: Function, rng: Rng) -> list[np.ndarray[Any, Any]]:
    """The results on drawn inputs."""
    inputs = {v.name: _draw(v, rng) for v in graph.params}
    result = reference.run(graph, inputs)
    return [np.asarray(r) for r in (result if isinstance(result, tuple | list) else (result,))]


def _draw(v: Var, rng: Rng) -> np.ndarray[Any, Any]:
    if v.dtype.startswith("float"):
        return rng.uniform(-1, 1, v.shape).astype(v.dtype)
    return rng.integers(0, 2 if v.dtype == "bool" else 50, v.shape).astype(v.dtype)


def assert_same_meaning(before: Function, after: Function, tolerance: float = 1e-10) -> None:
    """Both give the same on the same inputs; `tolerance` is relative to the largest value of each result."""
    for want, got in nonempty(
        zip(run(before, np.random.default_rng(1)), run(after, np.random.default_rng(1)), strict=True)
    ):
        assert want.shape == got.shape and want.dtype == got.dtype
        assert np.all(np.isfinite(want)), "the test graph itself overflows"
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(float(np.abs(want).max(initial=0)), 1e-3))


def random_network(rng: Rng, size: int, layout: str) -> Function:
    """A network of about `size` layers: chains, branches that share values, sums, scales of many shapes."""
    make = Layers(rng, layout, negative=bool(rng.integers(2)))
    data = make.input(*((2, 6, 5, 3) if layout == "NHWC" else (2, 3, 6, 5)))
    values: list[Expr] = [data]
    for _ in range(size):
        x = values[-1] if rng.random() < 0.7 else values[int(rng.integers(len(values)))]
        values.append(_random_layer(make, rng, x, values))
    outputs = [make.tail(values[-1])] + ([values[int(rng.integers(len(values)))]] if rng.random() < 0.3 else [])
    return function(Tuple(tuple(outputs)) if len(outputs) > 1 else outputs[0])


def _random_layer(make: Layers, rng: Rng, x: Expr, values: list[Expr]) -> Expr:
    c, axis = make.channels(x), make.axis(x)
    vector = [c] + [1] * (3 - axis)
    scales = [make.draw(), make.draw(1), make.draw(*vector), make.draw(*[1] * (4 - len(vector)), *vector),
              Constant(np.abs(make.draw(*vector).value)), make.draw(*x.shape[1:])]  # fmt: skip
    scale = scales[int(rng.integers(len(scales)))]
    alike = [v for v in values if v.shape == x.shape]
    other = alike[int(rng.integers(len(alike)))]
    layers = (
        lambda: make.conv(x, int(rng.integers(1, 5)), int(rng.choice([1, 3]))),
        lambda: make.conv(x, 0, 3, depthwise=True),
        lambda: make.bn(x, scale=bool(rng.integers(2)), center=bool(rng.integers(2))),
        lambda: relu(x),
        lambda: relu(make.bn(x)),
        lambda: call("nn.leaky_relu", x, alpha=0.1),
        lambda: make.bias(x),
        lambda: call("add", x, other),
        lambda: call("subtract", other, x),
        lambda: call(str(rng.choice(["multiply", "add", "subtract"])), x, scale),
        lambda: call(str(rng.choice(["multiply", "add", "subtract"])), scale, x),
        lambda: call("tanh", x),
        lambda: call(
            "divide", x, call("sqrt", call("add", call("multiply", x, x), Constant(np.asarray(0.5, make.dtype))))
        ),
        lambda: call("clip", call("clip", x, a_min=-0.8, a_max=0.7), a_min=-0.5, a_max=0.9),
        lambda: call("transpose", call("transpose", x, axes=(0, 2, 3, 1)), axes=(0, 3, 1, 2)),
        lambda: call("concatenate", Tuple((x, other)), axis=axis),
    )
    return layers[int(rng.integers(len(layers)))]()
