"""The convolutions of ResNet-18, and the best tiles that were published for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vta_sim import Device
from vta_sim.sim import Buffer
from vta_sim.top import ConvKnobs

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Layer:
    """A convolution of one square image; channels are counted in blocks of 16 in `ci` and `co`."""

    size: int
    channels_in: int
    channels_out: int
    kernel: int
    pad: int
    stride: int

    @property
    def ci(self) -> int:
        return self.channels_in // 16

    @property
    def co(self) -> int:
        return self.channels_out // 16

    @property
    def out(self) -> int:
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1


tiles_of = partial(ConvKnobs, 1)
"""Rows, columns and blocks of channels in and out of a tile, virtual threads over output channels and rows."""

LAYERS = {
    "C2": Layer(56, 64, 64, 3, 1, 1),
    "C3": Layer(56, 64, 128, 3, 1, 2),
    "C4": Layer(56, 64, 128, 1, 0, 2),
    "C5": Layer(28, 128, 128, 3, 1, 1),
    "C6": Layer(28, 128, 256, 3, 1, 2),
    "C7": Layer(28, 128, 256, 1, 0, 2),
    "C8": Layer(14, 256, 256, 3, 1, 1),
    "C9": Layer(14, 256, 512, 3, 1, 2),
    "C10": Layer(14, 256, 512, 1, 0, 2),
    "C11": Layer(7, 512, 512, 3, 1, 1),
}

BEST = {
    "C2": tiles_of(8, 56, 1, 2, 2, 1),
    "C3": tiles_of(7, 28, 1, 4, 2, 1),
    "C4": tiles_of(7, 28, 1, 4, 1, 2),
    "C5": tiles_of(14, 28, 1, 2, 1, 2),
    "C6": tiles_of(14, 14, 1, 4, 2, 1),
    "C7": tiles_of(7, 14, 1, 8, 2, 1),
    "C8": tiles_of(14, 14, 1, 4, 2, 1),
    "C9": tiles_of(7, 7, 1, 16, 2, 1),
    "C10": tiles_of(7, 7, 1, 16, 2, 1),
    "C11": tiles_of(7, 7, 1, 16, 2, 1),
}
"""The best tiles published for each layer."""


def buffer_of(device: Device, array: Array) -> Buffer:
    """A new buffer that holds an array."""
    buffer = device.dram.alloc(array.nbytes)
    buffer.write(array)
    return buffer
