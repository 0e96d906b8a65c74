"""Policies in processes of their own, which think side by side: they are asked and told by messages.

A process is a fork of this one, so it has the policies as they are, and answers in the order in which it is asked.  So
each policy hears what it would hear here, in the same order, and a seed decides the same search however many processes
there are.  What goes between is data: the steps of programs as records have them, and results.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from te_lite.errors import require
from te_lite.schedule.state import State
from te_lite.schedule.step import Step, from_json, to_json

from ..core.errors import PASSING, AnsorError, TaskError
from ..core.target.hardware import usable_cores
from ..core.tasks.measure_values import MeasureInput, MeasureResult, Prediction
from ..core.tasks.task import SearchTask
from ..cost_model.trees import use_one_thread
from ..measure.channel import ChannelClosed, packed, receive, result_from_json, result_to_json
from ..measure.forks import Forks
from ..measure.measurer import ProgramMeasurer
from ..measure.workers import Child
from ..policy.default_schedule import default_state
from ..policy.description import Uses
from ..policy.search_loop import one_round
from ..policy.sketch_policy import SketchPolicy
from ..policy.transfer import transfer

LEAST_CORES = 3
"""Of a machine on which policies get processes of their own unless one says how many."""
MOST_SECONDS = 600.0
"""A process that neither answers nor reads for so long is taken to hang, and ends."""
Message = dict[str, Any]


class PolicyFailed(AnsorError):
    """What a policy raised in its process, or that its process has ended."""


class _Traceback(Exception):
    """Where something was raised in another process, as text."""


def chosen_processes(asked: int | None, tasks: int) -> int:
    """How many processes serve the policies of so many tasks; 0 where they stay in this one.

    As many as asked for, else one for each core that may be used, if there are three or more; never more than tasks.
    Raises TaskError for what is no integer of at least 0.
    """
    ok = asked is None or (isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0)
    require(ok, TaskError, "policy_processes", "it must be an integer of at least 0, or None", policy_processes=asked)
    cores = usable_cores()
    usual = cores if cores >= LEAST_CORES and tasks > 1 else 0
    return min(usual if asked is None else asked, tasks)


@contextmanager
def in_processes(policies: Sequence[Any], count: int) -> Iterator[list[Any]]:
    """Policies, each a `SketchPolicy`, in `count` processes, which end with this context; as they are for 0."""
    if count == 0:
        yield list(policies)
        return
    start = Forks(_Served(policies).answer)
    processes: list[_Process] = []
    try:
        for _ in range(count):
            processes.append(_Process(start()))
        apart = [PolicyApart(k, policy, processes[k % count]) for k, policy in enumerate(policies)]
        between = transfer()
        for one in apart:
            one.alike = [other for other in apart if other is not one and between.alike(one.task, other.task)]
            one.twins = [other for other in apart if other is not one and between.twins(one.task, other.task)]
        yield apart
    finally:
        for process in processes:
            process.end()


# ------------------------------------------------------------------------------------------------- in the process


class _Served:
    """Answers messages to policies; `_asked` are their programs of which nothing was told yet, by number."""

    def __init__(self, policies: Sequence[SketchPolicy]) -> None:
        self._policies = policies
        self._asked: list[dict[int, State]] = [{} for _ in policies]
        self._numbers = [0] * len(policies)
        self._alone = False

    def answer(self, message: Message, _: Callable[[], None]) -> Message:
        """The answer to a message; what was raised is one, too."""
        k = message["policy"]
        if not self._alone:
            self._alone = True
            use_one_thread()
        try:
            match message:
                case {"ask": n}:
                    return self._ask(k, n)
                case {"tell": told}:
                    return self._tell(k, told)
                case {"uses": _}:
                    return {"uses": asdict(self._policies[k].uses())}
                case {"similar": told}:
                    return self._tell_of_others(k, told)
                case {"judge": _}:
                    return {"text": self._policies[k].nothing_more()}
                case _:
                    state = default_state(self._policies[k].task)
                    return {"steps": None if state is None else [to_json(s) for s in state.steps]}
        except Exception as error:
            return {"raised": type(error).__name__, "text": str(error), "trace": traceback.format_exc()}

    def _ask(self, k: int, n: int) -> Message:
        states = self._policies[k].ask(n)
        expected = self._policies[k].predicted(states)
        programs = []
        for state, one in zip(states, expected, strict=True):
            self._numbers[k] += 1
            self._asked[k][self._numbers[k]] = state
            thought = None if one is None else [one.score, one.round]
            programs.append([self._numbers[k], [to_json(s) for s in state.steps], thought])
        return {"programs": programs, "uses": asdict(self._policies[k].uses())}

    def _tell(self, k: int, told: Sequence[Any]) -> Message:
        policy = self._policies[k]
        inputs = [MeasureInput(policy.task, self._asked[k].pop(number)) for number, _ in told]
        policy.tell(inputs, [result_from_json(result) for _, result in told])
        return {}

    def _tell_of_others(self, k: int, told: Sequence[Any]) -> Message:
        inputs = [MeasureInput(self._policies[j].task, steps=_steps(steps)) for j, steps, _ in told]
        self._policies[k].tell_of_others(inputs, [result_from_json(result) for _, _, result in told])
        return {}


def _steps(data: Sequence[Any]) -> list[Step]:
    return [from_json(step) for step in data]


# ------------------------------------------------------------------------------------------------------- from here


@dataclass
class _Answer:
    """What a process will say to a message."""

    process: _Process
    data: Message | None = None

    def wait(self, until: float = math.inf) -> Message | None:
        """The answer as it is; None where there is none until then, by the monotonic clock."""
        while self.data is None and self.process.answers(until):
            self.process.hear()
        return self.data

    def result(self) -> Message:
        """The answer, waited for.  Raises what the policy raised, or PolicyFailed."""
        data = self.wait()
        assert data is not None
        if "raised" not in data:
            return data
        passing = {kind.__name__: kind for kind in PASSING}.get(data["raised"])
        if passing is not None:
            raise passing(data["text"])
        raise PolicyFailed(f"{data['raised']}: {data['text']}") from _Traceback(data["trace"])


class _Process:
    """A process that answers in the order in which it is asked."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._open: deque[_Answer] = deque()
        receive(child.socket)

    def say(self, message: Message) -> _Answer:
        """Send a message; what is answered meanwhile is heard, so that neither side waits until the other reads."""
        answer = _Answer(self)
        self._open.append(answer)
        rest = memoryview(packed({**message, "self_destruct": MOST_SECONDS}))
        while rest and answer.data is None:
            match self._ready(select.POLLIN | select.POLLOUT, MOST_SECONDS):
                case 0:
                    self._child.socket.close()
                case select.POLLOUT:
                    self._child.socket.setblocking(False)
                    with suppress(OSError):
                        rest = rest[self._child.socket.send(rest) :]
                case _:
                    self.hear()
        return answer

    def _ready(self, events: int, seconds: float) -> int:
        """What of these events is there within so many seconds, as `select.poll` says it; the end is one, too."""
        if self._child.socket.fileno() < 0:
            return select.POLLHUP
        poll = select.poll()
        poll.register(self._child.socket, events)
        return next((event for _, event in poll.poll(1000 * seconds)), 0)

    def answers(self, until: float) -> bool:
        """Whether there is something to hear until then, by the monotonic clock; there always is some time."""
        return until == math.inf or self._ready(select.POLLIN, max(0.0, until - time.monotonic())) != 0

    def hear(self) -> None:
        """Wait for the next answer."""
        try:
            data = receive(self._child.socket, time.monotonic() + MOST_SECONDS)
        except (ChannelClosed, OSError):
            self._child.socket.close()
            data = {"raised": "PolicyFailed", "text": "its process has ended, or gave no answer", "trace": ""}
        self._open.popleft().data = data

    def end(self) -> None:
        """End the process, whatever it does."""
        self._child.socket.close()
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._child.process.pid, signal.SIGKILL)
        self._child.process.wait()


