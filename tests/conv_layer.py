"""The convolution layer of the tutorial with a CUDA sketch of it, its tile sizes open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

import te_lite as te
from te_lite import Tensor, topi
from te_lite.schedule.loop_steps import Annotate, FollowFusedSplit, FollowSplit, Fuse, Pragma, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt, ComputeInline
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.step import Length, Step

# the axes nn, ff, yy, xx, rc, ry, rx of the convolution and how many factors each is split by
AXES = ((1, 4), (512, 4), (7, 4), (7, 4), (512, 2), (3, 2), (3, 2))
VECTOR_WIDTHS = (1, 2, 4)


def conv2d_layer(n: int, h: int, w: int, co: int, ci: int, k: int, stride: int, pad: int) -> list[Tensor]:
    data = te.placeholder((n, ci, h, w), name="data")
    kernel = te.placeholder((co, ci, k, k), name="kernel")
    bias = te.placeholder((1, co, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, pad, dilation=1)
    return [data, kernel, bias, topi.nn.relu(conv + bias)]


@cache
def tutorial_layer() -> te.ComputeDAG:
    return te.ComputeDAG(conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1))


def cuda_steps(factors: Sequence[tuple[Length, ...]], unroll: int = 512) -> list[Step]:
    """The steps of the tutorial's CUDA schedule for nine factor tuples: seven axes, two vector widths."""
    steps: list[Step] = [ComputeInline(5)]
    position, sources = 0, []
    for tile in factors[:4]:
        sources.append(len(steps))
        steps.append(Split(3, position, 0, tile))
        position += 5
    for tile in factors[4:7]:
        steps.append(Split(3, position, 0, tile))
        position += 3
    space = [[5 * axis + level for axis in range(4)] for level in range(5)]
    reduce = [[20 + 3 * axis + level for axis in range(3)] for level in range(3)]
    order = space[0] + space[1] + space[2] + reduce[0] + reduce[1] + space[3] + reduce[2] + space[4]
    steps.append(Reorder(3, tuple(order)))
    steps += [FollowSplit(6, 4 * axis, source, 3) for axis, source in enumerate(sources)]
    steps.append(Reorder(6, tuple(4 * axis + level for level in range(4) for axis in range(4))))
    steps += [ComputeAt(3, 6, 11), CacheRead(2, "shared", (3,)), ComputeAt(3, 4, 14)]
    steps += [CacheRead(1, "shared", (4,)), ComputeAt(2, 5, 14), ComputeInline(1)]
    for position, tag in enumerate(("blockIdx.x", "vthread", "threadIdx.x")):
        steps += [Fuse(8, tuple(range(position, position + 4))), Annotate(8, position, tag)]
    for stage, width in ((4, factors[7]), (2, factors[8])):
        steps += [Fuse(stage, (0, 1, 2, 3)), Split(stage, 0, 0, width), Annotate(stage, 1, "vectorize")]
        steps += [FollowFusedSplit(stage, 0, tuple(reversed(sources)), 1, True), Annotate(stage, 1, "threadIdx.x")]
    return [*steps, Pragma(5, 0, f"auto_unroll_max_step${unroll}")]


def factorisations(extent: int, count: int) -> np.ndarray:
    """All tuples of `count` factors whose product divides `extent`; shape (tuples, count), int64."""
    found: list[tuple[int, ...]] = []

    def extend(rest: int, head: tuple[int, ...]) -> None:
        if len(head) == count:
            found.append(head)
            return
        for d in range(1, rest + 1):
            if rest % d == 0:
                extend(rest // d, (*head, d))

    extend(extent, ())
    return np.array(found, dtype=np.int64)


def random_factors(rng: np.random.Generator, lanes: int) -> list[np.ndarray]:
    """For each of the nine tuples of `cuda_steps` an int64 array of shape (lanes, factors)."""
    tables = [factorisations(extent, count) for extent, count in AXES]
    drawn = [t[rng.integers(len(t), size=lanes)] for t in tables]
    widths = np.array(VECTOR_WIDTHS, dtype=np.int64)
    return drawn + [widths[rng.integers(len(widths), size=lanes)][:, None] for _ in range(2)]


def as_lanes(factors: Sequence[np.ndarray]) -> list[tuple[Length, ...]]:
    """The tuples with one int64 lane a candidate."""
    return [tuple([np.ascontiguousarray(f[:, j]) for j in range(f.shape[1])]) for f in factors]


def as_single(factors: Sequence[np.ndarray], lane: int) -> list[tuple[Length, ...]]:
    """The tuples of one candidate as ints."""
    return [tuple([int(x) for x in f[lane]]) for f in factors]
