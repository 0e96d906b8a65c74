"""Which computation an operator gets on a target, where there is a choice.

The one choice so far: a 3x3 convolution in NHWC can be computed by the winograd method, on tiles of m x m results.
"""

from __future__ import annotations

from ..ir.nodes import Call

FEW_CHANNELS, MANY_CHANNELS = 64, 512
FEW_TILES = 16


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
    floats = "float" in data.dtype and "float" in kernel.dtype
    if not (plain and layouts and floats and kernel.shape[:2] == (3, 3)):
        return None
    if target == "cuda":
        return 4 if data.shape[1] % 8 == 0 else 2
    n, h, w, _ = conv.shape
    tiles = n * -(-h // 4) * -(-w // 4)
    return 4 if FEW_CHANNELS < kernel.shape[3] < MANY_CHANNELS and tiles >= FEW_TILES else None