@dataclass(eq=False)
class PolicyApart:
    """The policy number `number` of a run, in another process, under the names that a `SketchPolicy` has here."""

    number: int
    policy: SketchPolicy
    process: _Process
    rounds_ahead: int = 1
    alike: list[PolicyApart] = field(default_factory=list)
    twins: list[PolicyApart] = field(default_factory=list)
    begun: bool = False
    _foreseen: deque[_Answer] = field(default_factory=deque)
    _default: _Answer | None = None
    _asked: dict[int, tuple[MeasureInput, int]] = field(default_factory=dict)
    _told: deque[_Answer] = field(default_factory=deque)
    _learns: bool = False
    _announced: bool = False

    @property
    def task(self) -> SearchTask:
        """The task."""
        return self.policy.task

    @property
    def seed(self) -> int:
        """The seed of the policy."""
        return self.policy.seed

    def _say(self, message: Message) -> _Answer:
        return self.process.say({**message, "policy": self.number})

    def foresee_default(self) -> None:
        """Begin to draw up the default schedule, which is asked for later."""
        self._default = self._say({"default": True})

    def foresee(self, n: int) -> None:
        """Begin to choose `n` programs, which are asked for later."""
        self._foreseen.append(self._asks(n))

    def known(self) -> bool:
        """Whether programs that were foreseen, if any, can be had without waiting."""
        return not self._foreseen or self._foreseen[0].wait(time.monotonic()) is not None

    def _asks(self, n: int) -> _Answer:
        self.begun = True
        return self._say({"ask": n})

    def candidates(self, n: int) -> list[MeasureInput]:
        """Up to `n` programs to measure next, with what the model thinks of them; those that were foreseen first."""
        answer = self._foreseen.popleft() if self._foreseen else self._asks(n)
        programs = self._result(answer)["programs"]
        out = []
        for number, steps, thought in programs:
            prediction = None if thought is None else Prediction(float(thought[0]), int(thought[1]))
            inp = MeasureInput(self.task, steps=_steps(steps), prediction=prediction)
            self._asked[id(inp)] = inp, number
            out.append(inp)
        return out

    def tell(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Tell the policy of results, and do not wait until it has learnt; what that raises is raised next time.

        Policies of tasks like its own that have not begun yet hear of the best, and those of its twins at any time.
        """
        self._say_if_told_in_vain()
        told = [
            [self._asked.pop(id(inp))[1], result_to_json(replace(res, error_msg=""))]
            for inp, res in zip(inputs, results, strict=True)
        ]
        self._learns = True
        self._told.append(self._say({"tell": told}))
        others = dict.fromkeys([*self.twins, *[one for one in self.alike if not one.begun]])
        best = transfer().worth_telling(inputs, results) if others else []
        news = [[self.number, [to_json(s) for s in inp.steps], result_to_json(res)] for inp, res in best]
        for one in others:
            one._told.append(one._say({"similar": news}))

    def _say_if_told_in_vain(self) -> None:
        """Raise what the policy raised when it was told of results, its own or others', as far as that is known."""
        while self._told and self._told[0].data is not None:
            self._told.popleft().result()

    def _result(self, answer: _Answer) -> Message:
        """An answer, waited for.  Raises what the policy raised then or before."""
        answer.wait()
        self._say_if_told_in_vain()
        return answer.result()

    def settle(self, until: float) -> None:
        """Wait until the policy has learnt what it was told, but no longer than until then; raises what that raised."""
        if self._told:
            self._told[-1].wait(until)
        self._say_if_told_in_vain()

    def default_state(self) -> State | None:
        """The default schedule of the task, drawn up in the process."""
        answer = self._say({"default": True}) if self._default is None else self._default
        steps = answer.result()["steps"]
        return None if steps is None else MeasureInput(self.task, steps=_steps(steps)).state

    def nothing_more(self) -> str:
        """Why nothing more is to be had, in a sentence; empty as long as there may be."""
        return str(self._result(self._say({"judge": True}))["text"]) if self._learns else ""

    def announce(self, runner: object) -> None:
        """Print, once, what the search uses; programs that were foreseen come with it."""
        if self.policy.verbose > 0 and not self._announced:
            self._announced = True
            answer = self._foreseen[0] if self._foreseen else self._say({"uses": True})
            text = Uses(**answer.result()["uses"]).text(type(runner).__name__)
            print(f"SketchPolicy: {text}", flush=True)

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """One round of ask, measure, tell."""
        return one_round(self, self.task, num_measure, measurer)
