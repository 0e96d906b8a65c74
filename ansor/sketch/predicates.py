"""Questions that rules ask about a state (table 1 of the Ansor paper).

A stage is named by its number `k`.  What an *operation* is like comes from the access analysis of the state's
current operations; what was *done* to a stage is read off its loops and the step list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from te_lite.bounds.reads import reads_all, reads_by_producer
from te_lite.expr.expr import Expr
from te_lite.schedule.loop_steps import Split, Splitting
from te_lite.schedule.stage_steps import CacheWrite
from te_lite.schedule.state import ATTACHED, INLINED, REDUCE, ROOT, SPATIAL, Iter, SplitRel, Stage, State
from te_lite.schedule.step import Step

NO_SPLIT = "auto_scheduler_no_split_at_inner"
UNROLL_INNER = "auto_scheduler_always_unroll_inner"
CONST_INDICES = "auto_scheduler_simplify_const_tensor_indices"

THREAD = "threadIdx.x"


# ------------------------------------------------------------------------------------------ producers and consumers


def _through_inlined(state: State, links: Sequence[dict[int, object]], k: int) -> list[int]:
    found: set[int] = set()
    stack = list(links[k])
    while stack:
        other = stack.pop()
        if state.stages[other].where == INLINED:
            stack.extend(links[other])
        else:
            found.add(other)
    return sorted(found)


def consumers(state: State, k: int) -> list[int]:
    """The stages that read stage `k`, through inlined ones, in stage order."""
    return _through_inlined(state, state.access.read_by, k)  # type: ignore[arg-type]


def producers(state: State, k: int) -> list[int]:
    """The stages that stage `k` reads, through inlined ones, in stage order."""
    return _through_inlined(state, state.access.read_from, k)  # type: ignore[arg-type]


def single_consumer(state: State, k: int) -> int | None:
    """The only consumer; of several, the root stage that all of them are or are attached to; else None."""
    readers = consumers(state, k)
    if len(readers) <= 1:
        return readers[0] if readers else None
    roots = set()
    for r in readers:
        attach = state.stages[r].attach
        roots.add(r if attach is None else attach.stage)
    return roots.pop() if len(roots) == 1 else None


def fusion_target(state: State, k: int) -> int | None:
    """The consumer into whose tiles stage `k` can be fused: single, element-wise matched, not yet tiled.

    Its loops follow the splits of `k` axis by axis: it has no reduction, and keeps no axis whole that `k` splits.
    """
    readers = consumers(state, k)
    if len(readers) != 1 or not may_be_computed_at(state, k):
        return None
    t = readers[0]
    stage, target = state.stages[k], state.stages[t]
    if has_reduce_iter(target) or target.op.name.endswith(".shared") or is_tiled(target):
        return None
    return t if state.access.elementwise_match(k, t) and _can_follow(stage, target) else None


def _can_follow(stage: Stage, target: Stage) -> bool:
    whole = whole_space(stage)
    return whole_space(target) <= whole and len(whole) < len(stage.op.axis)


# ------------------------------------------------------------------------------------------ arguments that are read


def is_read_argument(state: State, k: int) -> bool:
    """Stage `k` computes an argument of the program that other stages read."""
    listed = any(t.op.key == state.stages[k].op.key for t in state.dag.outputs)
    return listed and not state.access.is_output(k)


def may_be_computed_at(state: State, k: int) -> bool:
    """Computing stage `k` where it is read leaves no element out that must be there in the end, and starts no race.

    An argument of the program is read as a whole by a stage that is computed as a whole, and in one way only: else the
    iterations of a parallel loop would read elements that others write.
    """
    if not is_read_argument(state, k):
        return True
    hidden = frozenset(n for n, s in enumerate(state.stages) if s.where == INLINED)
    reads = reads_by_producer(state.ops, hidden)[k]
    shape = state.stages[k].op.shape
    return len(reads) == 1 and all(
        reads_all(read, shape, state.stages[read.reader].op.shape) and _computed_whole(state, read.reader)
        for read in reads
    )


def _computed_whole(state: State, k: int) -> bool:
    """Every element of stage `k` is computed, as it is placed now: of an argument, or of what nobody reads."""
    if not state.access.is_output(k) and not is_read_argument(state, k):
        return False
    return state.stages[k].where == ROOT or may_be_computed_at(state, k)


# ------------------------------------------------------------------------------------------ what the loops tell


def has_reduce_iter(stage: Stage) -> bool:
    """Some loop is not purely spatial."""
    return any(it.kind != SPATIAL for it in stage.iters)


def is_tiled(stage: Stage) -> bool:
    """The number of loops is not that of the axes."""
    return len(stage.leaf) != stage.num_roots


def needs_tiling(state: State, k: int) -> bool:
    """The operation reuses its inputs, so that tiles pay."""
    return state.access.needs_multi_level_tiling(k)


def _known_extent(stage: Stage, it: Iter) -> int:
    """The extent of a loop; -1 when it depends on other loops or is not known."""
    axes = (*stage.op.axis, *stage.op.reduce_axis)
    symbolic = it.uid < len(axes) and isinstance(axes[it.uid].extent, Expr)
    return it.extent if isinstance(it.extent, int) and not symbolic else -1


def loop_length(stage: Stage, kind: str) -> int:
    """The product of the extents of the loops of one kind; an unknown extent counts as -1."""
    total = 1
    for it in stage.iters:
        if it.kind == kind:
            total *= _known_extent(stage, it)
    return total


def has_cross_thread_reduction(state: State, k: int) -> bool:
    """A reduction loop of the stage, or of a stage computed in it, is bound to threads."""
    inside = [s for s in state.stages if s.attach is not None and s.attach.stage == k]
    return any(
        it.annotation == THREAD and it.kind == REDUCE for stage in (state.stages[k], *inside) for it in stage.iters
    )


def axis_name(stage: Stage, number: int) -> str:
    """The name the user gave an axis (`i` for the axis `i.c` of a cache stage)."""
    return (*stage.op.axis, *stage.op.reduce_axis)[number].name.removesuffix(".c")


def named_axes(stage: Stage, attribute: str) -> set[int]:
    """The numbers of the axes listed in an attribute of the operation."""
    listed = stage.op.attrs.get(attribute, ())
    names = {str(name) for name in ([listed] if isinstance(listed, str) else listed)}
    return {n for n in range(stage.num_roots) if axis_name(stage, n) in names}


def whole_space(stage: Stage) -> set[int]:
    """The numbers of the spatial axes that tiling leaves whole."""
    return named_axes(stage, NO_SPLIT) & set(range(len(stage.op.axis)))


# ------------------------------------------------------------------------------------------ what the steps tell


def traced_steps(steps: Sequence[Step], k: int) -> Iterator[tuple[int, Step]]:
    """The steps on the stage that is number `k` in the end, last first, with their positions.

    A step that inserted a stage counts for the number at which it did so.
    """
    for position in range(len(steps) - 1, -1, -1):
        step = steps[position]
        if step.stage == k:
            yield position, step
        if step.inserts_at is not None and k > step.inserts_at:
            k -= 1


def has_cache_write(state: State, k: int) -> bool:
    """Stage `k` is the cache that a cache_write inserted."""
    return any(isinstance(step, CacheWrite) for _, step in traced_steps(state.steps, k))


def split_steps(state: State, k: int) -> list[int]:
    """The positions of the splits of stage `k`, last first (those made before an rfactor are not its own)."""
    own = sum(isinstance(rel, SplitRel) for rel in state.stages[k].relations)
    steps = [(position, step) for position, step in traced_steps(state.steps, k) if isinstance(step, Splitting)][:own]
    return [position for position, step in steps if isinstance(step, Split)]


def spatial_split_steps(state: State, k: int) -> list[int]:
    """The positions of the splits of the spatial axes of a tiled stage, last first (reductions were split last)."""
    stage = state.stages[k]
    whole = named_axes(stage, NO_SPLIT)
    reductions = [n for n in range(len(stage.op.axis), stage.num_roots) if n not in whole]
    return split_steps(state, k)[len(reductions) :]


def always_inlined(state: State, k: int, is_gpu: bool) -> bool:
    """Inlining the stage is always right: on GPUs whenever possible, on CPUs when no work is repeated.

    A copy that a rule has placed in the loops of its reader on a CPU is there to be made.
    """
    stage = state.stages[k]
    if stage.is_placeholder or state.access.is_output(k) or is_read_argument(state, k) or has_reduce_iter(stage):
        return False
    return is_gpu or (stage.where != ATTACHED and state.access.is_strictly_inlineable(k))
