"""Packed convolutions for the tests of the compiler: sizes, tensors, data, and what the result must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import te_lite as te
from te_lite import Tensor
from tests.vta_sim.conv import Layer
from vta_sim import CommandQueue, Device
from vta_sim.compiler import compile_schedule
from vta_sim.sim import Launch
from vta_sim.top import ConvKnobs, ConvShape, conv2d_packed, requantized, schedule_conv2d_packed

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Conv:
    """Images, rows, columns, blocks of input and output channels, kernel, padding and stride by rows and columns."""

    n: int
    h: int
    w: int
    ci: int
    co: int
    kernel: tuple[int, int]
    pad: tuple[int, int]
    stride: tuple[int, int]

    @property
    def shape(self) -> ConvShape:
        return ConvShape(self.h, self.w, self.ci, self.co, self.kernel, self.pad, self.stride)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Data, weights, and the convolution in int32."""
        data = te.placeholder((self.n, self.ci, self.h, self.w, 1, 16), name="data", dtype="int8")
        weights = te.placeholder((self.co, self.ci, *self.kernel, 16, 16), name="weights", dtype="int8")
        return data, weights, conv2d_packed(data, weights, self.stride, self.pad)

    def requantized(self) -> list[Tensor]:
        """Data, weights, and the output of a tuned convolution."""
        data, weights, conv = self.tensors()
        return [data, weights, requantized(conv)]

    def fill(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Random data and weights."""
        data = rng.integers(-128, 128, (self.n, self.ci, self.h, self.w, 1, 16), dtype=np.int8)
        return data, rng.integers(-128, 128, (self.co, self.ci, *self.kernel, 16, 16), dtype=np.int8)

    def sums(self, data: Array, weights: Array) -> Array:
        """The convolution, int64 [n, co, oh, ow, 1, 16]; every product by itself, in exact float64."""
        (ph, pw), (sh, sw), (oh, ow) = self.pad, self.stride, self.shape.out
        padded = np.pad(data[:, :, :, :, 0], ((0, 0), (0, 0), (ph, ph), (pw, pw), (0, 0))).astype(np.float64)
        total = np.zeros((self.n, self.co, oh, ow, 16))
        for y, x in np.ndindex(self.kernel):
            window = padded[:, :, y : y + sh * (oh - 1) + 1 : sh, x : x + sw * (ow - 1) + 1 : sw]
            total += np.einsum("ncyxk,ocik->noyxi", window, weights[:, :, y, x].astype(np.float64), optimize=True)
        out: Array = total.astype(np.int64)[:, :, :, :, None]
        return out

    def result(self, data: Array, weights: Array) -> Array:
        """The output of a tuned convolution, int8."""
        return np.clip(self.sums(data, weights) >> 8, 0, 127).astype(np.int8)


def conv_of(layer: Layer) -> Conv:
    """A square layer with one image."""
    both = (layer.kernel,) * 2, (layer.pad,) * 2, (layer.stride,) * 2
    return Conv(1, layer.size, layer.size, layer.ci, layer.co, *both)


class ConvProgram:
    """A compiled convolution, queued on a device, with buffers for its data, weights and output."""

    def __init__(self, device: Device, layer: Layer, knobs: ConvKnobs) -> None:
        self.device, self.conv = device, conv_of(layer)
        tensors = self.conv.requantized()
        self.program = compile_schedule(schedule_conv2d_packed(knobs, tensors[-1]), tensors)
        self.queue = CommandQueue(device)
        self.buffers = [device.dram.alloc(arg.size) for arg in self.program.args]

    def fill(self, rng: np.random.Generator) -> Array:
        """Random data and weights; gives what the output must be."""
        arrays = self.conv.fill(rng)
        for buffer, array in zip(self.buffers, arrays, strict=False):
            buffer.write(array)
        self.poison()
        return self.conv.result(*arrays)

    def poison(self) -> None:
        self.buffers[-1].data[...] = 0xAB

    def result(self) -> Array:
        """A copy of the output."""
        return self.buffers[-1].view(np.int8, self.program.args[-1].shape).copy()

    def run(self, rng: np.random.Generator | None = None) -> Launch:
        self.program.emit(self.queue, self.buffers)
        return self.queue.synchronize(rng)


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
