"""Programs of similar tasks: carried over they are programs of the task, and without any a search is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.evolve.checked import require_rows
from ansor.offline.analytical import AnalyticalRunner
from ansor.records.store import RecordToStore
from ansor.space.states import concrete
from ansor_ext.transfer.alike import distance, likeness, stored_alike
from ansor_ext.transfer.similar import GIVEN, Similar
from te_lite.meaning.interp import run
from tests.oracle import Oracle
from tests.workloads import matmul

SMALL = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 2}


def task_of(n: int, m: int, k: int, target: str, dtype: str = "float32") -> ansor.SearchTask:
    hardware = ansor.HardwareParams(num_cores=4, vector_unit_bytes=32) if target == "c" else None
    return ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(n, m, k, dtype)), target=target, hardware_params=hardware)


def policy_of(task: ansor.SearchTask) -> ansor.SketchPolicy:
    return ansor.SketchPolicy(task, params=SMALL, seed=3, verbose=0)


def told(task: ansor.SearchTask, similar: Similar, count: int = 8) -> list[ansor.MeasureInput]:
    """Tell of programs of a task, each slower than the one before."""
    inputs = [ansor.MeasureInput(task, state) for state in policy_of(task).ask(count)]
    results = [ansor.MeasureResult((1e-3 * (1 + k),), 0, "", 0.0, 0) for k in range(len(inputs))]
    similar.tell(inputs, results)
    return inputs


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.one_in(2)
def test_what_is_carried_over_is_a_program_of_the_task(target: str) -> None:
    similar = Similar()
    for sizes in ((32, 64, 16), (64, 64, 64)):
        told(task_of(*sizes, target), similar, 8)
    task = task_of(24, 40, 28, target)
    policy = policy_of(task)
    start = similar.start(task, policy.proposals)
    assert 2 <= len(start.rows) <= 2 * GIVEN and 1 <= start.tasks <= 2
    oracle = Oracle(task.compute_dag, np.random.default_rng(0))
    for variant, row in start.rows:
        require_rows(row[None], variant.space, "carried")
        state = concrete(variant, row, task.target, policy.proposals.hardware)
        assert oracle.mismatch(te.lower(state), run) is None


def test_a_program_of_the_same_extents_stays_what_it_is() -> None:
    similar, task = Similar(), task_of(32, 64, 16, "cuda")
    inputs = told(task, similar)
    policy = policy_of(task)
    rows = similar.start(task, policy.proposals).rows
    states = [concrete(v, row, task.target, policy.proposals.hardware) for v, row in rows]
    assert [s.steps for s in states] == [inp.steps for inp in inputs[: len(states)]] and len(states) == GIVEN


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.one_in(2)
def test_a_search_with_nothing_to_begin_with_is_as_it_was(target: str) -> None:
    alone, offered = [policy_of(task_of(32, 64, 16, target)) for _ in range(2)]
    similar = Similar()
    told(task_of(32, 64, 16, target, "float64"), similar)
    offered.begin_with(similar)
    assert [s.steps for s in offered.ask(16)] == [s.steps for s in alone.ask(16)]
    assert not offered.uses().start


def test_a_round_begins_with_the_best_of_the_nearest_task() -> None:
    similar, task = Similar(), task_of(64, 64, 64, "c")
    for sizes in ((16, 16, 16), (64, 64, 32)):
        told(task_of(*sizes, "c"), similar)
    policy = policy_of(task)
    policy.begin_with(similar)
    first = [policy.start.rows[k] for k in range(4)]
    want = [concrete(v, row, task.target, policy.proposals.hardware).steps for v, row in first]
    assert [state.steps for state in policy.ask(16)[:4]] == want


def test_computations_are_alike_up_to_extents_but_not_to_dtypes() -> None:
    dags = [te.ComputeDAG(matmul(*sizes)) for sizes in ((8, 8, 8), (8, 16, 4), (8, 8, 8, "float64"))]
    assert likeness(dags[0]) == likeness(dags[1]) != likeness(dags[2])
    assert distance(dags[0], dags[0]) == 0 < distance(dags[0], dags[1])


def test_the_store_knows_similar_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANSOR_CACHE", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "none"))
    known, task = task_of(32, 64, 16, "c"), task_of(16, 32, 16, "c")
    tiled = ansor.SketchPolicy(known, params={**SMALL, "extra_sketch_rules": ""}, seed=3, verbose=0)
    inputs = [ansor.MeasureInput(known, state) for state in tiled.ask(2)]
    RecordToStore().confirmed(inputs, [[2e-3], [1e-3]])
    assert sorted(res.cost for _, res in stored_alike(task)) == [1e-3, 2e-3]
    assert list(stored_alike(task_of(16, 32, 16, "c", "float64"))) == []
    policy = ansor.SketchPolicy(task, params=SMALL, seed=3)
    policy.begin_with(Similar(stored=True))
    policy.announce(AnalyticalRunner())
    assert "begins with 2 programs of 1 similar task" in capsys.readouterr().out


@pytest.mark.long
def test_tasks_of_one_run_begin_with_programs_of_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the first three may be asked for before any is told."""
    tasks = [task_of(*sizes, "cuda") for sizes in ((32, 64, 16), (64, 32, 32), (64, 64, 32), (32, 32, 32))]
    options: dict[str, Any] = {"builder": AnalyticalRunner.builder(), "runner": AnalyticalRunner()}
    scheduler = ansor.TaskScheduler(tasks, strategy="round-robin", seed=0)
    scheduler.tune(ansor.TuningOptions(16, num_measures_per_round=4, **options), search_policy_params=SMALL)
    lines = [line for line in capsys.readouterr().out.splitlines() if "SketchPolicy: searching" in line]
    assert len(lines) == 4 and "begins with" not in lines[0] and "begins with" in lines[3]
