"""Loops that end where nothing is done any more: `for i in 0..256: if 16*i + j < n: S` ends at `(n + 15) // 16`.

A loop of a program for all sizes runs to the end of the greatest one, and guards keep it inside.  What must hold for a
statement to do anything is found from the inside out: the guards around all that it stores where others see it, each
with the variables of inner loops where it holds soonest.  Where such a guard bounds the variable of a loop by sizes
alone, it stands directly inside of that loop as `if i < end`, which emitters print as its end; what it implies is not
asked again.  That of a loop over blocks stands inside of those over threads: it is the end of a grid.  What a loop asks
in all its iterations alike is asked around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from te_lite.expr.expr import INDEX, Binary, Compare, Const, Expr, SizeVar, Var, binary, compare, logical_and, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, free_vars, is_data, is_size, substitute, transform, walk
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, Seq, Stmt, bodies, stmts_of, with_bodies, written_by

from .fused import fused_end

SHORTER = (ForKind.SERIAL, ForKind.PARALLEL, ForKind.BLOCK)
ASKING = (ForKind.SERIAL, ForKind.PARALLEL)
INNER = (ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED)


def shortened(s: Stmt, simplifier: Simplifier) -> Stmt:
    """The statement with loops that end where nothing is done any more."""
    threads = any(isinstance(x, For) and x.kind is ForKind.THREAD for x in stmts_of(s))
    return Shortener(simplifier, threads).stmt(s)


class Shortener:
    """Shortens statements of which `threads` says whether threads run loops of theirs side by side."""

    def __init__(self, simplifier: Simplifier, threads: bool) -> None:
        self.simplifier = simplifier
        self.threads = threads

    def stmt(self, s: Stmt) -> Stmt:
        s = with_bodies(s, tuple(map(self.stmt, bodies(s))))
        if isinstance(s, If):
            return If(logical_and(*_asked([*conjuncts(s.cond)])), s.then)
        if not isinstance(s, For):
            return s
        needed = (self.needed(s.body, frozenset()) or ()) if s.kind in SHORTER else ()
        ends = [(guard, self.end(guard, s.var)) for guard in needed]
        known = [compare("<", s.var, end) for _, end in ends if end is not None][:1]
        asks = s.kind in ASKING and not isinstance(s.body, If)
        known += [c for c, end in ends if end is None and self.by_loops(c, s.var)] if asks else []
        if known:
            return with_bodies(s, (reduce(lambda body, c: _in_threads(c, without(body, c)), reversed(known), s.body),))
        match s.body:
            case If(cond=cond, then=then) if s.kind in INNER and s.var not in free_vars(cond) and not is_data(cond):
                return If(cond, with_bodies(s, (then,)))
        return s

    def by_loops(self, c: Expr, var: Var) -> bool:
        """Whether a condition is one of sizes and of a loop, and threads do not run others side by side."""
        found = free_vars(c)
        return var in found and any(isinstance(v, SizeVar) for v in found) and not is_data(c) and not self.threads

    def needed(self, s: Stmt, own: frozenset[Buffer]) -> tuple[Expr, ...] | None:
        """What must hold for a statement to do what is seen outside of the buffers `own`; None: nothing is."""
        match s:
            case If(cond=cond, then=then):
                found = self.needed(then, own)
                return None if found is None else (*[c for c in conjuncts(cond) if isinstance(c, Compare)], *found)
            case Alloc(buffer=buffer, body=body):
                return self.needed(body, own | {buffer})
            case Seq(stmts=stmts):
                seen = [some for x in stmts if (some := self.needed(x, own)) is not None]
                shared = [c for c in seen[0] if all(any(same(c, x) for x in some) for some in seen)] if seen else []
                return tuple(shared) if seen else None
            case For(var=var, extent=extent, body=body):
                found = self.needed(body, own)
                soonest = None if found is None else [self.soonest(c, var, extent) for c in found]
                return None if soonest is None else tuple([c for c in soonest if c is not None])
        return None if own.issuperset(written_by(s)) else ()

    def soonest(self, c: Expr, var: Var, extent: int) -> Expr | None:
        """A condition with the value of a variable for which it holds if it does for any; None if that varies."""
        if var not in free_vars(c):
            return c
        if not isinstance(c, Compare) or c.op not in ("<", "<="):
            return None
        left = self.simplifier.simplify(binary("-", c.a, c.b))
        for value, way in ((0, 1), (extent - 1, -1)):
            more = self.simplifier.simplify(binary("-", left, substitute(left, {var: Const(value)})))
            low = self.simplifier.bounds(more)[0]
            if direction(left, var) == way or (low is not None and low >= 0):
                return self.simplifier.simplify(substitute(c, {var: Const(value)}))
        return None

    def step(self, c: Expr, var: Var) -> int | None:
        """By how much the left side of `x < y`, less the right one, grows with a variable; None if that varies."""
        if not isinstance(c, Compare) or c.op not in ("<", "<="):
            return None
        left = self.simplifier.simplify(binary("-", c.a, c.b))
        moved = self.simplifier.simplify(binary("-", substitute(left, {var: binary("+", var, 1)}), left))
        return int(moved.value) if isinstance(moved, Const) else None

    def end(self, c: Expr, var: Var) -> Expr | None:
        """The number of first values of a variable for which a condition may hold, if sizes alone decide that."""
        if not isinstance(c, Compare) or c.op not in ("<", "<="):
            return None
        for part in [var, *quotients(c, var)]:
            number = Var("part", INDEX)
            end = self.straight_end(with_part(c, part, number), number)
            if end is not None and isinstance(part, Binary):  # `x//d < end`, which is `x < end*d`
                return self.end(compare("<", part.a, binary("*", end, part.b)), var)
            if end is not None:
                return end
        return fused_end(c, var, self.simplifier, self.end)

    def straight_end(self, c: Compare, var: Var) -> Expr | None:
        """The same where both sides are sums."""
        step = self.step(c, var) if free_vars(c) else None
        if step is None or step <= 0:
            return None
        rest = substitute(binary("-", c.b, c.a), {var: Const(0)})
        top = binary("+", rest, step - (c.op == "<"))
        end = self.simplifier.simplify(binary("//", top, step))
        return end if is_size(end) else None


def _asked(parts: Sequence[Expr]) -> list[Expr]:
    """Conditions without `x < 21` where `x < n` is asked, too, and `n` is at most 21."""
    ends = [(c.a, c.b.range[1]) for c in parts if isinstance(c, Compare) and c.op == "<" and isinstance(c.b, SizeVar)]

    def implied(c: Expr) -> bool:
        if not (isinstance(c, Compare) and c.op == "<" and isinstance(c.b, Const)):
            return False
        return any(same(c.a, e) and most <= c.b.value for e, most in ends)

    return [c for c in parts if not implied(c)]


def _in_threads(cond: Expr, s: Stmt) -> Stmt:
    """A statement under a condition; a condition on blocks stands inside of the loops over blocks and threads."""
    if isinstance(s, For) and s.kind in (ForKind.BLOCK, ForKind.THREAD):
        return with_bodies(s, (_in_threads(cond, s.body),))
    return If(cond, s)


def quotients(c: Expr, var: Var) -> list[Binary]:
    """The quotients by positive numbers in which a variable occurs, outermost first."""
    found = [x for x in walk(c) if isinstance(x, Binary) and x.op == "//" and var in free_vars(x.a)]
    return [x for x in found if isinstance(x.b, Const) and x.b.value > 0]


def with_part(c: Compare, part: Expr, to: Var) -> Compare:
    """A condition with a variable in place of all that is like a part of it."""
    a, b = [transform(e, lambda x: to if same(x, part) else None) for e in (c.a, c.b)]
    return Compare(c.op, a, b)


def direction(e: Expr, var: Var) -> int | None:
    """1 where a value never falls as a variable grows, -1 where it never rises, 0 without it; else None."""
    match e:
        case _ if var not in free_vars(e):
            return 0
        case Var():
            return 1
        case Binary(op="+" | "min" | "max", a=a, b=b):
            return _together(direction(a, var), direction(b, var))
        case Binary(op="-", a=a, b=b):
            return _together(direction(a, var), _turned(direction(b, var)))
        case Binary(op="*" | "//", a=a, b=Const(value=value)):
            return direction(a, var) if value > 0 else None
    return None


def _turned(way: int | None) -> int | None:
    return None if way is None else -way


def _together(x: int | None, y: int | None) -> int | None:
    return x if x == y or y == 0 else y if x == 0 else None


def without(s: Stmt, known: Expr) -> Stmt:
    """A statement where a condition holds."""
    match s:
        case If(cond=cond, then=then):
            parts: Sequence[Expr] = [c for c in conjuncts(cond) if not same(c, known)]
            inner = without(then, known)
            return If(logical_and(*parts), inner) if parts else inner
    return with_bodies(s, tuple([without(b, known) for b in bodies(s)]))
