"""Programs that nobody searched for, which a search measures as its trial 0: comment lines of a log, and no records.

    # untuned {"record": record}      the loops as they were written
    # default {"record": record}      the default schedule

The trials of a log are programs that were searched for, and are counted; these stand beside them.  Readers of TVM's
format skip the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from te_lite.errors import RecordError
from te_lite.schedule.step import Step

from ..core.tasks.baseline import Baseline
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from .files import PathLike
from .journal import scan_lines
from .lines import Record, dump_record_to_string, record_from_json, workload_of
from .notes import DEFAULT, UNTUNED, read_kind
from .of_task import is_of

KINDS = {Baseline.UNTUNED: UNTUNED, Baseline.DEFAULT: DEFAULT}
Program = tuple[tuple[str, str], tuple[Step, ...]]
"""A workload and steps."""


def baseline_line(which: Baseline, inp: MeasureInput, res: MeasureResult) -> str:
    """The line on such a program.  Raises RecordError for a result that no reader would take."""
    return KINDS[which] + json.dumps({"record": json.loads(dump_record_to_string(inp, res))})


def read_baseline(line: bytes) -> tuple[Baseline, Record] | None:
    """The program of a line, and which it is; None for other lines, and for one that is not as it should be."""
    which, note = next(((w, note) for w, kind in KINDS.items() if (note := read_kind(line, kind))), (None, {}))
    if which is None:
        return None
    try:
        return which, record_from_json(note.get("record"))
    except RecordError:
        return None


def baselines_of(filename: PathLike, task: SearchTask) -> dict[Baseline, Record]:
    """What a log says last of each such program of a task.  Raises JournalError when it cannot be read."""
    return {which: record for which, record in _baselines(filename) if is_of(record[0], task)}


def _baselines(filename: PathLike) -> Iterator[tuple[Baseline, Record]]:
    for _, line in scan_lines(filename):
        found = None if line is None else read_baseline(line)
        if found is not None:
            yield found


def known_baselines(filename: PathLike) -> dict[Program, Baseline]:
    """All such programs of a log, and which they are.  Raises JournalError when it cannot be read."""
    return {program_of(record[0]): which for which, record in _baselines(filename)}


def program_of(inp: MeasureInput) -> Program:
    """The workload and the steps of a program."""
    return workload_of(inp), inp.steps


def baseline_among(known: Mapping[Program, Baseline], inp: MeasureInput) -> Baseline | None:
    """Which of the `known` programs one is, None where it is none; the loops as they were written have no steps."""
    return known.get(program_of(inp), None if inp.steps else Baseline.UNTUNED)
