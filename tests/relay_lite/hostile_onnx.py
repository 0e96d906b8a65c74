"""Models that nobody honest would write: good ones with a few things changed, and absurd sizes in every operator.

`python -m tests.relay_lite.hostile_onnx FIRST COUNT` imports models by seed, within limits of memory and time, and
prints a line for each that gave neither a graph nor a GraphError of one sentence.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx.body import EXPANDED
from relay_lite.frontend.onnx.table import TABLE
from relay_lite.ir.visit import post_order
from tests.relay_lite.onnx_models import FAMILIES, Builder
from tests.relay_lite.promised import limit_process, verdict

SIZES = (0, -1, 1, 2, 3, 1 << 10, 1 << 16, 46341, (1 << 31) - 1, 1 << 31, 1 << 33, 1 << 40, 1 << 62, (1 << 63) - 1,
         -(1 << 63), -(1 << 31), -7)  # fmt: skip
REALS = (0.0, -1.0, 1e-45, 1e9, 1e30, -1e30, float("inf"), float("-inf"), float("nan"), 0.3)
BIG, HUGE, MOST = 1 << 31, 1 << 62, (1 << 63) - 1
Change = Callable[[random.Random, onnx.ModelProto], None]

# ---------------------------------------------------------------------------------------------- absurd sizes


def one(op: str, *inputs: Any, opset: int = 18, **attrs: Any) -> onnx.ModelProto:
    """A model of one node: inputs are shapes (random data, or declared without any), arrays (weights), or None."""
    b = Builder(opset)
    names = []
    for given in inputs:
        if given is None:
            names.append("")
        elif isinstance(given, np.ndarray):
            names.append(b.array(given))
        else:
            names.append(b.name("input"))
            b.inputs.append(helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, list(given)))
    return b.model(b.add(op, *names, **attrs))


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def reals(*values: float) -> Any:
    return np.array(values, np.float32)


X = (1, 2, 6, 5)
W = np.ones((2, 2, 3, 3), np.float32)
D = np.ones(X, np.float32)
ABSURD: dict[str, Callable[[], onnx.ModelProto]] = {
    "input": lambda: one("Relu", (BIG, BIG, BIG, BIG)),
    "input axes": lambda: one("Relu", (1,) * 100),
    "input of 2**32 elements": lambda: one("Relu", (1 << 16, 1 << 16)),
    "ConstantOfShape": lambda: one("ConstantOfShape", ints(BIG, BIG)),
    "ConstantOfShape 2**124": lambda: one("ConstantOfShape", ints(HUGE, HUGE)),
    "ConstantOfShape some": lambda: one("ConstantOfShape", ints(1 << 20, 1 << 9)),
    "ConstantOfShape 2**64": lambda: one("ConstantOfShape", ints(1 << 32, 1 << 32)),
    "ConstantOfShape none": lambda: one("ConstantOfShape", ints(0, MOST, MOST)),
    "ConstantOfShape axes": lambda: one("ConstantOfShape", np.ones(5000, np.int64)),
    "Range": lambda: one("Range", np.array(0), np.array(HUGE), np.array(1)),
    "Range some": lambda: one("Range", np.array(0), np.array(1 << 28), np.array(1)),
    "Range real": lambda: one("Range", *[np.array(v, np.float32) for v in (0, 1e30, 1e-30)]),
    "Range infinite": lambda: one("Range", *[np.array(v, np.float32) for v in (0, np.inf, 1)]),
    "Range nan": lambda: one("Range", *[np.array(v, np.float32) for v in (0, 1, np.nan)]),
    "Resize sizes": lambda: one("Resize", X, None, None, ints(1, 2, BIG, BIG)),
    "Resize one axis": lambda: one("Resize", X, None, None, ints(1, 2, 6, 1 << 28), mode="linear"),
    "Resize one": lambda: one("Resize", (1, 1, 1, 1), None, None, ints(1, 1, 1 << 28, 1), mode="cubic"),
    "Resize source": lambda: one("Resize", (1, 1, 1 << 28, 1), None, None, ints(1, 1, 7, 1), mode="linear"),
    "Resize source and result": lambda: one("Resize", (1, 1, 1 << 16, 1), None, None, ints(1, 1, 1 << 17, 1)),
    "Resize scales": lambda: one("Resize", X, None, reals(1, 1, 1e30, 1e30)),
    "Resize scales nan": lambda: one("Resize", X, None, reals(1, 1, np.nan, 1)),
    "Resize scales inf": lambda: one("Resize", X, None, reals(1, 1, np.inf, 1)),
    "Upsample": lambda: one("Upsample", X, reals(1, 1, 1e9, 1e9), opset=9),
    "Upsample attribute": lambda: one("Upsample", X, opset=7, scales=[1.0, 1.0, 1e9, 1e30]),
    "OneHot": lambda: one("OneHot", np.array([1]), np.array(HUGE), np.array([0.0, 1.0])),
    "OneHot some": lambda: one("OneHot", np.zeros(1 << 12, np.int64), np.array(1 << 18), np.array([0.0, 1.0])),
    "OneHot depth nan": lambda: one("OneHot", np.array([1]), np.array(np.nan), np.array([0.0, 1.0])),
    "Conv pads": lambda: one("Conv", X, W, pads=[BIG] * 4),
    "Conv pads and strides": lambda: one("Conv", X, W, pads=[1 << 20] * 4, strides=[1 << 20] * 2),
    "Conv pads known": lambda: one("Conv", D, W, pads=[1 << 20] * 4, strides=[1 << 20] * 2),
    "Conv dilations": lambda: one("Conv", X, W, pads=[1 << 30] * 4, dilations=[1 << 30] * 2),
    "Conv list": lambda: one("Conv", X, W, pads=[1] * 100000),
    "ConvTranspose strides": lambda: one("ConvTranspose", X, W, strides=[BIG, BIG]),
    "ConvTranspose dilations": lambda: one("ConvTranspose", X, W, dilations=[BIG, BIG]),
    "ConvTranspose output": lambda: one("ConvTranspose", X, W, output_shape=[BIG, BIG], strides=[BIG, BIG]),
    "MaxPool pads": lambda: one("MaxPool", X, kernel_shape=[3, 3], pads=[HUGE] * 4),
    "MaxPool pads known": lambda: one("MaxPool", D, kernel_shape=[3, 3], pads=[1 << 20] * 4, strides=[1 << 20] * 2),
    "MaxPool kernel known": lambda: one("MaxPool", D, kernel_shape=[1 << 20] * 2, pads=[1 << 20] * 4),
    "AveragePool ceil": lambda: one("AveragePool", X, kernel_shape=[3, 3], strides=[HUGE, HUGE], ceil_mode=1),
    "AveragePool include": lambda: one("AveragePool", X, kernel_shape=[3, 3], strides=[2, 2], pads=[BIG] * 4,
                                       ceil_mode=1, count_include_pad=1),
    "Pad": lambda: one("Pad", X, ints(*[BIG] * 8)),
    "Pad known": lambda: one("Pad", D, ints(*[1 << 10] * 8)),
    "Pad wrap": lambda: one("Pad", X, ints(0, 0, 0, HUGE, 0, 0, 0, 0), mode="wrap", opset=19),
    "Pad reflect": lambda: one("Pad", X, ints(0, 0, 0, 1 << 28, 0, 0, 0, 0), mode="reflect"),
    "Pad overflow": lambda: one("Pad", X, ints(*[MOST] * 8), mode="edge"),
    "Pad negative": lambda: one("Pad", X, ints(*[-MOST] * 8)),
    "Expand": lambda: one("Expand", (1, 1), ints(BIG, BIG)),
    "Expand known": lambda: one("Expand", np.ones((1, 1)), ints(1 << 16, 1 << 15)),
    "Expand negative": lambda: one("Expand", (1, 1), ints(-1, -5)),
    "Expand axes": lambda: one("Expand", (1, 1), np.ones(200, np.int64)),
    "Tile": lambda: one("Tile", (1, 1), ints(BIG, BIG)),
    "Tile known": lambda: one("Tile", np.ones((1, 1)), ints(1 << 16, 1 << 16)),
    "Tile negative": lambda: one("Tile", (1, 1), ints(-1, 1)),
    "EyeLike": lambda: one("EyeLike", (1 << 16, 1 << 15)),
    "Trilu": lambda: one("Trilu", (1 << 15, 1 << 15)),
    "Trilu k": lambda: one("Trilu", (5, 5), np.array(MOST)),
    "Reshape": lambda: one("Reshape", (4,), ints(HUGE, -1, HUGE)),
    "Unsqueeze": lambda: one("Unsqueeze", (4,), np.arange(2000)),
    "MatMul": lambda: one("MatMul", (1 << 20, 1), (1, 1 << 20)),
    "MatMul known": lambda: one("MatMul", np.ones((1 << 16, 1), np.float32), np.ones((1, 1 << 16), np.float32)),
    "Add known": lambda: one("Add", np.ones((1 << 16, 1), np.float32), np.ones((1, 1 << 16), np.float32)),
    "Gather": lambda: one("Gather", (1 << 16, 1), np.zeros(1 << 17, np.int64)),
    "Gather known": lambda: one("Gather", np.ones((1, 1 << 16), np.float32), np.zeros(1 << 16, np.int64)),
    "Concat": lambda: one("Concat", *[(1 << 15, 1 << 14)] * 20, axis=0),
    "DepthToSpace": lambda: one("DepthToSpace", X, blocksize=HUGE),
    "SpaceToDepth": lambda: one("SpaceToDepth", X, blocksize=HUGE),
    "Split": lambda: one("Split", X, num_outputs=HUGE, axis=3),
    "CumSum": lambda: one("CumSum", (1 << 15, 1 << 15), np.array(0)),
    "LRN": lambda: one("LRN", D, size=HUGE),
    "Cast": lambda: one("Cast", X, to=HUGE),
    "Transpose": lambda: one("Transpose", X, perm=list(range(100000))),
    "Dropout": lambda: one("Dropout", X, np.array(np.nan, np.float32)),
    "Clip": lambda: one("Clip", X, np.array(np.nan, np.float32)),
    "chain of fills": lambda: chain(40, "ConstantOfShape"),
    "chain of joins": lambda: chain(60, "Concat"),
    "initializer": lambda: initializer((HUGE, HUGE), b""),
    "initializer negative": lambda: initializer((-1, 4), b"\0" * 16),
    "initializer zero": lambda: initializer((0, HUGE, HUGE), b""),
    "initializer axes": lambda: initializer((1,) * 100, b"\0" * 4),
    "initializer external": lambda: external("/etc/hostname"),
    "initializer external above": lambda: external("../../etc/hostname"),
}  # fmt: skip


def chain(count: int, op: str) -> onnx.ModelProto:
    """`count` constants, each of a size that would do alone; or one that doubles `count` times."""
    b = Builder(18)
    if op == "Concat":
        x = b.array(np.ones(64, np.float32))
        for _ in range(count):
            x = b.add("Concat", x, x, axis=0)
        return b.model(x)
    y = b.input((4,))
    for k in range(count):
        big = b.add("ConstantOfShape", b.ints(1 << 13, (1 << 13) - k))
        y = b.add("Add", y, b.add("Gather", big, b.ints(0, 1, 2, 3), axis=0))
    return b.model(y)


def initializer(dims: Sequence[int], data: bytes) -> onnx.ModelProto:
    b = Builder(18)
    model = b.model(b.add("Add", b.input((4,)), b.array(reals(1))))
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(dims)
    model.graph.initializer[0].raw_data = data
    return model


def external(place: str) -> onnx.ModelProto:
    model = initializer((4,), b"")
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    return model


# ---------------------------------------------------------------------------------------------- changed models


def seeds(rng: random.Random) -> onnx.ModelProto:
    """A model to begin with: a network, or a single node."""
    if rng.random() < 0.6:
        b = Builder(rng.choice((11, 13, 17, 18, 20)), rng.randrange(1 << 20))
        name = rng.choice(sorted(FAMILIES))
        b = Builder(13) if name == "bert" else b
        return b.model(FAMILIES[name](b))
    return ABSURD[rng.choice(sorted(ABSURD))]()


def _node(rng: random.Random, model: onnx.ModelProto) -> Any:
    return rng.choice(list(model.graph.node)) if model.graph.node else model.graph.node.add()


def _tensor(rng: random.Random, model: onnx.ModelProto) -> Any:
    return rng.choice(list(model.graph.initializer)) if model.graph.initializer else model.graph.initializer.add()


def _names(model: onnx.ModelProto) -> list[str]:
    own = [n for node in model.graph.node for n in (*node.input, *node.output)]
    return [*own, *[t.name for t in model.graph.initializer], *[v.name for v in model.graph.input], "", "nowhere"]


def extents_of_an_input(rng: random.Random, model: onnx.ModelProto) -> None:
    value = rng.choice(list(model.graph.input)) if model.graph.input else model.graph.input.add(name="fresh")
    shape = value.type.tensor_type.shape
    for dim in shape.dim:
        if rng.random() < 0.5:
            dim.dim_value = rng.choice(SIZES)
    for _ in range(rng.choice((0, 0, 1, 100))):
        shape.dim.add(dim_value=rng.choice((1, rng.choice(SIZES))))
    if rng.random() < 0.2:
        value.type.tensor_type.elem_type = rng.randrange(-1, 24)


def extents_of_a_weight(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(rng, model)
    for k in range(len(tensor.dims)):
        if rng.random() < 0.5:
            tensor.dims[k] = rng.choice(SIZES)
    if rng.random() < 0.3:
        tensor.dims.extend([rng.choice(SIZES)] * rng.choice((1, 1, 70)))


def values_of_a_weight(rng: random.Random, model: onnx.ModelProto) -> None:
    """Integers (shapes, pads, axes) of absurd size; or more, or fewer of them."""
    whole = [t for t in model.graph.initializer if t.data_type == TensorProto.INT64] or [_tensor(rng, model)]
    tensor = rng.choice(whole)
    count = rng.choice((max(int(np.prod(list(tensor.dims) or [1])) % 64, 1), 1, 0, 5, 200))
    kind, drawn = (np.int64, SIZES) if rng.random() < 0.7 else (np.float32, REALS)
    tensor.CopyFrom(numpy_helper.from_array(np.array([rng.choice(drawn) for _ in range(count)], kind), tensor.name))


def bytes_of_a_weight(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(rng, model)
    tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)] * rng.choice((0, 1, 1, 3))


def type_of_a_weight(rng: random.Random, model: onnx.ModelProto) -> None:
    _tensor(rng, model).data_type = rng.randrange(-1, 24)


def number_in_an_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    attr = rng.choice(list(node.attribute)) if node.attribute else node.attribute.add(name="axis", type=2)
    attr.i, attr.f = rng.choice(SIZES), rng.choice(REALS)
    for k in range(len(attr.ints)):
        attr.ints[k] = rng.choice((attr.ints[k], rng.choice(SIZES)))
    for k in range(len(attr.floats)):
        attr.floats[k] = rng.choice(REALS)


def length_of_an_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    attr = rng.choice(list(node.attribute)) if node.attribute else node.attribute.add(name="perm", type=7)
    attr.ints.extend([rng.choice(SIZES)] * rng.choice((1, 3, 50_000)))
    attr.s = attr.s * rng.choice((0, 2, 10_000))


def kind_of_an_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if not node.attribute or rng.random() < 0.3:
        name = rng.choice(("axis", "axes", "perm", "value", "to", "mode", "kernel_shape", "pads", "group", "keepdims"))
        node.attribute.append(helper.make_attribute(name, rng.choice(("x", 3, 2.5, [1, 2], [0.5]))))
        return
    attr = rng.choice(list(node.attribute))
    attr.type = rng.randrange(0, 15)
    if rng.random() < 0.3:
        node.attribute.remove(attr)
    elif rng.random() < 0.3:
        node.attribute.append(attr)


def wire(rng: random.Random, model: onnx.ModelProto) -> None:
    """A node reads something else: an unknown name, its own output, a later node's, nothing; or one input more."""
    node = _node(rng, model)
    if node.input and rng.random() < 0.8:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))
    else:
        node.input.append(rng.choice(_names(model)))


