"""The derivation rules of the Ansor paper (section 4.1) but for reductions: skip, inline, tile, fuse, add copies."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import ClassVar

from te_lite.errors import ScheduleError, require
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead, CacheWrite
from te_lite.schedule.state import REDUCE, SPATIAL, Iter, Stage, State

from ..core.values.schedule_primitives import annotate, compute_at, follow_split, reorder, split
from .predicates import (
    CONST_INDICES,
    NO_SPLIT,
    always_inlined,
    axis_name,
    consumers,
    fusion_target,
    has_cache_write,
    has_cross_thread_reduction,
    named_axes,
    needs_tiling,
    producers,
    whole_space,
)
from .rule import Condition, Outcome, SketchContext

# ------------------------------------------------------------------------------------------------------------- inlining


class AlwaysInline:
    """Inline a stage when that is always right."""

    paper: ClassVar[str] = "Rule 2, Always Inline."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if always_inlined(state, k, ctx.target.is_gpu) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(apply(state, ComputeInline(k)), k - 1)]


class SimplifyComputeWithConstTensor:
    """Unroll the loops over a constant matrix (winograd's transforms) and tile the others once."""

    paper: ClassVar[str] = "Not in the paper; written for winograd."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if CONST_INDICES in state.stages[k].op.attrs else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        unrolled = named_axes(state.stages[k], CONST_INDICES)
        outer, inner, last = [], [], []
        for it in state.stages[k].iters:
            if it.uid in unrolled:
                state = annotate(state, k, it.uid, "unroll")
                last.append(it.uid)
            else:
                name = f"{state.stages[k].op.name}.{axis_name(state.stages[k], it.uid)}"
                law = f"a reduction axis must be listed in {CONST_INDICES}"
                require(it.kind == SPATIAL, ScheduleError, name, law)
                state, (a, b) = split(state, k, it.uid, [None])
                outer.append(a.uid)
                inner.append(b.uid)
        return [(reorder(state, k, outer + inner + last), k - 1)]


def loop_before_unrolled(stage: Stage) -> Iter | None:
    """The loop just outside the first unrolled one."""
    for outside, it in zip(stage.iters, stage.iters[1:], strict=False):
        if it.annotation == "unroll":
            return outside
    return None


class SpecialComputeLocationGPU:
    """Compute the gathered input of a constant-matrix stage right before its unrolled loops."""

    paper: ClassVar[str] = "Not in the paper; written for winograd's input tiles."
    departs: ClassVar[str] = "A consumer whose loops are all unrolled is skipped; TVM stops with an error."

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if not producers(state, k) or not always_inlined(state, k, is_gpu=True):
            return Condition.SKIP
        readers = consumers(state, k)
        if len(readers) != 1 or CONST_INDICES not in state.stages[readers[0]].op.attrs:
            return Condition.SKIP
        return Condition.APPLY_AND_SKIP_REST if loop_before_unrolled(state.stages[readers[0]]) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        target = consumers(state, k)[0]
        loop = loop_before_unrolled(state.stages[target])
        assert loop is not None
        return [(compute_at(state, k, target, loop.uid), k - 1)]


class SkipStage:
    """Leave the stage as it is."""

    paper: ClassVar[str] = "Rule 1, Skip."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(state, k - 1)]


# ---------------------------------------------------------------------------------------------- stages that hold copies


def fetch_loop(stage: Stage) -> Iter:
    """The loop of a tiled reduction at which its inputs are fetched: the end of the outermost reduction level."""
    missing = set(range(len(stage.op.axis), stage.num_roots)) - named_axes(stage, NO_SPLIT)
    reductions = [it for it in stage.iters if it.kind == REDUCE]
    for it in reductions:
        missing -= root_axes(stage, it.uid)
        if not missing:
            return it
    return reductions[0]


class AddCacheRead:
    """Fetch what a tiled stage reads through shared memory."""

    paper: ClassVar[str] = "Rule 5 for inputs: cache reads in shared memory (GPU, appendix)."
    departs: ClassVar[str] = (
        "Only consumers that are tiled reductions and read the stage directly get a cache; TVM stops with an error "
        "when the first one is and another is not.  None has what is read at two places, or has several outputs."
    )

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        readers = consumers(state, k) if state.stages[k].op.num_outputs == 1 else []
        first_fits = bool(readers) and _fetches(state, k, readers[0])
        return Condition.APPLY_AND_SKIP_REST if first_fits else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        readers = [r for r in consumers(state, k) if _fetches(state, k, r)]
        for inserted, reader in enumerate(readers):
            state = apply(state, CacheRead(k, "shared", (reader + inserted,)))
            target = reader + inserted + 1
            state = compute_at(state, k + 1, target, fetch_loop(state.stages[target]).uid)
        return [(state, k)]


def _fetches(state: State, k: int, reader: int) -> bool:
    if not needs_tiling(state, reader) or has_cross_thread_reduction(state, reader):
        return False
    return bool(state.stages[reader].op.reduce_axis) and len(state.access.places_read(reader, k)) == 1


