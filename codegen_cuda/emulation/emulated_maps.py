"""Tensor maps of the block emulator: what `cuTensorMapEncodeTiled` makes on a device.

A map names its array by its number among the arrays of a run, so it is passed beside them
(`copy_engine.h` reads it, and says what no map may be).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ..program.cuda_program import SWIZZLES

MAGIC = 0x50414D54
MOST_AXES = 5


def tensor_map(
    array: np.ndarray, number: int, box: Sequence[int], swizzle: int = 0, steps: Sequence[int] = (), offset: int = 0
) -> np.void:
    """The map of boxes of `array`, the array of this `number`, `offset` bytes behind its start.

    `box` is in the order of the array's axes, as are `steps` between elements; `swizzle` is in bytes.
    """
    axes = array.ndim
    fill = (1,) * (MOST_AXES - axes)
    rows = [*array.strides[-2::-1], *[0] * (MOST_AXES - axes)] if axes > 1 else [0] * (MOST_AXES - 1)
    numbers = (*array.shape[::-1], *fill), rows, (*box[::-1], *fill), (*(steps or (1,) * axes)[::-1], *fill)
    head = MAGIC, number, offset, array.itemsize, axes, SWIZZLES[swizzle], 0
    made: np.void = np.void(struct.pack("<IIQBBBB5I4Q5H5B41x", *head, *[x for part in numbers for x in part]))
    return made
