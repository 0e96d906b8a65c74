"""The device runners of several devices behind one door: take an idle one, give it back, stop them all."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..core.tasks.measure_values import DeviceInfo, DeviceUse, RunOptions
from ..core.tasks.task import SearchTask
from .device_runner import DeviceRunner
from .task_data import TaskData
from .workers import Workshop


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
