"""What operators know of layouts: which axis is which, and what becomes of them when their inputs come otherwise.

A layout names the axes of a tensor by letters: `NHWC`, `OIHW`, `C` for a bias; None means that nothing is known.
A rule answers two questions.  `read`: what do the axes of inputs and outputs mean in the graph as it stands?
`move`: when the inputs are wanted in other orders of the same letters, what are the attributes and the outputs then?
Inputs are counted with tuples taken apart.  Where `read` gives None, and for an operator without a rule such as
reshape, the inputs come as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias

from ..ir.op_registry import Op, OpPattern

LayoutName: TypeAlias = str | None
LayoutNames: TypeAlias = tuple[LayoutName, ...]
Attrs: TypeAlias = Mapping[str, Any]
Shapes: TypeAlias = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Labels:
    """The layouts of the inputs and of the outputs of one call."""

    inputs: LayoutNames
    outputs: LayoutNames


@dataclass(frozen=True)
class Moved:
    """A call whose inputs come in other orders: the inputs it takes, its outputs and its attributes."""

    inputs: LayoutNames
    outputs: LayoutNames
    attrs: Attrs


Read: TypeAlias = Callable[[Attrs, Shapes, LayoutNames], Labels | None]
Move: TypeAlias = Callable[[Attrs, Shapes, Labels, LayoutNames], Moved]


@dataclass(frozen=True)
class LayoutRule:
    """`read(attrs, shapes, given)` and `move(attrs, shapes, labels, wanted)`, shapes being those of the old inputs.

    An operator that `follows` takes its inputs as they come; others keep the layouts they have unless told otherwise.
    """

    read: Read
    move: Move
    follows: bool = True


# ------------------------------------------------------------------------------------------------- anchors


def _read_anchor(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    data = attrs["data_layout"]
    return Labels((data, attrs["kernel_layout"]), (attrs.get("out_layout") or data,))


def _move_anchor(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    data, kernel = wanted
    if wanted == labels.inputs:
        return Moved(wanted, labels.outputs, attrs)
    out = {"out_layout": ""} if "out_layout" in attrs else {}
    return Moved(wanted, (data,), {**attrs, "data_layout": data, "kernel_layout": kernel, **out})


def _read_winograd(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    return Labels((attrs["data_layout"], None), (attrs["data_layout"],))


def _stay(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    return Moved(labels.inputs, labels.outputs, attrs)


def _read_dense(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    return Labels(("NC", "NC"), ("NC",)) if len(shapes[0]) == 2 else None


def _read_image(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    return Labels((attrs["layout"],), (attrs["layout"],))


def _move_image(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    out = {"out_layout": ""} if "out_layout" in attrs else {}
    return Moved(wanted, wanted, {**attrs, "layout": wanted[0], **out})


# ---------------------------------------------------------------------------------- elementwise and broadcast


def _read_same(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    return Labels(given, given[:1]) if given[0] is not None else None


def _move_same(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    return Moved(wanted, wanted[:1], attrs)


def _read_dropout(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    """The results are the data and a mask."""
    return Labels(given, given * 2) if given[0] is not None else None


def _move_dropout(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    return Moved(wanted, wanted * 2, attrs)


def _first_of_most(ranks: Sequence[tuple[int, bool, bool]]) -> int:
    return ranks.index(max(ranks))


def _read_broadcast(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    """Shapes are aligned at the right, so the smaller operand has the last letters of the larger one."""
    rows = zip(shapes, given, strict=True)
    layout = given[_first_of_most([(len(s), layout is not None, prod(s) != 1) for s, layout in rows])]
    if layout is None:
        return None
    inputs = tuple(layout[len(layout) - len(s) :] for s in shapes)
    return Labels(inputs, (layout,))


def _move_broadcast(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    """The smaller operand is brought to the layout, and so to the rank, of the larger; one element fits as it is.

    Of two that are equally large the one that has moved sets the layout.
    """
    rows = zip(shapes, labels.inputs, wanted, strict=True)
    layout = wanted[_first_of_most([(len(s), old != new, prod(s) != 1) for s, old, new in rows])]
    inputs = tuple(w if prod(s) == 1 else layout for s, w in zip(shapes, wanted, strict=True))
    return Moved(inputs, (layout,), attrs)


# ------------------------------------------------------------------------------------ attributes that name axes


def _axis(layout: str, axis: int, new: str) -> int:
    """The place in `new` of the letter at `axis` of `layout`."""
    return new.index(layout[axis])


def _read_channels(vectors: int, outputs: int) -> Read:
    """Data and `vectors` 1-D tensors along the letter at attribute `axis`; of `outputs` results the first is data."""

    def read(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
        data = given[0]
        if data is None:
            return None
        letter = data[attrs["axis"]]
        return Labels((data, *[letter] * vectors), (data, *[letter] * (outputs - 1)))

    return read


def _move_channels(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    old, new = labels.inputs[0], wanted[0]
    assert old is not None and new is not None
    outputs = (new, *labels.outputs[1:])
    return Moved((new, *labels.inputs[1:]), outputs, {**attrs, "axis": _axis(old, attrs["axis"], new)})


def _read_quantized(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    """Data, and a scale and a zero point: numbers, or vectors along the letter at attribute `axis`."""
    data = given[0]
    if data is None:
        return None
    letter = data[attrs["axis"]] if shapes[1] else ""
    return Labels((data, letter, letter), (data,))


def _first_known(given: LayoutNames) -> str | None:
    return next((layout for layout in given if layout is not None), None)


def _read_concatenate(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    layout = _first_known(given)
    return None if layout is None else Labels((layout,) * len(given), (layout,))


def _move_concatenate(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    """In the layout that most of the data has."""
    old = labels.outputs[0]
    sizes: dict[LayoutName, int] = {}
    for shape, layout in zip(shapes, wanted, strict=True):
        sizes[layout] = sizes.get(layout, 0) + prod(shape)
    new = max(sizes, key=sizes.__getitem__)
    assert old is not None and new is not None
    return Moved((new,) * len(wanted), (new,), {**attrs, "axis": _axis(old, attrs["axis"], new)})


def _read_split(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    parts = attrs["indices_or_sections"]
    count = parts if isinstance(parts, int) else len(parts) + 1
    return None if given[0] is None else Labels(given, given * count)


def _move_split(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    old, new = labels.inputs[0], wanted[0]
    assert old is not None and new is not None
    outputs = (new,) * len(labels.outputs)
    return Moved(wanted, outputs, {**attrs, "axis": _axis(old, attrs["axis"], new)})


def _reduced(attrs: Attrs, layout: str) -> str:
    """The letters that a reduction runs over."""
    axis = attrs["axis"]
    axes = range(len(layout)) if axis is None else [axis] if isinstance(axis, int) else axis
    named = {layout[a] for a in axes}
    if attrs.get("exclude") and axis is not None:
        named = set(layout) - named
    return "".join(letter for letter in layout if letter in named)


def _without(layout: str, letters: str) -> str:
    return "".join(letter for letter in layout if letter not in letters)


def _read_reduction(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    layout = given[0]
    if layout is None:
        return None
    return Labels(given, (layout if attrs["keepdims"] else _without(layout, _reduced(attrs, layout)),))


def _move_reduction(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    old, new = labels.inputs[0], wanted[0]
    assert old is not None and new is not None
    letters = _reduced(attrs, old)
    out = new if attrs["keepdims"] else _without(new, letters)
    axes = tuple(sorted(new.index(letter) for letter in letters))
    exclude = {"exclude": False} if "exclude" in attrs else {}
    return Moved(wanted, (out,), {**attrs, "axis": axes, **exclude})


def _squeezed(attrs: Attrs, shape: tuple[int, ...], layout: str) -> str:
    axis = attrs["axis"]
    axes = [k for k, d in enumerate(shape) if d == 1] if axis is None else [axis] if isinstance(axis, int) else axis
    return "".join(layout[a] for a in axes)


def _read_squeeze(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    layout = given[0]
    return None if layout is None else Labels(given, (_without(layout, _squeezed(attrs, shapes[0], layout)),))


def _move_squeeze(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    old, new = labels.inputs[0], wanted[0]
    assert old is not None and new is not None
    letters = _squeezed(attrs, shapes[0], old)
    axes = tuple(sorted(new.index(letter) for letter in letters))
    return Moved(wanted, (_without(new, letters),), {**attrs, "axis": axes})


def _move_pad(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    old, new = labels.inputs[0], wanted[0]
    assert old is not None and new is not None
    width = dict(zip(old, attrs["pad_width"], strict=True))
    return Moved(wanted, (new,), {**attrs, "pad_width": tuple(width[letter] for letter in new)})


def _move_slice(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    """The listed axes (all in order, when none are listed) are called by their letters."""
    old, new = labels.inputs[0], wanted[0]
    assert old is not None and new is not None
    axes = attrs["axes"] if attrs["axes"] is not None else range(len(attrs["begin"]))
    return Moved(wanted, wanted, {**attrs, "axes": tuple(_axis(old, a, new) for a in axes)})


def _axes_of_transpose(attrs: Attrs, rank: int) -> Sequence[int]:
    return attrs["axes"] if attrs["axes"] is not None else range(rank)[::-1]


def _read_transpose(attrs: Attrs, shapes: Shapes, given: LayoutNames) -> Labels | None:
    layout = given[0]
    if layout is None:
        return None
    return Labels(given, ("".join(layout[a] for a in _axes_of_transpose(attrs, len(layout))),))


def _move_transpose(attrs: Attrs, shapes: Shapes, labels: Labels, wanted: LayoutNames) -> Moved:
    """A transpose gives what it gave, from whatever order its input has now."""
    out, new = labels.outputs[0], wanted[0]
    assert out is not None and new is not None
    return Moved(wanted, (out,), {**attrs, "axes": tuple(new.index(letter) for letter in out)})


# ------------------------------------------------------------------------------------------------- the table

_ANCHOR = LayoutRule(_read_anchor, _move_anchor, follows=False)
_IMAGE = LayoutRule(_read_image, _move_image)
_SAME = LayoutRule(_read_same, _move_same)
_BROADCAST = LayoutRule(_read_broadcast, _move_broadcast)
_REDUCTION = LayoutRule(_read_reduction, _move_reduction)
_channels = partial(LayoutRule, move=_move_channels)

ANCHORS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
POOLS = (
    *[f"nn.{k}_pool{n}d" for n in (1, 2, 3) for k in ("max", "avg")],
    "nn.global_max_pool2d",
    "nn.global_avg_pool2d",
)
ADAPTIVE = tuple(f"nn.adaptive_{kind}_pool{n}d" for n in (1, 2, 3) for kind in ("max", "avg"))
IMAGES = ("image.resize2d", "nn.upsampling", "nn.depth_to_space", "nn.space_to_depth")
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "all", "any")

RULES: dict[str, LayoutRule] = {
    **dict.fromkeys(ANCHORS, _ANCHOR),
    "nn.contrib_conv2d_winograd_without_weight_transform": LayoutRule(_read_winograd, _stay, follows=False),
    "nn.dense": LayoutRule(_read_dense, _stay, follows=False),
    **dict.fromkeys((*POOLS, *ADAPTIVE, *IMAGES), _IMAGE),
    **dict.fromkeys(REDUCTIONS, _REDUCTION),
    "nn.batch_norm": _channels(_read_channels(4, 3)),
    "nn.bias_add": _channels(_read_channels(1, 1)),
    "nn.prelu": _channels(_read_channels(1, 1)),
    "qnn.quantize": _channels(_read_quantized),
    "qnn.dequantize": _channels(_read_quantized),
    "concatenate": LayoutRule(_read_concatenate, _move_concatenate),
    "split": LayoutRule(_read_split, _move_split),
    "squeeze": LayoutRule(_read_squeeze, _move_squeeze),
    "nn.pad": LayoutRule(_read_same, _move_pad),
    "strided_slice": LayoutRule(_read_same, _move_slice),
    "transpose": LayoutRule(_read_transpose, _move_transpose),
    "nn.dropout": LayoutRule(_read_dropout, _move_dropout),
}


def layout_rule(op: Op, operands: int) -> LayoutRule | None:
    """The rule of an operator of `operands` inputs: by name; else for elementwise operators of one, and broadcasting
    ones of several inputs without attributes."""
    if op.name in RULES:
        return RULES[op.name]
    if op.pattern == OpPattern.ELEMWISE and operands == 1:
        return _SAME
    return _BROADCAST if op.pattern == OpPattern.BROADCAST and operands > 1 and not op.defaults else None
