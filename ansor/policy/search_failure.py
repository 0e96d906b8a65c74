"""A search that fails for a reason of its own: said in one sentence, with a file that holds what repeats it.

What measuring refuses (`MeasureError`, `JournalError`, `BackendError`), and a part of the user's own that raises or
breaks its protocol (`PartError`), is no fault of a search, and passes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.printing.dag_json import dag_to_json

from ..core.errors import PASSING, AnsorError
from ..core.tasks.measure_values import MeasureResult
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import key_text
from ..core.values.parts import asking
from .protocols import Seeded


class SearchFailed(AnsorError):
    """The search of a task failed; `task`, and the file `report` to attach to an issue.

    `results` are those that its policy was told of when it failed.
    """

    exit_code = 5

    def __init__(self, task: SearchTask, reason: str, report: Path) -> None:
        super().__init__(
            f"{key_text(task.workload_key)} for {task.target}: its search failed, {reason}; "
            f"the computation is in {report}, please attach it to an issue"
        )
        self.task = task
        self.report = report
        self.results: Sequence[MeasureResult] = ()


@contextmanager
def reporting(task: SearchTask, policy: Any, method: str) -> Iterator[None]:
    """`failing`, but for a policy of the user's own, for which it is PartError."""
    with failing(task, policy), asking("policy", policy, method):
        yield


@contextmanager
def failing(task: SearchTask, policy: Any) -> Iterator[None]:
    """Raise SearchFailed, with its report written, for whatever is raised in here that is not `PASSING`."""
    try:
        yield
    except PASSING:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SearchFailed(task, reason, write_report(task, policy, error)) from error


def write_report(task: SearchTask, policy: Any, error: Exception) -> Path:
    """Write what is needed to repeat a failure to a file of the working folder, or of the temporary one.

    The name is that of the computation and of the place where it failed, so that a failure has one file.
    """
    trace = traceback.format_exception(error)
    report = {
        "error": trace[-1].strip(),
        "traceback": "".join(trace),
        "policy": type(policy).__name__,
        "seed": policy.seed if isinstance(policy, Seeded) else None,
        "task": task.facts().to_json(),
        "computation": dag_to_json(task.compute_dag),
        "text": str(task.compute_dag),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
    place = f"{task.workload_key} {task.target} {trace[-2:]}"
    name = f"ansor_failure_{hashlib.sha256(place.encode()).hexdigest()[:12]}.json"
    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(tempfile.gettempdir())
    path = folder / name
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return path
