"""One device and the worker process that runs programs on it, one at a time; and several of them behind one door.

A worker that dies or hangs costs its candidate: the candidate fails, or is run once more on a fresh worker where the
device runner has a retry.  The inputs and reference outputs of a task are made by the first device runner that needs
them and read by the others.
"""

from __future__ import annotations

import queue
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from te_lite.errors import require

from ..core.errors import MeasureError
from ..core.tasks.measure_values import (
    BuildResult,
    DeviceInfo,
    DeviceUse,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RunOptions,
    failed,
)
from ..core.tasks.task import SearchTask
from . import turns
from .channel import task_payload
from .fresh_processes import FreshProcesses
from .task_data import INPUT_SEED, TaskData
from .workers import Reply, Worker, Workshop


def outcome(reply: Reply, timeout_error: MeasureErrorNo, death_error: MeasureErrorNo) -> tuple[int, str]:
    """The error number and message of a reply."""
    match reply.failure:
        case "timeout":
            return int(timeout_error), reply.message
        case "died":
            return int(death_error), reply.message
    return int(reply.data["error_no"]), str(reply.data.get("message", ""))


class DeviceRunner:
    """Runs candidates on one device; to be called from one thread at a time, except for `stop`.

    `label` goes into the results.  The worker process starts at the first candidate and again after each loss.
    """

    def __init__(self, data: TaskData, options: RunOptions, device: int = 0, label: str = "") -> None:
        self.data = data
        self.options = options
        self.device = device
        self.label = label
        self.trials = self.lost = 0
        self.busy = 0.0
        self._worker = Worker(FreshProcesses(data.workshop))
        self._ready: tuple[int, frozenset[str]] = (0, frozenset())
        self._stopped = False
        self._since = time.monotonic()

    @property
    def pid(self) -> int | None:
        """The number of the worker process, if there is one."""
        return self._worker.pid

    def use(self) -> DeviceUse:
        """What the device did since the device runner is there."""
        return DeviceUse(self.label, self.trials, self.busy, time.monotonic() - self._since, self.lost)

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """Run one candidate that was built.  Raises MeasureError when its task has no reference."""
        start = time.monotonic()
        try:
            reply = self._attempt(inp, built)
            for _ in range(self.options.retries):
                if not reply.failure or self._stopped:
                    break
                reply = self._attempt(inp, built)
            shutil.rmtree(built.filename, ignore_errors=True)
            time.sleep(self.options.cooldown_interval)
        finally:
            self.trials += 1
            self.busy += time.monotonic() - start
        error_no, message = outcome(reply, MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE)
        spent = built.time_cost + time.monotonic() - start
        if error_no:
            return failed(error_no, message, spent, self.label)
        return MeasureResult(tuple(reply.data["costs"]), 0, "", spent, int(time.time()), self.label)

    def _attempt(self, inp: MeasureInput, built: BuildResult) -> Reply:
        payload = task_payload(inp.task)
        self._prepare(inp.task, payload)
        job = {
            **self.options.timing(), "op": "run", "task": payload["task"], "directory": built.filename,
            "repeat": self.options.repeat, "packed": built.args, "check": self.options.check_correctness,
        }  # fmt: skip
        reply = self._worker.call(job, self.options.timeout)
        error_no, _ = outcome(reply, MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE)
        if error_no >= MeasureErrorNo.RUNTIME_DEVICE:
            self._worker.kill()
        self.lost += bool(reply.failure)
        return reply

    def compare(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult], rounds: int | None = None
    ) -> list[list[float]]:
        """Time programs of one task in turns; no figures for those that cannot be built or run.

        `rounds`: so many figures of each, else most of the fastest (`turns.race`).
        """
        payload = task_payload(inputs[0].task)
        self._prepare(inputs[0].task, payload)
        timing = self.options.timing()
        timing["min_repeat_ms"] = -(-timing["min_repeat_ms"] // turns.SHARE)
        job = {
            **timing, "op": "compare", "task": payload["task"], "rounds": rounds,
            "directories": [b.filename for b in builds], "packed": [b.args for b in builds],
        }  # fmt: skip
        most = 2 * turns.ROUNDS if rounds is None else rounds
        reply = self._worker.call(job, self.options.timeout * most * (len(builds) + turns.LAST))
        error_no, _ = outcome(reply, MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE)
        if error_no:
            self._worker.kill()
        for built in builds:
            if built.filename:
                shutil.rmtree(built.filename, ignore_errors=True)
        return [[] for _ in builds] if error_no else [list(t) for t in reply.data["times"]]

    def _prepare(self, task: SearchTask, payload: dict[str, Any]) -> None:
        """Let the worker hold the task's inputs and references; one that dies meanwhile is replaced as for a run."""
        self._worker.ensure_started()
        process, held = self._ready
        if process == self._worker.started and payload["task"] in held:
            return
        with self.data.made_once(payload["task"]):
            require(not self._stopped, MeasureError, task.name, "the runner was closed")
            job = {
                **payload, "op": "prepare", "directory": str(self.data.folder(task, payload)), "seed": INPUT_SEED,
                "device": self.device,
            }  # fmt: skip
            reply = self._worker.call(job, self.options.prepare_timeout)
            for _ in range(self.options.retries):
                if reply.failure != "died" or self._stopped:
                    break
                self.lost += 1
                reply = self._worker.call(job, self.options.prepare_timeout)
            error_no, message = outcome(reply, MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE)
            if error_no:
                raise MeasureError(f"{task.name}: its inputs and reference outputs cannot be made: {message}")
        self._ready = (self._worker.started, frozenset(reply.data["held"]))

    def stop(self) -> None:
        """End the worker from another thread; the run in progress ends as a failure and is not tried again."""
        self._stopped = True
        self._worker.interrupt()

    def close(self) -> None:
        """End the worker."""
        self._stopped = True
        self._worker.kill()


# ------------------------------------------------------------------------------------------------------ several devices


class DeviceRunners:
    """One device runner a device, and the files they share; any number of threads may come for one."""

    def __init__(self, devices: Sequence[DeviceInfo | int], options: RunOptions) -> None:
        self._workshop = Workshop()
        self._data = data = TaskData(self._workshop)
        self._prepare_timeout = options.prepare_timeout
        self._all = [
            DeviceRunner(data, options, d) if isinstance(d, int) else DeviceRunner(data, options, d.index, d.label)
            for d in devices
        ]
        self._idle: queue.SimpleQueue[DeviceRunner | None] = queue.SimpleQueue()
        for runner in self._all:
            self._idle.put(runner)
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def prepare(self, task: SearchTask) -> None:
        """Begin to make the data of a task."""
        self._data.ahead(task, self._prepare_timeout)

    @contextmanager
    def idle(self) -> Iterator[DeviceRunner | None]:
        """The device runner that has waited longest, as soon as there is one; None when they were closed meanwhile."""
        runner = self._idle.get()
        try:
            yield None if self._closed else runner
        finally:
            self._idle.put(runner)

    def pids(self) -> list[int]:
        """The numbers of the worker processes."""
        return [s.pid for s in self._all if s.pid is not None]

    def use(self) -> list[DeviceUse]:
        """What the devices did so far; devices without a label are left out."""
        return [s.use() for s in self._all if s.label]

    def close(self) -> None:
        """Stop all device runners, in the middle of a run too, and remove their files."""
        self._closed = True
        self._data.close()
        at_rest = 0
        while at_rest < len(self._all):
            for runner in self._all:
                runner.stop()
            try:
                at_rest += self._idle.get(timeout=0.05) is not None
            except queue.Empty:
                continue
        for runner in self._all:
            runner.close()
        self._workshop.close()
        self._idle.put(None)
