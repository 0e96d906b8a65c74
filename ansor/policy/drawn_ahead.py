"""Default programs of many tasks, drawn side by side in worker processes before each is asked for.

Drawing one takes about a second of Python, and a network has hundreds of kernels.  A job is the computation, the target
and the hardware as JSON, its answer the steps of the programs: the same that `drawn_states` gives here.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

from te_lite.dag_json import dag_from_json
from te_lite.errors import TeError
from te_lite.replay import replay
from te_lite.state import State
from te_lite.step import Step
from te_lite.step_json import steps_from_json, to_json

from ..core.errors import MeasureError
from ..core.hardware import HardwareParams, host_cores
from ..core.layout_option import LayoutRewriteOption
from ..core.task import SearchTask
from ..measure.fresh_processes import FreshProcesses
from ..measure.payload import task_payload
from ..measure.workers import Reply, WorkerPool, Workshop
from .default_schedule import drawn_of

SECONDS = 120.0
"""What a worker may spend on a task."""
FEWEST = 8
"""Fewer tasks are not worth the start of processes."""
REMEMBERED = 512
"""Tasks whose drawn programs a process keeps: a graph is compiled several times, in several layouts for example."""
logger = logging.getLogger("ansor")


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """The programs of a job, in a worker (`ansor.core.registry.WORKER_JOBS`)."""
    task = SearchTask(
        compute_dag=dag_from_json(job["dag"]), target=job["target"], hardware_params=HardwareParams(*job["hardware"]),
        layout_rewrite_option=LayoutRewriteOption(job["layout"]),
    )  # fmt: skip
    return {"error_no": 0, "programs": [[to_json(step) for step in state.steps] for state in drawn_of(task)]}


class Remembered:
    """The steps of the programs that were drawn for tasks, of those that were asked for last."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most, self._lock = most, threading.Lock()
        self._steps: OrderedDict[Hashable, list[tuple[Step, ...]]] = OrderedDict()

    def __contains__(self, task: SearchTask) -> bool:
        return _key(task) in self._steps

    def states(self, task: SearchTask, draw: Callable[[], Sequence[State]]) -> list[State]:
        """The programs of a task, best first, which `draw` gives where they are not known."""
        key = _key(task)
        with self._lock:
            steps = self._steps.get(key)
        if steps is None:
            steps = [state.steps for state in draw()]
        with self._lock:
            self._steps[key] = steps
            self._steps.move_to_end(key)
            while len(self._steps) > self._most:
                self._steps.popitem(last=False)
        return [replay(task.compute_dag, found) for found in steps]


def _key(task: SearchTask) -> Hashable:
    return task.workload_key, str(task.target), task.hardware_params, task.layout_rewrite_option


class DrawnAhead:
    """Programs of tasks with reductions, begun for all when one is asked for; to be closed at the end."""

    def __init__(self, tasks: Sequence[SearchTask], workers: int | None = None) -> None:
        self._tasks = list(tasks)
        self._workers = min(host_cores() if workers is None else workers, len(self._tasks))
        self._futures: list[Future[Reply]] = []
        self._workshop: Workshop | None = None
        self._pool: WorkerPool | None = None

    def states(self, number: int) -> list[State] | None:
        """The programs of a task, by its number, best first; None where no worker drew them."""
        if len(self._tasks) < FEWEST or self._workers < 2:
            return None
        task = self._tasks[number]
        try:
            reply = self._reply(number)
        except (MeasureError, OSError) as error:  # of a process that does not start; the others would not, either
            logger.info("%s: no worker draws default programs: %s", task.name, error)
            self._workers = 0
            return None
        if reply.failure or reply.data["error_no"]:
            logger.info("%s: no worker drew its default program: %s", task.name, reply.message or reply.data)
            return None
        try:
            return [replay(task.compute_dag, steps_from_json(steps)) for steps in reply.data["programs"]]
        except TeError as error:
            logger.info("%s: the default program of a worker does not fit: %s", task.name, error)
            return None

    def _reply(self, number: int) -> Reply:
        if self._pool is None:
            self._begin()
        return self._futures[number].result()

    def _begin(self) -> None:
        self._workshop = Workshop()
        self._pool = WorkerPool(self._workers, FreshProcesses(self._workshop))
        for task in self._tasks:
            hardware = task.hardware_params.completed(task.target).to_json()
            job = {**task_payload(task), "op": "draw", "hardware": hardware}
            self._futures.append(self._pool.submit(job, [SECONDS], lambda reply: reply))

    def close(self) -> None:
        """Drop what is queued, and end the workers."""
        pool, self._pool = self._pool, None
        workshop, self._workshop = self._workshop, None
        if pool is not None:
            pool.close()
        if workshop is not None:
            workshop.close()
