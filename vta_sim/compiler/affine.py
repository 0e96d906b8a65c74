"""Indices as constants plus multiples of loop variables, which is all that instructions can count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from te_lite.errors import require
from te_lite.expr.expr import Binary, Const, Expr, Var
from te_lite.loops.stmt_text import pretty

from ..core.errors import CompileError


@dataclass(frozen=True, slots=True)
class Form:
    """`const` plus the sum of coefficient times variable; no coefficient is 0."""

    const: int
    terms: tuple[tuple[Var, int], ...] = ()

    def at(self, env: Mapping[Var, int]) -> int:
        """The value where the variables have the values of `env`."""
        total = self.const
        for var, c in self.terms:
            total += c * env[var]
        return total

    def of(self, var: Var) -> int:
        """The coefficient of a variable."""
        return next((c for v, c in self.terms if v is var), 0)

    def without(self, variables: Collection[Var]) -> Form:
        """What remains where the variables are 0."""
        gone = {id(v) for v in variables}
        return Form(self.const, tuple([(v, c) for v, c in self.terms if id(v) not in gone]))

    def plus(self, other: Form, factor: int = 1) -> Form:
        """`self + factor * other`."""
        return Form(self.const + factor * other.const, _sum([*self.terms, *((v, factor * c) for v, c in other.terms)]))

    def divided(self, n: int, subject: str, law: str) -> Form:
        """The form of the quotient.  Raises CompileError, with `law`, unless `n` divides all of it."""
        whole = self.const % n == 0 and all(c % n == 0 for _, c in self.terms)
        require(whole, CompileError, subject, law)
        return Form(self.const // n, tuple([(v, c // n) for v, c in self.terms]))


def _sum(terms: Iterable[tuple[Var, int]]) -> tuple[tuple[Var, int], ...]:
    total: dict[int, tuple[Var, int]] = {}
    for v, c in terms:
        total[id(v)] = (v, c + total[id(v)][1] if id(v) in total else c)
    return tuple([(v, c) for v, c in total.values() if c])


def affine(e: Expr) -> Form:
    """The form of an index.  Raises CompileError for one that is no such sum."""
    match e:
        case Const():
            return Form(int(e.value))
        case Var():
            return Form(0, ((e, 1),))
        case Binary(op="+" | "-" as op, a=a, b=b):
            return affine(a).plus(affine(b), 1 if op == "+" else -1)
        case Binary(op="*", a=a, b=Const() as c) | Binary(op="*", a=Const() as c, b=a):
            return Form(0).plus(affine(a), int(c.value))
    raise CompileError(f"index `{pretty(e)}`: must be a sum of multiples of loop variables")
