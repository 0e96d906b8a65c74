"""Which records count for a task: those of its workload that were measured for its target.

What another processor took says nothing of this one, so records for `c -march=haswell` are none of a task for `c`
(`Target.takes`).  They stay in the log, and are left aside with a sentence.  Another one says that records of several
processors count for a target that names none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureInput
from ..core.tasks.task import SearchTask
from .lines import recorded_key

Value = TypeVar("Value")


def is_for(inp: MeasureInput, target: Target) -> bool:
    """Whether a record was measured for a target, or for one whose figures count for it."""
    return _counts(recorded_key(inp.task), target)


def is_of(inp: MeasureInput, task: SearchTask) -> bool:
    """Whether a record is one of a task."""
    return inp.task.workload_key == task.workload_key and is_for(inp, task.target)


def found_for(target: Target, workload_key: str, found: Mapping[tuple[str, str], Value]) -> list[Value]:
    """What a mapping by target key and workload key (`workload_of`) has for a workload on a target, its own first."""
    keys = [key for key, workload in found if workload == workload_key and _counts(key, target)]
    return [found[key, workload_key] for key in sorted(keys, key=lambda key: key != target.key)]


def other_targets(name: str, keys: Iterable[str], target: Target) -> str:
    """What is said of the records of a log, called `name`, that are not all for one processor; or nothing.

    Those of another processor than the target's are left aside; where the target names none and theirs differ, all
    count.  `keys` are those of the targets of its records (`recorded_key`), or the texts of such targets.
    """
    known = [Target.recorded(key) for key in dict.fromkeys(keys) if key]
    others = dict.fromkeys([t.key for t in known if t.results == target.results and not target.takes(t)])
    taken = [t for t in known if target.takes(t)]
    alike = dict.fromkeys([t.key for t in taken if not all([t.takes(other) for other in taken])])
    left = f"its records for {' and '.join(others)} are left aside, the target here is {target.key}"
    example = next(iter(alike), "")
    law = f"all count, as the target here, {target.key}, does not say which it is; name it, as in {example}"
    mixed = f"its records for {' and '.join(alike)} {law}"
    said = "; ".join([text for text, of in ((left, others), (mixed, alike)) if of])
    return f"{name}: {said}" if said else ""


def _counts(key: str, target: Target) -> bool:
    return bool(key) and target.takes(Target.recorded(key))
