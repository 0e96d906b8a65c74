"""One device and the worker process that runs programs on it, one at a time: what every runner is made of.

A worker that dies or hangs costs its candidate: the candidate fails, or is run once more on a fresh worker where the
device runner has a retry.  The inputs and reference outputs of a task are made by the first device runner that needs
them and read by the others.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from typing import Any

from te_lite.errors import require

from ..core.errors import MeasureError
from ..core.tasks.measure_values import (
    BuildResult,
    DeviceUse,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RunOptions,
    failed,
)
from ..core.tasks.task import SearchTask
from . import turns
from .fresh_processes import FreshProcesses
from .payload import task_payload
from .task_data import INPUT_SEED, TaskData
from .workers import Reply, Worker


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
