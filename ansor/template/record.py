"""Records of measured configurations, one JSON object a line, as autotvm writes them (spec vta 14.4).

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
from itertools import chain
from pathlib import Path
from typing import Any

from ansor.errors import TaskError
from ansor.journal import append_lines, replace_file, scan_lines
from ansor.measure.api import MeasureResult
from ansor.records import parse_line, read_result, seconds_of
from ansor.target import Target
from te_lite.errors import RecordError, TeError, require

from .config import ConfigEntity
from .measure import MeasureInput
from .task import Task

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


def load_from_file(filename: PathLike) -> Iterator[Pair]:
    """The records of a file, in order; unreadable lines are skipped, and counted in one warning.

    Raises JournalError when the file cannot be read.
    """
    bad, first = 0, ""
    for number, line in scan_lines(filename):
        if line is not None and (not line or line[:1] in (b"#", b" ")):
            continue
        try:
            require(line is not None, RecordError, "record", "the line is too long")
            pair = decode(line or b"")
        except RecordError as error:
            bad, first = bad + 1, first or f"line {number}: {error}"
            continue
        yield pair
    if bad:
        lines = "1 unreadable line was" if bad == 1 else f"{bad} unreadable lines were"
        logger.warning("%s: %s skipped; %s", filename, lines, first)


def save(filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records: one write, one fsync.  Raises JournalError when they cannot be stored."""
    append_lines(filename, [encode(inp, res) for inp, res in zip(inputs, results, strict=True)])


def pairs_of(records: Source) -> Iterable[Pair]:
    """The pairs of a file, of several files, or as they are given."""
    if isinstance(records, str | os.PathLike):
        return load_from_file(records)
    items: list[Any] = list(records)
    return chain.from_iterable(load_from_file(x) if isinstance(x, str | os.PathLike) else [x] for x in items)


# --------------------------------------------------------------------------------------------------- the best


def target_key(target: str) -> tuple[str, str]:
    """Kind and model of a target's text; TVM's `ext_dev -device=vta` is of kind `vta`."""
    words = target.split()
    options = dict(w.lstrip("-").partition("=")[::2] for w in words[1:])
    if words[:1] == ["ext_dev"]:
        return options.get("device", ""), options.get("model", "")
    try:
        return Target(target).kind.name, options.get("model", "")
    except TaskError:
        return (words[0] if words else ""), options.get("model", "")


def best_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """The error-free record of the least mean cost of each (target kind, model, workload), in order of appearance."""
    best: dict[tuple[Any, ...], Pair] = {}
    for inp, res in pairs:
        key = (*target_key(inp.target), inp.workload)
        if res.ok and (key not in best or res.cost < best[key][1].cost):
            best[key] = (inp, res)
    return list(best.values())


def pick_best(in_file: PathLike, out_file: PathLike) -> int:
    """Write the best record of each workload of `in_file`, and of `out_file` if it exists, to `out_file`.

    Gives the number of records written.  Raises JournalError when a file cannot be read or written.
    """
    pairs = list(load_from_file(in_file))
    if Path(out_file).exists() and not (Path(in_file).exists() and os.path.samefile(in_file, out_file)):
        pairs += list(load_from_file(out_file))
    best = best_pairs(pairs)
    replace_file(out_file, [encode(inp, res) for inp, res in best])
    return len(best)
