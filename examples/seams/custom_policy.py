"""A search policy of one's own: hill climbing over the threads of a block.

A policy proposes programs (`ask`) and learns from results (`tell`); it may be asked for more before it is told of the
last ones.  The programs are "measured" by the analytical runner, so this runs without a GPU.
"""

import ansor
import te_lite as te
from ansor.offline.analytical import AnalyticalRunner
from ansor.policy.search_loop import search_loop

A = te.placeholder((1024, 4096), name="A")
B = te.compute(A.shape, lambda i, j: A[i, j] * 2.0, name="B")


class HillClimbing:
    """Doubles or halves the best number of threads so far."""

    def __init__(self, task):
        self.task, self.sizes, self.costs = task, {}, {}

    def ask(self, n):
        best = min(self.costs, key=self.costs.get, default=8)
        fresh = [s for s in (best, best * 2, best // 2) if s not in self.sizes.values() and 1 <= s <= 1024][:n]
        states = {size: self.program(size) for size in fresh}
        self.sizes |= {state.steps: size for size, state in states.items()}
        return list(states.values())

    def program(self, threads):
        s = te.Schedule(self.task.compute_dag)
        block, thread = s[B].split(s[B].fuse(*B.op.axis), factor=threads)
        s[B].bind(block, te.thread_axis("blockIdx.x"))
        s[B].bind(thread, te.thread_axis("threadIdx.x"))
        return s.state

    def tell(self, inputs, results):
        for inp, result in zip(inputs, results, strict=True):
            self.costs[self.sizes[inp.steps]] = result.cost
            print(f"{self.sizes[inp.steps]:5} threads: {result.cost * 1e6:.1f} us")

    def search(self, trials, early_stopping, per_round, measurer):
        return search_loop(self, self.task, trials, early_stopping, per_round, measurer, retries=1)


if __name__ == "__main__":
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([A, B]), target="cuda -model=T4")
    runner = AnalyticalRunner()
    task.tune(ansor.TuningOptions(24, verbose=0, builder=runner.builder(), runner=runner), HillClimbing(task))
