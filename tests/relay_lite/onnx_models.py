"""Small ONNX models of real families, with random weights, and the run of one in onnxruntime.

A `Builder` writes nodes in the order of the calls; the forms of operators that changed over the opsets (axes, Split,
Clip, Softmax ...) are written as an exporter of that opset does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Call
from relay_lite.ir.reference import run
from relay_lite.ir.visit import post_order

IR_VERSIONS = {
    11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11,
}  # fmt: skip
Array = np.ndarray[Any, np.dtype[Any]]


class Builder:
    """Nodes, weights and names of a graph."""

    def __init__(self, opset: int, seed: int = 0) -> None:
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, Array] = {}
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def input(self, shape: Sequence[int], dtype: type = np.float32, high: int = 0, declared: Any = None) -> str:
        """A graph input of random values (integers below `high`), declared with the extents `declared`."""
        name = self.name("input")
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape) if declared is None else declared))
        drawn = self.rng.integers(0, high, shape) if high else self.rng.standard_normal(shape)
        self.feeds[name] = drawn.astype(dtype)
        return name

    def array(self, value: Any, dtype: type | None = None) -> str:
        """An initializer."""
        name = self.name("weight")
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.array(np.array(values), np.int64)

    def weight(self, *shape: int) -> str:
        """Random weights whose products keep the size of the data."""
        fan = max(int(np.prod(shape[1:])), 1)
        return self.array(self.rng.standard_normal(shape) / np.sqrt(fan), np.float32)

    def around(self, center: float, *shape: int) -> str:
        """Random values close to `center`."""
        return self.array(center + 0.2 * self.rng.standard_normal(shape), np.float32)

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        """A node; its output, or a list when there are several."""
        names = [self.name(op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=self.name(op), domain=domain, **attrs))
        return names[0] if outputs == 1 else names

    def with_list(self, op: str, x: str, values: Sequence[int], since: int, attr: str = "axes", **attrs: Any) -> str:
        """A node whose list of integers moved from an attribute to an input at opset `since`."""
        if self.opset < since:
            return str(self.add(op, x, **{attr: list(values)}, **attrs))
        return str(self.add(op, x, self.ints(*values), **attrs))

    def pad(self, x: str, pads: Sequence[int]) -> str:
        return str(self.add("Pad", x, self.ints(*pads)))

    def split_equal(self, x: str, parts: int, axis: int) -> list[str]:
        """Split into parts whose number is that of the outputs, said in words from opset 18 on."""
        count = {"num_outputs": parts} if self.opset >= 18 else {}
        return list(self.add("Split", x, outputs=parts, axis=axis, **count))

    def conv(
        self, x: str, ci: int, co: int, k: int | tuple[int, int], bias: bool = False, group: int = 1, **a: Any
    ) -> str:
        kh, kw = (k, k) if isinstance(k, int) else k
        a.setdefault("pads", [kh // 2, kw // 2, kh // 2, kw // 2])
        inputs = [x, self.weight(co, ci // group, kh, kw)] + ([self.around(0, co)] if bias else [])
        return str(self.add("Conv", *inputs, kernel_shape=[kh, kw], group=group, **a))

    def norm(self, x: str, c: int, epsilon: float = 1e-5) -> str:
        vectors = [self.around(1, c), self.around(0, c), self.around(0, c)]
        variance = self.array(np.abs(1 + 0.2 * self.rng.standard_normal(c)), np.float32)
        return str(self.add("BatchNormalization", x, *vectors, variance, epsilon=epsilon))

    def model(self, *outputs: str, declared: Mapping[str, int] | None = None) -> onnx.ModelProto:
        """The model; outputs are float32 unless `declared` says another ONNX type."""
        kinds = declared or {}
        infos = [helper.make_tensor_value_info(o, kinds.get(o, TensorProto.FLOAT), None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        if any(n.domain for n in self.nodes):
            opsets.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSIONS.get(self.opset, 6))


def onnxruntime_run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """All outputs of a model, as onnxruntime computes them without rewriting the graph, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def compare(model: onnx.ModelProto, feeds: Mapping[str, Array], tol: float = 1e-5, **options: Any) -> IRModule:
    """Import a model, run it by the reference and by onnxruntime, and compare shapes, dtypes and values.

    Floats may differ by `tol` of the largest magnitude; others must be equal.  Returns the imported module.
    """
    options.setdefault("shape", {name: value.shape for name, value in feeds.items()})
    module, params = from_onnx(model, **options)
    want = onnxruntime_run(model, feeds)
    got = run(module, feeds, params)
    results = list(got) if isinstance(got, tuple | list) else [got]
    assert len(results) == len(want)
    for mine, theirs in zip(results, want, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        if mine.dtype.kind == "f":
            finite = np.where(np.isfinite(theirs), theirs, 0)
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=tol * max(np.abs(finite).max(initial=0), 1e-3))
        else:
            np.testing.assert_array_equal(mine, theirs)
    return module


