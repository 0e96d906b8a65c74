"""Large convolutions with channels first on a GPU, in tiles that are decided: few numbers of them are worth a search.

    block: filters x points                     points of the last axis, of lines, planes and images
      for channels, for windows but the last axis
        image.shared                            whole lines, each fetched by warps: no division, and no place by places
        weights.shared                          the terms outermost, fetched an iteration ahead as the image
        for channels, for terms of the last axis
          16 x 8 sums of a thread += image * weights

The windows of a line are the same elements but for an offset: written out, a thread reads 4 + 2 elements for the 3 x 4
that 4 points multiply.  Lines of a tile are longer than its points, so vectors of their elements begin anywhere in
memory.  One copy for all lines divides by that length for each element: a third of all instructions of
such kernels.  A warp that has a line needs no division; some of its last threads idle.

Of several lines a tile has more elements, with a condition for each where images are padded: iterations are shorter
there. Of strided windows hardly an element serves two terms: sums and terms of an iteration are fewer, and so are the
points that are fetched.  Few terms are over before what is written out of their tails: there threads have fewer sums,
and blocks more threads.  Times of the tiles: docs/results/gpu.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from math import gcd, prod

import numpy as np

from ansor.core.tasks.task import SearchTask
from ansor.core.values.schedule_primitives import annotate, follow_fused_split, fuse, reorder, split
from ansor.policy.default_schedule import SEED, with_unrolling
from ansor.sketch.predicates import THREAD, spatial_split_steps, split_steps
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from ansor.space.sample import sample_rows
from ansor.space.spaces import Group, home, space_of
from ansor.space.states import concrete
from te_lite.bounds.index_span import usual_steps
from te_lite.bounds.reads import Read, reads_by
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.state import INLINED, State
from te_lite.schedule.storage_steps import StorageAlign

from ..analysis.nominal import NOMINAL_SMS
from ..analysis.own_stages import axes_of, axes_read, extents_of, ordinary_sketches
from ..analysis.product_roles import on_tensor_cores
from ..pipeline.double_buffer import double_buffered
from ..shared_tiles.transposed_shared import transposed
from .tile_cost import PIECE, WARP, WORD

MUCH = 4
"""The largest of five unrollings: of an iteration, as many whole windows as a group of steps has then."""
FILTERS = (128, 64)
"""Filters of a block."""
LEAST_STEPS, MOST_STEPS = 12, 32
"""Terms of an iteration: few, but an even number that is worth a barrier."""
SHORT = 128
"""Terms of a sum that is over soon."""
MOST_WASTE = 1.125
"""Points that blocks compute for each one that is needed, at most."""
LEAST_BLOCKS = 4 * NOMINAL_SMS
FETCH = 6
"""Instructions that an element takes to be fetched."""
Lengths = tuple[int, int, int, int]
"""Virtual threads, threads and elements of a thread (two levels) along an axis."""


@dataclass(frozen=True)
class Sums:
    """Filters and points of a thread, the threads of a block, and the terms that an iteration had better have."""

    filters: int
    points: int
    threads: int
    steps: int


LINES, IMAGES = Sums(16, 8, 128, 20), Sums(8, 16, 128, 12)
STRIDED, FEW = Sums(8, 8, 128, 12), Sums(8, 8, 256, 12)


@dataclass(frozen=True)
class Convolution:
    """Stage `k`: sums over channels and windows of stage `image`, of lines (the last axis), times stage `weights`.

    `filters` (of weights alone), `channels` and `line` (the terms along the last axis, None for one) are axes by their
    numbers; along the last axis windows are `stride` apart, and their terms `dilation`.
    """

    k: int
    image: int
    weights: int
    extents: tuple[int, ...]
    space: int
    filters: int
    channels: int
    line: int | None
    stride: int
    dilation: int

    @property
    def terms(self) -> int:
        """Those along the last axis."""
        return 1 if self.line is None else self.extents[self.line]

    @property
    def sums(self) -> Sums:
        """What a thread computes."""
        if prod(self.extents[self.space :]) < SHORT:
            return FEW
        if self.stride > 1:
            return STRIDED
        return LINES if self.space == 3 else IMAGES


def convolution_states(task: SearchTask, _: object = None) -> Iterator[State]:
    """The program of a large convolution with channels first on a GPU; none for others."""
    hardware = task.hardware_params.completed(task.target)
    for sketch in convolution_sketches(SketchContext(task.compute_dag, task.target, hardware)):
        variant = home(space_of(sketch, task.target, hardware))
        rows = sample_rows(variant, 1, np.random.default_rng(SEED), task.target, hardware)
        for row in with_unrolling(Group(variant, rows), MUCH).rows:
            yield concrete(variant, row, task.target, hardware)


def convolution_sketches(ctx: SketchContext) -> list[State]:
    """The sketch of a task whose only product is such a convolution, in the tile that suits it; none for others."""
    first = ctx.dag.init_state
    if not ctx.target.is_gpu or any(on_tensor_cores(ctx.target, first, k) for k in range(len(first.stages))):
        return []
    found = []
    for sketch in ordinary_sketches(ctx):
        ahead = double_buffered(transposed(sketch) or sketch)
        conv = None if ahead is None else convolution_of(ahead)
        if ahead is not None and conv is not None:
            found += list(_tiled(ahead, conv))
    return found[:1]


def convolution_of(sketch: State) -> Convolution | None:
    """The only reduction of a sketch in Ansor's tiles, where it is such a convolution; None where it is not."""
    sums = [k for k, s in enumerate(sketch.stages) if not s.is_placeholder and s.op.reduce_axis]
    if len(sums) != 1:
        return None
    (k,) = sums
    op, extents = sketch.stages[k].op, extents_of(sketch.stages[k].op)
    space = len(op.axis)
    steps = [sketch.steps[p] for p in sorted(split_steps(sketch, k))]
    lengths = [len(s.lengths) for s in steps if isinstance(s, Split) and None in s.lengths]
    if lengths != [4] * space + [2] * (len(extents) - space) or element_bytes(op.dtype) != WORD:
        return None
    hidden = frozenset(n for n, s in enumerate(sketch.stages) if s.where == INLINED)
    reads = sorted(reads_by(k, sketch.ops, hidden), key=lambda pair: space - 1 not in axes_read(pair[1], extents))
    if len(reads) != 2 or len({p for p, _ in reads}) != 2 or space - 1 not in axes_read(reads[0][1], extents):
        return None
    return _convolution(k, reads, extents, space)


