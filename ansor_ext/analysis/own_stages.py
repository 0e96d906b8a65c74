"""Stages that a rule of its own schedules, and rules around them; the axes that the reads of a stage move along.

A rule that decides a stage with all its loops in one go (`skinny`, `sliced_tiles`, `tensor_core`) lets the rules of the
target deal with the other stages first.  They see the stage as it is, and fetch nothing for it.  Rules of a CPU have
the usual ones behind them (`cpu_sketches`); many begin with the sketches that there are (`ordinary_sketches`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar

from ansor.sketch.derivation_rules import AddCacheRead
from ansor.sketch.generate import CPU_RULES, default_rules, generate_sketches
from ansor.sketch.predicates import (
    consumers,
    fusion_target,
    has_reduce_iter,
    may_be_computed_at,
    single_consumer,
    traced_steps,
)
from ansor.sketch.rule import Condition, Outcome, SketchContext, SketchRule
from te_lite.bounds.reads import Affine, Form, Quotient, Read, Scaled, Sum
from te_lite.computation.tensor import Operation
from te_lite.expr.expr import Expr
from te_lite.expr.visit import free_vars
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheWrite, RFactor
from te_lite.schedule.state import ROOT, Stage, State


def is_untouched(stage: Stage) -> bool:
    """At its root, with its own loops in order, whose extents are the same at all points."""
    natural = stage.where == ROOT and stage.leaf == tuple(range(stage.num_roots))
    unit = {v for v in stage.op.axis if v.extent == 1}
    bounds = [v.extent for v in stage.op.reduce_axis if isinstance(v.extent, Expr)]
    fixed = all(free_vars(e) <= unit for e in bounds)
    return natural and fixed and all(it.annotation == "none" for it in stage.iters)


def elementwise_reader(state: State, k: int) -> int | None:
    """The only stage that reads stage `k`, if it does so element by element in loops that nobody touched."""
    target = single_consumer(state, k)
    if target is None or has_reduce_iter(state.stages[target]) or not is_untouched(state.stages[target]):
        return None
    return target if may_be_computed_at(state, k) and state.access.elementwise_match(k, target) else None


def has_rfactor(state: State, k: int) -> bool:
    """Stage `k` holds the partial results of an rfactor."""
    return any(isinstance(step, RFactor) for _, step in traced_steps(state.steps, k))


def extents_of(op: Operation) -> list[int]:
    """The extents of the axes of a stage, spatial first; 2 stands for one that varies."""
    return [v.extent if isinstance(v.extent, int) else 2 for v in (*op.axis, *op.reduce_axis)]


def sums_over_several(op: Operation) -> bool:
    """Whether a sum is over several axes of more than one element."""
    return sum(n > 1 for n in extents_of(op)[len(op.axis) :]) > 1


def parts_added(state: State, k: int) -> int:
    """The parts of sums in stage `k`, a first axis of it that the stage around it lacks, which adds them up; else 1."""
    op, attach = state.stages[k].op, state.stages[k].attach
    inside = attach is not None and len(state.stages[attach.stage].op.axis) < len(op.axis)
    return extents_of(op)[0] if inside else 1


def axes_of(form: Form, extents: Sequence[int]) -> frozenset[int]:
    """The numbers of the reader's axes (of these extents) that an index depends on; empty for an unknown index.

    An axis that is divided by its extent or more (`f // channels` with one group) does not count.
    """
    match form:
        case Affine(terms=terms):
            return frozenset([axis for axis, _ in terms if extents[axis] > 1])
        case Sum(parts=parts):
            return frozenset().union(*[axes_of(p, extents) for p in parts])
        case Quotient(part=Affine(terms=((axis, 1),), const=0), divisor=divisor, mod=False) if extents[axis] <= divisor:
            return frozenset()
        case Scaled(part=part) | Quotient(part=part):
            return axes_of(part, extents)
        case _:
            return frozenset()


def axes_read(read: Read, extents: Sequence[int]) -> frozenset[int]:
    """The axes, of these extents, that a read depends on."""
    return frozenset().union(*[axes_of(form, extents) for form in read.forms])


def runs_of(axes: Sequence[int]) -> list[list[int]]:
    """Ascending axes, cut where two do not follow each other."""
    runs: list[list[int]] = []
    for axis in axes:
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


# ----------------------------------------------------------------------------------------- stages that a rule schedules


Mine = Callable[[SketchContext, State, int], bool]
"""Whether a stage is one of the rule's own."""


