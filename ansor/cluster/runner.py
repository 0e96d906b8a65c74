"""Runs candidates on the devices of a fleet: the runner that tutorials call RPCRunner.

    runner = ansor.RPCRunner("h200", host="127.0.0.1", port=9190)
    task.tune(ansor.TuningOptions(num_measure_trials=1000, runner=runner))

A candidate whose host or machine is lost is given to another one; that happens to machines, and says nothing of the
candidate, unless it happens to it again and again.
"""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ansor.measure.channel import result_from_json, task_payload
from ansor.measure.local import LocalBuilder
from te_lite.errors import require

from ..core.device.backend import backend
from ..core.errors import BackendError, MeasureError, TaskError
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
from .client import ClientClosed, Fleet, HostLost, Lease
from .message import Files, pack, unpack

MOST_HOSTS = 3
MOST_THREADS = 1024
PREPARE_TIMEOUT = 600.0


class PortableBuilder(LocalBuilder):
    """Builds programs for other machines; the parameters are those of `LocalBuilder`."""

    portable = True


class RPCRunner:
    """Runs candidates on the devices that the tracker at `host:port` has under `key`, as many at a time as there are.

    `priority`: higher ones get devices first.  `n_parallel` limits the candidates that are under way at a time.
    Without `check_correctness` outputs are not compared with the reference.  The other parameters are those of
    `LocalRunner`; the time-out holds on the device's machine, where a program that came as source is compiled in it,
    too.  Raises BackendError when there is no tracker, no device under the key, or the
    extra `[cluster]` is missing; TaskError for bad numbers.
    """

    elsewhere = True
    _fleet: Fleet | None = None

    def __init__(
        self,
        key: str,
        host: str = "127.0.0.1",
        port: int = 9190,
        priority: int = 1,
        n_parallel: int | None = None,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        check_correctness: bool = True,
    ) -> None:
        _require_integers(priority=priority)
        _require_integers(1, port=port, n_parallel=n_parallel or 1, number=number, repeat=repeat)
        law = "timeout must be above 0, min_repeat_ms and cooldown_interval at least 0"
        ok = 0 < timeout < float("inf") and min_repeat_ms >= 0 and cooldown_interval >= 0
        require(ok, TaskError, "RPCRunner", law, got=(timeout, min_repeat_ms, cooldown_interval))
        ok = n_parallel is None or n_parallel >= 1
        require(ok, TaskError, "RPCRunner", "n_parallel must be None or at least 1", got=n_parallel)
        self.key, self.host, self.port = key, host, port
        self.priority, self.n_parallel = priority, n_parallel
        self.options = RunOptions(
            number, repeat, min_repeat_ms, check_correctness, cooldown_interval, enable_cpu_cache_flush, timeout,
            PREPARE_TIMEOUT,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._gate = threading.Condition()
        self._inside = 0
        self._uses: dict[str, tuple[int, float, int]] = {}
        self._since = time.monotonic()
        found = self._connected()
        law = f"the tracker at {found.address} has devices under the keys {', '.join(found.keys()) or '(none)'}"
        require(found.total(key), BackendError, "RPCRunner", law, key=key)

    def _connected(self) -> Fleet:
        with self._lock:
            if self._fleet is None:
                self._fleet = Fleet(self.host, self.port)
            return self._fleet

    def builder(self) -> PortableBuilder:
        """A builder of programs for the fleet's machines."""
        return PortableBuilder()

    # ------------------------------------------------------------------------------------------- many at a time

    def slots(self, task: SearchTask) -> int:
        """How many threads may call `run`: more than there are devices, for some may join later."""
        return self.n_parallel or MOST_THREADS

    def devices(self) -> int:
        """How many devices the key has now."""
        return self._connected().total(self.key)

    @contextmanager
    def _admitted(self, fleet: Fleet) -> Iterator[None]:
        """Let one candidate more in than there are devices, so that every device finds one waiting."""
        with self._gate:
            while self._inside >= (self.n_parallel or fleet.total(self.key) + 1):
                self._gate.wait(timeout=0.5)
            self._inside += 1
        try:
            yield
        finally:
            with self._gate:
                self._inside -= 1
                self._gate.notify()

    def usage(self) -> list[DeviceUse]:
        """What each device did for this runner so far."""
        seconds = time.monotonic() - self._since
        return [DeviceUse(name, n, busy, seconds, lost) for name, (n, busy, lost) in sorted(self._uses.items())]

    # --------------------------------------------------------------------------------------------------- running

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """Run one candidate.

        Raises MeasureError when the tracker is gone, the key has had no devices for the time-out, or the devices refuse
        the task.
        """
        if built.error_no:
            return failed(built.error_no, built.error_msg, built.time_cost)
        start = time.monotonic()
        try:
            label, reply = self._ask("run", inp.task, [built])
        except HostLost as error:
            message = f"{MOST_HOSTS} machines were lost while they ran it, the last one: {error}"
            return failed(MeasureErrorNo.RUNTIME_DEVICE, message, built.time_cost + time.monotonic() - start)
        except ClientClosed:
            message = "the runner was closed"
            return failed(MeasureErrorNo.UNKNOWN_ERROR, message, built.time_cost + time.monotonic() - start)
        result = result_from_json(reply["result"])
        with self._lock:
            n, busy, lost = self._uses.get(label, (0, 0.0, 0))
            spent = result.all_cost - built.time_cost
            self._uses[label] = (n + 1, busy + spent, lost + int(reply["lost"]))
        return result

    def compare(self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]) -> list[list[float]]:
        """Time programs of one task in turns on one device; none for those that cannot be built or run."""
        good = [k for k, built in enumerate(builds) if not built.error_no]
        try:
            _, reply = self._ask("compare", inputs[0].task, [builds[k] for k in good])
        except (HostLost, ClientClosed):
            return [[] for _ in builds]
        times = dict(zip(good, reply["times"], strict=True))
        return [[float(t) for t in times.get(k, [])] for k in range(len(builds))]

    def _ask(self, op: str, task: SearchTask, builds: Sequence[BuildResult]) -> tuple[str, dict[str, Any]]:
        """The label of the device that answered, and its answer."""
        fleet = self._connected()
        programs = [{"packed": built.args, "seconds": built.time_cost} for built in builds]
        options = {k: v for k, v in asdict(self.options).items() if k != "retries"}
        header = {"op": op, "task": task_payload(task)["task"], "options": options, "programs": programs}
        files = _files(task, builds)
        with self._admitted(fleet):
            for attempt in range(MOST_HOSTS):
                try:
                    with fleet.lease(self.key, self.priority, self.options.timeout) as lease:
                        return lease.label, self._exchange(fleet, lease, task, header, files)
                except HostLost:
                    if attempt == MOST_HOSTS - 1:
                        raise
        raise AssertionError

    def _exchange(
        self, fleet: Fleet, lease: Lease, task: SearchTask, header: dict[str, Any], files: Files
    ) -> dict[str, Any]:
        header = {**header, "lease": lease.number}
        reply, _ = unpack(fleet.exchange(lease, pack(header, files)))
        if "need" in reply:
            data = {k: v for k, v in task_payload(task).items() if k != "backend"}
            whole = {**header, "task_data": {**data, "name": task.name}}
            reply, _ = unpack(fleet.exchange(lease, pack(whole, {**files, **_inputs(task)})))
        if "refusal" in reply:
            raise MeasureError(f"RPCRunner: {reply['refusal']}")
        return reply

    def close(self) -> None:
        """Interrupt what is under way, give the devices back and leave the fleet; the next `run` joins again."""
        with self._lock:
            fleet, self._fleet = self._fleet, None
        if fleet is not None:
            fleet.close()

    def __del__(self) -> None:
        if self._fleet is not None:
            self.close()


def _require_integers(least: int | None = None, **values: Any) -> None:
    for name, value in values.items():
        ok = isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)
        law = f"{name} must be an integer" + ("" if least is None else f" of at least {least}")
        require(ok, TaskError, "RPCRunner", law, got=value)


def _files(task: SearchTask, builds: Sequence[BuildResult]) -> Files:
    """The files of programs, but for those that only this machine can use; they are removed here."""
    own = backend(task.target.kind.name).host_files
    files = {}
    for k, built in enumerate(builds):
        for path in sorted(Path(built.filename).iterdir()):
            if path.name not in own:
                files[f"{k}/{path.name}"] = path.read_bytes()
        shutil.rmtree(built.filename, ignore_errors=True)
    return files


def _inputs(task: SearchTask) -> Files:
    """The arrays that the task gives, as .npy files."""
    files = {}
    for name, array in task.task_inputs.items():
        text = io.BytesIO()
        np.save(text, array, allow_pickle=False)
        files[f"input/{name}"] = text.getvalue()
    return files
