"""All of a quantised network that the machine has programs of in its layout, wherever it stands.

`graph_pack` packs what lies between two operators, all of it.  This looks at each operator: convolutions and dense
layers on int8 numbers are packed, with the integer operations and windows after them; whatever else there is stays as
it is, and data change their layout on the way.  The values do not change by a bit.
"""

from __future__ import annotations

from collections.abc import Mapping

from relay_lite.ir.module import IRModule, main_function
from relay_lite.ir.nodes import Call, Expr, Function, children
from relay_lite.ir.op_registry import OpPattern
from relay_lite.ir.visit import is_op

from .pack import BROADCASTS, DEVICE_ANNOT, FUSED_ADDITIONS, Packer
from .packed_layout import Blocks
from .packed_window import is_window
from .whole_blocks import whole_blocks

INTEGERS = ("int8", "int32")


def pack_whole(expr: Function | IRModule, blocks: Blocks) -> Function:
    """The function with its products on integers in blocks; additions of two images are done with a convolution.

    Raises GraphError for a product that has no packed form.
    """
    function = whole_blocks(main_function(expr), blocks.channels)
    body = Packer(blocks, _inside).run(function.body)
    return Function(function.params, body, {**function.attrs, DEVICE_ANNOT: True, FUSED_ADDITIONS: True})


def _inside(node: Expr, packed: Mapping[Expr, Expr]) -> bool:
    if is_op(node, "nn.conv2d", "nn.dense"):
        return node.args[0].dtype == "int8"
    if not isinstance(node, Call) or node.dtype not in INTEGERS:
        return False
    alike = node.op.pattern == OpPattern.ELEMWISE or is_op(node, "annotation.stop_fusion", *BROADCASTS)
    flat = is_op(node, "nn.batch_flatten") and node.args[0].shape[2:] == (1, 1)
    return (alike or flat or is_window(node)) and any(c in packed for c in children(node))
