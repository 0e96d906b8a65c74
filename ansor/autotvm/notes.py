"""What a log of configurations says of itself, in comment lines that readers of autotvm's format skip.

    # run {"command": ..., "seed": ..., "versions": {...}}              before the first record of a run
    # workload {"key": ..., "name": ..., "text": ...}                   before the first record of a task

They are those of logs of programs (`ansor/records/notes.py`), but for the computation: a template has it as a function,
and a log never runs code.
"""

from __future__ import annotations

import json

from te_lite.errors import TeError

from ..records.notes import MOST_CHARACTERS, WORKLOAD, printable, read_note
from .task import Task

MOST_NAME = 200


def key_of(task: Task) -> str:
    """What a log calls the workload of a task."""
    return repr(task.workload)


def workload_line(task: Task) -> str:
    """The line on a task: its name, and what it computes, where its template is known and shows it."""
    facts = {"key": key_of(task), "name": task.title}
    line = WORKLOAD + json.dumps(facts | _text(task))
    return line if len(line) <= MOST_CHARACTERS else WORKLOAD + json.dumps(facts)


def _text(task: Task) -> dict[str, str]:
    try:
        return {"text": task.computation_text} if task.computation_text else {}
    except TeError:
        return {}


def read_name(line: bytes) -> tuple[str, str] | None:
    """The workload and the name of a `# workload` line; None for other lines."""
    note = read_note(line)
    key, name = (None, None) if note is None or note[0] != WORKLOAD else (note[1].get("key"), note[1].get("name"))
    if not (isinstance(key, str) and isinstance(name, str)):
        return None
    return key, printable(name, MOST_NAME)
