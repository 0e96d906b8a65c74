"""Attention on tensor cores: softmax(Q K^T) V in one kernel, whose scores never leave the registers.

    for heads, block of queries                      blockIdx.x
      for warp of queries                            threadIdx.y
        Q                                            fragments, once
        for iteration of keys                        and for each:
          K.shared, V.shared                         fetched ahead
          scores += Q[i] * K[j]                      mma.sync
          maximum                                    along the iterations, by the lanes that share a row
          exp(scores - maximum)
          total of these                             along the iterations, too
          for step of 16 keys
            sums[i, d] += exp[i, j] * V[j, d]        mma.sync, carried to the maximum of the iteration
        out = sums / total                           and what follows element by element

Two steps of our own make this of the definition (`online/rescaling.py`): the division by the total is postponed
until all is summed up, and maximum and total are computed along the iterations of the sums, which are carried along.
Whatever is done to the scores element by element before (a scale, a mask) is part of it.  Scores in the layout of sums
of one product are the factor of the next one in the same lanes: `chained` instructions have it so.

All numbers are those of the sketch (`Grain`): warps of a block, tiles of 16 queries of a warp, keys of an iteration,
tiles of keys that there is room for.  Those are tried that fit the registers of a thread, by an estimate.

On a Hopper there are sketches for groups of warps besides (`wgmma`), whose tiles the copy engine fetches: Q stays in
shared memory, and products and softmax overlap (`tensor_core/chained_ring.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ansor.sketch.rule import SketchContext
from te_lite.computation.tensor import ComputeOp, Tensor
from te_lite.expr.expr import Expr, Load
from te_lite.expr.lanes import ceildiv
from te_lite.expr.visit import walk
from te_lite.schedule.schedule import Loop, Schedule, StageHandle
from te_lite.schedule.state import State

from ..analysis.own_stages import elementwise_reader, extents_of
from ..analysis.product_roles import Factor
from ..online.rescaling import share
from ..pipeline.steps import COPY_ENGINE
from ..tensor_core.mma import MMA, ROW_BYTES, ROWS, Mma, chained
from ..tensor_core.product_factors import Warps, fetched, loaded, shared_copy, sides
from ..tensor_core.product_roles import Roles, has_instruction, is_stored, roles_of
from .grains import LINE, QUERIES, Attention, Grain, grains, group_grains

MERGED_COLUMNS, MERGED_PARTS, MERGED_AT_ONCE = 32, 16, 4
"""Threads of a block that adds up parts, along columns and along parts, and the parts that one reads at a time."""


def attention_sketches(ctx: SketchContext) -> list[State]:
    """The sketches of a computation that is attention; none for another."""
    start = ctx.dag.init_state
    found = attention_of(ctx, start) if ctx.target.is_gpu else None
    if found is None:
        return []
    of_groups = in_groups(ctx, start, found)
    out = [] if of_groups is None else [(of_groups, x) for x in group_grains(start, of_groups, ctx.hardware)]
    out += [(found, grain) for grain in grains(start, found, ctx.hardware)]
    return [scheduled(start, made, grain) for made, grain in out]


# ------------------------------------------------------------------------------------------------ which computations


def attention_of(ctx: SketchContext, state: State) -> Attention | None:
    """The parts of a computation that is attention on tensor cores; None for another."""
    reductions = [k for k, s in enumerate(state.stages) if not s.is_placeholder and s.op.reduction is not None]
    tried = [(k, roles_of(ctx.target, state, k, few=QUERIES)) for k in reductions]
    products = [(k, roles) for k, roles in tried if roles is not None]
    if len(reductions) != 4 or len(products) != 2 or len(state.dag.outputs) != 1:
        return None
    (scores, of_scores), (sums, of_sums) = products
    part, total = state.stages[of_sums.a.stage], state.stages[sums].compute
    if part.is_placeholder or part.op.reduction is not None or of_sums.op != of_scores.op:
        return None
    found, op = share(part.compute, state.ops), chained(of_sums.op)
    if found is None or op is None or op.sum.dtype != "float32":
        return None
    of_sums = replace(of_sums, op=op)
    term, whole = _read(found.undivided), found.whole.tensor.op
    if not isinstance(term, ComputeOp) or term.reduction is not None or not isinstance(whole, ComputeOp):
        return None
    made = Attention(scores, found.extreme, term, part.compute, whole, sums, of_scores, of_sums)
    keys = [op.key for op in state.ops]
    ends = {of_sums.a.stage, keys.index(whole.key)}
    own = set(state.access.read_by[of_sums.a.stage]) == {sums} and _leads_to(state, keys.index(term.key), ends)
    stored = own and root_of(state, sums) in state.dag.outputs
    return made if stored and _fits_together(state, made, total) else None


def in_groups(ctx: SketchContext, state: State, made: Attention) -> Attention | None:
    """The same with instructions of groups of warps; None where they, or the copy engine, cannot compute it."""
    op = next((x for x in MMA.values() if x.warps > 1 and (x.element, x.sum) == (made.op.element, made.op.sum)), None)
    if op is None or op.element.nbytes != 2 or not has_instruction(ctx.target, op) or made.of_sums.b.reindexed:
        return None
    factors = [made.of_scores.a, made.of_scores.b, made.of_sums.b]
    rows = [state.stages[f.stage].op.output().shape[-1] * op.element.nbytes for f in factors]
    columns, terms = state.stages[made.sums].op.shape[-1], extents_of(state.stages[made.scores].op)[-1]
    fits = columns % op.n == 0 and 2 * min(columns, terms) > LINE
    fits = (
        fits and not _few_queries(state, made) and all(is_stored(state, f.stage) and not f.reindexed for f in factors)
    )
    if not fits or any(n % ROW_BYTES for n in rows):
        return None
    of_scores, of_sums = replace(made.of_scores, op=op), replace(made.of_sums, op=op)
    return replace(made, of_scores=of_scores, of_sums=of_sums)


def _few_queries(state: State, made: Attention) -> bool:
    """Whether the queries are no more than the rows of a tile of one warp."""
    return bool(state.stages[made.scores].op.shape[-QUERIES] <= made.op.m)


def _leads_to(state: State, k: int, ends: set[int]) -> bool:
    """Whether stage k is read for the stages `ends` alone, by these or by what they read element by element."""
    readers = set(state.access.read_by[k]) - ends
    apart = any(state.stages[r].op.reduce_axis or state.access.is_output(r) for r in readers)
    return not apart and all(_leads_to(state, r, ends) for r in readers)


def root_of(state: State, sums: int) -> Tensor:
    """What is stored of the sums: themselves, or what is made of them element by element."""
    last = sums
    while (reader := elementwise_reader(state, last)) is not None:
        last = reader
    return state.stages[last].op.output()


def _read(e: Expr) -> object:
    """The one operation that a value reads."""
    read = {x.tensor.op for x in walk(e) if isinstance(x, Load)}
    return read.pop() if len(read) == 1 else None


def _fits_together(state: State, made: Attention, total: ComputeOp) -> bool:
    """Whether rows are queries and columns of the scores are keys, for all stages in the same order of axes."""
    scores, roles, rank = state.stages[made.scores].op, made.of_scores, len(made.extreme.axis)
    space = len(scores.axis)
    one = (roles.m, roles.n) == (space - 2, space - 1) and rank == space - 1 and len(total.axis) == space
    one = one and len(scores.reduce_axis) == len(total.reduce_axis) == 1 and made.of_sums.m == space - 2
    shapes = [op.shape for op in (made.term, made.part)]
    one = one and shapes == [scores.shape] * 2 and made.extreme.shape == made.whole.shape == scores.shape[:-1]
    one = one and (made.of_sums.a.side, made.of_sums.a.terms) == (space - 2, space - 1) and made.of_sums.n == space - 1
    return one and _reads_own(state, made.scores)


def _reads_own(state: State, scores: int) -> bool:
    """Whether the scores are read at the points of their readers alone."""
    reads = [(state.ops[r], at) for r, found in state.access.read_by[scores].items() for at in found]
    return all(tuple(at) == (*op.axis, *op.reduce_axis) for op, at in reads)


# -------------------------------------------------------------------------------------------------------- schedule


def scheduled(start: State, made: Attention, grain: Grain) -> State:
    """The program of a grain."""
    s, op, before = Schedule(start), made.op, made.of_scores.op
    scores, total = [start.stages[k].op.output() for k in (made.scores, made.sums)]
    sources = [start.stages[f.stage].op.output() for f in (made.of_scores.a, made.of_scores.b, made.of_sums.b)]
    extreme, term, part, whole = [x.output() for x in (made.extreme, made.term, made.part, made.whole)]
    root = root_of(start, made.sums)
    _inlined(s, {root, term, part})
    sums = s.postpone_division(part, total)
    stored = sums if grain.part else root
    if grain.part:
        sums = s.cache_write(stored, f"fragment.{op.name}.d")
        _merged(s, root, s.carry_parts(total, grain.part)[0])
    if root != total:
        s[total].compute_inline()
    _in_registers(s, before, {"d": (scores, term), ROWS: (extreme, whole)})
    _in_registers(s, op, {"d": (sums,), "a": (part,)} if not grain.part else {"a": (part,)})
    factors, ops = [made.of_scores.a, made.of_scores.b, made.of_sums.b], [before, before, op]
    few = _few_queries(start, made) and not factors[0].reindexed
    shared = [
        x if few and f is factors[0] else shared_copy(s, f, x, to)
        for f, x, to in zip(factors, sources, (scores, scores, sums), strict=True)
    ]
    parts = [
        s.cache_read(x, f"fragment.{of.name}.{name}", [to])
        for x, of, name, to in zip(shared, ops, "abb", (scores, scores, sums), strict=True)
    ]
    warp = _stored(s, stored, made.of_sums, grain)
    for x in (sums, *([] if few else shared[:1]), *([] if grain.groups else parts[:1])):
        s[x].compute_at(s[stored], warp)
    iteration, step = _multiplied(s, sums, made.of_sums, grain.keys // op.k)
    for x in (scores, term, *shared[1:]):
        s[x].compute_at(s[sums], iteration)
    for x in (extreme, whole):
        s[x].compute_along(s[sums], iteration)
    _, step_of_scores = _multiplied(s, scores, made.of_scores, 0)
    for x in parts[not grain.groups : 2]:
        s[x].compute_at(s[scores], step_of_scores)
    for x in (parts[2], part):
        s[x].compute_at(s[sums], step)
    rows = [start.stages[made.scores].op.reduce_axis[0].extent] * 2 + [total.shape[-1]]
    for k, (factor, of, row) in enumerate(zip(factors, ops, rows, strict=True)):
        if few and k == 0:
            *_, values = s[parts[k]].split_fragment(*sides(s[parts[k]], factor, "a"), f"{of.name}.a")
            s[parts[k]].vectorize(values[-1])
        else:
            _brought(s[shared[k]], factor, of, grain, grain.tiles if k else 1, ceildiv(row, of.k) * of.k)
            loaded(s[parts[k]], factor, of, "abb"[k], 1 if grain.groups and row % (2 * of.n) and k == 2 else 2)
    s[part].split_fragment(*s[part].leaf_iter_vars[-2:], f"{op.name}.a")
    for x in (term, extreme, whole):
        *_, queries, keys = s[x].leaf_iter_vars
        if few:  # a tile however few there are
            _, queries = s[x].split(queries, before.m)
        s[x].split_fragment(queries, keys, f"{before.name}.d")
    return s.state


def _brought(tile: StageHandle, factor: Factor, op: Mma, grain: Grain, tiles: int, row: int) -> None:
    """A tile of so many terms or columns in shared memory, or `tiles` of them ahead."""
    if not grain.groups:
        fetched(tile, factor, op, Warps(count=grain.warps), row * op.element.nbytes)
    if tiles > 1:
        tile.pipeline(tiles, COPY_ENGINE if grain.groups else "")
    elif grain.groups:
        tile.swizzle(1)


def _in_registers(s: Schedule, op: Mma, kept: dict[str, Sequence[Tensor]]) -> None:
    for operand, tensors in kept.items():
        for x in tensors:
            s[x].set_scope(f"fragment.{op.name}.{operand}")


def _inlined(s: Schedule, own: set[Tensor]) -> None:
    """All other stages that are computed element by element stand where they are read."""
    for stage in s.state.stages:
        if not stage.is_placeholder and stage.op.reduction is None and stage.op.output() not in own:
            s[stage.op.output()].compute_inline()


def _stored(s: Schedule, out: Tensor, roles: Roles, grain: Grain) -> Loop:
    """Blocks, warps and lanes of the result; gives the loop over warps."""
    root, op = s[out], roles.op
    *outer, queries, columns = root.leaf_iter_vars
    block, rows = root.split(queries, grain.warps * grain.queries * op.m)
    warp, rows = root.split(rows, grain.queries * op.m)
    blocks = (block, *outer) if grain.heads_inside else (*outer, block)
    root.reorder(*blocks, warp, rows, columns)
    root.bind(root.fuse(*blocks), "blockIdx.x")
    root.bind(warp, "threadIdx.y")
    *_, values = root.split_fragment(rows, columns, f"{op.name}.d")
    root.vectorize(values[-1])
    return warp


def _merged(s: Schedule, out: Tensor, triples: Tensor) -> None:
    """The kernel that adds up what parts gave, and what follows: threads along columns, and along parts."""
    root = s[out]
    *rows, columns = root.leaf_iter_vars
    block, columns = root.split(columns, MERGED_COLUMNS)
    root.bind(root.fuse(*rows, block), "blockIdx.x")
    root.bind(columns, "threadIdx.x")
    s[triples].set_scope("local")
    s[triples].compute_at(root, columns)
    rest, part = s[triples].split(s[triples].leaf_iter_vars[-1], MERGED_PARTS)
    s[triples].bind(part, "threadIdx.y")
    s[triples].unroll(s[triples].split(rest, MERGED_AT_ONCE)[1])


def _multiplied(s: Schedule, out: Tensor, roles: Roles, steps: int) -> tuple[Loop, Loop]:
    """The loops of a product, in turns of so many steps if given; gives the loops over iterations and steps."""
    stage, op = s[out], roles.op
    *outer, rows, columns, terms = stage.leaf_iter_vars
    tile_i, i = stage.split(rows, op.m)
    tile_j, j = stage.split(columns, op.n)
    step, k = stage.split(terms, op.k)
    iterations = []
    if steps:
        iteration, step = stage.split(step, steps)
        iterations = [iteration]
    stage.reorder(*outer, *iterations, step, tile_i, tile_j, i, j, k)
    stage.tensorize(i)
    return (iterations or [step])[0], step
