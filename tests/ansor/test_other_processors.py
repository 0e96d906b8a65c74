"""Records count for the target that they were measured for: those of another processor or model are left aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.autotvm.record import counts_for, target_key
from ansor.cli.main import _recorded, main
from ansor.core.target.target import Target
from ansor.core.tasks.measure_values import Baseline
from ansor.records.best import history
from ansor.records.noted_records import baseline_line, baselines_of
from ansor.records.of_task import other_targets
from ansor.scheduler.restore import restore, settled

from .fake_measure import CostRunner, ReadyBuilder

HERE, OTHER = "c", "c -march=haswell"
LEFT = "are left aside, the target here is"
ASIDE = f"its records for {OTHER} {LEFT} {HERE}"


@pytest.mark.parametrize(
    "mine, others, neither",
    [
        ("c", ("llvm -keys=cpu", "c -march=native", "cpu -model=unknown"), ("c -march=haswell", "llvm -mcpu=haswell")),
        ("c -march=haswell", ("llvm -mcpu=haswell", "c -mcpu=x86-64 -march=haswell"), ("c", "c -march=x86-64")),
        ("cuda", ("cuda -arch=sm_90", "cuda -keys=cuda,gpu -model=h200"), ("c", "cuda -precision=tf32")),
        ("cuda -arch=sm_90", ("cuda", "cuda -arch=sm_90 -max_num_threads=1024"), ("cuda -arch=sm_80",)),
        ("cuda -model=h200", ("cuda -model=H200", "cuda -model=unknown -arch=sm_90"), ("cuda -model=t4",)),
        ("vta -model=sim_1", ("vta -device=vta -keys=vta,cpu -model=sim_1",), ("vta -model=sim_2",)),
    ],
)
def test_which_figures_count(mine: str, others: tuple[str, ...], neither: tuple[str, ...]) -> None:
    for text in (mine, *others):
        assert Target(mine).takes(Target(text)) and Target(text).takes(Target(mine))
    for text in neither:
        assert not Target(mine).takes(Target(text)) and not Target(text).takes(Target(mine))
        assert Target(mine).key != Target(text).key
    for text in (mine, *others, *neither):
        assert Target(text).takes(Target(Target(text).key)) and Target(Target(text).key).key == Target(text).key


@pytest.fixture
def tasks(matmul_task: ansor.SearchTask) -> dict[str, ansor.SearchTask]:
    other = ansor.SearchTask("matmul", (13, 11, 7), target=OTHER, hardware_params=matmul_task.hardware_params)
    return {HERE: matmul_task, OTHER: other}


@pytest.fixture
def log(tasks: dict[str, ansor.SearchTask], record: Any, tmp_path: Path) -> Path:
    """Two slow records for `c`, three fast ones for another processor, and the other's untuned program."""
    path = tmp_path / "log.json"
    pairs = [record(cost, task=tasks[target]) for target, cost in
             [(HERE, 4e-3), (OTHER, 1e-3), (HERE, 3e-3), (OTHER, 2e-3), (OTHER, 1.5e-3)]]  # fmt: skip
    ansor.save_records(path, *zip(*pairs, strict=True))
    untuned = ansor.MeasureInput(tasks[OTHER], steps=()), pairs[1][1]
    path.write_text(path.read_text() + baseline_line(Baseline.UNTUNED, *untuned) + "\n")
    return path


def test_every_reader_goes_by_its_own(log: Path, tasks: dict[str, ansor.SearchTask], caplog: Any) -> None:
    costs = {HERE: 3e-3, OTHER: 1e-3}
    for target, task in tasks.items():
        caplog.clear()
        assert ansor.load_best_record(log, task.workload_key, target)[1].cost == costs[target]
        told = [r.getMessage().split(": ", 1)[1] for r in caplog.records]
        assert told == [f"its records for {next(t for t in tasks if t != target)} {LEFT} {target}"]
        assert _recorded(log, task) == {HERE: 2, OTHER: 3}[target]
        policy = ansor.SketchPolicy(task, ansor.RandomModel(0), verbose=0)
        assert policy.preload_measured_states(log) == _recorded(log, task)
        assert len(baselines_of(log, task)) == (target == OTHER)
    records, least = history(log)
    found = settled(restore(records, list(tasks.values()), 4), least, list(tasks.values()))
    assert [(s.trials, s.cost) for s in found] == [(2, 3e-3), (3, 1e-3)]


