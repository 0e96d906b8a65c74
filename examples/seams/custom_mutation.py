"""A mutation of one's own: exchange two neighbouring lengths of one tile, in many programs at once.

A mutation has a name, a weight and `apply`, which gets a matrix of decisions (a row is a program) and the meaning of
its columns, and gives changed rows with a mask of those that differ.  The programs are "measured" by the analytical
runner, so this runs without a GPU.
"""

from dataclasses import dataclass

import numpy as np

import ansor
import te_lite as te
from ansor.analytical import GPUS, AnalyticalModel
from ansor.measure.analytical import AnalyticalRunner
from ansor.population.mutate import GPU_MUTATIONS
from ansor.population.space import Matrix, Space


@dataclass(frozen=True)
class SwapLengths:
    """Exchanges two lengths side by side; their product stays, so the tile still divides its extent."""

    weight: float
    name: str = "swap"

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, np.ndarray]:
        out = rows.copy()
        tiles = [t for t in space.tiles if t.parts > 1]
        if tiles:
            tile = tiles[rng.integers(len(tiles))]
            column = tile.first + int(rng.integers(tile.parts - 1))
            out[:, [column, column + 1]] = rows[:, [column + 1, column]]
            out = np.where(out[:, [tile.columns.stop - 1]] <= tile.max_innermost, out, rows)
        return out, (out != rows).any(axis=1)


a, b = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
k = te.reduce_axis((0, 512), name="k")
c = te.compute((512, 512), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, c]), target="cuda", desc="matmul")
model, runner = AnalyticalModel(GPUS["A100"]), AnalyticalRunner(GPUS["A100"])
for mutations in (GPU_MUTATIONS, (*GPU_MUTATIONS, SwapLengths(weight=0.2))):
    policy = ansor.SketchPolicy(
        task, model, {"evolutionary_search_population": 128}, seed=0, verbose=0, mutations=mutations
    )
    measurer = ansor.ProgramMeasurer(runner.builder(), runner, verbose=0)
    policy.search(32, None, 16, measurer)
    print(f"{len(mutations)} mutations: {measurer.best[task.workload_key].cost * 1e6:.1f} us")