def operators(module: IRModule) -> list[str]:
    """Names of the operators of a graph, in order of evaluation."""
    return [e.op.name for e in post_order(module["main"].body) if isinstance(e, Call)]


# ------------------------------------------------------------------------------------------------ convolutions


def relu6(b: Builder, x: str) -> str:
    if b.opset < 11:
        return str(b.add("Clip", x, min=0.0, max=6.0))
    return str(b.add("Clip", x, b.array(0, np.float32), b.array(6, np.float32)))


def classifier(b: Builder, x: str, c: int, classes: int = 7) -> str:
    flat = b.add("Flatten", b.add("GlobalAveragePool", x))
    return str(b.add("Gemm", flat, b.weight(classes, c), b.around(0, classes), transB=1))


def resnet(b: Builder, shape: Sequence[int] = (2, 3, 33, 29), widths: Sequence[int] = (8, 12), units: int = 1,
           classes: int = 7) -> str:  # fmt: skip
    """A stem and stages of basic units, with stride and a 1x1 shortcut where one begins; batch norms are not folded."""
    c = widths[0]
    x = b.add("Relu", b.norm(b.conv(b.input(shape), 3, c, 7, strides=[2, 2]), c))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for width in widths:
        for unit in range(units):
            stride = 2 if unit == 0 and width != widths[0] else 1
            y = b.add("Relu", b.norm(b.conv(x, c, width, 3, strides=[stride, stride]), width))
            y = b.norm(b.conv(y, width, width, 3), width)
            shortcut = x if stride == 1 else b.norm(b.conv(x, c, width, 1, strides=[stride, stride]), width)
            x, c = b.add("Relu", b.add("Add", y, shortcut)), width
    return classifier(b, x, c, classes)


def resnet18(b: Builder) -> str:
    """ResNet-18 as torchvision has it, on images of 64 x 64."""
    return resnet(b, (1, 3, 64, 64), (64, 128, 256, 512), 2, 1000)


def resnext(b: Builder) -> str:
    """A bottleneck with 4 groups, biases as an exporter leaves them after folding batch norms."""
    x = b.add("Relu", b.conv(b.input((2, 3, 13, 17)), 3, 16, 3, bias=True))
    y = b.add("Relu", b.conv(x, 16, 8, 1, bias=True))
    y = b.add("Relu", b.conv(y, 8, 8, 3, bias=True, group=4, dilations=[1, 1]))
    return classifier(b, b.add("Relu", b.add("Add", b.conv(y, 8, 16, 1, bias=True), x)), 16)


def vgg(b: Builder) -> str:
    """Convolutions, max pools, and a head whose view() is computed from the shape; dropout is written out."""
    x = b.input((3, 3, 16, 20))
    for ci, co in ((3, 6), (6, 8)):
        x = b.add("MaxPool", b.add("Relu", b.conv(x, ci, co, 3, bias=True)), kernel_shape=[2, 2], strides=[2, 2])
    batch = b.add("Gather", b.add("Shape", x), b.array(0, np.int64), axis=0)
    shape = b.add("Concat", b.with_list("Unsqueeze", batch, [0], 13), b.ints(-1), axis=0)
    x = b.add("Reshape", x, shape)
    x = b.add("Relu", b.add("Gemm", x, b.weight(11, 160), b.around(0, 11), transB=1))
    x = b.add("Dropout", x) if b.opset >= 12 else b.add("Dropout", x, ratio=0.5)
    return str(b.add("Gemm", x, b.weight(5, 11), b.around(0, 5), transB=1, alpha=0.5, beta=2.0))


