"""Measurement records, one JSON object a line, readable by TVM and able to read TVM's.

    {"i": [[workload key, target, [8 hardware numbers], target host, layout option, [input names]], [[], [steps]]],
     "r": [[costs in seconds], error number, seconds in all, time of day], "v": version}

A record of a run on several devices has also `"d"`, the name of the one that ran the program, and a version of our
own; what the devices did by then stands in lines that start with `# devices`, which every reader skips.
Lines of a log share tasks and steps, which are read once: a line is cut as text, {"i": [TASK, [[], STEPS]], "r": REST.
Where TASK and STEPS are JSON values and {"r": REST is a JSON object, the line is the object that has both, so it may
be cut before anybody knows that it is JSON.
A line never runs code and never stops a reader: bad ones are skipped and counted.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from te_lite.errors import RecordError, TeError, require
from te_lite.expr.storage import fragments_of
from te_lite.schedule.step import OF_TVM, Step, steps_from_json, steps_from_text, to_json
from te_lite.schedule.storage_steps import SetScope

from ..core.errors import TaskError
from ..core.target.target import ELEMENTS
from ..core.tasks.measure_values import MeasureErrorNo, MeasureInput, MeasureResult, Prediction
from ..core.tasks.task import HARDWARE_FIELDS, SearchTask, TaskFacts
from ..core.tasks.workloads import key_text
from .files import LineReader, Pair, PathLike
from .journal import append_lines
from .notes import RUN, learn_workload, read_prediction
from .validation import Believed, Judge, is_program, least_of_computation, least_seconds

_BEGIN, _STEPS, _REST = '{"i": [', ", [[], [[", ']]]], "r": '


class Parts(NamedTuple):
    """TASK and STEPS, and what stands from `{"r": ` on, which is an object with the other keys of the record."""

    task: str
    steps: str
    rest: str


def parts_of(line: str) -> Parts | None:
    """The parts of a line; None for one that is written in another way, or has no steps."""
    before, steps_begin, after = line.partition(_STEPS)
    steps, rest_begins, rest = after.partition(_REST)
    if not (before.startswith(_BEGIN) and steps_begin and rest_begins):
        return None
    return Parts(before[len(_BEGIN) :], f"[[{steps}]]", f'{{"r": {rest}')


VERSION = "v0.6"
OWN_VERSION = "ansor-v1"
_VERSIONS = ("v0.2", "v0.3", "v0.4", "v0.5", VERSION, OWN_VERSION)
_LAST_OF_TVM = MeasureErrorNo.UNKNOWN_ERROR
_KEYS = "the keys must be i, r, v, and perhaps d"
_VERSION_LAW = f"the version must be one of {', '.join(_VERSIONS)}"
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
    own = bool(res.device) or res.error_no > _LAST_OF_TVM or any(s.tag not in OF_TVM for s in inp.steps)
    own = own or "-precision=" in inp.task.facts().target
    steps = [to_json(s) for s in inp.steps]
    costs = [seconds_of(cost, "record, costs") for cost in res.costs]
    result = [costs, int(res.error_no), seconds_of(res.all_cost, "record, seconds in all"), int(res.timestamp)]
    device = {"d": res.device[:_MAX_DEVICE]} if res.device else {}
    line = {"i": [inp.task.facts().to_json(), [[], steps]], "r": result, **device, "v": OWN_VERSION if own else VERSION}
    return json.dumps(line, allow_nan=False)


class Tasks:
    """The tasks of a file: one for whatever records say the same of theirs, found by that and by its text."""

    def __init__(self) -> None:
        self._of_facts: dict[TaskFacts, SearchTask] = {}
        self._of_text: dict[str, SearchTask] = {}

    def of_facts(self, facts: TaskFacts) -> SearchTask:
        if facts not in self._of_facts:
            self._of_facts[facts] = SearchTask.from_facts(facts)
        return self._of_facts[facts]

    def of_text(self, text: str) -> SearchTask:
        """Raises RecordError for JSON that is no task, ValueError for text that is no JSON."""
        if text not in self._of_text:
            self._of_text[text] = self.of_facts(_read_task(_STRICT.decode(text)))
        return self._of_text[text]

    def clear(self) -> None:
        """Forget them all: what their keys name has changed."""
        self._of_facts.clear()
        self._of_text.clear()


def load_record_from_string(line: str | bytes, tasks: Tasks | None = None) -> Record:
    """Read one line; its task is that of `tasks`, or added to them.

    Raises RecordError, in one sentence, for whatever is no record.
    """
    tasks = Tasks() if tasks is None else tasks
    try:
        found = _record_of_parts(line.decode() if isinstance(line, bytes) else line, tasks)
    except (ValueError, RecursionError, RecordError):
        found = None
    return record_from_json(parse_line(line), tasks) if found is None else found


def _record_of_parts(line: str, tasks: Tasks) -> Record | None:
    """The record of a line that can be cut; raises one of several errors for one that is no record."""
    parts = parts_of(line)
    if parts is None:
        return None
    result = _read_rest(_STRICT.decode(parts.rest))
    return _input(tasks.of_text(parts.task), steps_from_text(parts.steps)), result


def record_from_json(data: Any, tasks: Tasks | None = None) -> Record:
    """The record of a line's JSON value; otherwise as `load_record_from_string`."""
    require(isinstance(data, dict), RecordError, "record", "a JSON object is needed", type=type(data).__name__)
    require("i" in data, RecordError, "record", _KEYS, keys=sorted(data)[:8])
    result = _read_rest({key: value for key, value in data.items() if key != "i"})
    return _read_input(data["i"], Tasks() if tasks is None else tasks), result


