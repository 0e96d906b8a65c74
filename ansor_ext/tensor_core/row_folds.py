"""Rows of sums in registers as tensor cores leave them, folded and rounded by fewer instructions.

    for j: for i: for v: part[i] = max(part[i], s[j, i, v] * c)
                                        for j: for i: for v: ways[2 i + v] = max(ways[2 i + v], s[j, i, v])
                                        for i: part[i] = max(ways[2 i], ways[2 i + 1]) * c
    e[j, i, v] = exp(s[j, i, v] * c - top[i])                      one multiply-add, one power of two (`Power`)
    p[j, i, 0], p[j, i, 1] = half(e[j, i, 0]), half(e[j, i, 1])    one conversion (`Rounded`)
    out = o / whole[i]                                             o * inverse[i]

A factor c > 0 keeps the order of what it multiplies, roundings included, so it can be multiplied by once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from te_lite.expr.expr import Binary, BufferLoad, Call, Cast, Const, Expr, Select, Var, as_expr, binary, const, select
from te_lite.expr.visit import substitute, transform, walk
from te_lite.loops.stmt import (
    Alloc,
    Buffer,
    For,
    ForKind,
    Stmt,
    Store,
    bodies,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)

from .instructions import Power, Rounded

WAYS = 2
"""Neighbours of a row that a thread has of a tile of sums."""


def folded(stmts: Sequence[Stmt]) -> list[Stmt]:
    """Statements whose folds have as many chains as a thread has neighbours, behind what they begin with."""
    out, done = list[Stmt](), False
    for s, after in pairwise([*stmts, seq()]):
        made = None if done else _in_ways(s, after)
        if not done:
            out.append(s if made is None else made)
        done = made is not None
    return out


def _in_ways(begin: Stmt, fold: Stmt) -> Stmt | None:
    """A loop that sets parts to a constant, and one that folds neighbours into them; None for others."""
    match begin:
        case For(extent=rows, body=Store(buffer=part, index=Var(), value=Const() as neutral)):
            pass
        case _:
            return None
    stores = [x for x in stmts_of(fold) if isinstance(x, Store)]
    inner = [x for x in stmts_of(fold) if isinstance(x, For)]
    match stores:
        case [Store(buffer=buffer, index=Var() as row, value=value)] if buffer is part and inner:
            pass
        case _:
            return None
    at = inner[-1].var
    if not isinstance(value, Binary) or value.op not in ("max", "min", "+") or inner[-1].extent != WAYS:
        return None
    if not isinstance(value.a, BufferLoad) or value.a.buffer is not part or value.a.index is not row or row is at:
        return None
    if any(isinstance(x, BufferLoad) and x.buffer is part for x in walk(value.b)):
        return None
    ways = Buffer(f"{part.name}.ways", part.dtype, (rows * WAYS,), part.scope)
    term, factor = (value.b, None) if value.op == "+" else _factored(value.b)
    own = BufferLoad(ways, binary("+", binary("*", row, WAYS), at))

    def moved(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return Store(ways, own.index, binary(value.op, own, term))
        return with_bodies(s, tuple([moved(b) for b in bodies(s)]))

    way, line = Var(f"{at.name}_way"), Var(f"{row.name}_met")
    pair = [BufferLoad(ways, binary("+", binary("*", line, WAYS), k)) for k in range(WAYS)]
    met = binary(value.op, *pair) if factor is None else binary("*", binary(value.op, *pair), factor)
    cleared = For(way, rows * WAYS, ForKind.UNROLLED, Store(ways, way, neutral))
    return Alloc(ways, seq(cleared, moved(fold), For(line, rows, ForKind.UNROLLED, Store(part, line, met))))


def _factored(e: Expr) -> tuple[Expr, Expr | None]:
    """A value without the positive constant that it is multiplied by, and this; masked values, too."""
    match e:
        case Binary(op="*", a=BufferLoad() as a, b=Const(value=value) as b) if value > 0:
            return a, b
        case Call(func="if_then_else", args=(cond, a, Const() as b)) | Select(cond=cond, a=a, b=Const() as b):
            inner, factor = _factored(a)
            if factor is not None and b.value in (float("inf"), -float("inf")):
                return select(cond, inner, b), factor
    return e, None


def unrolled(s: Stmt) -> Stmt:
    """A statement with its loops unrolled, powers of e as powers of two, and pairs rounded together."""
    match s:
        case For(extent=2, body=Store() as store) if (pair := _pair(s, store)) is not None:
            return pair
        case For(kind=ForKind.SERIAL, body=body):
            return replace(s, kind=ForKind.UNROLLED, body=unrolled(body))
        case Store(value=Call(func="exp", args=(Binary(op="-", a=a, b=b),))) if s.buffer.size > WAYS:
            value, factor = _scaled(a)
            return Power(BufferLoad(s.buffer, s.index), value, b, factor) if s.buffer.dtype == "float32" else s
        case Store(value=Call(func="if_then_else", args=(cond, Call(func="exp") as e, other))) if _is_local(e):
            own = BufferLoad(s.buffer, s.index)
            return seq(unrolled(replace(s, value=e)), replace(s, value=select(cond, own, other)))
    return with_bodies(s, tuple([unrolled(b) for b in bodies(s)]))


def _scaled(e: Expr) -> tuple[Expr, float]:
    """A value and the constant that it is multiplied by."""
    match e:
        case Binary(op="*", a=a, b=Const(value=value)):
            return a, float(value)
    return e, 1.0


def _pair(loop: For, s: Store) -> Stmt | None:
    """Two neighbours that are rounded and stored; None for others."""
    value = rounded_value(s.value)
    if value is None or not _is_local(value):
        return None
    both = [substitute(value, {loop.var: as_expr(k)}) for k in range(WAYS)]
    if s.buffer.storage == "local":
        return Rounded(BufferLoad(s.buffer, substitute(s.index, {loop.var: as_expr(0)})), *both)
    two = Buffer("two", s.buffer.dtype, (WAYS,), "local")
    stored = replace(loop, body=replace(s, value=BufferLoad(two, loop.var)))
    return Alloc(two, seq(Rounded(BufferLoad(two, as_expr(0)), *both), stored))


def rounded_value(e: Expr) -> Expr | None:
    """The float that a value rounds to 16 bits, maybe zero under a condition; None for another."""
    match e:
        case Cast(dtype="float16" | "bfloat16", a=a) if a.dtype == "float32":
            return a
        case Call(func="if_then_else", args=(cond, Cast(dtype="float16" | "bfloat16", a=a), Const(value=0))) if (
            a.dtype == "float32"
        ):
            return select(cond, a, const(0, "float32"))
    return None


def with_inverses(stmts: Sequence[Stmt]) -> tuple[list[Stmt], list[Stmt], list[Buffer]]:
    """What makes inverses of local values that statements divide by, these on them, and where the inverses are."""
    found: dict[Buffer, Buffer] = {}

    def times(e: Expr) -> Expr | None:
        match e:
            case Binary(op="/", a=a, b=BufferLoad(buffer=buffer, index=index)) if buffer.storage == "local":
                inverse = found.setdefault(buffer, replace(buffer, name=f"{buffer.name}.inverse"))
                return binary("*", a, BufferLoad(inverse, index))
        return None

    out = [map_exprs(s, lambda e: transform(e, times)) for s in stmts]
    return [_inverted(buffer, inverse) for buffer, inverse in found.items()], out, list(found.values())


def _inverted(buffer: Buffer, inverse: Buffer) -> Stmt:
    """The inverses of all that a buffer holds."""
    at = Var("row")
    value = binary("/", const(1, buffer.dtype), BufferLoad(buffer, at))
    return For(at, buffer.size, ForKind.UNROLLED, Store(inverse, at, value))


def _is_local(e: Expr) -> bool:
    """Whether a value is of registers alone."""
    return all(x.buffer.storage == "local" for x in walk(e) if isinstance(x, BufferLoad))
