"""Packed data in a frame of zeros, and how many windows they have."""

from __future__ import annotations

from collections.abc import Sequence

from te_lite import Tensor
from te_lite.errors import ExprError, require
from te_lite.topi.nn import pad as pad_by


def framed(
    data: Tensor, size: Sequence[int], strides: Sequence[int], padding: Sequence[int], subject: str
) -> tuple[Tensor, tuple[int, int]]:
    """int8 data NCHW1n16c with `padding` zeros on both sides of rows and columns, and the (rows, columns) of windows of
    `size`.  Raises ExprError for what does not fit."""
    ok = data.ndim == 6 and data.dtype == "int8"
    require(ok, ExprError, subject, "data have six dimensions and are int8", data=data.shape, dtype=data.dtype)
    pairs = len(padding) == len(strides) == 2 and min(padding) >= 0 and min(strides) >= 1
    law = "padding and strides are pairs (rows, columns), strides of at least 1"
    require(pairs, ExprError, subject, law, padding=tuple(padding), strides=tuple(strides))
    image = pad_by(data, (0, 0, *padding, 0, 0), name="pad_data", pad_value=0) if any(padding) else data
    spare = [n - k for n, k in zip(image.shape[2:4], size, strict=True)]
    require(min(spare) >= 0, ExprError, subject, "the kernel must fit the padded image", image=image.shape[2:4])
    rows, columns = (n // s + 1 for n, s in zip(spare, strides, strict=True))
    return image, (rows, columns)
