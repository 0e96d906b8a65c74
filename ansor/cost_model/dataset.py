"""What a learning model was told: programs as rows of features, each with its task and its cost.

Samples   grows with every measurement; what nothing can be learnt from never gets in, and is counted
Dataset   an immutable copy of it at one time, which a thread or process of its own can be trained on
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.tasks.task import SearchTask
from ..records.lines import recorded_key
from .api import Array


@dataclass(frozen=True)
class Dataset:
    """`n` programs: float32 `rows` [rows of all programs, columns], program by program, `sizes[p]` of each.

    `costs` float64 [n] in seconds, inf after a failure; `tasks` int64 [n] numbers the tasks from 0.
    """

    rows: Array
    sizes: Array
    costs: Array
    tasks: Array

    def __len__(self) -> int:
        return len(self.sizes)

    def throughputs(self) -> Array:
        """float64 [n] in [0, 1]: the least cost of the program's task divided by its own; 0 after a failure.

        A task that has seen nothing but failures has only zeros (TVM: ones).
        """
        best = np.full(int(self.tasks.max(initial=-1)) + 1, np.inf)
        np.minimum.at(best, self.tasks, self.costs)
        ok = np.isfinite(self.costs)
        labels: Array = np.divide(best[self.tasks], self.costs, out=np.zeros(len(self)), where=ok)
        return labels


class Samples:
    """Programs with their features, in the order in which they were told."""

    def __init__(self) -> None:
        self.refused = 0
        self._rows: list[Array] = []
        self._costs: list[float] = []
        self._tasks: list[int] = []
        self._numbers: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, task: SearchTask, features: Array, cost: float) -> bool:
        """Add a program: `features` [rows, columns], `cost` in seconds or inf after a failure.

        Refused, and counted in `refused`, is a program with no row but zeros, with a feature that is not finite, or
        with a cost that is NaN or not positive.
        Raises TaskError for another number of columns than before.
        """
        rows = in_order(features)
        if not len(rows) or not np.isfinite(rows).all() or not cost > 0:
            self.refused += 1
            return False
        width = self._rows[0].shape[1] if self._rows else rows.shape[1]
        law = f"there must be {width} columns as before"
        require(rows.shape[1] == width, TaskError, "features", law, columns=rows.shape[1])
        self._rows.append(rows)
        self._costs.append(float(cost))
        key = (task.workload_key, recorded_key(task))
        self._tasks.append(self._numbers.setdefault(key, len(self._numbers)))
        return True

    def dataset(self) -> Dataset:
        """All programs as they are now."""
        return Dataset(
            np.concatenate(self._rows) if self._rows else np.zeros((0, 0), np.float32),
            np.array([len(r) for r in self._rows], np.int64),
            np.array(self._costs, np.float64),
            np.array(self._tasks, np.int64),
        )


def in_order(features: Array) -> Array:
    """float32 [rows, columns]: the rows that are not all zeros, in an order that depends on nothing but them."""
    rows: Array = np.ascontiguousarray(features, np.float32)
    require(rows.ndim == 2, TaskError, "features", "a program has [rows, columns]", shape=rows.shape)
    rows = rows[(rows != 0).any(axis=1)]
    as_bytes = rows.view(np.dtype((np.void, rows.strides[0]))).reshape(-1)
    ordered: Array = rows[np.argsort(as_bytes, kind="stable")]
    return ordered


def stacked(programs: list[Array]) -> Array:
    """float32 [n, rows, columns] of programs of differing numbers of rows, filled up with rows of zeros."""
    height = max((len(p) for p in programs), default=0)
    whole = np.zeros((len(programs), height, programs[0].shape[1] if programs else 0), np.float32)
    for k, program in enumerate(programs):
        whole[k, : len(program)] = program
    return whole


def live_rows(features: Array) -> tuple[Any, Any]:
    """Bool [n, rows] and [n]: which rows are not all zeros, and which programs have some and only finite numbers."""
    live = (features != 0).any(axis=2)
    return live, live.any(axis=1) & np.isfinite(features).all(axis=(1, 2))