def _convolution(k: int, reads: Sequence[tuple[int, Read]], extents: Sequence[int], space: int) -> Convolution | None:
    """What the axes of the reads of stage `k` are; None where one has no part in it."""
    ((producer, image), (other, weights)), last = reads, space - 1
    reached, weighs = axes_read(image, extents), axes_read(weights, extents)
    filters = [a for a in weighs if a < space]
    terms = {a for a in range(space, len(extents)) if extents[a] > 1}
    points = {a for a in range(space) if extents[a] > 1}
    alone = [axes_of(form, extents) for form in image.forms]
    channels = [a for a in terms if any(axes == {a} for axes in alone)]
    line = [a for a in terms if a in alone[-1]]
    fits = len(filters) == len(channels) == 1 and len(line) < 2 and terms <= weighs & reached
    if not fits or filters[0] in reached or points - {filters[0]} != points & reached:
        return None
    if last not in alone[-1] or channels[0] in alone[-1] or len(terms) < 2:
        return None
    steps = usual_steps(image.forms[-1])
    stride, dilation = int(steps[last]), int(steps[line[0]]) if line else 1
    own = line[0] if line else None
    return Convolution(k, producer, other, tuple(extents), space, filters[0], channels[0], own, stride, dilation)


# ------------------------------------------------------------------------------------------------ which tiles


def lengths_of(conv: Convolution) -> list[tuple[int, ...]] | None:
    """The lengths of all axes of a convolution in the best tile of a block; None where no tile suits it.

    The terms of an iteration are some channels of one line of a window.
    """
    terms, channels = conv.terms, conv.extents[conv.channels]
    even = [c for c in range(1, channels + 1) if channels % c == 0 and c * terms % 2 == 0]
    iterations = [c for c in even if LEAST_STEPS <= c * terms <= MOST_STEPS]
    iteration = next((c for c in iterations if c * terms >= conv.sums.steps), max(iterations, default=None))
    found = [tile for n in FILTERS if (tile := _tile(conv, n)) is not None]
    if iteration is None or not found:
        return None
    best = min(found, key=lambda tile: _cost(conv, tile))
    if _waste(conv, best) > MOST_WASTE or _blocks(conv, best) < LEAST_BLOCKS:
        return None
    reduced = {conv.channels: iteration, conv.line: terms}
    return [*best, *[(reduced.get(a, 1), 1) for a in range(conv.space, len(conv.extents))]]


