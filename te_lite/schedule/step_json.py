"""Steps as JSON lists, in the letters and the field order of TVM's records."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any

from ..errors import RecordError, ScheduleError, require
from ..tensor_core.fragment_storage import ANY_SCOPE, SCOPES, is_scope
from .step import ANNOTATIONS, STEP_KINDS, Step

_FIRST, _BETWEEN, _LAST = '[["', '], ["', "]]"
_LONGEST = 1000
"""Characters of a step that is remembered; few have a tenth of it."""


def to_json(step: Step) -> list[Any]:
    """The JSON list of a step.  Raises ScheduleError for a step that still has holes or lanes."""
    concrete = all(isinstance(x, int) for x in step.lengths)
    require(concrete, ScheduleError, step.tag, "only decided lengths can be recorded", lengths=step.lengths)
    said = [f.name for f in fields(step) if (f.name, getattr(step, f.name)) != ("tile", ())]
    return [step.tag, *[_as_json(name, getattr(step, name)) for name in said]]


def _as_json(name: str, value: Any) -> Any:
    match name:
        case "annotation":
            return ANNOTATIONS.index(value)
        case "inner_to_outer" | "factor":
            return int(value)
    return list(value) if isinstance(value, tuple) else value


def _integer(value: Any, where: str, minimum: int = 0) -> int:
    ok = isinstance(value, int) and not isinstance(value, bool) and minimum <= value < 2**31
    require(ok, RecordError, where, f"an integer of at least {minimum} is needed", got=value)
    return int(value)


def _integers(value: Any, where: str, minimum: int = 0) -> tuple[int, ...]:
    require(isinstance(value, list) and len(value) <= 64, RecordError, where, "a list of integers is needed", got=value)
    return tuple([_integer(v, where, minimum) for v in value])


def from_json(data: Any) -> Step:
    """Read one step.  Raises RecordError with the offending value when it is not one."""
    return steps_from_json([data])[0]


def steps_from_json(data: list[Any]) -> list[Step]:
    """Read several steps.  Raises RecordError as `from_json` does."""
    try:
        return steps_from_text(json.dumps(data))
    except RecursionError as error:
        raise RecordError(f"step: {error}") from error
    except (TypeError, ValueError):
        return [*map(_step_of, data)]


def steps_from_text(text: str) -> list[Step]:
    """Read the text of a JSON list of steps.  Raises RecordError as `from_json`, ValueError for what is no JSON."""
    try:
        return _steps_between(text) or [*map(_step_of, json.loads(text))]
    except RecursionError as error:
        raise RecordError(f"step: {error}") from error


def _steps_between(text: str) -> list[Step] | None:
    """The steps of a text that is cut between them; None where a piece is no JSON, or long.

    Where `], ["` stands in a string, the piece before it has a string without an end.
    """
    pieces = text[len(_FIRST) : -len(_LAST)].split(_BETWEEN)
    if not (text.startswith(_FIRST) and text.endswith(_LAST) and max(map(len, pieces)) <= _LONGEST):
        return None
    try:
        return [*map(_known, pieces)]
    except ValueError:
        return None


@lru_cache(maxsize=1 << 15)
def _known(piece: str) -> Step:
    """Logs say the same few thousand steps again and again."""
    return _step_of(json.loads(f'["{piece}]'))


def _step_of(data: Any) -> Step:
    ok = isinstance(data, list) and len(data) >= 2 and isinstance(data[0], str)
    require(ok, RecordError, "step", "a list that starts with a tag is needed", got=data)
    law = f"unknown tag, known ones are {', '.join(STEP_KINDS)}"
    require(data[0] in STEP_KINDS, RecordError, f"step {data[0]!r}", law)
    kind = STEP_KINDS[data[0]]
    names = [f.name for f in fields(kind)]
    ok = len(names) + 1 - ("tile" in names) <= len(data) <= len(names) + 1
    require(ok, RecordError, data[0], f"the fields are {', '.join(names)}", got=data)
    return kind(**{name: _field(kind.tag, name, value) for name, value in zip(names, data[1:], strict=False)})


def _field(tag: str, name: str, value: Any) -> Any:
    where = f"step {tag}, field {name}"
    match name:
        case "annotation":
            number = _integer(value, where)
            require(0 < number < len(ANNOTATIONS), RecordError, where, "unknown annotation", got=number)
            return ANNOTATIONS[number]
        case "lengths" | "iters" | "order" | "sources" | "readers" | "tile":
            return _integers(value, where, minimum=int(name == "lengths"))
        case "inner_to_outer" | "factor" if tag != "SA":
            require(value in (0, 1), RecordError, where, "must be 0 or 1", got=value)
            return bool(value)
        case "scope":
            ok = isinstance(value, str) and (is_scope(value) if tag == "SSC" else value in SCOPES)
            law = ANY_SCOPE if tag == "SSC" else f"one of {', '.join(SCOPES)}"
            require(ok, RecordError, where, f"must be {law}", got=value)
            return value
        case "text":
            ok = isinstance(value, str) and len(value) <= 200
            require(ok, RecordError, where, "a short text is needed", got=value)
            return value
        case "extent":
            return 0 if value is None else _integer(value, where)
        case _:
            return _integer(value, where)
