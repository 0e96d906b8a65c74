"""Operations in the computation of one point, by kind (appendix B of the Ansor paper, group 1).

The expression is the body as it is computed: inlined stages expanded, and for a reduction the combiner applied to
the running value and the source.  Index arithmetic counts as integer operations.  Constants count nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from te_lite.expr.expr import FLOATS, Binary, Call, Cast, Compare, Expr, Logical, Not, Reduce, Select
from te_lite.expr.visit import children, substitute

Counts = dict[str, int]

_BINARY = {"+": "addsub", "-": "addsub", "*": "mul", "/": "divmod", "//": "divmod", "%": "divmod"}
_FLOPS = ("addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")


def op_counts(bodies: Sequence[Expr]) -> Counts:
    """Operations of one point of a stage with these bodies, by column name (`float_mad`, `bool_op`, ...)."""
    found: Counter[str] = Counter()
    for e in _computed(bodies):
        _count(e, found)
    return dict(found)


def flops(counts: Counts) -> int:
    """Float operations; a multiply-add is two."""
    return 2 * counts.get("float_mad", 0) + sum([counts.get(f"float_{kind}", 0) for kind in _FLOPS])


def _computed(bodies: Sequence[Expr]) -> list[Expr]:
    first = bodies[0]
    if not isinstance(first, Reduce):
        return list(bodies)
    sources = dict(zip(first.combiner.rhs, first.sources, strict=True))
    updates = [substitute(r, sources) for r in first.combiner.result]
    return updates if first.condition is None else [*updates, first.condition]


def _kind(e: Expr) -> str:
    return "float" if e.dtype in FLOATS else "int"


def _count(e: Expr, found: Counter[str]) -> None:
    match e:
        case Binary(op="+" | "-", a=a, b=b) if _is_product(a) or _is_product(b):
            product = a if _is_product(a) else b
            found[f"{_kind(e)}_mad"] += 1
            for part in (*children(product), b if product is a else a):
                _count(part, found)
            return
        case Binary(op=op):
            found[f"{_kind(e)}_{_BINARY.get(op, 'cmp')}"] += 1
        case Compare(a=a):
            found[f"{_kind(a)}_cmp"] += 1
        case Logical() | Not():
            found["bool_op"] += 1
        case Select() | Call(func="if_then_else"):
            found["select_op"] += 1
        case Call():
            found[f"{_kind(e)}_mathfunc"] += 1
        case Cast():
            found[f"{_kind(e)}_otherfunc"] += 1
    for part in children(e):
        _count(part, found)


def _is_product(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "*"
