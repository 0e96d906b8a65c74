"""What a worker must know of a task, as JSON: builders and stations send the same."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from te_lite.dag_json import dag_to_json

from ..core.registry import backend_module
from ..core.task import SearchTask


@lru_cache(maxsize=8)
def task_payload(task: SearchTask) -> dict[str, Any]:
    """What every job of a task carries: the computation, the target and the backend module."""
    dag = dag_to_json(task.compute_dag)
    kind = task.target.kind.name
    digest = hashlib.sha256(f"{kind} {json.dumps(dag)}".encode())
    for name, array in sorted(task.task_inputs.items()):
        digest.update(name.encode() + array.tobytes())
    return {
        "task": digest.hexdigest()[:24], "dag": dag, "kind": kind, "backend": backend_module(kind),
        "target": str(task.target), "layout": int(task.layout_rewrite_option),
    }  # fmt: skip
