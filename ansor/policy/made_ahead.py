"""Kernels of a network, made side by side in worker processes before each is asked for (`kernel_jobs.py`).

Drawing the default programs of one takes a second of Python and more, lowering and proving one a tenth, and a network
has hundreds.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import CancelledError, Future

from te_lite.errors import TeError

from ..core.errors import MeasureError
from ..core.target.hardware import host_cores
from ..core.tasks.task import SearchTask
from ..measure.fresh_processes import FreshProcesses
from ..measure.workers import Reply, WorkerPool, Workshop
from .kernel_jobs import Made, Programs, Wish, key_of

SECONDS = 120.0
"""What a worker may spend on a task."""
LEAST = 8.0
"""Less, by the costs of wishes, is not worth the start of processes."""
REMEMBERED = 512
"""Tasks whose drawn programs a process keeps: a graph is compiled several times, in several layouts for example."""
logger = logging.getLogger("ansor")


class Remembered:
    """The steps of the programs that were drawn for tasks, of those that were asked for last."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most, self._lock = most, threading.Lock()
        self._steps: OrderedDict[Hashable, Programs] = OrderedDict()

    def programs(self, task: SearchTask) -> Programs | None:
        """Those of a task, best first; None where they are not known."""
        key = key_of(task)
        with self._lock:
            if key in self._steps:
                self._steps.move_to_end(key)
            return self._steps.get(key)

    def keep(self, task: SearchTask, programs: Programs) -> None:
        """Know the programs of a task from now on."""
        key = key_of(task)
        with self._lock:
            self._steps[key] = programs
            self._steps.move_to_end(key)
            while len(self._steps) > self._most:
                self._steps.popitem(last=False)


class MadeAhead:
    """What workers make of wishes, begun for all when one is asked for; to be closed at the end."""

    def __init__(self, workers: int | None = None) -> None:
        self._most = host_cores() if workers is None else workers
        self._wishes: dict[Hashable, Wish] = {}
        self._cost = 0.0
        self._futures: dict[Hashable, Future[Reply]] = {}
        self._workshop: Workshop | None = None
        self._pool: WorkerPool | None = None

    @property
    def works(self) -> bool:
        """Whether workers were begun."""
        return self._pool is not None

    def add(self, wish: Wish) -> None:
        """Let a wish be made with the others."""
        if wish.cost and wish.key not in self._wishes:
            self._wishes[wish.key] = wish
            self._cost += wish.cost

    def made(self, wish: Wish) -> Made | None:
        """What became of a wish that was added; None where no worker made it."""
        if self._most < 2 or self._cost < LEAST or wish.key not in self._wishes:
            return None
        name = wish.task.name
        try:
            reply = self._reply(wish)
        except (MeasureError, OSError) as error:  # of a process that does not start; the others would not, either
            logger.info("%s: no worker makes default programs: %s", name, error)
            self._most = 0
            return None
        except CancelledError:
            return None
        if reply.failure or reply.data["error_no"]:
            logger.info("%s: no worker made its default program: %s", name, reply.message or reply.data)
            return None
        try:
            return Made.of(reply.data, wish.name)
        except TeError as error:
            logger.info("%s: the default program of a worker does not fit: %s", name, error)
            return None

    def _reply(self, wish: Wish) -> Reply:
        if self._pool is None:
            self._workshop = Workshop()
            self._pool = WorkerPool(min(self._most, len(self._wishes)), FreshProcesses(self._workshop))
        for key, other in self._wishes.items() if wish.key not in self._futures else ():
            if key not in self._futures:
                self._futures[key] = self._pool.submit(other.job(), [SECONDS], lambda reply: reply)
        return self._futures[wish.key].result()

    def drop(self, wish: Wish) -> None:
        """Do not make a wish that nobody has begun with."""
        if wish.key in self._futures:
            self._futures[wish.key].cancel()

    def close(self) -> None:
        """Drop what is queued, and end the workers."""
        pool, self._pool = self._pool, None
        workshop, self._workshop = self._workshop, None
        if pool is not None:
            pool.close()
        if workshop is not None:
            workshop.close()
