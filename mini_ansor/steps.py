"""TVM's fourteen steps, and the state that a list of them makes of a computation.

Each step is a function that takes a state to the next.  The arguments behind the state are the fields of TVM's record
format, in order; `k` is the number of the stage.  Positions of loops and numbers of stages are those before the step.
A length of None is a hole: the state is a sketch.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from .expr import Axis, Call, Const, Expr, Load, Op, Reduce, binary, proven, substitute, transform
from .program import FuseRel, Iter, Length, Lengths, Relation, SplitRel, Stage, State, Step, StepError
from .program import fresh, initial, product

Numbers = tuple[int, ...]
Function = TypeVar("Function", bound=Callable[..., State])
STEPS: dict[str, Callable[..., State]] = {}  # by their letters


def step(tag: str) -> Callable[[Function], Function]:
    """Makes a step of a function: its letters and arguments go behind the steps of the state that it makes."""

    def made(function: Function) -> Function:
        @wraps(function)
        def recorded(state: State, k: int, *fields: Any) -> State:
            if not 0 <= k < len(state.stages):
                raise StepError(f"{tag}: there are {len(state.stages)} stages, got stage {k}")
            return replace(function(state, k, *fields), steps=(*state.steps, Step(tag, (k, *fields))))

        STEPS[tag] = recorded
        return cast(Function, recorded)

    return made


def replay(args: Sequence[Op], steps: Iterable[Step]) -> State:
    """The state that `steps` make.  Raises StepError for one that does not fit."""
    state = initial(args)
    for s in steps:
        state = STEPS[s.tag](state, *s.args)
    return state


# ------------------------------------------------------------------------------------------------- steps on one stage
@step("AN")
def annotate(state: State, k: int, position: int, annotation: str) -> State:
    """Mark a loop as parallel, vector, unrolled, block or thread."""
    stage, it = state.stages[k], _loop(state, k, position)
    if it.annotation != "none":
        raise StepError(f"{stage.op.name}: {it.name} is {it.annotation} already")
    iters = list(stage.iters)
    iters[it.id] = replace(it, annotation=annotation)
    return state.update(k, iters=tuple(iters))


@step("FU")
def fuse(state: State, k: int, positions: Numbers) -> State:
    """One loop of neighbouring ones; of none, an outermost loop of extent 1."""
    stage = state.stages[k]
    if not positions:
        unit = Iter(len(stage.iters), "", 1, "special")
        return state.update(k, iters=(*stage.iters, unit), loops=(unit.id, *stage.loops))
    parts = [_loop(state, k, p) for p in positions]
    if any(state.attached(k, part.id) for part in parts[:-1]):
        raise StepError(f"{stage.op.name}: only the last of the loops that are fused may have stages inside")
    kinds, extent = {p.kind for p in parts}, product([p.extent for p in parts])
    name = "".join(f"{p.name}@" for p in parts)
    fused = Iter(len(stage.iters), name, extent, kinds.pop() if len(kinds) == 1 else "mixed")
    relation = FuseRel(tuple(p.id for p in parts), fused.id)
    return _replaced(state, k, positions[0], len(parts), [fused], relation)


@step("PR")
def pragma(state: State, k: int, position: int, text: str) -> State:
    """`auto_unroll_max_step$N`: inner loops are unrolled up to N statements."""
    name, _, value = text.partition("$")
    if name != "auto_unroll_max_step" or not value.isdigit():
        raise StepError(f"the pragma must be auto_unroll_max_step$N, got {text}")
    return state.update(k, auto_unroll=int(value))


@step("RE")
def reorder(state: State, k: int, order: Numbers) -> State:
    """Put the loops of the stage in another order."""
    stage = state.stages[k]
    if sorted(order) != list(range(len(stage.loops))):
        raise StepError(f"{stage.op.name}: each of the {len(stage.loops)} loops must be named once, got {order}")
    return state.update(k, loops=tuple(stage.loops[p] for p in order))


@step("SP")
def split(state: State, k: int, position: int, extent: int, lengths: Lengths, inner_to_outer: int) -> State:
    """`lengths` are those of the inner loops; the outermost is the rest, rounded up where they do not divide."""
    return _split(state, k, position, lengths, inner_to_outer)


@step("FSP")
def follow_split(state: State, k: int, position: int, source: int, n_split: int) -> State:
    """Split as step `source` did, its inner lengths taken together so that `n_split` are left."""
    lengths = _lengths(state, source)
    return _split(state, k, position, (*lengths[: n_split - 1], product(lengths[n_split - 1 :])))


@step("FFSP")
def follow_fused_split(state: State, k: int, position: int, sources: Numbers, level: int, inner_to_outer: int) -> State:
    """Split by the product of the lengths that the steps `sources` have at `level`."""
    return _split(state, k, position, (product([_lengths(state, s)[level] for s in sources]),), inner_to_outer)


@step("SA")
def storage_align(state: State, k: int, position: int, factor: int, offset: int) -> State:
    """Rows begin at `offset` modulo `factor` elements.  Kept in records; the texts here ignore it."""
    _loop(state, k, position)  # which must be there
    return state


def _loop(state: State, k: int, position: int) -> Iter:
    """The loop at a position of stage k, which must be there."""
    stage = state.stages[k]
    if not 0 <= position < len(stage.loops):
        raise StepError(f"{stage.op.name}: it has {len(stage.loops)} loops, got number {position}")
    return stage.iters[stage.loops[position]]


def _lengths(state: State, source: int) -> Lengths:
    """The lengths of step number `source`, which must be a split."""
    if not (0 <= source < len(state.steps) and state.steps[source].tag == "SP"):
        raise StepError(f"a split can follow a split only, got step {source}")
    return tuple(state.steps[source].args[3])


def _split(state: State, k: int, position: int, lengths: Lengths, inner_to_outer: int = 1) -> State:
    stage, parent = state.stages[k], _loop(state, k, position)
    if parent.annotation != "none" or not inner_to_outer:
        raise StepError(f"{stage.op.name}: {parent.name} is annotated, or its lengths are given from the outermost on")
    extents, rest = list[Length](), parent.extent
    for length in reversed(lengths):
        known = rest is not None and length is not None
        extents.insert(0, length if known else None)
        rest = -(-rest // length) if rest is not None and length is not None else None
    first = len(stage.iters)
    parts = [Iter(first + n, f"{parent.name}.{n}", e, parent.kind) for n, e in enumerate([rest, *extents])]
    return _replaced(state, k, position, 1, parts, SplitRel(parent.id, tuple(p.id for p in parts), lengths))


def _replaced(state: State, k: int, position: int, count: int, new: Sequence[Iter], relation: Relation) -> State:
    """`count` loops of stage k replaced; what was computed inside of them is computed inside the last new one."""
    stage = state.stages[k]
    old = stage.loops[position : position + count]
    loops = (*stage.loops[:position], *[it.id for it in new], *stage.loops[position + count :])
    stages = [replace(s, at=(k, new[-1].id)) if s.at in [(k, i) for i in old] else s for s in state.stages]
    iters, relations = (*stage.iters, *new), (*stage.relations, relation)
    stages[k] = replace(stages[k], iters=iters, loops=loops, relations=relations)
    return replace(state, stages=tuple(stages))


# ---------------------------------------------------------------------------------------------- steps between stages
@step("CA")
def compute_at(state: State, k: int, target: int, position: int) -> State:
    """Compute the stage inside a loop of another one."""
    if state.dag.is_output(k):
        raise StepError(f"{state.ops[k].name}: an output is computed at root")
    at, since = (target, _loop(state, target, position).id), len(state.steps)
    return state.update(k, where="iter", at=at, since=since, iters=_without_extents(state.stages[k]))


@step("CI")
def compute_inline(state: State, k: int) -> State:
    """Compute the stage where it is read."""
    op = state.ops[k]
    if op.body is None or op.reduce_axes or state.dag.is_output(k):
        raise StepError(f"{op.name}: inputs, outputs and reductions cannot be inlined")
    return state.update(k, where="inlined", at=None)


@step("CR")
def compute_root(state: State, k: int) -> State:
    """Compute the stage on its own."""
    return state.update(k, where="root", at=None, iters=_without_extents(state.stages[k]))


@step("CHR")
def cache_read(state: State, k: int, scope: str, readers: Numbers) -> State:
    """A stage that copies the tensor to `scope` for its `readers`."""
    source = state.ops[k]
    name = _free_name(state, source.name, scope)
    axes = tuple(Axis(f"ax{d}", n) for d, n in enumerate(source.shape))
    copy = Op(name, axes, Load(source, axes), source.dtype, name, scope=scope)

    def redirected(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.op.key == source.key:
            return Load(copy, tuple(transform(i, redirected) for i in e.indices))
        return None

    for r in readers:
        op = state.ops[r]
        state = state.update(r, op=replace(op, body=transform(_body(op), redirected)))
    return state.inserted(k + 1, fresh(copy))


@step("CHW")
def cache_write(state: State, k: int, scope: str) -> State:
    """A stage in `scope` that computes what the stage, made anew, then copies out."""
    op = state.ops[k]
    name = _free_name(state, op.name, scope)
    axes = tuple(Axis(f"{a.name}.c", a.extent) for a in op.axes)
    body = substitute(_body(op), dict(zip(op.axes, axes, strict=True)))
    cache = Op(name, axes, body, op.dtype, name, op.attrs, scope)
    copy = replace(op, body=Load(cache, op.axes), attrs=())
    return state.update(k, **vars(fresh(copy))).inserted(k, fresh(cache))


@step("RF")
def rfactor(state: State, k: int, position: int, at: int) -> State:
    """Make an axis of a loop of a reduction: `<op>.rf` has a result for each iteration, `<op>.repl` folds these."""
    stage, loop, op = state.stages[k], _loop(state, k, position), state.ops[k]
    if not isinstance(op.body, Reduce) or loop.kind != "reduce":
        raise StepError(f"{op.name}: {loop.name} is no loop of a reduction")
    fold, names = op.body.fold, te_names(stage)
    axes = tuple(Axis(a.name, a.extent) for a in op.axes)
    loops = {it.id: Axis(names[it.id], it.length) for it in stage.current if it.kind == "reduce"}
    values = axis_values(stage, loops)
    point = {a: values[stage.rank + n] for n, a in enumerate(op.reduce_axes)}
    source = substitute(op.body.source, {**dict(zip(op.axes, axes, strict=True)), **point})
    for guard in split_guards(stage, loops):  # a loop that goes beyond the end of its axis folds the identity
        source = Call("select", (guard, source, op.body.identity), source.dtype)
    rest = tuple(a for i, a in loops.items() if i != loop.id)
    body = Reduce(fold, source, rest) if rest else source
    rf_axes = (*axes[:at], loops[loop.id], *axes[at:])
    rf = replace(op, name=f"{op.name}.rf", key=f"{op.key}.rf", axes=rf_axes, body=body)
    space = tuple(Axis(f"ax{d}", n) for d, n in enumerate(op.shape))
    along = Axis(f"{names[loop.id]}.v", loop.length)
    total = Reduce(fold, Load(rf, (*space[:at], along, *space[at:])), (along,))
    repl = replace(op, name=f"{op.name}.repl", axes=space, body=total, attrs=())
    anew = {**vars(fresh(repl)), "where": stage.where, "at": stage.at}
    return state.update(k, **anew).inserted(k, fresh(rf))


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


# ------------------------------------------------------------------------------------------ what loops say about axes
def axis_values(stage: Stage, loops: dict[int, Any]) -> dict[int, Expr]:
    """The value of every iterator, by id, that the values `loops` of some loops determine."""
    values: dict[int, Expr] = dict(loops)
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRel) and all(p in values for p in rel.parts):
            parent: Expr = Const(0)
            for part, stride in zip(rel.parts, rel.strides, strict=True):
                parent = binary("+", parent, binary("*", values[part], stride))
            values[rel.parent] = parent
        elif isinstance(rel, FuseRel) and rel.fused in values:
            rest = values[rel.fused]
            for p in reversed(rel.parts[1:]):
                extent = stage.iters[p].length
                values[p], rest = binary("%", rest, extent), binary("//", rest, extent)
            values[rel.parts[0]] = rest
    return values


def split_guards(stage: Stage, loops: dict[int, Any]) -> list[Expr]:
    """What must hold for a point of the loops to be one of the axes: lengths need not divide extents."""
    values = axis_values(stage, loops)
    parents = [rel.parent for rel in stage.relations if isinstance(rel, SplitRel) and rel.parent in values]
    guards = [binary("<", values[parent], stage.iters[parent].length) for parent in parents]
    return [guard for guard in guards if not proven(guard)]


def te_names(stage: Stage) -> dict[int, str]:
    """The names that TVM's schedules give loops: `k.outer.inner`, `i.j.fused`."""
    names = {n: a.name for n, a in enumerate(stage.op.all_axes)}
    for rel in stage.relations:
        if isinstance(rel, FuseRel):
            names[rel.fused] = names[rel.parts[0]] + "".join(f".{names[p]}.fused" for p in rel.parts[1:])
        else:
            last = len(rel.parts) - 1
            for n, p in enumerate(rel.parts):
                names[p] = names[rel.parent] + ".outer" * (last - n) + (".inner" if n else "")
    return names
