"""Whatever a candidate does, it costs that candidate only: error numbers, worker restarts, time limits."""

import os
import socket
import subprocess
import time

import numpy as np
import pytest

import ansor
from ansor.measure import MeasureErrorNo as E
from ansor.measure.channel import receive, send, task_payload
from ansor.measure.forks import Forks
from ansor.measure.jobs import JobFailure, Workbench
from ansor.measure.workers import WorkerPool

BUILD_FAULTS = {
    "build_raise": E.COMPILE_HOST, "build_segv": E.COMPILE_HOST, "build_kill": E.COMPILE_HOST,
    "build_exit": E.COMPILE_HOST, "build_hang": E.BUILD_TIMEOUT, "build_stop": E.BUILD_TIMEOUT,
    "build_spin": E.BUILD_TIMEOUT, "build_spam": E.NO_ERROR,
}  # fmt: skip
RUN_FAULTS = {
    "load_raise": E.COMPILE_DEVICE, "run_raise": E.RUNTIME_DEVICE, "time_raise": E.RUNTIME_DEVICE,
    "run_segv": E.RUNTIME_DEVICE, "run_kill": E.RUNTIME_DEVICE, "run_exit": E.RUNTIME_DEVICE,
    "run_hang": E.RUN_TIMEOUT, "run_spin": E.RUN_TIMEOUT, "run_stop": E.RUN_TIMEOUT, "run_child": E.RUN_TIMEOUT,
    "untouched": E.WRONG_ANSWER, "wrong": E.WRONG_ANSWER, "nan": E.WRONG_ANSWER, "scribble": E.WRONG_ANSWER,
    "zero_time": E.RUNTIME_DEVICE, "nan_time": E.RUNTIME_DEVICE, "run_spam": E.NO_ERROR,
}  # fmt: skip
LIMIT = 2.0


@pytest.fixture(scope="module")
def spin_library(tmp_path_factory):
    path = tmp_path_factory.mktemp("spin")
    (path / "spin.c").write_text("volatile int x; void spin(void) { for (;;) x = x + 1; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path / "spin.so", path / "spin.c"], check=True)
    return path / "spin.so"


def measure(task, states, timeout=LIMIT, n_parallel=1):
    builder, runner = ansor.LocalBuilder(timeout=timeout, n_parallel=n_parallel), ansor.LocalRunner(timeout=timeout)
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    try:
        return measurer.measure(task, None, [ansor.MeasureInput(task, s) for s in states])
    finally:
        builder.close()
        runner.close()


@pytest.mark.long
@pytest.mark.parametrize("planted", [BUILD_FAULTS, RUN_FAULTS], ids=["build", "run"])
def test_each_fault_costs_one_candidate(planted, faults, matmul_task, states, spin_library):
    words = [w for fault in planted for w in (fault, "good")]
    place = faults(words)
    os.symlink(spin_library, place / "spin.so")
    results = measure(matmul_task, states(len(words)))
    got = {w: r for w, r in zip(words, results, strict=True) if w != "good"}
    assert {w: r.error_no for w, r in got.items()} == {w: int(e) for w, e in planted.items()}
    assert all(r.ok and r.costs == (1e-3,) for w, r in zip(words, results, strict=True) if w == "good")
    assert planted is BUILD_FAULTS or got["scribble"].error_msg == "input A: the program has written to it"
    for r in got.values():
        assert r.ok or (r.costs == (1e10,) and r.error_msg and len(r.error_msg) < 700)
        assert r.error_no not in (E.BUILD_TIMEOUT, E.RUN_TIMEOUT) or r.all_cost < 2 * LIMIT + 1


def test_timeout_is_enforced_from_outside(faults, matmul_task, states):
    faults(["good", "run_hang"])
    builder, runner = ansor.LocalBuilder(n_parallel=1), ansor.LocalRunner(timeout=1.0)
    inputs = [ansor.MeasureInput(matmul_task, s) for s in states(2)]
    builds = [builder.submit(inp).result() for inp in inputs]
    assert runner.run(inputs[0], builds[0]).error_no == 0
    start = time.monotonic()
    assert runner.run(inputs[1], builds[1]).error_no == E.RUN_TIMEOUT
    assert time.monotonic() - start < 2.0
    builder.close()
    runner.close()


def test_last_words_of_a_dead_worker_are_kept(faults, matmul_task, states):
    faults(["run_last_words"])
    (result,) = measure(matmul_task, states(1))
    assert result.error_no == E.RUNTIME_DEVICE
    assert "exit code 3" in result.error_msg and "these are my last words" in result.error_msg


def test_steps_that_do_not_fit_are_an_instantiation_error(faults, matmul_task, states):
    from te_lite.schedule.loop_steps import Split

    faults(["good"])
    good = states(1)[0]
    bad = ansor.MeasureInput(matmul_task, steps=[Split(99, 0, 13, (2,))])
    builder = ansor.LocalBuilder(n_parallel=1)
    results = [builder.submit(inp).result() for inp in (bad, ansor.MeasureInput(matmul_task, good))]
    builder.close()
    assert [r.error_no for r in results] == [E.INSTANTIATION_ERROR, 0]
    assert "stage=99" in results[0].error_msg


def test_holes_cannot_be_built(faults, matmul_task):
    faults(["good"])
    sketch = ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), verbose=0).generate_sketches()[0]
    builder = ansor.LocalBuilder(n_parallel=1)
    result = builder.submit(ansor.MeasureInput(matmul_task, sketch)).result()
    builder.close()
    assert result.error_no == E.INSTANTIATION_ERROR


