"""Graphs with everything that layouts flow through, and how to look at the layouts of a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call, Expr, Function, Tuple, TupleGetItem, const
from relay_lite.ir.visit import post_order
from tests.relay_lite.pass_graphs import Layers, Rng, function, relu

Layer = Callable[[Layers, Rng, Expr], Expr]
LAYOUTS = {"NCHW": (2, 3, 8, 6), "NHWC": (2, 8, 6, 3)}


def transforms(graph: Function) -> list[tuple[str, str]]:
    """The layout transforms of a graph, from which layout to which, sorted."""
    found = [n for n in post_order(graph.body) if isinstance(n, Call) and n.op.name == "layout_transform"]
    return sorted((n.attrs["src_layout"], n.attrs["dst_layout"]) for n in found)


def chain(layout: str, layers: list[Layer], rng: Rng) -> Function:
    """A convolution, `layers` one after the other, and a convolution."""
    make = Layers(rng, layout)
    x: Expr = make.conv(make.input(*LAYOUTS[layout]), 4)
    for layer in layers:
        x = layer(make, rng, x)
    return function(make.conv(x, 5) if len(x.shape) == 4 else x)


def _axis(rng: Rng, rank: int) -> int:
    """An axis, from the front or from the back."""
    return int(rng.integers(-rank, rank))


def _operand(make: Layers, rng: Rng, x: Expr) -> Expr:
    """A constant that broadcasts against `x`, of any rank up to its own."""
    rank = int(rng.integers(0, len(x.shape) + 1))
    shape = x.shape[len(x.shape) - rank :]
    return make.draw(*[1 if rng.random() < 0.4 else d for d in shape])


def broadcast(make: Layers, rng: Rng, x: Expr) -> Expr:
    other = _operand(make, rng, x)
    return call(str(rng.choice(["add", "multiply", "maximum", "subtract"])), *([x, other][:: rng.choice([-1, 1])]))


def twice(make: Layers, rng: Rng, x: Expr) -> Expr:
    return call("add", relu(x), x)


def where(make: Layers, rng: Rng, x: Expr) -> Expr:
    """Softplus in pieces: operands of any rank, in any order."""
    other = _operand(make, rng, x)
    return call("where", call("greater", x, _operand(make, rng, x)), *([x, other][:: rng.choice([-1, 1])]))


def pointwise(make: Layers, rng: Rng, x: Expr) -> Expr:
    return call(str(rng.choice(["tanh", "sigmoid", "abs", "negative", "nn.relu"])), x)


def bias(make: Layers, rng: Rng, x: Expr) -> Expr:
    axis = _axis(rng, 4)
    return call(str(rng.choice(["nn.bias_add", "nn.prelu"])), x, make.draw(x.shape[axis]), axis=axis)


def norm(make: Layers, rng: Rng, x: Expr) -> Expr:
    return make.bn(x)


def quantized(make: Layers, rng: Rng, x: Expr) -> Expr:
    """Bytes and back, by one scale or by one an index of an axis."""
    axis = _axis(rng, 4)
    shape = (x.shape[axis],) if rng.random() < 0.5 else ()
    scale = const(rng.uniform(0.1, 1, shape).astype(x.dtype))
    zero = const(rng.uniform(-9, 9, shape).astype("int8"))
    return call("qnn.dequantize", call("qnn.quantize", x, scale, zero, axis=axis), scale, zero, axis=axis)


def pool(make: Layers, rng: Rng, x: Expr) -> Expr:
    return call("nn.avg_pool2d", x, pool_size=(2, 1), padding=(0, 0, 1, 0), layout=make.layout)


def image(make: Layers, rng: Rng, x: Expr) -> Expr:
    if rng.random() < 0.3:
        layout = make.layout
        deep = call("nn.space_to_depth", call("nn.upsampling", x, scale_h=2, scale_w=2, layout=layout), block_size=2,
                    layout=layout)  # fmt: skip
        return call("nn.depth_to_space", deep, block_size=2, layout=layout)
    if rng.random() < 0.3:
        return call("nn.adaptive_avg_pool2d", x, output_size=(3, 2), layout=make.layout)
    return call("image.resize2d", x, size=(5, 7), layout=make.layout)


def concatenate(make: Layers, rng: Rng, x: Expr) -> Expr:
    return call("concatenate", Tuple((x, relu(x), x)), axis=_axis(rng, 4))


def split(make: Layers, rng: Rng, x: Expr) -> Expr:
    axis = make.axis(x)
    if x.shape[axis] < 3:
        return relu(x)
    parts = call("split", x, indices_or_sections=(1, x.shape[axis] - 1), axis=axis - 4)
    return call("concatenate", Tuple((TupleGetItem(parts, 2), TupleGetItem(parts, 0))), axis=axis)


def cut(make: Layers, rng: Rng, x: Expr) -> Expr:
    if rng.random() < 0.5:
        return call("strided_slice", x, begin=(0, 1), end=(2, x.shape[1]), strides=(1, 2))
    return call("strided_slice", x, begin=(1,), end=(x.shape[-1],), axes=(-1,))


def reduce(make: Layers, rng: Rng, x: Expr) -> Expr:
    axes = tuple(sorted(rng.choice(4, int(rng.integers(1, 3)), replace=False).tolist()))
    name = str(rng.choice(["sum", "mean", "max", "argmax"]))
    if name == "argmax":
        return call("cast", call(name, x, axis=axes, keepdims=True), dtype="float64")
    return call(name, x, axis=axes, keepdims=True, exclude=bool(rng.integers(2)))


def drop(make: Layers, rng: Rng, x: Expr) -> Expr:
    """A reduction that loses axes; another operator, and the axes come back."""
    axis = _axis(rng, 4)
    less = call("tanh", call("sum", x, axis=(axis,)))
    return call("multiply", x, call("expand_dims", less, axis=axis))


def squeeze(make: Layers, rng: Rng, x: Expr) -> Expr:
    one = call("mean", x, axis=(make.layout.index("H"),), keepdims=True)
    axis = None if rng.random() < 0.5 and 1 not in x.shape else make.layout.index("H") - 4
    flat = relu(call("squeeze", one, axis=axis))
    return call("add", x, call("expand_dims", flat, axis=make.layout.index("H")))


def pad(make: Layers, rng: Rng, x: Expr) -> Expr:
    return call("nn.pad", x, pad_width=((0, 0), (1, 0), (0, 2), (1, 1)))


def transpose(make: Layers, rng: Rng, x: Expr) -> Expr:
    there = rng.permutation(4)
    middle = relu(call("transpose", x, axes=tuple(there.tolist())))
    return call("transpose", middle, axes=tuple(np.argsort(there).tolist()))


def reshape(make: Layers, rng: Rng, x: Expr) -> Expr:
    return call("reshape", relu(call("reshape", x, newshape=(-1, x.shape[-1]))), newshape=x.shape)


LAYERS: dict[str, Layer] = {
    f.__name__: f
    for f in (
        broadcast, where, twice, pointwise, bias, norm, quantized, pool, image, concatenate, split, cut, reduce, drop,
        squeeze, pad, transpose, reshape,
    )
}  # fmt: skip
