"""What goes between the search and its workers, as JSON: what a worker must know of a task, and results."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from te_lite.printing.dag_json import dag_to_json

from ..core.errors import MeasureError
from ..core.target.registry import backend_module
from ..core.tasks.measure_values import MeasureResult
from ..core.tasks.task import SearchTask


@lru_cache(maxsize=8)
def task_payload(task: SearchTask) -> dict[str, Any]:
    """What every job of a task carries: the computation, the target and the backend module."""
    dag = dag_to_json(task.compute_dag)
    kind = task.target.kind.name
    digest = hashlib.sha256(f"{task.target.results} {json.dumps(dag)}".encode())
    for name, array in sorted(task.task_inputs.items()):
        digest.update(name.encode() + array.tobytes())
    return {
        "task": digest.hexdigest()[:24], "dag": dag, "kind": kind, "backend": backend_module(kind),
        "target": str(task.target), "precision": task.target.precision, "layout": int(task.layout_rewrite_option),
    }  # fmt: skip


def result_to_json(result: MeasureResult) -> list[Any]:
    """A result as a list."""
    return [
        list(result.costs), int(result.error_no), result.error_msg, result.all_cost, result.timestamp, result.device,
    ]  # fmt: skip


def result_from_json(data: Any) -> MeasureResult:
    """The result of `result_to_json`.  Raises MeasureError for anything else."""
    try:
        costs, error_no, message, seconds, timestamp, device = data
        return MeasureResult(
            tuple(float(c) for c in costs), int(error_no), str(message), float(seconds), int(timestamp), str(device)
        )
    except (TypeError, ValueError) as error:
        raise MeasureError(f"message: no result can be read from it, got {data!r:.80}") from error