class LeaveAlone:
    """Stages of the rule's own are left as they are."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM, whose stages are decided one by one."

    def __init__(self, mine: Mine) -> None:
        self.mine = mine

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if self.mine(ctx, state, k) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(state, k - 1)]


class OtherCacheReads(AddCacheRead):
    """Fetch through shared memory as ever, but nothing that such a stage reads."""

    def __init__(self, mine: Mine) -> None:
        self.mine = mine

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        read = any(self.mine(ctx, state, reader) for reader in consumers(state, k))
        return Condition.SKIP if read else super().condition(ctx, state, k)


def derive(ctx: SketchContext, rules: tuple[SketchRule, ...], state: State, k: int) -> list[State]:
    """The sketches that `rules` make of `state` from stage `k` down to the first."""
    if k < 0:
        return [state]
    out: list[State] = []
    for rule in rules:
        condition, outcomes = _asked(ctx, rule, state, k)
        for after, following in outcomes:
            out += derive(ctx, rules, after, following)
        if condition == Condition.APPLY_AND_SKIP_REST:
            break
    return out


def _asked(ctx: SketchContext, rule: SketchRule, state: State, k: int) -> tuple[Condition, Sequence[Outcome]]:
    """What a rule says of a stage, and makes of it.

    Ordinary rules are asked once: all derivations of a context go through the same states before a rule of their own
    applies.
    """
    known = _answers(ctx) if any(rule is ordinary for ordinary in CPU_RULES) else {}
    key = id(rule), id(state), k
    if key not in known:
        condition = rule.condition(ctx, state, k)
        outcomes = () if condition == Condition.SKIP else rule.apply(ctx, state, k)
        known[key] = condition, outcomes, state
    return known[key][:2]


@lru_cache(maxsize=1)
def _answers(_: SketchContext) -> dict[tuple[int, int, int], tuple[Condition, Sequence[Outcome], State]]:
    """Those of ordinary rules in a context, with the states, so that no other takes over their identity."""
    return {}


def with_reader(state: State, k: int) -> tuple[State, int | None]:
    """`state` with a stage that takes up element by element what stage `k` computes, and the number of that stage.

    Where no stage does so already the result is written from local storage; None where that is not possible.
    """
    if fusion_target(state, k) is None:
        state = apply(state, CacheWrite(k, "local"))
    return state, fusion_target(state, k)


def cpu_sketches(ctx: SketchContext, rules: Sequence[SketchRule], mark: str = "vectorize") -> list[State]:
    """The sketches that rules of a CPU make, each with the usual ones behind it: those with an annotation of theirs."""
    if ctx.target.is_gpu:
        return []
    start, last = ctx.dag.init_state, len(ctx.dag.ops) - 1
    found = [s for rule in rules for s in derive(ctx, (rule, *CPU_RULES), start, last)]
    mine = [s for s in found if any(it.annotation == mark for stage in s.stages for it in stage.iters)]
    return list({s.steps: s for s in mine}.values())


def ordinary_sketches(ctx: SketchContext) -> tuple[State, ...]:
    """The sketches by the rules of the target, which many extra rules begin with: made once for the same context."""
    return _ordinary(ctx, default_rules(ctx.target))


@lru_cache(maxsize=4)
def _ordinary(ctx: SketchContext, _: tuple[SketchRule, ...]) -> tuple[State, ...]:
    return tuple(generate_sketches(ctx.dag, ctx.target, ctx.hardware, options=ctx.options))
