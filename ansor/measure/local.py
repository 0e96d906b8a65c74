"""Building and running on this machine: a pool of builder processes, and one runner process a device."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ansor.errors import MeasureError, TaskError
from ansor.hardware import host_cores
from ansor.registry import backend, backend_module
from te_lite.dag_json import dag_to_json
from te_lite.errors import TeError
from te_lite.step import to_json

from .api import FAILED_COST, BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
from .workers import Reply, Worker, WorkerPool, Workshop

if TYPE_CHECKING:
    from ansor.task import SearchTask

PREPARE_TIMEOUT = 600.0
INPUT_SEED = 20201019
ROUNDS = 5
logger = logging.getLogger("ansor")


@lru_cache(maxsize=8)
def task_payload(task: SearchTask) -> dict[str, Any]:
    """What every job of a task carries: the computation, the target and the backend module."""
    dag = dag_to_json(task.compute_dag)
    kind = task.target.kind.name
    digest = hashlib.sha256(f"{kind} {json.dumps(dag)}".encode())
    for name, array in sorted(task.task_inputs.items()):
        digest.update(name.encode() + array.tobytes())
    return {
        "task": digest.hexdigest()[:24], "dag": dag, "kind": kind, "backend": backend_module(kind),
        "target": str(task.target), "layout": int(task.layout_rewrite_option),
    }  # fmt: skip


def _positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise TaskError(f"{owner}: {name} must be a positive number, got {value!r}")


def _counts(owner: str, **values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TaskError(f"{owner}: {name} must be a positive integer, got {value!r}")


def _outcome(reply: Reply, timeout_error: MeasureErrorNo, death_error: MeasureErrorNo) -> tuple[int, str]:
    """The error number and message of a reply."""
    match reply.failure:
        case "timeout":
            return int(timeout_error), reply.message
        case "died":
            return int(death_error), reply.message
    return int(reply.data["error_no"]), str(reply.data.get("message", ""))


class LocalBuilder:
    """Builds candidates in `n_parallel` worker processes (default: the processors at hand), `timeout` seconds each.

    Replaying the steps, lowering and compiling all happen in the worker, under the time limit.  `build_func` is
    "default"; a backend knows what its programs are made of.
    """

    def __init__(self, timeout: float = 15, n_parallel: int | None = None, build_func: str = "default") -> None:
        n_parallel = host_cores() if n_parallel is None else n_parallel
        _positive("LocalBuilder", timeout=timeout)
        _counts("LocalBuilder", n_parallel=n_parallel)
        if build_func != "default":
            raise TaskError(f"LocalBuilder: build_func must be 'default', got {build_func!r}")
        self.timeout = timeout
        self.n_parallel = n_parallel
        self._checked: set[str] = set()
        self._workshop: Workshop | None = None
        self._pool: WorkerPool | None = None

    def submit(self, inp: MeasureInput) -> Future[BuildResult]:
        """Queue a candidate.  Raises the backend's error when nothing can be built and run on this machine."""
        target = inp.task.target
        if str(target) not in self._checked:
            backend(target.kind.name).check(str(target))
            self._checked.add(str(target))
        if self._workshop is None or self._pool is None:
            self._workshop = Workshop()
            self._pool = WorkerPool(self.n_parallel, self._workshop)
        try:
            steps = [to_json(s) for s in inp.steps]
        except TeError as error:
            unfit: Future[BuildResult] = Future()
            unfit.set_result(BuildResult("", (), int(MeasureErrorNo.INSTANTIATION_ERROR), str(error), 0.0))
            return unfit
        directory = self._workshop.new("build_")
        job = {**task_payload(inp.task), "op": "build", "steps": steps, "directory": str(directory)}
        return self._pool.submit(job, self.timeout, lambda reply: self._result(directory, reply))

    def _result(self, directory: Path, reply: Reply) -> BuildResult:
        error_no, message = _outcome(reply, MeasureErrorNo.BUILD_TIMEOUT, MeasureErrorNo.COMPILE_HOST)
        if error_no:
            shutil.rmtree(directory, ignore_errors=True)
        if error_no:
            return BuildResult("", (), error_no, message, reply.seconds)
        return BuildResult(str(directory), tuple(reply.data["packed"]), 0, message, reply.seconds)

    def close(self) -> None:
        """Stop the workers, drop what is queued, and remove what was built."""
        pool, self._pool = self._pool, None
        workshop, self._workshop = self._workshop, None
        if pool is not None:
            pool.close()
        if workshop is not None:
            workshop.close()


