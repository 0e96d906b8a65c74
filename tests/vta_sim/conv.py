"""A tiled convolution written by hand as calls of the runtime, with the tokens that virtual threads need.

It is the program that the published counters, instructions and times belong to.  The compiler's programs are tested
against the same figures.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from vta_sim import CommandQueue, Device
from vta_sim.core.kinds import AluOp, Memory, Module
from vta_sim.runtime import KernelRecorder
from vta_sim.sim import Buffer, Launch

Array = np.ndarray[Any, np.dtype[Any]]
LOAD, COMPUTE, STORE = Module.LOAD, Module.COMPUTE, Module.STORE


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


@dataclass(frozen=True)
class Tiles:
    """Extents of a tile, and virtual threads over output channels and rows."""

    h: int
    w: int
    ci: int
    co: int
    oc_threads: int
    h_threads: int


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
    "C2": Tiles(8, 56, 1, 2, 2, 1),
    "C3": Tiles(7, 28, 1, 4, 2, 1),
    "C4": Tiles(7, 28, 1, 4, 1, 2),
    "C5": Tiles(14, 28, 1, 2, 1, 2),
    "C6": Tiles(14, 14, 1, 4, 2, 1),
    "C7": Tiles(7, 14, 1, 8, 2, 1),
    "C8": Tiles(14, 14, 1, 4, 2, 1),
    "C9": Tiles(7, 7, 1, 16, 2, 1),
    "C10": Tiles(7, 7, 1, 16, 2, 1),
    "C11": Tiles(7, 7, 1, 16, 2, 1),
}
"""The best tiles published for each layer."""


class ConvProgram:
    """The buffers of a convolution on a device, and the program that fills the output.  `tiles.ci` must be 1."""

    def __init__(self, device: Device, layer: Layer, tiles: Tiles) -> None:
        assert tiles.ci == 1
        self.layer, self.tiles, self.device = layer, tiles, device
        n = layer
        self.queue = CommandQueue(device)
        self.data = device.dram.alloc(n.ci * n.size**2 * 16)
        self.weights = device.dram.alloc(n.co * n.ci * n.kernel**2 * 256)
        self.output = device.dram.alloc(n.co * n.out**2 * 16)
        self.window = (tiles.h - 1) * n.stride + n.kernel, (tiles.w - 1) * n.stride + n.kernel
        self.acc_tile = tiles.co * tiles.h * tiles.w
        self.inp_tile = self.window[0] * self.window[1]
        self.wgt_tile = tiles.co * n.kernel**2

    def fill(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Random data [ci, size, size, 16] and weights [co, ci, k, k, 16, 16], int8; the output is poisoned."""
        n = self.layer
        data = rng.integers(-128, 128, (n.ci, n.size, n.size, 16), dtype=np.int8)
        weights = rng.integers(-128, 128, (n.co, n.ci, n.kernel, n.kernel, 16, 16), dtype=np.int8)
        self.data.write(data)
        self.weights.write(weights)
        self.output.data[...] = 0xAB
        return data, weights

    def result(self) -> Array:
        """The output, int8 [co, out, out, 16]."""
        return self.output.view(np.int8, (self.layer.co, self.layer.out, self.layer.out, 16)).copy()

    def queue_all(self) -> None:
        """Queue the whole convolution."""
        n, t, q = self.layer, self.tiles, self.queue
        threads = list(enumerate(itertools.product(range(t.oc_threads), range(t.h_threads))))
        for _ in threads:
            q.dep_push(STORE, COMPUTE)
        rows, columns, channels = n.out // t.h // t.h_threads, n.out // t.w, n.co // t.co // t.oc_threads
        for i, co, j in itertools.product(range(rows), range(channels), range(columns)):
            places = [(k, (co * t.oc_threads + a, i * t.h_threads + b, j)) for k, (a, b) in threads]
            self._tile(places)
        for _ in threads:
            q.dep_pop(STORE, COMPUTE)

    def run(self, rng: np.random.Generator | None = None) -> Launch:
        self.queue_all()
        return self.queue.synchronize(rng)

    def _tile(self, places: list[tuple[int, tuple[int, int, int]]]) -> None:
        q = self.queue
        for k, _ in places:
            q.dep_pop(STORE, COMPUTE)
            q.gemm(("reset", k), lambda r, k=k: self._reset(r, k))  # type: ignore[misc]
            q.dep_push(COMPUTE, LOAD)
        for ci in range(self.layer.ci):
            for k, place in places:
                q.dep_pop(COMPUTE, LOAD)
                self._load(k, place, ci)
                q.dep_push(LOAD, COMPUTE)
            for k, _ in places:
                q.dep_pop(LOAD, COMPUTE)
                q.gemm(("gemm", k), lambda r, k=k: self._gemm(r, k))  # type: ignore[misc]
                q.dep_push(COMPUTE, LOAD)
        for _ in places:
            q.dep_pop(COMPUTE, LOAD)
        for k, _ in places:
            for op, imm in ((AluOp.SHR, 8), (AluOp.MIN, 127), (AluOp.MAX, 0)):
                q.alu((op, k), lambda r, k=k, op=op, imm=imm: self._elementwise(r, k, op, imm))  # type: ignore[misc]
            q.dep_push(COMPUTE, STORE)
        for k, place in places:
            q.dep_pop(COMPUTE, STORE)
            self._store(k, place)
            q.dep_push(STORE, COMPUTE)

    def _load(self, thread: int, place: tuple[int, int, int], ci: int) -> None:
        n, t = self.layer, self.tiles
        co, i, j = place
        spans = []
        for tile, start, extent in ((i, t.h, self.window[0]), (j, t.w, self.window[1])):
            first = tile * start * n.stride - n.pad
            low, high = max(first, 0), min(first + extent, n.size)
            spans.append((low, high - low, low - first, first + extent - high))
        (y, rows, top, bottom), (x, width, left, right) = spans
        offset = ci * n.size**2 + y * n.size + x
        size, sram, pad = (rows, width), thread * self.inp_tile, (top, bottom, left, right)
        self.queue.load_buffer_2d(self.data, offset, size, n.size, sram, Memory.INP, pad)
        taps = n.kernel**2
        offset, sram = (co * t.co * n.ci + ci) * taps, thread * self.wgt_tile
        self.queue.load_buffer_2d(self.weights, offset, (t.co, taps), n.ci * taps, sram, Memory.WGT)

    def _store(self, thread: int, place: tuple[int, int, int]) -> None:
        n, t = self.layer, self.tiles
        co, i, j = place
        offset = (co * t.co * n.out + i * t.h) * n.out + j * t.w
        size, stride = (t.co * t.h, t.w), n.out
        if t.w == n.out:
            size, stride = (t.co, t.h * t.w), n.out**2
        if t.w == n.out and (t.h == n.out or t.co == 1):
            size, stride = (1, self.acc_tile), self.acc_tile
        assert t.w == n.out or t.h == n.out or t.co == 1, "the rows of the tile are not evenly spaced"
        self.queue.store_buffer_2d(thread * self.acc_tile, self.output, offset, size, stride)

    def _reset(self, r: KernelRecorder, thread: int) -> None:
        t = self.tiles
        loops = [(extent, dst, 0, 0) for extent, dst in ((t.w, 1), (t.co, t.h * t.w)) if extent > 1]
        _nest(r, loops, lambda: [r.gemm(thread * self.acc_tile + i * t.w, 0, 0, reset=True) for i in range(t.h)])

    def _gemm(self, r: KernelRecorder, thread: int) -> None:
        n, t = self.layer, self.tiles
        taps, width = n.kernel**2, self.window[1]
        nest = [
            (t.w, 1, n.stride, 0),
            (n.kernel, 0, 1, 1),
            (n.kernel, 0, width, n.kernel),
            (t.co, t.h * t.w, 0, taps),
            (t.h, t.w, n.stride * width, 0),
        ]
        nest = [loop for loop in nest if loop[0] > 1]
        base = (thread * self.acc_tile, thread * self.inp_tile, thread * self.wgt_tile)

        def uops() -> None:
            rest = nest[2:]
            for point in itertools.product(*(range(loop[0]) for loop in rest)):
                dst, src, wgt = (
                    b + sum(p * loop[k + 1] for p, loop in zip(point, rest, strict=True)) for k, b in enumerate(base)
                )
                r.gemm(dst, src, wgt)

        _nest(r, nest[:2], uops)

    def _elementwise(self, r: KernelRecorder, thread: int, op: AluOp, imm: int) -> None:
        at = thread * self.acc_tile
        loops = [(self.acc_tile, 1, 1, 0)] if self.acc_tile > 1 else []
        _nest(r, loops, lambda: r.alu(op, at, at, imm))


