"""What a log says of itself, in comment lines that readers of records skip: workloads, runs, rounds.

    # workload {"key": ..., "name": ..., "text": ..., "dag": {...}}     before the first record of the workload
    # run {"command": ..., "seed": ..., "versions": {...}}              before the first record of a run
    # untuned {"record": {...}}                                         as trial 0 of a run (`noted_records.py`)
    # default {"record": {...}}                                         beside it
    # failed {"record": {...}, "reason": ...}                           before the first of a kind (`noted_records.py`)
    # predicted {"score": ..., "round": ...}                           right before a record
    # round {"key": ..., "target": ..., "search": ...}                 after the records of a round
    # network {"tasks": [...]}                                         before the records of a run (`network.py`)
    # stopped {"key": ..., "target": ..., "reason": ...}               where a search ended early of itself
    # confirm {"turns": [...]}                                          after the last record of a run (`confirmed.py`)

With the first kind a log can be listed, printed and built from where the function behind a key is not registered.  A
computation that comes from a log is data: it is checked before it is made (`te_lite/printing/dag_json.py`), and a
function that is registered under its name goes before it: records of another computation than that are skipped, with a
sentence.

What a search expected of a program before it was measured is such a line, too: a record has no place for a score that
TVM's readers would not stumble over.
"""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from te_lite.errors import TeError
from te_lite.printing.dag_json import dag_from_foreign_json, dag_to_json
from te_lite.schedule.dag import ComputeDAG

from ..core.host.hints import version_of
from ..core.target.target import Target
from ..core.tasks.measure_values import Prediction, Spent
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import offer_computation
from ..core.values.checks import require_tensor

WORKLOAD, RUN, UNTUNED, DEFAULT = "# workload ", "# run ", "# untuned ", "# default "
FAILED, CONFIRM, STOPPED = "# failed ", "# confirm ", "# stopped "
PREDICTED, ROUND, NETWORK = "# predicted ", "# round ", "# network "
KINDS = (WORKLOAD, RUN, UNTUNED, DEFAULT, FAILED, CONFIRM, STOPPED, PREDICTED, ROUND, NETWORK)
MOST_CHARACTERS = (1 << 20) - 1
"""What a line of a log may have; a computation that needs more is left out."""
MOST_REASON = 500
MOST_NUMBER = 1e300


@runtime_checkable
class HasSeed(Protocol):
    """What makes proposals that follow from a seed."""

    @property
    def seed(self) -> int | None:
        """The seed."""


def workload_line(task: SearchTask) -> str | None:
    """The line on a task's workload; None when its computation is not known, or is none that JSON can hold."""
    try:
        return line_of_computation(task.workload_key, task.name, task.compute_dag)
    except TeError:
        return None


def line_of_computation(key: str, name: str, dag: ComputeDAG) -> str | None:
    """The line on a computation that is known under a key and called `name`; None when it would be too long.

    Raises ExprError for a computation that JSON cannot hold.
    """
    line = WORKLOAD + json.dumps({"key": key, "name": name, "text": str(dag), "dag": dag_to_json(dag)})
    return line if len(line) <= MOST_CHARACTERS else None


def run_line(source: Any, place: Mapping[str, str] | None = None) -> str:
    """The line on the run of this process, with the seed of its policy or tuner, if that has one.

    `place` has what programs run on and are compiled with, as far as that is known: `device`, `compiler`.
    """
    versions = {"ansor": version_of("ansor"), "python": platform.python_version(), "numpy": np.__version__}
    seed = source.seed if isinstance(source, HasSeed) else None
    return RUN + json.dumps({"command": _command(), "seed": seed, "versions": versions, **(place or {})})


def _command() -> str:
    """What was typed to start this process: a command of ours, or a file for Python."""
    program = Path(sys.argv[0])
    if program.name == "ansor" or program.parts[-2:] == ("ansor", "__main__.py"):
        return shlex.join(["ansor", *sys.argv[1:]])
    return shlex.join([*(["python"] if program.suffix == ".py" else []), *sys.argv])


