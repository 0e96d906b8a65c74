"""Times are sums of all their parts, and in seconds: in results, in records, and in what devices did.

The oracle is a clock that the test moves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor import autotvm
from ansor.autotvm.compiled import CompiledMeasurer
from ansor.autotvm.measure import MeasureInput as TrialInput
from ansor.autotvm.measure import RunOptions as TrialOptions
from ansor.autotvm.trial import trial
from ansor.cluster.client import HostLost
from ansor.cluster.host import result_to_json
from ansor.cluster.message import pack
from ansor.cluster.runner import RPCRunner
from ansor.core.tasks.measure_values import BuildResult, DeviceUse, MeasureErrorNo, MeasureInput, MeasureResult
from tests.ansor.fake_clock import EPOCH, FakeClock, FakeWorker
from tests.conformance.tuner import MadeUpDevice, option, small_task
from tests.nonempty import nonempty

BUILD, PREPARE, RUN, REST = 2.5, 40.0, 0.75, 0.125
SECONDS = {"prepare": PREPARE, "run": RUN}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr("ansor.core.tasks.measure_values.time", made)
    return made


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Target c has two devices that differ in their labels."""
    monkeypatch.setenv("MODELS", "fast,fast")
    before = ansor.register_backend("c", "tests.ansor.fake_devices")
    yield
    ansor.register_backend("c", before or "codegen_c.backend")


def built(folder: Path, seconds: float = BUILD) -> BuildResult:
    """A program that took `seconds` to build."""
    folder.mkdir(exist_ok=True)
    return BuildResult(str(folder), (), 0, "", seconds)


def local_runner(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, lost: set[str], answer: Mapping[str, Any], **options: Any
) -> ansor.LocalRunner:
    worker = FakeWorker(clock, SECONDS, answer, lost)
    monkeypatch.setattr("ansor.measure.device_runner.time", clock)
    monkeypatch.setattr("ansor.measure.device_runner.Worker", worker)
    return ansor.LocalRunner(cooldown_interval=REST, **options)


# ---------------------------------------------------------------------------------------------------- local runner

GOOD: Mapping[str, Any] = {"costs": [1e-3]}
WRONG: Mapping[str, Any] = {"error_no": int(MeasureErrorNo.WRONG_ANSWER), "message": "planted"}


@pytest.mark.parametrize("answer", [GOOD, WRONG], ids=["good", "wrong"])
def test_the_seconds_of_a_result_are_those_of_building_and_running(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, matmul_task: Any, tmp_path: Path, answer: Mapping[str, Any]
) -> None:
    """The first candidate of a task waits for the data of the task as well."""
    runner = local_runner(monkeypatch, clock, set(), answer)
    for waited in (PREPARE, 0.0):
        result = runner.run(MeasureInput(matmul_task), built(tmp_path / "p"))
        assert result.ok == (answer is GOOD)
        assert result.all_cost == pytest.approx(BUILD + waited + RUN + REST)
        assert result.timestamp == clock.day_time
    runner.close()


def test_the_seconds_of_a_failed_build_are_kept(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, matmul_task: Any
) -> None:
    runner = local_runner(monkeypatch, clock, set(), GOOD)
    failed = BuildResult("", (), int(MeasureErrorNo.BUILD_TIMEOUT), "planted", 15.0)
    result = runner.run(MeasureInput(matmul_task), failed)
    assert (result.all_cost, result.timestamp, result.error_no) == (15.0, clock.day_time, MeasureErrorNo.BUILD_TIMEOUT)


def test_a_second_attempt_counts_in_the_result_and_for_the_device(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, devices: None, matmul_task: Any, tmp_path: Path
) -> None:
    runner = local_runner(monkeypatch, clock, {"run"}, GOOD, devices=[0])
    result = runner.run(MeasureInput(matmul_task), built(tmp_path / "p"))
    spent = PREPARE + 2 * RUN + REST
    assert result.ok and result.all_cost == pytest.approx(BUILD + spent)
    (use,) = runner.usage()
    assert (use.busy, use.trials, use.lost) == (pytest.approx(spent), 1, 1)
    runner.close()


