"""Reductions with little reuse: matrix-vector and skinny products, row and column sums, global pooling, argmax.

Such a stage is bound by memory, so the threads lie along what is contiguous and read 16 bytes each.

    rows      inputs contiguous along the reduction          columns   inputs contiguous along the last output axis
    for block, threadIdx.y      outputs                      for block, threadIdx.x      outputs
      for outer, unrolled       reduction                      for outer, unrolled       reduction
        for threadIdx.x         reduction                        for threadIdx.y         reduction
          local copies of the inputs, `lanes` wide                 local copies of the inputs, `lanes` wide
          for row, item, lane   outputs, outputs, reduction        for row, lane         outputs
      over the threads, for every row and item                 over the threads, for every row and lane

`row` runs over the output axes that the largest input does not have, 16 points at most: what a thread reads of it is
used for all of them at once.  All numbers are those of the sketch (`grains`), as in `injective`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod

from ansor.core.values.schedule_primitives import annotate, compute_at, fuse, reorder, split
from ansor.sketch.predicates import THREAD
from ansor.sketch.rule import SketchContext, SketchRule
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import Affine, Form, Read, reads_by_producer
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.state import INLINED, REDUCE, SPATIAL, Iter, Stage, State

from ..analysis.nominal import NOMINAL_SMS
from ..analysis.own_stages import axes_of, axes_read, derive, elementwise_reader, has_rfactor, is_untouched
from ..split_reductions.parts_over_blocks import PartsOverBlocks, rules_around

BLOCK, THREAD_Y = "blockIdx.x", "threadIdx.y"
MOST_ROWS = 16
SHORTEST = 32
MOST_SUMS = 64
VECTORS_AT_ONCE = 20
MOST_UNROLLED = 8

SHORT_ROW = 64
ROW_THREADS = (8, 32, 64, 128, 256, 512, 1024)
BLOCK_THREADS = 128
ITEMS = (1, 2, 4)
FULL_THREADS = 128 * 128
COLUMN_THREADS = ((8, 32), (8, 64), (8, 128), (32, 8), (32, 32))
"""Threads along the outputs, and along the reduction."""
PART_FACTORS = (4, 16, 64, 256)
SHORTEST_ROW, SHORTEST_COLUMN = 2048, 64
MOST_BLOCKS = 1024


@dataclass(frozen=True, slots=True)
class ReductionShape:
    """What a stage reduces: the numbers of its output axes that the largest input has (`along`) and has not (`rows`),
    and the elements that one access may read (`lanes`) along `axis`: of the reduction or, with `columns`, of the
    outputs."""

    along: tuple[int, ...]
    rows: tuple[int, ...]
    axis: int
    lanes: int
    columns: bool


@dataclass(frozen=True, slots=True)
class Grain:
    """Threads along outputs and reduction, outputs of a thread (times rows, times lanes), accesses of one iteration."""

    outputs: int
    threads: int
    items: int
    unrolled: int


# --------------------------------------------------------------------------------------------- which stages


def shape_of(ctx: SketchContext, state: State, k: int) -> ReductionShape | None:
    """How stage `k` is reduced by this rule; None where the rule is not for it."""
    stage = state.stages[k]
    if stage.is_placeholder or not is_untouched(stage) or not stage.op.reduce_axis or not stage.op.axis:
        return None
    if any(has_rfactor(state, p) for p in state.access.read_from[k]):
        return None
    reads = _reads(state, k)
    if prod(_extents(stage)[len(stage.op.axis) :]) < SHORTEST:
        return None
    by_size = sorted(reads, key=lambda n: prod(state.stages[n].op.shape), reverse=True)
    shapes = [_shape_by(ctx, state, k, reads, n) for n in by_size]
    return next((shape for shape in shapes if shape is not None), None)


def _shape_by(
    ctx: SketchContext, state: State, k: int, reads: dict[int, list[Read]], largest: int
) -> ReductionShape | None:
    """How stage `k` is reduced when `largest` is the input to read once."""
    extents, space = _extents(state.stages[k]), len(state.stages[k].op.axis)
    used = _axes(reads[largest], extents)
    along = tuple([d for d in range(space) if d in used]) or (space - 1,)
    rows = tuple([d for d in range(space) if d not in along])
    if prod([extents[d] for d in rows]) > MOST_ROWS:
        return None
    widest = max(1, ctx.hardware.vector_unit_bytes // element_bytes(state.stages[largest].op.dtype))
    sums = MOST_SUMS // prod([extents[d] for d in rows])
    inner = max([d for d in range(space, len(extents)) if extents[d] > 1])
    for columns, axis in ((False, inner), (True, along[-1])):
        if _runs_along(state, reads, axis, extents):
            most = gcd(min(widest, 1 << sums.bit_length() - 1) if columns else widest, extents[axis])
            return ReductionShape(along, rows, axis, _lanes(state, reads, axis, most), columns)
    return None


def _extents(stage: Stage) -> list[int]:
    """The extents of the axes of a stage whose loops are its own, spatial first."""
    extents = [it.extent for it in stage.iters]
    return [e for e in extents if isinstance(e, int)]


def _reads(state: State, k: int) -> dict[int, list[Read]]:
    """How stage `k` reads others, by their number, through inlined ones."""
    hidden = frozenset(n for n, s in enumerate(state.stages) if s.where == INLINED)
    found = {p: [r for r in reads if r.reader == k] for p, reads in enumerate(reads_by_producer(state.ops, hidden))}
    return {p: reads for p, reads in found.items() if reads}


def _axes(reads: Iterable[Read], extents: Sequence[int]) -> frozenset[int]:
    return frozenset().union(*[axes_read(read, extents) for read in reads])


def _runs_along(state: State, reads: dict[int, list[Read]], axis: int, extents: Sequence[int]) -> bool:
    """Every read that depends on the axis runs with it through neighbours in memory, which no other point of the axes
    reads again (as the windows of a convolution do), and there is such a read."""
    own = [(r, _last(state, n)) for n, of_one in reads.items() for r in of_one if axis in _axes([r], extents)]
    return bool(own) and all(
        _coefficient(r.forms[last], axis) == 1
        and all(c >= extents[axis] for c in _other_steps(r.forms[last], axis, extents))
        and all(axis not in axes_of(form, extents) for d, form in enumerate(r.forms) if d != last)
        for r, last in own
    )


def _last(state: State, k: int) -> int:
    """The dimension of stage `k` along which neighbours in memory lie: the last one that is not 1."""
    shape = state.stages[k].op.shape
    return max([d for d, size in enumerate(shape) if size > 1], default=len(shape) - 1)


def _other_steps(form: Form, axis: int, extents: Sequence[int]) -> list[int]:
    """How far an index goes with each other axis."""
    return [c for d, c in form.terms if d != axis and extents[d] > 1] if isinstance(form, Affine) else []


def _coefficient(form: Form, axis: int) -> int:
    return dict(form.terms).get(axis, 0) if isinstance(form, Affine) else 0


def _lanes(state: State, reads: dict[int, list[Read]], axis: int, most: int) -> int:
    """The elements of one access, `most` or fewer, so that the rows of all inputs start at multiples of it."""
    for n, of_one in reads.items():
        for read in of_one:
            at = _last(state, n)
            form = read.forms[at] if read.forms else None
            if isinstance(form, Affine) and _coefficient(form, axis):
                steps = [c for other, c in form.terms if other != axis]
                most = gcd(most, state.stages[n].op.shape[at], form.const, *steps)
    return most


# ------------------------------------------------------------------------------------------------- numbers


def grains(state: State, k: int, shape: ReductionShape) -> list[Grain]:
    """What threads may compute of stage `k`: a dozen or so, each with its accesses in flight.

    A thread has at most `MOST_SUMS` sums and reads at most `VECTORS_AT_ONCE` vectors of inputs in one iteration.
    Several outputs a thread are for stages that leave every multiprocessor 128 threads.
    """
    extents, space = _extents(state.stages[k]), len(state.stages[k].op.axis)
    rows, length = prod([extents[d] for d in shape.rows]), prod(extents[space:])
    points = prod([extents[d] for d in shape.along])
    if shape.columns:
        widest = -(-extents[shape.axis] // shape.lanes)
        fits = [(x, y) for x, y in COLUMN_THREADS if y < 2 * length and (x == 8 or x <= widest)]
        return [Grain(x, y, 1, _unrolled(-(-length // y), rows, 1)) for x, y in fits]
    iterations = length // shape.lanes
    most = max(ITEMS) if len(shape.along) == 1 else 1
    return [
        Grain(
            _outputs(threads, rows, points // items), threads, items, _unrolled(-(-iterations // threads), rows, items)
        )
        for threads in _row_threads(points, iterations)
        for items in ITEMS
        if items == 1 or _several(rows, points, threads, items, most)
    ]


def _row_threads(points: int, iterations: int) -> list[int]:
    """Threads along a reduction of so many iterations: few where it is short, over 256 only for few outputs."""
    return [
        n
        for n in ROW_THREADS
        if n < 2 * iterations and (n > 8 or iterations <= SHORT_ROW) and (n <= 256 or points * n <= 2 * FULL_THREADS)
    ]


def _several(rows: int, points: int, threads: int, items: int, most: int) -> bool:
    """Whether a thread may compute `items` outputs of each row."""
    fits = items <= most and points % items == 0 and rows * items <= MOST_SUMS
    return fits and points // items * threads >= FULL_THREADS


def _outputs(threads: int, rows: int, points: int) -> int:
    """Groups of threads in a block: twice as many where they share rows; a power of two, `points` at most."""
    wanted = max(1, BLOCK_THREADS * (2 if rows > 1 else 1) // threads)
    return min(wanted, 1 << points.bit_length() - 1)


def _unrolled(iterations: int, rows: int, items: int) -> int:
    """Accesses of each input in one iteration: a divisor of the iterations unless that is less than half of what is
    allowed.
    """
    most = max(1, min(MOST_UNROLLED, VECTORS_AT_ONCE // (rows + items), iterations))
    best = max(d for d in range(1, most + 1) if iterations % d == 0)
    return best if 2 * best >= most else most


# --------------------------------------------------------------------------------------------------- loops


def spread(state: State, k: int, shape: ReductionShape, grain: Grain) -> State:
    """Stage `k`, and the element-wise stage that reads it, as one kernel bound to blocks and threads."""
    target = elementwise_reader(state, k)
    root = k if target is None else target
    state, outer, inner = _bind_outputs(state, root, shape, grain)
    if target is not None:
        state = compute_at(state, k, target, outer[-1])
        outer, inner = [], [it.uid for it in state.stages[k].iters if it.kind == SPATIAL]
    return _bind_reduction(state, k, shape, grain, outer, inner)


def _bind_outputs(state: State, k: int, shape: ReductionShape, grain: Grain) -> tuple[State, list[int], list[int]]:
    """The output loops of stage `k`: those bound to blocks and threads, and those that a thread runs through."""
    own = [state.stages[k].iters[d].uid for d in shape.along]
    rows = [state.stages[k].iters[d].uid for d in shape.rows]
    reduce = [it.uid for it in state.stages[k].iters if it.kind == REDUCE]
    state = reorder(state, k, [*own, *rows, *reduce])
    if shape.columns:
        state, (whole, thread, item) = split(state, k, shape.axis, [grain.outputs, shape.lanes])
        state, block = fuse(state, k, [*own[:-1], whole.uid])
    else:
        state, fused = fuse(state, k, own)
        state, (block, thread, item) = split(state, k, fused.uid, [grain.outputs, grain.items])
    state = reorder(state, k, [block.uid, thread.uid, *rows, item.uid, *reduce])
    state = annotate(state, k, block.uid, BLOCK)
    state = annotate(state, k, thread.uid, THREAD if shape.columns else THREAD_Y)
    return state, [block.uid, thread.uid], [*rows, item.uid]


def _bind_reduction(
    state: State, k: int, shape: ReductionShape, grain: Grain, outer: Sequence[int], inner: Sequence[int]
) -> State:
    """The reduction loops of stage `k` between its outer and inner output loops, inputs copied to registers."""
    loops = [it.uid for it in state.stages[k].iters if it.kind == REDUCE]
    lanes: list[int] = []
    if not shape.columns and shape.lanes > 1:
        state, (rest, lane) = split(state, k, shape.axis, [shape.lanes])
        loops, lanes = [rest.uid if uid == shape.axis else uid for uid in loops], [lane.uid]
    state = reorder(state, k, [*outer, *loops, *inner, *lanes])
    whole = loops[0]
    if len(loops) > 1:
        state, fused = fuse(state, k, loops)
        whole = fused.uid
    state, (_, iteration, thread) = split(state, k, whole, [grain.unrolled, grain.threads])
    state = annotate(state, k, iteration.uid, "unroll")
    state = annotate(state, k, thread.uid, THREAD_Y if shape.columns else THREAD)
    for uid in (*inner, *lanes):
        state = annotate(state, k, uid, "unroll")
    return _copy_inputs(state, k, shape.axis, thread) if shape.lanes > 1 else state


def _copy_inputs(state: State, k: int, axis: int, thread: Iter) -> State:
    """The inputs that stage `k` itself reads along the axis, copied to registers in vectors for each iteration of its
    threads.  What it reads at places that are not affine may be anywhere, so that is not copied."""
    direct = [p for p in state.access.read_from[k] if state.stages[p].where != INLINED]
    found = {p: [read.forms for read in reads] for p, reads in _reads(state, k).items() if p in direct}
    along = [p for p, forms in found.items() if any(_coefficient(f[_last(state, p)], axis) for f in forms if f)]
    inputs = [p for p in along if all(isinstance(index, Affine) for form in found[p] for index in form)]
    for p in sorted(inputs, reverse=True):
        state = apply(state, CacheRead(p, "local", (k,)))
        k += 1
        state = compute_at(state, p + 1, k, thread.uid)
        state = annotate(state, p + 1, _last(state, p), "vectorize")
    return state


# -------------------------------------------------------------------------------------------------- sketches


def part_factors(ctx: SketchContext, state: State, k: int) -> tuple[int, ...]:
    """The numbers of parts, each in blocks of its own, worth trying for stage `k`: none where its outputs fill the
    machine.  A factor divides the longest reduction axis and leaves long parts."""
    shape = None if has_rfactor(state, k) else shape_of(ctx, state, k)
    if shape is None:
        return ()
    extents, space = _extents(state.stages[k]), len(state.stages[k].op.axis)
    points = prod([extents[d] for d in shape.along])
    blocks = -(-points // (COLUMN_THREADS[0][0] * shape.lanes)) if shape.columns else points
    length, shortest = prod(extents[space:]), SHORTEST_COLUMN if shape.columns else SHORTEST_ROW
    fits = [f for f in PART_FACTORS if max(extents[space:]) % f == 0 and length // f >= shortest]
    return tuple([f for f in fits if blocks < NOMINAL_SMS and blocks * f <= MOST_BLOCKS])


def _is_skinny(ctx: SketchContext, state: State, k: int) -> bool:
    return shape_of(ctx, state, k) is not None


def _spread_all(ctx: SketchContext, rules: tuple[SketchRule, ...], least: int) -> list[State]:
    """The sketches that `rules` give with the only suitable reduction spread over lanes, once for each grain of a block
    of `least` threads or more."""
    out: list[State] = []
    for state in derive(ctx, rules, ctx.dag.init_state, len(ctx.dag.ops) - 1):
        shapes = {k: shape_of(ctx, state, k) for k in range(len(state.stages))}
        suits = [(k, shape) for k, shape in shapes.items() if shape is not None]
        if len(suits) == 1:
            k, shape = suits[0]
            found = [grain for grain in grains(state, k, shape) if grain.outputs * grain.threads >= least]
            out += [spread(state, k, shape, grain) for grain in found]
    return out


def skinny_sketches(ctx: SketchContext) -> list[State]:
    """The sketches of programs with one suitable reduction: in one kernel, and split over blocks where outputs are few,
    the parts summed up by the kernel of what follows."""
    if not ctx.target.is_gpu:
        return []
    rules = rules_around(ctx, _is_skinny, sums_of_parts=False)
    out = _spread_all(ctx, rules, 1)
    stages = range(len(ctx.dag.ops))
    factors = {f for k in stages for f in part_factors(ctx, ctx.dag.init_state, k)} if out else set()
    for factor in sorted(factors):
        out += _spread_all(ctx, (PartsOverBlocks(factor, part_factors), *rules), 2 * BLOCK_THREADS)
    return out
