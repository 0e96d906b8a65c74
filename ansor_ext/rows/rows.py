"""Rows in one kernel: softmax, norms, and whatever else folds rows and spreads the results over them again.

Ansor reads the row from memory again for every reduction, with one warp, or in a kernel of its own.  Here all stages
of a row program (`row_stages.py`) are computed in the loops of the output over rows:

    for block                                             blockIdx.x
      for row                                             threadIdx.y, `rows` of them
        cached row   for item, thread, lane               memory to registers
        reduction    for item, thread, lane               registers, then across the threads of the row
        kept row     for item, thread, lane               registers to registers
        output       for item, thread, lane               registers to memory

All of them split the row in the same way, `items` x `threads` (threadIdx.x) x `lanes` (a vector), and what is kept is
local storage shared out over the threads: each keeps the elements that it computes.  A reduction, too, is local: every
thread gets the total.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansor.core.values.schedule_primitives import annotate, compute_at, fuse, reorder, split
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.state import REDUCE, SPATIAL, State
from te_lite.schedule.storage_steps import SetScope

from .row_stages import RowProgram, row_program

BLOCK, ROW, THREAD = "blockIdx.x", "threadIdx.y", "threadIdx.x"
ROWS = (1, 2, 4, 8, 16)
LEAST_THREADS, MANY_THREADS = 64, 256
MOST_WASTE = 1 / 8
MOST_ELEMENTS = 64
REGISTERS, OTHER_REGISTERS, WARPS_TOGETHER = 65536, 12, 4
"""Registers of a multiprocessor, of a thread beside the elements it keeps, and the warps that get theirs together."""


@dataclass(frozen=True, slots=True)
class RowPartition:
    """How a row is cut: `rows` rows a block, each for `threads` threads that take `lanes` elements at a time."""

    rows: int
    threads: int
    lanes: int


def shapes(ctx: SketchContext, program: RowProgram) -> list[RowPartition]:
    """The ways to cut the rows of a program that are worth trying; none when a row is too long for registers.

    A block has `LEAST_THREADS` if it can, and several rows only while they are no more than `MANY_THREADS`: larger
    blocks wait longer for their last row, and gain nothing.
    """
    lanes = widest_lanes(ctx, program)
    rows_kept, hardware = max(program.together, 1), ctx.hardware
    counts = thread_counts(program.length, lanes, hardware.warp_size, hardware.max_threads_per_block, rows_kept)
    rows = [n for n in ROWS if n == 1 or _wasted(program, n) <= MOST_WASTE]
    found = [RowPartition(n, t, lanes) for t in counts for n in rows if n == 1 or n * t <= MANY_THREADS]
    return [x for x in found if x.rows * x.threads >= LEAST_THREADS] or found


def thread_counts(length: int, lanes: int, warp: int, most: int, rows: int = 1) -> list[int]:
    """Whole warps that take the vectors of a row in a power of two of items each, or in equal shares.

    Rows of half a warp or less get half of one, or less.  A thread keeps `MOST_ELEMENTS` at most of all `rows` that are
    needed at a time; more where a row needs all threads otherwise, which leaves them few registers for anything else.
    """
    counts: list[int] = []
    vectors = -(-length // lanes)
    unit = min(warp, 1 << (vectors - 1).bit_length())
    for items in range(1, MOST_ELEMENTS // (lanes * rows) + 1):
        threads = -(-vectors // (items * unit)) * unit
        even = items & (items - 1) == 0 or threads * items == vectors or not counts
        if threads <= most and even and _fits_registers(threads, items * lanes * rows, warp):
            counts.append(threads)
    half = most // 2
    if len(counts) == 1 and counts[0] > half and _fits_registers(half, -(-vectors // half) * lanes * rows, warp):
        counts.append(half)
    return list(dict.fromkeys(counts))


def _fits_registers(threads: int, elements: int, warp: int) -> bool:
    together = warp * WARPS_TOGETHER
    return -(-threads // together) * together * (elements + OTHER_REGISTERS) <= REGISTERS


def _wasted(program: RowProgram, rows: int) -> float:
    """How many rows blocks of `rows` have too many, as a share of those that there are."""
    return -program.last % rows / max(program.last, 1)


def widest_lanes(ctx: SketchContext, program: RowProgram) -> int:
    """Elements of the widest vector that the rows divide into."""
    ops = ctx.dag.init_state.ops
    size = max(element_bytes(ops[k].dtype) for k in (program.output, *program.kept, *program.cached))
    widest = max(1, ctx.hardware.vector_unit_bytes // size)
    return max(w for w in (1, 2, 4, 8, 16) if w <= widest and program.length % w == 0)


# ------------------------------------------------------------------------------------------------- the loops


def in_one_kernel(state: State, program: RowProgram, shape: RowPartition) -> State:
    """All stages of a row program in the loops of its output."""
    for k in program.inlined:
        state = apply(state, ComputeInline(k))
    cached: list[int] = []

    def number(k: int) -> int:
        return k + sum(c < k for c in cached)

    for k in reversed(program.cached):
        state = apply(state, CacheRead(k, "local", tuple(sorted(state.access.read_by[k]))))
        cached.append(k)
    output = number(program.output)
    state, at = _output_loops(state, program, output, shape)
    computed = [number(k) for k in (*program.reductions, *program.values, *program.kept) if k != program.output]
    for k in computed:
        state = apply(state, SetScope(k, "local"))
    rows = [*[number(k) for k in program.kept], *[number(c) + 1 for c in cached]]
    for k in sorted({*computed, *rows}, reverse=True):
        state = compute_at(state, k, output, at)
        if k in rows or state.stages[k].op.reduce_axis:
            state = _share_out(state, k, program, shape)
    return state


def _output_loops(state: State, program: RowProgram, k: int, shape: RowPartition) -> tuple[State, int]:
    """The output's loops over blocks, rows and the row; and the loop in which the other stages are computed.

    What has one value a row is stored by one thread of the row: a loop of one iteration is bound to threads.
    """
    stage = state.stages[k]
    along = bool(stage.op.reduce_axis) or stage.op.shape[program.lead :] == program.row
    space = [it.uid for it in stage.iters if it.kind == SPATIAL][: program.lead]
    state, at = _row_loops(state, k, space, shape.rows)
    if along:
        return _share_out(state, k, program, shape), at
    state, unit = fuse(state, k, [])
    state = reorder(state, k, [*(it.uid for it in state.stages[k].iters if it is not unit), unit.uid])
    return annotate(state, k, unit.uid, THREAD), at


def _row_loops(state: State, k: int, space: list[int], rows: int) -> tuple[State, int]:
    """The loops `space` over blocks and over `rows` rows of a block; the inner one of them.

    The last axis alone is split, so that a region of one row is one of an element along every axis.
    """
    if not space:
        state, block = fuse(state, k, [])
        return annotate(state, k, block.uid, BLOCK), block.uid
    state, (outer, own) = split(state, k, space[-1], [rows])
    block = outer
    if len(space) > 1:
        state, block = fuse(state, k, [*space[:-1], outer.uid])
    state = annotate(annotate(state, k, block.uid, BLOCK), k, own.uid, ROW)
    return state, own.uid


def _share_out(state: State, k: int, program: RowProgram, shape: RowPartition) -> State:
    """The axes of stage k along the row as items, threads, and lanes: of a vector, or of an unrolled reduction."""
    axes = state.stages[k].op.axis
    first = len(axes) if state.stages[k].op.reduce_axis else program.lead
    along = range(first, first + len(program.row))
    uid = along[0]
    if len(along) > 1:
        state, fused = fuse(state, k, along)
        uid = fused.uid
    lengths = [shape.threads, shape.lanes] if shape.lanes > 1 else [shape.threads]
    state, (item, thread, *lane) = split(state, k, uid, lengths)
    state = annotate(annotate(state, k, item.uid, "unroll"), k, thread.uid, THREAD)
    for it in lane:
        state = annotate(state, k, it.uid, "unroll" if it.kind == REDUCE else "vectorize")
    return state


def row_sketches(ctx: SketchContext) -> list[State]:
    """On a GPU, one sketch for each shape of a row program."""
    state = ctx.dag.init_state
    program = row_program(state) if ctx.target.is_gpu else None
    return [] if program is None else [in_one_kernel(state, program, shape) for shape in shapes(ctx, program)]