@pytest.mark.long
def test_build_overlaps_run_when_the_device_is_another(faults, matmul_task, states, monkeypatch):
    from tests.ansor import faulty_backend

    faults(["slow"])
    monkeypatch.setattr(faulty_backend.BACKEND, "shares_host", False)
    results = measure(matmul_task, states(6), n_parallel=2, timeout=10)
    assert [r.error_no for r in results] == [0] * 6


def test_a_task_that_has_no_reference_stops_the_run(faults, matmul_task, states, monkeypatch):
    from ansor.measure import local

    faults(["good"])
    monkeypatch.setattr(local, "PREPARE_TIMEOUT", 0.0)
    with pytest.raises(ansor.MeasureError, match="reference outputs cannot be made"):
        measure(matmul_task, states(1))


def test_own_inputs_are_used(faults, states):
    a = np.zeros((13, 7), np.float32)
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c", task_inputs={"A": a})
    faults(["wrong", "good"])
    first, second = measure(task, states(2))
    assert first.error_no == E.WRONG_ANSWER and ": 1.0, not 0" in first.error_msg
    assert second.ok
    assert task.task_input_names == ("A",)


def test_bad_options():
    for make in (
        lambda: ansor.LocalBuilder(timeout=0),
        lambda: ansor.LocalBuilder(n_parallel=0),
        lambda: ansor.LocalBuilder(build_func="tar.gz"),
        lambda: ansor.LocalRunner(number=0),
        lambda: ansor.LocalRunner(repeat=-1),
        lambda: ansor.LocalRPCMeasureContext(n_parallel=2),
        lambda: ansor.TuningOptions(num_measure_trials=-1),
        lambda: ansor.TuningOptions(runner="remote"),
    ):
        with pytest.raises(ansor.TaskError):
            make()
    flushing = ansor.LocalRunner(enable_cpu_cache_flush=True)
    assert (flushing.number, flushing.min_repeat_ms) == (1, 0)


def test_one_worker_finds_its_inputs_whole_after_each_program(faults, matmul_task, tmp_path):
    """The runner ends a worker after a fault; the worker does not rely on it."""
    faults(["good"])
    bench, data = Workbench(), {**task_payload(matmul_task), "directory": str(tmp_path), "seed": 1, "device": 0}
    bench.do({**data, "op": "prepare"})
    job = {"op": "run", "task": data["task"], "directory": str(tmp_path), "packed": [], "number": 1, "repeat": 1,
           "min_repeat_ms": 0, "flush": False}  # fmt: skip
    for word in ("scribble", "good", "scribble_late", "good"):
        (tmp_path / "fault.json").write_text(f'"{word}"')
        if word == "good":
            assert bench.do(job)["costs"] == [1e-3]
        else:
            with pytest.raises(JobFailure, match="written to it"):
                bench.do(job)


def test_a_worker_starts_only_where_one_more_is_needed():
    """Jobs that come one after the other are done by one worker; one that comes meanwhile starts another."""
    pool = WorkerPool(2, Forks(lambda job, _: time.sleep(job["rest"]) or {}))
    try:
        for _ in range(3):
            assert not pool.submit({"rest": 0.0}, [60.0], lambda reply: reply).result().failure
        assert len(pool.pids()) == 1
        both = [pool.submit({"rest": 0.5}, [60.0], lambda reply: reply) for _ in range(2)]
        assert [future.result().failure for future in both] == ["", ""] and len(pool.pids()) == 2
    finally:
        pool.close()


def test_a_fork_holds_no_channel_of_another_process(tmp_path):
    """So another worker learns at once that its parent is gone; what is closed late closes no file of the fork."""
    ours, theirs = socket.socketpair()

    def work(job, _):
        with open(tmp_path / "own", "w") as file:
            ours.close()
            file.write("kept")
        return {}

    child = Forks(work)()
    try:
        with theirs:
            ours.close()
            theirs.settimeout(10)
            receive(child.socket, time.monotonic() + 10)
            assert theirs.recv(1) == b""
            send(child.socket, {"self_destruct": 10})
            receive(child.socket, time.monotonic() + 10)
        assert (tmp_path / "own").read_text() == "kept"
    finally:
        child.socket.close()
        assert child.process.wait(10) == 1