def test_contexts_go_by_the_target(log: Path, tasks: dict[str, ansor.SearchTask], caplog: Any) -> None:
    context = ansor.ApplyHistoryBest(log)
    found = {target: context.query(target, task.workload_key) for target, task in tasks.items()}
    assert found[HERE] is not None and found[OTHER] is not None and str(found[HERE]) != str(found[OTHER])
    context.query(HERE, tasks[HERE].workload_key)
    assert [ASIDE in r.getMessage() for r in caplog.records] == [True, False], "once a target"
    assert context.query("c -march=x86-64", tasks[HERE].workload_key) is None


def test_a_log_of_another_processor_alone_is_named(
    log: Path, tasks: dict[str, ansor.SearchTask], caplog: Any
) -> None:  # fmt: skip
    mine = ansor.SearchTask("matmul", (13, 11, 7), target="c -march=x86-64")
    law = "its records of this workload are for c, c -march=haswell, and the task is for c -march=x86-64"
    with pytest.raises(ansor.NoRecordError, match=law):
        mine.best_state(log)
    assert len(caplog.records) == 1


def test_the_scheduler_says_it(log: Path, tasks: dict[str, ansor.SearchTask], caplog: Any) -> None:
    scheduler = ansor.TaskScheduler([tasks[HERE]], load_log_file=str(log))
    options = ansor.TuningOptions(1, verbose=0, builder=ReadyBuilder(), runner=CostRunner(lambda k: 5e-3))
    scheduler.tune(options, search_policy="sketch.random")
    assert scheduler.best_costs == [3e-3] and any(ASIDE in r.getMessage() for r in caplog.records)


def test_commands_tell_them_apart(log: Path, capsys: Any) -> None:
    assert main(["log", str(log)]) == main(["best", str(log)]) == 0
    printed = capsys.readouterr().out
    for target, cost in [(HERE, "3 ms"), (OTHER, "1 ms")]:
        assert f"matmul(13, 11, 7) for {target}\n" in printed and f"matmul(13, 11, 7) for {target}: {cost}" in printed
    assert main(["export", str(log), str(log.parent / "out")]) == 2
    assert "for c -march=haswell, matmul(13, 11, 7) for c\n" in capsys.readouterr().err
    alone = log.with_name("alone.json")
    alone.write_text("".join([x for x in log.read_text().splitlines(True) if OTHER not in x]))
    assert main(["log", "--compare", str(alone), str(log)]) == 0
    assert "only in B: matmul(13, 11, 7)" in capsys.readouterr().out


def test_templates_are_told_apart_by_processor_and_model() -> None:
    assert target_key("c -march=haswell") == ("c -march=haswell", "") != target_key("c")
    assert target_key("vta -model=a") != target_key("vta -model=b")
    assert target_key("ext_dev -device=vta -keys=vta,cpu -model=a") == ("vta", "a")
    for mine, other, counts in [
        ("vta -model=a", "ext_dev -device=vta -model=a", True), ("vta", "vta -model=a", True),
        ("vta -model=a", "vta", True), ("vta -model=a", "vta -model=b", False), ("c", "c -march=haswell", False),
        ("cuda -arch=sm_90", "cuda", True), ("rocm -model=a", "rocm -model=a", True), ("rocm", "rocm -model=a", False),
    ]:  # fmt: skip
        assert counts_for(mine, other) == counts_for(other, mine) == counts, (mine, other)


def test_records_of_several_gpus_count_for_one_that_is_not_named_and_that_is_said() -> None:
    keys, named = ["cuda -arch=sm_80", "cuda", "cuda -arch=sm_90"], "cuda -arch=sm_80 and cuda -arch=sm_90"
    said = f"log: its records for {named} all count, as the target here, cuda, does not say which it is; "
    assert other_targets("log", keys, Target("cuda")) == f"{said}name it, as in cuda -arch=sm_80"
    left = "log: its records for cuda -arch=sm_80 are left aside, the target here is cuda -arch=sm_90"
    assert other_targets("log", keys, Target("cuda -arch=sm_90")) == left
    assert not other_targets("log", keys[1:], Target("cuda"))
