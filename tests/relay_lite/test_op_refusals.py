"""Every wrong input is refused when the node is made, by a GraphError of one sentence that names the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
import te_lite as te
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call
from relay_lite.ir.op_registry import OPS
from tests.relay_lite.op_case import TARGETS
from tests.relay_lite.sound_calls import SOUND, b, f, i, sound

nn = relay.nn


PAIR = relay.Tuple((f(2), f(2)))

WRONG: dict[str, Callable[[], Any]] = {
    "exp: a tensor of floats": lambda: relay.exp(i(2)),
    "nn.relu: 1 tensor is needed": lambda: nn.relu(PAIR),
    "negative: a tensor of numbers": lambda: relay.negative(b(2)),
    "logical_not: a tensor of bool": lambda: relay.logical_not(f(2)),
    "cast: dtypes are": lambda: relay.cast(f(2), "float31"),
    "clip: a_min must not exceed": lambda: relay.clip(f(2), 1, 0),
    "clip: a_min must be a number": lambda: relay.clip(f(2), "low", 0),
    "nn.leaky_relu: alpha must be": lambda: nn.leaky_relu(f(2), None),
    "add: the shapes do not fit": lambda: relay.add(f(2, 3), f(2)),
    "add: all tensors must have the same dtype": lambda: relay.add(f(2), i(2)),
    "add: 2 tensors are needed": lambda: call("add", f(2)),
    "power: a tensor of numbers": lambda: relay.power(b(2), b(2)),
    "logical_and: tensors of bool": lambda: relay.logical_and(i(2), i(2)),
    "where: tensors of bool": lambda: relay.where(i(2), f(2), f(2)),
    "where: the shapes do not fit": lambda: relay.where(b(3), f(2), f(2)),
    "nn.bias_add: the bias must have the shape": lambda: nn.bias_add(f(2, 3), f(2)),
    "nn.prelu: alpha must have the shape": lambda: nn.prelu(f(2, 3), f(2)),
    "full: 0 dimensions are needed": lambda: relay.full(f(2), (3,)),
    "arange: three numbers": lambda: relay.arange(0, 5, 0),
    "one_hot: the indices must be integers": lambda: relay.one_hot(f(2), 1, 0, 3),
    "one_hot: depth must be at least 1": lambda: relay.one_hot(i(2), 1, 0, 0),
    "expand_dims: the axis must be in": lambda: relay.expand_dims(f(2), 2),
    "squeeze: only dimensions of 1": lambda: relay.squeeze(f(2, 1), 0),
    "squeeze: an axis is named twice": lambda: relay.squeeze(f(1, 1), (0, -2)),
    "reshape: the new shape must hold": lambda: relay.reshape(f(2, 3), (4, 2)),
    "reshape: at most one dimension": lambda: relay.reshape(f(2, 3), (-1, -1)),
    "reshape: there is no dimension to copy": lambda: relay.reshape(f(2, 3), (2, 3, 0)),
    "reshape: no such code": lambda: relay.reshape(f(2, 3), (-5, 6)),
    "transpose: the axes must be a permutation": lambda: relay.transpose(f(2, 3), (0, 0)),
    "layout_transform: layouts are 2 different letters": lambda: relay.layout_transform(f(2, 3), "NC", "NW"),
    "broadcast_to: the tensor does not fit": lambda: relay.broadcast_to(f(2, 3), (2, 4)),
    "concatenate: a tuple of tensors": lambda: relay.concatenate(f(2)),
    "concatenate: the other dimensions must agree": lambda: relay.concatenate([f(2, 3), f(3, 2)], 1),
    "stack: all shapes must be equal": lambda: relay.stack([f(2), f(3)]),
    "split: the parts must be equal": lambda: relay.split(f(5), 2),
    "split: the positions must rise": lambda: relay.split(f(5), (3, 3)),
    "tile: no count": lambda: relay.tile(f(5), (-1,)),
    "repeat: repeats must be": lambda: relay.repeat(f(5), 0, 0),
    "strided_slice: begin, end, strides": lambda: relay.strided_slice(f(5), (0,), (1, 2)),
    "strided_slice: strides must not be 0": lambda: relay.strided_slice(f(5), (0,), (1,), (0,)),
    "strided_slice: slice_mode is one of": lambda: relay.strided_slice(f(5), (0,), (1,), slice_mode="all"),
    "take: the indices must be integers": lambda: relay.take(f(5), f(2)),
    "take: mode is one of": lambda: relay.take(f(5), i(2), mode="raise"),
    "gather: data and indices must agree": lambda: relay.gather(f(5, 3), 0, i(2, 2)),
    "gather_nd: the first dimension": lambda: relay.gather_nd(f(5), i(2, 2)),
    "nn.pad: pad_width must be 2 pairs": lambda: nn.pad(f(2, 3), (1, 1)),
    "nn.pad: the amounts must not be negative": lambda: nn.pad(f(2), ((-1, 0),)),
    "nn.pad: a mirror needs more": lambda: nn.pad(f(2), ((2, 0),), pad_mode="reflect"),
    "nn.pad: pad_mode is one of": lambda: nn.pad(f(2), ((2, 0),), pad_mode="wrap"),
    "sum: a tensor of numbers": lambda: relay.sum(b(2)),
    "all: a tensor of bool": lambda: relay.all(f(2)),
    "sum: the axis must be in": lambda: relay.sum(f(2), 1),
    "argmax: an axis is needed": lambda: relay.argmax(f(2), ()),
    "max: there must be something": lambda: relay.max(f(0, 2), 0),
    "mean: a tensor of floats": lambda: relay.mean(i(2)),
    "variance: the mean must have the shape": lambda: relay.variance(f(2, 3), 1, with_mean=f(2)),
    "variance: there are too few": lambda: relay.variance(f(2, 1), 1, unbiased=True),
    "nn.conv2d: 4 dimensions": lambda: nn.conv2d(f(3, 8, 8), f(4, 3, 3, 3)),
    "nn.conv2d: the layout must be": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3), data_layout="NCHW4c"),
    "nn.conv2d: the channels of data, weight": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 2, 3, 3)),
    "nn.conv2d: channels and kernel_size": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3), kernel_size=(5, 5)),
    "nn.conv2d: the window must fit": lambda: nn.conv2d(f(1, 3, 2, 8), f(4, 3, 3, 3)),
    "nn.conv2d: kernel, strides and dilation": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3), (0, 1)),
    "nn.conv2d: padding must not be negative": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3), padding=-1),
    "nn.conv2d: 1, 2 or 4 amounts of padding": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3), padding=(1, 1, 1)),
    "nn.conv2d: a layout of the result": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3), out_layout="NHWC"),
    "nn.conv2d: all tensors must have the same dtype": lambda: nn.conv2d(i(1, 3, 8, 8), f(4, 3, 3, 3)),
    "nn.conv2d: data and kernel layout": lambda: nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3), data_layout="NCWH"),
    "nn.conv2d_transpose: output_padding": lambda: nn.conv2d_transpose(f(1, 3, 8, 8), f(3, 4, 3, 3), output_padding=1),
    "nn.conv2d_transpose: nothing is left of": lambda: nn.conv2d_transpose(f(1, 3, 8, 8), f(3, 4, 3, 3), padding=9),
    "nn.conv2d_transpose: dilation must": lambda: nn.conv2d_transpose(f(1, 3, 8, 8), f(3, 4, 3, 3), dilation=2),
    "nn.conv2d_transpose: the channels": lambda: nn.conv2d_transpose(f(1, 3, 8, 8), f(4, 3, 3, 3)),
    "winograd: tile sizes are": lambda: nn.contrib_conv2d_winograd_weight_transform(f(4, 3, 3, 3), 3),
    "winograd_weight_transform: the weight must be": lambda: nn.contrib_conv2d_winograd_weight_transform(
        f(3, 3, 4, 3), 4
    ),
    "transform: the transformed weight must be": lambda: nn.contrib_conv2d_winograd_without_weight_transform(
        f(1, 8, 8, 3), f(4, 4, 5, 3), 4
    ),
    "transform: strides, dilation and groups": lambda: nn.contrib_conv2d_winograd_without_weight_transform(
        f(1, 8, 8, 3), f(6, 6, 5, 3), 4, 2
    ),
    "transform: the layouts must be": lambda: nn.contrib_conv2d_winograd_without_weight_transform(
        f(1, 8, 8, 3), f(6, 6, 5, 3), 4, data_layout="NCHW"
    ),
    "nn.dense: the inner extents": lambda: nn.dense(f(2, 3), f(4, 2)),
    "nn.dense: units must be": lambda: nn.dense(f(2, 3), f(4, 3), units=5),
    "nn.batch_matmul: the batches": lambda: nn.batch_matmul(f(2, 3, 4), f(3, 5, 4)),
    "nn.max_pool2d: the window must fit": lambda: nn.max_pool2d(f(1, 3, 2, 2), 3),
    "nn.max_pool2d: the last window": lambda: nn.max_pool2d(f(1, 3, 3, 3), 1, 3, ceil_mode=True),
    "nn.avg_pool2d: a tensor of floats": lambda: nn.avg_pool2d(i(1, 3, 2, 2), 2),
    "nn.adaptive_avg_pool2d: output_size": lambda: nn.adaptive_avg_pool2d(f(1, 3, 2, 2), (1, 2, 3)),
    "nn.softmax: the axis must be in": lambda: nn.softmax(f(2, 3), 2),
    "nn.batch_norm: gamma must have": lambda: nn.batch_norm(f(2, 3), f(2), f(3), f(3), f(3)),
    "nn.layer_norm: beta must have": lambda: nn.layer_norm(f(2, 3), f(3), f(2)),
    "nn.group_norm: num_groups must divide": lambda: nn.group_norm(f(2, 3), f(3), f(3), 2),
    "nn.lrn: size must be": lambda: nn.lrn(f(2, 3), 0),
    "image.resize2d: method is one of": lambda: relay.image.resize2d(f(1, 3, 2, 2), 4, method="bilinear"),
    "image.resize2d: a tensor of floats": lambda: relay.image.resize2d(i(1, 3, 2, 2), 4),
    "image.resize2d: the size must be": lambda: relay.image.resize2d(f(1, 3, 2, 2), (4, 0)),
    "nn.upsampling: the scales": lambda: nn.upsampling(f(1, 3, 2, 2), 0),
    "nn.depth_to_space: block_size": lambda: nn.depth_to_space(f(1, 3, 2, 2), 2),
    "nn.space_to_depth: block_size": lambda: nn.space_to_depth(f(1, 3, 3, 2), 2),
    "tuple item: the index must be below 2": lambda: relay.split(f(4), 2)[2],
    "tuple item: only a tuple": lambda: f(4)[0],
    "operator: the name is unknown": lambda: call("nn.convolve", f(2)),
    "add: attributes are": lambda: call("add", f(2), f(2), axis=1),
    "graph: a node, a number or an array": lambda: f(2) + "one",
}


@pytest.mark.parametrize("sentence", WRONG)
def test_refusals(sentence: str) -> None:
    with pytest.raises(relay.GraphError) as refused:
        WRONG[sentence]()
    text = str(refused.value)
    assert sentence in text and "\n" not in text


ODD = (None, "x", "NCHW", "", -1, 0, 1, 2, 2.5, float("nan"), True, (), (0,), (1, 2), (2, 1), (1, 1, 1, 1), ("a", None))


def assert_works(made: Call) -> None:
    """The meaning can be computed and keeps what the type promises, and so does the expression."""
    zeros = [[np.zeros(t.shape, t.dtype) for t in a.type.fields] if isinstance(a.type, relay.TupleType)
             else np.zeros(a.shape, a.dtype) for a in made.args]  # fmt: skip
    many = isinstance(made.type, relay.TupleType)
    with np.errstate(all="ignore"):
        arrays = made.op.numpy(zeros, made.attrs) if many else [made.op.numpy(zeros, made.attrs)]
    types = made.type.fields if many else (made.type,)
    assert [relay.TensorType(a.shape, str(a.dtype)) for a in arrays] == list(types)
    if made.op.compute is None or not all(t.size for t in types):
        return
    for target in TARGETS:
        inputs = [[te.placeholder(t.shape, t.dtype) for t in a.type.fields] if isinstance(a.type, relay.TupleType)
                  else te.placeholder(a.shape, a.dtype) for a in made.args]  # fmt: skip
        outs = made.op.compute(inputs, made.attrs, target)
        assert [relay.TensorType(t.shape, t.dtype) for t in outs] == list(types)


def test_there_is_a_sound_call_of_every_operator() -> None:
    """Of those of relay_lite; the accelerator's on packed data may have been imported by other tests."""
    ours = {name for name, op in OPS.items() if op.infer.__module__ == "relay_lite.op.define"}
    assert {name for name in ours if not name.endswith("_packed")} == set(SOUND)


@pytest.mark.parametrize("name", sorted(SOUND))
def test_odd_attributes_are_refused_or_work(name: str) -> None:
    """Whatever is put into an attribute: a GraphError says why not, or the operator can be evaluated and lowered."""
    for attr in [*OPS[name].defaults, "oddness"]:
        for value in ODD:
            try:
                made = sound(name, **{attr: value})
            except relay.GraphError as refused:
                assert "\n" not in str(refused)
                continue
            assert_works(made)


@pytest.mark.parametrize("name", sorted(SOUND))
def test_odd_arguments_are_refused_or_work(name: str) -> None:
    arguments = [f(2, 3, 4, 5), f(2, 3), f(3), f(), i(2, 3), b(2, 3), PAIR, f(0, 3)]
    args, attrs = SOUND[name]
    for place in range(len(args) + 1):
        for other in [*arguments, None]:
            changed = [*args[:place], *([] if other is None else [other]), *args[place + 1 :]]
            try:
                assert call(name, *changed, **attrs).type is not None
            except relay.GraphError as refused:
                assert "\n" not in str(refused)
