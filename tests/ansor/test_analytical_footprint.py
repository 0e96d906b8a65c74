"""Spans, touched elements and strides against plain enumeration of the loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import te_lite as te
from ansor.analytical.loop_nests import Nest, innermost_within, loop_nests
from ansor.space.programs import Programs
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.footprint import BufferAccess
from te_lite.bounds.reads import Affine
from te_lite.schedule.loop_steps import Annotate, Fuse, Reorder, Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import FuseRel, State
from tests.conv_layer import conv2d_layer
from tests.nonempty import nonempty


def tiled(h: int, pad: int, outer: int, inner: int) -> State:
    """The convolution alone, two of its axes tiled, one pair of loops fused and split again."""
    layer = conv2d_layer(2, h, h, 6, 5, 3, 1, pad)
    dag = te.ComputeDAG(layer)
    k = next(n for n, op in enumerate(dag.ops) if op.name == "conv2d_nchw")
    steps = [
        Split(k, 1, 0, (outer, inner)), Split(k, 5, 0, (2,)), Reorder(k, (1, 0, 4, 2, 5, 3, 6, 7, 8, 9)),
        Fuse(k, (0, 1)), Split(k, 0, 0, (4,)),
    ]  # fmt: skip
    return replay(dag, steps)


def conv_nest(state: State) -> Nest:
    return next(n for n in loop_nests(Programs(infer_bounds(state))) if n.stage.op.name == "conv2d_nchw")


def axis_values(nest: Nest, values: dict[int, int]) -> tuple[int, ...] | None:
    """The root axes for given values of the loops, 0 where missing; None for an iteration that a guard drops."""
    found = {v.uid: 0 for v in nest.stage.vars} | values
    for rel in reversed(nest.stage.relations):
        if isinstance(rel, FuseRel):
            rest = found[rel.fused]
            for part in reversed(rel.parts):
                extent = nest.stage.vars[part].extent
                assert isinstance(extent, int)
                found[part], rest = rest % extent, rest // extent
        else:
            parts = zip(rel.children, nest.footprint.strides[rel.parent], strict=True)
            found[rel.parent] = sum([found[c] * s for c, s in parts])
    if any(isinstance(v.extent, int) and found[v.uid] >= v.extent for v in nest.stage.vars):
        return None
    return tuple([found[root] for root in range(nest.stage.num_roots)])


def place(access: BufferAccess, axes: tuple[int, ...]) -> tuple[int, ...]:
    if access.forms is None:
        return axes[: len(access.shape)]
    out = []
    for form in access.forms:
        assert isinstance(form, Affine)
        out.append(form.const + sum(c * axes[a] for a, c in form.terms))
    return tuple(out)


@pytest.mark.parametrize("shape", [(6, 1, 2, 2), (7, 0, 3, 2), (5, 1, 2, 3)])
def test_elements_and_strides_by_enumeration(shape: tuple[int, int, int, int]) -> None:
    nest = conv_nest(tiled(*shape))
    rng = np.random.default_rng(0)
    exact = 0
    for _ in range(25):
        chosen = [x for x in nest.loops if rng.random() < 0.4]
        runs = {x.key: x.extent for x in chosen}
        values = itertools.product(*[range(int(x.extent)) for x in chosen])
        found = [axis_values(nest, dict(zip([x.uid for x in chosen], v, strict=True))) for v in values]
        points = [p for p in found if p is not None]
        axes = nest.footprint.spans(runs)
        assert all(span >= max(reached) + 1 for span, reached in zip(axes, zip(*points, strict=True), strict=True))
        for access in nest.accesses:
            elements = {place(access, p) for p in points}
            hull = [max(side) - min(side) + 1 for side in zip(*elements, strict=True)]
            assert access.elements(axes) >= math.prod(hull)
            assert nest.footprint.distinct(access, runs, axes) >= len(elements)
            exact += nest.footprint.distinct(access, runs, axes) == len(elements)
    assert exact > 35, "most of these 75 counts have no overlap and must be exact"


def test_one_step_of_a_loop() -> None:
    nest = conv_nest(tiled(8, 1, 2, 3))
    for loop in nonempty(loop for loop in nest.loops if loop.extent > 1):
        for access in nonempty(nest.accesses):
            here, there = [place(access, axis_values(nest, {loop.uid: v}) or ()) for v in (0, 1)]
            strides = np.cumprod([1, *access.shape[:0:-1]])[::-1]
            assert nest.footprint.stride(access, loop.key) == abs(int(np.dot(np.subtract(there, here), strides)))


def test_unrolled_loops() -> None:
    """The innermost loops run while they fit, the next one in part, vector loops always."""
    a = te.placeholder((8, 6, 4, 16), name="A")
    state = te.ComputeDAG([a, te.compute((8, 6, 4, 16), lambda i, j, k, v: a[i, j, k, v] + 1, "B")]).init_state
    bounds = infer_bounds(replay(state.dag, [Annotate(1, 3, "vectorize")]))
    (nest,) = loop_nests(Programs(bounds))
    for limit, partly, expected in (
        (24, 1, [1, 6, 4, 16]), (23, 23, [1, 5, 4, 16]), (23, 1, [1, 1, 4, 16]), (192, 1, [8, 6, 4, 16]),
        (1, 1, [1, 1, 1, 16]), (24, 48, [2, 6, 4, 16]),
    ):  # fmt: skip
        runs = innermost_within(nest.loops, limit, partly)
        assert [int(runs[x.key]) for x in nest.loops] == expected
