"""Tensor maps of the block emulator: what `cuTensorMapEncodeTiled` makes on a device.

A map names its array by its number among the arrays of a run, so it is passed beside them
(`copy_engine.h` reads it, and says what no map may be).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ..program.cuda_program import MAP_BYTES, SWIZZLES, TFLOAT32, TensorMap

MAGIC = 0x50414D54
MOST_AXES = 5


def map_of(m: TensorMap, number: int) -> np.void:
    """The map that a program says, of the array of this `number`."""
    array = np.empty(m.extents, f"V{MAP_BYTES[m.dtype]}")  # addressed, and never read
    return tensor_map(array, number, m.box, m.swizzle, m.steps, rounds=m.dtype == TFLOAT32, margins=m.margins)


def tensor_map(
    array: np.ndarray, number: int, box: Sequence[int], swizzle: int = 0, steps: Sequence[int] = (), offset: int = 0,
    rounds: bool = False, margins: Sequence[int] = (),
) -> np.void:  # fmt: skip
    """The map of boxes of `array`, the array of this `number`, `offset` bytes behind its start.

    `box` is in the order of the array's axes, as are `steps` between elements; `swizzle` is in bytes.
    One that `rounds` fetches floats as the nearest TF32 numbers; one with `margins` is of windows (`TensorMap`).
    """
    axes, left = array.ndim, MOST_AXES - array.ndim
    boxes = *box[::-1], *[1] * left, *(steps or (1,) * axes)[::-1], *[1] * left
    numbers = *array.shape[::-1], *[1] * left, *array.strides[-2::-1], *[0] * left, *boxes, rounds
    head = MAGIC, number, offset, array.itemsize, axes, SWIZZLES[swizzle], 0
    windows = *(margins or (0,) * 4)[::-1], margins != ()
    made: np.void = np.void(struct.pack("<IIQBBBB5I4Q5H5BB4BB35x", *head, *numbers, *windows))
    return made
