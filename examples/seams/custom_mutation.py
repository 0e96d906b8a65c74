"""A mutation of one's own: exchange two neighbouring lengths of one tile, in many programs at once.

A mutation has a name, a weight and `apply`, which gets a matrix of decisions (a row is a program) and the meaning of
its columns, and gives changed rows with a mask of those that differ.  The programs are "measured" by the analytical
runner, so this runs without a GPU.
"""

import numpy as np

import ansor
import te_lite as te
from ansor.cost_model.prior import AnalyticalModel
from ansor.evolve.mutation import GPU_MUTATIONS
from ansor.offline.analytical import AnalyticalRunner


class SwapLengths:
    """Their product stays, so the tile still divides its extent; the innermost length must stay within its limit."""

    name, weight = "swap", 0.2

    def apply(self, rows, space, rng):
        out = rows.copy()
        tiles = [t for t in space.tiles if t.parts > 1]
        if tiles:
            tile = tiles[rng.integers(len(tiles))]
            left = tile.first + int(rng.integers(tile.parts - 1))
            out[:, [left, left + 1]] = rows[:, [left + 1, left]]
            out = np.where(out[:, [tile.columns.stop - 1]] <= tile.max_innermost, out, rows)
        return out, (out != rows).any(axis=1)


if __name__ == "__main__":
    A, B = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    k = te.reduce_axis((0, 512), name="k")
    C = te.compute((512, 512), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([A, B, C]), target="cuda -model=A100")
    params = {"evolutionary_search_population": 128}
    for mutations in (GPU_MUTATIONS, (*GPU_MUTATIONS, SwapLengths())):
        policy = ansor.SketchPolicy(task, AnalyticalModel(), params, seed=0, verbose=0, mutations=mutations)
        measurer = ansor.ProgramMeasurer(AnalyticalRunner.builder(), AnalyticalRunner(), verbose=0)
        policy.search(32, None, 16, measurer)
        best = measurer.best_of(task)
        print(f"{len(mutations)} mutations: {best.cost * 1e6:.1f} us")
