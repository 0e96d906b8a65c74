"""A log may hold anything: what is absurd is skipped and counted, and hides nothing."""

import json
import logging
import math
import random
from pathlib import Path
from typing import Any

import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.records.best import best_records, distill_record_file
from ansor.records.dispatch import ApplyHistoryBest
from ansor.records.lines import dump_record_to_string, validated_records
from ansor.records.validation import is_program
from ansor.scheduler.restore import restore
from te_lite.errors import RecordError
from tests.amount import some
from tests.workloads import matmul

COSTS = [0, -1.0, 1e-30, 1e-12, 5e-324, 1e30, 1e-7, "fast", None, True, [1e-3], math.inf, math.nan, 10**400]
NUMBERS = [-1, 0, 1, 7, 2**31, 2**63, -(2**63), 10**30, 1.5, None, "x", [], [2] * 500]


@ansor.register_workload
def hostile_matmul(n: int, m: int, k: int) -> list[te.Tensor]:
    return matmul(n, m, k)


@pytest.fixture(scope="module")
def task() -> ansor.SearchTask:
    return ansor.SearchTask(hostile_matmul, (64, 32, 16), target="c")


@pytest.fixture(scope="module")
def lines(task: ansor.SearchTask) -> list[str]:
    """Honest records: programs of the search, with costs that could be theirs."""
    policy = ansor.SketchPolicy(task, ansor.RandomModel(1), seed=1, verbose=0)
    states = policy.ask(12)
    results = [ansor.MeasureResult((1e-3 + k * 1e-5,), 0, "", 0.1, 1_700_000_000) for k in range(len(states))]
    return [dump_record_to_string(ansor.MeasureInput(task, s), r) for s, r in zip(states, results, strict=True)]


def faster(line: str, cost: Any = 1e-7) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(line)
    data["r"][0] = [cost]
    return data


