"""Reductions computed along a loop, in lowering: an extreme that grows from tile to tile, and the sums that follow it.

    running[i] = -inf;  S[i, d] = 0
    for tile:
        M'       = max(running[i], max_j v[i, j])              of the points of the tile
        scale[i] = carry(1, running[i], M')                    1 where it stays
        running[i], M[i] = M', M'
        S[i, d]  = S[i, d] * scale[i]
        S[i, d] += term(v[i, j], M[i]) * w[i, j, d]            of the points of the tile

As long as a row has nothing but -inf, its M is taken as 0, so that its terms are 0 and not NaN; in the last tile M is
what it is, so that a row of nothing but -inf is NaN, by definition.  After the loop M is the extreme.

What may be computed so is looked at here (`checked`), whatever steps led to it: a reduction that refers to M inside of
the loop must be a sum that a law carries (`rescaling.py`), and the sum of the loop itself, or one computed along it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from te_lite.bounds.loop_scope import BLOCKS, THREADS, across_threads, enclosing_loops, lanes_of_rows
from te_lite.computation.tensor import ComputeOp
from te_lite.errors import LowerError, require
from te_lite.schedule.state import ATTACHED, INLINED, REDUCE, SPATIAL, State

from .rescaling import Carried, carried, depends

Followers = Mapping[int, tuple[int, Carried]]
"""The sums that follow an extreme, by stage: the stage of the extreme, and how they move."""


def checked(state: State) -> Followers:
    """The sums that follow an extreme computed along a loop.

    Raises LowerError for a stage that is computed along a loop and cannot be, or is read where it is not complete.
    """
    found: dict[int, tuple[int, Carried]] = {}
    for k, stage in enumerate(state.stages):
        if stage.along:
            _check_loop(state, k)
            for r in _readers_inside(state, k):
                law = "a sum can follow one extreme alone"
                require(r not in found, LowerError, f"compute_along {stage.op.name}", law, sum=state.ops[r].name)
                found[r] = (k, _follows(state, r, k))
    return found


def _check_loop(state: State, k: int) -> None:
    stage = state.stages[k]
    assert stage.attach is not None
    target = state.stages[stage.attach.stage]
    law = "the loop must be the first one that runs in turn, of an attached stage whose sums no threads share"
    at = target.vars[stage.attach.iter]
    outside = [it for it in target.iters[: target.position(at.uid)] if it.annotation not in THREADS + BLOCKS]
    again = [it for it in outside if it.length > 1]
    first = not again or (at.length == 1 and all(it.kind == SPATIAL for it in again))
    ok = at.kind == REDUCE and at.annotation in ("none", "unroll") and first
    ok = ok and not across_threads(target) and not target.along and target.where == ATTACHED
    require(ok, LowerError, f"compute_along {stage.op.name}", law, target=target.op.name, loop=at.name)
    law = "threads must fold rows of fragments together"
    require(lanes_of_rows(stage) > 0, LowerError, f"compute_along {stage.op.name}", law)


def _inside(state: State, r: int, k: int) -> bool:
    """Whether stage r is computed in the loop that stage k is computed along, or sums up along it, too."""
    attach = state.stages[k].attach
    assert attach is not None
    return r == attach.stage or (attach.stage, attach.iter) in enclosing_loops(state.stages, r)


def _readers_inside(state: State, k: int) -> Iterator[int]:
    """The reductions inside of the loop that depend on stage k while it grows."""
    extreme = state.stages[k].compute
    known = {
        s.op.key: s.compute
        for r, s in enumerate(state.stages)
        if not s.is_placeholder and s.op.reduction is None and (s.where == INLINED or _inside(state, r, k))
    }
    for r, stage in enumerate(state.stages):
        if r == k or stage.is_placeholder or stage.op.reduction is None or not _inside(state, r, k):
            continue
        if any(depends(e, extreme, known) for e in stage.op.reduction.sources):
            yield r


def _follows(state: State, r: int, k: int) -> Carried:
    """How the sum r follows the extreme k.  Raises LowerError where it does not."""
    stage, attach = state.stages[r], state.stages[k].attach
    assert attach is not None and isinstance(stage.op, ComputeOp)
    found = carried(stage.op, state.stages[k].compute, state.ops)
    beside = r == attach.stage or stage.along
    law = f"what refers to {state.stages[k].op.name} in the loop must be sums along it that can be carried"
    require(beside, LowerError, f"compute_along {state.stages[k].op.name}", law, got=stage.op.name)
    if found is None:
        raise LowerError(f"compute_along {state.stages[k].op.name}: {law}, got {stage.op.name}")
    return found
