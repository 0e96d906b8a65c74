"""The network that a search is for: a comment line of its log, which readers of records skip.

    # network {"name": ..., "tasks": [{"key": ..., "target": ..., "weight": 3}, ...]}      before the records of a run
    # network {..., "others": 1e-5, "runs": [...]}                                         after it

The tasks of the second have "seconds" too, those of a call in the network; `runs` are the seconds of whole runs of the
compiled network, `others` what the kernels take that are no task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.tasks.task import SearchTask
from .notes import MOST_CHARACTERS, NETWORK, is_number, printable, read_kind, workload_named

Workload = tuple[str, str]
"""As `lines.workload_of`: the key of the target, and the workload key."""
MOST_NAME = 200
MOST_RUNS = 1000


@dataclass(frozen=True)
class NetworkNote:
    """How often each task occurs in a network and, once it was compiled and ran, what a call takes there.

    `runs` has the seconds of runs of the whole network, `others` those of kernels that are no task.
    """

    name: str
    weights: Mapping[Workload, float]
    seconds: Mapping[Workload, float] = field(default_factory=dict)
    others: float = 0.0
    runs: tuple[float, ...] = ()


def network_line(
    name: str, tasks: Sequence[SearchTask], weights: Sequence[float], seconds: Sequence[float] | None = None,
    others: float = 0.0, runs: Sequence[float] = (),
) -> str | None:  # fmt: skip
    """The line; None where it would be too long for a log."""
    rows: list[dict[str, Any]] = [
        {"key": task.workload_key, "target": str(task.target), "weight": weight}
        for task, weight in zip(tasks, weights, strict=True)
    ]
    for row, value in zip(rows, seconds or (), strict=False):
        row["seconds"] = value
    ran = {"others": others, "runs": list(runs)} if runs else {}
    line = NETWORK + json.dumps({"name": name, "tasks": rows, **ran})
    return line if len(line) <= MOST_CHARACTERS else None


def read_network(line: bytes) -> NetworkNote | None:
    """The network of a line; None for other lines, and for one that is not as it should be."""
    data = read_kind(line, NETWORK)
    name, rows, others, runs = [data.get(part) for part in ("name", "tasks", "others", "runs")]
    if not (isinstance(name, str) and isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        return None
    weights, seconds = dict[Workload, float](), dict[Workload, float]()
    for row in rows:
        workload = workload_named(row.get("key"), row.get("target"))
        weight, taken = row.get("weight"), row.get("seconds")
        if workload is not None and is_number(weight, 0):
            weights[workload] = float(weight)
            seconds |= {workload: float(taken)} if is_number(taken, 0) else {}
    figures = [float(one) for one in runs[:MOST_RUNS] if is_number(one, 0)] if isinstance(runs, list) else []
    known = printable(name, MOST_NAME)
    return NetworkNote(known, weights, seconds, float(others) if is_number(others, 0) else 0.0, tuple(figures))


def network_after(old: NetworkNote | None, new: NetworkNote | None) -> NetworkNote | None:
    """What is known of a network after another line: the last weights, and what was last measured of the whole."""
    if old is None or new is None or new.runs:
        return new or old
    return replace(old, weights=new.weights)
