"""Computations and random programs of the sketches of target `vta`, for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

import te_lite as te
from ansor.core.target.target import Target
from ansor.sketch import generate_sketches
from ansor.space.decisions.loops import fill, holes
from te_lite import ComputeDAG, State, Tensor
from te_lite.meaning.reference import evaluate
from tests.vta_sim.packed import Array, Conv
from vta_sim.compiler import compile_schedule
from vta_sim.compiler.module import Module
from vta_sim.core.config import Config
from vta_sim.sim import Launch
from vta_sim.sketch.tiles import points
from vta_sim.top import (
    add,
    at_least,
    conv2d_grouped_packed,
    dense_packed,
    requantized,
    shift_right,
    window_packed,
)  # fmt: skip

VTA = Target("vta")


def int8(name: str, *shape: int) -> Tensor:
    return te.placeholder(shape, name=name, dtype="int8")


def random_conv(rng: np.random.Generator) -> list[Tensor]:
    """Odd sizes, strides, padding, kernels of 1 and of two lengths, several images."""
    while True:
        h, w = rng.integers(3, 15, 2).tolist()
        ci, co = rng.choice([1, 2, 3, 4, 6, 8], 2).tolist()
        kernel, pad = tuple(rng.choice([1, 3, 5], 2).tolist()), tuple(rng.integers(0, 3, 2).tolist())
        stride, n = tuple(rng.integers(1, 3, 2).tolist()), int(rng.choice([1, 1, 1, 2]))
        if kernel[0] <= h + 2 * pad[0] and kernel[1] <= w + 2 * pad[1]:
            return Conv(n, h, w, ci, co, kernel, pad, stride).requantized()


def random_dense(rng: np.random.Generator) -> list[Tensor]:
    n, ci, co = rng.choice([1, 2, 3, 5, 8, 12], 3).tolist()
    data, weights = int8("data", n, ci, 1, 16), int8("weights", co, ci, 16, 16)
    bias = te.placeholder((1, co, 1, 16), name="bias", dtype="int32")
    return [data, weights, bias, requantized(add(dense_packed(data, weights), bias))]


def random_grouped(rng: np.random.Generator) -> list[Tensor]:
    c, (h, w), k = int(rng.choice([1, 2, 3, 4])), rng.integers(3, 13, 2).tolist(), int(rng.choice([1, 3]))
    stride = int(rng.integers(1, 3))
    data, kernel = int8("data", 1, c, h, w, 1, 16), int8("weights", c, k, k, 16, 16)
    return [data, kernel, requantized(conv2d_grouped_packed(data, kernel, (stride, stride), (k // 2, k // 2)))]


def random_chain(rng: np.random.Generator) -> list[Tensor]:
    """The sum of a tensor and another one of its shape, or one number a channel."""
    c, h, w = rng.integers(1, 9, 3).tolist()
    x = te.placeholder((1, c, h, w, 1, 16), name="x", dtype="int32")
    other = (1, c, h, w, 1, 16) if rng.integers(2) else (1, c, 1, 1, 1, 16)
    y = te.placeholder(other, name="y", dtype="int32")
    return [x, y, requantized(at_least(shift_right(add(x, y), 2), -50))]


def random_window(rng: np.random.Generator) -> list[Tensor]:
    """The largest or the sum of windows of 1 to 4 rows and columns, at times of the whole image."""
    c, h, w = int(rng.choice([1, 2, 3, 4])), *rng.integers(2, 15, 2).tolist()
    kind = str(rng.choice(["max", "sum"]))
    size = (h, w) if rng.random() < 0.2 else tuple(min(n, int(rng.integers(1, 5))) for n in (h, w))
    stride, pad = tuple(rng.integers(1, 4, 2).tolist()), tuple(rng.integers(0, 2, 2).tolist())
    data = int8("data", 1, c, h, w, 1, 16)
    window = window_packed(data, kind, size, stride, pad)
    return [data, requantized(window, bits=int(rng.integers(0, 3)), low=int(rng.choice([0, -128])))]


OPERATORS: dict[str, Callable[[np.random.Generator], list[Tensor]]] = {
    "conv": random_conv,
    "dense": random_dense,
    "grouped": random_grouped,
    "chain": random_chain,
    "window": random_window,
}


def sketches_of(tensors: Sequence[Tensor]) -> list[State]:
    return generate_sketches(ComputeDAG(tensors), VTA)


def drawn(sketch: State, n: int, rng: np.random.Generator, config: Config | None = None) -> Iterator[State]:
    """Random programs of a sketch."""
    table = points(sketch, config or Config())
    assert table is not None
    for row in table.draw(n, rng).tolist():
        lengths = {}
        for position, step in holes(sketch).items():
            lengths[position], row = row[: len(step.lengths)], row[len(step.lengths) :]
        yield fill(sketch, lengths)


def run(state: State, tensors: Sequence[Tensor], rng: np.random.Generator) -> tuple[Array, Array, Launch]:
    """What a program leaves, what it must be, and the launch."""
    module = Module(compile_schedule(state, tensors))
    inputs: dict[Tensor, Array] = {}
    for t in tensors[:-1]:
        high = 128 if t.dtype == "int8" else 1 << 12
        inputs[t] = rng.integers(-high, high, t.shape).astype(t.dtype)
    out = np.full(tensors[-1].shape, 0x55, np.int8)
    launch = module.launch(*inputs.values(), out)
    return out, evaluate(tensors, inputs)[tensors[-1]], launch
