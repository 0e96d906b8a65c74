"""What a tuned network takes: each task as tuned and in the network, their sum, and a run from end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansor.core.task import SearchTask
from ansor.scheduler.task_progress import TaskProgress

from .graph_executor import GraphModule
from .ir import Function, FunctionCall, post_order
from .runtime.assemble import reshaped_params

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
    task_of = {name: k for k, task in enumerate(tasks) for name in task.desc.split(",")}
    seconds: Counter[int] = Counter()
    others: Counter[str] = Counter()
    for (kernel, cost), group in zip(module.profile(calls), _calls(module), strict=True):
        name = str(group.attrs.get("name", kernel)).removesuffix("_packed")
        if name in task_of:
            seconds[task_of[name]] += cost  # type: ignore[assignment]
        else:
            others[kernel] += cost  # type: ignore[assignment]
    rows = [
        TaskTime(task, w, s.trials, s.cost if s.valid else None, seconds[k] / w)
        for k, (task, w, s) in enumerate(zip(tasks, weights, tuned, strict=True))
    ]
    return NetworkTimes(tuple(rows), dict(others), end_to_end)


def _calls(module: GraphModule) -> list[Function]:
    """The group of every step of the network."""
    graph = module.module.library.graph
    assert graph is not None
    calls = [n.function for n in post_order(graph.body) if isinstance(n, FunctionCall)]
    return [f for f in calls if reshaped_params(f) is None]


def times_text(times: NetworkTimes) -> str:
    """The table of tasks: microseconds of a call as tuned and in the network, then the sums beside the whole run."""
    width = max(map(len, [ALL_TASKS, *[t.task.desc for t in times.tasks]]))
    head = f"|  ID  | {'Task Description'.center(width)} | Weight | Trials | Estimated (us) | In the network (us) |"
    rule = "-" * len(head)
    lines = [head, rule]
    for k, t in enumerate(times.tasks):
        lines.append(_line(f"{k:4d}", t.task.desc, width, str(t.weight), str(t.trials), t.estimated, t.measured))
    lines.append(rule)
    measured = sum(t.weight * t.measured for t in times.tasks)
    weight, trials = sum(t.weight for t in times.tasks), sum(t.trials for t in times.tasks)
    lines.append(_line("", ALL_TASKS, width, str(weight), str(trials), times.estimated, measured))
    name = f"{len(times.others)} other kernels"
    lines.append(_line("", name, width, "", "", None, sum(times.others.values())))
    lines.append(rule)
    return "\n".join([*lines, total_text(times)])


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
    return f"Estimated total latency: {1e3 * times.estimated:.3f} ms  {whole}  Difference: {times.difference:+.1%}"
