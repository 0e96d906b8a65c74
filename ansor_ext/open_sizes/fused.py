"""Where a loop ends that was fused of several: in `if f//8*16 + f%8 < n`, `f` ends at `(n + 15)//16*8`.

The parts of a fused loop are quotients and remainders of its variable.  A remainder counts as 0, its least value, and
what is left bounds the greatest quotient, so the end is exact where the outermost part alone has the open extent.
"""

from __future__ import annotations

from collections.abc import Callable

from te_lite.expr.expr import INDEX, Binary, Compare, Const, Expr, Var, binary
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, walk

End = Callable[[Expr, Var], Expr | None]
"""The number of first values of a variable for which a condition may hold, if sizes alone decide that."""


def fused_end(c: Expr, var: Var, simplifier: Simplifier, end: End) -> Expr | None:
    """The end of a loop whose variable `c` reads in quotients and remainders; None where nothing says it.

    `end` gives that of a loop whose variable is the greatest quotient.
    """
    widths = [x.b.value for x in walk(c) if isinstance(x, Binary) and _is_quotient(x, var) and isinstance(x.b, Const)]
    if not isinstance(c, Compare) or not widths:
        return None
    outer, width = Var(f"{var.name}_outer", INDEX), int(max(widths))
    least = _least(simplifier.simplify(binary("-", c.a, c.b)), var, width, outer)
    found = None if least is None else end(Compare(c.op, least, Const(0)), outer)
    return None if found is None else simplifier.simplify(binary("*", found, width))


def _is_quotient(x: Binary, var: Var) -> bool:
    return x.op == "//" and x.a is var


def _least(e: Expr, var: Var, width: int, outer: Var) -> Expr | None:
    """No more than `e`, in terms of `outer`, the quotient of a variable by `width`; None where no case gives it."""
    match e:
        case _ if var not in free_vars(e):
            return e
        case Var():
            return binary("*", outer, width)
        case Binary(op="//", b=Const(value=by)) if _is_quotient(e, var) and width % by == 0:
            return binary("*", outer, width // int(by))
        case Binary(op="%", b=Const(value=by)) if by > 0:
            return Const(0)
        case Binary(op="+" | "-" as op, a=a, b=b) if op == "+" or var not in free_vars(b):
            x, y = _least(a, var, width, outer), _least(b, var, width, outer)
            return None if x is None or y is None else binary(op, x, y)
        case Binary(op="*", a=a, b=Const(value=by)) if by > 0:
            x = _least(a, var, width, outer)
            return None if x is None else binary("*", x, by)
    return None
