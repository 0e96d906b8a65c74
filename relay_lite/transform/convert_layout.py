"""`ConvertLayout`: put chosen operators into chosen layouts, and let the layouts flow between them.

to_nhwc = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"], "nn.max_pool2d": ["NHWC"]})
with PassContext(opt_level=3):
    module = Sequential([to_nhwc])(module)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Call, Function
from .layout_rewriter import rewrite_layouts
from .layout_rules import ADAPTIVE, ANCHORS, IMAGES, POOLS
from .sequential import Pass

CONVERTIBLE = (*ANCHORS, *POOLS, *ADAPTIVE, *IMAGES)
_SPATIAL = {"1d": "W", "2d": "HW", "3d": "DHW"}


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:  # a class in TVM, and written like one
    """A pass that converts the named operators; level 3.

    For a convolution two layouts are named, of data and kernel; for a pool or a resize one.  "default" is the kernel
    that goes with the data: OIHW with channels first, HWIO with channels last (HWOI when depthwise; for transposed
    ones IOHW and HWIO).  Raises GraphError for an operator that has no layout, or a layout of other letters.
    """
    wishes = {name: _checked(name, layouts) for name, layouts in desired_layouts.items()}

    def demand(node: Call) -> dict[int, str]:
        return dict(enumerate(_layouts(node, wishes[node.op.name]))) if node.op.name in wishes else {}

    def run(function: Function) -> Function:
        return rewrite_layouts(function, demand)

    return Pass("ConvertLayout", 3, (), run)


def _checked(name: str, layouts: Sequence[str]) -> tuple[str, ...]:
    law = f"operators with layouts are {', '.join(CONVERTIBLE)}"
    require(name in CONVERTIBLE, GraphError, "ConvertLayout", law, name=name)
    count = 2 if name in ANCHORS else 1
    law = f"{count} layouts are needed, as in {['NHWC', 'default'][:count]}"
    right = not isinstance(layouts, str) and len(layouts) == count and all(isinstance(x, str) for x in layouts)
    require(right, GraphError, f"ConvertLayout of {name}", law, got=layouts)
    return tuple(layouts)


def _layouts(node: Call, wish: tuple[str, ...]) -> tuple[str, ...]:
    """The layouts that a call is wanted in."""
    data = wish[0]
    spatial = _SPATIAL[node.op.name.removesuffix("_transpose")[-2:]] if node.op.name in ANCHORS else ""
    if node.op.name not in ANCHORS:
        _require_letters(node, node.attrs["layout"], data)
        return (data,)
    _require_letters(node, node.attrs["data_layout"], data)
    kernel = default_kernel(node, data, spatial) if wish[1] == "default" else wish[1]
    _require_letters(node, node.attrs["kernel_layout"], kernel)
    return data, kernel


def default_kernel(node: Call, data_layout: str, spatial: str) -> str:
    """The kernel layout that goes with a data layout."""
    channels_first = data_layout.index("C") == 1
    if node.op.name.endswith("_transpose"):
        return f"IO{spatial}" if channels_first else f"{spatial}IO"
    if channels_first:
        return f"OI{spatial}"
    return f"{spatial}OI" if _is_depthwise(node) else f"{spatial}IO"


def _is_depthwise(node: Call) -> bool:
    channels = node.args[0].shape[node.attrs["data_layout"].index("C")]
    filters = node.args[1].shape[node.attrs["kernel_layout"].index("O")]
    return node.op.name == "nn.conv2d" and node.attrs["groups"] == channels == filters > 1


def _require_letters(node: Call, has: str, wanted: str) -> None:
    law = f"a layout of the letters of {has} is needed"
    require(sorted(has) == sorted(wanted), GraphError, f"ConvertLayout of {node.op.name}", law, got=wanted)
