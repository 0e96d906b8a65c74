"""Steps that make a new stage: cache_read, cache_write, rfactor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from ..computation.derive import REMEMBERED, cache_name, cache_read_op, cache_write_ops, redirect_reads, rfactor_ops
from ..computation.tensor import ComputeOp
from ..errors import ScheduleError, require
from ..expr.expr import Expr, Var, compare, logical_and
from ..expr.storage import SCOPES
from .loop_value import loop_names, root_values, split_guards
from .place_steps import attached_names
from .state import REDUCE, ROOT, Iter, Stage, State, fresh_stage
from .step import Step, Words
from .storage_steps import SCOPE_LAW, Scoped


class NewStage(Step):
    """A step that makes a stage beside the one that it works on."""

    __slots__ = ()

    @property
    def inserts_at(self) -> int:
        return self.stage


def inserted(state: State, position: int, stage: Stage) -> State:
    """Put a stage at `position`; references to later stages move on."""
    shifted = [
        replace(s, attach=replace(s.attach, stage=s.attach.stage + 1))
        if s.attach is not None and s.attach.stage >= position
        else s
        for s in state.stages
    ]
    return replace(state, stages=(*shifted[:position], stage, *shifted[position:]))


def require_unscheduled(stage: Stage, uids: range, subject: str) -> None:
    """The new stages start afresh: what was done to the axes `uids` would be lost."""
    loops = [it for it in stage.iters if it.kind != REDUCE or it.uid in uids]
    natural = [it.uid for it in loops] == list(uids) and all(it.annotation == "none" for it in loops)
    ok = natural and not stage.auto_unroll_max_step and not stage.pragmas and stage.storage_align is None
    ok = ok and stage.storage_order is None and not stage.asks
    law = "it must come before other steps on these loops"
    require(ok, ScheduleError, subject, law, loops=[it.name for it in loops])


@dataclass(frozen=True, slots=True)
class CacheRead(NewStage, Scoped):
    """A stage that copies `stage` to `scope`, read by `readers`."""

    tag: ClassVar[str] = "CHR"
    about: ClassVar[tuple[str, ...]] = ("stage", "readers")
    stage: int
    scope: str
    readers: tuple[int, ...]

    def effect(self, state: State) -> State:
        source = state.stages[self.stage].op
        subject = f"cache_read {source.name}"
        require(source.num_outputs == 1, ScheduleError, subject, "an operation with several outputs cannot be cached")
        require(self.scope in SCOPES, ScheduleError, subject, SCOPE_LAW, scope=self.scope)
        _require_readers(state, self, subject)
        tensor = source.output()
        cache = cache_read_op(tensor, self.scope, cache_name(tensor.name, self.scope, [op.name for op in state.ops]))
        for r in self.readers:
            reader = state.stages[r]
            state = state.with_stage(r, replace(reader, op=redirect_reads(reader.compute, tensor, cache.output())))
        return inserted(state, self.stage + 1, fresh_stage(cache))

    def python(self, words: Words, before: State) -> None:
        readers = ", ".join([words.tensor(before, r) for r in self.readers])
        write_copy(words, self.stage, f's.cache_read({words.tensor(before, self.stage)}, "{self.scope}", [{readers}])')


def _require_readers(state: State, step: CacheRead, subject: str) -> None:
    for r in step.readers:
        reads = r in state.access.read_by[step.stage]
        require(reads, ScheduleError, subject, "each reader must read it", reader=state.ops[r].name)
    require(len(step.readers) > 0, ScheduleError, subject, "at least one reader is needed")
    once = len(set(step.readers)) == len(step.readers)
    require(once, ScheduleError, subject, "a reader is named twice", readers=step.readers)


def write_copy(words: Words, stage: int, call: str) -> None:
    """Write the call that makes a copy of `stage`, which comes after it."""
    name = words.tensor(words.state, stage + 1)
    words.line(f"{name} = {call}")
    words.axes(words.state.stages[stage + 1].op, f"{name}.op")


@dataclass(frozen=True, slots=True)
class CacheWrite(NewStage, Scoped):
    """A stage in `scope` that computes what `stage` then copies out."""

    tag: ClassVar[str] = "CHW"
    stage: int
    scope: str

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        subject = f"cache_write {stage.op.name}"
        require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
        require(stage.where == ROOT, ScheduleError, subject, "cache before moving the stage", where=stage.where)
        require(self.scope in SCOPES, ScheduleError, subject, SCOPE_LAW, scope=self.scope)
        attached = attached_names(state, self.stage)
        require(not attached, ScheduleError, subject, "other stages are attached to it", attached=attached)
        require_unscheduled(stage, range(len(stage.vars)), subject)
        name = cache_name(stage.op.name, self.scope, [op.name for op in state.ops])
        cache, copy = cache_write_ops(stage.compute, self.scope, name, [op.key for op in state.ops])
        state = inserted(state, self.stage, fresh_stage(cache))
        return state.with_stage(self.stage + 1, fresh_stage(copy))

    def python(self, words: Words, before: State) -> None:
        new, copy = words.state.stages[self.stage : self.stage + 2]
        old, name = words.tensor(before, self.stage), words.tensor(words.state, self.stage)
        words.line(f'{name}, = s.cache_write([{old}], "{self.scope}")')
        words.axes(new.op, f"{name}.op")
        words.axes(copy.op, f"s[{old}].op")


@dataclass(frozen=True, slots=True)
class RFactor(NewStage):
    """Make a space axis, at place `factor_iter`, of a part of a reduction."""

    tag: ClassVar[str] = "RF"
    stage: int
    iter: int
    factor_iter: int

    def effect(self, state: State) -> State:
        _require_factorable(state, self)
        stage = state.stages[self.stage]
        loops = tuple([Iter(v.uid, v.name, v.extent, v.kind) for v in stage.vars])
        plain = Stage(stage.op, loops, stage.leaf, stage.relations)
        rf, repl = _factored(plain, stage.leaf[self.iter], self.factor_iter)
        state = inserted(state, self.stage, fresh_stage(rf))
        return state.with_stage(self.stage + 1, replace(fresh_stage(repl), where=stage.where, attach=stage.attach))

    def python(self, words: Words, before: State) -> None:
        new, total = words.state.stages[self.stage : self.stage + 2]
        old, name = words.tensor(before, self.stage), words.tensor(words.state, self.stage)
        call = f"s.rfactor({old}, {words.loop(before, self.stage, self.iter)}, {self.factor_iter})"
        words.line(f"{name} = {call}" if new.op.num_outputs == 1 else f"{name} = {call}[0]")
        words.axes(new.op, f"{name}.op")
        words.axes(total.op, f"s[{old}].op")


def _require_factorable(state: State, step: RFactor) -> None:
    stage = state.stages[step.stage]
    subject = f"rfactor {stage.op.name}"
    require(stage.op.reduction is not None, ScheduleError, subject, "is for reductions")
    ok = 0 <= step.iter < len(stage.leaf) and stage.vars[stage.leaf[step.iter]].kind == REDUCE
    known = ", ".join([it.name for it in stage.iters if it.kind == REDUCE])
    loop = stage.iters[step.iter].name if step.iter < len(stage.leaf) else step.iter
    require(ok, ScheduleError, subject, f"the loop must be a reduction loop; they are {known}", loop=loop)
    rank = len(stage.op.axis)
    ok = 0 <= step.factor_iter <= rank
    require(ok, ScheduleError, subject, f"the position must be 0 to {rank}", got=step.factor_iter)
    attached = attached_names(state, step.stage)
    require(not attached, ScheduleError, subject, "other stages are attached to it", attached=attached)
    require_unscheduled(stage, range(rank), subject)
    for it in stage.iters:
        ok = it.kind != REDUCE or isinstance(it.extent, int)
        require(ok, ScheduleError, subject, "the extents of its loops must be known", loop=it.name, extent=it.extent)


@lru_cache(maxsize=REMEMBERED)
def _factored(stage: Stage, factored: int, position: int) -> tuple[ComputeOp, ComputeOp]:
    """`rfactor_ops` of the loop `factored` (a uid), for the loops and relations of `stage`."""
    loops = [it for it in stage.iters if it.kind == REDUCE]
    names = loop_names(stage)
    variables = {it.uid: Var(names[it.uid]) for it in loops}
    rank = len(stage.op.axis)
    axes = stage.op.reduce_axis
    roots = root_values(stage, variables, range(rank, stage.num_roots))
    values = {axis: roots[rank + k] for k, axis in enumerate(axes)}
    guards = split_guards(stage, variables)
    guards += [compare("<", values[a], a.extent) for a in axes if isinstance(a.extent, Expr)]
    described = tuple([(names[it.uid], it.length, variables[it.uid]) for it in loops])
    at = [it.uid for it in loops].index(factored)
    return rfactor_ops(stage.compute, values, described, at, position, logical_and(*guards) if guards else None)
