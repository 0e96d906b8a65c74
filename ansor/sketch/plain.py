"""Programs that need no search: the loops as they were written, and plain nests of them for CPUs and GPUs."""

from __future__ import annotations

from math import gcd, prod

from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.state import REDUCE, ROOT, State

from ..core.tasks.task import SearchTask
from ..core.values.schedule_primitives import annotate, fuse, split
from .predicates import loop_length
from .reduction_rules import fuse_reductions
from .shared_memory import element_bytes

VECTOR = 16
ENOUGH = 64
THREADS = 128
FEW = 1 << 14
"""Points of a reduction that leave most of a GPU idle when a thread computes each."""
LONG = 512
"""Terms of a point that are worth the threads of a block."""
LARGE = 1 << 20
"""Points of a stage from which its bytes decide."""
LONG_ROW = 1 << 15
"""Terms of a row that no block can keep: of several reductions each reads it again."""


def untuned_state(task: SearchTask) -> State:
    """The loops as they were written; on a GPU, which cannot run them, a thread for each element."""
    return plain_state(task) if task.target.is_gpu else task.compute_dag.init_state


def plain_state(task: SearchTask, vectors: bool = False) -> State:
    """Every stage computed at root (what can be inlined is inlined), with parallel loops and lanes, or threads.

    With `vectors` a thread of a GPU computes neighbours side by side, as many as one access may touch.
    """
    state = inlined(task.compute_dag.init_state)
    for k, stage in enumerate(state.stages):
        if not stage.is_placeholder and stage.where == ROOT:
            lanes = side_by_side(task, state, k) if vectors else 1
            state = in_threads(state, k, lanes) if task.target.is_gpu else _rows(state, k)
    return state


def side_by_side(task: SearchTask, state: State, k: int) -> int:
    """The neighbours of an access: a power of two that divides the points; 1 for a reduction."""
    op = state.stages[k].op
    return 1 if op.reduce_axis or op.scans else gcd(prod(op.shape), widest_access(task, op.dtype))


def widest_access(task: SearchTask, dtype: str) -> int:
    """The neighbours that one access may touch, a power of two."""
    nbytes = task.hardware_params.completed(task.target).vector_unit_bytes
    return max(1, nbytes // element_bytes(dtype))


def inlined(state: State) -> State:
    """Inline what is no reduction, no scan and no result."""
    results = {t.op.key for t in state.dag.outputs}
    for k, stage in enumerate(state.stages):
        own = stage.is_placeholder or stage.op.reduce_axis or stage.op.scans
        movable = not own and stage.op.key not in results
        if movable and state.access.read_by[k]:
            state = apply(state, ComputeInline(k))
    return state


def _spatial(state: State, k: int) -> list[int]:
    return [it.uid for it in state.stages[k].iters if it.kind != REDUCE]


def _rows(state: State, k: int) -> State:
    """Outer loops fused until they are enough for many cores, and parallel; the last loop as lanes, if long enough."""
    stage = state.stages[k]
    rows = _spatial(state, k)
    axes, apart = stage.op.shape[: len(rows)], stage.op.reduce_axis or stage.op.scans
    if axes and not apart and axes[-1] >= VECTOR:
        state, (outer, lanes) = split(state, k, rows[-1], (VECTOR,))
        state = annotate(state, k, lanes.uid, "vectorize")
        rows, axes = [*rows[:-1], outer.uid], (*axes[:-1], axes[-1] // VECTOR)
    enough = next((n for n in range(1, len(axes)) if prod(axes[:n]) >= ENOUGH), len(axes))
    if not axes:
        return state
    state, fused = fuse(state, k, rows[:enough])
    return annotate(state, k, fused.uid, "parallel")


def in_threads(state: State, k: int, lanes: int) -> State:
    """All loops fused, then cut into blocks of `THREADS` threads with `lanes` each.

    Few points get a block each, and a stage without loops is left to one thread.
    """
    spatial, stage = _spatial(state, k), state.stages[k]
    if not stage.op.scans and prod(stage.op.shape) < FEW and loop_length(stage, REDUCE) >= LONG:
        return _blocks(state, k, spatial)
    if not spatial:
        return state
    state, fused = fuse(state, k, spatial)
    if lanes == 1:
        state, (block, thread) = split(state, k, fused.uid, (THREADS,))
    else:
        state, (block, thread, lane) = split(state, k, fused.uid, (THREADS, lanes))
        state = annotate(state, k, lane.uid, "vectorize")
    state = annotate(state, k, block.uid, "blockIdx.x")
    return annotate(state, k, thread.uid, "threadIdx.x")


def _blocks(state: State, k: int, spatial: list[int]) -> State:
    """A block for each point, whose threads share the terms."""
    if spatial:
        state, fused = fuse(state, k, spatial)
        state = annotate(state, k, fused.uid, "blockIdx.x")
    state, terms = fuse_reductions(state, k)
    state, (_, thread) = split(state, k, terms.uid, (THREADS,))
    return annotate(state, k, thread.uid, "threadIdx.x")
