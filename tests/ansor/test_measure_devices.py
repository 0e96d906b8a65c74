"""Several devices of one host: all of them work, one program at a time each, and what one of them does to a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.core.tasks.measure_values import DeviceInfo, RunOptions
from ansor.measure import MeasureErrorNo as E
from ansor.measure.device_runner import DeviceRunners
from ansor.measure.devices import choose_devices
from ansor.measure.task_data import TaskData
from ansor.measure.workers import Workshop
from tests.ansor.conftest import HEED_CTRL_C
from tests.ansor.test_interrupt import lines, processes, wait_until

LIMIT = 2.0
Fleet = Callable[..., Path]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """`fleet(words, models)` makes target c a host with several devices, see `fake_devices`."""
    place = tmp_path / "faults"
    place.mkdir()
    monkeypatch.setenv("FAULTS", str(place))
    before = ansor.register_backend("c", "tests.ansor.fake_devices")

    def make(words: list[str], models: str = "fast,fast") -> Path:
        (place / "script").write_text("\n".join(words))
        monkeypatch.setenv("MODELS", models)
        return place

    yield make
    ansor.register_backend("c", before or "codegen_c.backend")


def measure(task: ansor.SearchTask, states: list[Any], runner: ansor.LocalRunner) -> list[ansor.MeasureResult]:
    """Measure with one builder, so that the k-th program does what the k-th word says."""
    builder = ansor.LocalBuilder(n_parallel=1)
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    try:
        return measurer.measure(task, None, [ansor.MeasureInput(task, s) for s in states])
    finally:
        measurer.close()


def test_every_device_works_on_one_program_at_a_time(fleet: Fleet, matmul_task: Any, states: Any) -> None:
    """The first three programs wait for each other, so they run only if three devices work at once."""
    place = fleet(["meet"] * 3 + ["jitter"], "fast,fast,fast")
    runner = ansor.LocalRunner(devices="all")
    results = measure(matmul_task, states(12), runner)
    assert [r.error_no for r in results] == [0] * 12
    assert {r.device for r in results} == {"c 0 (fast)", "c 1 (fast)", "c 2 (fast)"}
    runs = [line.split() for line in (place / "ran").read_text().splitlines()]
    counts = Counter(f"c {device} (fast)" for device, *_ in runs)
    assert counts == Counter(r.device for r in results)
    assert len({pid for _, pid, _, _ in runs}) == 3
    for k in "012":
        spans = sorted((float(a), float(b)) for device, _, a, b in runs if device == k)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.long
def test_results_come_in_the_order_of_the_inputs(fleet: Fleet, matmul_task: Any, states: Any) -> None:
    fleet(["jitter"])
    made = states(10)
    both = measure(matmul_task, made, ansor.LocalRunner(devices="all"))
    one = measure(matmul_task, made, ansor.LocalRunner(devices=[1]))
    assert [r.costs for r in both] == [r.costs for r in one] and len({r.costs for r in one}) == len(made)
    assert {r.device for r in one} == {"c 1 (fast)"}


@pytest.mark.long
def test_a_seed_decides_the_search_however_many_devices_there_are(fleet: Fleet, matmul_task: Any) -> None:
    fleet(["jitter"], "fast,fast,fast")
    asked = []
    for devices in ("all", [0]):
        policy = ansor.SketchPolicy(matmul_task, ansor.XGBModel(seed=1), {"evolutionary_search_population": 64}, 5, 0)
        heard: list[tuple[Any, ...]] = []
        tell = policy.tell

        def note(inputs: Any, results: Any, heard: Any = heard, tell: Any = tell) -> None:
            heard.extend((inp.steps, res.costs) for inp, res in zip(inputs, results, strict=True))
            tell(inputs, results)

        policy.tell = note  # type: ignore[method-assign]
        runner = ansor.LocalRunner(devices=devices)
        builder = ansor.LocalBuilder(n_parallel=2)
        options = ansor.TuningOptions(40, num_measures_per_round=10, verbose=0, builder=builder, runner=runner)
        matmul_task.tune(options, policy)
        builder.close()
        runner.close()
        asked.append(heard)
    assert asked[0] == asked[1] and len(asked[0]) == 40


@pytest.mark.long
def test_a_worker_that_dies_or_hangs_costs_one_retry(fleet: Fleet, matmul_task: Any, states: Any) -> None:
    words = ["run_kill_once", "good", "run_hang_once", "run_segv", "good", "run_hang", "wrong", "good"]
    fleet(words)
    runner = ansor.LocalRunner(devices="all", timeout=LIMIT)
    builder = ansor.LocalBuilder(n_parallel=1)
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    results = measurer.measure(matmul_task, None, [ansor.MeasureInput(matmul_task, s) for s in states(len(words))])
    wanted = {"run_segv": E.RUNTIME_DEVICE, "run_hang": E.RUN_TIMEOUT, "wrong": E.WRONG_ANSWER}
    assert [r.error_no for r in results] == [int(wanted.get(w, E.NO_ERROR)) for w in words]
    assert sum(u.lost for u in runner.usage()) == 2 + 2 * 2
    assert sum(u.trials for u in runner.usage()) == len(words)
    assert all(0 < u.share <= 1 and u.rate > 0 for u in runner.usage())
    measurer.close()
    assert runner.usage() == []


@pytest.mark.long
def test_without_devices_a_death_costs_the_candidate_at_once(fleet: Fleet, matmul_task: Any, states: Any) -> None:
    fleet(["run_kill_once", "good"])
    results = measure(matmul_task, states(2), ansor.LocalRunner(timeout=LIMIT))
    assert [(r.error_no, r.device) for r in results] == [(E.RUNTIME_DEVICE, ""), (0, "")]


@pytest.mark.parametrize(
    ("devices", "models", "text"),
    [
        ("all", "fast,slow", "must be of one model, or their costs do not compare, got models=['fast', 'slow']"),
        ([0, 2], "fast,fast", "target 'c': its devices are [0, 1], got device=2"),
    ],
)
def test_devices_that_do_not_fit_are_refused(
    fleet: Fleet, matmul_task: Any, states: Any, devices: Any, models: str, text: str
) -> None:
    fleet(["good"], models)
    with pytest.raises(ansor.MeasureError) as error:
        measure(matmul_task, states(1), ansor.LocalRunner(devices=devices))
    assert text in str(error.value)


def test_some_devices_of_a_mixed_host_may_be_chosen(fleet: Fleet) -> None:
    fleet(["good"], "fast,slow,fast")
    assert choose_devices("c", (2, 0)) == [DeviceInfo("c", 2, "fast", "fake"), DeviceInfo("c", 0, "fast", "fake")]


@pytest.mark.parametrize("devices", ["some", [], [0, 0], [-1], [True], ["0"], 1, {"device": 0, "devices": [0]}])
def test_bad_choices_of_devices_are_refused(devices: Any) -> None:
    options = devices if isinstance(devices, dict) else {"devices": devices}
    if isinstance(devices, dict):
        options["device"] = 1
    with pytest.raises(ansor.TaskError, match="devices"):
        ansor.LocalRunner(**options)


def test_the_processor_is_one_device() -> None:
    (found,) = choose_devices("c", "all")
    assert (found.kind, found.index) == ("c", 0) and found.model and "cores" in found.detail


# ------------------------------------------------------------------------------------------------- stopping


@pytest.mark.long
def test_close_ends_all_runs_and_those_who_wait_begin_anew(fleet: Fleet, matmul_task: Any, states: Any) -> None:
    """Two programs hang, a third waits for a device; it runs on new workers when the old ones were stopped."""
    begun = fleet(["run_hang", "run_hang", "good"]) / "begun"
    runner, builder = ansor.LocalRunner(devices="all", timeout=100), ansor.LocalBuilder(n_parallel=1)
    inputs = [ansor.MeasureInput(matmul_task, s) for s in states(3)]
    builds = [f.result() for f in [builder.submit(i) for i in inputs]]
    results: dict[int, ansor.MeasureResult] = {}
    threads = [
        threading.Thread(target=lambda k=k: results.update({k: runner.run(inputs[k], builds[k])})) for k in range(3)
    ]
    for thread in threads[:2]:
        thread.start()
    assert wait_until(lambda: lines(begun) == 2, 60)
    threads[2].start()
    runner.close()
    for thread in threads:
        thread.join(60)
    assert {k: r.error_no for k, r in results.items()} == {0: E.RUNTIME_DEVICE, 1: E.RUNTIME_DEVICE, 2: 0}
    runner.close()
    builder.close()
    left = set(processes(os.environ["FAULTS"])) - {os.getpid()}
    assert {Path(f"/proc/{pid}/comm").read_text().strip() for pid in left} <= {"ansor-workers"}


SCRIPT = textwrap.dedent("""
    import sys
    import ansor
    from tests.ansor.conftest import matmul
    ansor.register_backend("c", "tests.ansor.fake_devices")
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    options = ansor.TuningOptions(
        num_measure_trials=2000, verbose=0, builder=ansor.LocalBuilder(n_parallel=1),
        runner=ansor.LocalRunner(devices="all", timeout=30), measure_callbacks=[ansor.RecordToFile(sys.argv[1])],
    )
    try:
        task.tune(options, ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0))
    except KeyboardInterrupt:
        sys.exit(130)
