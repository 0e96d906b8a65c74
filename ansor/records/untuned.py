"""The untuned program of a workload, which a search measures as its trial 0: a comment line of the log, and no record.

    # untuned {"record": record}

The trials of a log are programs that were searched for, and are counted; this one stands beside them.  Readers of TVM's
format skip the line.
"""

from __future__ import annotations

import json

from te_lite.errors import RecordError

from ..core.measure_values import MeasureInput, MeasureResult
from ..core.task import SearchTask
from .files import PathLike
from .journal import scan_lines
from .lines import Record, dump_record_to_string, record_from_json, workload_of
from .notes import UNTUNED, read_note


def untuned_line(inp: MeasureInput, res: MeasureResult) -> str:
    """The line on an untuned program.  Raises RecordError for a result that no reader would take."""
    return UNTUNED + json.dumps({"record": json.loads(dump_record_to_string(inp, res))})


def read_untuned(line: bytes) -> Record | None:
    """The untuned program of a line; None for other lines, and for one that is not as it should be."""
    note = read_note(line)
    if note is None or note[0] != UNTUNED:
        return None
    try:
        return record_from_json(note[1].get("record"))
    except RecordError:
        return None


def untuned_of(filename: PathLike, task: SearchTask) -> Record | None:
    """What a log says last of the untuned program of a task.  Raises JournalError when it cannot be read."""
    lines = [read_untuned(line) for _, line in scan_lines(filename) if line is not None]
    own = task.target.results, task.workload_key
    return next((found for found in reversed(lines) if found is not None and workload_of(found[0]) == own), None)
