"""Records of measured configurations, one JSON object a line, as autotvm writes them.

    {"input": [target, template, args, kwargs], "config": {"index": 17, "code_hash": null, "entity": [...]},
     "result": [[costs in seconds], error number, seconds in all, time of day], "version": 0.2, "tvm_version": ...}

A failed configuration has the cost 1e9, and the reason as `"error_msg"`.  A line never runs code and never stops a
reader: bad ones are skipped and counted.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from te_lite.errors import RecordError, TeError, require

from ..core.errors import TaskError
from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureResult
from ..records.files import LineReader, best_of, distill
from ..records.journal import append_lines
from ..records.lines import parse_line, read_result, seconds_of
from ..records.validation import Believed, Judge, least_seconds
from .config import ConfigEntity
from .errors import TemplateError
from .measure import MeasureInput
from .notes import key_of, read_name, workload_line
from .space import ConfigSpace
from .task import Task, Template, Workload

VERSION = 0.2
WRITER = "ansor"
KEYS = {"input", "config", "result", "version", "tvm_version", "error_msg"}
Pair = tuple[MeasureInput, MeasureResult]
PathLike = str | os.PathLike[str]
Source = PathLike | Iterable[Pair] | Sequence[PathLike]
logger = logging.getLogger("autotvm")


# --------------------------------------------------------------------------------------------------- one line


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """The line of a record.  Raises RecordError for costs that no reader would take, and for another protocol."""
    require(protocol == "json", RecordError, "record", "the protocol must be json", got=protocol)
    costs = [seconds_of(c, "record, costs") for c in result.costs]
    facts = [costs, int(result.error_no), seconds_of(result.all_cost, "record, seconds"), int(result.timestamp)]
    line: dict[str, Any] = {
        "input": [inp.target, inp.task.name, inp.task.args, inp.task.kwargs], "config": inp.config.to_json_dict(),
        "result": facts, "version": VERSION, "tvm_version": WRITER,
    }  # fmt: skip
    if result.error_msg:
        line["error_msg"] = result.error_msg
    return json.dumps(line, allow_nan=False)


def decode(row: str | bytes, protocol: str = "json") -> Pair:
    """Read one line.  The task knows its name, arguments and target; its space is looked up when it is asked for.

    Raises RecordError, in one sentence, for whatever is no record.
    """
    require(protocol == "json", RecordError, "record", "the protocol must be json", got=protocol)
    data = parse_line(row)
    ok = isinstance(data, dict) and {"input", "config", "result"} <= set(data) <= KEYS
    require(ok, RecordError, "record", f"an object with the keys {', '.join(sorted(KEYS))} is needed")
    require(_finite([data["input"], data["config"]]), RecordError, "record", "numbers must be finite")
    version = data.get("version")
    require(version == VERSION, RecordError, "record", f"the version must be {VERSION}", got=str(version)[:40])
    result, reason = read_result(data["result"]), data.get("error_msg", "")
    require(isinstance(reason, str), RecordError, "record", "the reason is a text", got=str(reason)[:40])
    inp = _read_input(data["input"], ConfigEntity.from_json_dict(data["config"]))
    return inp, MeasureResult(result.costs, result.error_no, reason, result.all_cost, result.timestamp)


def _finite(data: Any) -> bool:
    """Whether no number in lists and objects is infinite (1e999 in JSON) or NaN."""
    left = [data]
    while left:
        match left.pop():
            case list() as items:
                left += items
            case dict() as items:
                left += items.values()
            case float() as number if not math.isfinite(number):
                return False
    return True


def _read_input(data: Any, config: ConfigEntity) -> MeasureInput:
    ok = isinstance(data, list) and len(data) == 4 and isinstance(data[0], str) and isinstance(data[1], str)
    require(ok, RecordError, "record, input", "target, template, arguments and kwargs are needed")
    target, name, args, kwargs = data
    require(isinstance(args, list) and kwargs == {}, RecordError, "record, input", "kwargs must be empty")
    try:
        return MeasureInput(target, Task(name, args, target), config)
    except (TeError, RecursionError) as error:
        raise RecordError(f"record, input: {error}") from error


# --------------------------------------------------------------------------------------------------- one file


class ConfigurationReader(LineReader[MeasureInput]):
    """The records of a file; their tasks have the names that the log gives them (`notes.py`)."""

    def __init__(self, filename: PathLike) -> None:
        super().__init__(filename, self._named, logger)
        self._names: dict[str, str] = {}

    def comment(self, line: bytes) -> None:
        """Learn the name of a task."""
        if (found := read_name(line)) is not None:
            self._names[found[0]] = found[1]

    def _named(self, row: bytes) -> Pair:
        inp, res = decode(row)
        name = self._names.get(key_of(inp.task), "")
        inp.task.desc = "" if name == inp.task.call else name
        return inp, res


def load_from_file(filename: PathLike) -> Iterator[Pair]:
    """The records of a file that are believed, in order; unreadable lines are skipped, and counted in one warning.

    Raises JournalError when the file cannot be read.
    """
    return iter(believed(ConfigurationReader(filename), str(filename)))


@lru_cache(maxsize=64)
def _defined(template: Template, task: str, args: Workload, target: str) -> tuple[ConfigSpace, float] | None:
    """The space of a template and the operations of one run; None when it does not take these arguments."""
    made = Task(task, args, target)
    try:
        return made.config_space, made.flop
    except (TeError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
        return None  # a template is given what a line says


def recorded_target(text: str) -> Target | None:
    """The target of a record as it is known here: TVM's `ext_dev -device=vta` is `vta`; None for an unknown one."""
    name, *words = text.split() or [""]
    devices = [word.partition("=")[2] for word in words if word.lstrip("-").startswith("device=")]
    kind = "".join(devices[-1:]) if name == "ext_dev" else name
    try:
        return Target.recorded(" ".join([kind, *words]))
    except TaskError:
        return None


