"""Twins, tasks that differ in what follows their last reduction: programs of one are the same steps of the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.offline.analytical import AnalyticalRunner
from ansor.space.states import begins, concrete
from ansor_ext.transfer.alike import distance, epilogue, kinship, likeness
from ansor_ext.transfer.epilogues import with_other_epilogue
from ansor_ext.transfer.similar import Similar
from te_lite.meaning.interp import run
from te_lite.schedule.step import Step
from tests.nonempty import nonempty
from tests.oracle import Oracle

SMALL = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 2}
TILES = {**SMALL, "extra_sketch_rules": ""}
RAN = ansor.MeasureResult((1e-3,), 0, "", 0.0, 0)
Epilogue = Callable[[te.Tensor], list[te.Tensor]]


def product(n: int, m: int, k: int, after: Epilogue) -> te.ComputeDAG:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")
    return te.ComputeDAG([a, b, *after(c)])


def alone(c: te.Tensor) -> list[te.Tensor]:
    return [c]


def biased(c: te.Tensor) -> list[te.Tensor]:
    """A row is added, and what is below 0 cut off."""
    n, m = c.shape
    row = te.placeholder((1, m), name="row")
    added = te.compute((n, m), lambda i, j: c[i, j] + row[0, j], name="added")
    return [row, te.compute((n, m), lambda i, j: te.max(added[i, j], te.const(0.0, "float32")), name="out")]


def residual(c: te.Tensor) -> list[te.Tensor]:
    """Another matrix is added."""
    n, m = c.shape
    rest = te.placeholder((n, m), name="rest")
    return [rest, te.compute((n, m), lambda i, j: c[i, j] + rest[i, j], name="out")]


def scaled(c: te.Tensor) -> list[te.Tensor]:
    """Three stages in between, two rows."""
    n, m = c.shape
    by, plus = te.placeholder((1, m), name="by"), te.placeholder((1, m), name="plus")
    bare = te.compute((n, m), lambda i, j: c[i, j] - te.const(0.5, "float32"), name="bare")
    times = te.compute((n, m), lambda i, j: bare[i, j] * by[0, j], name="times")
    added = te.compute((n, m), lambda i, j: times[i, j] + plus[0, j], name="added")
    return [by, plus, te.compute((n, m), lambda i, j: te.max(added[i, j], te.const(0.0, "float32")), name="out")]


def cut(c: te.Tensor) -> list[te.Tensor]:
    """No stage in between, no other input."""
    n, m = c.shape
    return [te.compute((n, m), lambda i, j: te.max(c[i, j], te.const(0.0, "float32")), name="out")]


def doubled(c: te.Tensor, times: int) -> list[te.Tensor]:
    """So many stages that add each element to itself."""
    for k in range(times):
        c = te.compute(c.shape, lambda i, j, c=c: c[i, j] + c[i, j], name=f"twice{k}")  # type: ignore[misc]
    return [c]


def both(c: te.Tensor) -> list[te.Tensor]:
    """The product is an output, too."""
    return [c, *cut(c)]


def summed(c: te.Tensor) -> list[te.Tensor]:
    """Another reduction follows."""
    n, m = c.shape
    j = te.reduce_axis((0, m), name="j")
    return [te.compute((n,), lambda i: te.sum(c[i, j], axis=[j]), name="out")]


def task_of(dag: te.ComputeDAG, target: str) -> ansor.SearchTask:
    hardware = ansor.HardwareParams(num_cores=4, vector_unit_bytes=32) if target == "c" else None
    return ansor.SearchTask(compute_dag=dag, target=target, hardware_params=hardware)


def policy_of(task: ansor.SearchTask, seed: int = 3) -> ansor.SketchPolicy:
    return ansor.SketchPolicy(task, params=SMALL, seed=seed, verbose=0)


def told(similar: Similar, task: ansor.SearchTask, count: int) -> list[ansor.MeasureInput]:
    """Tell of programs of a task, each slower than the one before."""
    inputs = [ansor.MeasureInput(task, state) for state in policy_of(task).ask(count)]
    similar.tell(inputs, [ansor.MeasureResult((1e-3 * (1 + k),), 0, "", 0.0, 0) for k in range(count)])
    return inputs


def test_who_is_akin() -> None:
    dags = {f.__name__: product(32, 64, 16, f) for f in (alone, biased, residual, scaled, cut, both, summed)}
    sizes = {name: None if (rest := epilogue(dag)) is None else len(rest) for name, dag in dags.items()}
    assert sizes == {"alone": None, "biased": 2, "residual": 1, "scaled": 5, "cut": 0, "both": None, "summed": None}
    assert len({likeness(dag) for dag in dags.values()}) == 7
    assert len({kinship(dags[name]) for name in ("biased", "residual", "scaled", "cut")}) == 1
    assert len({kinship(dag) for dag in dags.values()}) == 4
    tasks = {name: task_of(dag, "cuda") for name, dag in dags.items()}
    assert Similar().twins(tasks["biased"], tasks["cut"]) and not Similar().alike(tasks["biased"], tasks["cut"])
    larger = product(32, 128, 16, residual)
    assert kinship(larger) == kinship(dags["biased"]) and distance(dags["biased"], larger) == 2
    assert not Similar().twins(tasks["biased"], task_of(larger, "cuda"))
    assert not Similar().twins(tasks["biased"], task_of(dags["residual"], "c"))


def test_the_order_of_arguments_has_no_meaning() -> None:
    """Nor how many axes the one at a place has."""
    dag = product(32, 64, 16, biased)
    a, b, row, out = dag.tensors
    turned = te.ComputeDAG([row, b, a, out])
    assert distance(dag, turned) == 0 and Similar().twins(*[task_of(d, "cuda") for d in (dag, turned)])
    given = te.placeholder((64,), name="row")
    flat = te.compute((32, 64), lambda i, j: dag.ops[2].output(0)[i, j] + given[j], name="out")
    other = te.ComputeDAG([given, a, b, flat])
    assert distance(dag, other) == 0 and kinship(dag) == kinship(other)


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("pair", [(biased, residual), (cut, scaled), (scaled, cut)])
def test_programs_of_a_twin_compute_what_this_one_does(target: str, pair: tuple[Epilogue, Epilogue]) -> None:
    """At sizes that only some tiles divide; and the way back leads to the same steps."""
    similar = Similar()
    theirs, mine = [task_of(product(24, 40, 28, f), target) for f in pair]
    inputs = told(similar, theirs, 8)
    policy = policy_of(mine)
    rows = list(similar.of_twins(mine, policy.proposals))
    assert 2 <= len(rows) <= 4
    oracle = Oracle(mine.compute_dag, np.random.default_rng(0))
    states = [concrete(variant, row, mine.target, policy.proposals.hardware) for variant, row in rows]
    for state in states:
        assert oracle.mismatch(te.lower(state), run) is None
    back = Similar()
    back.tell(
        [ansor.MeasureInput(mine, s) for s in states], [ansor.MeasureResult((1e-3,), 0, "", 0.0, 0)] * len(states)
    )
    own = policy_of(theirs)
    again = [concrete(v, r, theirs.target, own.proposals.hardware) for v, r in back.of_twins(theirs, own.proposals)]
    assert {s.steps for s in again} <= {inp.steps for inp in inputs} and len(again) == len(states)


def test_steps_stay_what_they_are_where_the_epilogue_does() -> None:
    task = task_of(product(32, 64, 16, scaled), "cuda")
    rest = epilogue(task.compute_dag) or ()
    policy = policy_of(task)
    sketches = [*policy.generate_sketches(), *policy.extra_sketches()]
    for state in nonempty(policy.ask(16)):
        pattern = max([s.steps for s in sketches if begins(s.steps, state.steps)], key=len)
        assert with_other_epilogue(state.steps, rest, pattern, rest) == list(state.steps)


def test_a_stage_that_is_not_merely_inlined_is_no_epilogue_to_exchange() -> None:
    task = task_of(product(32, 64, 16, biased), "cuda")
    state = policy_of(task).ask(1)[0]
    own = {k for k, stage in enumerate(task.compute_dag.ops) if stage.name in ("row", "C", "added")}
    assert with_other_epilogue(state.steps, own, state.steps, own) is None
    assert with_other_epilogue(state.steps, epilogue(task.compute_dag) or (), state.steps, own) is None


def test_a_round_has_the_best_of_a_twin_until_it_has_them_all() -> None:
    """In rounds after the first, up to an eighth; the best first."""
    similar = Similar()
    theirs, mine = [task_of(product(32, 64, 16, f), "cuda") for f in (biased, residual)]
    policy = policy_of(mine)
    policy.begin_with(similar)
    inputs = [ansor.MeasureInput(mine, state) for state in policy.ask(8)]
    policy.tell(inputs, [RAN] * len(inputs))
    told(similar, theirs, 6)
    rows = list(similar.of_twins(mine, policy.proposals))
    want = [concrete(v, row, mine.target, policy.proposals.hardware).steps for v, row in rows]
    new = [steps for steps in want if steps not in {inp.steps for inp in inputs}]
    assert len(new) >= 2
    for k in range(0, len(new), 2):
        assert [s.steps for s in policy.ask(16)][: len(new[k : k + 2])] == new[k : k + 2]


@pytest.mark.long
def test_twins_hear_of_each_other_in_however_many_processes(tmp_path: Path) -> None:
    """Of more tasks than have their first rounds before anything is told."""
    here, *apart = [_measured(tmp_path / f"{n}", n) for n in (0, 1, 3)]
    assert here == apart[0] == apart[1]


def _measured(log: Path, processes: int) -> list[tuple[str, tuple[Step, ...]]]:
    tasks = [task_of(product(32, 64, 16, partial(doubled, times=k)), "cuda") for k in range(1, 8)]
    options = ansor.TuningOptions(
        63, None, 8, 0, AnalyticalRunner.builder(), AnalyticalRunner(), measure_callbacks=[ansor.RecordToFile(log)]
    )
    ansor.TaskScheduler(tasks, seed=0).tune(options, search_policy_params=TILES, policy_processes=processes)
    return [(inp.task.workload_key, inp.steps) for inp, _ in ansor.load_records(log)]
