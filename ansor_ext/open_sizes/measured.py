"""Records of open programs: what a program took at some sizes, under a key that has extents by name.

The key of a computation with open extents at some sizes is that of a computation of numbers with extents by name, and
with an entry that says what each of them may be and what it was:

    ["open_<md5 of the hash text>", {"n": [1, 512, 128]}, ["n", 256], [256, 256], ["n", 256]]

So each line is a record of a workload of its own, which all readers of records take: what is computed there is the
computation at these sizes, from which models learn, and nobody mistakes a program for all sizes for one of numbers.
Records of tasks with numbers are as they were.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import replace

from ansor.core.tasks.measure_values import MeasureInput
from ansor.core.tasks.task import SearchTask
from ansor.records.files import PathLike
from ansor.records.lines import Record, validated_records
from ansor.records.of_task import is_for
from ansor.records.validation import least_of_computation
from te_lite.computation.text import hash_text
from te_lite.expr.expr import SizeVar
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.step import Step

Steps = tuple[Step, ...]
Values = tuple[int, ...]


def open_key(dag: ComputeDAG, values: Values) -> str:
    """The key of a computation with open extents at some sizes."""
    digest = hashlib.md5(hash_text(dag.ops).encode("utf-8"), usedforsecurity=False).hexdigest()
    sizes = {v.name: [*v.range, n] for v, n in zip(dag.sizes, values, strict=True)}
    shapes = [[d.name if isinstance(d, SizeVar) else d for d in t.shape] for t in dag.tensors]
    return json.dumps([f"open_{digest}", sizes, *shapes])


def open_input(dag: ComputeDAG, task: SearchTask, values: Values, steps: Steps) -> MeasureInput:
    """A program for all sizes, to be recorded at those of which `task` has the numbers."""
    facts = replace(task.facts(), workload_key=open_key(dag, values))
    return MeasureInput(SearchTask.from_facts(facts), steps=steps)


def seconds_in(log: PathLike, dag: ComputeDAG, tasks: dict[Values, SearchTask]) -> dict[Steps, dict[Values, float]]:
    """What a log says of programs for all sizes: the seconds of each at the values for which there are tasks.

    The last record of a program counts; seconds are infinite where it failed.  Raises JournalError when the log cannot
    be read.
    """
    return _seconds(validated_records(log), {open_key(dag, values): (values, task) for values, task in tasks.items()})


def _seconds(records: Iterable[Record], keys: dict[str, tuple[Values, SearchTask]]) -> dict[Steps, dict[Values, float]]:
    found: dict[Steps, dict[Values, float]] = {}
    for inp, res in records:
        values, task = keys.get(inp.task.workload_key, ((), None))
        if task is not None and is_for(inp, task.target):
            sound = res.ok and res.cost >= least_of_computation(task.target, task.compute_dag)
            found.setdefault(inp.steps, {})[values] = res.cost if sound else math.inf
    return found
