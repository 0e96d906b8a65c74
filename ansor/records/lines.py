"""Measurement records, one JSON object a line, readable by TVM and able to read TVM's.

    {"i": [[workload key, target, [8 hardware numbers], target host, layout option, [input names]], [[], [steps]]],
     "r": [[costs in seconds], error number, seconds in all, time of day], "v": version}

A record of a run on several devices has also `"d"`, the name of the one that ran the program, and a version of our
own; what the devices did by then stands in lines that start with `# devices`, which every reader skips.
A line never runs code and never stops a reader: bad ones are skipped and counted.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import RecordError, TeError, require
from te_lite.fragment_storage import is_tf32
from te_lite.step import (
    CacheRead,
    CacheWrite,
    DoubleBuffer,
    FreePragma,
    JoinReductions,
    Pipeline,
    RFactor,
    SetScope,
    StorageOrder,
    Swizzled,
    from_json,
    to_json,
)

from ..core.errors import TaskError
from ..core.measure_values import DeviceUse, MeasureErrorNo, MeasureInput, MeasureResult
from ..core.target import TF32, Target
from ..core.task import HARDWARE_FIELDS, SearchTask, TaskFacts
from ..core.workloads import calc_workload_dis_factor, decode_workload_key
from .belief import Believed, Judge, is_program, least_of_computation, least_seconds
from .files import LineReader, Pair, PathLike, best_of, distill
from .journal import append_lines, ensure_writable, scan_lines
from .notes import learn_workload, run_line, workload_line

VERSION = "v0.6"
OWN_VERSION = "ansor-v1"
_VERSIONS = ("v0.2", "v0.3", "v0.4", "v0.5", VERSION, OWN_VERSION)
_OWN_STEPS = (FreePragma, DoubleBuffer, Pipeline, SetScope, JoinReductions, StorageOrder, Swizzled)
_LAST_OF_TVM = MeasureErrorNo.UNKNOWN_ERROR
_MAX_STEPS = 2_000
_MAX_NEW_STAGES = 256
_MAX_COSTS = 10_000
_MAX_DEVICE = 200
logger = logging.getLogger("ansor")

Record = Pair[MeasureInput]


# ------------------------------------------------------------------------------------------------- one line


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """The line of a record.  Lines with steps, keys, error numbers or precisions that TVM lacks have our own version.

    Raises RecordError for a cost, or seconds in all, that no reader would take: infinite, NaN, negative, no number.
    """
    own = bool(res.device) or res.error_no > _LAST_OF_TVM or any(isinstance(s, _OWN_STEPS) for s in inp.steps)
    own = own or "-precision=" in inp.task.facts().target
    steps = [to_json(s) for s in inp.steps]
    costs = [seconds_of(cost, "record, costs") for cost in res.costs]
    result = [costs, int(res.error_no), seconds_of(res.all_cost, "record, seconds in all"), int(res.timestamp)]
    device = {"d": res.device[:_MAX_DEVICE]} if res.device else {}
    line = {"i": [inp.task.facts().to_json(), [[], steps]], "r": result, **device, "v": OWN_VERSION if own else VERSION}
    return json.dumps(line, allow_nan=False)


def load_record_from_string(line: str | bytes) -> Record:
    """Read one line.  Raises RecordError, in one sentence, for whatever is no record."""
    data = parse_line(line)
    require(isinstance(data, dict), RecordError, "record", "a JSON object is needed", type=type(data).__name__)
    ok = set(data) - {"d"} == {"i", "r", "v"}
    require(ok, RecordError, "record", "the keys must be i, r, v, and perhaps d", keys=sorted(data)[:8])
    version = data["v"]
    known = isinstance(version, str) and version in _VERSIONS
    law = f"the version must be one of {', '.join(_VERSIONS)}"
    require(known, RecordError, "record", law, version=str(version)[:40])
    device = data.get("d", "")
    ok = isinstance(device, str) and len(device) <= _MAX_DEVICE
    require(ok, RecordError, "record, d", "the name of a device is a short text", got=str(device)[:40])
    return _read_input(data["i"]), replace(read_result(data["r"]), device=device)


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
    ok = len(state) == 2 and state[0] == [] and isinstance(state[1], list)
    require(ok, RecordError, "record, i", "a state is [[], [steps]]")
    require(
        len(state[1]) <= _MAX_STEPS, RecordError, "record, i", f"at most {_MAX_STEPS} steps are read", got=len(state[1])
    )
    steps = [from_json(s) for s in state[1]]
    stages = sum(isinstance(s, CacheRead | CacheWrite | RFactor | JoinReductions) for s in steps)
    require(
        stages <= _MAX_NEW_STAGES, RecordError, "record, i", f"at most {_MAX_NEW_STAGES} steps add a stage", got=stages
    )
    facts = _read_task(task)
    cut = [s.scope for s in steps if isinstance(s, SetScope) and is_tf32(s.scope)]
    law = f"products in TF32 are for targets with -precision={TF32}"
    require(not cut or f"-precision={TF32}" in facts.target.split(), RecordError, "record, i", law, scopes=cut)
    return MeasureInput(SearchTask.from_facts(facts), steps=steps)


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


class RecordReader(LineReader[MeasureInput]):
    """The records of a file; bad lines are skipped, counted in `num_bad` and the first of them kept in `bad`."""

    def __init__(self, filename: PathLike) -> None:
        super().__init__(filename, load_record_from_string, logger)

    def comment(self, line: bytes) -> None:
        """Learn of the workloads that the log describes."""
        learn_workload(line)


def load_records(filename: PathLike) -> Iterator[Record]:
    """The `(input, result)` pairs of a file, in order, as they are written, believed or not."""
    return iter(RecordReader(filename))


def least_of(inp: MeasureInput) -> float:
    """The seconds below which no cost of a record is believed.  Raises TeError for an unknown target."""
    target = inp.task.target
    try:
        return least_of_computation(target, inp.task.compute_dag)
    except TaskError:
        return least_seconds(target)


def has_program(inp: MeasureInput) -> bool | None:
    """Whether a record's steps make a program of its workload; None for a workload that is not known here."""
    try:
        dag = inp.task.compute_dag
    except TaskError:
        return None
    return is_program(dag, inp.steps)


