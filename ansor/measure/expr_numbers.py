"""A number for each expression: those that are written alike have the same, and which are shared is known."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from te_lite.expr.expr import Binary, Call, Compare, Const, Expr, Load, Logical, Var
from te_lite.expr.visit import children


class ExprNumbers:
    """See the module."""

    def __init__(self) -> None:
        self._fresh = itertools.count()
        self._by_form: dict[Any, int] = {}
        self._by_id: dict[int, tuple[int, Expr]] = {}  # the expression is kept, so that nothing else gets its id
        self._uses: Counter[int] = Counter()
        self._roots: set[tuple[Any, int]] = set()

    def of(self, e: Expr) -> int:
        """The number of an expression."""
        known = self._by_id.get(id(e))
        if known is not None:
            return known[0]
        kids = tuple([self.of(k) for k in children(e)])
        form, number = (_word(e), kids), next(self._fresh)
        if self._by_form.setdefault(form, number) == number:
            self._uses.update(kids)
            if isinstance(e, Load):
                self._uses[number] += 2
        self._by_id[id(e)] = (self._by_form[form], e)
        return self._by_form[form]

    def use(self, who: Any, e: Expr) -> None:
        """`who` asks for the value of `e`, which is part of no larger expression."""
        if (who, self.of(e)) not in self._roots:
            self._roots.add((who, self.of(e)))
            self._uses[self.of(e)] += 1

    def is_shared(self, number: int) -> bool:
        """Whether several ask for the value of the expression with that number."""
        return self._uses[number] > 1


def _word(e: Expr) -> tuple[Any, ...]:
    """What an expression is, beside its parts."""
    match e:
        case Var():
            return ("variable", id(e))
        case Const(value=value):
            return (repr(value), e.dtype)
        case Load(tensor=tensor):
            return ("element", tensor)
        case Binary(op=op) | Compare(op=op) | Logical(op=op):
            return (type(e).__name__, op, e.dtype)
        case Call(func=func):
            return ("call", func, e.dtype)
    return (type(e).__name__, e.dtype)
