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
    """Whether the strides of an `nn.conv2d` are folded into its channels: on `cuda`, of few channels, with a constant
    weight, where tensor cores multiply what it reads in that precision."""
    data, kernel = conv.args
    attrs = conv.attrs
    plain = attrs["groups"] == 1 and tuple(attrs["dilation"]) == (1, 1) and max(attrs["strides"]) > 1
    layouts = (attrs["data_layout"], attrs["kernel_layout"]) == ("NHWC", "HWIO") and not attrs["out_layout"]
    multiplied = data.dtype in HALVES.values() or (data.dtype == "float32" and precision in ELEMENTS)
    few = plain and layouts and kernel.shape[2] < FEWEST_CHANNELS_OF_TENSOR_CORES
    return target == "cuda" and few and multiplied and isinstance(kernel, Constant)


def reads_turned(dense: Call, target: str) -> bool:
    """Whether an `nn.dense` reads its weight as [K, N] on a kind of target: on `cuda`, where blocks fetch tiles of it.

    The terms of few rows are shared out among threads instead, which read along a row of [N, K].
    """
    data, weight = dense.args
    return target == "cuda" and isinstance(weight, Constant) and data.shape[0] >= FEW_ROWS
