"""Why programs failed: a comment line for the first failure of each kind, since records hold its number only.

    # failed {"record": record, "reason": "..."}

Readers of TVM's format skip the line.
"""

from __future__ import annotations

import json

from te_lite.errors import RecordError

from ..core.tasks.measure_values import MeasureErrorNo, MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from .files import PathLike
from .journal import scan_lines
from .lines import Record, dump_record_to_string, record_from_json, workload_of
from .notes import FAILED, MOST_CHARACTERS, MOST_REASON, printable, read_note
from .of_task import is_of

Kind = tuple[tuple[str, str], int]
"""A workload, and how its program ended."""


def cause(error_no: int) -> str:
    """The name of an error number."""
    return MeasureErrorNo(error_no).name if error_no in MeasureErrorNo._value2member_map_ else f"ERROR {error_no}"


def kind_of(inp: MeasureInput, res: MeasureResult) -> Kind:
    """What tells failures apart, as far as a log says why they are."""
    return workload_of(inp), res.error_no


def failure_line(inp: MeasureInput, res: MeasureResult) -> str | None:
    """The line on a failure, with its reason in one line; None for one without, and for a success."""
    reason = " ".join(res.error_msg.split())[:MOST_REASON]
    if res.ok or not reason:
        return None
    line = FAILED + json.dumps({"record": json.loads(dump_record_to_string(inp, res)), "reason": reason})
    return line if len(line) <= MOST_CHARACTERS else None


def read_failure(line: bytes) -> tuple[Record, str] | None:
    """The failure of a line, and its reason; None for other lines, and for one that is not as it should be."""
    note = read_note(line)
    if note is None or note[0] != FAILED or not isinstance(note[1].get("reason"), str):
        return None
    try:
        record = record_from_json(note[1].get("record"))
    except RecordError:
        return None
    return None if record[1].ok else (record, printable(note[1]["reason"], MOST_REASON))


def first_failure(log: PathLike, task: SearchTask) -> str:
    """Why a task has no program: `; the first that failed: REFUSED: ...`, or nothing where the log does not tell."""
    for _, line in scan_lines(log):
        found = None if line is None else read_failure(line)
        if found is not None and is_of(found[0][0], task):
            return f"; the first that failed: {cause(found[0][1].error_no)}: {found[1]}"
    return ""