def mobilenet_v2(b: Builder) -> str:
    """Inverted residuals with depthwise convolutions and relu6; the pool is a ReduceMean."""
    x = relu6(b, b.conv(b.input((2, 3, 17, 19)), 3, 8, 3, bias=True, strides=[2, 2]))
    y = relu6(b, b.conv(x, 8, 24, 1, bias=True))
    y = relu6(b, b.conv(y, 24, 24, 3, bias=True, group=24))
    x = b.add("Add", b.conv(y, 24, 8, 1, bias=True), x)
    x = b.with_list("ReduceMean", x, [2, 3], 18, keepdims=0)
    return str(b.add("Gemm", x, b.weight(7, 8), b.around(0, 7), transB=1))


def hard_swish(b: Builder, x: str) -> str:
    """HardSwish, as the formula where the opset has no operator."""
    if b.opset >= 14:
        return str(b.add("HardSwish", x))
    six = b.array(6, np.float32)
    y = b.add("Clip", b.add("Add", x, b.array(3, np.float32)), b.array(0, np.float32), six)
    return str(b.add("Div", b.add("Mul", x, y), six))


def mobilenet_v3(b: Builder) -> str:
    """A block with squeeze and excitation, hard sigmoid and hard swish."""
    x = hard_swish(b, b.conv(b.input((2, 3, 15, 14)), 3, 8, 3, bias=True, strides=[2, 2]))
    y = b.add("Relu", b.conv(x, 8, 8, 5, bias=True, group=8))
    s = b.add("Relu", b.conv(b.add("GlobalAveragePool", y), 8, 4, 1, bias=True))
    s = b.add("HardSigmoid", b.conv(s, 4, 8, 1, bias=True), alpha=1 / 6, beta=0.5)
    return classifier(b, b.add("Add", b.conv(b.add("Mul", s, y), 8, 8, 1, bias=True), x), 8)


def squeezenet(b: Builder) -> str:
    """A fire module between max pools with ceil_mode; softmax at the end."""
    x = b.add("Relu", b.conv(b.input((2, 3, 22, 24)), 3, 8, 3, bias=True, strides=[2, 2], pads=[0, 0, 0, 0]))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    s = b.add("Relu", b.conv(x, 8, 4, 1, bias=True))
    left, right = (b.add("Relu", b.conv(s, 4, 6, k, bias=True)) for k in (1, 3))
    x = b.add("MaxPool", b.add("Concat", left, right, axis=1), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    x = b.add("Relu", b.conv(b.add("Dropout", x), 12, 5, 1, bias=True))
    return str(b.add("Softmax", b.add("Flatten", b.add("GlobalAveragePool", x)), axis=1))


def inception(b: Builder) -> str:
    """transform_input, then a block with 1x7 and 7x1 convolutions and an average pool that counts its pads."""
    image = b.input((2, 3, 15, 13))
    planes = []
    for channel in range(3):
        plane = b.add("Gather", image, b.array(channel, np.int64), axis=1)
        plane = b.with_list("Unsqueeze", plane, [1], 13)
        planes.append(b.add("Add", b.add("Mul", plane, b.array(0.5, np.float32)), b.array(0.1, np.float32)))
    x = b.add("Relu", b.norm(b.conv(b.add("Concat", *planes, axis=1), 3, 8, 3, pads=[0] * 4), 8, 1e-3))
    one = b.conv(x, 8, 4, 1)
    seven = b.conv(b.conv(b.conv(x, 8, 4, 1), 4, 4, (1, 7)), 4, 4, (7, 1))
    pool = b.add("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1)
    x = b.add("Concat", one, seven, b.conv(pool, 8, 4, 1), axis=1)
    return classifier(b, b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2]), 12)


def densenet(b: Builder) -> str:
    """Two dense layers whose batch norms come first, and a transition."""
    x = b.conv(b.input((2, 3, 12, 10)), 3, 6, 3)
    parts, c = [x], 6
    for _ in range(2):
        joined = parts[0] if len(parts) == 1 else b.add("Concat", *parts, axis=1)
        y = b.conv(b.add("Relu", b.norm(joined, c)), c, 8, 1)
        parts.append(b.conv(b.add("Relu", b.norm(y, 8)), 8, 4, 3))
        c += 4
    x = b.conv(b.add("Relu", b.norm(b.add("Concat", *parts, axis=1), c)), c, 7, 1)
    x = b.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return classifier(b, b.add("Relu", b.norm(x, 7)), 7)


