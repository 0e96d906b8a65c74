"""Where a log left the tasks: as if its records had just been measured, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core.tasks.task import SearchTask
from ..records.lines import Record
from ..records.of_task import found_for, is_for
from .task_progress import TaskProgress, cost_of


def restore(records: Iterable[Record], tasks: Sequence[SearchTask], per_round: int) -> tuple[TaskProgress, ...]:
    """The progress of each task after the records of a log; failed ones count as trials, as they do in a run.

    A record belongs to the task of its workload and target (`ansor.records.of_task`).  `per_round` records make a
    round, the last one may be shorter.
    """
    costs: list[list[float]] = [[] for _ in tasks]
    numbers: dict[str, list[int]] = {}
    for k, task in enumerate(tasks):
        numbers.setdefault(task.workload_key, []).append(k)
    for inp, res in records:
        for k in numbers.get(inp.task.workload_key, ()):
            if is_for(inp, tasks[k].target):
                costs[k].append(cost_of(res))
    return tuple(_replayed(measured, per_round) for measured in costs)


def _replayed(costs: Sequence[float], per_round: int) -> TaskProgress:
    progress = TaskProgress()
    for start in range(0, len(costs), per_round):
        progress = progress.after_round(costs[start : start + per_round])
    return progress


def settled(
    progress: Sequence[TaskProgress], costs: Mapping[tuple[str, str], float], tasks: Sequence[SearchTask]
) -> tuple[TaskProgress, ...]:  # fmt: skip
    """The progress that was restored from a log, known by what the log settled (`records.best.history`)."""
    known = [found_for(task.target, task.workload_key, costs) for task in tasks]
    return tuple(s.confirmed(min(found)) if s.valid and found else s for s, found in zip(progress, known, strict=True))