def _nest(r: KernelRecorder, loops: list[tuple[int, int, int, int]], body: Any) -> None:
    for loop in loops:
        r.loop_begin(*loop)
    body()
    for _ in loops:
        r.loop_end()


def reference(layer: Layer, data: Array, weights: Array) -> Array:
    """The convolution, >> 8, clipped to 0..127: int8 [co, out, out, 16], by float64 products, which are exact."""
    n = layer
    padded = np.pad(data, ((0, 0), (n.pad, n.pad), (n.pad, n.pad), (0, 0))).astype(np.float64)
    total = np.zeros((n.co, n.out, n.out, 16))
    for dy, dx in itertools.product(range(n.kernel), repeat=2):
        end_y, end_x = dy + n.stride * (n.out - 1) + 1, dx + n.stride * (n.out - 1) + 1
        window = padded[:, dy : end_y : n.stride, dx : end_x : n.stride]
        total += np.einsum("cyxk,ocik->oyxi", window, weights[:, :, dy, dx].astype(np.float64), optimize=True)
    return np.clip(total.astype(np.int64) >> 8, 0, 127).astype(np.int8)


def buffer_of(device: Device, array: Array) -> Buffer:
    """A new buffer that holds an array."""
    buffer = device.dram.alloc(array.nbytes)
    buffer.write(array)
    return buffer
