"""Two reductions in one pass over their points: a greatest value, and a sum of terms that depend on it.

    M = max_k f(k)          S = sum_k h(f(k), M)          e.g. h(v, M) = exp(v - M)

S needs M, so all points are visited twice, and no part of them can be summed up before all parts have been compared.
But a part of the points has a greatest value `m` of its own, and `s = sum h(f(k), m)`.  Where there is a `carry` with

    1.  h(v, v) = 1
    2.  h(v, M) = carry(h(v, m), m, M)                            a term moves from one reference to another,
    3.  carry(s + t, m, M) = carry(s, m, M) + carry(t, m, M)      and so does a sum of terms,
    4.  0 <= carry(s, m, M) <= s  where M is the greater one      with no overflow that the definition does not have

the pairs (m, s) are values of one reduction, which knows no order:

    (m, s) + (n, t) = (m, s + carry(t, n, m)) if m >= n else (n, t + carry(s, m, n))        (v, 1) for one point

The identity is (-inf, 0).  What is carried to where it is already is carried from 0 to 0, which leaves it alone:
`exp(-inf - -inf)` is NaN, and an empty part must stay neutral.  In the end the sum is carried from M to M, which
changes nothing where M is finite; where it is not, the definition says NaN, and so does `exp(M - M)`.  A NaN among the
values makes both NaN, as by definition.

`LAWS` is the table of what is known: the obligations 1 to 4, and the neutral and special values, are tested for every
entry against float64 (tests/ansor_ext/online/test_online.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from te_lite.computation.derive import REMEMBERED
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.expr import INDEX, Combiner, Expr, IterVar, Load, Reduce, Var, call, compare, const, same, select
from te_lite.expr.node import binary
from te_lite.expr.visit import substitute, walk

DTYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class Law:
    """Terms `term(v, M)` of a sum, `M` being the `extreme` ("max" or "min") of all `v`, that can be carried."""

    extreme: str
    term: Callable[[Expr, Expr], Expr]
    carry: Callable[[Expr, Expr, Expr], Expr]


LAWS = (
    Law("max", lambda v, m: call("exp", v - m), lambda s, m, to: s * call("exp", m - to)),
    Law("min", lambda v, m: call("exp", m - v), lambda s, m, to: s * call("exp", to - m)),
)

Joined = tuple[ComputeOp, ComputeOp, ComputeOp]


def combined(law: Law, dtype: str, identity: Expr, sums: int = 1) -> Combiner:
    """The reducer of an extreme, whose identity is given, and of so many `sums` of terms that refer to it."""
    (m, *s), (n, *t) = [[Var(f"{side}{k}", dtype) for k in range(1 + sums)] for side in "xy"]
    first = compare(">=" if law.extreme == "max" else "<=", m, n)
    there, zero = compare("==", m, n), const(0, dtype)
    ahead, behind = [select(there, zero, e) for e in (select(first, m, n), select(first, n, m))]
    pairs = [(select(first, a, b), select(first, b, a)) for a, b in zip(s, t, strict=True)]
    total = [kept + law.carry(moved, behind, ahead) for kept, moved in pairs]
    neutral = (identity, *[zero] * sums)
    return Combiner(f"online_{law.extreme}", (m, *s), (n, *t), (binary(law.extreme, m, n), *total), neutral)


def joined_ops(first: ComputeOp, second: ComputeOp, inlined: tuple[ComputeOp, ...]) -> Joined | None:
    """`(pairs, first, second)`: one reduction, and the two as elementwise operations that read it.

    `first` must be an extreme, and `second` a sum over the same points of terms that refer to it, written there or in
    one of `inlined`, which stand where they are read.  None where no law fits.
    """
    law = _law_of(first, second, {op.key: op for op in inlined})
    return None if law is None else _joined(law, first, second)


@lru_cache(maxsize=REMEMBERED)
def _joined(law: Law, first: ComputeOp, second: ComputeOp) -> Joined:
    pairs = _pairs(law, first, second)
    at, own = [tuple([IterVar(v.name, INDEX, v.extent, "spatial") for v in op.axis]) for op in (first, second)]
    extreme = ComputeOp(first.name, at, (Load(pairs.output(0), at),), first.key, scope=first.scope)
    most, total = Load(pairs.output(0), own), Load(pairs.output(1), own)
    return pairs, extreme, ComputeOp(second.name, own, (law.carry(total, most, most),), second.key, scope=second.scope)


def _law_of(first: ComputeOp, second: ComputeOp, inlined: Mapping[object, ComputeOp]) -> Law | None:
    """The law by which `second` sums up terms of `first`."""
    one, two = first.reduction, second.reduction
    if one is None or two is None or first.shape != second.shape or not (is_plain(one) and is_plain(two)):
        return None
    if [v.extent for v in one.axes] != [v.extent for v in two.axes] or two.combiner.name != "sum":
        return None
    env: dict[Var, Expr] = dict(zip((*first.axis, *one.axes), (*second.axis, *two.axes), strict=True))
    value, source = substitute(one.sources[0], env), _written_out(two.sources[0], inlined)
    if value.dtype not in DTYPES or source.dtype != value.dtype:
        return None
    for law in LAWS:
        at = _reference(source, first) if one.combiner.name == law.extreme else None
        if at is not None and _is_own(at, second) and same(source, law.term(value, at)):
            return law
    return None


def is_plain(e: Reduce) -> bool:
    """Whether it folds one value over axes of known extents, all points of them, from the identity on."""
    fixed = all(isinstance(v.extent, int) for v in e.axes)
    return len(e.sources) == 1 and e.condition is None and not e.init and fixed


def _written_out(e: Expr, inlined: Mapping[object, ComputeOp]) -> Expr:
    """An element of an inlined operation as what it is computed by."""
    while isinstance(e, Load) and e.tensor.op.key in inlined:
        op = inlined[e.tensor.op.key]
        e = substitute(op.body[e.tensor.value_index], dict(zip(op.axis, e.indices, strict=True)))
    return e


def _reference(e: Expr, op: ComputeOp) -> Load | None:
    """The element of `op` that a term reads."""
    found = [x for x in walk(e) if isinstance(x, Load) and x.tensor == op.output()]
    return found[0] if found else None


def _is_own(at: Load, reader: ComputeOp) -> bool:
    """Whether an element is read at the point of its reader."""
    return all(same(i, v) or v.extent == 1 for i, v in zip(at.indices, reader.axis, strict=True))


def _pairs(law: Law, first: ComputeOp, second: ComputeOp) -> ComputeOp:
    """The reduction of pairs, over axes of its own."""
    e = first.reduction
    assert e is not None
    axis = tuple([IterVar(v.name, INDEX, v.extent, "spatial") for v in first.axis])
    over = tuple([IterVar(v.name, INDEX, v.extent, "reduce") for v in e.axes])
    value = substitute(e.sources[0], dict(zip((*first.axis, *e.axes), (*axis, *over), strict=True)))
    combiner = combined(law, value.dtype, e.combiner.identity[0])
    sources = (value, const(1, value.dtype))
    body = tuple([Reduce(combiner, sources, over, None, k) for k in range(2)])
    return ComputeOp(f"{first.name}.online", axis, body, ("JRD", first.key, second.key), first.tag, first.attrs, over)
