"""Tiny ONNX models with named extents, as exporters write them; ONNX's own evaluator says what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
WIDTH, HEADS, WORDS, LONGEST = 8, 2, 11, 32


@dataclass
class Builder:
    """Nodes and weights of a graph; a name is given to each result by `add`."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def weight(self, *shape: int) -> str:
        """Random numbers of float32."""
        return self.known((self.rng.standard_normal(shape) * 0.4).astype("float32"))

    def known(self, value: Any) -> str:
        """An array; Python's integers are int64, its floats float32."""
        array = np.asarray(value)
        array = array.astype("float32") if array.dtype == np.float64 else array
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """A node; the name of its output, or several."""
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return names[0] if outputs == 1 else names

    def model(self, inputs: Mapping[str, tuple[int, Any]], *outputs: str) -> ModelProto:
        """The model of inputs (dtype and extents by name) and outputs."""
        given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        weights = [numpy_helper.from_array(a, name) for name, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "tiny", given, made, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@dataclass(frozen=True)
class Network:
    """A model with open extents: their bounds, inputs at some sizes, and the sizes at which it is tried."""

    model: ModelProto
    bounds: Mapping[str, tuple[int, int]]
    inputs: Callable[..., dict[str, Array]]
    points: tuple[tuple[int, ...], ...]

    def expected(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs."""
        return [np.asarray(a) for a in ReferenceEvaluator(self.model).run(None, dict(feeds))]


def _normal(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype("float32")


def mlp() -> Network:
    """Two layers and a softmax, for any batch."""
    b = Builder()
    hidden = b.add("Relu", b.add("Gemm", "x", b.weight(16, 12), b.weight(16), transB=1))
    scores = b.add("Add", b.add("MatMul", hidden, b.weight(16, 4)), b.weight(4))
    model = b.model({"x": (TensorProto.FLOAT, ["batch", 12])}, b.add("Softmax", scores))
    return Network(model, {"batch": (1, 64)}, lambda n: {"x": _normal(n, 12)}, ((1,), (64,), (7,), (33,)))


def _linear(b: Builder, x: str, rows: int, columns: int) -> str:
    return str(b.add("Add", b.add("MatMul", x, b.weight(rows, columns)), b.weight(columns)))


def _norm(b: Builder, x: str) -> str:
    """A layer norm that is spelled out."""
    centred = b.add("Sub", x, b.add("ReduceMean", x, axes=[-1]))
    variance = b.add("ReduceMean", b.add("Pow", centred, b.known(2.0)), axes=[-1])
    normal = b.add("Div", centred, b.add("Sqrt", b.add("Add", variance, b.known(1e-5))))
    return str(b.add("Add", b.add("Mul", normal, b.weight(WIDTH)), b.weight(WIDTH)))


def _shape(b: Builder, x: str, *behind: int) -> str:
    """The shape (batch, length, *behind) as an exporter computes it."""
    shape = b.add("Shape", x)
    parts = [b.add("Unsqueeze", b.add("Gather", shape, b.known(k)), b.known([0])) for k in range(2)]
    return str(b.add("Concat", *parts, *[b.known([n]) for n in behind], axis=0))


def _heads(b: Builder, x: str, order: list[int]) -> str:
    return str(b.add("Transpose", b.add("Reshape", x, _shape(b, x, HEADS, WIDTH // HEADS)), perm=order))


def _attended(b: Builder, q: str, k: str, v: str, masked: Callable[[str], str]) -> str:
    q, k, v = _heads(b, q, [0, 2, 1, 3]), _heads(b, k, [0, 2, 3, 1]), _heads(b, v, [0, 2, 1, 3])
    scores = b.add("Div", b.add("MatMul", q, k), b.known(float(WIDTH // HEADS) ** 0.5))
    found = b.add("Transpose", b.add("MatMul", b.add("Softmax", masked(str(scores)), axis=-1), v), perm=[0, 2, 1, 3])
    return str(b.add("Reshape", found, _shape(b, found, WIDTH)))


def _gelu(b: Builder, x: str) -> str:
    inside = b.add("Add", b.add("Erf", b.add("Div", x, b.known(2.0**0.5))), b.known(1.0))
    return str(b.add("Mul", b.add("Mul", x, inside), b.known(0.5)))


def bert_layer() -> Network:
    """Embeddings of words, a layer of BERT under a mask of bools, and the pooler, for any batch and length."""
    b = Builder()
    x = _norm(b, b.add("Gather", b.weight(WORDS, WIDTH), "words"))
    outside = b.add("Sub", b.known(1.0), b.add("Cast", b.add("Unsqueeze", "mask", b.known([1, 2])), to=1))
    bias = b.add("Mul", outside, b.known(-1e4))
    q, k, v = [_linear(b, x, WIDTH, WIDTH) for _ in range(3)]
    found = _attended(b, q, k, v, lambda scores: str(b.add("Add", scores, bias)))
    x = _norm(b, b.add("Add", _linear(b, found, WIDTH, WIDTH), x))
    x = _norm(b, b.add("Add", _linear(b, _gelu(b, _linear(b, x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH), x))
    pooled = b.add("Tanh", _linear(b, b.add("Gather", x, b.known(0), axis=1), WIDTH, WIDTH))
    named = {"words": (TensorProto.INT64, ["batch", "length"]), "mask": (TensorProto.BOOL, ["batch", "length"])}

    def inputs(n: int, m: int) -> dict[str, Array]:
        rng = np.random.default_rng((n, m))
        mask = rng.integers(0, 4, (n, m)) > 0
        mask[:, 0] = True
        return {"words": rng.integers(0, WORDS, (n, m)), "mask": mask}

    bounds = {"batch": (1, 4), "length": (1, LONGEST)}
    return Network(b.model(named, x, str(pooled)), bounds, inputs, ((1, 1), (4, LONGEST), (2, 7), (3, 17)))


def gpt2_layer() -> Network:
    """Words and positions, a layer of GPT-2 whose mask is cut out of a constant, and scores of words."""
    b = Builder()
    table, shape = b.weight(WORDS, WIDTH), b.add("Shape", "words")
    length = b.add("Gather", shape, b.known(1))
    places = b.add("Range", b.known(0), length, b.known(1))
    flat = b.add("Reshape", "words", b.add("Concat", b.known([-1]), b.add("Unsqueeze", length, b.known([0])), axis=0))
    x = b.add("Add", b.add("Gather", table, flat), b.add("Gather", b.weight(LONGEST, WIDTH), places))
    joined = _linear(b, _norm(b, x), WIDTH, 3 * WIDTH)
    q, k, v = b.add("Split", joined, b.known([WIDTH] * 3), outputs=3, axis=-1)
    triangle = b.known(np.tril(np.ones((1, 1, LONGEST, LONGEST), bool)))
    end = b.add("Unsqueeze", length, b.known([0]))

    def masked(scores: str) -> str:
        rows = b.add("Slice", triangle, b.known([0]), end, b.known([2]), b.known([1]))
        seen = b.add("Slice", rows, b.known([0]), end, b.known([3]), b.known([1]))
        return str(b.add("Where", seen, scores, b.known(float(np.finfo("float32").min))))

    x = b.add("Add", _linear(b, _attended(b, q, k, v, masked), WIDTH, WIDTH), x)
    inner = _linear(b, _norm(b, x), WIDTH, 4 * WIDTH)
    cubic = b.add("Add", inner, b.add("Mul", b.add("Pow", inner, b.known(3.0)), b.known(0.044715)))
    curved = b.add("Add", b.add("Tanh", b.add("Mul", cubic, b.known(0.7978846))), b.known(1.0))
    active = b.add("Mul", b.add("Mul", inner, b.known(0.5)), curved)
    x = b.add("Add", x, _linear(b, active, 4 * WIDTH, WIDTH))
    scores = b.add("MatMul", _norm(b, x), b.add("Transpose", table, perm=[1, 0]))
    model = b.model({"words": (TensorProto.INT64, ["batch", "length"])}, str(scores))

    def inputs(n: int, m: int) -> dict[str, Array]:
        return {"words": np.random.default_rng((n, m)).integers(0, WORDS, (n, m))}

    bounds = {"batch": (1, 3), "length": (1, LONGEST)}
    return Network(model, bounds, inputs, ((1, 1), (3, LONGEST), (1, 5), (2, 19)))


def resnet_block() -> Network:
    """Stem, a residual block and the head of a ResNet, for any batch."""
    b = Builder()

    def conv(x: str, channels: int, filters: int, kernel: int, stride: int = 1) -> str:
        made = b.add("Conv", x, b.weight(filters, channels, kernel, kernel), pads=[kernel // 2] * 4,
                     strides=[stride] * 2, kernel_shape=[kernel] * 2)  # fmt: skip
        spread = b.known(np.abs(b.rng.standard_normal(filters)).astype("float32") + 0.5)
        return str(b.add("BatchNormalization", made, *[b.weight(filters) for _ in range(3)], spread))

    x = b.add("MaxPool", b.add("Relu", conv("x", 3, 4, 3)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inner = conv(b.add("Relu", conv(x, 4, 8, 3, 2)), 8, 8, 3)
    x = b.add("Relu", b.add("Add", inner, conv(x, 4, 8, 1, 2)))
    pooled = b.add("Flatten", b.add("GlobalAveragePool", x))
    scores = b.add("Gemm", pooled, b.weight(5, 8), b.weight(5), transB=1)
    model = b.model({"x": (TensorProto.FLOAT, ["batch", 3, 12, 12])}, scores)
    return Network(model, {"batch": (1, 16)}, lambda n: {"x": _normal(n, 3, 12, 12)}, ((1,), (16,), (5,)))


NETWORKS = {f.__name__: f for f in (mlp, bert_layer, gpt2_layer, resnet_block)}
