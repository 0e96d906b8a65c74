"""Thousands of rows of a variant at random, valid by construction (section 4.2 of the Ansor paper, as arrays).

Tiles are uniform over their tables; on a GPU the tiles of a kernel's threads are drawn together by the counts of their
`ThreadPlan`, and rows that need more shared memory than a block has are drawn again.  What then depends on extents
(vector widths, parallel and vector loops) is chosen from bounds inferred for all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from te_lite.lanes import larger
from te_lite.state import INLINED

from ..core.hardware import HardwareParams
from ..core.options import SketchOptions
from ..core.target import Target
from ..sketch.shared_memory import estimated_shared_bytes, shared_bytes
from .choices import Choice, Matrix, Space, Tile, Variant
from .decisions.draw import Index, Mask, pick
from .decisions.factor_tables import factor_table
from .decisions.tile_sizes import thread_limits, thread_plan, thread_splits
from .parallel_loops import default_depths
from .programs import Programs, programs
from .threads import copy_run
from .vector_loops import most_lanes

ROUNDS = 20
MOST_DRAWS = 8


def sample_rows(
    variant: Variant,
    n: int,
    rng: np.random.Generator,
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
) -> Matrix:
    """`n` rows (int64 [n, width]) that keep to the threads and shared memory of a block.

    Fewer, or none, come out when shared memory hardly ever suffices.  Rows may repeat.
    """
    target = Target.of(target)
    hardware = hardware.completed(target)
    if target.is_gpu:
        return _gpu_rows(variant, n, rng, target, hardware)
    rows = _rows(variant.space, n, rng)
    _draw_tiles(variant.space.tiles, rows, rng)
    return _cpu_choices(variant, rows, rng, target, hardware, options or SketchOptions())


def _rows(space: Space, n: int, rng: np.random.Generator) -> Matrix:
    """Rows of ones with the choices that no extent limits drawn."""
    rows = np.ones((n, space.width), np.int64)
    for c in space.choices:
        if c.kind in ("unroll", "threads"):
            rows[:, c.column] = np.array(c.values)[rng.integers(len(c.values), size=n)]
    return rows


def _draw_tiles(tiles: Sequence[Tile], rows: Matrix, rng: np.random.Generator) -> None:
    for tile in tiles:
        table = factor_table(tile.extent, tile.parts, tile.max_innermost)
        rows[:, tile.columns] = table[rng.integers(len(table), size=len(rows))]


# ------------------------------------------------------------------------------------------------ GPU


def _gpu_rows(variant: Variant, n: int, rng: np.random.Generator, target: Target, hardware: HardwareParams) -> Matrix:
    found: list[Matrix] = [np.empty((0, variant.space.width), np.int64)]
    missing, wanted = n, n + n // 4
    for turn in range(ROUNDS):
        drawn = _fitting(variant, wanted, rng, target, hardware, small=turn == ROUNDS - 1 and missing == n)
        found.append(drawn[:missing])
        missing -= len(found[-1])
        if missing <= 0:
            break
        share = max(len(drawn) / wanted, 1 / MOST_DRAWS)
        wanted = int(1.1 * missing / share) + 16
    return np.concatenate(found)


def _fitting(
    variant: Variant, n: int, rng: np.random.Generator, target: Target, hardware: HardwareParams, small: bool
) -> Matrix:
    """Those of `n` drawn rows whose shared copies fit; `small`: with reductions in tiles of 1."""
    space, most = variant.space, hardware.max_shared_memory_per_block
    rows = _rows(space, n, rng)
    threaded = _draw_threads(space, rows, rng, hardware)
    if not small:
        _draw_tiles([t for t in space.tiles if t.step not in threaded], rows, rng)
    lengths = {t.step: list(np.ascontiguousarray(rows[:, t.columns].T)) for t in space.tiles}
    rows = rows[_mask(estimated_shared_bytes(space.sketch, lengths) <= most, n)]
    copies = [c for c in space.choices if c.kind == "fetch"]
    if not copies or not len(rows):
        return rows
    made = programs(variant, rows, target, hardware)
    fits = _mask(reduce(larger, shared_bytes(made.bounds).values(), 0) <= most, len(rows))
    for c in copies:
        rows[:, c.column] = _draw_widths(made, c, rng)
    return rows[fits]


def _mask(truth: Any, n: int) -> Mask:
    return np.broadcast_to(np.asarray(truth), (n,))


def _draw_threads(space: Space, rows: Matrix, rng: np.random.Generator, hardware: HardwareParams) -> set[int]:
    """Draw the spatial tiles of all kernels with threads; the positions of their splits."""
    tiles = {t.step: t for t in space.tiles}
    done: set[int] = set()
    for k, positions in thread_splits(space.sketch).items():
        mine = [tiles[p] for p in positions if p in tiles]
        if mine:
            limits = thread_limits(space.sketch, k, hardware)
            extents = tuple([t.extent for t in mine])
            plan = thread_plan(extents, mine[0].parts, limits, mine[0].max_innermost)
            for tile, drawn in zip(mine, plan.draw(len(rows), rng), strict=True):
                rows[:, tile.columns] = drawn
            done.update([t.step for t in mine])
    return done


def _draw_widths(made: Programs, choice: Choice, rng: np.random.Generator) -> Index:
    """For each program one of the widths that divide the run of a shared copy: int64 [n]."""
    run = np.broadcast_to(np.asarray(copy_run(made.bounds, choice.stage)), (made.n,))
    widths = np.array(choice.values, np.int64)
    drawn: Index = widths[pick(run[:, None] % widths == 0, rng)]
    return drawn


# ------------------------------------------------------------------------------------------------ CPU


def _cpu_choices(
    variant: Variant, rows: Matrix, rng: np.random.Generator, target: Target, hardware: HardwareParams,
    options: SketchOptions,
) -> Matrix:  # fmt: skip
    """Parallel loops enough for all cores; some of the innermost loops as lanes."""
    state = programs(variant, rows, target, hardware).bounds.state
    depths = default_depths(state, hardware.num_cores)
    for c in variant.space.choices:
        if c.kind == "parallel":
            rows[:, c.column] = depths.get(c.stage, 0)
        elif c.kind == "vectorize":
            rows[:, c.column] = 0
            stage = state.stages[c.stage]
            if stage.where != INLINED:
                most = most_lanes(state, c.stage, depths.get(c.stage, 0), options.max_vectorize_size)
                drawn = 1 + (rng.random(len(rows)) * most).astype(np.int64)
                rows[:, c.column] = np.minimum(drawn, most)
    return rows