def stopped_line(task: SearchTask, reason: str) -> str:
    """The line on a search that ended before its budget was spent."""
    return STOPPED + json.dumps({"key": task.workload_key, "target": str(task.target), "reason": reason})


def read_stopped(line: bytes) -> tuple[tuple[str, str], str] | None:
    """Which workload a `# stopped` line is about (`lines.workload_of`), and its reason; None for other lines."""
    data = read_kind(line, STOPPED)
    key, target, reason = [data.get(part) for part in ("key", "target", "reason")]
    workload = workload_named(key, target)
    return (workload, printable(reason, MOST_REASON)) if workload and isinstance(reason, str) else None


def workload_named(key: Any, target: Any) -> tuple[str, str] | None:
    """The workload (`lines.workload_of`) that a line names by its key and target; None where it names none."""
    if not (isinstance(key, str) and isinstance(target, str)):
        return None
    try:
        return Target.recorded(target).key, key
    except TeError:
        return None


def printable(text: str, most: int) -> str:
    """What a log says, for people: its first characters, in one line."""
    return "".join([c if c.isprintable() else " " for c in text[:most]])


def read_note(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """`(one of KINDS, what it says)`; None for any other comment, and for one that cannot be read."""
    for kind in KINDS:
        if line.startswith(kind.encode()):
            return (kind, data) if (data := read_kind(line, kind)) else None
    return None


def read_kind(line: bytes, kind: str) -> dict[str, Any]:
    """What a comment of one of KINDS says; nothing for any other line, and for one that cannot be read."""
    if not line.startswith(kind.encode()):
        return {}
    try:
        data = json.loads(line[len(kind) :])
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def is_number(value: Any, least: float = -MOST_NUMBER) -> TypeGuard[float]:
    """Whether what a comment says is a finite number, of at least `least`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= MOST_NUMBER


def learn_workload(line: bytes) -> tuple[str, str] | None:
    """Let the computation of a `# workload` line be known under its key; None for other lines.

    Gives the key, and how the computation that is registered for it here differs; nothing where it does not.
    """
    note = read_kind(line, WORKLOAD)
    key, name, text, data = [note.get(part) for part in ("key", "name", "text", "dag")]
    if not (isinstance(key, str) and isinstance(name, str) and isinstance(text, str) and isinstance(data, dict)):
        return None
    return key, offer_computation(key, name[:200], lambda: _computation(data), json.dumps(data))


def _computation(data: dict[str, Any]) -> ComputeDAG:
    """Raises TeError for what is no computation, and for one with tensors that are too large."""
    dag = dag_from_foreign_json(data)
    for op in dag.ops:
        require_tensor(op.shape, op.dtype, op.name)
    return dag


# --------------------------------------------------------------------------------------------------------------- rounds


DIGITS = 6


def prediction_line(prediction: Prediction) -> str:
    """The line before a record."""
    score = float(f"{prediction.score:.{DIGITS}g}")
    return PREDICTED + json.dumps({"score": score, "round": prediction.round})


def read_prediction(line: bytes, run: int) -> Prediction | None:
    """The prediction of a line in the `run`-th run of a log; None for other lines, and for one that is none."""
    data = read_kind(line, PREDICTED)
    score, number = data.get("score"), data.get("round")
    if is_number(score) and is_number(number, 0) and isinstance(number, int):
        return Prediction(float(score), number, run)
    return None


def round_line(task: SearchTask, spent: Spent) -> str:
    """The line after a round."""
    seconds = {name: float(f"{value:.{DIGITS}g}") for name, value in asdict(spent).items()}
    return ROUND + json.dumps({"key": task.workload_key, "target": str(task.target), **seconds})


def read_round(line: bytes) -> tuple[tuple[str, str], Spent] | None:
    """The workload (`lines.workload_of`) and the seconds of a line; None as for `read_prediction`."""
    data = read_kind(line, ROUND)
    seconds = [float(value) for one in fields(Spent) if is_number(value := data.get(one.name), 0)]
    workload = workload_named(data.get("key"), data.get("target"))
    return None if workload is None or len(seconds) < len(fields(Spent)) else (workload, Spent(*seconds))
