"""Steps on how a stage is stored: the strides of its rows, the order of its axes, and the memory it is in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..computation.derive import in_scope
from ..errors import RecordError, ScheduleError, require
from ..expr.storage import ANY_SCOPE, SCOPES, is_scope, storage_class
from ..extensions import installed_part, needed_for
from .loop_steps import loop_at
from .state import State
from .step import Step, Words

SCOPE_LAW = f"the scope must be one of {', '.join(SCOPES)}"


@dataclass(frozen=True, slots=True)
class StorageAlign(Step):
    """Rows of a buffer begin at `offset` modulo `factor` elements."""

    tag: ClassVar[str] = "SA"
    stage: int
    iter: int
    factor: int
    offset: int

    def effect(self, state: State) -> State:
        it = loop_at(state, self.stage, self.iter, "storage_align")
        stage = state.stages[self.stage]
        ok = it.uid < len(stage.op.axis)
        require(ok, ScheduleError, f"storage_align {stage.op.name}", "needs an unsplit spatial axis", loop=it.name)
        integers = isinstance(self.factor, int) and isinstance(self.offset, int)
        ok = integers and self.factor > 0 and self.offset >= 0
        law = "needs a positive factor and an offset of at least 0"
        require(ok, ScheduleError, f"storage_align {stage.op.name}", law, factor=self.factor, offset=self.offset)
        return state.with_stage(self.stage, replace(stage, storage_align=(it.uid, self.factor, self.offset)))

    def python(self, words: Words, before: State) -> None:
        loop = words.loop(before, self.stage, self.iter)
        words.call(self.stage, f"storage_align({loop}, {self.factor}, {self.offset})")


@dataclass(frozen=True, slots=True)
class StorageOrder(Step):
    """The axes of a stage as its own storage has them, the last one contiguous; a letter of our own."""

    tag: ClassVar[str] = "STO"
    stage: int
    order: tuple[int, ...]

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        subject = f"storage_order {stage.op.name}"
        require_own(state, self.stage, subject)
        ok = sorted(self.order) == list(range(len(stage.op.axis)))
        law = f"every axis from 0 to {len(stage.op.axis) - 1} must be there once"
        require(ok, ScheduleError, subject, law, got=self.order)
        return state.with_stage(self.stage, replace(stage, storage_order=self.order))

    def python(self, words: Words, before: State) -> None:
        words.call(self.stage, f"storage_order({', '.join(map(str, self.order))})")


def require_own(state: State, k: int, subject: str) -> None:
    """Refuse a stage that is stored as the caller of the program does."""
    own = not state.stages[k].is_placeholder and not state.access.is_output(k)
    require(own, ScheduleError, subject, "arguments of the program are stored as their caller does")


class Scoped(Step):
    """A step that names a memory: one of `SCOPES`, or `any_scope` there is."""

    __slots__ = ()
    any_scope: ClassVar[bool] = False
    scope: str

    @classmethod
    def read(cls, name: str, value: Any) -> Any:
        if name != "scope":
            return super().read(name, value)
        ok = isinstance(value, str) and (is_scope(value) if cls.any_scope else value in SCOPES)
        law = _law(value, "must be") if cls.any_scope else f"must be one of {', '.join(SCOPES)}"
        require(ok, RecordError, cls.where(name), law, got=value)
        return value


def _law(scope: object, must: str) -> str:
    """What is asked of a scope that is none, or whose extension is not installed."""
    lacks = isinstance(scope, str) and storage_class(scope) == "fragment" and installed_part("fragments") is None
    return needed_for("fragments") if lacks else f"{must} {ANY_SCOPE}"


@dataclass(frozen=True, slots=True)
class SetScope(Scoped):
    """Keep what the stage computes in `scope`; a letter of our own."""

    tag: ClassVar[str] = "SSC"
    any_scope: ClassVar[bool] = True
    stage: int
    scope: str

    def effect(self, state: State) -> State:
        """Where the stage is kept decides how far its regions reach, so this comes before extents are known."""
        stage = state.stages[self.stage]
        subject = f"set_scope {stage.op.name}"
        require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
        require(not state.access.is_output(self.stage), ScheduleError, subject, "an output is in global storage")
        law = _law(self.scope, "the scope must be one of")
        require(is_scope(self.scope), ScheduleError, subject, law, scope=self.scope)
        ok = not stage.double_buffer or self.scope == "shared"
        require(ok, ScheduleError, subject, "it is double-buffered, in shared memory", scope=self.scope)
        return state.with_stage(self.stage, replace(stage, op=in_scope(stage.compute, self.scope)))

    def python(self, words: Words, before: State) -> None:
        words.call(self.stage, f'set_scope("{self.scope}")')
