"""Steps between stages: compute_at, inline, root, cache_read, cache_write, rfactor; and our own: double_buffer,
pipeline, set_scope, reindex, join_axes, join_reductions, compute_along, postpone_division.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from ..computation.derive import (
    REMEMBERED,
    axes_in_order,
    cache_name,
    cache_read_op,
    cache_write_ops,
    in_scope,
    joined_op,
    plain_read,
    read_joined,
    redirect_reads,
    reindex_ops,
    rfactor_ops,
)
from ..computation.tensor import ComputeOp, Operation
from ..errors import ScheduleError, require
from ..expr.expr import Expr, Var, compare, logical_and
from ..expr.storage import storage_class
from ..later import when_called
from ..tensor_core.fragment_storage import ANY_SCOPE, SCOPES, is_scope
from .loop_value import loop_names, root_values, split_guards
from .state import ATTACHED, INLINED, REDUCE, ROOT, Attach, Iter, Stage, State, fresh_stage
from .step import (
    CacheRead,
    CacheWrite,
    ComputeAlong,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    DoubleBuffer,
    JoinAxes,
    JoinReductions,
    Pipeline,
    PostponeDivision,
    Reindex,
    RFactor,
    SetScope,
)

MOST_TILES = 5
Made = tuple[ComputeOp, ComputeOp, ComputeOp]
joined_ops: Callable[[ComputeOp, ComputeOp, tuple[ComputeOp, ...]], Made | None] = when_called(
    "te_lite.online.online", "joined_ops"
)
postponed: Callable[[ComputeOp, ComputeOp, Sequence[Operation]], Made | None] = when_called(
    "te_lite.online.carried", "postponed"
)
SCOPE_LAW = f"the scope must be one of {', '.join(SCOPES)}"


def _forget_extents(stage: Stage) -> Stage:
    leaf = set(stage.leaf)
    forgot = [Iter(v.uid, v.name, None, v.kind, v.annotation) if v.uid in leaf else v for v in stage.vars]
    return replace(stage, vars=tuple(forgot))


def _name(state: State, k: int) -> str:
    return state.stages[k].op.name


def apply_compute_at(state: State, step: ComputeAt) -> State:
    stage, target = state.stages[step.stage], state.stages[step.target]
    subject = f"compute_at {stage.op.name}"
    require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
    require(step.stage < step.target, ScheduleError, subject, "the target must come later", target=target.op.name)
    require(target.where != INLINED, ScheduleError, subject, "the target is inlined", target=target.op.name)
    require(not state.access.is_output(step.stage), ScheduleError, subject, "an output is computed at root")
    ok = 0 <= step.target_iter < len(target.leaf)
    law = f"{target.op.name} has {len(target.leaf)} loops"
    require(ok, ScheduleError, subject, law, loop=step.target_iter)
    attach = Attach(step.target, target.leaf[step.target_iter], len(state.steps))
    return state.with_stage(step.stage, replace(_forget_extents(stage), where=ATTACHED, attach=attach, along=False))


def apply_compute_along(state: State, step: ComputeAlong) -> State:
    """What the stage is to its target, and what else refers to it, is looked at when it is lowered."""
    stage, target = state.stages[step.stage], state.stages[step.target]
    subject = f"compute_along {stage.op.name}"
    law = "it and the target must be reductions over axes of the same extents"
    extents = [[v.extent for v in s.op.reduce_axis] for s in (stage, target)]
    require(bool(extents[0]) and extents[0] == extents[1], ScheduleError, subject, law, extents=extents)
    state = apply_compute_at(state, ComputeAt(step.stage, step.target, step.target_iter))
    return state.with_stage(step.stage, replace(state.stages[step.stage], along=True))


def apply_compute_inline(state: State, step: ComputeInline) -> State:
    stage = state.stages[step.stage]
    subject = f"compute_inline {stage.op.name}"
    require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
    require(not stage.op.reduce_axis, ScheduleError, subject, "a reduction cannot be inlined")
    require(not state.access.is_output(step.stage), ScheduleError, subject, "an output cannot be inlined")
    attached = _attached_names(state, step.stage)
    require(not attached, ScheduleError, subject, "other stages are attached to it", attached=attached)
    return state.with_stage(step.stage, replace(stage, where=INLINED, attach=None, along=False))


def apply_compute_root(state: State, step: ComputeRoot) -> State:
    stage = state.stages[step.stage]
    require(not stage.is_placeholder, ScheduleError, f"compute_root {stage.op.name}", "an input is not computed")
    return state.with_stage(step.stage, replace(_forget_extents(stage), where=ROOT, attach=None, along=False))


def apply_double_buffer(state: State, step: DoubleBuffer) -> State:
    """What can never be double-buffered is refused here; its place is known, and looked at, when it is lowered."""
    return _fetched_ahead(state, step.stage, 2, "double_buffer")


def apply_pipeline(state: State, step: Pipeline) -> State:
    """As `apply_double_buffer`, with room for more tiles."""
    name = state.stages[step.stage].op.name
    ok = 2 <= step.tiles <= MOST_TILES
    require(ok, ScheduleError, f"pipeline {name}", f"2 to {MOST_TILES} tiles are possible", tiles=step.tiles)
    return _fetched_ahead(state, step.stage, step.tiles, "pipeline")


def _fetched_ahead(state: State, k: int, tiles: int, primitive: str) -> State:
    stage = state.stages[k]
    subject = f"{primitive} {stage.op.name}"
    require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
    require(not state.access.is_output(k), ScheduleError, subject, "an output has one place in memory")
    require(not stage.op.reduce_axis, ScheduleError, subject, "a reduction cannot be fetched ahead")
    scope = stage.op.scope
    kept = storage_class(scope) in ("", "shared")
    require(kept, ScheduleError, subject, "the storage must be shared memory", scope=scope)
    require(not stage.double_buffer, ScheduleError, subject, "it is double-buffered already")
    return state.with_stage(k, replace(stage, tiles=tiles))


def apply_set_scope(state: State, step: SetScope) -> State:
    """Where the stage is kept decides how far its regions reach, so this comes before extents are known."""
    stage = state.stages[step.stage]
    subject = f"set_scope {stage.op.name}"
    require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
    require(not state.access.is_output(step.stage), ScheduleError, subject, "an output is in global storage")
    law = f"the scope must be one of {ANY_SCOPE}"
    require(is_scope(step.scope), ScheduleError, subject, law, scope=step.scope)
    ok = not stage.double_buffer or step.scope == "shared"
    require(ok, ScheduleError, subject, "it is double-buffered, in shared memory", scope=step.scope)
    return state.with_stage(step.stage, replace(stage, op=in_scope(stage.compute, step.scope)))


def _insert(state: State, position: int, stage: Stage) -> State:
    """Put a stage at `position`; references to later stages move on."""
    shifted = [
        replace(s, attach=replace(s.attach, stage=s.attach.stage + 1))
        if s.attach is not None and s.attach.stage >= position
        else s
        for s in state.stages
    ]
    return replace(state, stages=(*shifted[:position], stage, *shifted[position:]))


def _require_readers(state: State, step: CacheRead, subject: str) -> None:
    for r in step.readers:
        reads = r in state.access.read_by[step.stage]
        name = _name(state, r) if r < len(state.stages) else r
        require(reads, ScheduleError, subject, "each reader must read it", reader=name)
    require(len(step.readers) > 0, ScheduleError, subject, "at least one reader is needed")
    once = len(set(step.readers)) == len(step.readers)
    require(once, ScheduleError, subject, "a reader is named twice", readers=step.readers)


def apply_cache_read(state: State, step: CacheRead) -> State:
    source = state.stages[step.stage].op
    subject = f"cache_read {source.name}"
    require(source.num_outputs == 1, ScheduleError, subject, "an operation with several outputs cannot be cached")
    require(step.scope in SCOPES, ScheduleError, subject, SCOPE_LAW, scope=step.scope)
    _require_readers(state, step, subject)
    tensor = source.output()
    cache = cache_read_op(tensor, step.scope, cache_name(tensor.name, step.scope, [op.name for op in state.ops]))
    for r in step.readers:
        reader = state.stages[r]
        state = state.with_stage(r, replace(reader, op=redirect_reads(reader.compute, tensor, cache.output())))
    return _insert(state, step.stage + 1, fresh_stage(cache))


def apply_reindex(state: State, step: Reindex) -> State:
    source, reader = state.stages[step.stage].op, state.stages[step.reader]
    subject = f"reindex {source.name}"
    require(source.num_outputs == 1, ScheduleError, subject, "an operation with several outputs cannot be cached")
    require(step.scope in SCOPES, ScheduleError, subject, SCOPE_LAW, scope=step.scope)
    reads = step.reader in state.access.read_by[step.stage]
    require(reads, ScheduleError, subject, "the reader must read it", reader=reader.op.name)
    law = "it must be read in one way alone, at axes of its reader, and without a condition"
    read = plain_read(reader.compute, source.output())
    require(read is not None, ScheduleError, subject, law, reader=reader.op.name)
    assert read is not None
    axes = len(axes_in_order(read))
    ok = step.tile == () or (len(step.tile) == 2 and 0 <= step.tile[0] < axes and step.tile[1] > 0)
    require(ok, ScheduleError, subject, f"a tile is one of {axes} axes and its length", tile=step.tile)
    name = cache_name(source.name, step.scope, [op.name for op in state.ops])
    copy, new = reindex_ops(reader.compute, source.output(), step.scope, name, step.tile)
    return _insert(state.with_stage(step.reader, replace(reader, op=new)), step.stage + 1, fresh_stage(copy))


def _require_unscheduled(stage: Stage, uids: range, subject: str) -> None:
    """The new stages start afresh: what was done to the axes `uids` would be lost."""
    loops = [it for it in stage.iters if it.kind != REDUCE or it.uid in uids]
    natural = [it.uid for it in loops] == list(uids) and all(it.annotation == "none" for it in loops)
    ok = natural and not stage.auto_unroll_max_step and not stage.pragmas and stage.storage_align is None
    ok = ok and stage.storage_order is None and not stage.double_buffer and not stage.swizzled
    law = "it must come before other steps on these loops"
    require(ok, ScheduleError, subject, law, loops=[it.name for it in loops])


def _attached_names(state: State, k: int) -> list[str]:
    return [s.op.name for s in state.stages if s.attach is not None and s.attach.stage == k]


def apply_cache_write(state: State, step: CacheWrite) -> State:
    stage = state.stages[step.stage]
    subject = f"cache_write {stage.op.name}"
    require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
    require(stage.where == ROOT, ScheduleError, subject, "cache before moving the stage", where=stage.where)
    require(step.scope in SCOPES, ScheduleError, subject, SCOPE_LAW, scope=step.scope)
    attached = _attached_names(state, step.stage)
    require(not attached, ScheduleError, subject, "other stages are attached to it", attached=attached)
    _require_unscheduled(stage, range(len(stage.vars)), subject)
    name = cache_name(stage.op.name, step.scope, [op.name for op in state.ops])
    cache, copy = cache_write_ops(stage.compute, step.scope, name, [op.key for op in state.ops])
    state = _insert(state, step.stage, fresh_stage(cache))
    return state.with_stage(step.stage + 1, fresh_stage(copy))


def apply_join_axes(state: State, step: JoinAxes) -> State:
    stage = state.stages[step.stage]
    subject, op = f"join_axes {stage.op.name}", stage.op
    require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
    own = not state.access.is_output(step.stage) and op.key not in [t.op.key for t in state.dag.tensors]
    require(own, ScheduleError, subject, "arguments of the program are stored as their caller does")
    ok = step.count > 1 and step.first + step.count <= len(op.axis)
    law = f"it has {len(op.axis)} axes, of which two or more can be joined"
    require(ok, ScheduleError, subject, law, first=step.first, count=step.count)
    known = op.num_outputs == 1 and all(isinstance(v.extent, int) for v in op.reduce_axis)
    require(known, ScheduleError, subject, "it must have one output, and reduction axes of known extents")
    attached = _attached_names(state, step.stage)
    require(stage.where == ROOT and not attached, ScheduleError, subject, "join before moving it", attached=attached)
    _require_unscheduled(stage, range(len(stage.vars)), subject)
    joined = joined_op(stage.compute, step.first, step.count)
    for r in state.access.read_by[step.stage]:
        reader = state.stages[r]
        new = read_joined(reader.compute, op.output(), joined.output(), step.first)
        state = state.with_stage(r, replace(reader, op=new))
    return state.with_stage(step.stage, fresh_stage(joined))


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
    attached = _attached_names(state, step.stage)
    require(not attached, ScheduleError, subject, "other stages are attached to it", attached=attached)
    _require_unscheduled(stage, range(rank), subject)
    for it in stage.iters:
        ok = it.kind != REDUCE or isinstance(it.extent, int)
        require(ok, ScheduleError, subject, "the extents of its loops must be known", loop=it.name, extent=it.extent)


def apply_rfactor(state: State, step: RFactor) -> State:
    _require_factorable(state, step)
    stage = state.stages[step.stage]
    loops = tuple([Iter(v.uid, v.name, v.extent, v.kind) for v in stage.vars])
    plain = Stage(stage.op, loops, stage.leaf, stage.relations)
    rf, repl = _factored(plain, stage.leaf[step.iter], step.factor_iter)
    state = _insert(state, step.stage, fresh_stage(rf))
    return state.with_stage(step.stage + 1, replace(fresh_stage(repl), where=stage.where, attach=stage.attach))


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


def apply_join_reductions(state: State, step: JoinReductions) -> State:
    first, second = state.stages[step.stage], state.stages[step.other]
    subject = f"join_reductions {first.op.name}"
    for k, stage in ((step.stage, first), (step.other, second)):
        require(stage.op.reduction is not None, ScheduleError, subject, "is for reductions", stage=stage.op.name)
        attached = _attached_names(state, k)
        require(not attached, ScheduleError, subject, "other stages are attached to one", attached=attached)
        _require_unscheduled(stage, range(len(stage.vars)), subject)
    hidden = tuple([s.compute for s in state.stages if s.where == INLINED])
    found = joined_ops(first.compute, second.compute, hidden)
    if found is None:
        raise ScheduleError(
            f"{subject}: {second.op.name} must be a sum of terms that can be carried (te_lite/online/online.py)"
        )
    for k, op in zip((step.stage, step.other), found[1:], strict=True):
        old = state.stages[k]
        state = state.with_stage(k, replace(fresh_stage(op), where=old.where, attach=old.attach))
    return _insert(state, step.stage, fresh_stage(found[0]))


def apply_postpone_division(state: State, step: PostponeDivision) -> State:
    part, total = state.stages[step.stage], state.stages[step.total]
    subject = f"postpone_division {part.op.name}"
    require(not part.is_placeholder, ScheduleError, subject, "an input is not computed")
    require(total.op.reduction is not None, ScheduleError, subject, "the total must be a sum", total=total.op.name)
    others = [_name(state, r) for r in state.access.read_by[step.stage] if r != step.total]
    shown = part.op.key in [t.op.key for t in state.dag.tensors]
    require(not others and not shown, ScheduleError, subject, "the sum alone must read it", readers=others)
    attached = _attached_names(state, step.total)
    require(not attached, ScheduleError, subject, "other stages are attached to the sum", attached=attached)
    _require_unscheduled(total, range(len(total.vars)), subject)
    found = postponed(part.compute, total.compute, state.ops)
    if found is None:
        raise ScheduleError(
            f"{subject}: {total.op.name} must sum up products with shares of a whole (te_lite/online/carried.py)"
        )
    undivided, sums, quotient = found
    state = state.with_stage(step.stage, replace(part, op=undivided))
    state = state.with_stage(step.total, replace(fresh_stage(quotient), where=total.where, attach=total.attach))
    return _insert(state, step.total, fresh_stage(sums))
