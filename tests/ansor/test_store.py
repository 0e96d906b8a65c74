"""The store of records: what is kept is found again, for the same computation, device and version before all others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.core.tasks.task import SearchTask
from ansor.core.values.options import LayoutRewriteOption
from ansor.records.store import RecordToStore, best_stored, keep, place_of
from ansor.records.store_files import take_in
from ansor.sketch.plain import plain_state, untuned_state
from te_lite.schedule.state import State
from tests.workloads import matmul

PLAIN = LayoutRewriteOption.NO_REWRITE


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANSOR_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "system"))
    return tmp_path / "store"


def task_of(n: int, dtype: str = "float32", target: str = "c") -> SearchTask:
    return SearchTask(compute_dag=te.ComputeDAG(matmul(n, n, n, dtype)), target=target, desc="product")


def states(task: SearchTask) -> list[State]:
    """Two different programs: the untuned one, and one that runs its rows in parallel."""
    plain, parallel = untuned_state(task), plain_state(task)
    assert plain.steps != parallel.steps
    return [plain, parallel]


def kept(task: SearchTask, seconds: Sequence[float], counts: Sequence[int] = (2, 2)) -> list[State]:
    found = states(task)
    inputs = [ansor.MeasureInput(task, state) for state in found]
    RecordToStore().confirmed(inputs, [[9 * s, *[s] * n] for s, n in zip(seconds, counts, strict=True)])
    return found


def best(task: SearchTask) -> tuple[State, float] | None:
    found = best_stored(task.compute_dag, task.target, PLAIN)
    return None if found is None else (ansor.MeasureInput(task, steps=found[0].steps).state, found[1].cost)


def test_the_medians_of_what_was_confirmed_are_kept_and_the_best_is_built() -> None:
    task = task_of(5)
    _, fast = kept(task, [3e-3, 2e-3])
    found = best(task_of(5))
    assert found is not None and found[0].steps == fast.steps and found[1] == 2e-3
    a, b, c = np.ones((5, 5), "float32"), np.eye(5, dtype="float32"), np.zeros((5, 5), "float32")
    task.build_best()(a, b, c)
    assert (c == a).all()
    assert "C" in task.print_best()


def test_a_program_that_was_timed_again_is_known_by_the_last_figure() -> None:
    task = task_of(5)
    slow = kept(task, [3e-3, 2e-3])[0]
    kept(task, [3e-3, 4e-3])
    found = best(task)
    assert found is not None and found[0].steps == slow.steps


def test_who_left_the_turns_early_is_not_kept() -> None:
    """The machine was faster while it was there."""
    task = task_of(5)
    slow, fast = kept(task, [3e-3, 2e-3], counts=(5, 10))
    found = best(task)
    assert found is not None and found[0].steps == fast.steps and found[1] == 2e-3
    slow, fast = kept(task, [1e-3, 2e-3], counts=(5, 10))
    found = best(task)
    assert found is not None and found[0].steps == fast.steps != slow.steps


def test_dtypes_layouts_and_extents_are_told_apart() -> None:
    kept(task_of(5), [1e-3, 1e-3])
    assert task_of(5, "float64").workload_key == task_of(5).workload_key  # TVM's keys do not know dtypes
    assert best(task_of(5, "float64")) is None and best(task_of(6)) is None


def test_what_this_version_measured_goes_before_what_others_did(store: Path) -> None:
    task = task_of(5)
    slow, fast = kept(task, [2e-3, 1e-3])
    (file,) = store.rglob("*.json")
    file.rename(file.with_name("ansor_0.0.1_gcc_1.json"))
    found = best(task)
    assert found is not None and found[0].steps == fast.steps, "a new version loses nothing"
    inputs = [ansor.MeasureInput(task, slow)]
    RecordToStore().confirmed(inputs, [[5e-3]])
    found = best(task)
    assert found is not None and found[0].steps == slow.steps and found[1] == 5e-3


def test_lines_that_are_no_records_or_no_programs_are_skipped(store: Path) -> None:
    task = task_of(5)
    slow, _ = kept(task, [2e-3, 1e-3])
    (file,) = store.rglob("*.json")
    lines = file.read_text().splitlines()
    fast = next(line for line in lines if "0.001" in line)
    file.write_text("\n".join([*lines[:-1], "no record", fast.replace('"FU", ', '"FU", 9')]) + "\n")
    found = best(task)
    assert found is not None and found[0].steps == slow.steps


def test_stores_of_the_system_are_read_and_not_written(store: Path, tmp_path: Path) -> None:
    task = task_of(5)
    kept(task, [2e-3, 1e-3])
    (tmp_path / "system" / "ansor").mkdir(parents=True)
    store.rename(tmp_path / "system" / "ansor" / "records")
    found = best(task)
    assert found is not None and found[1] == 1e-3
    kept(task_of(6), [2e-3, 1e-3])
    assert len(list(store.rglob("*.json"))) == 1


def test_switched_off_it_keeps_and_finds_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(5)
    kept(task, [2e-3, 1e-3])
    monkeypatch.setenv("ANSOR_CACHE", "off")
    kept(task_of(6), [2e-3, 1e-3])
    assert best(task) is None and len(list(store.rglob("*.json"))) == 1
    with pytest.raises(ansor.NoRecordError, match="ANSOR_CACHE is off"):
        task.build_best()
    assert main(["store", "list"]) == 2


def test_a_search_goes_on_where_nothing_can_be_kept(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.write_text("no folder")
    kept(task_of(5), [2e-3, 1e-3])
    assert "nothing is kept there" in caplog.text


def test_a_device_that_is_not_there_has_no_records() -> None:
    assert best_stored(task_of(5).compute_dag, ansor.Target("cuda"), PLAIN) is None


def test_networks_ask_it_where_no_log_answers() -> None:
    task = task_of(5)
    place = place_of(task.compute_dag, task.target, PLAIN, cold=True)
    program = states(task)[0]
    keep(
        task.compute_dag,
        "product",
        place,
        [(ansor.MeasureInput(task, program), ansor.MeasureResult((1e-3,), 0, "", 0.0, 0))],
    )
    with ansor.ApplyHistoryBest([]):
        found = ansor.DispatchContext.current.query("c", task.workload_key, True, task.compute_dag)
    assert found is not None and found.steps == program.steps


def test_only_what_is_measured_here_is_kept() -> None:
    runner = ansor.LocalRunner(number=1, min_repeat_ms=0, enable_cpu_cache_flush=True)
    options = ansor.TuningOptions(1, runner=runner)
    (hearer,) = options.hearers(runner)
    assert isinstance(hearer, RecordToStore) and hearer.cold
    assert options.hearers(ansor.RPCRunner.__new__(ansor.RPCRunner)) == ()


def test_commands(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.json"
    assert main(["store", "list"]) == 0 and "no records in" in capsys.readouterr().out
    kept(task_of(5), [2e-3, 1e-3])
    kept(task_of(5), [2e-3, 1e-3])
    assert main(["store", "export", str(log)]) == 0
    assert [res.cost for _, res in ansor.load_records(log)] == [1e-3]
    assert main(["store", "list"]) == 0 and "product([5, 5], [5, 5], [5, 5]) for c: 1 ms" in capsys.readouterr().out
    (file,) = store.rglob("*.json")
    file.unlink()
    assert main(["store", "import", str(log)]) == 0 and "took in 1 record of 1 computation" in capsys.readouterr().out
    found = best(task_of(5))
    assert found is not None and found[1] == 1e-3


def test_what_was_never_timed_in_turns_is_taken_in_where_nothing_else_is_known(tmp_path: Path) -> None:
    """A search without a log that ran out of time before its turns: its single figures are better than none."""
    log, known, new = tmp_path / "log.json", task_of(5), task_of(6)
    kept(known, [3e-3, 3e-3])
    for task in (known, new):
        inp = ansor.MeasureInput(task, states(task)[1])
        ansor.RecordToFile(log).callback(None, [inp], [ansor.MeasureResult((1e-3,), 0, "", 0.5, 1)])
    assert sum(take_in(log, new_only=True).values()) == 1
    (found, told) = (best(known), best(new))
    assert found is not None and found[1] == 3e-3 and told is not None and told[1] == 1e-3
    assert not take_in(log, new_only=True)
