"""Measuring configurations: in this process, in workers that hang and die, and compiled; what callbacks show."""

from __future__ import annotations

import io
import logging
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ansor import autotvm
from ansor.autotvm import LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, Refusal
from ansor.autotvm.tuner import GridSearchTuner, RandomTuner, XGBTuner
from ansor.core.target.registry import register_backend
from ansor.measure.jobs import JobFailure
from tests.ansor.test_template_space import matmul
from tests.conformance.tuner import MadeUpDevice, conv_task, option, small_task
from vta_sim.backend import VtaBackend


def outcomes(device: Any, n_parallel: int | None, count: int = 8, **runner: Any) -> list[MeasureResult]:
    """The results of the first configurations of the small space."""
    task = small_task()
    measurer = option(device, n_parallel, **runner).open(task)
    inputs = [MeasureInput("vta", task, task.config_space.get(k)) for k in range(count)]
    try:
        return measurer.measure(inputs)
    finally:
        measurer.close()


class Misbehaving(MadeUpDevice):
    """Each of the first configurations goes wrong in its own way."""

    def build(self, task: Any, config: Any) -> Any:
        match config.index:
            case 1:
                return Refusal(MeasureErrorNo.COMPILE_DEVICE, "it does not fit")
            case 2:
                config.raise_error("not this one")
            case 3:
                raise ZeroDivisionError("by zero")
        return config.index

    def run(self, task: Any, program: Any, options: Any) -> Any:
        match program:
            case 4:
                return Refusal(MeasureErrorNo.WRONG_ANSWER, "3 of 8 elements differ")
            case 5:
                return [0.5, float("nan")]
            case 6:
                raise JobFailure(MeasureErrorNo.RUN_TIMEOUT, "too slow")
        return [float(options.number), 1.0]


EXPECTED = [
    (0, ""), (3, "it does not fit"), (1, "not this one"), (1, "ZeroDivisionError: by zero"),
    (5, "3 of 8 elements differ"), (4, "ValueError: the times (0.5, nan) are not positive numbers"), (7, "too slow"),
    (0, ""),
]  # fmt: skip


@pytest.mark.parametrize("n_parallel", [None, 1, 3])
def test_failures_are_results(n_parallel: int | None) -> None:
    results = outcomes(Misbehaving(), n_parallel, number=9)
    assert [(r.error_no, r.error_msg) for r in results] == EXPECTED
    assert results[0].costs == (9.0, 1.0) and results[1].costs == (1e9,)


class Deadly(MadeUpDevice):
    """Hangs and dies, in both stages."""

    def build(self, task: Any, config: Any) -> Any:
        if config.index == 1:
            time.sleep(60)
        if config.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return config.index

    def run(self, task: Any, program: Any, options: Any) -> Any:
        if program == 3:
            time.sleep(60)
        if program == 4:
            sys.exit(3)
        return [1.0]


def test_workers_that_hang_or_die_cost_one_candidate() -> None:
    task = small_task()
    made = autotvm.measure_option(LocalBuilder(0.6, 2, Deadly()), LocalRunner(timeout=0.4))
    measurer = made.open(task)
    inputs = [MeasureInput("vta", task, task.config_space.get(k)) for k in range(8)]
    results = measurer.measure(inputs)
    assert [r.error_no for r in results] == [0, 6, 2, 7, 4, 0, 0, 0]
    assert results[1].error_msg == "no answer within 0.6 s" and results[3].error_msg == "no answer within 0.4 s"
    assert "signal 9" in results[2].error_msg and "the worker died" in results[4].error_msg
    pids = measurer.pids()
    measurer.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_change_nothing() -> None:
    """The same seed finds the same in this process and in three others."""
    found = []
    for n_parallel in (None, 3):
        monitor = autotvm.callback.Monitor()
        tuner = XGBTuner(conv_task(), rng=np.random.default_rng(8))
        tuner.tune(50, option(MadeUpDevice(), n_parallel), callbacks=[monitor])
        found.append(monitor.trial_scores())
    assert found[0] == found[1] and max(found[0]) > 0


def test_a_template_that_is_compiled(tmp_path: Path) -> None:
    """On the target c programs are built, checked and timed for good; the log's best one is then right."""
    task = autotvm.create(matmul, (20, 12, 16), "c")
    log = tmp_path / "log"
    tuner = RandomTuner(task, rng=np.random.default_rng(0))
    runner = LocalRunner(timeout=20, number=2, repeat=2)
    tuner.tune(6, autotvm.measure_option(LocalBuilder(timeout=60, n_parallel=1), runner), callbacks=[
        autotvm.callback.log_to_file(log)
    ])  # fmt: skip
    records = list(autotvm.record.load_from_file(log))
    assert len(records) == 6 and {r.error_no for _, r in records} <= {0, 1}
    assert all(len(r.costs) == 2 and 0 < r.cost < 1 for _, r in records if r.ok) and tuner.best_flops > 0
    with autotvm.ApplyHistoryBest(log):
        best = autotvm.DispatchContext.current.query("c", task.workload)
    assert best == tuner.best_config