class LocalRunner:
    """Runs candidates one after the other in a worker process of its own, `timeout` seconds each.

    A cost is the mean of at least `number` calls that last `min_repeat_ms`; `repeat` costs are taken, with
    `cooldown_interval` seconds of rest after each candidate.  `enable_cpu_cache_flush` empties the caches before
    every cost and therefore forces `number=1, min_repeat_ms=0`.  Every program is run on poisoned outputs and compared
    with the reference first (`check.py`); inputs are random, from a fixed seed, or the task's own.
    """

    def __init__(
        self,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        _positive("LocalRunner", timeout=timeout)
        _counts("LocalRunner", number=number, repeat=repeat)
        for name, value in (("min_repeat_ms", min_repeat_ms), ("cooldown_interval", cooldown_interval)):
            if not isinstance(value, int | float) or not value >= 0:
                raise TaskError(f"LocalRunner: {name} must be a number of at least 0, got {value!r}")
        if enable_cpu_cache_flush and (number, min_repeat_ms) != (1, 0):
            logger.warning("LocalRunner: with enable_cpu_cache_flush, number is 1 and min_repeat_ms is 0")
            number, min_repeat_ms = 1, 0
        self.timeout = timeout
        self.number = number
        self.repeat = repeat
        self.min_repeat_ms = min_repeat_ms
        self.cooldown_interval = cooldown_interval
        self.enable_cpu_cache_flush = enable_cpu_cache_flush
        self.device = device
        self._workshop: Workshop | None = None
        self._worker: Worker | None = None
        self._ready: tuple[int, str] | None = None
        self._data: dict[str, Path] = {}
        self._lock = threading.Lock()

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """Run one candidate.  Raises MeasureError when its task has no reference."""
        with self._lock:
            return self._run(inp, built)

    def _run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        if built.error_no:
            return failed(built.error_no, built.error_msg, built.time_cost)
        start = time.monotonic()
        payload = task_payload(inp.task)
        worker = self._prepared_worker(inp.task, payload)
        job = {
            "op": "run", "task": payload["task"], "directory": built.filename, "number": self.number,
            "repeat": self.repeat, "min_repeat_ms": self.min_repeat_ms, "flush": self.enable_cpu_cache_flush,
            "packed": built.args,
        }  # fmt: skip
        reply = worker.call(job, self.timeout)
        error_no, message = _outcome(reply, MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE)
        if error_no >= MeasureErrorNo.RUNTIME_DEVICE:
            worker.kill()
        shutil.rmtree(built.filename, ignore_errors=True)
        time.sleep(self.cooldown_interval)
        spent = built.time_cost + time.monotonic() - start
        if error_no:
            return failed(error_no, message, spent)
        return MeasureResult(tuple(reply.data["costs"]), 0, "", spent, int(time.time()))

    def compare(self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]) -> list[list[float]]:
        """Time programs of one task in turns, `ROUNDS` figures each; none for those that cannot be built or run."""
        with self._lock:
            payload = task_payload(inputs[0].task)
            worker = self._prepared_worker(inputs[0].task, payload)
            job = {
                "op": "compare", "task": payload["task"], "directories": [b.filename for b in builds],
                "number": self.number, "min_repeat_ms": self.min_repeat_ms, "rounds": ROUNDS,
                "flush": self.enable_cpu_cache_flush, "packed": [b.args for b in builds],
            }  # fmt: skip
            reply = worker.call(job, self.timeout * ROUNDS * len(builds))
            error_no, _ = _outcome(reply, MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE)
            if error_no:
                worker.kill()
            for built in builds:
                if built.filename:
                    shutil.rmtree(built.filename, ignore_errors=True)
            return [[] for _ in builds] if error_no else [list(t) for t in reply.data["times"]]

    def _prepared_worker(self, task: SearchTask, payload: dict[str, Any]) -> Worker:
        """The worker, holding the task's inputs and references."""
        if self._workshop is None or self._worker is None:
            self._workshop = Workshop()
            self._worker = Worker(self._workshop)
        self._worker.ensure_started()
        if self._ready == (self._worker.started, payload["task"]):
            return self._worker
        job = {
            **payload, "op": "prepare", "directory": str(self._task_directory(task, payload)), "seed": INPUT_SEED,
            "device": self.device,
        }  # fmt: skip
        reply = self._worker.call(job, PREPARE_TIMEOUT)
        error_no, message = _outcome(reply, MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE)
        if error_no:
            raise MeasureError(f"{task.name}: its inputs and reference outputs cannot be made: {message}")
        self._ready = (self._worker.started, payload["task"])
        return self._worker

    def _task_directory(self, task: SearchTask, payload: dict[str, Any]) -> Path:
        """Where the arrays of a task lie; inputs that the task gives are put there first."""
        assert self._workshop is not None
        if payload["task"] not in self._data:
            directory = self._workshop.new("task_")
            for k, t in enumerate(task.compute_dag.tensors):
                if t in task.compute_dag.inputs and t.name in task.task_inputs:
                    np.save(directory / f"{k}.npy", task.task_inputs[t.name], allow_pickle=False)
            self._data[payload["task"]] = directory
        return self._data[payload["task"]]

    def close(self) -> None:
        """Stop the worker, in the middle of a run too, and remove its files."""
        while not self._lock.acquire(timeout=0.05):
            busy = self._worker
            if busy is not None:
                busy.interrupt()
        try:
            worker, self._worker = self._worker, None
            workshop, self._workshop = self._workshop, None
            self._ready = None
            self._data = {}
            if worker is not None:
                worker.kill()
            if workshop is not None:
                workshop.close()
        finally:
            self._lock.release()

    def __del__(self) -> None:
        if getattr(self, "_worker", None) is not None:
            self.close()


def failed(error_no: int, message: str, seconds: float) -> MeasureResult:
    """The result of a candidate that failed."""
    return MeasureResult((FAILED_COST,), error_no, message, seconds, int(time.time()))


class LocalRPCMeasureContext:
    """A runner with a process of its own, under the name the tutorials use; `del` ends the process.

    The parameters are those of `LocalRunner`.  `priority` and `n_parallel` are accepted for compatibility and must
    keep their defaults: there is no tracker, and one device runs one program at a time.
    """

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        if (priority, n_parallel) != (1, 1):
            raise TaskError(
                "LocalRPCMeasureContext: priority and n_parallel must be 1,"
                f" got priority={priority} n_parallel={n_parallel}"
            )
        self.runner = LocalRunner(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, device
        )

    def __del__(self) -> None:
        runner = getattr(self, "runner", None)
        if runner is not None:
            runner.close()
