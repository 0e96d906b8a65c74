"""Steps that mark a loop: annotations, and pragmas of TVM and others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..errors import RecordError, ScheduleError, require
from .loop_steps import loop_at
from .state import REDUCE, Iter, Stage, State
from .step import Step, Words, integer

ANNOTATIONS = (
    "none", "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x", "blockIdx.y", "threadIdx.y",
    "blockIdx.z", "threadIdx.z", "tensorize",
)  # fmt: skip
KNOWN_ANNOTATIONS = ANNOTATIONS[1:]
"""Those that a step may give: a loop without one is never annotated with "none"."""
AUTO_UNROLL = "auto_unroll_max_step"
REDUCTION_ANNOTATIONS = ("none", "unroll", "threadIdx.x", "threadIdx.y", "threadIdx.z", "tensorize")


@dataclass(frozen=True, slots=True)
class Annotate(Step):
    """Mark a loop: parallel, vectorize, unroll, or a thread axis."""

    tag: ClassVar[str] = "AN"
    stage: int
    iter: int
    annotation: str

    def effect(self, state: State) -> State:
        law = f"the annotation is unknown, known are {', '.join(KNOWN_ANNOTATIONS)}"
        known = self.annotation in KNOWN_ANNOTATIONS
        require(known, ScheduleError, f"annotate {state.stages[self.stage].op.name}", law, got=self.annotation)
        it = loop_at(state, self.stage, self.iter, self.annotation)
        subject = f"{self.annotation} {state.stages[self.stage].op.name}.{it.name}"
        free = it.annotation == "none"
        require(free, ScheduleError, subject, "the loop is annotated already", annotation=it.annotation)
        ok = it.kind != REDUCE or self.annotation in REDUCTION_ANNOTATIONS
        require(ok, ScheduleError, subject, "the turns of a reduction loop depend on each other", loop=it.name)
        annotated = replace(it, annotation=self.annotation)
        return state.with_stage(self.stage, _set_iter(state.stages[self.stage], annotated))

    def python(self, words: Words, before: State) -> None:
        loop = words.loop(before, self.stage, self.iter)
        plain = self.annotation in ("vectorize", "parallel", "unroll", "tensorize")
        words.call(
            self.stage, f"{self.annotation}({loop})" if plain else f'bind({loop}, te.thread_axis("{self.annotation}"))'
        )

    def written(self, name: str) -> Any:
        return ANNOTATIONS.index(self.annotation) if name == "annotation" else getattr(self, name)

    @classmethod
    def read(cls, name: str, value: Any) -> Any:
        where = cls.where(name)
        number = integer(value, where)
        if name != "annotation":
            return number
        require(0 < number < len(ANNOTATIONS), RecordError, where, "unknown annotation", got=number)
        return ANNOTATIONS[number]


def _set_iter(stage: Stage, it: Iter) -> Stage:
    return replace(stage, vars=(*stage.vars[: it.uid], it, *stage.vars[it.uid + 1 :]))


@dataclass(frozen=True, slots=True)
class Pragma(Step):
    """A pragma of TVM on a loop: `auto_unroll_max_step$16`, `tensor_core`."""

    tag: ClassVar[str] = "PR"
    stage: int
    iter: int
    text: str

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        name, _, value = self.text.partition("$")
        ok = name == AUTO_UNROLL and value.isascii() and value.isdigit() and len(value) < 10
        require(ok, ScheduleError, f"pragma {stage.op.name}", f"known is {AUTO_UNROLL}$N", text=self.text)
        return state.with_stage(self.stage, replace(stage, auto_unroll_max_step=int(value)))

    def python(self, words: Words, before: State) -> None:
        """Nothing on a loop that is not there."""
        if self.iter < len(before.stages[self.stage].leaf):
            loop = words.loop(before, self.stage, self.iter)
            words.call(self.stage, f'pragma({loop}, "auto_unroll_max_step", {self.text.partition("$")[2]})')
            words.call(self.stage, f'pragma({loop}, "unroll_explicit", True)')


@dataclass(frozen=True, slots=True)
class FreePragma(Step):
    """A pragma TVM's records do not know (`unroll_explicit$1`, ...); a letter of our own."""

    tag: ClassVar[str] = "PRX"
    stage: int
    iter: int
    text: str

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        name, _, value = self.text.partition("$")
        return state.with_stage(self.stage, replace(stage, pragmas=(*stage.pragmas, (name, value))))

    def python(self, words: Words, before: State) -> None:
        """Nothing on a loop that is not there."""
        if self.iter < len(before.stages[self.stage].leaf):
            name, dollar, value = self.text.partition("$")
            said = [words.loop(before, self.stage, self.iter), json.dumps(name)]
            words.call(self.stage, f"pragma({', '.join(said + ([json.dumps(value)] if dollar else []))})")
