"""Measurement records, one JSON object a line, readable by TVM and able to read TVM's (spec autoscheduler 3.5).

    {"i": [[workload key, target, [8 hardware numbers], target host, layout option, [input names]], [[], [steps]]],
     "r": [[costs in seconds], error number, seconds in all, time of day], "v": version}

A line never runs code and never stops a reader: bad ones are skipped and counted.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import RecordError, TeError, require
from te_lite.step import DoubleBuffer, FreePragma, SetScope, from_json, to_json

from .journal import append_lines, ensure_writable, replace_file, scan_lines
from .measure.api import MeasureErrorNo, MeasureInput, MeasureResult
from .target import Target
from .task import HARDWARE_FIELDS, SearchTask, TaskFacts
from .workloads import calc_workload_dis_factor, decode_workload_key

VERSION = "v0.6"
OWN_VERSION = "ansor-v1"
_VERSIONS = ("v0.2", "v0.3", "v0.4", "v0.5", VERSION, OWN_VERSION)
_OWN_STEPS = (FreePragma, DoubleBuffer, SetScope)
_MAX_STEPS = 10_000
_MAX_COSTS = 10_000
logger = logging.getLogger("ansor")

Record = tuple[MeasureInput, MeasureResult]
PathLike = str | os.PathLike[str]


# ------------------------------------------------------------------------------------------------- one line


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """The line of a record.  Lines with steps that TVM does not know carry a version of our own.

    Raises RecordError for a cost, or seconds in all, that no reader would take: infinite, NaN, negative, no number.
    """
    own = any(isinstance(s, _OWN_STEPS) for s in inp.steps)
    steps = [to_json(s) for s in inp.steps]
    costs = [seconds_of(cost, "record, costs") for cost in res.costs]
    result = [costs, int(res.error_no), seconds_of(res.all_cost, "record, seconds in all"), int(res.timestamp)]
    line = {"i": [inp.task.facts().to_json(), [[], steps]], "r": result, "v": OWN_VERSION if own else VERSION}
    return json.dumps(line, allow_nan=False)


def load_record_from_string(line: str | bytes) -> Record:
    """Read one line.  Raises RecordError, in one sentence, for whatever is no record."""
    data = parse_line(line)
    require(isinstance(data, dict), RecordError, "record", "a JSON object is needed", type=type(data).__name__)
    require(set(data) == {"i", "r", "v"}, RecordError, "record", "the keys must be i, r, v", keys=sorted(data)[:8])
    version = data["v"]
    known = isinstance(version, str) and version in _VERSIONS
    law = f"the version must be one of {', '.join(_VERSIONS)}"
    require(known, RecordError, "record", law, version=str(version)[:40])
    return _read_input(data["i"]), read_result(data["r"])


def _no_constant(text: str) -> Any:
    raise RecordError(f"record: {text} is no number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    require(len(out) == len(pairs), RecordError, "record", "a key must not occur twice")
    return out


def parse_line(line: str | bytes) -> Any:
    """The JSON value of a line.  Raises RecordError, in one sentence, for text that is no strict JSON."""
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise RecordError(f"record: is not UTF-8 text at byte {error.start}") from error
    except RecursionError as error:
        raise RecordError("record: the brackets are nested too deeply") from error
    except ValueError as error:
        raise RecordError(f"record: is not JSON: {error}") from error


def _read_input(data: Any) -> MeasureInput:
    ok = isinstance(data, list) and len(data) == 2 and all(isinstance(x, list) for x in data)
    require(ok, RecordError, "record, i", "a task and a state are needed")
    task, state = data
    ok = len(state) == 2 and state[0] == [] and isinstance(state[1], list) and len(state[1]) <= _MAX_STEPS
    require(ok, RecordError, "record, i", "a state is [[], [steps]]")
    steps = [from_json(s) for s in state[1]]
    return MeasureInput(SearchTask.from_facts(_read_task(task)), steps=steps)


def _read_task(data: list[Any]) -> TaskFacts:
    """A task; older lines stop after the target, or before the input names."""
    where = "record, task"
    ok = len(data) in (2, 5, 6) and isinstance(data[0], str) and isinstance(data[1], str)
    require(ok, RecordError, where, "workload key, target, hardware, host, layout and input names are needed")
    hardware, host, layout, names = data[2:] + [None, "", 0, []][len(data) - 2 :]
    if hardware is not None:
        ok = isinstance(hardware, list) and len(hardware) == len(HARDWARE_FIELDS) and all(map(_is_int, hardware))
        require(ok, RecordError, where, f"{len(HARDWARE_FIELDS)} hardware numbers are needed")
    ok = isinstance(host, str) and _is_int(layout) and 0 <= layout <= 2
    require(ok, RecordError, where, "a target host and a layout option (0, 1, 2) are needed")
    ok = isinstance(names, list) and len(names) <= 64 and all(isinstance(n, str) for n in names)
    require(ok, RecordError, where, "the input names are a list of texts")
    return TaskFacts(data[0], data[1], hardware and tuple(hardware), host, layout, tuple(names))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def read_result(data: Any) -> MeasureResult:
    """`[costs, error number, seconds in all, time of day]`.  Raises RecordError for anything else."""
    where = "record, r"
    ok = isinstance(data, list) and len(data) == 4 and isinstance(data[0], list) and 0 < len(data[0]) <= _MAX_COSTS
    require(ok, RecordError, where, "costs, error number, seconds and time of day are needed")
    costs = tuple([seconds_of(c, where) for c in data[0]])
    ok = _is_int(data[1]) and 0 <= data[1] <= 1000
    require(ok, RecordError, where, "the error number must be an integer from 0 on", error_no=str(data[1])[:40])
    require(data[1] != 0 or min(costs) > 0, RecordError, where, "costs must be positive", least=min(costs))
    ok = isinstance(data[3], int | float) and not isinstance(data[3], bool) and abs(data[3]) < 2**63
    require(ok, RecordError, where, "the time of day must be a number", time=str(data[3])[:40])
    return MeasureResult(costs, data[1], "", seconds_of(data[2], where), int(data[3]))


def seconds_of(value: Any, where: str) -> float:
    """A number of seconds that may stand in a record.  Raises RecordError for any other value."""
    number = value.item() if isinstance(value, np.generic) else value
    ok = isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e300 and number >= 0
    law = "a finite number of seconds, at least 0, is needed"
    require(ok, RecordError, where, law, seconds=str(number)[:40])
    return float(number)


# ------------------------------------------------------------------------------------------------- one file


class RecordReader:
    """The records of a file; bad lines are skipped, counted in `num_bad` and the first of them kept in `bad`."""

    KEPT = 20

    def __init__(self, filename: PathLike) -> None:
        self.filename = Path(filename)
        self.num_bad = 0
        self.bad: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[Record]:
        """All records.  Raises JournalError when the file cannot be read."""
        self.num_bad, self.bad = 0, []
        for number, line in scan_lines(self.filename):
            if line is not None and (line[:1] in (b"#", b" ") or not line):
                continue
            try:
                require(line is not None, RecordError, "record", "the line is too long")
                record = load_record_from_string(line or b"")
            except RecordError as error:
                self.num_bad += 1
                self.bad = (self.bad + [(number, str(error))])[: self.KEPT]
                continue
            yield record
        if self.num_bad:
            logger.warning("%s", self.complaint())

    def complaint(self) -> str:
        """One sentence on the bad lines; empty when there are none."""
        if not self.num_bad:
            return ""
        lines = "1 unreadable line was" if self.num_bad == 1 else f"{self.num_bad} unreadable lines were"
        return f"{self.filename}: {lines} skipped; line {self.bad[0][0]}: {self.bad[0][1]}"

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """`(inputs, results)` of at most `max_lines` records after the first `skip_lines`."""
        stop = None if max_lines is None else skip_lines + max_lines
        pairs = list(islice(self, skip_lines, stop))
        return [inp for inp, _ in pairs], [res for _, res in pairs]


def load_records(filename: PathLike) -> Iterator[Record]:
    """The `(input, result)` pairs of a file, in order."""
    return iter(RecordReader(filename))


def save_records(filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records: one write, one fsync.  Raises JournalError when they cannot be stored."""
    append_lines(filename, [dump_record_to_string(i, r) for i, r in zip(inputs, results, strict=True)])


