"""Bind the loops of a sketch to blocks, virtual threads and threads (section 4.2 of the Ansor paper).

Everything here is structure: lengths, widths and numbers of threads may be ints or undecided.  Shared copies are
fetched by all threads of a block together, in vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from te_lite.bounds import Bounds
from te_lite.expr import Expr
from te_lite.lanes import product, where
from te_lite.replay import apply
from te_lite.state import ATTACHED, REDUCE, ROOT, State
from te_lite.step import Length, Split

from ..core.hardware import HardwareParams
from ..core.schedule_primitives import annotate, follow_fused_split, fuse, split
from ..sketch.predicates import THREAD, has_cross_thread_reduction, needs_tiling, root_axes, spatial_split_steps
from ..sketch.shared_memory import element_bytes

BLOCK, VTHREAD = "blockIdx.x", "vthread"
WIDTHS = (1, 2, 4, 8, 16)


def tiling_roots(state: State) -> set[int]:
    """The stages in whose loops tiled stages are computed."""
    return {
        s.attach.stage
        for k, s in enumerate(state.stages)
        if s.attach is not None and s.where == ATTACHED and needs_tiling(state, k)
    }


# ------------------------------------------------------------------------------------------ what there is to choose


def thread_counts(state: State, hardware: HardwareParams) -> dict[int, tuple[int, ...]]:
    """The threads a block may have in each kernel without tiles: power-of-two multiples of a warp (TVM: one warp).

    Small kernels, which are a single block, are missing.
    """
    out = {}
    roots = tiling_roots(state)
    for k, stage in enumerate(state.stages):
        if stage.where == ROOT and _is_plain(state, k, roots) and _points(state, k) > hardware.warp_size:
            counts = [hardware.warp_size]
            while counts[-1] * 2 <= hardware.max_threads_per_block and counts[-1] < _points(state, k):
                counts.append(counts[-1] * 2)
            out[k] = tuple(counts)
    return out


def _is_plain(state: State, k: int, roots: set[int]) -> bool:
    """Stage `k` is the root of a kernel that has neither tiles nor threads yet."""
    stage = state.stages[k]
    if stage.is_placeholder or k in roots or has_cross_thread_reduction(state, k):
        return False
    return all(it.annotation != THREAD for it in stage.iters)


def _points(state: State, k: int) -> int:
    """The product of the axes of the outer space loops: what their extents multiply to, or more."""
    stage = state.stages[k]
    axes = (*stage.op.axis, *stage.op.reduce_axis)
    covered = set().union(*[root_axes(stage, uid) for uid in _outer_loops(state, k)])
    extents = [axes[n].extent for n in covered if n < len(axes)]
    return int(product([1 if isinstance(e, Expr) else e for e in extents]))


def copies(state: State) -> list[int]:
    """The copies in shared memory."""
    return [k for k, s in enumerate(state.stages) if s.where == ATTACHED and s.op.name.endswith(".shared")]


def vector_widths(state: State, k: int, hardware: HardwareParams) -> tuple[int, ...]:
    """The numbers of elements of shared copy `k` that one vector load may have."""
    most = max(1, hardware.vector_unit_bytes // element_bytes(state.stages[k].op.dtype))
    return tuple([w for w in WIDTHS if w <= most])


def copy_run(bounds: Bounds, k: int) -> Any:
    """The innermost extent of a shared copy that is not 1 (ints or lanes); good widths divide it."""
    run: Any = 1
    for region in bounds.regions[k][: len(bounds.state.stages[k].op.axis)]:
        run = where(region.extent > 1, region.extent, run)
    return run


# ------------------------------------------------------------------------------------------ binding


def bind(
    state: State,
    hardware: HardwareParams,
    threads: Mapping[int, Length],
    widths: Mapping[int, Length] | None = None,
) -> State:
    """`state` with every kernel bound: `threads[k]` for a plain kernel, `widths[k]` for a shared copy.

    Without `widths` copies are left alone; the splits of copies note no extent (0).
    Steps come stage by stage, from the last to the first.
    """
    roots = tiling_roots(state)
    for k in range(len(state.stages) - 1, -1, -1):
        stage = state.stages[k]
        if stage.where == ROOT and not stage.is_placeholder:
            state = _bind_root(state, k, roots, hardware, threads)
        elif widths is not None and k in widths:
            state = _fetch(state, k, widths[k])
    return state


def _bind_root(state: State, k: int, roots: set[int], hardware: HardwareParams, threads: Mapping[int, Length]) -> State:
    if has_cross_thread_reduction(state, k):
        state, fused = fuse(state, k, _outer_loops(state, k))
        return annotate(state, k, fused.uid, BLOCK)
    if not _is_plain(state, k, roots):
        return _bind_tiles(state, k) if k in roots else state
    small = _points(state, k) <= hardware.warp_size
    state, fused = fuse(state, k, _outer_loops(state, k))
    if small:
        return annotate(state, k, fused.uid, THREAD)
    state, (block, thread) = split(state, k, fused.uid, [threads[k]])
    return annotate(annotate(state, k, block.uid, BLOCK), k, thread.uid, THREAD)


def _outer_loops(state: State, k: int) -> list[int]:
    """The outer space loops, up to the first one that other stages are computed at."""
    loops: list[int] = []
    for it in state.stages[k].iters:
        if it.kind == REDUCE or it.annotation != "none":
            break
        loops.append(it.uid)
        if state.attached_to(k, it.uid):
            break
    return loops


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


def _fetch(state: State, k: int, width: Length) -> State:
    """Cooperative fetching of a shared copy."""
    stage = state.stages[k]
    assert stage.attach is not None
    sources = spatial_split_steps(state, stage.attach.stage)
    state, fused = fuse(state, k, stage.leaf)
    first = len(state.stages[k].vars)
    state = apply(state, Split(k, state.stages[k].position(fused.uid), 0, (width,)))
    rest, vector = state.stages[k].vars[first:]
    state = annotate(state, k, vector.uid, "vectorize")
    state, (_, thread) = follow_fused_split(state, k, rest.uid, sources, 1)
    return annotate(state, k, thread.uid, THREAD)
