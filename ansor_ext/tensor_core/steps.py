"""Steps that swizzle a stage in shared memory (see `swizzle.py`), and multiply floats in parts (`float_parts.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from te_lite.computation.tensor import Tensor
from te_lite.errors import ScheduleError, require
from te_lite.schedule.place_steps import attached_names
from te_lite.schedule.stage_steps import require_unscheduled
from te_lite.schedule.state import ROOT, Ask, State, fresh_stage
from te_lite.schedule.step import Step, Words
from te_lite.schedule.storage_steps import require_own

from ..pipeline.steps import BOXES
from .float_parts import parts_ops

SWIZZLED = Ask("swizzled", layout="ansor_ext.tensor_core.layouts:SwizzledRows")
IN_LINES = Ask("swizzled in lines", layout=BOXES)


@dataclass(frozen=True, slots=True)
class Swizzled(Step):
    """Let the 16-byte chunks of rows in shared memory trade places; a letter of our own.

    With `lines` rows are cut into lines of 128 bytes first, as groups of warps read them.
    """

    tag: ClassVar[str] = "SWZ"
    optional: ClassVar[str] = "lines"
    stage: int
    lines: int = 0

    def effect(self, state: State) -> State:
        """Whether it is in shared memory, and how long its rows are, is looked at when it is lowered."""
        stage = state.stages[self.stage]
        subject = f"swizzle {stage.op.name}"
        require_own(state, self.stage, subject)
        twice = {SWIZZLED, IN_LINES} & set(stage.asks)
        require(not twice, ScheduleError, subject, "it is swizzled already")
        ask = IN_LINES if self.lines else SWIZZLED
        return state.with_stage(self.stage, replace(stage, asks=(ask, *stage.asks)))


@dataclass(frozen=True, slots=True)
class InParts(Step):
    """Multiply floats by parts of others, which the stage of one factor stores (ours)."""

    tag: ClassVar[str] = "PRT"
    about: ClassVar[tuple[str, ...]] = ("stage", "factor")
    stage: int
    factor: int

    @classmethod
    def primitive(cls, part: Any, product: Tensor, factor: Tensor) -> Tensor:
        """Let `product` sum up products by parts of `factor` in place of it; returns the parts.

        Where it sums up `a[m, k] * b[n, k]` over k it sums up `a[m, k] * parts[p, n, k]` over p and k then: the small
        part of a float comes first, then the big one.
        """
        k = part.stage_id(factor)
        part.apply(cls(part.stage_id(product), k))
        made: Tensor = part.state.ops[k].output()
        return made

    def effect(self, state: State) -> State:
        product, factor = state.stages[self.stage], state.stages[self.factor]
        subject = f"in_parts {factor.op.name}"
        require_own(state, self.factor, subject)
        alone = set(state.access.read_by[self.factor]) == {self.stage} and factor.op.num_outputs == 1
        law = "it must be computed element by element, at its root, and read by the product alone"
        require(alone and factor.where == ROOT and not factor.op.reduce_axis, ScheduleError, subject, law)
        found = None if product.is_placeholder else parts_ops(factor.compute, product.compute)
        require(found is not None, ScheduleError, subject, "is for a factor of a sum of products in float32")
        assert found is not None
        for k, stage in ((self.stage, product), (self.factor, factor)):
            attached = attached_names(state, k)
            require(not attached, ScheduleError, subject, "it must come before other stages move", attached=attached)
            require_unscheduled(stage, range(len(stage.vars)), subject)
        return state.with_stage(self.factor, fresh_stage(found[0])).with_stage(self.stage, fresh_stage(found[1]))

    def python(self, words: Words, before: State) -> None:
        product, factor = [words.tensor(before, k) for k in self.stages]
        made = words.tensor(words.state, self.factor)
        words.line(f"{made} = s.in_parts({product}, {factor})")
        words.axes(words.state.stages[self.factor].op, f"{made}.op")
        words.axes(words.state.stages[self.stage].op, f"s[{product}].op")