def outputs(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node.output and rng.random() < 0.6:
        node.output[rng.randrange(len(node.output))] = rng.choice(_names(model))
    elif rng.random() < 0.5:
        node.output.append(rng.choice((*_names(model), "more")))
    else:
        del node.output[:]


def results(rng: random.Random, model: onnx.ModelProto) -> None:
    if rng.random() < 0.3:
        del model.graph.output[:]
    else:
        model.graph.output.add(name=rng.choice(_names(model)))


def order(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    rng.shuffle(nodes)
    kept = nodes[: rng.choice((len(nodes), max(len(nodes) - 1, 0)))]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def twice(rng: random.Random, model: onnx.ModelProto) -> None:
    """A node, a weight or an input that is there already."""
    kind = rng.choice((model.graph.node, model.graph.initializer, model.graph.input))
    if kind:
        kind.append(rng.choice(list(kind)))


def operator(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    node.op_type = rng.choice((*sorted({*TABLE, *EXPANDED}), "If", "Loop", "Scan", "", "Nothing\n"))
    if rng.random() < 0.1:
        node.domain = rng.choice(("com.microsoft", "ai.onnx.ml", "x" * 1000))


def versions(rng: random.Random, model: onnx.ModelProto) -> None:
    if rng.random() < 0.2:
        del model.opset_import[:]
    else:
        model.opset_import.add(domain=rng.choice(("", "", "own")), version=rng.choice((0, -1, 7, 12, 23, 99, MOST)))


def branches(rng: random.Random, model: onnx.ModelProto) -> None:
    """An If in an If, of graphs that read what is not there, or themselves."""
    node = _node(rng, model)
    inner = onnx.GraphProto()
    inner.CopyFrom(model.graph)
    node.op_type = "If"
    node.attribute.append(helper.make_attribute(rng.choice(("then_branch", "else_branch", "body")), inner))


CHANGES: tuple[Change, ...] = (
    extents_of_an_input, extents_of_a_weight, values_of_a_weight, bytes_of_a_weight, type_of_a_weight,
    number_in_an_attribute, length_of_an_attribute, kind_of_an_attribute, wire, outputs, results, order, twice,
    operator, versions, branches,
)  # fmt: skip


def changed(seed: int) -> onnx.ModelProto:
    """A model with one to four changes, by seed."""
    rng = random.Random(seed)
    model = seeds(rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        with suppress(ValueError, TypeError):  # what the protocol buffers themselves do not take
            rng.choice(CHANGES)(rng, model)
    return model


# ---------------------------------------------------------------------------------------------- imported


def import_whole(model: onnx.ModelProto) -> None:
    """Import a model, and look at every type."""
    module, _ = from_onnx(model.SerializeToString())
    for e in post_order(module["main"].body):
        str(e.type)


def main(first: int, count: int) -> None:
    """Import the absurd models (for a first seed of 0) and `count` changed ones."""
    limit_process()
    named = [(name, make) for name, make in ABSURD.items() if first == 0]
    drawn = [(f"seed {seed}", lambda seed=seed: changed(seed)) for seed in range(first, first + count)]
    slowest, graphs = (0.0, ""), 0
    for name, make in (*named, *drawn):
        model = make()
        begin = time.monotonic()
        wrong = verdict(partial(import_whole, model))
        slowest = max(slowest, (time.monotonic() - begin, name))
        graphs += wrong is None
        if wrong is not None:
            print(f"{name}: {wrong}", flush=True)
    print(f"{graphs} of {len(named) + count} as promised, the slowest took {slowest[0]:.1f} s ({slowest[1]})")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
