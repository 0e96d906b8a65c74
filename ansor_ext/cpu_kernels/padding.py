"""Padding that a micro-kernel reads, in vectors: before the product, or for each part of its rows.

    for y, x: pad_temp[y, x, :] = data, or 0      before: two parallel loops, and all of it is written and read again
    for parts of the rows: the product

    for parts of the rows                         for each part: one parallel loop, what a part needs stays in a cache,
      pad_temp[some y, x, :]                      and the rows where parts meet are computed twice
      the product

A search that places it at random mostly computes it once for each panel, or asks anew for every element of a product
whether it is inside: programs that take twice as long.
"""

from __future__ import annotations

from ansor.core.target.hardware import HardwareParams
from ansor.core.values.schedule_primitives import annotate, compute_at, split
from ansor.sketch.predicates import consumers, may_be_computed_at
from ansor.sketch.shared_memory import element_bytes
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.expr import Call, Select
from te_lite.expr.visit import free_vars, walk
from te_lite.loops.register_tile import largest_divisor
from te_lite.schedule.state import State

MOST_VECTORS = 8


def paddings(state: State, k: int, hardware: HardwareParams) -> list[int]:
    """The stages that only stage `k` reads, each of which selects whole vectors along its last axis."""
    return [
        p
        for p, stage in enumerate(state.stages[:k])
        if consumers(state, p) == [k]
        and _selects_vectors(stage.op, max(1, hardware.vector_unit_bytes // element_bytes(stage.op.dtype)))
        and may_be_computed_at(state, p)
    ]


def _selects_vectors(op: object, lanes: int) -> bool:
    """Its only loops are those of its axes, the last one of whole vectors, and its conditions do not ask about that."""
    if not isinstance(op, ComputeOp) or op.reduce_axis or not op.axis:
        return False
    last = op.axis[-1]
    asked = [
        free_vars(e.cond if isinstance(e, Select) else e.args[0])
        for body in op.body
        for e in walk(body)
        if isinstance(e, Select) or (isinstance(e, Call) and e.func == "if_then_else")
    ]
    whole = isinstance(last.extent, int) and last.extent % lanes == 0
    return whole and bool(asked) and all(last not in variables for variables in asked)


def padded(state: State, p: int, hardware: HardwareParams, at: tuple[int, int] | None) -> State:
    """With padding `p` computed in vectors, before everything else or, `at`: stage and loop, there."""
    stage = state.stages[p]
    most = MOST_VECTORS * max(1, hardware.vector_unit_bytes // element_bytes(stage.op.dtype))
    extent = stage.iters[-1].extent
    assert isinstance(extent, int)
    state, (_, lanes) = split(state, p, stage.leaf[-1], [largest_divisor(extent, most, most)])
    state = annotate(state, p, lanes.uid, "vectorize")
    return state if at is None else compute_at(state, p, *at)
