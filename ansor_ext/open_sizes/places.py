"""Elements of memory, and what is known where a program touches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from te_lite.expr.element import Buffer, BufferLoad
from te_lite.expr.expr import INDEX, Binary, Const, Expr, SizeVar, Var, as_expr, binary, same
from te_lite.expr.visit import children, rebuild, walk
from te_lite.loops.stmt import For, If, Stmt, Store, bodies, map_exprs, with_bodies
from te_lite.loops.width import fits
from te_lite.verify.verify_access import inside
from te_lite.verify.verify_form import Forms
from te_lite.verify.verify_scope import Scope, parts
from te_lite.verify.verify_span import Spans

ANY_SIZE = 1 << 62


@dataclass(frozen=True)
class Here:
    """A place in a program: the loops and conditions around it."""

    scope: Scope
    forms: Forms

    @property
    def never(self) -> bool:
        """Whether the program never comes here."""
        return self.scope.never

    def within(self, e: Expr, size: int = ANY_SIZE) -> bool:
        """Whether an index is shown to be one of `size`."""
        low, high = self.scope.spans.of(e)
        if low >= 0 and high < size:
            return True
        return inside(e, size, self.scope.conditions, self.forms, self.forms.ends(self.scope.spans))

    def less_digits(self, e: Expr) -> Expr:
        """An index without the quotients and remainders that do nothing where the conditions hold."""
        kids = children(e)
        e = e if isinstance(e, BufferLoad) or not kids else rebuild(e, tuple([self.less_digits(k) for k in kids]))
        match e:
            case Binary(op="//" | "%" as op, a=a, b=Const(value=n)) if (
                n > 0 and (k := self._quotient(a, int(n))) is not None
            ):
                return as_expr(k) if op == "//" else binary("-", a, k * int(n))
            case Binary(op="//" | "%", a=a, b=Const(value=n)) if n > 0 and not has_loads(a):
                return self._parted(e, terms_of(a), int(n))
        return e

    def _parted(self, e: Binary, terms: Sequence[tuple[int, Expr]], n: int) -> Expr:
        """`(g*x + y) // (g*b)` as `x // b`, `(g*x + y) % (g*b)` as `x % b*g + y`, where `y` is shown to be one of g."""
        for g in sorted({abs(c) for c, x in terms if 1 < abs(c) < n and n % abs(c) == 0}, reverse=True):
            high, low = [(c // g, x) for c, x in terms if c % g == 0], [(c, x) for c, x in terms if c % g]
            constant = sum([c * x.value for c, x in low if isinstance(x, Const)])
            for rest in (int(constant) % g, int(constant) % g - g):
                y = sum_of([(rest, as_expr(1)), *[(c, x) for c, x in low if not isinstance(x, Const)]])
                if self.within(y, g):
                    x = sum_of([*high, ((int(constant) - rest) // g, as_expr(1))])
                    outer = binary(e.op, x, n // g)
                    return outer if e.op == "//" else binary("+", binary("*", outer, g), y)
        return e

    def _quotient(self, e: Expr, n: int) -> int | None:
        """What `e // n` is where that is one number, of the first few that it might be."""
        if has_loads(e):
            return None
        low, high = self.scope.spans.of(e)
        first, last = max(low // n, -1), min(high // n, 1)
        return next((k for k in range(first, last + 1) if self.within(binary("-", e, k * n), n)), None)

    def apart_from_data(self, e: Expr) -> tuple[Expr, dict[Var, Expr]]:
        """An index with a variable for each part that is read from memory, and these parts.

        It is left as it is where its arithmetic, that of data, may leave 32 bits.
        """
        read: dict[Var, Expr] = {}
        new = self._apart(e, read)
        ranges = [self.scope.spans.of(x) for x in walk(new)] if read else []
        return (new, read) if all(fits(x, INDEX) for x in ranges) else (e, {})

    def _apart(self, e: Expr, read: dict[Var, Expr]) -> Expr:
        if not has_loads(e):
            return e
        if isinstance(e, Binary) and e.op in ("+", "-", "*", "//", "%"):
            return rebuild(e, (self._apart(e.a, read), self._apart(e.b, read)))
        known = next((v for v, x in read.items() if same(x, e)), None)
        if known is None:
            read[known := SizeVar("read", e.dtype, self.scope.spans.of(e))] = e
        return known


def has_loads(e: Expr) -> bool:
    """Whether part of an expression is read from memory: it may wrap around."""
    return any(isinstance(x, BufferLoad) for x in walk(e))


def terms_of(e: Expr, scale: int = 1) -> list[tuple[int, Expr]]:
    """The terms of a sum, each with its factor."""
    match e:
        case Binary(op="+" | "-" as op, a=a, b=b):
            return [*terms_of(a, scale), *terms_of(b, scale if op == "+" else -scale)]
        case Binary(op="*", a=a, b=Const(value=c)):
            return terms_of(a, scale * int(c))
        case Const(value=c):
            return [(scale * int(c), as_expr(1))]
    return [(scale, e)]


def sum_of(terms: Sequence[tuple[int, Expr]]) -> Expr:
    """The sum of terms."""
    found = as_expr(0)
    for c, x in terms:
        found = binary("+", found, binary("*", x, c))
    return found


Place = Callable[[Buffer, Expr, Here], tuple[Buffer, Expr]]


def with_places_here(s: Stmt, sizes: Sequence[SizeVar], place: Place) -> Stmt:
    """A statement whose elements of memory are others: `place(buffer, index, here)` gives both."""
    return _Mover(place).stmt(s, Scope(Spans({v: v.range for v in sizes}), frozenset()))


class _Mover:
    def __init__(self, place: Place) -> None:
        self.place, self.forms = place, Forms()
        self.done: dict[tuple[int, int], tuple[Scope, Expr, Expr]] = {}

    def stmt(self, s: Stmt, scope: Scope) -> Stmt:
        match s:
            case For(body=body):
                return with_bodies(s, (self.stmt(body, scope.within(s)),))
            case If(cond=cond, then=then):
                return If(self.expr(cond, scope), self.stmt(then, scope.where(cond)))
            case Store(buffer=buffer, index=index, value=value):
                place = self.place(buffer, self.expr(index, scope), Here(scope, self.forms))
                return Store(*place, self.expr(value, scope))
        if bodies(s):
            return with_bodies(s, tuple([self.stmt(b, scope) for b in bodies(s)]))
        return map_exprs(s, lambda e: self.expr(e, scope))

    def expr(self, e: Expr, scope: Scope) -> Expr:
        """An expression, each node once in a scope."""
        key = id(scope), id(e)
        if key not in self.done:
            self.done[key] = scope, e, self.moved(e, scope)
        return self.done[key][2]

    def moved(self, e: Expr, scope: Scope) -> Expr:
        if isinstance(e, BufferLoad):
            return BufferLoad(*self.place(e.buffer, self.expr(e.index, scope), Here(scope, self.forms)))
        return rebuild(e, tuple([self.expr(x, inner) for x, inner in parts(e, scope)])) if children(e) else e
