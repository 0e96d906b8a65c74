"""Shorter expressions of the same value: affine index arithmetic over variables with known ranges.

A `Simplifier` knows the range of each variable.  It brings integer expressions of dtype int32 and int64 to linear
forms (`linear.py` has the laws), decides comparisons, conditions, min and max by range, and writes the forms back.
Index arithmetic, that of axes and constants, is that of integers of any size: the emitters give it room.  Whatever
reads memory, and all arithmetic of other dtypes, keeps its shape: only its operands are simplified, since regrouping
could change where it wraps or rounds, and they fold by the identities of their dtype alone (`constant_folding.py`).

    te_lite.expr.simplify.Simplifier({i: (0, 7), j: (0, 3)}).simplify((i * 4 + j) // 4)      ->  i
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

from ..errors import ExprError, require
from .constant_folding import wrapped
from .expr import (
    FLOATS,
    INDEX,
    Binary,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logical,
    Not,
    Select,
    Var,
    cast,
)
from .interval import EVERYTHING, INDEX_DTYPES, INF, Interval, dtype_interval, node_interval
from .linear import DIV, Atom, Lin, LinearSpace, merge
from .visit import children, conjuncts, is_data, rebuild

_TRUE = Const(True, "bool")
_FALSE = Const(False, "bool")


class Simplifier:
    """Simplifies under `ranges`: inclusive (lo, hi) of each variable; other variables are unbounded.

    Results are remembered.  Equal integer and boolean results of one simplifier are the same object, and the order
    of terms of equal coefficients is that in which their variables were first seen.
    """

    def __init__(self, ranges: Mapping[Var, tuple[int, int]] | None = None) -> None:
        self._ranges: dict[Var, tuple[int, int]] = {}
        self._forget()
        for var, (lo, hi) in (ranges or {}).items():
            self.bind(var, lo, hi)

    def _forget(self) -> None:
        self._space = LinearSpace()
        self._vars: dict[Var, Atom] = {}
        self._forms: dict[int, tuple[Expr, Lin]] = {}
        self._done: dict[int, tuple[Expr, Expr]] = {}
        self._nodes: dict[tuple[object, ...], Expr] = {}
        self._leaves: dict[int, Atom] = {}
        self._below: dict[int, Lin] = {}

    def bind(self, var: Var, lo: int, hi: int) -> None:
        """Learn that lo <= var <= hi, in addition to what is known.  Raises `ExprError` if nothing is left."""
        old = self._ranges.get(var)
        new = (lo, hi) if old is None else (max(lo, old[0]), min(hi, old[1]))
        require(new[0] <= new[1], ExprError, f"range of {var.name}", "lo must not exceed hi", lo=new[0], hi=new[1])
        if new != old:
            self._ranges[var] = new
            if var in self._vars:
                self._forget()

    def bounds(self, e: Expr) -> tuple[int | None, int | None]:
        """Inclusive bounds of an integer or boolean expression, None where there is none."""
        lo, hi = self._interval(self.simplify(e) if e.dtype == "bool" else e)
        return None if lo == -INF else int(lo), None if hi == INF else int(hi)

    def prove(self, cond: Expr) -> bool:
        """Whether `cond` was shown to hold for all values in range."""
        out = self.simplify(cond)
        return isinstance(out, Const) and bool(out.value)

    def simplify(self, e: Expr) -> Expr:
        """An expression of the same dtype and value as `e`, usually shorter."""
        hit = self._done.get(id(e))
        if hit is not None:
            return hit[1]
        dtype = e.dtype
        if dtype in INDEX_DTYPES:
            form = self._form(e, dtype)
            out = self._space.to_expr(form)
            self._forms[id(out)] = (out, form)
        elif dtype == "bool":
            out = self._condition(e)
        else:
            out = self._rewrite(e)
        self._done[id(e)] = (e, out)
        self._done[id(out)] = (out, out)
        return out

    # ----------------------------------------------------------------------------------------- linear forms

    def _form(self, e: Expr, dtype: str) -> Lin:
        """The linear form of an expression of index dtype."""
        hit = self._forms.get(id(e))
        if hit is not None:
            return hit[1]
        match e:
            case Const(value=value):
                out: Lin | None = Lin({}, int(value), dtype)
            case Var():
                out = Lin({self._variable(e): 1}, 0, dtype)
            case Binary(op="+" | "-"):
                out = self._sum(e, dtype)
            case Binary(op=op, a=a, b=b):
                x, y = self._form(a, dtype), self._form(b, dtype)
                out = None if x.data or y.data else self._operate(op, x, y)
            case Select(cond=cond, a=a, b=b) | Call(func="if_then_else", args=(cond, a, b)):
                out = self._choice(cond, a, b, dtype)
            case _:
                out = None
        if out is None or (not isinstance(e, Const) and _outside(out)):
            out = self._opaque(e, dtype)
        self._forms[id(e)] = (e, out)
        return out

    def _sum(self, e: Expr, dtype: str) -> Lin | None:
        """The form of a tree of +, - and multiplications by constants; None if it reads memory."""
        terms: dict[Atom, int] = {}
        const = 0
        stack = [(e, 1)]
        while stack:
            node, k = stack.pop()
            if isinstance(node, Const):
                const += k * int(node.value)
                continue
            if isinstance(node, Binary) and node.op in "+-" and (node is e or id(node) not in self._forms):
                stack.append((node.b, k if node.op == "+" else -k))
                stack.append((node.a, k))
                continue
            form = self._form(node, dtype)
            if form.data:
                return None
            merge(terms, form.terms, k)
            const += k * form.const
        return self._space.form(terms, const, dtype)

    def _operate(self, op: str, x: Lin, y: Lin) -> Lin | None:
        """`x op y` where a law or the ranges give it a form."""
        if op in ("min", "max"):
            return self._extreme(op, x, y)
        if op != "*":
            return self._divide(op, x, y)
        if x.terms and y.terms:
            return None
        x, y = (x, y) if x.terms else (y, x)
        return x.scaled(y.const) if y.const else Lin({}, 0, x.dtype)

    def _divide(self, op: str, x: Lin, y: Lin) -> Lin | None:
        """`x op y` for op in // % / by a constant other than 0; None if there is no law for it."""
        c = y.const
        if y.terms or c == 0:
            return None
        lo, hi = x.bounds
        if op == "/" and lo < 0 < hi:
            return None
        turned = lo < 0 if op == "/" else c < 0
        num = x.scaled(-1) if turned else x
        if _outside(num) or (x.dtype != INDEX and wrapped(abs(c), x.dtype) != abs(c)):
            return None
        if op == "%":
            out = self._space.mod(num, abs(c))
            return out.scaled(-1) if turned else out
        out = self._space.div(num, abs(c))
        return out.scaled(-1) if op == "/" and turned != (c < 0) else out

    def _extreme(self, op: str, x: Lin, y: Lin) -> Lin | None:
        """The min or max of two forms if it is always the same one."""
        lo, hi = self._space.add(x, y, -1).bounds
        if lo >= 0:
            return y if op == "min" else x
        if hi <= 0:
            return x if op == "min" else y
        return None

    def _choice(self, cond: Expr, a: Expr, b: Expr, dtype: str) -> Lin | None:
        known = self.simplify(cond)
        if isinstance(known, Const):
            return self._form(a if known.value else b, dtype)
        x, y = self._form(a, dtype), self._form(b, dtype)
        return x if x.key == y.key else None

    def _variable(self, var: Var) -> Atom:
        atom = self._vars.get(var)
        if atom is None:
            atom = self._vars[var] = self._space.leaf(var, self._ranges.get(var, var.range or EVERYTHING), False)
        return atom

    def _opaque(self, e: Expr, dtype: str) -> Lin:
        """The form of an expression that no law looks into: its operands are simplified."""
        node = self._rewrite(e)
        if isinstance(node, Const):
            return Lin({}, int(node.value), dtype)
        atom = self._leaves.get(id(node))
        if atom is None:
            data = is_data(node)
            atom = self._leaves[id(node)] = self._space.leaf(node, node_interval(node, self._interval), data)
        return Lin({atom: 1}, 0, dtype)

    def _interval(self, e: Expr) -> Interval:
        if e.dtype in INDEX_DTYPES:
            return self._form(e, e.dtype).bounds
        if e.dtype in FLOATS:
            return EVERYTHING
        if isinstance(e, Var):
            return self._ranges.get(e, dtype_interval(e.dtype))
        return node_interval(e, self._interval)

    # --------------------------------------------------------------------------------------- other expressions

    def _rewrite(self, e: Expr) -> Expr:
        """`e` with simplified operands; decided choices and constant casts fold, remainders asked for stay."""
        kids = children(e)
        if not kids:
            return self._shared(e)
        first = self.simplify(kids[0])
        parts = conjuncts(first) if isinstance(first, Compare | Logical | Not) else ()
        with self._space.keeping([self._below[id(c)] for c in parts if id(c) in self._below]):
            new = (first, *[self.simplify(k) for k in kids[1:]])
        if isinstance(e, Select) and isinstance(new[0], Const):
            return new[1] if new[0].value else new[2]
        if isinstance(e, Cast) and isinstance(new[0], Const):
            return self._shared(cast(e.dtype, new[0]))
        return self._shared(rebuild(e, new))

    def _shared(self, e: Expr) -> Expr:
        """One object for all nodes with the same head and the same (shared) children."""
        return self._nodes.setdefault((type(e), _head(e), *map(id, children(e))), e)

    # ---------------------------------------------------------------------------------------------- conditions

    def _condition(self, e: Expr) -> Expr:
        match e:
            case Const(value=value):
                return _TRUE if value else _FALSE
            case Compare(op=op, a=a, b=b) if a.dtype in INDEX_DTYPES:
                return self._compare(e, op, self._form(a, a.dtype), self._form(b, a.dtype))
            case Logical():
                return self._junction(e)
            case Not(a=a):
                return self._negated(self.simplify(a))
            case _:
                return self._rewrite(e)

    def _compare(self, e: Compare, op: str, x: Lin, y: Lin) -> Expr:
        if op in (">", ">="):
            x, y, op = y, x, "<" if op == ">" else "<="
        data = x.data or y.data
        x = self._space.add(x, y, -1).shifted(-1 if op == "<=" else 0)
        lo, hi = x.bounds
        if op in ("<", "<="):
            if data and lo < 0 <= hi:
                return self._rewrite(e)
            return self._negative(x)
        if data and lo <= 0 <= hi and x.terms:
            return self._rewrite(e)
        out = self._zero(x)
        return out if op == "==" else self._negated(out)

    def _negative(self, x: Lin) -> Expr:
        """`x < 0` for a form x.  Both sides may be divided by g, and c*n + r < 0 is n < 0 for 0 <= r < c."""
        while True:
            lo, hi = x.bounds
            if hi < 0 or lo >= 0:
                return _TRUE if hi < 0 else _FALSE
            cut = self._space.partition(x, 0)
            if cut is not None:
                x = cut[1]
                continue
            ((atom, k),) = x.terms.items() if len(x.terms) == 1 else ((None, 0),)
            if atom is None or atom.kind != DIV:
                break
            if k > 0:
                x = atom.num.shifted(x.const * atom.den)
            else:
                x = atom.num.scaled(-1).shifted((x.const + 1) * atom.den - 1)
        plus, minus = x.sides
        to_expr = self._space.to_expr
        if not minus.terms:
            out: Expr = Compare("<", to_expr(plus), to_expr(minus))
        elif not plus.terms:
            out = Compare(">=", to_expr(minus.shifted(-minus.const)), to_expr(Lin({}, 1 - minus.const, x.dtype)))
        elif minus.const == 1:
            out = Compare("<=", to_expr(plus), to_expr(minus.shifted(-1)))
        else:
            out = Compare("<", to_expr(plus), to_expr(minus))
        out = self._shared(out)
        self._below[id(out)] = x
        return out

    def _zero(self, x: Lin) -> Expr:
        """`x == 0` for a form x; both sides may be divided."""
        lo, hi = x.bounds
        g = math.gcd(*x.terms.values()) or 1
        if hi < 0 or lo > 0 or x.const % g:
            return _FALSE
        if not x.terms:
            return _TRUE
        first = min((-abs(k), a.index, k) for a, k in x.terms.items())
        sign = 1 if first[2] > 0 else -1
        plus, minus = Lin({a: sign * k // g for a, k in x.terms.items()}, sign * x.const // g, x.dtype).sides
        return self._shared(Compare("==", self._space.to_expr(plus), self._space.to_expr(minus)))

    def _negated(self, e: Expr) -> Expr:
        """The opposite of a simplified condition."""
        below = self._below.get(id(e))
        if below is not None:
            return self._negative(below.scaled(-1).shifted(-1))
        match e:
            case Const(value=value):
                return _FALSE if value else _TRUE
            case Not(a=a):
                return a
            case Compare(op="==" | "!=" as op, a=a, b=b):
                return self._shared(Compare("!=" if op == "==" else "==", a, b))
            case _:
                return self._shared(Not(e))

    def _junction(self, e: Logical) -> Expr:
        """A conjunction or disjunction: each operand once, without those that follow from others."""
        is_or = e.op == "||"
        kept: list[Expr] = []
        pending: list[Expr] = [e]
        while pending:
            node = pending.pop()
            term = node if isinstance(node, Logical) and node.op == e.op else self.simplify(node)
            if isinstance(term, Logical) and term.op == e.op:
                pending += [term.b, term.a]
            elif isinstance(term, Const):
                if bool(term.value) == is_or:
                    return term
            elif any(self._exclude(x, term, is_or) for x in kept):
                return _TRUE if is_or else _FALSE
            elif not any(self._implies(x, term, is_or) for x in kept):
                weaker = [x for x in kept if self._implies(term, x, is_or)]
                if weaker and not any(map(is_data, kept)):
                    kept = [x for x in kept if all(x is not y for y in weaker)]
                kept.append(term)
        if not kept:
            return _FALSE if is_or else _TRUE
        return reduce(lambda x, y: self._shared(Logical(e.op, x, y)), kept)

    def _implies(self, x: Expr, y: Expr, is_or: bool) -> bool:
        """Whether `y` adds nothing to `x`: it follows from `x` (in a disjunction: `x` follows from it)."""
        if x is y:
            return True
        a, b = self._below.get(id(x)), self._below.get(id(y))
        if a is None or b is None:
            return False
        lo, hi = self._space.add(b, a, -1).bounds
        return lo >= 0 if is_or else hi <= 0

    def _exclude(self, x: Expr, y: Expr, is_or: bool) -> bool:
        """Whether `x` and `y` cannot both hold (in a disjunction: cannot both fail)."""
        a, b = self._below.get(id(x)), self._below.get(id(y))
        if a is None or b is None:
            return self._negated(x) is y
        lo, hi = self._space.add(a, b).bounds
        return hi <= -1 if is_or else lo >= -1


def _outside(x: Lin) -> bool:
    """Whether `x` is known to have values that its dtype has not; index arithmetic of int32 has room."""
    return (not x.terms or x.dtype != INDEX) and any(abs(v) != INF and wrapped(int(v), x.dtype) != v for v in x.bounds)


def _head(e: Expr) -> Any:
    """What tells `e` from nodes of the same type with the same children."""
    match e:
        case Binary(op=op) | Compare(op=op) | Logical(op=op):
            return op
        case Const(value=value, dtype=dtype):
            return dtype, repr(value)
        case Cast(dtype=dtype):
            return dtype
        case Call(func=func, dtype=dtype):
            return func, dtype
        case Load(tensor=tensor):
            return id(tensor)
        case BufferLoad(buffer=buffer):
            return id(buffer)
        case Not() | Select():
            return None
        case _:
            return id(e)
