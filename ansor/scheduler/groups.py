"""Which tasks resemble each other: what one of them reached is a hint for what the others can reach.

Tasks are similar when they are the same computation, of other shapes, for the same kind of target, and take about as
many floating-point operations (within a factor of 1.618).  Operations can also be tagged by hand, with the attribute
`auto_scheduler_task_scheduler_tag`; then the tags tell computations apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from te_lite import ComputeDAG

from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import decode_workload_key
from .task_progress import TaskProgress

TAG = "auto_scheduler_task_scheduler_tag"
LOG_BASE = 1.618
PATIENCE = 5

Groups = tuple[int, ...]


def derive_similarity_tag(dag: ComputeDAG, log_base: float = LOG_BASE) -> str:
    """The tags of the operations and the size of the computation; empty when no operation is tagged."""
    tags = [str(op.attrs[TAG]) for op in dag.ops if op.attrs.get(TAG)]
    return "".join(f"{tag}_" for tag in tags) + str(_size(dag, log_base)) if tags else ""


def _size(dag: ComputeDAG, log_base: float = LOG_BASE) -> int:
    return int(math.log(max(dag.flop_ct, 0.0) + 1, log_base))


def similarity(task: SearchTask) -> str:
    """Equal for similar tasks: by tag, otherwise by the name or hash in the workload key, which leaves out shapes."""
    tag = derive_similarity_tag(task.compute_dag)
    name = f"tag {tag}" if tag else f"{decode_workload_key(task.workload_key)[0]} {_size(task.compute_dag)}"
    return f"{task.target.results} {name}"


def group_tasks(tasks: Sequence[SearchTask]) -> Groups:
    """A group number for each task: the index of the first task that is similar to it."""
    texts = [similarity(t) for t in tasks]
    return tuple(texts.index(text) for text in texts)


def others(groups: Groups, task_id: int) -> list[int]:
    """The other tasks of a task's group."""
    return [k for k, group in enumerate(groups) if group == groups[task_id] and k != task_id]


def speeds(progress: Sequence[TaskProgress], flops: Sequence[float]) -> list[float]:
    """Floating-point operations a second that each task reached; 0 without a program that works."""
    return [max(f, 0.0) / s.cost if s.valid else 0.0 for s, f in zip(progress, flops, strict=True)]


def leave_if_behind(
    groups: Groups, task_id: int, progress: Sequence[TaskProgress], flops: Sequence[float], beta: float
) -> Groups:
    """The groups after a round on a task: a task that got far more rounds than the others of its group and still
    reaches less than 1 / `beta` of the group's best speed is not like them, and gets a group of its own.
    """
    rest = others(groups, task_id)
    if not rest:
        return groups
    speed = speeds(progress, flops)
    behind = speed[task_id] < max(speed[k] for k in rest) / beta
    tried = progress[task_id].rounds > PATIENCE + max(progress[k].rounds for k in rest)
    return tuple(-1 - k if k == task_id and behind and tried else group for k, group in enumerate(groups))
