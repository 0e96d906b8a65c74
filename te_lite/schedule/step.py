"""What a kind of step is: everything that anybody wants to know about it, in one class.

    records     its letters, and its fields as JSON                         tag, fields, optional, read, written
    replay      what it refuses, and what it makes of a state               effect
    numbers     the stages and steps that it names, and where it adds one   about, follows, inserts_at, renumbered
    schedules   the primitive that makes it, and the calls as Python text   primitive, python
    bounds      nothing: they follow loops, places and storage of a stage (`state.py`)
    lowering    nothing, or what `effect` leaves in `Stage.asks`

Everybody else goes by the letters of `KINDS`.  A kind of one's own is a frozen dataclass with these methods, most of
which have a default; a line in `KINDS`, or `register` above the class; a test; and a page: at most four files.  Its
module is imported when its letters, or its primitive, are met.

All ids are positions at the moment of the step.  A split length is a positive int, an int64 array with one lane
per candidate program, or None: a hole that is not decided yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, get_type_hints

import numpy as np

from ..computation.tensor import Operation
from ..errors import RecordError, ScheduleError, require
from ..extensions import STEPS, is_installed, module_of
from ..later import loaded

Length = int | np.ndarray | None


class Kind(NamedTuple):
    """Where the class of a kind is, and the primitive that makes it where schedules do not have it by themselves."""

    module: str
    name: str
    primitive: str = ""


KINDS = {
    "AN": Kind("te_lite.schedule.loop_steps", "Annotate"),
    "FU": Kind("te_lite.schedule.loop_steps", "Fuse"),
    "PR": Kind("te_lite.schedule.loop_steps", "Pragma"),
    "RE": Kind("te_lite.schedule.loop_steps", "Reorder"),
    "SP": Kind("te_lite.schedule.loop_steps", "Split"),
    "FSP": Kind("te_lite.schedule.loop_steps", "FollowSplit"),
    "FFSP": Kind("te_lite.schedule.loop_steps", "FollowFusedSplit"),
    "SA": Kind("te_lite.schedule.storage_steps", "StorageAlign"),
    "CA": Kind("te_lite.schedule.place_steps", "ComputeAt"),
    "CI": Kind("te_lite.schedule.place_steps", "ComputeInline"),
    "CR": Kind("te_lite.schedule.place_steps", "ComputeRoot"),
    "CHR": Kind("te_lite.schedule.stage_steps", "CacheRead"),
    "CHW": Kind("te_lite.schedule.stage_steps", "CacheWrite"),
    "RF": Kind("te_lite.schedule.stage_steps", "RFactor"),
    "PRX": Kind("te_lite.schedule.loop_steps", "FreePragma"),
    "SSC": Kind("te_lite.schedule.storage_steps", "SetScope"),
    "STO": Kind("te_lite.schedule.storage_steps", "StorageOrder"),
    **{letters: Kind(*module_of(owner, kind.where), kind.primitive) for letters, (owner, kind) in STEPS.items()},
}
"""All kinds by their letters: those of TVM's records, ours, and those of extensions."""
OF_TVM = frozenset(list(KINDS)[:14])


class Words(Protocol):
    """Python text that is being written: names of tensors and loops, and the calls so far (`python_text.py`).

    `state` is the one after the step, `loops` the names of loops by operation key and uid.
    """

    state: Any
    loops: dict[tuple[object, int], str]

    def fresh(self, base: str) -> str: ...
    def tensor(self, state: Any, k: int) -> str: ...
    def loop(self, state: Any, k: int, position: int) -> str: ...
    def new_loop(self, k: int, uid: int) -> str: ...
    def line(self, text: str) -> None: ...
    def call(self, k: int, text: str, names: str = "") -> None: ...
    def axes(self, op: Operation, source: str) -> None: ...


S = TypeVar("S", bound="Step")


