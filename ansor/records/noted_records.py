"""Comment lines that hold a record: programs that nobody searched for, and the first failure of each kind.

    # untuned {"record": record}      the loops as they were written
    # default {"record": record}      the default schedule
    # failed {"record": record, "reason": "..."}

The trials of a log are programs that were searched for, and are counted; the first two stand beside them.  A record
has the number of its failure only.  Readers of TVM's format skip these lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from te_lite.errors import RecordError
from te_lite.schedule.step import Step

from ..core.tasks.measure_values import Baseline, MeasureErrorNo, MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from .files import PathLike
from .journal import scan_lines
from .lines import Record, dump_record_to_string, record_from_json, workload_of
from .notes import DEFAULT, FAILED, MOST_CHARACTERS, MOST_REASON, UNTUNED, printable, read_kind, read_note
from .of_task import is_of

# ------------------------------------------------------------------------------------ programs that nobody searched for


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


# ------------------------------------------------------------------------------------------------------------- failures


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
