"""Tuning without a device: answers from a log, answers from the analytical model; the same ones every time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.analytical import GPUS
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder, program_key
from ansor.offline.replay import ReplayRunner
from te_lite.schedule.loop_steps import Annotate, Pragma, Split
from te_lite.schedule.step import to_json
from tests.conv_layer import conv2d_layer

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "logs"
BUILT = NoBuilder().submit(None).result()  # type: ignore[arg-type]


def conv_task(target: str) -> ansor.SearchTask:
    hardware = ansor.HardwareParams(num_cores=4, target="c") if target == "c" else None
    return ansor.SearchTask(
        compute_dag=ansor.ComputeDAG(conv2d_layer(1, 9, 9, 16, 12, 3, 2, 1)), target=target, hardware_params=hardware
    )


def tune(task: ansor.SearchTask, runner: Any, log: Path, trials: int = 14, seed: int = 4) -> list[str]:
    """The lines of a run of random search."""
    options = ansor.TuningOptions(
        num_measure_trials=trials, num_measures_per_round=5, verbose=0, builder=runner.builder(), runner=runner,
        measure_callbacks=[ansor.RecordToFile(log)],
    )  # fmt: skip
    task.tune(options, search_policy=ansor.SketchPolicy(task, ansor.RandomModel(1), seed=seed, verbose=0))
    return [line for line in log.read_text().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_a_run_replays_itself(target: str, tmp_path: Path) -> None:
    task = conv_task(target)
    first = tune(task, AnalyticalRunner(noise=0.3, seed=2), tmp_path / "first")
    assert len(first) == 14 == len({json.loads(line)["r"][0][0] for line in first})
    replayed = ReplayRunner(tmp_path / "first")
    assert len(replayed) == 14
    assert tune(task, replayed, tmp_path / "second") == first
    best = min(json.loads(line)["r"][0][0] for line in first)
    assert ansor.load_best_record(tmp_path / "second", task.workload_key)[1].cost == best


def test_it_says_why_a_program_is_unknown() -> None:
    task, other, gpu = conv_task("c"), ansor.SearchTask("norm", (1, 8, 8), target="c"), conv_task("cuda")
    states = ansor.SketchPolicy(task, ansor.RandomModel(1), seed=4, verbose=0).ask(12)
    result = ansor.MeasureResult((1e-3,), 0, "", 0.1, 0)
    inputs = [ansor.MeasureInput(task, state) for state in states]
    runner = ReplayRunner([(inp, result) for inp in inputs[:10]])
    for inp, text in (
        (ansor.MeasureInput(other, other.compute_dag.init_state), "its workload is not in the log, which has "),
        (ansor.MeasureInput(gpu, gpu.compute_dag.init_state), "the log has this workload for c only"),
        (inputs[10], "the nearest of its 10 programs has the same first "),
    ):
        with pytest.raises(ansor.MeasureError, match=text) as info:
            runner.run(inp, BUILT)
        assert "\n" not in str(info.value)
    steps = [[to_json(s) for s in inp.steps] for inp in inputs]
    shared = [next(k for k, (x, y) in enumerate(zip(s, steps[10], strict=False)) if x != y) for s in steps[:10]]
    assert f"the same first {max(shared)} of {len(steps[10])} steps, and then [" in str(info.value)


@pytest.mark.long
@pytest.mark.parametrize("model", [
    pytest.param(ansor.RandomModel(9), id="random"),
    pytest.param(ansor.XGBModel(seed=9), id="evolving", marks=pytest.mark.long),
])  # fmt: skip
def test_the_log_to_play_with_has_every_program(model: Any) -> None:
    """A search over it may take any turn, and mutations reach what no sample is: no program of the space is missing."""
    hardware = ansor.HardwareParams(num_cores=2, target="c")
    task = ansor.SearchTask("norm", (1, 64, 64), target="c", hardware_params=hardware)
    runner = ReplayRunner(EXAMPLES / "norm_every_program.json")
    params = {"extra_sketch_rules": "", "evolutionary_search_population": 128}
    policy = ansor.SketchPolicy(task, model, params, seed=9, verbose=0)
    count = 0
    while count < 300 and (found := policy.ask(64)):
        inputs = [ansor.MeasureInput(task, state) for state in found]
        policy.tell(inputs, [runner.run(inp, BUILT) for inp in inputs])
        count += len(found)
    sampled = 228
    assert len(runner) == 436 and (count <= sampled) == isinstance(model, ansor.RandomModel), count


def test_programs_that_differ_by_loops_of_one_turn_are_one() -> None:
    task = ansor.SearchTask(
        "norm", (1, 64, 64), target="c", hardware_params=ansor.HardwareParams(num_cores=2, vector_unit_bytes=32)
    )
    one, other = [ansor.MeasureInput(task, steps=[Annotate(1, 0, "parallel")] * n) for n in (0, 1)]
    result = ansor.MeasureResult((1e-3,), 0, "", 0.1, 0)
    assert program_key(one) != program_key(other) and ReplayRunner([(one, result)]).run(other, BUILT) == result
    far = ansor.MeasureInput(task, steps=[Annotate(1, 1, "unroll")])
    assert far not in ReplayRunner([(one, result)]) and other in ReplayRunner([(one, result)])


@pytest.mark.long
def test_the_search_that_the_page_shows_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As it stands there, but for the folder of the log."""
    page = (EXAMPLES.parent.parent / "docs" / "replacing_a_part.md").read_text()
    (block,) = [part for part in page.split("```") if "norm_every_program.json" in part and "task.tune" in part]
    code = block.removeprefix("console\n").replace("examples/logs", str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "the page", "exec"), names)
    assert len(names["policy"].measured) == 64


