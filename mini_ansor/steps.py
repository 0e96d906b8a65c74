"""TVM's fourteen steps, and the state that a list of them makes of a computation.

A program is a computation and a list of steps: sketches, samples, mutations and records are all lists of steps, and
whoever wants to know what a program is replays them.  The fields of a class are those of TVM's record format, in
order.  Positions are those at the moment of the step.  A length of None is a hole: the state is a sketch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from .expr import FOLDS, Axis, Const, Expr, Load, Op, Reduce, Select, binary, proven, substitute, transform
from .program import FuseRel, Iter, Length, SplitRel, Stage, State, Step, StepError
from .program import fresh, initial, product


def replay(args: Sequence[Op], steps: Iterable[Step]) -> State:
    """The state that `steps` make."""
    state = initial(args)
    for step in steps:
        state = state.apply(step)
    return state


# ------------------------------------------------------------------------------------------------- steps on one stage


@dataclass(frozen=True)
class Annotate(Step):
    """Mark a loop as parallel, vector, unrolled, block or thread."""

    tag: ClassVar[str] = "AN"
    iter: int
    annotation: str

    def apply(self, state: State) -> State:
        stage, it = state.stages[self.stage], self.loop(state, self.iter)
        if it.annotation != "none":
            raise StepError(f"AN {stage.op.name}: {it.name} is {it.annotation} already")
        iters = tuple(
            replace(it, annotation=self.annotation) if i == it.id else other for i, other in enumerate(stage.iters)
        )
        return state.update(self.stage, iters=iters)


@dataclass(frozen=True)
class Fuse(Step):
    """One loop of neighbouring ones; of none, an outermost loop of extent 1."""

    tag: ClassVar[str] = "FU"
    iters: tuple[int, ...]

    def apply(self, state: State) -> State:
        stage = state.stages[self.stage]
        if not self.iters:
            unit = Iter(len(stage.iters), "", 1, "special")
            return state.update(self.stage, iters=(*stage.iters, unit), loops=(unit.id, *stage.loops))
        parts = [self.loop(state, p) for p in self.iters]
        if any(state.attached(self.stage, part.id) for part in parts[:-1]):
            raise StepError(f"FU {stage.op.name}: only the last loop may have stages inside")
        kinds, extent = {p.kind for p in parts}, product([p.extent for p in parts])
        name = "".join(f"{p.name}@" for p in parts)
        fused = Iter(len(stage.iters), name, extent, kinds.pop() if len(kinds) == 1 else "mixed")
        relation = FuseRel(tuple(p.id for p in parts), fused.id)
        return _replaced(state, self.stage, self.iters[0], len(parts), [fused], relation)


@dataclass(frozen=True)
class Pragma(Step):
    """`auto_unroll_max_step$N`: inner loops are unrolled up to N statements."""

    tag: ClassVar[str] = "PR"
    iter: int
    text: str

    def apply(self, state: State) -> State:
        name, _, value = self.text.partition("$")
        if name != "auto_unroll_max_step" or not value.isdigit():
            raise StepError(f"PR: the pragma must be auto_unroll_max_step$N, got {self.text}")
        return state.update(self.stage, auto_unroll=int(value))


@dataclass(frozen=True)
class Reorder(Step):
    """Put the loops of the stage in another order."""

    tag: ClassVar[str] = "RE"
    order: tuple[int, ...]

    def apply(self, state: State) -> State:
        stage = state.stages[self.stage]
        if sorted(self.order) != list(range(len(stage.loops))):
            raise StepError(f"RE {stage.op.name}: each of the {len(stage.loops)} loops must be named once")
        return state.update(self.stage, loops=tuple(stage.loops[p] for p in self.order))


@dataclass(frozen=True)
class Split(Step):
    """`lengths` are the inner loops, the outermost is the rest; without `inner_to_outer` the other way round."""

    tag: ClassVar[str] = "SP"
    iter: int
    extent: int
    lengths: tuple[Length, ...]
    inner_to_outer: bool = True

    def apply(self, state: State) -> State:
        return _split(self, state, self.iter, self.lengths, self.inner_to_outer)


@dataclass(frozen=True)
class FollowSplit(Step):
    """Split as step `source` did, its inner lengths taken together so that `n_split` are left."""

    tag: ClassVar[str] = "FSP"
    iter: int
    source: int
    n_split: int

    def apply(self, state: State) -> State:
        lengths = _source(state, self.source)
        lengths = (*lengths[: self.n_split - 1], product(lengths[self.n_split - 1 :]))
        return _split(self, state, self.iter, lengths, inner_to_outer=True)


@dataclass(frozen=True)
class FollowFusedSplit(Step):
    """Split by the product of the lengths that the steps `sources` have at `level`."""

    tag: ClassVar[str] = "FFSP"
    iter: int
    sources: tuple[int, ...]
    level: int
    factor: bool

    def apply(self, state: State) -> State:
        length = product([_source(state, s)[self.level] for s in self.sources])
        return _split(self, state, self.iter, (length,), inner_to_outer=self.factor)


@dataclass(frozen=True)
class StorageAlign(Step):
    """Rows begin at `offset` modulo `factor` elements.  Kept in records; the texts here ignore it."""

    tag: ClassVar[str] = "SA"
    iter: int
    factor: int
    offset: int

    def apply(self, state: State) -> State:
        return state.update(self.stage, align=(self.loop(state, self.iter).id, self.factor, self.offset))


def _source(state: State, position: int) -> tuple[Length, ...]:
    step = state.steps[position] if 0 <= position < len(state.steps) else None
    if not isinstance(step, Split):
        raise StepError(f"a split can follow a split only, got step {position}")
    return step.lengths


def _split(step: Step, state: State, position: int, lengths: Sequence[Length], inner_to_outer: bool) -> State:
    stage, parent = state.stages[step.stage], step.loop(state, position)
    if parent.annotation != "none":
        raise StepError(f"{step.tag} {stage.op.name}: {parent.name} is annotated")
    extents: list[Length] = []
    rest = parent.extent
    for length in reversed(lengths) if inner_to_outer else lengths:
        known = rest is not None and length is not None
        extents.append(length if known else None)
        rest = -(-rest // length) if rest is not None and length is not None else None
    extents = [rest, *extents[::-1]] if inner_to_outer else [*extents, rest]
    first = len(stage.iters)
    parts = [Iter(first + n, f"{parent.name}.{n}", extent, parent.kind) for n, extent in enumerate(extents)]
    relation = SplitRel(parent.id, tuple(p.id for p in parts), tuple(lengths), inner_to_outer)
    return _replaced(state, step.stage, position, 1, parts, relation)


def _replaced(
    state: State, k: int, position: int, count: int, new: Sequence[Iter], relation: SplitRel | FuseRel
) -> State:
    """`count` loops of stage k replaced; what was computed inside of them is computed inside the last new one."""
    stage = state.stages[k]
    old = stage.loops[position : position + count]
    loops = (*stage.loops[:position], *[it.id for it in new], *stage.loops[position + count :])
    stages = [replace(s, at=(k, new[-1].id)) if s.at in [(k, i) for i in old] else s for s in state.stages]
    iters, relations = (*stage.iters, *new), (*stage.relations, relation)
    stages[k] = replace(stages[k], iters=iters, loops=loops, relations=relations)
    return replace(state, stages=tuple(stages))


# ---------------------------------------------------------------------------------------------- steps between stages


@dataclass(frozen=True)
class ComputeAt(Step):
    """Compute the stage inside a loop of another one."""

    tag: ClassVar[str] = "CA"
    target: int
    target_iter: int

    def apply(self, state: State) -> State:
        stage, target = state.stages[self.stage], state.stages[self.target]
        if not 0 <= self.target_iter < len(target.loops):
            raise StepError(f"CA: {target.op.name} has {len(target.loops)} loops, got number {self.target_iter}")
        if state.dag.is_output(self.stage):
            raise StepError(f"CA {stage.op.name}: an output is computed at root")
        at, turn = (self.target, target.loops[self.target_iter]), len(state.steps)
        return state.update(self.stage, where="iter", at=at, turn=turn, iters=_without_extents(stage))


@dataclass(frozen=True)
class ComputeInline(Step):
    """Compute the stage where it is read."""

    tag: ClassVar[str] = "CI"

    def apply(self, state: State) -> State:
        stage = state.stages[self.stage]
        if stage.op.body is None or stage.op.reduce_axes or state.dag.is_output(self.stage):
            raise StepError(f"CI {stage.op.name}: inputs, outputs and reductions cannot be inlined")
        return state.update(self.stage, where="inlined", at=None)


@dataclass(frozen=True)
class ComputeRoot(Step):
    """Compute the stage on its own."""

    tag: ClassVar[str] = "CR"

    def apply(self, state: State) -> State:
        return state.update(self.stage, where="root", at=None, iters=_without_extents(state.stages[self.stage]))


@dataclass(frozen=True)
class CacheRead(Step):
    """A stage that copies the tensor to `scope` for its `readers`."""

    tag: ClassVar[str] = "CHR"
    scope: str
    readers: tuple[int, ...]

    def apply(self, state: State) -> State:
        source = state.ops[self.stage]
        name = _free_name(state, source.name, self.scope)
        axes = tuple(Axis(f"ax{d}", n) for d, n in enumerate(source.shape))
        copy = Op(name, axes, Load(source, axes), source.dtype, name, scope=self.scope)
        for r in self.readers:
            state = state.update(r, op=_redirected(state.ops[r], source.key, copy))
        return state.inserted(self.stage + 1, fresh(copy))


@dataclass(frozen=True)
class CacheWrite(Step):
    """A stage in `scope` that computes what the stage, made anew, then copies out."""

    tag: ClassVar[str] = "CHW"
    scope: str

    def apply(self, state: State) -> State:
        op = state.ops[self.stage]
        name = _free_name(state, op.name, self.scope)
        axes = tuple(Axis(f"{a.name}.c", a.extent) for a in op.axes)
        body = substitute(_body(op), dict(zip(op.axes, axes, strict=True)))
        cache = Op(name, axes, body, op.dtype, name, op.attrs, self.scope)
        copy = replace(op, body=Load(cache, op.axes), attrs=())
        return state.update(self.stage, **vars(fresh(copy))).inserted(self.stage, fresh(cache))


@dataclass(frozen=True)
class RFactor(Step):
    """Make an axis of a loop of a reduction: `<op>.rf` has a result for each of its turns, `<op>.repl` folds these."""

    tag: ClassVar[str] = "RF"
    iter: int
    factor_iter: int

    def apply(self, state: State) -> State:
        stage, loop = state.stages[self.stage], self.loop(state, self.iter)
        reduction = stage.op.body
        if not isinstance(reduction, Reduce) or loop.kind != "reduce":
            raise StepError(f"RF {stage.op.name}: {loop.name} is no loop of a reduction")
        op, names = stage.op, te_names(stage)
        axes = tuple(Axis(a.name, a.extent) for a in op.axes)
        loops = {it.id: Axis(names[it.id], it.length) for it in stage.current if it.kind == "reduce"}
        values = axis_values(stage, loops)
        point: dict[Expr, Expr] = dict(zip(op.axes, axes, strict=True))
        point.update({a: values[stage.rank + n] for n, a in enumerate(op.reduce_axes)})
        source = substitute(reduction.source, point)
        for guard in split_guards(stage, loops):  # a loop that runs over the end of its axis folds the identity
            source = Select(guard, source, Const(FOLDS[reduction.fold][1], source.dtype))
        rest = tuple(a for i, a in loops.items() if i != loop.id)
        body = Reduce(reduction.fold, source, rest) if rest else source
        at = self.factor_iter
        rf_axes = (*axes[:at], loops[loop.id], *axes[at:])
        rf = replace(op, name=f"{op.name}.rf", key=f"{op.key}.rf", axes=rf_axes, body=body)
        space = tuple(Axis(f"ax{d}", n) for d, n in enumerate(op.shape))
        along = Axis(f"{names[loop.id]}.v", loop.length)
        total = Reduce(reduction.fold, Load(rf, (*space[:at], along, *space[at:])), (along,))
        repl = replace(op, name=f"{op.name}.repl", axes=space, body=total, attrs=())
        anew = {**vars(fresh(repl)), "where": stage.where, "at": stage.at}
        return state.update(self.stage, **anew).inserted(self.stage, fresh(rf))


def _body(op: Op) -> Expr:
    if op.body is None:
        raise StepError(f"{op.name}: an input is not computed")
    return op.body


def _without_extents(stage: Stage) -> tuple[Iter, ...]:
    return tuple(replace(it, extent=None) if it.id in stage.loops else it for it in stage.iters)


def _free_name(state: State, base: str, scope: str) -> str:
    while f"{base}.{scope}" in [op.name for op in state.ops]:
        base += ".d"
    return f"{base}.{scope}"


def _redirected(op: Op, key: str, new: Op) -> Op:
    """`op` with all reads of the tensor `key` turned to `new`."""

    def swap(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.op.key == key:
            return Load(new, tuple(transform(i, swap) for i in e.indices))
        return None

    return replace(op, body=transform(_body(op), swap))


# ------------------------------------------------------------------------------------------ what loops say about axes


def split_strides(stage: Stage, rel: SplitRel) -> list[int]:
    """By how much one turn of each part moves the parent."""
    if rel.inner_to_outer:
        return [prod(n or 0 for n in rel.lengths[p:]) for p in range(len(rel.lengths))] + [1]
    strides, rest = [], stage.iters[rel.parent].length
    for length in rel.lengths:
        rest = -(-rest // (length or 1))
        strides.append(rest)
    return [*strides, 1]


def axis_values(stage: Stage, loops: dict[int, Any]) -> dict[int, Expr]:
    """The value of every iterator, by id, that the values `loops` of some loops determine."""
    values: dict[int, Expr] = dict(loops)
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRel) and all(p in values for p in rel.parts):
            values[rel.parent] = _partial(stage, rel, values, 0)
        elif isinstance(rel, FuseRel) and rel.fused in values:
            rest = values[rel.fused]
            for p in reversed(rel.parts[1:]):
                extent = stage.iters[p].length
                values[p], rest = binary("%", rest, extent), binary("//", rest, extent)
            values[rel.parts[0]] = rest
    return values


def _partial(stage: Stage, rel: SplitRel, values: dict[int, Expr], first: int) -> Expr:
    """The value of the parts of a split from number `first` on."""
    total: Expr = Const(0)
    for part, stride in list(zip(rel.parts, split_strides(stage, rel), strict=True))[first:]:
        total = binary("+", total, binary("*", values[part], stride))
    return total


def split_guards(stage: Stage, loops: dict[int, Any]) -> list[Expr]:
    """What must hold for a point of the loops to be one of the axes: lengths need not divide extents."""
    values = axis_values(stage, loops)
    guards = []
    for rel in stage.relations:
        if isinstance(rel, SplitRel) and rel.parent in values:
            strides = split_strides(stage, rel)
            ends = [(0, stage.iters[rel.parent].length)]
            ends += [] if rel.inner_to_outer else [(p, strides[p - 1]) for p in range(1, len(strides))]
            guards += [binary("<", _partial(stage, rel, values, p), end) for p, end in ends]
    return [guard for guard in guards if not proven(guard)]


def te_names(stage: Stage) -> dict[int, str]:
    """The names that TVM's schedules give loops: `k.outer.inner`, `i.j.fused`."""
    names = {n: a.name for n, a in enumerate(stage.op.all_axes)}
    for rel in stage.relations:
        if isinstance(rel, FuseRel):
            names[rel.fused] = names[rel.parts[0]] + "".join(f".{names[p]}.fused" for p in rel.parts[1:])
            continue
        last = len(rel.parts) - 1
        inner, outer = (".inner", ".outer") if rel.inner_to_outer else (".outer", ".inner")
        for n, p in enumerate(rel.parts):
            near = last - n if rel.inner_to_outer else n
            end = n > 0 if rel.inner_to_outer else n < last
            names[p] = names[rel.parent] + outer * near + (inner if end else "")
    return names
