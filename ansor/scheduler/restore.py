"""Where a log left the tasks: as if its records had just been measured, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core.task import SearchTask
from ..records.lines import Record, target_results
from .task_progress import TaskProgress, cost_of


def restore(records: Iterable[Record], tasks: Sequence[SearchTask], per_round: int) -> tuple[TaskProgress, ...]:
    """The progress of each task after the records of a log; failed ones count as trials, as they do in a run.

    A record belongs to the task of the same workload key and target kind.  `per_round` records make a round, the last
    one may be shorter.
    """
    costs: dict[tuple[str, str], list[float]] = {(t.workload_key, t.target.results): [] for t in tasks}
    for inp, res in records:
        measured = costs.get((inp.task.workload_key, target_results(inp.task)))
        if measured is not None:
            measured.append(cost_of(res))
    return tuple(_replayed(costs[t.workload_key, t.target.results], per_round) for t in tasks)


def _replayed(costs: Sequence[float], per_round: int) -> TaskProgress:
    progress = TaskProgress()
    for start in range(0, len(costs), per_round):
        progress = progress.after_round(costs[start : start + per_round])
    return progress


def settled(
    progress: Sequence[TaskProgress], costs: Mapping[tuple[str, str], float], tasks: Sequence[SearchTask]
) -> tuple[TaskProgress, ...]:  # fmt: skip
    """The progress that was restored from a log, known by what the log settled (`records.best.history`)."""
    pairs = [(s, costs.get((t.target.results, t.workload_key))) for s, t in zip(progress, tasks, strict=True)]
    return tuple(s.confirmed(cost) if s.valid and cost is not None else s for s, cost in pairs)