def target_text(target: str) -> str:
    """The text of the target as it is known here; of an unknown one, its kind."""
    known = recorded_target(target)
    return target_key(target)[0] if known is None else str(known)


def _known(inp: MeasureInput) -> tuple[ConfigSpace, float] | bool | None:
    """What `_defined` knows of the task of a record; False where the template is not known here."""
    try:
        template = inp.task.func
    except TemplateError:
        return False
    return _defined(template, inp.task.name, inp.task.workload[1:], target_text(inp.target))


def least_of(inp: MeasureInput) -> float:
    """The seconds below which no cost of a record is believed.  Raises TaskError for an unknown target."""
    target, known = Target(target_key(inp.target)[0]), _known(inp)
    return least_seconds(target, known[1] if isinstance(known, tuple) else 0.0)


def in_space(inp: MeasureInput) -> bool | None:
    """Whether the configuration is one of its template's space; None where the template is not known here."""
    match _known(inp):
        case False:
            return None
        case (ConfigSpace() as space, _):
            return space.holds(inp.config)
    return False


JUDGE: Judge[MeasureInput] = Judge(lambda inp: (target_key(inp.target), inp.workload), least_of, in_space)


def believed(pairs: Iterable[Pair], name: str = "the log") -> Believed[MeasureInput]:
    """The records that are believed (`ansor.records.validation`); `name` says in the warning where they come from."""
    return Believed(pairs, JUDGE, name, logger)


def save(filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records: one write, one fsync.  Raises JournalError when they cannot be stored."""
    append_lines(filename, [encode(inp, res) for inp, res in zip(inputs, results, strict=True)])


# --------------------------------------------------------------------------------------------------- the best


def is_of(inp: MeasureInput, task: Task) -> bool:
    """Whether a record is one of a task: of its workload, and measured for its target."""
    return inp.workload == task.workload and is_for(inp, task.target_text)


def is_for(inp: MeasureInput, target: str) -> bool:
    """Whether a record was measured for a target, or for one whose figures count for it."""
    return counts_for(inp.target, target)


def counts_for(recorded: str, target: str) -> bool:
    """Whether what was measured for one target counts for another (`Target.takes`); of unknown ones, if they agree."""
    mine, theirs = recorded_target(target), recorded_target(recorded)
    if mine is None or theirs is None:
        return target_key(recorded) == target_key(target)
    return mine.takes(theirs)


def target_key(target: str) -> tuple[str, str]:
    """What records are filed under: kind, with a processor that is named, and model of a target's text."""
    words, known = target.split(), recorded_target(target)
    options = dict(w.lstrip("-").partition("=")[::2] for w in words[1:])
    if known is None:
        kind = options.get("device", "") if words[:1] == ["ext_dev"] else "".join(words[:1])
        return kind, options.get("model", "")
    return " ".join([w for w in known.key.split() if not w.startswith("-model=")]), options.get("model", "")


def best_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """The error-free record of the least mean cost of each (target kind, model, workload), in order of appearance."""
    return list(best_of(((*target_key(inp.target), inp.workload), (inp, res)) for inp, res in pairs).values())


def _described(inp: MeasureInput, res: MeasureResult) -> str:
    """The line of a record, after the one on its task if that has a name of its own."""
    return f"{workload_line(inp.task)}\n{encode(inp, res)}" if inp.task.desc else encode(inp, res)


def pick_best(in_file: PathLike, out_file: PathLike) -> int:
    """Write the best record of each workload of `in_file`, and of `out_file` if it exists, to `out_file`.

    Gives the number of records written.  Raises JournalError when a file cannot be read or written.
    """
    return distill(in_file, out_file, load_from_file, best_pairs, _described)
