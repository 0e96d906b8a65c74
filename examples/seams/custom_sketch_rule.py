"""A sketch rule of one's own: the product of two matrices gets a schedule with two open tile sizes.

A rule has a condition and an action; both get the policy, a state and the number of a stage.  The lengths that the
rule leaves open (None) are filled by the search.  The programs are "measured" by the analytical runner.
"""

from typing import Any

import ansor
import te_lite as te
from ansor.offline.analytical import AnalyticalRunner
from te_lite.schedule.loop_steps import Reorder, Split
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State


def applies(policy: Any, state: State, stage: int) -> int:
    """Apply to the stage of the product, and ask no other rule about it."""
    rule = ansor.PreloadCustomSketchRule
    return rule.APPLY_AND_SKIP_REST if state.stages[stage].op.name == "C" else rule.PASS


def tile(policy: Any, state: State, stage: int) -> list[list[Any]]:
    """Loops i, j, k become i0 j0 k i1 j1; the search goes on with the stage before."""
    state = apply(state, Split(stage, 0, 512, (None,)))
    state = apply(state, Split(stage, 2, 512, (None,)))
    return [[apply(state, Reorder(stage, (0, 2, 4, 1, 3))), stage - 1]]


rule = ansor.PreloadCustomSketchRule(applies, tile)

if __name__ == "__main__":
    a, b = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    k = te.reduce_axis((0, 512), name="k")
    c = te.compute((512, 512), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, c]), target="c", desc="matmul")
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0, init_search_callbacks=[rule])
    for sketch in policy.generate_sketches():
        print(sketch)
    runner = AnalyticalRunner()
    measurer = ansor.ProgramMeasurer(runner.builder(), runner, verbose=0)
    print("The best of 20 programs:", policy.search(20, None, 10, measurer), sep="\n")
