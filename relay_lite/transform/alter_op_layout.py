"""`AlterOpLayout`: the computation that a target prefers, in the layout that it prefers.

A 3x3 convolution in NHWC can be computed by the winograd method, on tiles of m x m results; strides can be folded into
channels; a constant weight of a product can be stored either way.

A convolution that is computed by winograd reads its weight transformed; the transformation is put on the weight as
operators, and vanishes in `FoldConstant` when the weight is a constant.  So is the transposition of a product's weight,
and what folds the strides of a convolution with few channels into these (`fold_stride.py`).
Layouts flow through the graph on the way (see `layout_rewriter`), which raises biases to the rank of their data.
"""

from __future__ import annotations

from ansor.core.target.target import ELEMENTS, HALVES, STRICT, TF32
from te_lite.expr.dtype import BYTES

from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr, Function
from .fold_stride import with_folded_stride
from .layout_rewriter import rewrite_layouts
from .sequential import Pass, PassContext, acts_on, register_config

# ----------------------------------------------------------------------------------------------------------- the choice


LEAST_INPUTS, LEAST_OUTPUTS = 16, 32
"""Channels of a convolution that is computed by winograd on `c`."""
TRANSFORM = 500
"""Operations of a product that take as long as the transforms of a tile of a channel (56 x 56, 64 to 64 channels)."""
BYTE = 13
"""Operations that take as long as a byte of a weight, fitted to the measurements at `_least`."""
FEW_ROWS = 32
FEWEST_CHANNELS_OF_TENSOR_CORES = 8


def winograd_tile(conv: Call, target: str) -> int | None:
    """The tile size m with which an `nn.conv2d` is computed by winograd on a kind of target; None: it is not.

    On `cuda` m is 4 for an input height that 8 divides, else 2.  On `c` it is the one that takes least by an estimate,
    see `_least`.
    """
    attrs = conv.attrs
    data, kernel = conv.args
    plain = attrs["groups"] == 1 and tuple(attrs["strides"]) == (1, 1) and tuple(attrs["dilation"]) == (1, 1)
    layouts = (attrs["data_layout"], attrs["kernel_layout"]) == ("NHWC", "HWIO") and not attrs["out_layout"]
    floats = {data.dtype, kernel.dtype, conv.dtype} in ({"float32"}, {"float64"})  # transforms lose digits
    if not (plain and layouts and floats and kernel.shape[:2] == (3, 3)):
        return None
    if target == "cuda":
        return 4 if data.shape[1] % 8 == 0 else 2
    return _least(conv) if kernel.shape[2] >= LEAST_INPUTS and kernel.shape[3] >= LEAST_OUTPUTS else None