class RecordToFile:
    """A measure callback that appends every result to a file; missing directories are made."""

    def __init__(self, filename: PathLike) -> None:
        self.filename = Path(filename)
        ensure_writable(self.filename)

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        save_records(self.filename, inputs, results)


# ------------------------------------------------------------------------------------------------- the best


def load_best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """The error-free record of the least mean cost, or `(None, None)`.

    `target` compares the kind only.  With `include_compatible` records of smaller, dividing shapes count too, their
    cost multiplied by the ratio of the sizes.
    """
    kind = None if target is None else Target.of(target).kind.name
    best: tuple[float, Record] | None = None
    for inp, res in load_records(filename):
        if not res.ok or (kind is not None and target_kind(inp.task) != kind):
            continue
        factor = 1.0 if workload_key is None else _distance(workload_key, inp.task.workload_key)
        if factor != 1.0 and not (include_compatible and math.isfinite(factor)):
            continue
        if best is None or res.cost * factor < best[0]:
            best = (res.cost * factor, (inp, res))
    return (None, None) if best is None else best[1]


def _distance(query: str, key: str) -> float:
    if query == key:
        return 1.0
    (name, args), (other, other_args) = decode_workload_key(query), decode_workload_key(key)
    if args is None or other_args is None:
        return math.inf
    return calc_workload_dis_factor((args, name), (other_args, other))


def target_kind(task: SearchTask) -> str:
    """The kind of a recorded task's target; empty when its text names none that is known."""
    try:
        return task.target.kind.name
    except TeError:
        return ""


def best_records(pairs: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The best error-free record of each (target kind, workload key), in order of appearance."""
    best: dict[tuple[str, str], Record] = {}
    for inp, res in pairs:
        key = (target_kind(inp.task), inp.task.workload_key)
        if res.error_no == MeasureErrorNo.NO_ERROR and (key not in best or res.cost < best[key][1].cost):
            best[key] = (inp, res)
    return best


def distill_record_file(in_file: PathLike, out_file: PathLike) -> int:
    """Write the best record of each (target, workload) of `in_file`, and of `out_file` if it exists, to `out_file`.

    Gives the number of records written.  Raises JournalError when a file cannot be read or written.
    """
    pairs = list(load_records(in_file))
    if Path(out_file).exists() and not (Path(in_file).exists() and os.path.samefile(in_file, out_file)):
        pairs += list(load_records(out_file))
    best = best_records(pairs)
    replace_file(out_file, [dump_record_to_string(inp, res) for inp, res in best.values()])
    return len(best)
