"""Multi-level tiling, alone and fused with an element-wise consumer (section 4.1 of the Ansor paper)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import ClassVar

from te_lite.schedule.state import SPATIAL, State

from ..core.values.schedule_primitives import compute_at, follow_split, reorder, split
from .predicates import NO_SPLIT, fusion_target, has_cache_write, named_axes, needs_tiling, whole_space
from .rule import Condition, Outcome, SketchContext


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
