"""From sketches to spaces: what is left to decide, and which column holds it.

A sketch whose rfactor is undecided makes several spaces, one for each factor, since the factor is the shape of a
stage.  All other decisions are columns of one space.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from te_lite.errors import require
from te_lite.state import REDUCE, SplitRel, State
from te_lite.step import FollowFusedSplit, FollowSplit, RFactor, Split

from ..core.errors import TaskError
from ..core.hardware import HardwareParams
from ..core.options import SketchOptions
from ..core.target import Target
from ..sketch.predicates import traced_steps
from .choices import Choice, ChoiceKind, Space, Tile
from .decisions.factor_tables import factor_table
from .decisions.tile_sizes import fill, holes, thread_splits
from .locations import movable_stages
from .parallel_loops import deepest
from .threads import bind, copies, thread_counts, vector_widths
from .vector_loops import CPU_UNROLL, GPU_UNROLL, lane_loops, loops_of_programs, unrolled_stages

Factors = tuple[tuple[int, int], ...]
"""The factors of a sketch's rfactors: pairs of the position of a split and its length."""


def rfactor_positions(sketch: State) -> list[int]:
    """The positions of the undecided splits that an rfactor follows."""
    return [p for p in holes(sketch) if any(isinstance(step, RFactor) for step in sketch.steps[p + 1 : p + 2])]


def random_space(
    sketch: State,
    rng: np.random.Generator,
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
) -> Space:
    """One space of a sketch, every choice of factors equally likely."""
    tables = _factor_tables(sketch, options or SketchOptions())
    factors = tuple([(p, int(table[rng.integers(len(table))])) for p, table in tables.items()])
    return space_of(sketch, target, hardware, options, factors)


def _factor_tables(sketch: State, options: SketchOptions) -> dict[int, list[int]]:
    most, opened = options.max_innermost_split_factor, holes(sketch)
    return {p: factor_table(opened[p].extent, 1, most)[:, 0].tolist() for p in rfactor_positions(sketch)}


def space_of(
    sketch: State,
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
    factors: Factors = (),
) -> Space:
    """The decisions of a sketch, the factors of its rfactors given; made once.

    Raises TaskError when the factor of an rfactor is missing, or a split without lengths has no known extent.
    """
    target = Target.of(target)
    return _space(sketch, target, hardware.completed(target), options or SketchOptions(), factors)


@lru_cache(maxsize=1024)
def _space(sketch: State, target: Target, hardware: HardwareParams, options: SketchOptions, factors: Factors) -> Space:
    if factors:
        sketch = fill(sketch, {p: (f,) for p, f in factors})
    tiles = _tiles(sketch, target, options)
    wanted = _gpu_choices(sketch, hardware) if target.is_gpu else _cpu_choices(sketch)
    first = sum(t.parts for t in tiles)
    choices = [Choice(kind, k, first + n, values) for n, (kind, k, values) in enumerate(wanted)]
    fixed = target.is_gpu or options.disable_change_compute_location
    return Space(sketch, tiles, tuple(choices), () if fixed else tuple(movable_stages(sketch)))


def split_positions(state: State, k: int) -> list[int]:
    """The positions of the steps that made the splits of stage `k`, in the order of its relations.

    Steps that came before the stage was derived anew (rfactor) are older than its relations.
    """
    kinds = (Split, FollowSplit, FollowFusedSplit)
    found = [p for p, step in traced_steps(state.steps, k) if isinstance(step, kinds)]
    count = sum(isinstance(rel, SplitRel) for rel in state.stages[k].relations)
    return found[:count][::-1]


def _tiles(sketch: State, target: Target, options: SketchOptions) -> tuple[Tile, ...]:
    threaded = {p for positions in thread_splits(sketch).values() for p in positions} if target.is_gpu else set()
    owner = {p: (k, n) for k in range(len(sketch.stages)) for n, p in enumerate(split_positions(sketch, k))}
    out: list[Tile] = []
    first = 0
    missing = rfactor_positions(sketch)
    require(not missing, TaskError, "space", "the factors of rfactors must be given", positions=missing)
    for position, step in holes(sketch).items():
        require(step.extent > 0, TaskError, "space", "a split without lengths needs an extent", step=step)
        k, n = owner[position]
        relation = [rel for rel in sketch.stages[k].relations if isinstance(rel, SplitRel)][n]
        reduce = sketch.stages[k].vars[relation.parent].kind == REDUCE
        parts = len(step.lengths)
        levels = ["serial"] * parts
        if position in threaded:
            levels[:2] = ["vthread", "thread"]
        long = reduce and not target.is_gpu
        most = options.max_innermost_reduce_factor if long else options.max_innermost_split_factor
        out.append(Tile(position, k, step.extent, first, parts, most, reduce, tuple(levels)))
        first += parts
    return tuple(out)


Wanted = tuple[ChoiceKind, int, tuple[int, ...]]


def _gpu_choices(sketch: State, hardware: HardwareParams) -> list[Wanted]:
    threads = thread_counts(sketch, hardware)
    bound = bind(sketch, hardware, dict.fromkeys(threads))
    out: list[Wanted] = [("unroll", k, GPU_UNROLL) for k in unrolled_stages(bound)]
    out += [("fetch", k, vector_widths(sketch, k, hardware)) for k in copies(sketch)]
    out += [("threads", k, counts) for k, counts in threads.items()]
    return out


def _cpu_choices(sketch: State) -> list[Wanted]:
    out: list[Wanted] = [("unroll", k, CPU_UNROLL) for k in unrolled_stages(sketch)]
    for k in loops_of_programs(sketch):
        depth, lanes = deepest(sketch, k), len(lane_loops(sketch, k))
        if depth:
            out.append(("parallel", k, tuple(range(depth + 1))))
        if lanes:
            out.append(("vectorize", k, tuple(range(lanes + 1))))
    return out