def _least(conv: Call) -> int | None:
    """How an `nn.conv2d` of 3x3 in NHWC takes least on a processor: by tiles of 4 or 2, or None, directly.

    Larger tiles need fewer products, and weights that are 16/9 and 4 times as large, which come from memory.  On two
    cores with AVX2 whose caches were emptied, 24 programs each, directly and with tiles of 2 and 4: 7 x 7 of 512
    channels 2.55, 2.73, 3.03 ms; 14 x 14 of 256 channels 1.99, 1.66, 1.64 ms; with warm caches 28 x 28 of 512 channels
    29.0, 25.4, 18.3 ms, 14 x 14 of them 6.9, 5.3, 6.7 ms.  One is judged wrongly: 7 x 7 of 256 channels, which stays
    direct, takes 0.98, 0.76, 0.78 ms with emptied caches.
    """
    n, h, w, outputs = conv.shape
    inputs = conv.args[0].shape[3]

    def operations(m: int) -> float:
        """As many as take the time of the products, the transforms, and the weight of a pair of channels."""
        tiles, products = n * -(-h // m) * -(-w // m), (m + 2) ** 2
        transforms = TRANSFORM * tiles * (1 / inputs + 1 / outputs) if m > 1 else 0
        return 2 * products * tiles + transforms + BYTE * BYTES[conv.dtype] * products

    m = min((1, 2, 4), key=operations)
    return m if m > 1 else None


def folds_stride(conv: Call, target: str, precision: str) -> bool:
    """Whether the strides of an `nn.conv2d` are folded into its channels: few channels, with a constant weight, where
    tensor cores multiply."""
    kernel = conv.args[1]
    plain = plain_nhwc(conv) and tuple(conv.attrs["dilation"]) == (1, 1) and max(conv.attrs["strides"]) > 1
    few = plain and kernel.shape[2] < FEWEST_CHANNELS_OF_TENSOR_CORES
    return few and isinstance(kernel, Constant) and on_tensor_cores(conv, target, precision)


def plain_nhwc(conv: Call) -> bool:
    """Whether an `nn.conv2d` has one group, and channels last."""
    layouts = (conv.attrs["data_layout"], conv.attrs["kernel_layout"]) == ("NHWC", "HWIO")
    return layouts and not conv.attrs["out_layout"] and conv.attrs["groups"] == 1


def on_tensor_cores(product: Call, target: str, precision: str) -> bool:
    """Whether tensor cores of a kind of target multiply the factors of a product in a precision."""
    dtype = product.args[0].dtype
    return target == "cuda" and (dtype in HALVES.values() or (dtype == "float32" and precision in ELEMENTS))


def reads_turned(dense: Call, target: str) -> bool:
    """Whether an `nn.dense` reads its weight as [K, N] on a kind of target: on `cuda`, where blocks fetch tiles of it.

    Not one of bytes, which tensor cores read along the terms.  The terms of few rows are shared out among threads
    instead, which read along a row of [N, K].
    """
    data, weight = dense.args
    fetched = target == "cuda" and isinstance(weight, Constant) and data.shape[0] >= FEW_ROWS
    return fetched and BYTES[weight.dtype] > 1


WINOGRAD = "relay.AlterOpLayout.winograd"
"""Option of a `PassContext`: whether convolutions may be computed by Winograd's method."""
register_config(WINOGRAD, bool)


@acts_on("nn.conv2d", "nn.dense")
def AlterOpLayout(target: str = "c", precision: str = STRICT) -> Pass:  # a class in TVM, and written like one
    """The pass for a kind of target, `c` or `cuda`, and the precision of its products; level 3.

    In TF32 nothing is computed by winograd, whose transforms lose digits.
    """

    def choose(node: Call) -> Expr:
        if node.op.name == "nn.dense":
            return _of_turned(node) if reads_turned(node, target) else node
        if node.op.name == "nn.conv2d" and folds_stride(node, target, precision):
            return with_folded_stride(node)
        exact = precision != TF32 and PassContext.current().option(WINOGRAD, True)
        m = winograd_tile(node, target) if node.op.name == "nn.conv2d" and exact else None
        return node if m is None else _as_winograd(node, m, by_axis=target == "c")

    def run(function: Function) -> Function:
        return rewrite_layouts(function, finish=choose)

    return Pass("AlterOpLayout", 3, (), run)


def _as_winograd(conv: Call, m: int, by_axis: bool) -> Call:
    """An NHWC convolution as winograd over tiles of m x m; its weight becomes [m+2, m+2, CO, CI]."""
    data, kernel = conv.args
    by_output = call("transpose", kernel, axes=(3, 2, 0, 1))
    weight = call("nn.contrib_conv2d_winograd_weight_transform", by_output, tile_size=m)
    attrs = {**conv.attrs, "tile_size": m, "channels": kernel.shape[3], "by_axis": by_axis}
    return call("nn.contrib_conv2d_winograd_without_weight_transform", data, weight, **attrs)


def _of_turned(dense: Call) -> Call:
    """`nn.dense` of a weight [N, K] as a product with [K, N]."""
    data, weight = dense.args
    return call("nn.matmul", data, call("transpose", weight, axes=(1, 0)), **dense.attrs)
