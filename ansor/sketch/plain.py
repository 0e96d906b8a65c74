"""Programs that need no search: the loops as they were written, and plain nests of them for CPUs and GPUs."""

from __future__ import annotations

from math import prod

from te_lite.replay import apply
from te_lite.state import REDUCE, ROOT, State
from te_lite.step import ComputeInline

from ..core.schedule_primitives import annotate, fuse, split
from ..core.task import SearchTask

VECTOR = 16
ENOUGH = 64
THREADS = 128


def untuned_state(task: SearchTask) -> State:
    """The loops as they were written; on a GPU, which cannot run them, a thread for each element."""
    return plain_state(task) if task.target.is_gpu else task.compute_dag.init_state


def plain_state(task: SearchTask) -> State:
    """Every stage computed at root (what can be inlined is inlined), with parallel loops and lanes, or threads."""
    state = _inlined(task.compute_dag.init_state)
    for k, stage in enumerate(state.stages):
        if not stage.is_placeholder and stage.where == ROOT:
            state = _threads(state, k) if task.target.is_gpu else _rows(state, k)
    return state


def _inlined(state: State) -> State:
    """Inline what is no reduction and no result."""
    results = {t.op.key for t in state.dag.outputs}
    for k, stage in enumerate(state.stages):
        movable = not stage.is_placeholder and not stage.op.reduce_axis and stage.op.key not in results
        if movable and state.access.read_by[k]:
            state = apply(state, ComputeInline(k))
    return state


def _spatial(state: State, k: int) -> list[int]:
    return [it.uid for it in state.stages[k].iters if it.kind != REDUCE]


def _rows(state: State, k: int) -> State:
    """Outer loops fused until they are enough for many cores, and parallel; the last loop as lanes, if long enough."""
    stage = state.stages[k]
    rows, axes = _spatial(state, k), stage.op.shape
    if axes and not stage.op.reduce_axis and axes[-1] >= VECTOR:
        state, (outer, lanes) = split(state, k, rows[-1], (VECTOR,))
        state = annotate(state, k, lanes.uid, "vectorize")
        rows, axes = [*rows[:-1], outer.uid], (*axes[:-1], axes[-1] // VECTOR)
    enough = next((n for n in range(1, len(axes)) if prod(axes[:n]) >= ENOUGH), len(axes))
    if not axes:
        return state
    state, fused = fuse(state, k, rows[:enough])
    return annotate(state, k, fused.uid, "parallel")


def _threads(state: State, k: int) -> State:
    """All loops fused, then cut into blocks of `THREADS` threads."""
    state, fused = fuse(state, k, _spatial(state, k))
    state, (block, thread) = split(state, k, fused.uid, (THREADS,))
    state = annotate(state, k, block.uid, "blockIdx.x")
    return annotate(state, k, thread.uid, "threadIdx.x")