def hostile(line: str, rng: random.Random) -> str:
    """A line that claims to be fast, with something wrong in it, most of the time."""
    data = faster(line)
    steps: list[Any] = data["i"][1][1]
    match rng.randrange(9):
        case 0:
            data["r"][0] = [rng.choice(COSTS)] * rng.choice([1, 1, 3])
        case 1:
            del steps[rng.randrange(len(steps))]
        case 2:
            steps.insert(rng.randrange(len(steps)), rng.choice(steps))
        case 3:
            rng.shuffle(steps)
        case 4:
            step = rng.choice(steps)
            step[rng.randrange(1, len(step))] = rng.choice(NUMBERS)
        case 5:
            steps[:] = rng.choice([[], steps * 40, steps[: len(steps) // 2], [["XX", 1]], [list(steps)]])
        case 6:
            data["i"][0][1] = rng.choice(["quantum", "", "c -x", "cuda", "c --", "vta", "llvm"])
        case 7:
            data["i"][0][0] = rng.choice(
                ['["hostile_matmul", 8, 8, 8]', '["nobody", 1]', "[", "", '["hostile_matmul"]']
            )
        case 8:
            part = rng.choice([data, data["i"], data["r"], data["i"][0]])
            part[rng.choice(list(part)) if isinstance(part, dict) else rng.randrange(len(part))] = rng.choice(NUMBERS)
    return json.dumps(data)


def readers(log: Path, task: ansor.SearchTask, folder: Path) -> None:
    """Everything that reads a log; what is found is a program of the task, at a cost that can be."""
    inp, res = ansor.load_best_record(log, task.workload_key, task.target)
    assert inp is not None and res is not None and is_program(task.compute_dag, inp.steps)
    assert res.cost >= 1e-9
    assert is_program(task.compute_dag, task.best_state(log).steps)
    for dag in (None, task.compute_dag):
        assert ApplyHistoryBest(log).query(task.target, task.workload_key, dag=dag) is not None
    for key, (best, result) in best_records(validated_records(log)).items():
        assert result.cost >= 1e-9
        assert key != ("c", task.workload_key) or is_program(task.compute_dag, best.steps)
    assert restore(validated_records(log), [task], 64)[0].cost >= 1e-9
    policy = ansor.SketchPolicy(task, ansor.RandomModel(1), seed=1, verbose=0)
    assert policy.preload_measured_states(log) >= 1
    ansor.XGBModel(num_warmup_sample=1, seed=0).update_from_file(log)
    assert distill_record_file(log, folder / "best.json") >= 1
    assert main(["best", str(log)]) == 0


@pytest.mark.parametrize("seed", range(some(2, 1)))
def test_whatever_a_log_holds_its_honest_records_are_found(seed, task, lines, tmp_path, capsys):
    rng = random.Random(seed)
    log = tmp_path / "log.json"
    text = [hostile(rng.choice(lines), rng) for _ in range(80)]
    log.write_text("\n".join([*text[:40], *lines, *text[40:]]) + "\n")
    readers(log, task, tmp_path)


@pytest.mark.parametrize("cost", [c for c in COSTS if c not in (1e30, 1e-7)], ids=lambda c: repr(c)[:9])
def test_an_absurd_cost_does_not_win(cost, task, lines, tmp_path):
    log = tmp_path / "log.json"
    log.write_text("\n".join([json.dumps(faster(lines[3], cost)), *lines]) + "\n")
    _, res = ansor.load_best_record(log, task.workload_key, task.target)
    assert res is not None and res.cost == 1e-3
    assert restore(validated_records(log), [task], 64)[0].cost == 1e-3


def test_what_is_skipped_is_counted_in_one_sentence(task, lines, tmp_path, caplog):
    """8,192,000 GFLOP/s were announced, and `ansor best` ended with code 2."""
    log = tmp_path / "log.json"
    unfit, unknown = faster(lines[0]), faster(lines[1])
    unfit["i"][1][1].insert(0, ["SP", 99, 0, 64, [4], 1])
    unknown["i"][0][1] = "quantum -x=1"
    bad = [json.dumps(x) for x in (unfit, faster(lines[0], 1e-12), unfit, unknown)]
    log.write_text("\n".join([*bad, *lines]) + "\n")
    with caplog.at_level(logging.WARNING, "ansor"):
        _, res = ansor.load_best_record(log, task.workload_key, task.target)
    assert res is not None and res.cost == 1e-3
    assert caplog.messages == [
        f"4 of {len(lines) + 4} records of {log} are skipped:"
        " 2 do not replay, 1 is faster than the machine can be,"
        " 1 is for an unknown target (--import runs what registers it)"
    ]


def test_a_program_that_does_not_fit_is_passed_over_when_its_workload_becomes_known_late(lines, tmp_path):
    x = te.placeholder((24,), name="late")
    dag = te.ComputeDAG([x, te.compute((24,), lambda i: x[i] + 1.0, name="y")])
    key = json.dumps(["known only when it is asked for", 24])
    good, bad = json.loads(lines[0]), json.loads(lines[0])
    good["i"], bad["i"] = [[key, "c"], [[], [["SP", 1, 0, 24, [4], 1]]]], [[key, "c"], [[], [["SP", 5, 0, 24, [4], 1]]]]
    bad["r"][0] = [1e-7]
    log = tmp_path / "log.json"
    log.write_text("\n".join(json.dumps(x) for x in (bad, good, bad)) + "\n")
    state = ApplyHistoryBest(log).query("c", key, dag=dag)
    assert state is not None and len(state.steps) == 1


def test_limits_on_lines(lines):
    for steps, law in (
        ([["PR", 1, 0, "auto_unroll_max_step$16"]] * 2001, "2000 steps"),
        ([["CHR", 0, "local", [1]]] * 257, "256"),
    ):
        data = faster(lines[0])
        data["i"][1][1] = steps
        with pytest.raises(RecordError, match=law):
            ansor.load_record_from_string(json.dumps(data))
