"""Decision spaces made by hand from sketches, for the tests of mutation, crossover and evolution."""

from __future__ import annotations

import numpy as np

from ansor.core.target.target import Target
from ansor.sketch import generate_sketches
from ansor.sketch.predicates import traced_steps
from ansor.space.decisions.decision import Choice, Tile
from ansor.space.decisions.draw import Matrix
from ansor.space.decisions.factor_tables import padded_extents, tile_table
from ansor.space.decisions.loops import holes
from ansor.space.decisions.table import DECISIONS
from ansor.space.locations import ComputeLocation
from ansor.space.spaces import Group, Space, Variant
from te_lite import ComputeDAG
from te_lite.schedule.state import State
from tests.ansor.sketch_cases import HARDWARE, dag_of

UNROLL = {"c": (0, 16, 64, 512), "cuda": (0, 16, 64, 512, 1024)}
GPU_LEVELS = ("vthread", "thread", "serial", "serial")


def stage_of_step(sketch: State, position: int) -> int:
    """The final number of the stage that a step is about."""
    stages = range(len(sketch.stages))
    return next(k for k in stages if any(p == position for p, _ in traced_steps(sketch.steps, k)))


def space_of_sketch(sketch: State, target: str, max_innermost: int = 64) -> Space:
    """All undecided splits, one unroll choice per tiled stage, and a choice of each other kind of the target."""
    tiles, first = [], 0
    for position, step in holes(sketch).items():
        parts = len(step.lengths)
        levels = GPU_LEVELS if target == "cuda" and parts == 4 else ("serial",) * parts
        stage = stage_of_step(sketch, position)
        reduce = step.iter >= 5 * len(sketch.stages[stage].op.axis) and parts < 4
        extents = padded_extents(step.extent, 0.125)
        tiles.append(Tile(position, stage, extents, first, parts, max_innermost, reduce, levels))
        first += parts
    stages = sorted({t.stage for t in tiles}) or [len(sketch.stages) - 1]
    kinds: list[tuple[str, int, tuple[int, ...]]] = [("unroll", k, UNROLL[target]) for k in stages]
    if target == "cuda":
        kinds += [("fetch", 0, (1, 2, 4)), ("threads", len(sketch.stages) - 1, (32, 64, 128, 256))]
    else:
        kinds += [("parallel", stages[-1], (1, 2, 3)), ("vectorize", stages[-1], (0, 1))]
    choices = [Choice(kind, k, first + i, values) for i, (kind, k, values) in enumerate(kinds)]
    present = tuple([d for d in DECISIONS if d.weight(Target.of(target)) is not None])
    return Space(sketch, tuple(tiles), tuple(choices), present)


def spaces_of(dag: ComputeDAG, target: str, max_innermost: int = 64) -> list[Space]:
    sketches = generate_sketches(dag, target, HARDWARE[target])
    return [space_of_sketch(s, target, max_innermost) for s in sketches]


def space_named(name: str, target: str, max_innermost: int = 64) -> Space:
    return spaces_of(dag_of(name), target, max_innermost)[0]


def variants_of(space: Space, n: int) -> list[Variant]:
    """`n` variants that differ in a place."""
    return [Variant(space, (ComputeLocation(0, "at", 1, uid),)) for uid in range(n)]


def random_rows(space: Space, n: int, rng: np.random.Generator) -> Matrix:
    out = np.zeros((n, space.width), np.int64)
    for t in space.tiles:
        table = tile_table(t.extents, t.parts, t.max_innermost)
        out[:, t.columns] = table[rng.integers(len(table), size=n)]
    for c in space.choices:
        out[:, c.column] = np.array(c.values)[rng.integers(len(c.values), size=n)]
    return out


def random_group(variant: Variant, n: int, rng: np.random.Generator) -> Group:
    return Group(variant, random_rows(variant.space, n, rng))


def valid(space: Space, rows: Matrix) -> np.ndarray:
    """Which rows are points of the space, by definition: bool [n]."""
    out = np.ones(len(rows), bool)
    for t in space.tiles:
        lengths = rows[:, t.columns]
        out &= (lengths > 0).all(axis=1) & np.any([e % lengths.prod(axis=1) == 0 for e in t.extents], axis=0)
        out &= lengths[:, -1] <= t.max_innermost
    for c in space.choices:
        out &= np.isin(rows[:, c.column], c.values)
    return out


def point_count(space: Space) -> int:
    sizes = [len(tile_table(t.extents, t.parts, t.max_innermost)) for t in space.tiles]
    return int(np.prod([*sizes, *[len(c.values) for c in space.choices]], dtype=object))
