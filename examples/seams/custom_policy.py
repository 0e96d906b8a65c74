"""A search policy of one's own: hill climbing over the tile size of a schedule written by hand.

A policy proposes programs (`ask`) and learns from results (`tell`); it knows no device.  `search_loop` is the loop
around the two; it may ask for the next programs before it tells of the last ones.  The programs are "measured" by the analytical runner, so this runs without a GPU.
"""

from typing import Any

import ansor
import te_lite as te
from ansor.analytical import GPUS
from ansor.measure.analytical import AnalyticalRunner
from ansor.search import search_loop
from te_lite.state import State
from te_lite.step import Split


class HillClimbing:
    """Doubles or halves the threads of a block, starting from the best size so far."""

    def __init__(self, task: ansor.SearchTask) -> None:
        self.task = task
        self.asked: set[int] = set()
        self.costs: dict[int, float] = {}

    def ask(self, n: int) -> list[State]:
        best = min(self.costs, key=self.costs.__getitem__, default=8)
        sizes = [s for s in (best, best * 2, best // 2) if s not in self.asked and 1 <= s <= 1024][:n]
        self.asked.update(sizes)
        return [self.program(s) for s in sizes]

    def program(self, threads: int) -> State:
        out = self.task.compute_dag.outputs[0]
        s = te.create_schedule(out.op)
        block, thread = s[out].split(s[out].fuse(*out.op.axis), factor=threads)
        s[out].bind(block, te.thread_axis("blockIdx.x"))
        s[out].bind(thread, te.thread_axis("threadIdx.x"))
        return s.state

    def tell(self, inputs: list[ansor.MeasureInput], results: list[ansor.MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            (threads,) = next(step.lengths for step in inp.steps if isinstance(step, Split))
            self.costs[threads] = result.cost
            print(f"{threads:5} threads: {result.cost * 1e6:.1f} us")

    def search(self, trials: int, early_stopping: int | None, per_round: int, measurer: ansor.ProgramMeasurer) -> Any:
        return search_loop(self, self.task, trials, early_stopping, per_round, measurer)


a = te.placeholder((1024, 4096), name="A")
task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, te.compute(a.shape, lambda i, j: a[i, j] * 2.0)]), target="cuda")
runner = AnalyticalRunner(GPUS["T4"])
task.tune(ansor.TuningOptions(24, verbose=0, builder=runner.builder(), runner=runner), HillClimbing(task))
