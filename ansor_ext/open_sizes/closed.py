"""A program for all sizes at some of them: numbers in place of the sizes, as the interpreter and other tools need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from te_lite.errors import LowerError, require
from te_lite.expr.expr import Compare, Const, Expr, SizeVar, Var
from te_lite.expr.visit import substitute
from te_lite.loops.stmt import For, If, LoweredFunc, Stmt, bodies, map_exprs, with_bodies

from .fit import loop_ranges, with_places


def closed(func: LoweredFunc, sizes: Mapping[SizeVar, int]) -> LoweredFunc:
    """The program at these sizes.  Raises LowerError where one is missing or out of its bounds."""
    for v in func.sizes:
        n = sizes.get(v, 0)
        require(
            v.range[0] <= n <= v.range[1],
            LowerError,
            func.name,
            f"{v.name} must be {v.range[0]} to {v.range[1]}",
            got=n,
        )
    args = {
        b: replace(b, shape=tuple([sizes.get(d, 0) if isinstance(d, SizeVar) else d for d in b.shape]))
        for b in func.args
    }
    env: dict[Var, Expr] = {v: Const(sizes[v]) for v in func.sizes}
    body = with_places(func.body, lambda b, at: (args.get(b, b), at))
    simplifier = loop_ranges(body)
    body = map_exprs(body, lambda e: simplifier.simplify(substitute(e, env)))
    return LoweredFunc(func.name, tuple(args.values()), _shorter(body))


def _shorter(s: Stmt) -> Stmt:
    """Loops with as many iterations as the conditions around all that they do leave them."""
    s = with_bodies(s, tuple(map(_shorter, bodies(s))))
    match s:
        case For(var=var, body=If(cond=Compare(op="<", a=Var() as a, b=Const(value=end)), then=then)) if a is var:
            return replace(s, extent=min(s.extent, int(end)), body=then)
    return s
