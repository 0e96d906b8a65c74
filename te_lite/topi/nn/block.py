"""Moving square blocks of pixels into channels and back."""

from __future__ import annotations

from ...computation.tensor import Tensor
from ...errors import ExprError, require
from ...expr.expr import Expr
from ..tag import INJECTIVE
from ..utils import ax_compute, layout_axes


def _parts(data: Tensor, layout: str, what: str) -> tuple[int, int, int, int]:
    """The positions of N, C, H and W."""
    at_n, at_c, spatial = layout_axes(layout, data.ndim, what)
    require(len(spatial) == 2, ExprError, what, "there must be two spatial dimensions", layout=layout)
    return at_n, at_c, spatial[0], spatial[1]


def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Tensor:
    """[N, C, H, W] as [N, C / b^2, H * b, W * b] (stage `depth_to_space`).

    `mode`: in "DCR" the place inside a block is the slow part of the channel, in "CRD" the fast one.
    Raises ExprError when b^2 does not divide C.
    """
    b = block_size
    _, c, h, w = _parts(data, layout, "depth_to_space")
    ok = b > 0 and data.shape[c] % (b * b) == 0 and mode in ("DCR", "CRD")
    require(ok, ExprError, "depth_to_space", "the mode is DCR or CRD and block_size^2 divides the channels",
            data=data.shape, block_size=b, mode=mode)  # fmt: skip
    channels = data.shape[c] // (b * b)
    shape = list(data.shape)
    shape[c], shape[h], shape[w] = channels, data.shape[h] * b, data.shape[w] * b

    def element(*i: Expr) -> Expr:
        at = list(i)
        inner = i[h] % b * b + i[w] % b
        at[c] = inner * channels + i[c] if mode == "DCR" else i[c] * (b * b) + inner
        at[h], at[w] = i[h] // b, i[w] // b
        return data[at]

    return ax_compute(shape, element, "depth_to_space", INJECTIVE)


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """[N, C, H, W] as [N, C * b^2, H / b, W / b], the inverse of "DCR" (stage `space_to_depth`)."""
    b = block_size
    _, c, h, w = _parts(data, layout, "space_to_depth")
    ok = b > 0 and data.shape[h] % b == 0 and data.shape[w] % b == 0
    require(ok, ExprError, "space_to_depth", "block_size must divide height and width", data=data.shape, block_size=b)
    channels = data.shape[c]
    shape = list(data.shape)
    shape[c], shape[h], shape[w] = channels * b * b, data.shape[h] // b, data.shape[w] // b

    def element(*i: Expr) -> Expr:
        at = list(i)
        inner = i[c] // channels
        at[c], at[h], at[w] = i[c] % channels, i[h] * b + inner // b, i[w] * b + inner % b
        return data[at]

    return ax_compute(shape, element, "space_to_depth", INJECTIVE)