def test_a_device_is_busy_for_the_seconds_of_its_runs(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, devices: None, matmul_task: Any, tmp_path: Path
) -> None:
    """Builds do not count, nor does the time in which it waits."""
    runner = local_runner(monkeypatch, clock, set(), GOOD, devices=[1])
    for _ in range(3):
        runner.run(MeasureInput(matmul_task), built(tmp_path / "p"))
        clock.passed += 10.0
    (use,) = runner.usage()
    busy = PREPARE + 3 * (RUN + REST)
    assert (use.trials, use.busy, use.seconds) == (3, pytest.approx(busy), pytest.approx(busy + 30.0))
    assert use.share == pytest.approx(busy / (busy + 30.0)) and use.rate == pytest.approx(3 / (busy + 30.0))
    assert use.to_json()["busy_s"] == pytest.approx(busy) and use.to_json()["seconds"] == pytest.approx(busy + 30.0)
    runner.close()


def test_parts_of_a_whole_and_rates() -> None:
    use = DeviceUse("c 0 (fast)", 6, 1.5, 12.0, 0)
    assert (use.share, use.rate) == (0.125, 0.5)
    assert use.to_json() == {
        "device": "c 0 (fast)", "trials": 6, "busy_s": 1.5, "seconds": 12.0, "lost_workers": 0,
    }  # fmt: skip


@pytest.mark.long
def test_times_of_real_processes_lie_within_those_around_them(faults: Any, matmul_task: Any, states: Any) -> None:
    """The same without a made-up clock: what a record says fits between two looks at the clock."""
    faults(["good", "slow", "wrong"])
    builder, runner = ansor.LocalBuilder(n_parallel=1), ansor.LocalRunner()
    first = time.time()
    for state in nonempty(states(3)):
        start = time.monotonic()
        inp = MeasureInput(matmul_task, state)
        done = builder.submit(inp).result()
        made = time.monotonic() - start
        result = runner.run(inp, done)
        assert 0 < done.time_cost <= made and done.time_cost < result.all_cost <= time.monotonic() - start + 1e-3
        assert int(first) <= result.timestamp <= time.time()
    builder.close()
    runner.close()


# ---------------------------------------------------------------------------------------------------------- fleet


class OneDevice:
    """A fleet with one device, which takes `RUN` seconds a program; the first `losses` of them are lost with it."""

    losses = 0

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.address = clock, "nowhere"

    def __call__(self, host: str, port: int) -> OneDevice:
        """Stands for the class, too."""
        return self

    def keys(self) -> list[str]:
        return ["made up"]

    def total(self, key: str) -> int:
        return 1

    @contextmanager
    def lease(self, key: str, priority: int, patience: float) -> Iterator[Any]:
        yield type("Lease", (), {"label": "c 0 (fast)", "number": 1})

    def exchange(self, lease: Any, message: bytes) -> bytes:
        self.clock.passed += RUN
        if self.losses:
            self.losses -= 1
            raise HostLost("planted")
        result = MeasureResult((1e-3,), 0, "", BUILD + RUN, self.clock.day_time, lease.label)
        return pack({"result": result_to_json(result), "lost": 0}, {})

    def close(self) -> None: ...


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> OneDevice:
    made = OneDevice(clock)
    monkeypatch.setattr("ansor.cluster.runner.time", clock)
    monkeypatch.setattr("ansor.measure.device_runner.time", clock)
    monkeypatch.setattr("ansor.cluster.runner.Fleet", made)
    return made


def test_a_device_of_a_fleet_is_busy_for_the_seconds_of_its_runs(
    fleet: OneDevice, clock: FakeClock, matmul_task: Any, tmp_path: Path
) -> None:
    runner = RPCRunner("made up")
    for _ in range(4):
        result = runner.run(MeasureInput(matmul_task), built(tmp_path / "p"))
        assert (result.all_cost, result.timestamp) == (BUILD + RUN, clock.day_time)
        clock.passed += 1.0
    assert runner.usage() == [DeviceUse("c 0 (fast)", 4, 4 * RUN, 4 * (RUN + 1.0), 0)]


def test_candidates_whose_machines_were_lost_cost_what_was_spent_on_them(
    fleet: OneDevice, clock: FakeClock, matmul_task: Any, tmp_path: Path
) -> None:
    fleet.losses = 3
    result = RPCRunner("made up").run(MeasureInput(matmul_task), built(tmp_path / "p"))
    assert (result.error_no, result.timestamp) == (MeasureErrorNo.RUNTIME_DEVICE, clock.day_time)
    assert result.all_cost == pytest.approx(BUILD + 3 * RUN)


# ------------------------------------------------------------------------------------------------------ templates