def _tile(conv: Convolution, filters: int) -> list[Lengths] | None:
    """The best tile of so many filters: how the points of a block lie along the axes of the image."""
    along = conv.sums.threads * conv.sums.filters // filters
    axes = [a for a in range(conv.space) if a != conv.filters]
    ways = [
        _lengths(conv, filters, dict(zip(axes, virtual, strict=True)), dict(zip(axes, threads, strict=True)))
        for virtual in _factors(conv.sums.points // PIECE, len(axes))
        for threads in _factors(along, len(axes))
        if threads[-1] * PIECE >= WARP
    ]
    return min(ways, key=lambda tile: _cost(conv, tile), default=None)


def _factors(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a power of two as a product of so many."""
    powers = [1 << n for n in range(number.bit_length())]
    return (way for way in combinations(powers, repeat=parts) if prod(way) == number)


def _lengths(conv: Convolution, filters: int, virtual: dict[int, int], threads: dict[int, int]) -> list[Lengths]:
    """The lengths of the axes of points and filters; a thread has neighbours of the last axis, and of filters."""
    rows, found = conv.sums.filters, list[Lengths]()
    for a in range(conv.space):
        if a == conv.filters:
            found.append((1, filters // rows, rows, 1))
        else:
            found.append((virtual[a], threads[a], PIECE if a == conv.space - 1 else 1, 1))
    return found


def _waste(conv: Convolution, tile: Sequence[Lengths]) -> float:
    """Sums that blocks compute for each one that is needed."""
    return _blocks(conv, tile) * prod([prod(n) for n in tile]) / prod(conv.extents[: conv.space])


def _blocks(conv: Convolution, tile: Sequence[Lengths]) -> int:
    return prod([-(-extent // prod(n)) for extent, n in zip(conv.extents[: conv.space], tile, strict=True)])


def _cost(conv: Convolution, tile: Sequence[Lengths]) -> tuple[float, int]:
    """Sums, and elements that warps fetch for them in whole lines, for each sum that is needed; least lines first."""
    points = [prod(n) for a, n in enumerate(tile) if a != conv.filters]
    lines = prod(points[:-1])
    length = (points[-1] - 1) * conv.stride + (conv.terms - 1) * conv.dilation + 1
    fetched = lines * -(-length // WARP) * WARP + conv.terms * prod(tile[conv.filters])
    return _waste(conv, tile) * (1 + FETCH * fetched / (conv.terms * prod([prod(n) for n in tile]))), lines


# ------------------------------------------------------------------------------------------------- the sketch


def _tiled(sketch: State, conv: Convolution) -> Iterator[State]:
    """The sketch in the tile of the convolution, its copies shared out among threads; none where no tile suits it."""
    lengths = lengths_of(conv)
    if lengths is None:
        return
    steps = list(sketch.steps)
    for position, chosen in zip(sorted(split_steps(sketch, conv.k)), lengths, strict=True):
        step = steps[position]
        assert isinstance(step, Split)
        steps[position] = replace(step, lengths=chosen)
    state = replay(sketch.dag, steps)
    rank = len(state.stages[conv.image].op.axis)
    state = _by_lines(apply(state, StorageAlign(conv.image, rank - 2, PIECE, 0)), conv.image)
    yield _in_pieces(state, conv, lengths)


def _by_lines(state: State, k: int) -> State:
    """The copy of an image: a warp fetches a line, the threads of a block several."""
    stage = state.stages[k]
    assert stage.attach is not None
    sources = spatial_split_steps(state, stage.attach.stage)
    *others, line = [it.uid for it in stage.iters]
    state, (several, lane) = split(state, k, line, (WARP,))
    state = reorder(state, k, [several.uid, *others, lane.uid])
    state, fused = fuse(state, k, [*others, lane.uid])
    state, (more, thread) = follow_fused_split(state, k, fused.uid, sources, 1)
    for it in (several, more):
        state = annotate(state, k, it.uid, "unroll")
    return annotate(state, k, thread.uid, THREAD)


def _in_pieces(state: State, conv: Convolution, lengths: Sequence[tuple[int, ...]]) -> State:
    """The copy of the weights: pieces of terms that lie side by side in memory, where an iteration has them."""
    k, stage = conv.weights, state.stages[conv.weights]
    iteration, whole = lengths[conv.channels][0] * conv.terms, conv.extents[conv.channels] * conv.terms
    beside = gcd(PIECE, iteration) if whole == prod(conv.extents[conv.space :]) else 1
    assert stage.attach is not None
    sources = spatial_split_steps(state, stage.attach.stage)
    state, fused = fuse(state, k, [it.uid for it in stage.iters])
    state, (rest, piece) = split(state, k, fused.uid, (beside,))
    state = annotate(state, k, piece.uid, "vectorize")
    state, (_, thread) = follow_fused_split(state, k, rest.uid, sources, 1)
    return annotate(state, k, thread.uid, THREAD)