def test_a_program_that_the_log_lacks(tmp_path: Path) -> None:
    task = conv_task("cuda")
    tune(task, AnalyticalRunner(), tmp_path / "log", trials=5)
    inputs, results = ansor.RecordReader(tmp_path / "log").read_lines()
    strict = ReplayRunner(zip(inputs[1:], results[1:], strict=True))
    lenient = ReplayRunner(zip(inputs[1:], results[1:], strict=True), missing="fail")
    assert strict.run(inputs[1], BUILT) == results[1] and inputs[1] in strict and inputs[0] not in strict
    with pytest.raises(ansor.MeasureError, match=r"the log has no record of program [0-9a-f]{10} of "):
        strict.run(inputs[0], BUILT)
    failed = lenient.run(inputs[0], BUILT)
    assert (failed.error_no, failed.costs) == (8, (1e10,)) and "has no record" in failed.error_msg
    with pytest.raises(ansor.MeasureError, match="has no record"):
        tune(task, strict, tmp_path / "other")
    assert [json.loads(x)["r"][1] for x in tune(task, lenient, tmp_path / "third", trials=5)].count(8) == 1
    with pytest.raises(ansor.TaskError, match="'raise' or 'fail', got 'guess'"):
        ReplayRunner([], missing="guess")  # type: ignore[arg-type]
    with pytest.raises(ansor.JournalError):
        ReplayRunner(tmp_path / "nothing")


def test_what_makes_a_program(record: Any) -> None:
    """Workload, kind of target and steps; neither the extents of splits nor the options of the target."""
    inp, res = record(2e-3)
    split = next(k for k, s in enumerate(inp.steps) if isinstance(s, Split))
    other = [replace(s, extent=s.extent + 7) if isinstance(s, Split) else s for s in inp.steps]
    assert ansor.MeasureInput(inp.task, steps=other) in ReplayRunner([(inp, res)])
    changed = replace(inp.steps[split], lengths=tuple([2 * x for x in inp.steps[split].lengths]))
    steps = [*inp.steps[:split], changed, *inp.steps[split + 1 :]]
    wide = ansor.SearchTask("matmul", (13, 11, 7), target="llvm -mcpu=core-avx2")
    large = ansor.SearchTask("matmul", (13, 11, 8), target="c")
    gpu = ansor.SearchTask("matmul", (13, 11, 7), target="cuda")
    assert ansor.MeasureInput(wide, steps=inp.steps) in ReplayRunner([(inp, res)])
    for absent in (
        ansor.MeasureInput(inp.task, steps=steps), ansor.MeasureInput(large, steps=inp.steps),
        ansor.MeasureInput(gpu, steps=inp.steps), ansor.MeasureInput(inp.task, steps=inp.steps[:-1]),
    ):  # fmt: skip
        assert absent not in ReplayRunner([(inp, res)])
    later = replace(res, costs=(1e-3,))
    assert ReplayRunner([(inp, res), (inp, later)]).run(inp, BUILT) == later


