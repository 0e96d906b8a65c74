"""Which computation an operator gets on a target, where there is a choice.

A 3x3 convolution in NHWC can be computed by the winograd method, on tiles of m x m results; strides can be folded into
channels; a constant weight of a product can be stored either way.
"""

from __future__ import annotations

from ansor.core.target import ELEMENTS, HALVES

from ..ir.nodes import Call, Constant

FEW_CHANNELS, MANY_CHANNELS = 64, 512
FEW_TILES = 16
FEW_ROWS = 32
FEWEST_CHANNELS_OF_TENSOR_CORES = 8


def winograd_tile(conv: Call, target: str) -> int | None:
    """The tile size m with which an `nn.conv2d` is computed by winograd on a kind of target; None: it is not.

    On `cuda` m is 4 for an input height that 8 divides, else 2.  On `c` m is 4, for more than 64 and fewer than 512
    output channels, and at least `FEW_TILES` tiles: its weights are four times as large, and read once for each tile
    where the direct convolution reads them once for each point.
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
    n, h, w, _ = conv.shape
    tiles = n * -(-h // 4) * -(-w // 4)
    return 4 if FEW_CHANNELS < kernel.shape[3] < MANY_CHANNELS and tiles >= FEW_TILES else None


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

    The terms of few rows are shared out among threads instead, which read along a row of [N, K].
    """
    data, weight = dense.args
    return target == "cuda" and isinstance(weight, Constant) and data.shape[0] >= FEW_ROWS
