"""Graph packing: a part of the network in the layout of the machine.

Data are packed behind the start operator and unpacked in front of the stop operator.  What lies between them is
rewritten: integer convolutions become `nn.conv2d_packed` with packed weights, constants along the channels are
packed, and operators that look at one element at a time stay as they are.  The values do not change by a bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.module import IRModule, main_function
from relay_lite.ir.nodes import Call, Constant, Expr, Function, children, rebuild
from relay_lite.ir.op_registry import OpPattern
from relay_lite.ir.visit import is_op, post_order
from te_lite.errors import require

from .packed_conv import conv2d_packed
from .packed_layout import Blocks

BROADCASTS = ("add", "subtract", "multiply", "maximum", "minimum")
DEVICE_ANNOT = "device_annot"


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
    packer = _Packer(Blocks(bfactor, cfactor), start, stop)
    attrs = {**function.attrs, DEVICE_ANNOT: True} if device_annot else function.attrs
    return Function(function.params, packer.run(function.body), attrs)


def _ends(function: Function, start: tuple[str, int | None], stop: tuple[str, int | None]) -> tuple[Call, Call]:
    calls = [node for node in post_order(function.body) if isinstance(node, Call)]

    def find(name: str, index: int | None, after: int, role: str) -> int:
        places = [k for k, node in enumerate(calls) if node.op.name == name and k > after and index in (None, k)]
        place = "" if index is None else f" at place {index}"
        require(places, GraphError, "graph_pack", f"there is no {role} operator {name}{place}")
        return places[0]

    first = find(*start, -1, "start")
    return calls[first], calls[find(*stop, first, "stop")]


@dataclass(frozen=True)
class _Packer:
    blocks: Blocks
    start: Call
    stop: Call

    def run(self, body: Expr) -> Expr:
        plain: dict[Expr, Expr] = {}
        packed: dict[Expr, Expr] = {}
        for node in post_order(body):
            if node is not self.stop and any(c in packed for c in children(node)):
                packed[node] = self._inside(node, packed, plain)
                continue
            for child in children(node):
                if child in packed and child not in plain:
                    plain[child] = self.blocks.unpack(packed[child], child.shape[1])
            plain[node] = rebuild(node, [plain[c] for c in children(node)])
            if node is self.start:
                packed[node] = self.blocks.pack(plain[node])
        law = "the result must lie behind the stop operator"
        require(body in plain, GraphError, "graph_pack", law, stop=self.stop.op.name)
        return plain[body]

    def _inside(self, node: Expr, packed: dict[Expr, Expr], plain: dict[Expr, Expr]) -> Expr:
        """A node of the packed part."""
        if is_op(node, "nn.conv2d"):
            return self._conv2d(node, packed)
        if is_op(node, "nn.pad"):
            return _pad(node, packed[node.args[0]])
        if is_op(node, "nn.bias_add"):
            law = "a bias must lie along the channels"
            require(node.attrs["axis"] in (1, -3), GraphError, "graph_pack: nn.bias_add", law, axis=node.attrs["axis"])
            return call("add", *[self._operand(a, node, packed, plain) for a in node.args])
        elementwise = isinstance(node, Call) and node.op.pattern == OpPattern.ELEMWISE
        if elementwise or is_op(node, "annotation.stop_fusion", *BROADCASTS):
            return rebuild(node, [self._operand(a, node, packed, plain) for a in children(node)])
        raise GraphError(f"graph_pack: {node!r} between start and stop operator has no packed form")

    def _operand(self, arg: Expr, node: Expr, packed: dict[Expr, Expr], plain: dict[Expr, Expr]) -> Expr:
        if arg in packed:
            return packed[arg]
        if not isinstance(arg, Constant):
            return self.blocks.pack(plain[arg])
        if arg.value.size == 1:
            return Constant(arg.value.reshape(()))
        channels = node.shape[1]
        along = arg.shape in ((channels, 1, 1), (1, channels, 1, 1)) or (
            is_op(node, "nn.bias_add") and arg.shape == (channels,)
        )
        law = "a constant must be a scalar or lie along the channels"
        require(along, GraphError, "graph_pack", law, shape=arg.shape, channels=channels)
        return Constant(self.blocks.pack_channels(arg.value))

    def _conv2d(self, node: Call, packed: dict[Expr, Expr]) -> Expr:
        _check_packable(node)
        data, kernel = node.args
        known = isinstance(kernel, Constant) and data in packed
        require(known, GraphError, "graph_pack: nn.conv2d", "the weight must be a constant", weight=kernel)
        assert isinstance(kernel, Constant)
        return conv2d_packed(
            packed[data], Constant(self.blocks.pack_weight(kernel.value)), strides=node.attrs["strides"],
            padding=node.attrs["padding"][:2], data_layout=self.blocks.data_layout,
            kernel_layout=self.blocks.kernel_layout,
        )  # fmt: skip


def _check_packable(node: Call) -> None:
    """Raise GraphError for a convolution that has no packed form."""
    attrs, subject = node.attrs, "graph_pack: nn.conv2d"
    kinds = (node.args[0].dtype, node.args[1].dtype, node.dtype)
    law = "between start and stop operator, int8 by int8 gives int32 (is the network quantised?)"
    require(kinds == ("int8", "int8", "int32"), GraphError, subject, law, dtypes=kinds)
    layouts = (attrs["data_layout"], attrs["kernel_layout"])
    require(layouts == ("NCHW", "OIHW"), GraphError, subject, "the layouts must be NCHW and OIHW", layouts=layouts)
    simple = attrs["groups"] == 1 and attrs["dilation"] == (1, 1)
    law = "groups and dilation have no packed form"
    require(simple, GraphError, subject, law, groups=attrs["groups"], dilation=attrs["dilation"])
    before, after = attrs["padding"][:2], attrs["padding"][2:]
    require(before == after, GraphError, subject, "the padding must be symmetric", padding=attrs["padding"])


def _pad(node: Call, data: Expr) -> Expr:
    width = node.attrs["pad_width"]
    law = "only height and width can be padded"
    require(width[:2] == ((0, 0),) * 2, GraphError, "graph_pack: nn.pad", law, pad_width=width)
    return Call(node.op, (data,), {**node.attrs, "pad_width": (*width, (0, 0), (0, 0))})