def test_logs_of_tvm_answer(golden_log: Any) -> None:
    path, _ = golden_log("cuda_h200")
    runner = ReplayRunner(path)
    inputs, results = ansor.RecordReader(path).read_lines()
    assert len(runner) == 64 and [runner.run(i, BUILT) for i in inputs] == results


def answers(inputs: Sequence[ansor.MeasureInput], **options: Any) -> list[float]:
    runner = AnalyticalRunner(GPUS["T4"], **options)
    return [runner.run(i, BUILT).cost for i in inputs]


@pytest.mark.long
def test_noise_belongs_to_the_program() -> None:
    task = conv_task("cuda")
    inputs = [
        ansor.MeasureInput(task, s) for s in ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).ask(40)
    ]
    exact, noisy = answers(inputs), answers(inputs, noise=0.2)
    assert noisy == answers(inputs, noise=0.2) == answers(inputs[::-1], noise=0.2)[::-1]
    assert noisy != answers(inputs, noise=0.2, seed=1)
    z = np.log(np.divide(noisy, exact)) / 0.2
    assert abs(z.mean()) < 0.6 and 0.6 < z.std() < 1.5
    code = (
        "import ansor, json, sys\nfrom ansor.offline.analytical import AnalyticalRunner\n"
        "from tests.ansor.test_replay_runner import *\n"
        "steps = [ansor.MeasureInput(conv_task('cuda'), s) for s in "
        "ansor.SketchPolicy(conv_task('cuda'), ansor.RandomModel(0), seed=1, verbose=0).ask(40)]\n"
        "print(answers(steps[:3], noise=0.2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == noisy[:3]
    for noise in (-1, float("nan"), True, "much"):
        with pytest.raises(ansor.TaskError, match="noise must be a number"):
            AnalyticalRunner(noise=noise)  # type: ignore[arg-type]


def test_what_a_gpu_would_not_start() -> None:
    small = ansor.HardwareParams(max_threads_per_block=64, target="cuda")
    task = conv_task("cuda")
    tight = ansor.SearchTask(compute_dag=task.compute_dag, target="cuda", hardware_params=small)
    states = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).ask(30)
    errors = [AnalyticalRunner().run(ansor.MeasureInput(tight, s), BUILT) for s in states]
    assert {r.error_no for r in errors} == {0, 4}
    assert any("threads in a block, the limit is 64" in r.error_msg for r in errors)
    bad = ansor.MeasureInput(task, steps=[Pragma(77, 0, "x$1")])
    assert AnalyticalRunner().run(bad, BUILT).error_no == 1


def test_several_tasks(tmp_path: Path) -> None:
    tasks = [conv_task("cuda"), ansor.SearchTask("matmul", (13, 11, 7), target="cuda")]
    options = ansor.TuningOptions(
        num_measure_trials=12, num_measures_per_round=3, verbose=0, builder=NoBuilder(), runner=AnalyticalRunner(),
        measure_callbacks=[ansor.RecordToFile(tmp_path / "log")],
    )  # fmt: skip
    ansor.TaskScheduler(tasks).tune(options, search_policy="sketch.random")
    inputs, _ = ansor.RecordReader(tmp_path / "log").read_lines()
    assert len(inputs) == 12 and {i.task.workload_key for i in inputs} == {t.workload_key for t in tasks}
    assert len({program_key(i) for i in inputs}) == 12 and all(to_json(s) for i in inputs for s in i.steps)