def unet(b: Builder) -> str:
    """Down by strides, up by Resize in three ways and by ConvTranspose, with crops, pads and joins."""
    x = b.add("LeakyRelu", b.conv(b.input((2, 3, 16, 12)), 3, 6, 3, bias=True), alpha=0.1)
    y = b.add("PRelu", b.conv(x, 6, 8, 3, strides=[2, 2]), b.around(0.2, 8, 1, 1))
    z = b.add("Elu", b.conv(y, 8, 8, 3, strides=[2, 2], dilations=[1, 1]))
    roi = "" if b.opset >= 13 else b.array([], np.float32)
    scales = b.array([1, 1, 2, 2], np.float32)
    up = b.add(
        "Resize", z, roi, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    y = b.add("Concat", b.conv(up, 8, 4, 3), y, axis=1)
    w = b.weight(12, 5, 3, 3)
    x2 = b.add("ConvTranspose", y, w, b.around(0, 5), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
               output_padding=[1, 1])  # fmt: skip
    sizes = b.add("Concat", b.ints(2, 5), b.ints(19, 15), axis=0)
    x3 = b.add("Resize", x2, roi, roi, sizes, mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
    x3 = b.add("Slice", x3, b.ints(1, -13), b.ints(17, -1), b.ints(2, -1), b.ints(1, 1))
    x = b.add("Concat", x, x3, b.pad(x2, [0, 0, 1, 0, 0, 0, -1, 0]), axis=1)
    return str(b.add("DepthToSpace", b.conv(x, 16, 8, 3), blocksize=2, mode="CRD"))


# ------------------------------------------------------------------------------------------------ transformers


def layer_norm(b: Builder, x: str, c: int) -> str:
    """LayerNormalization, written out where the opset has no operator."""
    if b.opset >= 17:
        return str(b.add("LayerNormalization", x, b.around(1, c), b.around(0, c), axis=-1, epsilon=1e-6))
    centred = b.add("Sub", x, b.with_list("ReduceMean", x, [-1], 18))
    square = b.add("Pow", centred, b.array(2, np.float32))
    variance = b.with_list("ReduceMean", square, [-1], 18)
    scale = b.add("Sqrt", b.add("Add", variance, b.array(1e-6, np.float32)))
    return str(b.add("Add", b.add("Mul", b.add("Div", centred, scale), b.around(1, c)), b.around(0, c)))


def gelu(b: Builder, x: str) -> str:
    """Gelu with erf, as the operator where the opset has it."""
    if b.opset >= 20:
        return str(b.add("Gelu", x))
    y = b.add("Erf", b.add("Div", x, b.array(np.sqrt(2), np.float32)))
    y = b.add("Mul", x, b.add("Add", y, b.array(1, np.float32)))
    return str(b.add("Mul", y, b.array(0.5, np.float32)))


def attention(b: Builder, x: str, c: int, heads: int, length: int, mask: str | None) -> str:
    """Attention whose shapes are computed from the data, as exporters of a view() write it."""
    batch = b.add("Gather", b.add("Shape", x), b.array(0, np.int64), axis=0)
    batch = b.with_list("Unsqueeze", batch, [0], 13)
    shape = b.add("Concat", batch, b.ints(length), b.ints(heads), b.ints(c // heads), axis=0)

    def split(perm: list[int]) -> str:
        return str(b.add("Transpose", b.add("Reshape", dense(b, x, c, c), shape), perm=perm))

    q, k, v = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
    scores = b.add("Div", b.add("MatMul", q, k), b.array(np.sqrt(c // heads), np.float32))
    scores = scores if mask is None else b.add("Add", scores, mask)
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1 if b.opset >= 13 else 3), v)
    joined = b.add("Reshape", b.add("Transpose", mixed, perm=[0, 2, 1, 3]), b.ints(0, 0, c))
    return dense(b, joined, c, c)


def dense(b: Builder, x: str, ci: int, co: int) -> str:
    """A MatMul with a matrix on the right, and a bias."""
    return str(b.add("Add", b.add("MatMul", x, b.array(b.rng.standard_normal((ci, co)) / np.sqrt(ci), np.float32)),
                     b.around(0, co)))  # fmt: skip


def bert(b: Builder) -> str:
    """Embeddings, one post-norm layer with a mask of the input, and the pooler."""
    n, length, c, heads = 2, 5, 12, 3
    ids = b.input((n, length), np.int64, high=11, declared=["batch", "sequence"])
    mask = b.input((n, length), np.int64, high=2, declared=["batch", "sequence"])
    kinds = b.add("ConstantOfShape", b.add("Shape", ids), value=helper.make_tensor("v", TensorProto.INT64, [1], [1]))
    size = b.add("Gather", b.add("Shape", ids), b.array(1, np.int64), axis=0)
    ends = [b.with_list("Unsqueeze", size, [0], 13)]
    places = b.add("Slice", b.array(np.arange(16)[None], np.int64), b.ints(0), *ends, b.ints(1))
    embedded = b.add("Add", b.add("Gather", b.weight(11, c), ids), b.add("Gather", b.weight(2, c), kinds))
    x = layer_norm(b, b.add("Add", embedded, b.add("Gather", b.weight(16, c), places)), c)
    wide = b.with_list("Unsqueeze", b.add("Cast", mask, to=TensorProto.FLOAT), [1, 2], 13)
    closed = b.add("Mul", b.add("Sub", b.array(1, np.float32), wide), b.array(-10000, np.float32))
    x = layer_norm(b, b.add("Add", attention(b, x, c, heads, length, closed), x), c)
    x = layer_norm(b, b.add("Add", dense(b, gelu(b, dense(b, x, c, 20)), 20, c), x), c)
    first = b.add("Gather", x, b.array(0, np.int64), axis=1)
    return str(b.add("Tanh", b.add("Gemm", first, b.weight(c, c), b.around(0, c), transB=1)))


def vit(b: Builder) -> str:
    """Patches by a convolution, a class token by Expand, one pre-norm layer with a joint q, k, v, a causal mask."""
    n, c, heads, length = 2, 12, 2, 13
    x = b.conv(b.input((n, 3, 12, 16)), 3, c, 4, bias=True, strides=[4, 4], pads=[0] * 4)
    x = b.add("Transpose", b.add("Reshape", x, b.ints(0, c, -1)), perm=[0, 2, 1])
    token = b.add("Expand", b.weight(1, 1, c), b.ints(n, 1, 1))
    x = b.add("Add", b.add("Concat", token, x, axis=1), b.around(0, 1, length, c))
    qkv = b.add("Reshape", dense(b, layer_norm(b, x, c), c, 3 * c), b.ints(n, length, 3, heads, c // heads))
    parts = b.split_equal(b.add("Transpose", qkv, perm=[2, 0, 3, 1, 4]), 3, axis=0)
    q, k, v = (b.with_list("Squeeze", part, [0], 13) for part in parts)
    scores = b.add("MatMul", b.add("Mul", q, b.array((c // heads) ** -0.5, np.float32)),
                   b.add("Transpose", k, perm=[0, 1, 3, 2]))  # fmt: skip
    line = b.add("Range", b.array(0, np.int64), b.array(length, np.int64), b.array(1, np.int64))
    column = b.with_list("Unsqueeze", line, [1], 13)
    hidden = b.add("Less", column, line)
    scores = b.add("Where", hidden, b.array(-1e9, np.float32), scores)
    mixed = b.add("Transpose", b.add("MatMul", b.add("Softmax", scores, axis=-1 if b.opset >= 13 else 3), v),
                  perm=[0, 2, 1, 3])  # fmt: skip
    x = b.add("Add", x, dense(b, b.add("Reshape", mixed, b.ints(n, -1, c)), c, c))
    x = b.add("Add", x, dense(b, gelu(b, dense(b, layer_norm(b, x, c), c, 20)), 20, c))
    return str(b.add("LogSoftmax", b.add("Gather", layer_norm(b, x, c), b.array(0, np.int64), axis=1), axis=1))


FAMILIES: dict[str, Callable[[Builder], str]] = {
    f.__name__: f
    for f in (resnet, resnext, vgg, mobilenet_v2, mobilenet_v3, squeezenet, inception, densenet, unet, bert, vit)
}
