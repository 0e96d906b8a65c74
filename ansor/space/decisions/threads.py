"""How many threads a block of a kernel without tiles has.

Every kernel that its sketch has not bound is bound to blocks and threads; that of tiles also to virtual threads, and
its tile sizes say how many (section 4.2 of the Ansor paper).
"""

from __future__ import annotations

from collections.abc import Mapping

from te_lite.expr.expr import Expr
from te_lite.expr.lanes import product
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.state import ATTACHED, REDUCE, ROOT, State
from te_lite.schedule.step import Length

from ...core.target.hardware import HardwareParams
from ...core.values.schedule_primitives import annotate, fuse, split
from ...sketch.predicates import THREAD, has_cross_thread_reduction, needs_tiling
from .decision import Number, Numbers, Setting

BLOCK, VTHREAD = "blockIdx.x", "vthread"


class Threads(Number):
    """Power-of-two multiples of a warp (TVM: one warp), for kernels without tiles that are more than a warp."""

    name = "threads"
    gpu_weight = 0.05
    turn = 0
    last_first = True

    def values(self, sketch: State, setting: Setting) -> Mapping[int, tuple[int, ...]]:
        hardware, roots = setting.hardware, tiling_roots(sketch)
        plain = [k for k, s in enumerate(sketch.stages) if s.where == ROOT and _is_plain(sketch, k, roots)]
        large = [k for k in plain if _points(sketch, k) > hardware.warp_size]
        return {k: _counts(_points(sketch, k), hardware) for k in large}

    def apply(self, state: State, k: int, numbers: Numbers, hardware: HardwareParams) -> State:
        if state.stages[k].where != ROOT or any(it.annotation == BLOCK for it in state.stages[k].iters):
            return state
        roots = tiling_roots(state)
        if has_cross_thread_reduction(state, k):
            state, fused = fuse(state, k, _outer_loops(state, k))
            return annotate(state, k, fused.uid, BLOCK)
        if not _is_plain(state, k, roots):
            return _bind_tiles(state, k) if k in roots else state
        state, fused = fuse(state, k, _outer_loops(state, k))
        return _bind_plain(state, k, fused.uid, numbers[k]) if k in numbers else annotate(state, k, fused.uid, THREAD)


def tiling_roots(state: State) -> set[int]:
    """The stages in whose loops tiled stages are computed."""
    return {
        s.attach.stage
        for k, s in enumerate(state.stages)
        if s.attach is not None and s.where == ATTACHED and needs_tiling(state, k)
    }


def _counts(points: int, hardware: HardwareParams) -> tuple[int, ...]:
    counts = [hardware.warp_size]
    while counts[-1] * 2 <= hardware.max_threads_per_block and counts[-1] < points:
        counts.append(counts[-1] * 2)
    return tuple(counts)


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


# ------------------------------------------------------------------------------------------ binding


def _bind_plain(state: State, k: int, loop: int, threads: Length) -> State:
    """A loop becomes blocks of so many threads."""
    state, (block, thread) = split(state, k, loop, [threads])
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
