"""A cost model of one's own: prefers kernels whose blocks have many threads, and learns nothing.

Any object with `update` and `predict` is a cost model; `PythonBasedModel` says what they get.  The programs are
"measured" by the analytical runner, so this runs without a GPU.
"""

from collections.abc import Sequence

import numpy as np

import ansor
import te_lite as te
from ansor.offline.analytical import AnalyticalRunner
from te_lite.schedule.state import State


class ManyThreads(ansor.PythonBasedModel):
    """The score of a program is the largest extent of a loop that is bound to threads."""

    def update(self, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]) -> None:
        best = min([r.cost for r in results], default=float("inf"))
        print(f"told of {len(results)} programs, the best takes {best * 1e6:.1f} us")

    def predict(self, task: ansor.SearchTask, states: Sequence[State]) -> np.ndarray:
        return np.array([self.threads(state) for state in states], np.float64)

    def threads(self, state: State) -> int:
        loops = [it for stage in state.dag.infer_bound_from_state(state).stages for it in stage.iters]
        return max([it.extent for it in loops if it.annotation == "threadIdx.x"], default=1)


if __name__ == "__main__":
    a, b = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    k = te.reduce_axis((0, 512), name="k")
    c = te.compute((512, 512), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, c]), target="cuda -model=H200")
    runner = AnalyticalRunner()
    options = ansor.TuningOptions(16, num_measures_per_round=8, verbose=0, builder=runner.builder(), runner=runner)
    params = {"evolutionary_search_population": 64, "sample_init_min_population": 32}
    task.tune(options, search_policy=ansor.SketchPolicy(task, ManyThreads(), params, seed=0, verbose=0))
