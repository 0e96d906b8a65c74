"""Building and running on this machine: a pool of builder processes, and one runner process a device."""

from __future__ import annotations

import logging
import shutil
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from te_lite.errors import TeError, require
from te_lite.schedule.step import to_json

from ..core.device.backend import backend
from ..core.errors import TaskError
from ..core.target.hardware import host_cores
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
from ..core.values.checks import require_counts, require_not_negative, require_positive
from .channel import task_payload
from .device_runner import DeviceRunner, DeviceRunners, outcome
from .devices import choose_devices, wanted_devices
from .fresh_processes import FreshProcesses
from .workers import Reply, WorkerPool, Workshop

PREPARE_TIMEOUT = 600.0
logger = logging.getLogger("ansor")


class LocalBuilder:
    """Builds candidates in `n_parallel` worker processes (default: the processors at hand), `timeout` seconds each.

    Replaying the steps, lowering and compiling all happen in the worker, under the time limit.  `build_func` is
    "default"; a backend knows what its programs are made of.  With `portable` they are for other machines
    (`Backend.build_portable`).
    """

    portable = False

    def __init__(self, timeout: float = 15, n_parallel: int | None = None, build_func: str = "default") -> None:
        n_parallel = host_cores() if n_parallel is None else n_parallel
        require_positive(TaskError, "LocalBuilder", timeout=timeout)
        require_counts(TaskError, "LocalBuilder", n_parallel=n_parallel)
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
            device = backend(target.kind.name)
            (device.check_portable if self.portable else device.check)(str(target))
            self._checked.add(str(target))
        if self._workshop is None or self._pool is None:
            self._workshop = Workshop()
            self._pool = WorkerPool(self.n_parallel, FreshProcesses(self._workshop))
        try:
            steps = [to_json(s) for s in inp.steps]
        except TeError as error:
            unfit: Future[BuildResult] = Future()
            unfit.set_result(BuildResult("", (), int(MeasureErrorNo.INSTANTIATION_ERROR), str(error), 0.0))
            return unfit
        directory = self._workshop.new("build_")
        job = {
            **task_payload(inp.task), "op": "build", "steps": steps, "directory": str(directory),
            "portable": self.portable,
        }  # fmt: skip
        return self._pool.submit(job, [self.timeout], lambda reply: self._result(directory, reply))

    def _result(self, directory: Path, reply: Reply) -> BuildResult:
        error_no, message = outcome(reply, MeasureErrorNo.BUILD_TIMEOUT, MeasureErrorNo.COMPILE_HOST)
        if error_no:
            shutil.rmtree(directory, ignore_errors=True)
            return BuildResult("", (), error_no, message, reply.seconds)
        return BuildResult(str(directory), tuple(reply.data["packed"]), 0, message, reply.seconds)

    def close(self) -> None:
        """Stop the workers, drop what is queued, and remove what was built."""
        held, self._pool, self._workshop = (self._pool, self._workshop), None, None
        for one in held:
            if one is not None:
                one.close()


class LocalRunner:
    """Runs candidates in a worker process a device, one at a time on each, `timeout` seconds each.

    A cost is the mean of at least `number` calls that last `min_repeat_ms`, on target `c` the median of three means
    that share these; `repeat` costs are taken, with `cooldown_interval` seconds of rest after each candidate.
    `enable_cpu_cache_flush` empties the caches before every cost and therefore forces `number=1, min_repeat_ms=0`.
    Every program is run on poisoned outputs and compared with the reference first (`check.py`); inputs are random, from
    a fixed seed, or the task's own.  Programs that are clearly slower than the best of their task are called less often
    (docs/measuring.md).

    `devices`, "all" or a list of numbers, drives several devices of one model; results then say which one ran them,
    and a candidate whose worker died or hung is run once more on a fresh worker.  Without it, `device` is the one.
    """

    check_correctness = True
    _runners: Mapping[str, DeviceRunners] = MappingProxyType({})

    def __init__(
        self,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
        devices: Sequence[int] | str | None = None,
    ) -> None:
        require_positive(TaskError, "LocalRunner", timeout=timeout)
        require_counts(TaskError, "LocalRunner", number=number, repeat=repeat)
        rests = {"min_repeat_ms": min_repeat_ms, "cooldown_interval": cooldown_interval}
        require_not_negative(TaskError, "LocalRunner", **rests)
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
        self.devices = None if devices is None else wanted_devices("LocalRunner", devices)
        law = "device and devices exclude each other"
        require(self.devices is None or device == 0, TaskError, "LocalRunner", law, device=device, devices=devices)
        self._lock = threading.Lock()

    @property
    def options(self) -> RunOptions:
        """How programs are run."""
        return RunOptions(
            self.number, self.repeat, self.min_repeat_ms, self.check_correctness, self.cooldown_interval,
            self.enable_cpu_cache_flush, self.timeout, PREPARE_TIMEOUT, retries=0 if self.devices is None else 1,
        )  # fmt: skip

    def _opened(self, kind: str) -> DeviceRunners:
        """The device runners of a target kind.  Raises as `slots` does."""
        with self._lock:
            if kind not in self._runners:
                chosen = [self.device] if self.devices is None else choose_devices(kind, self.devices)
                self._runners = {**self._runners, kind: DeviceRunners(chosen, self.options)}
            return self._runners[kind]

    def slots(self, task: SearchTask) -> int:
        """How many candidates of a task are run at a time: the number of devices.

        Raises MeasureError when one that is wanted is missing or they are not of one model, and the backend's error
        when there are none.
        """
        return len(self._opened(task.target.kind.name))

    def prepare(self, task: SearchTask) -> None:
        """Begin to make the inputs of a task and its reference outputs.  Raises as `slots` does."""
        self._opened(task.target.kind.name).prepare(task)

    def usage(self) -> list[DeviceUse]:
        """What each of `devices` did since the workers were started; empty without `devices`."""
        return [use for found in list(self._runners.values()) for use in found.use()]

    def pids(self) -> list[int]:
        """The numbers of the worker processes."""
        return [pid for found in list(self._runners.values()) for pid in found.pids()]

    @contextmanager
    def _idle(self, task: SearchTask) -> Iterator[DeviceRunner]:
        """An idle device runner; waits for one."""
        runner = None
        while runner is None:
            with self._opened(task.target.kind.name).idle() as runner:
                if runner is not None:
                    yield runner

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """Run one candidate.  Raises MeasureError when its task has no reference, and as `slots` does."""
        if built.error_no:
            return failed(built.error_no, built.error_msg, built.time_cost)
        with self._idle(inp.task) as runner:
            return runner.run(inp, built)

    def compare(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult], rounds: int | None = None
    ) -> list[list[float]]:
        """Time programs of one task in turns on one device; no figures for those that do not run.

        `rounds`: so many figures of each, else most of the fastest (`turns.race`).
        """
        with self._idle(inputs[0].task) as runner:
            return runner.compare(inputs, builds, rounds)

    def close(self) -> None:
        """Stop the workers, in the middle of a run too, and remove their files."""
        with self._lock:
            runners, self._runners = self._runners, {}
        for one in runners.values():
            one.close()

    def __del__(self) -> None:
        if self._runners:
            self.close()


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
        devices: Sequence[int] | str | None = None,
    ) -> None:
        if (priority, n_parallel) != (1, 1):
            raise TaskError(
                "LocalRPCMeasureContext: priority and n_parallel must be 1,"
                f" got priority={priority} n_parallel={n_parallel}"
            )
        self.runner = LocalRunner(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, device, devices
        )
        weakref.finalize(self, self.runner.close)