class AddCacheWrite:
    """Accumulate in a cache and copy it out, which gives a consumer to fuse with."""

    paper: ClassVar[str] = "Rule 5, Add Cache Stage."
    departs: ClassVar[str] = (
        "A consumer that is tiled already does not count as fusible; a stage without axes to split gets no cache, "
        "which could not be fused with its copy."
    )

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if not needs_tiling(state, k) or fusion_target(state, k) is not None:
            return Condition.SKIP
        if len(whole_space(state.stages[k])) == len(state.stages[k].op.axis):
            return Condition.SKIP
        return Condition.APPLY_AND_SKIP_REST if ctx.target.is_gpu else Condition.APPLY

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(apply(state, CacheWrite(k, "local")), k)]


# --------------------------------------------------------------------------------------------------------------- tiling


def tile(state: State, k: int, structure: str) -> tuple[State, list[int]]:
    """Tile stage `k` with undecided lengths, e.g. `SSRSRS`: one space or reduction level per letter.

    Gives the state and the positions of the splits of its spatial loops.
    """
    word = structure.upper()
    space: list[list[int]] = [[] for _ in range(word.count("S"))]
    reduce: list[list[int]] = [[] for _ in range(word.count("R"))]
    whole: dict[bool, list[int]] = {True: [], False: []}
    unsplit = named_axes(state.stages[k], NO_SPLIT)
    splits = []
    for it in state.stages[k].iters:
        spatial = it.kind == SPATIAL
        levels = space if spatial else reduce
        if it.uid in unsplit:
            whole[spatial].append(it.uid)
        elif len(levels) == 1:
            levels[0].append(it.uid)
        else:
            state, parts = split(state, k, it.uid, [None] * (len(levels) - 1))
            for level, part in zip(levels, parts, strict=True):
                level.append(part.uid)
            if spatial:
                splits.append(len(state.steps) - 1)
    space[-1][:0] = whole[True]
    reduce[-1][:0] = whole[False]
    spaces, reduces = iter(space), iter(reduce)
    order = [uid for letter in word for uid in next(spaces if letter == "S" else reduces)]
    return reorder(state, k, order), splits


def follow_tiling(state: State, k: int, splits: Sequence[int], n: int, whole_axes: Set[int]) -> State:
    """Split the loops of stage `k`, which has no reduction, into `n` + 1 levels, except the axes `whole_axes`.

    `splits` are those of the same axes of another stage, which leaves the same ones whole.
    """
    levels: list[list[int]] = [[] for _ in range(n + 1)]
    sources = iter(splits)
    whole = []
    for it in state.stages[k].iters:
        if it.uid in whole_axes:
            whole.append(it.uid)
            continue
        state, parts = follow_split(state, k, it.uid, next(sources), n)
        for level, part in zip(levels, parts, strict=True):
            level.append(part.uid)
    levels[-1][:0] = whole
    return reorder(state, k, [uid for level in levels for uid in level])


class MultiLevelTiling:
    """Tile a stage that reuses its inputs."""

    paper: ClassVar[str] = "Rule 3, Multi-level Tiling (SSRSRS on CPUs, SSSRRSRS on GPUs)."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if needs_tiling(state, k) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(tile(state, k, tiling_structure(ctx))[0], k - 1)]


class MultiLevelTilingWithFusion:
    """Tile a stage, tile its element-wise consumer alike, and compute the stage inside the consumer's tiles."""

    paper: ClassVar[str] = "Rule 4, Multi-level Tiling with Fusion."
    departs: ClassVar[str] = (
        "A consumer that is tiled already is no fusion target; TVM stops with an error. A consumer that reads the"
        " product in several ways, all point by point (GELU, `x * sigmoid(x)`), is one; TVM follows a single chain."
    )

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if not needs_tiling(state, k) or fusion_target(state, k) is None or not fusion_levels(ctx):
            return Condition.SKIP
        only = has_cache_write(state, k) or ctx.target.is_gpu
        return Condition.APPLY_AND_SKIP_REST if only else Condition.APPLY

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        target = fusion_target(state, k)
        assert target is not None
        tiled, splits = tile(state, k, tiling_structure(ctx))
        out = []
        for level in fusion_levels(ctx):
            fused = follow_tiling(tiled, target, splits, level, whole_space(state.stages[k]))
            at = fused.stages[target].iters[level * len(splits) - 1]
            out.append((compute_at(fused, k, target, at.uid), k - 1))
        return out


def fusion_levels(ctx: SketchContext) -> list[int]:
    """The numbers of outer space levels of the structure that a consumer may take over; one is left inside."""
    structure = tiling_structure(ctx).upper()
    levels = (3,) if ctx.target.is_gpu else (1, 2)
    return [n for n in levels if structure.startswith("S" * n) and structure.count("S") > n]


def tiling_structure(ctx: SketchContext) -> str:
    options = ctx.options
    return options.gpu_multi_level_tiling_structure if ctx.target.is_gpu else options.cpu_multi_level_tiling_structure
