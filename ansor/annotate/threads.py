"""Bind the loops of a filled sketch to blocks, virtual threads and threads (spec autoscheduler 5.6).

Kernels (root stages) are bound first; then bounds are inferred once, and the shared copies are fetched by all
threads of a block together, in vectors of a width that divides the innermost run of the copy.
"""

from __future__ import annotations

import numpy as np

from te_lite.bounds import infer_bounds
from te_lite.replay import apply
from te_lite.state import ATTACHED, REDUCE, ROOT, Iter, State
from te_lite.step import Step

from ..hardware import HardwareParams
from ..moves import annotate, follow_fused_split, fuse, split
from ..sketch.predicates import THREAD, has_cross_thread_reduction, needs_tiling, spatial_split_steps
from .shared import element_bytes, shared_bytes

BLOCK, VTHREAD = "blockIdx.x", "vthread"


def tiling_roots(state: State) -> set[int]:
    """The stages in whose loops tiled stages are computed."""
    return {
        s.attach.stage
        for k, s in enumerate(state.stages)
        if s.attach is not None and s.where == ATTACHED and needs_tiling(state, k)
    }


def bind_threads(state: State, hardware: HardwareParams, rng: np.random.Generator) -> State | None:
    """`state` with every kernel bound to threads; None when it exceeds the shared memory of a block.

    `state` is filled and not annotated; steps come stage by stage, from the last to the first.
    """
    roots = tiling_roots(state)
    steps: dict[int, tuple[Step, ...]] = {}
    bound = state
    for k in range(len(state.stages) - 1, -1, -1):
        before = len(bound.steps)
        bound = _bind_root(bound, k, k in roots, hardware, rng)
        steps[k] = bound.steps[before:]
    bounds = infer_bounds(bound)
    if max(shared_bytes(bounds).values(), default=0) > hardware.max_shared_memory_per_block:
        return None
    for k, stage in enumerate(bounds.state.stages):
        if stage.where == ATTACHED and stage.op.name.endswith(".shared"):
            steps[k] = _fetch_steps(bounds.state, k, hardware, rng)
    for k in range(len(state.stages) - 1, -1, -1):
        for step in steps[k]:
            state = apply(state, step)
    return state


def _bind_root(state: State, k: int, tiled: bool, hardware: HardwareParams, rng: np.random.Generator) -> State:
    stage = state.stages[k]
    if stage.is_placeholder or stage.where != ROOT:
        return state
    if has_cross_thread_reduction(state, k):
        state, fused = _fuse_outer(state, k)
        return annotate(state, k, fused.uid, BLOCK)
    if any(it.annotation == THREAD for it in stage.iters):
        return state
    return _bind_tiles(state, k) if tiled else _bind_plain(state, k, hardware, rng)


def _fuse_outer(state: State, k: int) -> tuple[State, Iter]:
    """Fuse the outer space loops, up to the first one that other stages are computed at."""
    loops: list[int] = []
    for it in state.stages[k].iters:
        if it.kind == REDUCE or it.annotation != "none":
            break
        loops.append(it.uid)
        if state.attached_to(k, it.uid):
            break
    return fuse(state, k, loops)


def _bind_plain(state: State, k: int, hardware: HardwareParams, rng: np.random.Generator) -> State:
    """Blocks of a number of threads that is a power-of-two multiple of a warp (TVM: one warp)."""
    state, fused = _fuse_outer(state, k)
    assert isinstance(fused.extent, int)
    warp = hardware.warp_size
    if fused.extent <= warp:
        return annotate(state, k, fused.uid, THREAD)
    choices = [warp]
    while choices[-1] * 2 <= hardware.max_threads_per_block and choices[-1] < fused.extent:
        choices.append(choices[-1] * 2)
    state, (block, thread) = split(state, k, fused.uid, [choices[int(rng.integers(len(choices)))]])
    return annotate(annotate(state, k, block.uid, BLOCK), k, thread.uid, THREAD)


def _bind_tiles(state: State, k: int) -> State:
    """The first three levels of tiles become blocks, virtual threads and threads."""
    for level, annotation in enumerate((BLOCK, VTHREAD, THREAD)):
        loops = []
        for it in state.stages[k].iters[level:]:
            if not it.name.endswith(f".{level}"):
                break
            loops.append(it.uid)
        state, fused = fuse(state, k, loops)
        state = annotate(state, k, fused.uid, annotation)
    return state


def _fetch_steps(state: State, k: int, hardware: HardwareParams, rng: np.random.Generator) -> tuple[Step, ...]:
    """Cooperative fetching of a shared copy; `state` has the extents of the whole copy of a block."""
    stage = state.stages[k]
    assert stage.attach is not None
    before = len(state.steps)
    widths = vector_widths(state, k, hardware)
    sources = spatial_split_steps(state, stage.attach.stage)
    state, fused = fuse(state, k, stage.leaf)
    state, (rest, vector) = split(state, k, fused.uid, [widths[int(rng.integers(len(widths)))]])
    state = annotate(state, k, vector.uid, "vectorize")
    state, (_, thread) = follow_fused_split(state, k, rest.uid, sources, 1)
    return annotate(state, k, thread.uid, THREAD).steps[before:]


def vector_widths(state: State, k: int, hardware: HardwareParams) -> list[int]:
    """The powers of two that divide the innermost run of a shared copy and fit a vector register."""
    stage = state.stages[k]
    extents = [it.extent for it in stage.iters if isinstance(it.extent, int) and it.extent > 1]
    run = extents[-1] if extents else 1
    most = max(1, hardware.vector_unit_bytes // element_bytes(stage.op.dtype))
    return [w for w in (1, 2, 4, 8, 16) if w <= most and run % w == 0]