class Offering(VtaBackend):
    """The accelerator with other templates."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.templates = device


def test_the_backend_of_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a backend of its own, a builder takes the one that the target's package offers for templates."""
    device = MadeUpDevice()
    package = types.ModuleType("made_up_device")
    package.BACKEND = Offering(device)
    monkeypatch.setitem(sys.modules, "made_up_device", package)
    before = register_backend("vta", "made_up_device")
    try:
        GridSearchTuner(small_task()).tune(3, autotvm.measure_option("local", "local"))
    finally:
        register_backend("vta", before)
    assert device.calls == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------ callbacks


def test_the_progress_bar() -> None:
    """The line of the tutorial, character by character, apart from the time."""
    stream = io.StringIO()
    device = MadeUpDevice()
    bar = autotvm.callback.progress_bar(40, prefix=f"[Task {1:2d}/{10:2d}] ", stream=stream)
    GridSearchTuner(small_task()).tune(1000, option(device), callbacks=[bar])
    lines = stream.getvalue().split("\r")
    assert lines[0] == "" and len(lines) == 42
    pattern = r"\[Task  1/10\]  Current/Best: +\d+\.\d\d/ *\d+\.\d\d GFLOPS \| Progress: \(\d+/40\) \| \d+\.\d\d s"
    assert all(re.fullmatch(pattern, line) for line in lines[1:-1])
    assert lines[1].startswith("[Task  1/10]  Current/Best:    0.00/   0.00 GFLOPS | Progress: (0/40) | ")
    assert lines[14].startswith("[Task  1/10]  Current/Best:  500.00/ 500.00 GFLOPS | Progress: (13/40) | ")
    assert lines[15].startswith("[Task  1/10]  Current/Best: 1000.00/1000.00 GFLOPS | Progress: (14/40) | ")
    assert re.fullmatch(pattern + r" Done\.\n", lines[-1])


def test_the_current_figure_is_the_last_success_of_a_batch() -> None:
    stream, task, tuner = io.StringIO(), small_task(), GridSearchTuner(small_task())
    bar = autotvm.callback.progress_bar(8, "", "M", stream)
    inputs = [MeasureInput("vta", task, task.config_space.get(k)) for k in range(3)]
    ok, bad = MeasureResult((0.5,), 0, "", 0.0, 0), MeasureResult((1e9,), 1, "", 0.0, 0)
    bar(tuner, inputs, [bad, ok, bad])
    assert " Current/Best:    2.00/   2.00 MFLOPS | Progress: (3/8) | " in stream.getvalue().split("\r")[-1]
    bar(tuner, inputs[:1], [bad])
    assert " Current/Best:    0.00/   2.00 MFLOPS | Progress: (4/8) | " in stream.getvalue().split("\r")[-1]


def test_debug_prints_results_instead(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    with caplog.at_level(logging.DEBUG, "autotvm"):
        bar = autotvm.callback.progress_bar(2, stream=stream)
        GridSearchTuner(small_task()).tune(2, option(MadeUpDevice()), callbacks=[bar])
    assert stream.getvalue() == ""
    assert [r.getMessage().split("\t")[:2] for r in caplog.records] == [
        ["No: 1", "GFLOPS: 37.04/37.04"], ["No: 2", "GFLOPS: 55.56/55.56"]
    ]  # fmt: skip


def test_an_interrupted_run_keeps_what_it_measured(tmp_path: Path) -> None:
    """Ctrl-C passes on; the log holds every result, the line of the bar is ended, no worker is left."""

    class Interrupting(MadeUpDevice):
        def build(self, task: Any, config: Any) -> Any:
            if len(self.calls) == 7:
                raise KeyboardInterrupt
            return super().build(task, config)

    stream, log = io.StringIO(), tmp_path / "log"
    callbacks = [autotvm.callback.progress_bar(40, stream=stream), autotvm.callback.log_to_file(log)]
    with pytest.raises(KeyboardInterrupt):
        GridSearchTuner(small_task()).tune(40, option(Interrupting()), callbacks=callbacks)
    assert len(list(autotvm.record.load_from_file(log))) == 7 and stream.getvalue().endswith("s Done.\n")


def test_nothing_is_left_running() -> None:
    """A script that ends with its workers at work ends them, too."""
    code = """
import sys, time
from ansor import template as autotvm
from tests.conformance.tuner import MadeUpDevice, option, small_task

task = small_task()
measurer = option(MadeUpDevice(), 2).open(task)
measurer.measure([autotvm.MeasureInput("vta", task, task.config_space.get(k)) for k in range(4)])
print(*measurer.pids())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    pids = [int(p) for p in done.stdout.split()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


REFUSED: list[tuple[Any, str]] = [
    (lambda: LocalBuilder(timeout=0), "timeout must be a positive number"),
    (lambda: LocalBuilder(n_parallel=1.5), "n_parallel must be an integer or None"),
    (lambda: LocalRunner(repeat=-1), "repeat must be a positive number"),
    (lambda: autotvm.measure_option("remote"), "the builder must be 'local', a LocalBuilder"),
    (lambda: autotvm.measure_option("local", "remote"), "the runner must be 'local', a LocalRunner or an RPCRunner"),
    (lambda: autotvm.callback.progress_bar(3, si_prefix="x"), "the unit prefix must be one of"),
    (lambda: autotvm.callback.log_to_file("log", "pickle"), "the protocol must be json"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(autotvm.TemplateError) as caught:
        call()
    assert text in str(caught.value)
