"""The folders with the inputs and reference outputs of tasks: made by one process, read by all that run programs.

The right outputs of a large convolution take a second of NumPy, in which the device would stand still when the runner
computed them; so they are made in processes of their own as soon as a round of the task is begun.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import MeasureError
from ..core.tasks.task import SearchTask
from .channel import task_payload
from .fresh_processes import FreshProcesses
from .workers import Reply, WorkerPool, Workshop

INPUT_SEED = 20201019
AHEAD = 2
"""Processes that make data ahead."""


class TaskData:
    """The folders with the inputs and reference outputs of tasks, which device runners share."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self._folders: dict[str, Path] = {}
        self._made: set[str] = set()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._pool: WorkerPool | None = None
        self._ahead: dict[str, Future[Reply]] = {}

    def folder(self, task: SearchTask, payload: dict[str, Any]) -> Path:
        """Where the arrays of a task lie; inputs that the task gives are put there first."""
        with self._lock:
            if payload["task"] not in self._folders:
                directory = self.workshop.new("task_")
                for k, t in enumerate(task.compute_dag.tensors):
                    if t in task.compute_dag.inputs and t.name in task.task_inputs:
                        np.save(directory / f"{k}.npy", task.task_inputs[t.name], allow_pickle=False)
                self._folders[payload["task"]] = directory
            return self._folders[payload["task"]]

    def ahead(self, task: SearchTask, seconds: float) -> None:
        """Begin to make the data of a task, which may take so many seconds; what fails is tried again when needed."""
        payload = task_payload(task)
        if payload["task"] in self._ahead or payload["task"] in self._made:
            return
        if self._pool is None:
            self._pool = WorkerPool(AHEAD, FreshProcesses(self.workshop))
        job = {**payload, "op": "data", "directory": str(self.folder(task, payload)), "seed": INPUT_SEED}
        self._ahead[payload["task"]] = self._pool.submit(job, [seconds], lambda reply: reply)

    @contextmanager
    def made_once(self, key: str) -> Iterator[None]:
        """Whoever makes the data of task `key` does so alone; once that has succeeded nobody waits any more.

        What is made ahead is waited for.
        """
        if key in self._ahead:
            with suppress(CancelledError, MeasureError):
                self._ahead[key].result()
        if key in self._made:
            yield
            return
        with self._making:
            yield
            self._made.add(key)

    def close(self) -> None:
        """Stop the processes that make data ahead."""
        if self._pool is not None:
            self._pool.close()
