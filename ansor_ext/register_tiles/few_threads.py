"""Small blocks for products and convolutions whose programs are bred for the analytical model."""

from __future__ import annotations

from dataclasses import replace

from ansor.core.tasks.task import SearchTask

from ..analysis.read_again import reads_again

FEW_THREADS = 128
"""Threads of a block of large products and convolutions: others compute while one fetches, or waits at a barrier
(docs/results/gpu.md)."""


def few_threads(task: SearchTask) -> SearchTask:
    """The task where blocks have no more than `FEW_THREADS`, if it reads its elements several times."""
    if not reads_again(task):
        return task
    known = task.hardware_params.completed(task.target)
    few = replace(known, max_threads_per_block=min(FEW_THREADS, known.max_threads_per_block))
    return SearchTask(
        compute_dag=task.compute_dag, target=task.target, hardware_params=few, desc=task.desc,
        layout_rewrite_option=task.layout_rewrite_option,
    )  # fmt: skip
