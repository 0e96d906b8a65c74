"""Rows in one kernel: softmax, norms, and whatever else folds rows and spreads the results over them again.

Ansor makes a kernel of every reduction, which reads the row from memory again.  Here all stages of a row program
(`row_stages.py`) are computed in the loops of the output over rows:

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

from collections.abc import Iterator
from dataclasses import dataclass

from te_lite.replay import apply
from te_lite.state import REDUCE, SPATIAL, State
from te_lite.step import CacheRead, ComputeInline, SetScope

from ...core.hardware import HardwareParams
from ...core.schedule_primitives import annotate, compute_at, fuse, split
from ..rule import SketchContext
from ..shared_memory import element_bytes
from .row_stages import RowProgram, row_program

THREADS = (32, 64, 128, 256, 512, 1024)
ROWS = (1, 2, 4, 8)
MOST_ELEMENTS = 64
BLOCK_THREADS = (64, 1024)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a row is cut: `rows` rows a block, each for `threads` threads that take `lanes` elements at a time."""

    rows: int
    threads: int
    lanes: int


def shapes(ctx: SketchContext, program: RowProgram) -> Iterator[Shape]:
    """The ways to cut the rows of a program that are worth trying."""
    warp, length = ctx.hardware.warp_size, program.length
    lanes = widest_lanes(ctx, program)
    vectors = -(-length // lanes)
    for threads in THREADS:
        if threads >= vectors + warp and threads > warp:
            break
        items = -(-vectors // threads)
        for rows in ROWS:
            fits = rows <= program.points and BLOCK_THREADS[0] <= rows * threads <= BLOCK_THREADS[1]
            if fits and items * lanes <= MOST_ELEMENTS:
                yield Shape(rows, threads, lanes)


def widest_lanes(ctx: SketchContext, program: RowProgram) -> int:
    """Elements of the widest vector that the rows divide into."""
    ops = ctx.dag.init_state.ops
    size = max(element_bytes(ops[k].dtype) for k in (program.output, *program.kept, *program.cached))
    widest = max(1, ctx.hardware.vector_unit_bytes // size)
    return max(w for w in (1, 2, 4, 8, 16) if w <= widest and program.length % w == 0)


# ------------------------------------------------------------------------------------------------- the loops


def in_one_kernel(state: State, program: RowProgram, shape: Shape) -> State:
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


def _output_loops(state: State, program: RowProgram, k: int, shape: Shape) -> tuple[State, int]:
    """The output's loops over blocks, rows and the row; and the loop in which the other stages are computed.

    What has one value a row is stored by one thread of the row: a loop of one turn is bound to threads.
    """
    stage = state.stages[k]
    shared = bool(stage.op.reduce_axis) or stage.op.shape[program.lead :] == program.row
    space = [it.uid for it in stage.iters if it.kind == SPATIAL]
    space = space[: program.lead] if shared and not stage.op.reduce_axis else space
    state, (block, own, *alone) = _row_loops(state, k, space, [shape.rows] if shared else [shape.rows, 1])
    for uid, tag in zip((block, own, *alone), ("blockIdx.x", "threadIdx.y", "threadIdx.x"), strict=False):
        state = annotate(state, k, uid, tag)
    return (_share_out(state, k, program, shape) if shared else state), own


def _row_loops(state: State, k: int, space: list[int], lengths: list[int]) -> tuple[State, list[int]]:
    """The loops `space` as one, split into these lengths and the rest; loops of one turn where there are none."""
    if not space:
        made = []
        for _ in (0, *lengths):
            state, unit = fuse(state, k, [])
            made.append(unit.uid)
        return state, made[::-1]
    uid = space[0]
    if len(space) > 1:
        state, fused = fuse(state, k, space)
        uid = fused.uid
    state, loops = split(state, k, uid, lengths)
    return state, [it.uid for it in loops]


def _share_out(state: State, k: int, program: RowProgram, shape: Shape) -> State:
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
    state = annotate(annotate(state, k, item.uid, "unroll"), k, thread.uid, "threadIdx.x")
    for it in lane:
        state = annotate(state, k, it.uid, "unroll" if it.kind == REDUCE else "vectorize")
    return state


def row_sketches(ctx: SketchContext) -> list[State]:
    """On a GPU, one sketch for each shape of a row program."""
    state = ctx.dag.init_state
    program = row_program(state) if ctx.target.is_gpu else None
    return [] if program is None else [in_one_kernel(state, program, shape) for shape in shapes(ctx, program)]
