"""Graph packing: a part of the network in the layout of the machine.

Data are packed behind the start operator and unpacked in front of the stop operator.  What lies between them is
rewritten: integer convolutions become `nn.conv2d_packed` with packed weights, constants along the channels are
packed, and operators that look at one element at a time stay as they are.  The values do not change by a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.module import IRModule, main_function
from relay_lite.ir.nodes import Array, Call, Constant, Expr, Function, children, rebuild
from relay_lite.ir.op_registry import OpPattern
from relay_lite.ir.visit import is_op, post_order
from relay_lite.op.annotation import stop_fusion
from te_lite.errors import require

from ..top import packed_groups
from .packed_layout import Blocks
from .packed_operators import CONV, GROUPED
from .packed_window import is_window, window_packed

BROADCASTS = ("add", "subtract", "multiply", "maximum", "minimum")
DEVICE_ANNOT = "device_annot"
FUSED_ADDITIONS = "fused_additions"


def graph_pack(
    expr: Function | IRModule,
    bfactor: int,
    cfactor: int,
    weight_bits: int,
    start_name: str = "nn.max_pool2d",
    stop_name: str = "nn.global_avg_pool2d",
    start_name_idx: int | None = None,
    stop_name_idx: int | None = None,
    device_annot: bool = False,
) -> Function:
    """The function with everything between two operators in blocks of `bfactor` images and `cfactor` channels.

    The start is the first operator `start_name`, the stop the first `stop_name` behind it; `start_name_idx` and
    `stop_name_idx` name them by their place in execution order instead, counted over all operators.  `device_annot`
    marks the function: element-wise operators of the packed part shall run on the machine too, not only convolutions.

    Raises GraphError when an operator is not found, batch or channels at the start are no whole blocks, weights have
    other than 8 bits, or an operator between the two has no packed form.
    """
    require(weight_bits == 8, GraphError, "graph_pack", "weights have 8 bits", weight_bits=weight_bits)
    function = main_function(expr)
    start, stop = _ends(function, (start_name, start_name_idx), (stop_name, stop_name_idx))
    packer = Packer(Blocks(bfactor, cfactor), lambda node, packed: node is not stop and _reads(node, packed), start)
    body = packer.run(function.body)
    law = "the result must lie behind the stop operator"
    require(function.body in packer.plain, GraphError, "graph_pack", law, stop=stop.op.name)
    attrs = {**function.attrs, DEVICE_ANNOT: True} if device_annot else function.attrs
    return Function(function.params, body, attrs)


def _reads(node: Expr, packed: Mapping[Expr, Expr]) -> bool:
    return any(c in packed for c in children(node))


def _ends(function: Function, start: tuple[str, int | None], stop: tuple[str, int | None]) -> tuple[Call, Call]:
    calls = [node for node in post_order(function.body) if isinstance(node, Call)]

    def find(name: str, index: int | None, after: int, role: str) -> int:
        places = [k for k, node in enumerate(calls) if node.op.name == name and k > after and index in (None, k)]
        place = "" if index is None else f" at place {index}"
        require(places, GraphError, "graph_pack", f"there is no {role} operator {name}{place}")
        return places[0]

    first = find(*start, -1, "start")
    return calls[first], calls[find(*stop, first, "stop")]


class Packer:
    """Packs whatever `inside` says, of a node and of what is packed before it, and `start` as soon as it is there."""

    def __init__(
        self, blocks: Blocks, inside: Callable[[Expr, Mapping[Expr, Expr]], bool], start: Expr | None = None
    ) -> None:
        self.blocks, self.inside, self.start = blocks, inside, start
        self.plain: dict[Expr, Expr] = {}
        self.packed: dict[Expr, Expr] = {}
        self._converted: dict[Expr, Expr] = {}

    def run(self, body: Expr) -> Expr:
        """The body with everything inside packed; itself in plain layout, unless it is inside."""
        for node in post_order(body):
            if self.inside(node, self.packed):
                self.packed[node] = self._inside(node)
                continue
            self.plain[node] = rebuild(node, [self.unpacked(c) for c in children(node)])
            if node is self.start:
                self.packed[node] = self.blocks.pack(self.plain[node])
        return self.plain[body] if body in self.plain else self.packed[body]

    def unpacked(self, node: Expr) -> Expr:
        """A node of the old graph in plain layout; numbers change their layout before they are widened."""
        if node not in self.plain:
            widened = _widens(node)
            self.plain[node] = (
                rebuild(node, [self.unpacked(c) for c in children(node)])
                if widened else self.blocks.unpack(self.packed[node], node.shape)
            )  # fmt: skip
        return self.plain[node]

    def _inside(self, node: Expr) -> Expr:
        """A node of the packed part."""
        if is_op(node, "nn.conv2d"):
            return self._conv2d(node)
        if is_op(node, "nn.dense"):
            weight = _known(node).value
            one = {"strides": (1, 1), "padding": (0, 0)}
            return self._product(node.args[0], self.blocks.pack_weight(weight[:, :, None, None]), one)
        if is_window(node):
            (data,) = children(node)
            if is_op(node, "sum"):
                return window_packed(node, self._data(*children(data)))
            return call("cast", window_packed(node, self._data(data)), dtype="int8")
        if is_op(node, "nn.batch_flatten") and node.args[0].shape[2:] == (1, 1):
            return self._data(node.args[0])
        if is_op(node, "nn.pad"):
            return _pad(node, self._data(node.args[0]))
        if is_op(node, "nn.bias_add"):
            law = "a bias must lie along the channels"
            require(node.attrs["axis"] in (1, -3), GraphError, "graph_pack: nn.bias_add", law, axis=node.attrs["axis"])
            return call("add", *[self._operand(a, node) for a in node.args])
        elementwise = isinstance(node, Call) and node.op.pattern == OpPattern.ELEMWISE
        if elementwise or is_op(node, "annotation.stop_fusion", *BROADCASTS):
            return rebuild(node, [self._operand(a, node) for a in children(node)])
        raise GraphError(f"graph_pack: {node!r} between start and stop operator has no packed form")

    def _data(self, arg: Expr) -> Expr:
        """A node of the old graph in blocks; what is plain is packed once, whoever reads it, and widened after that."""
        if arg in self.packed:
            return self.packed[arg]
        if arg not in self._converted and _widens(arg):
            self._converted[arg] = rebuild(arg, [self._data(c) for c in children(arg)])
        elif arg not in self._converted:
            self._converted[arg] = stop_fusion(self.blocks.pack(self.plain[arg]))
        return self._converted[arg]

    def _operand(self, arg: Expr, node: Expr) -> Expr:
        if arg in self.packed or not isinstance(arg, Constant):
            return self._data(arg)
        if arg.value.size == 1:
            return Constant(arg.value.reshape(()))
        channels = node.shape[1]
        ones = (1,) * (len(node.shape) - 2)
        along = arg.shape in ((channels, *ones), (1, channels, *ones)) or (
            is_op(node, "nn.bias_add") and arg.shape == (channels,)
        )
        law = "a constant must be a scalar or lie along the channels"
        require(along, GraphError, "graph_pack", law, shape=arg.shape, channels=channels)
        return Constant(self.blocks.pack_channels(arg.value))

    def _conv2d(self, node: Call) -> Expr:
        _check_packable(node)
        weight, padding = _known(node).value, node.attrs["padding"][:2]
        if node.attrs["groups"] > 1:
            groups = Constant(packed_groups(weight, self.blocks.channels))
            return call(GROUPED, self._data(node.args[0]), groups, strides=node.attrs["strides"], padding=padding)
        attrs = {"strides": node.attrs["strides"], "padding": padding}
        return self._product(node.args[0], self.blocks.pack_weight(weight), attrs)

    def _product(self, data: Expr, weight: Array, attrs: Mapping[str, Any]) -> Expr:
        layouts = {"data_layout": self.blocks.data_layout, "kernel_layout": self.blocks.kernel_layout}
        return call(CONV, self._data(data), Constant(weight), **attrs, **layouts)


def _widens(node: Expr) -> bool:
    return is_op(node, "cast") and node.dtype == "int32" and node.args[0].dtype == "int8"


def _known(node: Call) -> Constant:
    weight = node.args[1]
    known = isinstance(weight, Constant)
    require(known, GraphError, f"graph_pack: {node.op.name}", "the weight must be a constant", weight=weight)
    assert isinstance(weight, Constant)
    return weight


def _check_packable(node: Call) -> None:
    """Raise GraphError for a convolution that has no packed form."""
    attrs, subject = node.attrs, "graph_pack: nn.conv2d"
    kinds = (node.args[0].dtype, node.args[1].dtype, node.dtype)
    law = "between start and stop operator, int8 by int8 gives int32 (is the network quantised?)"
    require(kinds == ("int8", "int8", "int32"), GraphError, subject, law, dtypes=kinds)
    layouts = (attrs["data_layout"], attrs["kernel_layout"])
    require(layouts == ("NCHW", "OIHW"), GraphError, subject, "the layouts must be NCHW and OIHW", layouts=layouts)
    channels = node.args[0].shape[1]
    simple = attrs["groups"] in (1, channels) and node.shape[1] in (channels, *[node.shape[1]] * (attrs["groups"] == 1))
    simple = simple and attrs["dilation"] == (1, 1)
    law = "groups and dilation have no packed form, but groups of one channel in and out"
    require(simple, GraphError, subject, law, groups=attrs["groups"], dilation=attrs["dilation"])
    before, after = attrs["padding"][:2], attrs["padding"][2:]
    require(before == after, GraphError, subject, "the padding must be symmetric", padding=attrs["padding"])


def _pad(node: Call, data: Expr) -> Expr:
    width = node.attrs["pad_width"]
    law = "only height and width can be padded"
    require(width[:2] == ((0, 0),) * 2, GraphError, "graph_pack: nn.pad", law, pad_width=width)
    return Call(node.op, (data,), {**node.attrs, "pad_width": (*width, (0, 0), (0, 0))})
