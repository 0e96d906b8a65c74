"""Kernels of a network, made side by side in worker processes before each is asked for.

Drawing the default programs of one kernel takes a second of Python and more, lowering and proving one a tenth, and a
network has hundreds.  A job of a worker is the computation, the target and the hardware as JSON; its answer is what
this process would make.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from te_lite.errors import TeError
from te_lite.extensions import NONE, chosen, using
from te_lite.lowering.lower import lower
from te_lite.printing.dag_json import dag_from_json
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import Step, steps_from_json, to_json

from ..core.device.backend import load_backend
from ..core.device.network_backend import NetworkBackend
from ..core.device.network_plan import KernelCode
from ..core.errors import MeasureError
from ..core.target.hardware import HardwareParams, host_cores
from ..core.tasks.task import SearchTask
from ..core.values.options import LayoutRewriteOption
from ..measure.channel import task_payload
from ..measure.fresh_processes import FreshProcesses
from ..measure.workers import Reply, WorkerPool, Workshop
from .default_schedule import breeds, default_states, drawn_of, draws

# ------------------------------------------------------------------------------------------------------ jobs of workers


BRED, DRAWN, DRAWN_ON_CPU, PLAIN = 4.0, 1.0, 0.5, 0.1
"""What a task costs whose programs are bred, are drawn otherwise, or are known, by comparison."""
Programs = tuple[tuple[Step, ...], ...]
"""The steps of programs, best first."""


@dataclass(frozen=True, eq=False)
class Wish:
    """What is to be made of a task: the kernel called `name` of the first default program that the target takes.

    `asked` is the target for a backend that asks no device; where it is None programs are drawn and no kernel is made.
    `drawn` are the programs that were drawn before, None where they are to be drawn; only `recorded` is tried where
    there is one.
    """

    task: SearchTask
    name: str = ""
    asked: str | None = None
    drawn: Programs | None = None
    recorded: tuple[Step, ...] | None = None

    @property
    def draws(self) -> bool:
        """Whether programs are to be drawn."""
        return self.drawn is None and self.recorded is None and draws(self.task)

    @cached_property
    def cost(self) -> float:
        """What it takes, by comparison with others."""
        if self.draws:
            return BRED if breeds(self.task) else DRAWN if self.task.target.is_gpu else DRAWN_ON_CPU
        return 0.0 if self.asked is None else PLAIN

    @cached_property
    def key(self) -> Hashable:
        """Equal for what becomes the same."""
        return key_of(self.task), self.name, self.asked, self.recorded

    def job(self) -> dict[str, Any]:
        """It, as JSON for a worker."""
        hardware = self.task.hardware_params.completed(self.task.target).to_json()
        known = None if self.recorded is None else (self.recorded,)
        return {
            **task_payload(self.task), "op": "draw", "hardware": hardware, "name": self.name, "asked": self.asked,
            "draws": self.draws, "drawn": _to_json(self.drawn), "recorded": _to_json(known),
            "extensions": ",".join(sorted(chosen())) or NONE,
        }  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What became of a task: the programs that were drawn for it, and its kernel; None for what was not made.

    Behind the program of the kernel none is drawn: the target takes that one whenever it is asked.
    """

    drawn: Programs | None
    kernel: KernelCode | None

    @staticmethod
    def of(answered: dict[str, Any], name: str) -> Made:
        """It, from the answer of a worker.  Raises RecordError for programs that are none."""
        drawn, kernel = answered["programs"], answered["kernel"]
        return Made(
            None if drawn is None else _programs(drawn),
            None if kernel is None else _kernel_of(name, *kernel),
        )


def _kernel_of(name: str, source: str, scratch: Sequence[int], facts: dict[str, Any], over: Any) -> KernelCode:
    return KernelCode(name, source, tuple(scratch), facts, tuple([(result, given) for result, given in over]))


def key_of(task: SearchTask) -> Hashable:
    """All that decides which default programs a task has."""
    return task.workload_key, str(task.target), task.hardware_params, task.layout_rewrite_option, chosen()


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """The programs and the kernel of a job, in a worker (`ansor.core.target.registry.WORKER_JOBS`)."""
    task = SearchTask(
        compute_dag=dag_from_json(job["dag"]), target=job["target"], hardware_params=HardwareParams(*job["hardware"]),
        layout_rewrite_option=LayoutRewriteOption(job["layout"]),
    )  # fmt: skip
    with using(job["extensions"]):
        drawn, seen = drawn_of(task) if job["draws"] else iter(()), list[State]()
        kernel = None if job["asked"] is None else _kernel(task, job, _noted(drawn, seen))
        seen += drawn if kernel is None else []
    return {
        "error_no": 0, "programs": _to_json([state.steps for state in seen]) if job["draws"] else None,
        "kernel": None if kernel is None else [kernel.source, list(kernel.scratch), dict(kernel.facts), kernel.over],
    }  # fmt: skip


def _noted(states: Iterator[State], seen: list[State]) -> Iterator[State]:
    """The states, each of which is added to `seen` when it is asked for."""
    for state in states:
        seen.append(state)
        yield state


def _kernel(task: SearchTask, job: dict[str, Any], drawn: Iterator[State]) -> KernelCode | None:
    """The kernel of the first program that the target takes, None where it takes none."""
    networks: NetworkBackend | None = load_backend(job["backend"], job["kind"]).networks
    if networks is None:
        return None
    known = (replay(task.compute_dag, steps) for steps in _programs(job["recorded"] or job["drawn"] or []))
    states = known if job["recorded"] else default_states(task, drawn if job["draws"] else known)
    for state in states:
        try:
            return _code(networks, state, job["name"], job["asked"])
        except TeError:  # the next one, as where no worker is
            continue
    return None


def _code(networks: NetworkBackend, state: State, name: str, asked: str) -> KernelCode:
    func = lower(state, list(dict.fromkeys(state.dag.tensors)), name)
    networks.accept(func, asked)
    return networks.code(func, asked)


def _to_json(programs: Sequence[tuple[Step, ...]] | None) -> list[Any] | None:
    return None if programs is None else [[to_json(step) for step in steps] for steps in programs]


def _programs(data: Sequence[Any]) -> Programs:
    return tuple([tuple(steps_from_json(steps)) for steps in data])


# ---------------------------------------------------------------------------------------------------- the search's side


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
        held, self._pool, self._workshop = (self._pool, self._workshop), None, None
        for one in held:
            if one is not None:
                one.close()
