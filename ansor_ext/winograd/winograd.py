"""Winograd's method on a CPU: everything in one pass over parts of the image, so that a part stays in the caches.

    transformed weight                                          once, lanes over the filters
    for image, part of its depths, line of tiles                parallel, as the search decides
      rows of the part, padded, then points of it               lanes over the channels, a tile's lines written out
      products of the part                                      R x W accumulators in registers, point after point
      for tile, vector of filters: m rows, m tiles, outputs     and what follows element by element

The computation is `te_lite.topi.nn.winograd_by_axis`, or that of TVM with a weight that is transformed already, whose
panels are packed where the graph does not store them as they are read: it has one transform of both axes, of tiles that
are gathered first.  Ansor's rules compute each of these stages for the whole image, and leave some fifty lengths of
transforms to the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansor.core.target.hardware import HardwareParams
from ansor.sketch.predicates import CONST_INDICES, always_inlined, named_axes
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.computation.tensor import ComputeOp
from te_lite.loops.register_tile import VectorUnit
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.schedule import Loop, Schedule, StageHandle
from te_lite.schedule.state import State

from ..analysis.own_stages import elementwise_reader
from ..cpu_kernels.micro_kernel import with_panels
from ..cpu_kernels.shape_costs import tile_costs

TAG = "conv_winograd_by_axis"
TAGS = (TAG, "conv2d_winograd_nhwc")
SHAPES = 3
TRANSFORMS = 0.2
"""The time that the transforms of a part take, relative to its products."""


@dataclass(frozen=True)
class Stages:
    """The stages by number: of two transforms the first is that of lines; `weight` is empty where it is an input.

    `gathered` copies the `padding` in tiles, in TVM's computation.  `output` is `conv` or what follows it element by
    element.
    """

    padding: int
    data: tuple[int, ...]
    weight: tuple[int, ...]
    product: int
    back: tuple[int, ...]
    conv: int
    output: int
    gathered: int | None = None


@dataclass(frozen=True)
class WinogradTile:
    """`rows` along axis `axis` of the product times `columns` of filters, in parts of `depths` depths."""

    axis: int
    rows: int
    columns: int
    depths: int


def stages_of(state: State, lanes: int) -> Stages | None:
    """The stages of the one such convolution of `state`, with channels in whole vectors; None where there is none.

    What can be inlined has been.
    """
    numbers = {s.op.key: k for k, s in enumerate(state.stages)}
    tags = {k: s.op.tag for k, s in enumerate(state.stages) if isinstance(s.op, ComputeOp) and s.op.tag in TAGS}
    if len(tags) != 1:
        return None

    def read(k: int) -> list[int]:
        return [numbers[t.op.key] for t in state.stages[k].op.input_tensors()]

    def transforms(k: int) -> tuple[tuple[int, ...], int]:
        """Those that end in stage `k`, and what they begin with."""
        if CONST_INDICES not in state.stages[k].op.attrs:
            return (), k
        before, source = transforms(read(k)[0])
        return (*before, k), source

    ((conv, tag),) = tags.items()
    back, product = transforms(read(conv)[0])
    (data, source), (weight, origin) = map(transforms, read(product))
    gathered = source if tag != TAG else None
    readable = tag == TAG or state.stages[origin].is_placeholder
    whole = all(state.stages[k].op.shape[-1] % lanes == 0 for k in (data[-1], conv))
    output = conv if state.access.is_output(conv) else elementwise_reader(state, conv)
    if not readable or not whole or output is None or not state.access.is_output(output):
        return None
    padding = source if gathered is None else read(gathered)[0]
    return Stages(padding, data, weight, product, back, conv, output, gathered)


def tiles_of(state: State, found: Stages, hardware: HardwareParams) -> list[WinogradTile]:
    """The best tiles of the product, fastest first by an estimate: rows along a line of tiles, or along the depth."""
    op = state.stages[found.product].op
    size, unit = element_bytes(op.dtype), VectorUnit.of(hardware.vector_unit_bytes)
    depths = _depths(state, found, hardware.num_cores)
    m, width = state.stages[found.back[-1]].op.shape[0], state.stages[found.conv].op.shape[-2]
    along = {len(op.shape) - 2: -(-width // m)} | ({3: depths} if depths > 1 else {})
    costs = {
        WinogradTile(axis, rows, columns, depths): (cost, -sums)
        for axis, extent in along.items()
        for (rows, columns), (cost, sums) in tile_costs(extent, op.shape[-1], size, unit).items()
    }
    return sorted(costs, key=lambda tile: costs[tile])[:SHAPES]


def _depths(state: State, found: Stages, cores: int) -> int:
    """The depths of a part: equal shares for all cores, and few that two parts transform; 1 for images."""
    shape = state.stages[found.product].op.shape
    if len(shape) < 7:
        return 1
    batch, depth, lines = shape[2:5]
    twice = state.stages[found.data[-1]].op.shape[3] - depth

    def time(part: int) -> float:
        tasks = batch * lines * (depth // part)
        return -(-tasks // cores) * cores / tasks * (1 + TRANSFORMS * (part + twice) / part)

    return min([part for part in range(depth, 0, -1) if depth % part == 0], key=time)


class _Loops:
    """The steps that bring a convolution together."""

    def __init__(self, state: State, found: Stages, tile: WinogradTile, lanes: int) -> None:
        self.schedule, self.tile, self.lanes = Schedule(state), tile, lanes
        handles = self.schedule.stages
        self.padding, self.product, self.output = [handles[k] for k in (found.padding, found.product, found.output)]
        self.followed = [handles[found.conv]] if found.conv != found.output else []
        self.gathered = None if found.gathered is None else handles[found.gathered]
        self.data, self.weight, self.back = [
            [handles[k] for k in numbers] for numbers in (found.data, found.weight, found.back)
        ]

    def build(self) -> State:
        part, vector, line = self._output()
        for stage, loop in zip(self.back, (vector, line), strict=False):
            stage.compute_at(self.output, loop)
            self._written_out(stage)
        self._products(part)
        for stage in self.data:
            stage.compute_at(self.output, part)
            tile = self._written_out(stage)
            if self.gathered is not None:
                self.gathered.compute_at(stage, tile)
                self.gathered.vectorize(self.gathered.leaf_iter_vars[-1])
        for stage in (self.padding, *self.followed):
            stage.compute_inline()
        if self.weight:
            rows, points = self.weight
            rows.compute_at(points, self._written_out(points, inside=points.leaf_iter_vars[:1]))
            self._written_out(rows)
        return self.schedule.state

    def _output(self) -> tuple[Loop, Loop, Loop]:
        """The loops of a part, of a vector of filters in a tile, and of a line of that."""
        stage, m = self.output, self.back[-1].op.shape[0]
        image, *depth, height, width, filters = stage.leaf_iter_vars
        outer = []
        if depth:
            part, depth[0] = stage.split(depth[0], factor=self.tile.depths)
            outer.append(part)
        lines, line = stage.split(height, factor=m)
        tiles, column = stage.split(width, factor=m)
        vector, lane = stage.split(filters, factor=self.lanes)
        stage.reorder(image, *outer, lines, *depth, tiles, vector, line, column, lane)
        stage.unroll(column)
        stage.vectorize(lane)
        return lines, vector, line

    def _products(self, part: Loop) -> None:
        """Register tiles of the product, one point after the other, and the filters outside of what shares them."""
        stage, space = self.product, len(self.product.op.axis)
        stage.compute_at(self.output, part)
        loops = stage.leaf_iter_vars
        outer, row = stage.split(loops[self.tile.axis], factor=self.tile.rows)
        filters, column = stage.split(loops[space - 1], factor=self.tile.columns)
        others = [loop for d, loop in enumerate(loops[2 : space - 1], 2) if d != self.tile.axis]
        stage.reorder(*loops[:2], filters, *others, outer, *loops[space:], row, column)
        stage.unroll(row)
        stage.vectorize(column)

    def _written_out(self, stage: StageHandle, inside: Sequence[Loop] = ()) -> Loop:
        """The loop over vectors of channels of a transform, around the loops `inside` and those of the matrix."""
        loops = stage.leaf_iter_vars
        constant = [loops[d] for d in sorted(named_axes(stage.stage, CONST_INDICES))]
        *others, channels = [loop for loop in loops if loop not in (*inside, *constant)]
        vector, lane = stage.split(channels, factor=self.lanes)
        stage.reorder(*others, vector, *inside, *constant, lane)
        for loop in constant:
            stage.unroll(loop)
        stage.vectorize(lane)
        return vector


def winograd_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best tiles of the product."""
    state = ctx.dag.init_state
    if ctx.target.is_gpu:
        return []
    for k in reversed(range(len(state.stages))):
        if always_inlined(state, k, is_gpu=False):
            state = apply(state, ComputeInline(k))
    lanes = ctx.hardware.vector_unit_bytes // element_bytes(state.stages[-1].op.dtype)
    found = stages_of(state, lanes)
    if found is None:
        return []
    made = [_Loops(state, found, tile, lanes).build() for tile in tiles_of(state, found, ctx.hardware)]
    return [_with_panels(ctx, s, found.product) for s in made]


def _with_panels(ctx: SketchContext, state: State, product: int) -> State:
    """With the panels of weights packed that lie along the channels, for each point and vectors of filters."""
    filters = state.stages[product].leaf[2]
    return with_panels(ctx, state, product, product, filters, len(state.stages[product].op.axis) - 1)
