"""Sums that run along with the extreme that their terms refer to: softmax and attention in one pass.

    M[i] = max_j v[i, j]       S[i, d] = sum_j exp(v[i, j] - M[i]) * w[i, j, d]

Where M is computed along a loop over tiles of j in which S is summed up (`compute_along`), its terms refer to the
extreme of the tiles so far.  When that grows from m to M, what S has become is carried there, by the laws of
`online.py`: every term has one factor `term(v, M)`, so that the sum moves as this factor does,

    S := carry(S, m, M)        m = M at the time of the last tile: S is the sum of the definition

and the first tile is carried from nothing, which leaves zero as it is.  Terms are written out through operations that
are computed element by element; casts of the factor are let through, since carrying is a product with a number
of at most 1, and so rounds like one.

`postponed` moves a quotient out of such a sum: sum_j (t[j] / c) * w[j] = (sum_j t[j] * w[j]) / c, where c has no j.  It
asks that t is a term of such a law, so at most 1, and its sum cannot overflow where the definition does not: c, a sum
of these terms, is at least 1 where it is a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeGuard

from te_lite.computation.derive import REMEMBERED
from te_lite.computation.tensor import ComputeOp, Operation
from te_lite.expr.expr import INDEX, Binary, Cast, Expr, IterVar, Load, Reduce, Var, same
from te_lite.expr.node import binary
from te_lite.expr.visit import substitute, walk

from .online import DTYPES, LAWS, Law, is_plain

ROUNDING = ("float16", "bfloat16", *DTYPES)


@dataclass(frozen=True)
class Carried:
    """How a sum moves when the extreme that it refers to does; `at` is how the sum reads that."""

    law: Law
    at: Load


def carried(total: ComputeOp, extreme: ComputeOp, ops: Sequence[Operation]) -> Carried | None:
    """How the sum `total` moves with `extreme`; `ops` are all operations.  None where no law fits."""
    one, two = extreme.reduction, total.reduction
    if one is None or two is None or two.combiner.name != "sum":
        return None
    if not all(is_plain(replace(x, condition=None)) for x in (one, two)):
        return None
    if [v.extent for v in one.axes] != [v.extent for v in two.axes] or one.sources[0].dtype not in DTYPES:
        return None
    known = element_wise(ops)
    factors = [f for f in _factors(_written_out(two.sources[0], extreme, known)) if depends(f, extreme, known)]
    if len(factors) != 1:
        return None
    found = [x for x in walk(factors[0]) if isinstance(x, Load) and x.tensor == extreme.output()]
    at = found[0]
    if not all(same(x.indices[d], i) for x in found for d, i in enumerate(at.indices)) or not _outside(at, two.axes):
        return None
    env: dict[Var, Expr] = dict(zip((*extreme.axis, *one.axes), (*at.indices, *two.axes), strict=True))
    value = substitute(one.sources[0], env)
    asked = [x.condition for x in (one, two) if x.condition is not None]
    if asked and (len(asked) == 1 or not same(substitute(asked[0], env), asked[1])):
        return None
    for law in LAWS:
        if one.combiner.name == law.extreme and same(factors[0], law.term(_written_out(value, extreme, known), at)):
            return Carried(law, at)
    return None


def _outside(at: Load, axes: Sequence[IterVar]) -> bool:
    """Whether an element is the same for all values of the axes."""
    return not any(x is v for index in at.indices for x in walk(index) for v in axes)


def depends(e: Expr, op: ComputeOp, known: Mapping[object, ComputeOp]) -> bool:
    """Whether an expression depends on `op`, itself or through the element-wise operations `known`."""
    for x in walk(e):
        if isinstance(x, Load):
            through = known.get(x.tensor.op.key)
            if x.tensor.op.key == op.key or (through and any(depends(body, op, known) for body in through.body)):
                return True
    return False


def _written_out(e: Expr, extreme: ComputeOp, known: Mapping[object, ComputeOp]) -> Expr:
    """What an expression computes, elements of operations that depend on `extreme` written out."""
    match e:
        case Load(tensor=tensor, indices=indices) if tensor.op.key in known and depends(e, extreme, known):
            op = known[tensor.op.key]
            value = substitute(op.body[tensor.value_index], dict(zip(op.axis, indices, strict=True)))
            return _written_out(value, extreme, known)
        case Cast(dtype=dtype, a=a):
            return Cast(dtype, _written_out(a, extreme, known))
        case Binary(op="*" | "/" as op, a=a, b=b):
            return binary(op, _written_out(a, extreme, known), _written_out(b, extreme, known))
    return e


def _factors(e: Expr) -> list[Expr]:
    """The factors of a product, without their casts to other floats; one to integers is no product."""
    match e:
        case Cast(dtype=dtype, a=a) if dtype in ROUNDING:
            return _factors(a)
        case Binary(op="*", a=a, b=b):
            return [*_factors(a), *_factors(b)]
    return [e]


# ------------------------------------------------------------------------------------------------------- quotients


@dataclass(frozen=True)
class Share:
    """`term / whole`: a term of a law, and the sum of all terms that refer to the same `extreme`.

    `undivided` is the term, in the dtypes in which the quotient was.
    """

    undivided: Expr
    whole: Load
    extreme: ComputeOp


def share(part: ComputeOp, ops: Sequence[Operation]) -> Share | None:
    """What `part` is a share of; `ops` are all operations.  None where it is none."""
    e, casts, known = part.body[0], list[str](), element_wise(ops)
    while True:
        match e:
            case Cast(dtype=dtype, a=a) if dtype in ROUNDING:
                casts.append(dtype)
                e = a
            case Load(tensor=tensor, indices=indices) if tensor.op.key in known:
                op = known[tensor.op.key]
                e = substitute(op.body[tensor.value_index], dict(zip(op.axis, indices, strict=True)))
            case Binary(op="/", a=a, b=Load() as whole):
                break
            case _:
                return None
    for extreme in ops:
        if is_extreme(extreme) and _is_term(a, whole, part, extreme, ops):
            for dtype in reversed(casts):
                a = Cast(dtype, a)
            return Share(a, whole, extreme)
    return None


def element_wise(ops: Sequence[Operation]) -> dict[object, ComputeOp]:
    return {op.key: op for op in ops if isinstance(op, ComputeOp) and op.reduction is None}


def is_extreme(op: Operation) -> TypeGuard[ComputeOp]:
    reduction = op.reduction if isinstance(op, ComputeOp) else None
    return reduction is not None and reduction.combiner.name in [law.extreme for law in LAWS]


def _is_term(e: Expr, whole: Load, part: ComputeOp, extreme: ComputeOp, ops: Sequence[Operation]) -> bool:
    """Whether `e` is, along the axis of `part` that `whole` lacks, what `whole` sums up and `extreme` carries."""
    divisor, known = whole.tensor.op, element_wise(ops)
    along = [v for v in part.axis if not any(x is v for index in whole.indices for x in walk(index))]
    if not isinstance(divisor, ComputeOp) or divisor.reduction is None or len(divisor.reduction.axes) != 1:
        return False
    if len(along) != 1 or carried(divisor, extreme, ops) is None:
        return False
    env: dict[Var, Expr] = dict(zip((*divisor.axis, *divisor.reduction.axes), (*whole.indices, along[0]), strict=True))
    term = substitute(divisor.reduction.sources[0], env)
    return same(_written_out(term, extreme, known), _written_out(e, extreme, known))


Postponed = tuple[ComputeOp, ComputeOp, ComputeOp]


def postponed(part: ComputeOp, total: ComputeOp, ops: Sequence[Operation]) -> Postponed | None:
    """`(part, sum, quotient)`: `part` without its division, the sum over it, and the same as `total` from that.

    `part` must be a share, and `total` sum up products with it.  None where that is not so.
    """
    found, two = share(part, ops) if part.reduction is None else None, total.reduction
    if found is None or two is None or not is_plain(two) or two.combiner.name != "sum":
        return None
    reads = [x for x in walk(two.sources[0]) if isinstance(x, Load) and x.tensor == part.output()]
    factors = [f for f in _factors(two.sources[0]) if isinstance(f, Load) and f.tensor == part.output()]
    if len(reads) != 1 or len(factors) != 1 or total.body[0].dtype != found.whole.dtype:
        return None
    whole = substitute(found.whole, dict(zip(part.axis, reads[0].indices, strict=True)))
    assert isinstance(whole, Load)
    return _postponed(part, total, found.undivided, whole) if _outside(whole, two.axes) else None


@lru_cache(maxsize=REMEMBERED)
def _postponed(part: ComputeOp, total: ComputeOp, undivided: Expr, whole: Load) -> Postponed:
    axis = tuple([IterVar(f"{v.name}.c", INDEX, v.extent, "spatial") for v in total.axis])
    over = tuple([IterVar(v.name, INDEX, v.extent, "reduce") for v in total.reduce_axis])
    env: dict[Var, Expr] = dict(zip((*total.axis, *total.reduce_axis), (*axis, *over), strict=True))
    e = total.reduction
    assert e is not None
    body = Reduce(e.combiner, tuple([substitute(s, env) for s in e.sources]), over, None, e.value_index)
    sums = ComputeOp(f"{total.name}.undivided", axis, (body,), ("PDV", total.key), total.tag, total.attrs, over)
    quotient = binary("/", Load(sums.output(), total.axis), whole)
    return replace(part, body=(undivided,)), sums, ComputeOp(total.name, total.axis, (quotient,), total.key)
