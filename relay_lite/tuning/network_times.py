"""What a tuned network takes: each task as tuned and in the network, their sum, and a run from end to end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansor.core.tasks.task import SearchTask
from ansor.core.values.steady import far_apart
from ansor.scheduler.task_progress import TaskProgress

from ..ir.nodes import Function
from ..ir.visit import function_calls
from ..runtime.assemble import reshaped_params
from ..runtime.graph_executor import GraphModule

ALL_TASKS = "all tasks, by weight"


@dataclass(frozen=True)
class TaskTime:
    """A task in its network: seconds of a call as tuned (None without a record), and of a call in the network."""

    task: SearchTask
    weight: int
    trials: int
    estimated: float | None
    measured: float


@dataclass(frozen=True)
class NetworkTimes:
    """All tasks, the seconds of the kernels that are none by name, and the seconds of a run of the whole network."""

    tasks: tuple[TaskTime, ...]
    others: Mapping[str, float]
    end_to_end: float

    @property
    def estimated(self) -> float | None:
        """The weighted sum that the scheduler minimises; None when a task has no record."""
        costs = [t.estimated for t in self.tasks]
        known = [c for c in costs if c is not None]
        return sum(t.weight * c for t, c in zip(self.tasks, known, strict=True)) if len(known) == len(costs) else None

    @property
    def difference(self) -> float | None:
        """How much longer than estimated a run takes, as a part of the estimate; None without one."""
        return self.end_to_end / self.estimated - 1 if self.estimated else None


def network_times(
    module: GraphModule, tasks: Sequence[SearchTask], weights: Sequence[int], tuned: Sequence[TaskProgress],
    end_to_end: float, calls: int = 10,
) -> NetworkTimes:  # fmt: skip
    """What each task takes, as `tuned` and in the network (the mean of `calls` calls of each kernel in a row).

    `end_to_end` are the seconds of a run of the whole network.
    """
    seconds, others = _kernel_seconds(module, tasks, calls)
    rows = [
        TaskTime(task, w, s.trials, s.cost if s.valid else None, seconds[k] / w)
        for k, (task, w, s) in enumerate(zip(tasks, weights, tuned, strict=True))
    ]
    return NetworkTimes(tuple(rows), dict(others), end_to_end)


def _kernel_seconds(
    module: GraphModule, tasks: Sequence[SearchTask], calls: int
) -> tuple[Mapping[int, float], Mapping[str, float]]:
    """What a run spends in each task, by its number, and in each kernel that is none, by name."""
    task_of = {name: k for k, task in enumerate(tasks) for name in task.desc.split(",")}
    seconds, others = dict.fromkeys(range(len(tasks)), 0.0), defaultdict[str, float](float)
    for (kernel, cost), group in zip(module.profile(calls), _calls(module), strict=True):
        name = str(group.attrs.get("name", kernel)).removesuffix("_packed")
        if name in task_of:
            seconds[task_of[name]] += cost
        else:
            others[kernel] += cost
    return seconds, others


def _calls(module: GraphModule) -> list[Function]:
    """The group of every step of the network."""
    graph = module.module.library.graph
    assert graph is not None
    calls = [n.function for n in function_calls(graph.body)]
    return [f for f in calls if reshaped_params(f) is None]


def times_text(times: NetworkTimes) -> str:
    """The table of tasks: microseconds of a call as tuned and in the network, then the sums beside the whole run."""
    width = max(map(len, [ALL_TASKS, *[t.task.desc for t in times.tasks]]))
    head = f"|  ID  | {'Task Description'.center(width)} | Weight | Trials | Estimated (us) | In the network (us) |"
    rule = "-" * len(head)
    rows = [
        _line(f"{k:4d}", t.task.desc, width, str(t.weight), str(t.trials), t.estimated, t.measured)
        for k, t in enumerate(times.tasks)
    ]
    return "\n".join([head, rule, *rows, rule, *_sums(times, width), rule, total_text(times)])


def _sums(times: NetworkTimes, width: int) -> tuple[str, str]:
    """The lines of all tasks and of the kernels that are none."""
    measured = sum(t.weight * t.measured for t in times.tasks)
    weight, trials = sum(t.weight for t in times.tasks), sum(t.trials for t in times.tasks)
    all_tasks = _line("", ALL_TASKS, width, str(weight), str(trials), times.estimated, measured)
    name = f"{len(times.others)} other kernels"
    return all_tasks, _line("", name, width, "", "", None, sum(times.others.values()))


def _line(
    number: str, name: str, width: int, weight: str, trials: str, estimated: float | None, measured: float
) -> str:
    guess = "-" if estimated is None else f"{1e6 * estimated:.2f}"
    return f"| {number:4} | {name:>{width}} | {weight:>6} | {trials:>6} | {guess:>14} | {1e6 * measured:>19.2f} |"


def total_text(times: NetworkTimes) -> str:
    """`Estimated total latency: 1.587 ms  Measured end to end: 1.650 ms  Difference: +4.0 %`."""
    whole = f"Measured end to end: {1e3 * times.end_to_end:.3f} ms"
    if times.estimated is None or times.difference is None:
        return f"Estimated total latency: - ms  {whole}"
    return (
        f"Estimated total latency: {1e3 * times.estimated:.3f} ms  {whole}  Difference: {_difference(times.difference)}"
    )


def _difference(part: float) -> str:
    """`+4.0%`; a factor where the two were hardly measured alike."""
    if not far_apart(1 + part):
        return f"{part:+.1%}"
    factor = max(1 + part, 1 / (1 + part))
    doubt = "the machine was busy, or what was measured apart from caches runs out of them"
    return f"a factor of {factor:.3g}, too much for a comparison: {doubt}"