@dataclass(frozen=True, slots=True)
class Step:
    """A step, and what every kind of steps has unless it says otherwise.  States are `Any` here: they hold steps.

    tag        its letters
    about      the fields that name stages, which must be there
    follows    the fields that name earlier steps
    optional   the last field, where it may be missing from its JSON
    """

    tag: ClassVar[str]
    about: ClassVar[tuple[str, ...]] = ("stage",)
    follows: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[str] = ""
    stage: int

    def effect(self, state: Any) -> Any:
        """The state, still without the step, that it makes of `state`; on lanes as well.  Raises ScheduleError."""
        raise NotImplementedError(f"step {self.tag}")

    @classmethod
    def primitive(cls, part: Any, *fields: Any, **named: Any) -> Any:
        """What `part` of a schedule, `s` or `s[C]`, does when the primitive of this kind is called on it."""
        part.schedule.apply(cls(part.id, *fields, **named))

    def python(self, words: Words, before: Any) -> None:
        """Write the calls that make it: if nothing else is said, its primitive, or `step`, with its fields."""
        letters, _, *said = to_json(self)
        name = KINDS[letters].primitive.rpartition(".")[2]
        text = ", ".join([json.dumps(x) for x in (said if name else [letters, *said])])
        words.call(self.stage, f"{name or 'step'}({text})")

    @property
    def lengths(self) -> tuple[Length, ...]:
        """The lengths of a split; other steps have none."""
        return ()

    @property
    def inserts_at(self) -> int | None:
        """The stage that a new one comes right before or after: higher numbers are one more from then on."""
        return None

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages that it names."""
        named = [getattr(self, name) for name in self.about]
        return tuple([k for value in named for k in (value if isinstance(value, tuple) else (value,))])

    def renumbered(self: S, stage: Callable[[int], int], step: Callable[[int], int] | None = None) -> S:
        """The same step where stages, and earlier steps, have other numbers."""
        changed: dict[str, Any] = {name: _mapped(stage, getattr(self, name)) for name in self.about}
        if step is not None:
            changed |= {name: _mapped(step, getattr(self, name)) for name in self.follows}
        return replace(self, **changed)

    def written(self, name: str) -> Any:
        """The JSON of a field."""
        value = getattr(self, name)
        return list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value

    @classmethod
    def read(cls, name: str, value: Any) -> Any:
        """The field whose JSON is `value`.  Raises RecordError."""
        return _READERS[field_types(cls.tag)[name]](value, cls.where(name))

    @classmethod
    def where(cls, name: str) -> str:
        """A field, as refusals name it."""
        return f"step {cls.tag}, field {name}"


def _mapped(number: Callable[[int], int], value: Any) -> Any:
    return tuple(map(number, value)) if isinstance(value, tuple) else number(value)


@lru_cache(maxsize=256)
def field_types(letters: str) -> dict[str, Any]:
    """The fields of a kind, in the order of records, and their types."""
    kind = kind_of(letters)
    return {f.name: get_type_hints(kind)[f.name] for f in fields(kind)}


def integer(value: Any, where: str, minimum: int = 0) -> int:
    """An integer that JSON gives.  Raises RecordError."""
    ok = isinstance(value, int) and not isinstance(value, bool) and minimum <= value < 2**31
    require(ok, RecordError, where, f"an integer of at least {minimum} is needed", got=value)
    return int(value)


def integers(value: Any, where: str, minimum: int = 0) -> tuple[int, ...]:
    """Up to 64 of them."""
    require(isinstance(value, list) and len(value) <= 64, RecordError, where, "a list of integers is needed", got=value)
    return tuple([integer(v, where, minimum) for v in value])


def _flag(value: Any, where: str) -> bool:
    require(value in (0, 1), RecordError, where, "must be 0 or 1", got=value)
    return bool(value)


def _text(value: Any, where: str) -> str:
    require(isinstance(value, str) and len(value) <= 200, RecordError, where, "a short text is needed", got=value)
    return str(value)


_READERS: dict[Any, Callable[[Any, str], Any]] = {int: integer, tuple[int, ...]: integers, bool: _flag, str: _text}


@lru_cache(maxsize=256)
def kind_of(letters: str) -> type[Step]:
    """The class of a kind.  Raises RecordError for letters that nobody has, or whose extension is not installed."""
    require(letters in KINDS, RecordError, f"step {letters!r}", f"unknown tag, known ones are {', '.join(KINDS)}")
    absent = letters in STEPS and not is_installed(STEPS[letters][0])
    require(not absent, RecordError, f"step {letters!r}", f"the extension {STEPS.get(letters, ' ')[0]!r} is needed")
    found: type[Step] = getattr(loaded(KINDS[letters].module), KINDS[letters].name)
    return found


def register(primitive: str = "") -> Callable[[type[S]], type[S]]:
    """A decorator that enters a kind of one's own, with a primitive such as `s[C].double_buffer` if it has one.

    Raises ScheduleError for letters that another kind has.
    """

    def enter(kind: type[S]) -> type[S]:
        own = Kind(kind.__module__, kind.__qualname__, primitive)
        known = KINDS.setdefault(kind.tag, own)
        require(known == own, ScheduleError, f"step {kind.tag}", "other steps have these letters", steps=known.name)
        return kind

    return enter


# ------------------------------------------------------------------------------------------- JSON lists of steps

_FIRST, _BETWEEN, _LAST = '[["', '], ["', "]]"
_LONGEST = 1000
"""Characters of a step that is remembered; few have a tenth of it."""


def to_json(step: Step) -> list[Any]:
    """The JSON list of a step.  Raises ScheduleError for a step that still has holes or lanes."""
    concrete = all(isinstance(x, int) for x in step.lengths)
    require(concrete, ScheduleError, step.tag, "only decided lengths can be recorded", lengths=step.lengths)
    said = [name for name in field_types(step.tag) if name != step.optional or getattr(step, name)]
    return [step.tag, *[step.written(name) for name in said]]


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
    kind = kind_of(data[0])
    names = [*field_types(data[0])]
    ok = len(names) + 1 - bool(kind.optional) <= len(data) <= len(names) + 1
    require(ok, RecordError, data[0], f"the fields are {', '.join(names)}", got=data)
    return kind(**{name: kind.read(name, value) for name, value in zip(names, data[1:], strict=False)})