def _read_rest(data: dict[str, Any]) -> MeasureResult:
    """The result, with its device, of what a record has beside its input."""
    ok = set(data) - {"d"} == {"r", "v"}
    require(ok, RecordError, "record", _KEYS, keys=sorted({"i", *data})[:8])
    version = data["v"]
    known = isinstance(version, str) and version in _VERSIONS
    require(known, RecordError, "record", _VERSION_LAW, version=str(version)[:40])
    device = data.get("d", "")
    ok = isinstance(device, str) and len(device) <= _MAX_DEVICE
    require(ok, RecordError, "record, d", "the name of a device is a short text", got=str(device)[:40])
    result = read_result(data["r"])
    return replace(result, device=device) if device else result


def _no_constant(text: str) -> Any:
    raise RecordError(f"record: {text} is no number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    require(len(out) == len(pairs), RecordError, "record", "a key must not occur twice")
    return out


_STRICT = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)


def parse_line(line: str | bytes) -> Any:
    """The JSON value of a line.  Raises RecordError, in one sentence, for text that is no strict JSON."""
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        return _STRICT.decode(text)
    except UnicodeDecodeError as error:
        raise RecordError(f"record: is not UTF-8 text at byte {error.start}") from error
    except RecursionError as error:
        raise RecordError("record: the brackets are nested too deeply") from error
    except ValueError as error:
        raise RecordError(f"record: is not JSON: {error}") from error


def _read_input(data: Any, tasks: Tasks) -> MeasureInput:
    ok = isinstance(data, list) and len(data) == 2 and all(isinstance(x, list) for x in data)
    require(ok, RecordError, "record, i", "a task and a state are needed")
    task, state = data
    ok = len(state) == 2 and state[0] == [] and isinstance(state[1], list)
    require(ok, RecordError, "record, i", "a state is [[], [steps]]")
    return _input(tasks.of_facts(_read_task(task)), steps_from_json(state[1]))


def _input(task: SearchTask, steps: list[Step]) -> MeasureInput:
    """A program as a record may hold it."""
    law = f"at most {_MAX_STEPS} steps are read"
    require(len(steps) <= _MAX_STEPS, RecordError, "record, i", law, got=len(steps))
    stages = sum(s.inserts_at is not None for s in steps) if len(steps) > _MAX_NEW_STAGES else 0
    law = f"at most {_MAX_NEW_STAGES} steps add a stage"
    require(stages <= _MAX_NEW_STAGES, RecordError, "record, i", law, got=stages)
    _check_precision(steps, task.facts().target)
    return MeasureInput(task, steps=steps)


def _check_precision(steps: Sequence[Step], target: str) -> None:
    """Steps may multiply floats in TF32, cut or in parts, where their target asks for just that."""
    if SetScope not in map(type, steps):
        return
    kept = [(s.scope, fragments_of(s.scope)) for s in steps if isinstance(s, SetScope)]
    for precision, element in ELEMENTS.items():
        found = [scope for scope, fragments in kept if fragments is not None and fragments.element == element]
        law = f"products in {element.upper()} are for targets with -precision={precision}"
        require(not found or f"-precision={precision}" in target.split(), RecordError, "record, i", law, scopes=found)


