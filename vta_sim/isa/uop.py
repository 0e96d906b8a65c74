"""Micro-ops: three indices in 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from te_lite.errors import require

from ..core.config import Config
from ..core.errors import IsaError
from .fields import Ints, formats

Uops = np.ndarray[Any, np.dtype[np.uint32]]


def pack_uops(config: Config, dst: ArrayLike, src: ArrayLike, wgt: ArrayLike) -> Uops:
    """Three lists of indices as uint32 [n].  Raises IsaError when an index does not fit its field."""
    out = np.zeros(np.broadcast_shapes(np.shape(dst), np.shape(src), np.shape(wgt)), np.uint32)
    for field, values in zip(formats(config).uop, (dst, src, wgt), strict=True):
        value = np.asarray(values, np.int64)
        low, high = field.range
        wrong = value[(value < low) | (value > high)]
        law = f"the index {field.name} must lie in {low}..{high}"
        require(wrong.size == 0, IsaError, "micro-op", law, found=wrong.tolist()[:1])
        out |= value.astype(np.uint32) << np.uint32(field.low)
    return out


def unpack_uops(config: Config, uops: Uops) -> tuple[Ints, Ints, Ints]:
    """The indices (dst, src, wgt), int64 [n] each, of uint32 [n]."""
    dst, src, wgt = (
        (uops >> np.uint32(f.low) & np.uint32((1 << f.width) - 1)).astype(np.int64) for f in formats(config).uop
    )
    return dst, src, wgt
