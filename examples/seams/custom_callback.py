"""A measure callback of one's own: the history of the best program, with the trial that found it.

A callback hears of every result as soon as it is there, one or several at a time, failures too.  The programs are
"measured" by the analytical runner, so this runs without a device.
"""

from collections.abc import Sequence
from typing import Any

import ansor
import te_lite as te
from ansor.offline.analytical import AnalyticalRunner


class History:
    """`best` lists (trial, seconds) of every program that was better than all before it."""

    def __init__(self) -> None:
        self.trials, self.best = 0, [(0, float("inf"))]

    def callback(
        self, policy: Any, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]
    ) -> None:
        for result in results:
            self.trials += 1
            if result.error_no == 0 and result.cost < self.best[-1][1]:
                self.best.append((self.trials, result.cost))


if __name__ == "__main__":
    a, b = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    k = te.reduce_axis((0, 512), name="k")
    c = te.compute((512, 512), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, c]), target="cuda -model=H200")
    runner, history = AnalyticalRunner(), History()
    options = ansor.TuningOptions(64, verbose=0, builder=runner.builder(), runner=runner, measure_callbacks=[history])
    task.tune(options, search_policy=ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0))
    for trial, cost in history.best[1:]:
        print(f"trial {trial}: {cost * 1e6:.1f} us")
