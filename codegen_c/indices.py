"""Index arithmetic of one function: linear forms, how they differ, and how they move with a vector lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from te_lite.expr.expr import INDEX, Binary, BufferLoad, Const, Expr, Var, binary, const
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import children, free_vars, rebuild, substitute, walk
from te_lite.loops.stmt import For, Stmt, stmts_of
from te_lite.loops.width import Widths

Env = Mapping[Var, Expr]
NOTHING: Env = {}
_INTEGERS = ("bool", "int32", "int64")


@dataclass(frozen=True)
class Linear:
    """`const + sum(coefficient * atom)`; zero coefficients are left out."""

    terms: Mapping[Expr, int]
    const: int

    def same_terms(self, other: Linear) -> bool:
        return len(self.terms) == len(other.terms) and all(other.terms.get(a) == c for a, c in self.terms.items())

    def without(self, var: Var) -> Linear:
        return Linear({a: c for a, c in self.terms.items() if a is not var}, self.const)

    def plus(self, other: Linear, scale: int = 1) -> Linear:
        """`self + scale * other`."""
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.pop(atom, 0) + scale * c
            if total:
                terms[atom] = total
        return Linear(terms, self.const + scale * other.const)

    def expr(self) -> Expr:
        """The form as an expression, the constant last."""
        out: Expr | None = None
        for atom, c in self.terms.items():
            term = binary("*", atom, const(c, atom.dtype))
            out = term if out is None else binary("+", out, term)
        if out is None:
            return const(self.const, INDEX)
        return binary("+", out, const(self.const, out.dtype))


def _parse(e: Expr) -> Linear:
    """The linear form of a simplified expression."""
    match e:
        case Const(value=value):
            return Linear({}, int(value))
        case Binary(op="+", a=a, b=b):
            return _parse(a).plus(_parse(b))
        case Binary(op="-", a=a, b=b):
            return _parse(a).plus(_parse(b), -1)
        case Binary(op="*", a=a, b=Const(value=value)):
            return Linear({a: int(value)}, 0)
    return Linear({e: 1}, 0)


class Indices:
    """What is known of the loop variables of `body`, and arithmetic on expressions over them.

    Forms are remembered by the identity of expressions, so that nodes are kept alive.
    """

    def __init__(self, body: Stmt) -> None:
        extents: dict[Var, int] = {}
        for s in stmts_of(body):
            if isinstance(s, For):
                extents[s.var] = max(s.extent, extents.get(s.var, 1))
        self.simplifier = Simplifier({v: (0, n - 1) for v, n in extents.items()})
        self.widths = Widths.of(body, wide_counters=True)
        self._forms: dict[int, tuple[Expr, Linear]] = {}
        self._offsets: dict[tuple[Expr, Var, int], list[int] | None] = {}

    def bind(self, var: Var, extent: int) -> None:
        """Learn of a new variable with 0 <= var < extent."""
        self.simplifier.bind(var, 0, extent - 1)
        self.widths.bind(var, extent)

    def linear(self, e: Expr, env: Env = NOTHING) -> Linear:
        """The linear form of `e`, the variables in `env` replaced."""
        hit = self._forms.get(id(e))
        if hit is None:
            hit = self._forms[id(e)] = (e, _parse(self.simplifier.simplify(e)))
        return self._replaced(e, hit[1], env) if env else hit[1]

    def _replaced(self, e: Expr, form: Linear, env: Env) -> Linear:
        out = Linear({}, form.const)
        for atom, c in form.terms.items():
            if isinstance(atom, Var):
                value = env.get(atom)
                part = Linear({atom: 1}, 0) if value is None else self.linear(value)
            elif free_vars(atom).isdisjoint(env):
                part = Linear({atom: 1}, 0)
            else:
                return _parse(self.simplifier.simplify(substitute(e, env)))
            out = out.plus(part, c)
        return out

    def normal(self, e: Expr, env: Env = NOTHING) -> Expr:
        """`e` with the variables in `env` replaced, the indices of its loads in normal form, conditions decided."""
        if isinstance(e, BufferLoad):
            return BufferLoad(e.buffer, self.linear(e.index, env).expr())
        if isinstance(e, Const):
            return e
        if isinstance(e, Var):
            return env.get(e, e)
        if e.dtype in _INTEGERS and not any(isinstance(x, BufferLoad) for x in walk(e)):
            return self.simplifier.simplify(substitute(e, env))
        return rebuild(e, tuple([self.normal(k, env) for k in children(e)]))

    def nonnegative(self, e: Expr) -> bool:
        low = self.simplifier.bounds(e)[0]
        return low is not None and low >= 0

    def lane_offsets(self, index: Expr, var: Var, lanes: int) -> list[int] | None:
        """How far `index` moves from lane 0 to each lane of `var`, or None when that is not constant."""
        key = (index, var, lanes)
        if key not in self._offsets:
            self._offsets[key] = self._lane_offsets(index, var, lanes)
        return self._offsets[key]

    def _lane_offsets(self, index: Expr, var: Var, lanes: int) -> list[int] | None:
        form = self.linear(index)
        if not any(var in free_vars(a) for a in form.terms if not isinstance(a, Var)):
            c = form.terms.get(var, 0)
            return [c * k for k in range(lanes)]
        forms = [self.linear(index, {var: const(k)}) for k in range(lanes)]
        if not all(forms[0].same_terms(f) for f in forms):
            return None
        return [f.const - forms[0].const for f in forms]

    def contiguous(self, index: Expr, var: Var, lanes: int) -> bool:
        """`index` grows by one from lane to lane."""
        return self.lane_offsets(index, var, lanes) == list(range(lanes))
