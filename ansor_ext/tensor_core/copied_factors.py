"""Factors that no ring can read as they lie are copied first: by a kernel before the product, with neighbours in memory
along the terms.

    C[m, n] = sum over k of A[m, k] * B[k, n]     becomes     T[n, k] = B[k, n]
                                                              C[m, n] = sum over k of A[m, k] * T[n, k]

Tensor cores of a Hopper read words of shared memory along the terms only, and the copy engine moves boxes as they lie.
A copy is made through tiles in shared memory, so that both of its sides are read and written in whole lines.
"""

from __future__ import annotations

from ansor.core.target.target import FP32X3, Target
from te_lite.computation.tensor import Tensor
from te_lite.expr.expr import IterVar, Load
from te_lite.expr.visit import walk
from te_lite.schedule.schedule import Schedule
from te_lite.schedule.state import ATTACHED, State

from ..analysis.own_stages import axes_read, extents_of
from ..analysis.product_roles import factors_read, sides_of
from ..axes.derive import axes_in_order, plain_read
from .float_parts import has_parts
from .product_roles import instruction_of

COLUMNS, TERMS, LANES, ROWS = 32, 64, 32, 8
"""Of a tile, and the threads that copy it: rows of a warp each."""
VECTOR, THREADS = 4, 256
"""Floats that a thread copies, and threads of a block, where nothing is turned."""


def is_copied(state: State, k: int) -> bool:
    """Whether stage `k` is such a copy, or the tiles that it is made from."""
    made = [(x, stage.compute) for x, stage in enumerate(state.stages) if not stage.is_placeholder]
    found = [x for x, op in made if op.scope == "global" and op.key[0] in ("RIX", "PRT")]
    return k in found or any(k in state.access.read_from[x] and state.stages[k].where == ATTACHED for x in found)


def with_copies(target: Target, start: State) -> State | None:
    """A state in which all factors of products for rings lie along their terms, one of floats in parts; None where they
    do without copies, or cannot."""
    s = Schedule(start)
    for key in [stage.op.key for stage in start.stages if not stage.is_placeholder]:
        k = next(k for k, stage in enumerate(s.state.stages) if stage.op.key == key)
        product, made = s.state.stages[k].op.output(), []
        for source, tile, parts in _factors(target, s.state, k):
            copy = s.reindex(source, "global", product, tile)
            made.append((source, s.in_parts(product, copy) if parts else copy))
        for source, copy in made:
            _copied(s, source, copy)
    return None if s.state is start else s.state


def _factors(target: Target, state: State, k: int) -> list[tuple[Tensor, tuple[int, int], bool]]:
    """The factors of stage `k` that are to be copied: the terms among the axes of the read, how many there are, and
    whether in parts, as that is which the columns are read of."""
    in_parts = target.precision == FP32X3
    op = instruction_of(target, state, k, groups=True, ring=not in_parts)
    reads = factors_read(state, k) if op is not None and op.element.nbytes == 4 else None
    if reads is None:
        return []
    extents, space = extents_of(state.stages[k].op), len(state.stages[k].op.axis)
    sides = sides_of(reads[0][1], reads[1][1], extents, space)
    if sides is None:
        return []
    terms = [*state.stages[k].op.axis, *state.stages[k].op.reduce_axis][sides.terms[-1]]
    last, found = max([*sides.rows, *sides.columns]), []
    for p, how in reads:
        source, parts = state.stages[p].op.output(), in_parts and last in axes_read(how, extents)
        read = plain_read(state.stages[k].compute, source)
        if read is None or not _is_plain(read, terms):
            return []
        if parts or read.indices[-1] is not terms:
            order = [x is terms for x in axes_in_order(read)]
            found.append((source, (order.index(True), terms.length), parts))
    return found


def _is_plain(read: Load, terms: IterVar) -> bool:
    """Whether each index is an axis of its own, one of them the terms, or the read lies along the terms."""
    alone = all(isinstance(x, IterVar) for x in read.indices) and len(axes_in_order(read)) == len(read.indices)
    return read.indices[-1] is terms or (alone and any(x is terms for x in read.indices))


def _copied(s: Schedule, source: Tensor, made: Tensor) -> None:
    """The kernel that makes a copy, of whole vectors where it lies as its source does, else tile by tile."""
    load = next(e for e in walk(s[made].stage.compute.body[0]) if isinstance(e, Load))
    parts = made.op.axis[:1] if has_parts(s.state, s.stage_id(made)) else ()
    if load.indices[-1] is made.op.axis[-1]:
        _in_vectors(s, s.cache_read(source, "local", [made]), made, len(parts))
        return
    side = [load.indices[-1] is axis for axis in made.op.axis].index(True)
    tile = s.cache_read(source, "shared", [made])
    copy, loops = s[made], list(s[made].leaf_iter_vars)
    columns, i = copy.split(loops[side], COLUMNS)
    terms, j = copy.split(loops[-1], TERMS)
    items, row = copy.split(i, ROWS)
    lines, lane = copy.split(j, LANES)
    others = [loop for d, loop in enumerate(loops[:-1]) if d != side and d >= len(parts)]
    unrolled = [items, lines, *loops[: len(parts)]]
    copy.reorder(*others, columns, terms, row, lane, *unrolled)
    block = copy.fuse(*others, columns, terms)
    for loop, tag in ((block, "blockIdx.x"), (row, "threadIdx.y"), (lane, "threadIdx.x")):
        copy.bind(loop, tag)
    for loop in unrolled:
        copy.unroll(loop)
    s[tile].compute_at(copy, block)
    fetched = s[tile]
    *rows, last = fetched.leaf_iter_vars
    fetched.storage_align(rows[-1], LANES, 1)
    row = fetched.fuse(*rows)
    items, row = fetched.split(row, ROWS)
    fetched.bind(row, "threadIdx.y")
    fetched.bind(last, "threadIdx.x")
    fetched.unroll(items)


def _in_vectors(s: Schedule, vector: Tensor, made: Tensor, parts: int) -> None:
    """A vector a thread, all parts of it."""
    copy, loops = s[made], list(s[made].leaf_iter_vars)
    line, lane = copy.split(loops[-1], VECTOR)
    block, thread = copy.split(copy.fuse(*loops[parts:-1], line), THREADS)
    copy.reorder(block, thread, *loops[:parts], lane)
    copy.bind(block, "blockIdx.x")
    copy.bind(thread, "threadIdx.x")
    for loop in loops[:parts]:
        copy.unroll(loop)
    copy.vectorize(lane)
    s[vector].compute_at(copy, thread)
    s[vector].vectorize(s[vector].leaf_iter_vars[-1])