def _read_task(data: Any) -> TaskFacts:
    """A task; older lines stop after the target, or before the input names."""
    where = "record, task"
    ok = isinstance(data, list) and len(data) in (2, 5, 6) and all(isinstance(text, str) for text in data[:2])
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
    require(ok, RecordError, where, "the error number must be an integer from 0 on", error_no=data[1])
    require(data[1] != 0 or min(costs) > 0, RecordError, where, "costs must be positive", costs=costs)
    ok = isinstance(data[3], int | float) and not isinstance(data[3], bool) and abs(data[3]) < 2**63
    require(ok, RecordError, where, "the time of day must be a number", time=data[3])
    return MeasureResult(costs, data[1], "", seconds_of(data[2], where), int(data[3]))


def seconds_of(value: Any, where: str) -> float:
    """A number of seconds that may stand in a record.  Raises RecordError for any other value."""
    number = value.item() if isinstance(value, np.generic) else value
    ok = isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e300 and number >= 0
    require(ok, RecordError, where, "a finite number of seconds, at least 0, is needed", seconds=number)
    return float(number)


# ------------------------------------------------------------------------------------------------- one file


class RecordReader(LineReader[MeasureInput]):
    """The records of a file; bad lines are skipped, counted in `num_bad` and the first of them kept in `bad`.

    So are records of workloads whose registered function gives another computation than the one that they measured.
    """

    def __init__(self, filename: PathLike) -> None:
        super().__init__(filename, self._record, logger)
        self._tasks = Tasks()
        self._runs = 0
        self._prediction: Prediction | None = None
        self._objections: dict[str, str] = {}
        self._skipped: Counter[tuple[str, str]] = Counter()

    def __iter__(self) -> Iterator[Record]:
        """All records.  Raises JournalError when the file cannot be read."""
        self._tasks, self._objections, self._skipped = Tasks(), {}, Counter()
        self._runs, self._prediction = 0, None
        return super().__iter__()

    def _record(self, line: bytes) -> Record:
        prediction, self._prediction = self._prediction, None
        inp, res = load_record_from_string(line, self._tasks)
        inp.prediction = prediction
        return inp, res

    def comment(self, line: bytes) -> None:
        """Learn of the workloads that the log describes, which may be others under the same keys from here on.

        What was predicted of a program comes right before its record.
        """
        self._runs += line.startswith(RUN.encode())
        self._prediction = read_prediction(line, self._runs)
        learned = learn_workload(line)
        if learned is not None:
            self._tasks.clear()
            self._objections[learned[0]] = learned[1]

    def belongs(self, inp: MeasureInput) -> bool:
        """Whether a record measured what its workload is here; it is counted if not."""
        objection = self.objection(inp)
        if objection:
            self._skipped[inp.task.workload_key, objection] += 1
        return not objection

    def objection(self, inp: MeasureInput) -> str:
        """How the computation that a record here measured differs from the registered one; empty if it does not."""
        return self._objections.get(inp.task.workload_key, "")

    def complaint(self) -> str:
        """One sentence on the lines that were skipped; empty when there are none."""
        others = [
            f"{self.filename}: {count} {'record' if count == 1 else 'records'} of {key_text(key)} skipped:"
            f" {objection}; without the function (no --import of it) the log is read as it was written"
            for (key, objection), count in self._skipped.items()
        ]
        return "; ".join([text for text in [super().complaint(), *others] if text])


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
    """The records that are believed (`validation.py`); `name` says in the warning where they come from."""
    return Believed(records, JUDGE, name, logger)


def validated_records(filename: PathLike) -> Believed[MeasureInput]:
    """The records of a file that are believed, in order.  Reading raises JournalError when the file cannot be read."""
    return believed(RecordReader(filename), str(filename))


def save_records(filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records: one write, one fsync.  Raises JournalError when they cannot be stored."""
    append_lines(filename, [dump_record_to_string(i, r) for i, r in zip(inputs, results, strict=True)])


def recorded_key(task: SearchTask) -> str:
    """What figures of a recorded task are filed under (`Target.key`); empty when its target is none that is known."""
    try:
        return task.target.key
    except TeError:
        return ""


def workload_of(inp: MeasureInput) -> tuple[str, str]:
    """What tells workloads apart: the key of the target, and the workload key."""
    return recorded_key(inp.task), inp.task.workload_key
