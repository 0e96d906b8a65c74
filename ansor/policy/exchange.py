"""What goes between a search and its policy, checked: what it asks for, what it is told, what a round of it gives.

A program of another task would be measured and recorded as one of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from te_lite.errors import require
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State

from ..core.errors import PartError, TaskError
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.parts import asking, called
from ..measure.measurer import ProgramMeasurer
from .protocols import same_task
from .search_failure import SearchFailed

POLICY = "policy"


def checked_states(policy: Any, task: SearchTask, states: Any, most: int) -> Sequence[State]:
    """What `ask(most)` gave.  Raises PartError for what is no list of at most so many whole programs of the task."""
    subject = called(POLICY, policy)
    law = "ask must give a list of states"
    ok = isinstance(states, list | tuple) and all(isinstance(state, State) for state in states)
    require(ok, PartError, subject, law, got=states)
    law = f"ask({most}) must give at most {most} states"
    require(len(states) <= most, PartError, subject, law, got=len(states))
    foreign = [state.dag for state in states if not _is_of(task, state)]
    law = f"ask must give states of this task, {task.title}, but a state is one of another computation"
    require(not foreign, PartError, subject, law, got=foreign[:1])
    undecided = [state for state in states if any(isinstance(s, Split) and None in s.lengths for s in state.steps)]
    law = "ask must give programs, but a split of this state has no lengths yet, as in a sketch"
    require(not undecided, PartError, subject, law, got=undecided[:1])
    made: Sequence[State] = states
    return made


def _is_of(task: SearchTask, state: State) -> bool:
    dag = task.compute_dag
    return state.dag is dag or state.dag.workload_key() == dag.workload_key()


def require_told(subject: str, task: SearchTask, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise TaskError, naming `subject`, unless each of the inputs is one of the task and has its MeasureResult."""
    for name, kind, values in (("inputs", MeasureInput, inputs), ("results", MeasureResult, results)):
        law = f"{name} must be a list of {kind.__name__}"
        require(isinstance(values, Sequence), TaskError, subject, law, got=values)
        bad = [value for value in values if not isinstance(value, kind)]
        require(not bad, TaskError, subject, law, got=bad[:1])
    law = "each input needs one result"
    require(len(inputs) == len(results), TaskError, subject, law, inputs=len(inputs), results=len(results))
    foreign = [inp for inp in inputs if inp.task is not task and not same_task(inp.task, task)]
    require(not foreign, TaskError, subject, f"an input is of another task than {task}", got=foreign[:1])


def checked_round(policy: Any, answer: Any) -> Sequence[MeasureResult]:
    """The results of a round that a policy made.  Raises PartError for what are none."""
    law = "continue_search_one_round must give a pair, the inputs that were measured and their results"
    pair = isinstance(answer, list | tuple) and len(answer) == 2 and all(isinstance(x, list | tuple) for x in answer)
    require(pair, PartError, called(POLICY, policy), law, got=answer)
    inputs, results = answer
    ok = len(inputs) == len(results) and all(isinstance(res, MeasureResult) for res in results)
    require(ok, PartError, called(POLICY, policy), law, got=answer)
    made: Sequence[MeasureResult] = results
    return made


@contextmanager
def searching(policy: Any, method: str, measurer: ProgramMeasurer) -> Iterator[None]:
    """`asking` of a policy while it measures: searches that fail, and what callbacks raise, pass as they are."""
    try:
        yield
    except SearchFailed:
        raise
    except Exception as error:
        if error is measurer.raised:
            raise
        with asking(POLICY, policy, method):
            raise
