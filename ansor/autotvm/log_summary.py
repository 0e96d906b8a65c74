"""What a log of either kind holds: of programs, or of the configurations of templates."""

from __future__ import annotations

from te_lite.errors import TeError

from ..measure.progress import seconds_text
from ..records.files import PathLike
from ..records.journal import scan_lines
from ..records.lines import Record, parse_line
from ..records.noted_records import cause
from ..records.notes import RUN, read_note
from ..records.summary import LogSummary, TaskSummary, is_one_of, summary_of
from .measure import MeasureInput
from .notes import key_of
from .record import ConfigurationReader, believed, best_pairs, load_from_file, target_key
from .task import Task


def holds_configurations(filename: PathLike) -> bool:
    """Whether the first record of a file is one of a template.  Raises JournalError when it cannot be read."""
    for _, line in scan_lines(filename):
        if line and line[:1] not in (b"#", b" "):
            try:
                data = parse_line(line)
            except TeError:
                continue
            return isinstance(data, dict) and {"input", "config"} <= set(data)
    return False


def log_summary(filename: PathLike) -> LogSummary:
    """Read a log of either kind.  Raises JournalError when it cannot be read."""
    return _of_templates(filename) if holds_configurations(filename) else summary_of(filename)


def believed_text(one: TaskSummary, record: Record) -> str:
    """The seconds by which a program of a task is known, where they are from, and which program it is."""
    inp, res = record
    where = " in turns" if one.is_of_turns(inp.steps) else ""
    return f"{seconds_text(res.cost)}{where}, {one.called(inp.steps)}"


def _of_templates(filename: PathLike) -> LogSummary:
    reader = ConfigurationReader(filename)
    records = believed(reader, str(filename))
    tasks: dict[tuple[str, str], TaskSummary] = {}
    for inp, res in records:
        key = target_key(inp.target)[0], repr(inp.workload)
        if key not in tasks:
            tasks[key] = _of_task(inp)
        tasks[key].add(res)
        if not res.ok and res.error_msg:
            tasks[key].reasons.setdefault(cause(res.error_no), res.error_msg)
    notes = [read_note(line) for _, line in scan_lines(filename) if line is not None and line[:1] == b"#"]
    runs = [note[1] for note in notes if note is not None and note[0] == RUN]
    return LogSummary(str(filename), tasks, runs, reader.complaint() or records.complaint())


def _of_task(inp: MeasureInput) -> TaskSummary:
    """Nothing measured of a task yet; its operations are unknown where its template is."""
    try:
        flops = inp.task.flop
    except TeError:
        flops = None
    return TaskSummary(inp.task.title, names_of(inp.task), target_key(inp.target)[0], flops)


def names_of(task: Task) -> tuple[str, ...]:
    """What a task is called: by its description, if it has one, its template, that with arguments, its workload."""
    return *([task.desc] if task.desc else []), task.name, task.call, key_of(task)


def best_lines(filename: PathLike, workload: str | None) -> list[str]:
    """The best configuration of each task of a log in lines: the task, its seconds, and what its knobs are.

    Only the task called `workload`, where that is given.  Raises JournalError when the log cannot be read.
    """
    found = []
    for inp, res in best_pairs(load_from_file(filename)):
        if workload is None or is_one_of(workload, names_of(inp.task)):
            knobs = ", ".join(f"{name}={value[-1]}" for name, *value in inp.config.values())
            found.append(f"{inp.task.title} for {target_key(inp.target)[0]}: {1e3 * res.cost:.4g} ms  {knobs}")
    return found