JUDGE: Judge[MeasureInput] = Judge(lambda inp: workload_of(inp), least_of, has_program)


def believed(records: Iterable[Record], name: str = "the log") -> Believed[MeasureInput]:
    """The records that are believed (`belief.py`); `name` says in the warning where they come from."""
    return Believed(records, JUDGE, name, logger)


def believed_records(filename: PathLike) -> Believed[MeasureInput]:
    """The records of a file that are believed, in order.  Reading raises JournalError when the file cannot be read."""
    return believed(RecordReader(filename), str(filename))


def _lines_of(log: Path) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a log; none of what is no file, such as a device."""
    return scan_lines(log) if log.is_file() else iter(())


def save_records(filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records: one write, one fsync.  Raises JournalError when they cannot be stored."""
    append_lines(filename, [dump_record_to_string(i, r) for i, r in zip(inputs, results, strict=True)])


class RecordToFile:
    """A measure callback that appends every result to a file; missing directories are made.

    It also writes comment lines, which readers of records skip, on the run and on each workload (`notes.py`).
    """

    def __init__(self, filename: PathLike) -> None:
        self.filename = Path(filename)
        ensure_writable(self.filename)
        self._described: set[str] | None = None

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = [dump_record_to_string(i, r) for i, r in zip(inputs, results, strict=True)]
        append_lines(self.filename, [*self._notes(policy, inputs), *lines])

    def _notes(self, policy: Any, inputs: Sequence[MeasureInput]) -> list[str]:
        """The lines to write before records: on the run once, on each workload that the log does not describe yet."""
        notes = []
        if self._described is None:
            self._described = {key for _, line in _lines_of(self.filename) if (key := learn_workload(line or b""))}
            notes.append(run_line(policy))
        for task in {inp.task.workload_key: inp.task for inp in inputs}.values():
            if task.workload_key not in self._described:
                self._described.add(task.workload_key)
                notes += [line for line in [workload_line(task)] if line is not None]
        return notes

    def usage(self, uses: Sequence[DeviceUse]) -> None:
        """Append a comment line on what each device did so far; readers skip it."""
        append_lines(self.filename, [f"# devices {json.dumps([use.to_json() for use in uses])}"])


# ------------------------------------------------------------------------------------------------- the best


def load_best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
    fits: Callable[[MeasureInput], bool] | None = None,
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """The error-free record of the least mean cost that is believed, and that `fits` where this is given.

    `(None, None)` when there is none.  Of `target` kind and precision are compared.  With `include_compatible` records
    of smaller, dividing shapes count too, their cost multiplied by the ratio of the sizes.
    """
    results = None if target is None else Target.of(target).results
    best: tuple[float, Record] | None = None
    for inp, res in believed(best_first(RecordReader(filename)), str(filename)):
        if not res.ok or (results is not None and target_results(inp.task) != results):
            continue
        factor = 1.0 if workload_key is None else _distance(workload_key, inp.task.workload_key)
        if factor != 1.0 and not (include_compatible and math.isfinite(factor)):
            continue
        if (best is None or res.cost * factor < best[0]) and (fits is None or fits(inp)):
            best = (res.cost * factor, (inp, res))
    return (None, None) if best is None else best[1]


def _distance(query: str, key: str) -> float:
    if query == key:
        return 1.0
    (name, args), (other, other_args) = decode_workload_key(query), decode_workload_key(key)
    if args is None or other_args is None:
        return math.inf
    return calc_workload_dis_factor((args, name), (other_args, other))


def target_results(task: SearchTask) -> str:
    """Which results a recorded task's are (`Target.results`); empty when its target is none that is known."""
    try:
        return task.target.results
    except TeError:
        return ""


def workload_of(inp: MeasureInput) -> tuple[str, str]:
    """What tells workloads apart: target kind, with a precision, and workload key."""
    return target_results(inp.task), inp.task.workload_key


def best_first(pairs: Iterable[Record]) -> list[Record]:
    """The records by their cost, failures last: so that of each workload only the best is asked whether it replays."""
    return sorted(pairs, key=lambda pair: pair[1].cost if pair[1].ok else math.inf)


def best_records(pairs: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The best error-free record of each (target kind, workload key), in order of appearance.

    `pairs` are taken as they are: give it those that are believed.
    """
    return best_of((workload_of(inp), (inp, res)) for inp, res in pairs)


def distill_record_file(in_file: PathLike, out_file: PathLike) -> int:
    """Write the best record of each (target, workload) of `in_file`, and of `out_file` if it exists, to `out_file`.

    Only records that are believed are written.  Gives the number of records written; without any, no file is.
    Raises JournalError when a file cannot be read or written.
    """
    return distill(in_file, out_file, believed_records, lambda pairs: best_records(pairs).values(), _described)


def _described(inp: MeasureInput, res: MeasureResult) -> str:
    """The line of a record, after the one on its workload."""
    note = workload_line(inp.task)
    return dump_record_to_string(inp, res) if note is None else f"{note}\n{dump_record_to_string(inp, res)}"