""")


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "fifth"), [(signal.SIGINT, "run_hang"), pytest.param(signal.SIGKILL, "good", marks=pytest.mark.slow)]
)
def test_stopping_a_search_leaves_no_process(tmp_path: Path, how: signal.Signals, fifth: str) -> None:
    """By Ctrl-C also while one of two devices hangs; a worker that hangs outlives a killed search by its time limit."""
    place, log, mark = tmp_path / "faults", tmp_path / "log.json", f"mark-{uuid.uuid4()}"
    place.mkdir()
    (place / "script").write_text("\n".join(["good"] * 5 + [fifth] + ["slow"] * 1990))
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    env = {
        **os.environ, "FAULTS": str(place), "MODELS": "fast,fast", "TEST_MARK": mark, "PYTHONPATH": path,
        "TMPDIR": str(tmp_path),
    }  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", HEED_CTRL_C + SCRIPT, str(log)], env=env)
    try:
        assert wait_until(lambda: lines(log) >= 9, 60)
        process.send_signal(how)
        code = process.wait(20)
        assert code == (130 if how == signal.SIGINT else -9)
        assert wait_until(lambda: not processes(mark), 20)
        reader = ansor.RecordReader(log)
        assert len(list(reader)) >= 9 and reader.num_bad == 0
        if how == signal.SIGINT:
            assert not [p for p in tmp_path.iterdir() if p.name.startswith("ansor_")]
    finally:
        process.kill()
        process.wait()


# ------------------------------------------------------------------------------------------ what device runners share


def test_the_data_of_a_task_is_made_by_one_and_read_by_all() -> None:
    """Nobody comes in while one is at it; after a failure the next one tries; after a success all come in at once."""
    workshop = Workshop()
    data, entered, together = TaskData(workshop), threading.Event(), threading.Barrier(4)

    def make() -> None:
        with data.made_once("t"):
            entered.set()

    def read() -> None:
        with data.made_once("t"):
            together.wait(30)

    second = threading.Thread(target=make)
    with pytest.raises(ValueError), data.made_once("t"):
        second.start()
        assert not entered.wait(0.2)
        raise ValueError
    assert entered.wait(30)
    second.join()
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not together.broken
    workshop.close()


def test_device_runners_that_are_closed_give_none() -> None:
    runners = DeviceRunners([0, 1], RunOptions(1, 1, timeout=1, prepare_timeout=1))
    with runners.idle() as first, runners.idle() as second:
        assert {first and first.device, second and second.device} == {0, 1}
    runners.close()
    for _ in range(2):
        with runners.idle() as none:
            assert none is None