class TimedDevice(MadeUpDevice):
    """Takes `BUILD` seconds to build, `RUN` to run; `wrong` breaks one of the two after it has taken its time."""

    def __init__(self, clock: FakeClock, wrong: str) -> None:
        super().__init__()
        self.clock, self.wrong = clock, wrong

    def build(self, task: Any, config: Any) -> Any:
        self.clock.passed += BUILD
        assert self.wrong != "build"
        return super().build(task, config)

    def run(self, task: Any, program: Any, options: Any) -> Any:
        self.clock.passed += RUN
        assert self.wrong != "run"
        return super().run(task, program, options)


@pytest.mark.parametrize(("wrong", "spent"), [("", BUILD + RUN), ("run", BUILD + RUN), ("build", BUILD)])
def test_the_seconds_of_a_trial_are_those_of_its_stages(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, wrong: str, spent: float
) -> None:
    monkeypatch.setattr("ansor.autotvm.trial.time", clock)
    task = small_task()
    result = trial(TimedDevice(clock, wrong), task, task.config_space.get(3), TrialOptions(), lambda: None)
    assert result.ok == (not wrong)
    assert (result.all_cost, result.timestamp) == (pytest.approx(spent), clock.day_time)


def test_a_forked_trial_says_its_seconds_when_it_is_stopped() -> None:
    """A program that hangs is stopped after its limit; the whole took that long at least."""

    class Hangs(MadeUpDevice):
        def run(self, task: Any, program: Any, options: Any) -> Any:
            time.sleep(60)

    task = small_task()
    before, start = time.time(), time.monotonic()
    measurer = option(Hangs(), n_parallel=1, timeout=0.5).open(task)
    (result,) = measurer.measure([TrialInput("vta", task, task.config_space.get(0))])
    measurer.close()
    assert result.error_no == MeasureErrorNo.RUN_TIMEOUT
    assert 0.5 <= result.all_cost <= time.monotonic() - start
    assert int(before) <= result.timestamp <= time.time()


class Ready:
    """A builder whose builds are done at once, after `BUILD` seconds that nobody waited for."""

    n_parallel = 1

    def submit(self, inp: Any) -> Future[BuildResult]:
        done: Future[BuildResult] = Future()
        done.set_result(BuildResult("", (), int(MeasureErrorNo.COMPILE_HOST), "planted", BUILD))
        return done

    def close(self) -> None: ...


@pytest.mark.parametrize("fits", [True, False])
def test_compiled_configurations_that_fail_cost_what_was_spent(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, matmul_task: Any, fits: bool
) -> None:
    for module in ("ansor.autotvm.compiled", "ansor.measure.device_runner"):
        monkeypatch.setattr(f"{module}.time", clock)

    def program(task: Any, config: Any) -> MeasureInput:
        clock.passed += 0.5
        if not fits:
            raise ansor.TaskError("planted")
        return MeasureInput(matmul_task)

    task = small_task()
    measurer = CompiledMeasurer(task, program, Ready(), ansor.LocalRunner(), 1)  # type: ignore[arg-type]
    (result,) = measurer.measure([TrialInput("c", task, task.config_space.get(0))])
    assert (result.all_cost, result.timestamp) == (BUILD if fits else 0.5, clock.day_time)


# -------------------------------------------------------------------------------------------------------- records


def test_lines_of_records_keep_seconds_and_the_time_of_day(matmul_task: Any) -> None:
    """In both kinds of lines, and after reading them again."""
    result = MeasureResult((1.25e-3, 0.5e-3), 0, "", 3.375, int(EPOCH))
    line = ansor.dump_record_to_string(MeasureInput(matmul_task, steps=[]), result)
    assert json.loads(line)["r"] == [[1.25e-3, 0.5e-3], 0, 3.375, int(EPOCH)]
    assert ansor.load_record_from_string(line)[1] == result
    task = small_task()
    line = autotvm.record.encode(TrialInput("vta", task, task.config_space.get(0)), result)
    assert json.loads(line)["result"] == [[1.25e-3, 0.5e-3], 0, 3.375, int(EPOCH)]
    assert autotvm.record.decode(line)[1] == result


def test_a_monitor_keeps_seconds_and_rates() -> None:
    task, monitor = small_task(), autotvm.callback.Monitor()
    inp = TrialInput("vta", task, task.config_space.get(0))
    monitor(None, [inp, inp], [MeasureResult((2e-3, 6e-3), 0, "", 1.0, 7), MeasureResult((1e9,), 4, "", 1.0, 9)])
    assert monitor.trial_scores() == [task.flop / 4e-3, 0.0] and monitor.trial_timestamps() == [7.0, 9.0]
