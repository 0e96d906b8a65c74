"""Loops of a stage that are one instruction of a tensor core.

    for m in 0..16: for n in 0..8: for k in 0..16:
        d[..m.., ..n..] += a[..m.., ..k..] * b[..k.., ..n..]        becomes        mma.m16n8k16_f16_f32(d, a, b)

The stage, and what it multiplies, are in fragments of the instruction; the loops from the tensorized one on are, in any
order, m, n and k of the instruction, and begin at a tile of each operand.  All of this is looked at, and what is not so
refused: the instruction then computes what the loops do, as `mma_meaning.py` has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from te_lite.bounds.loop_scope import WARP
from te_lite.errors import LowerError, require
from te_lite.expr.expr import Expr, Load, Reduce, Var, as_expr, same
from te_lite.expr.visit import substitute, walk
from te_lite.lowering.layout import HeldTile
from te_lite.lowering.lower_facts import Facts
from te_lite.lowering.lower_point import Points
from te_lite.schedule.state import REDUCE

from .instructions import WarpMultiply
from .lower_operand import Operand, first_turn, operand
from .mma_meaning import product


def warp_multiply(points: Points, k: int, depth: int) -> WarpMultiply:
    """The instruction that is the loops of stage k from position `depth` on.  Raises LowerError where they are none."""
    low, stage = points.low, points.low.stages[k]
    point = points.at(k, low.vars[k])
    body = low.bodies[k][0]
    whole = not point.guards and not (isinstance(body, Reduce) and points.folded_where(k, body, point))
    require(whole, LowerError, stage.op.name, "the loops of an instruction must divide what they run over")
    d = operand(low, k, point.local, first_turn(low, k, depth))
    a, b = _factors(low, d, point.env)
    _check_loops(d, a, b, {low.vars[k][it.uid]: it.length for it in stage.iters[depth:]})
    return WarpMultiply(d.storage.op, d.first(), a.first(), b.first())


def tile_start(points: Points, k: int, variables: Mapping[int, Expr], depth: int) -> Expr:
    """Where the tile of sums begins that the loops of stage k from position `depth` on fill.

    `variables` are those of the loops around them, by uid.
    """
    stage = points.low.stages[k]
    inner = {it.uid: as_expr(0) for it in stage.iters[depth:]}
    spatial = {u: v for u, v in {**variables, **inner}.items() if stage.vars[u].kind != REDUCE}
    return operand(points.low, k, points.at(k, spatial).local, {}).first().index


def element_of_tile(points: Points, k: int, depth: int) -> HeldTile:
    """What a lane holds of the tile of sums that the loops of stage k from position `depth` on fill."""
    low, stage = points.low, points.low.stages[k]
    d = operand(low, k, points.at(k, low.vars[k]).local, first_turn(low, k, depth))
    fragment = d.storage.fragment
    value, lane = low.new_var("value", fragment.values), low.thread_vars[low.roots[k], WARP]
    at = dict(zip(d.moves(), fragment.place(lane, value), strict=True))
    loops = [(it.uid, low.vars[k][it.uid]) for it in stage.iters[depth:]]
    return HeldTile(value, fragment.values, {uid: at[var] for uid, var in loops if var in at})


def _factors(low: Facts, d: Operand, env: Mapping[Var, Expr]) -> tuple[Operand, Operand]:
    """What the stage of the sums multiplies.  Raises LowerError unless it sums up the products of the instruction."""
    body, op = low.bodies[d.stage][0], d.storage.op
    loads = [x for x in walk(body) if isinstance(x, Load)]
    operands = {x.storage.operand: (load, x) for load in loads for x in [_read(low, load, env, d.start)]}
    of_one = len(loads) == 2 and operands.keys() == {"a", "b"} and d.storage.operand == "d"
    of_one = of_one and all(x.storage.op == op for _, x in operands.values())
    held = {x.name: low.bounds.scopes[x.stage] for x in [*[x for _, x in operands.values()], d]}
    require(of_one, LowerError, d.name, "sums and factors must be d, a and b of one instruction", scopes=held)
    (x, a), (y, b) = operands["a"], operands["b"]
    terms = product(op, x, y), product(op, y, x)
    sources = body.sources if isinstance(body, Reduce) and body.combiner.name == "sum" else ()
    fits = any(same(source, term) for source in sources for term in terms)
    law = f"{op.name} sums up, in {op.sum.dtype}, products of {' and '.join(dict.fromkeys(op.dtypes))}"
    require(fits and (x.dtype, y.dtype) == op.dtypes and body.dtype == op.sum.dtype, LowerError, d.name, law, body=body)
    return a, b


def _read(low: Facts, load: Load, env: Mapping[Var, Expr], start: Mapping[Var, Expr]) -> Operand:
    """An element that is read, where the axes of the reader have the values of `env`."""
    k = low.index_of[load.tensor.op.key]
    return operand(low, k, low.from_start(k, [substitute(i, env) for i in load.indices]), start)


def _check_loops(d: Operand, a: Operand, b: Operand, extents: Mapping[Expr, int]) -> None:
    """Rows and columns of the operands must move with the loops m, n and k."""
    op = d.storage.op
    (m, n), (_, k) = d.moves(), a.moves()
    asked = [op.m, op.n, op.k]
    fits = [extents.get(var, 0) for var in (m, n, k)] == asked and len(extents) == 3
    fits = fits and a.moves() == (m, k) and b.moves() == (k, n)
    law = f"the tensorized loops must be m, n and k of {op.name}, of extents {asked}"
    require(fits, LowerError, d.name, law, extents=list(extents.values()))
