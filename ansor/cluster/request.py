"""What a device's host is asked, read from the header of a message, every part of it checked."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from te_lite.errors import TeError, require
from te_lite.printing.dag_json import dag_from_json

from ..core.errors import MeasureError
from ..core.target.hardware import HardwareParams
from ..core.tasks.measure_values import RunOptions
from ..core.tasks.task import SearchTask
from .message import Files

T = TypeVar("T", bool, int, float, str, list[Any], dict[str, Any])
RETRIES = 1
"""How often a host runs a program again whose worker died; clients do not say."""
NO_HARDWARE = HardwareParams(1, 1, 1, 1, 1, 1, 1, 1)
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, EOFError, MemoryError)


@dataclass(frozen=True)
class SentProgram:
    """What is said of a program whose files are in the message: as in `BuildResult`."""

    packed: tuple[Any, ...]
    seconds: float


@dataclass(frozen=True)
class MeasureRequest:
    """Programs of the task with a digest, to be run (the first one) or compared (all of them).

    `task_data` is the task's computation, for a host that does not know it.
    """

    op: str
    task: str
    options: RunOptions
    programs: tuple[SentProgram, ...]
    task_data: dict[str, Any] | None


def part(facts: Any, name: str, kind: type[T]) -> T:
    """`facts[name]`, which must be of a type; an int is a float as well, and a bool is no int.  Raises MeasureError."""
    there = isinstance(facts, Mapping) and name in facts
    require(there, MeasureError, "message", f"an object with {name!r} is needed", got=facts)
    value = facts[name]
    wanted = (int, float) if kind is float else (kind,)
    fits = type(value) in wanted and (kind is not float or math.isfinite(value))
    require(fits, MeasureError, "message", f"{name!r} must be of type {kind.__name__}", got=value)
    return kind(value)


def measure_request(header: Mapping[str, Any]) -> MeasureRequest:
    """The request in the header of a message to `DeviceHost.measure`.  Raises MeasureError."""
    op = part(header, "op", str)
    require(op in ("run", "compare"), MeasureError, "message", "a host can run or compare", op=op)
    sent = part(header, "programs", list)
    require(sent, MeasureError, "message", "at least one program is needed")
    programs = tuple([SentProgram(tuple(part(p, "packed", list)), part(p, "seconds", float)) for p in sent])
    data = part(header, "task_data", dict) if "task_data" in header else None
    return MeasureRequest(op, part(header, "task", str), _options(part(header, "options", dict)), programs, data)


def _options(facts: Mapping[str, Any]) -> RunOptions:
    names = [f.name for f in fields(RunOptions) if f.name != "retries"]
    require(set(facts) == set(names), MeasureError, "message", f"the options are {', '.join(names)}", got=facts)
    return RunOptions(
        part(facts, "number", int), part(facts, "repeat", int), part(facts, "min_repeat_ms", int),
        part(facts, "check_correctness", bool), part(facts, "cooldown_interval", float), part(facts, "flush", bool),
        part(facts, "timeout", float), part(facts, "prepare_timeout", float), RETRIES,
    )  # fmt: skip


def sent_task(kind: str, data: Mapping[str, Any], files: Files) -> SearchTask:
    """The task of a message, for a host whose programs are of target `kind`.  Raises MeasureError."""
    law = f"it runs programs of target {kind!r}"
    require(part(data, "kind", str) == kind, MeasureError, "device", law, task=data["kind"])
    target, layout, name = part(data, "target", str), part(data, "layout", int), part(data, "name", str)
    with _reading("the computation of the task"):
        dag = dag_from_json(part(data, "dag", dict))
    with _reading("an input of the task"):
        inputs = {
            name.removeprefix("input/"): np.load(io.BytesIO(text), allow_pickle=False)
            for name, text in files.items()
            if name.startswith("input/")
        }
    with _reading("the task"):
        return SearchTask(
            compute_dag=dag, target=target, hardware_params=NO_HARDWARE, task_inputs=inputs,
            layout_rewrite_option=layout, desc=name,
        )  # fmt: skip


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Data that readers stumble over is refused."""
    try:
        yield
    except TeError:
        raise
    except _UNREADABLE as error:
        raise MeasureError(f"message: {what} cannot be read ({type(error).__name__})") from error
