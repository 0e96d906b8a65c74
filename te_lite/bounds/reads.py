"""The reads of a program with its inlined stages expanded, index by index in a form that regions understand.

Arithmetic on data stays arithmetic on data.  Inlining a stage that is made of loop variables only, or deciding a
condition, takes the read of memory away that made an operation one on data, which wraps around; what is left would be
index arithmetic, which has no width.  Where that changes a value, an operand is put into `trunc`, which is the identity
on integers and always data (`width.py`).

An index that flattens axes in the same order as a fused loop is affine in the value of that loop:

    for r in 0..N*H*W, fused of n, h, w:  reads s[(n*H + h)*W + w, f],  stores y[n, h, w, f]

Both are at r, of which n is r // (H*W), h is r // W % H, and w is r % W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

from ..computation.tensor import ComputeOp, Operation
from ..expr.element import Carried
from ..expr.expr import FLOATS, Binary, Call, Cast, Const, Expr, Load, Reduce, Select, Var, as_expr
from ..expr.interval import INDEX_DTYPES, binary_interval
from ..expr.lanes import both
from ..expr.visit import children, rebuild, substitute, transform, walk
from ..loops.width import Widths, fits
from ..schedule.loop_value import fused_strides
from ..schedule.state import FuseRel, Stage

# --------------------------------------------------------------------------------------------------- arithmetic on data


Kept = Callable[[Load], bool]


def kept_as_data(e: Expr, widths: Widths, kept: Kept) -> Expr:
    """`e` with the operands in `trunc` that keep its operations data arithmetic; itself where none is needed.

    `widths` knows the axes of the stage, `kept(load)` says whether a read certainly stays one of data.
    """
    old = children(e)
    new = tuple([kept_as_data(x, widths, kept) for x in old])
    sure = isinstance(e, Binary) and any(stays_data(x, kept) for x in old)
    if e.dtype in INDEX_DTYPES and not sure and not widths.range(e)[1] and _leaves(e, widths):
        new = tuple([_held(x, y, widths, kept) for x, y in zip(old, new, strict=True)])
    return e if all(x is y for x, y in zip(old, new, strict=True)) else rebuild(e, new)


def kept_as_value(e: Expr, widths: Widths, kept: Kept) -> Expr:
    """As `kept_as_data`, and where `e` itself is index arithmetic that does not fit its dtype, data of that dtype."""
    new = kept_as_data(e, widths, kept)
    wide = e.dtype in INDEX_DTYPES and not fits(widths.range(e)[0], e.dtype)
    return Call("trunc", (new,), e.dtype) if wide else new


def _leaves(e: Expr, widths: Widths) -> bool:
    """Whether an operation of integers, or an operand of it, may leave its dtype."""
    match e:
        case Binary(op=op, a=a, b=b):
            x, y = widths.range(a)[0], widths.range(b)[0]
            whole = op in ("//", "/") or fits(binary_interval(op, x, y), e.dtype)
            lowest = op in ("//", "/") and not fits((-x[1], -x[0]), e.dtype)
            return lowest or not (whole and fits(x, e.dtype) and fits(y, e.dtype))
        case Call(func="abs", args=(a,)):
            lo, hi = widths.range(a)[0]
            return not fits((-hi, -lo), e.dtype)
        case Select(a=a, b=b) | Call(func="if_then_else", args=(_, a, b)):
            return not all(fits(widths.range(x)[0], e.dtype) for x in (a, b))
    return False


def _held(old: Expr, new: Expr, widths: Widths, kept: Kept) -> Expr:
    if old.dtype not in INDEX_DTYPES or isinstance(old, Const) or stays_data(old, kept):
        return new
    index = widths.range(old)[1]
    return new if index and fits(widths.range(old)[0], old.dtype) else Call("trunc", (new,), new.dtype)


def stays_data(e: Expr, kept: Kept) -> bool:
    """Whether no pass can make index arithmetic, or a constant, of `e`."""
    match e:
        case Load():
            return kept(e)
        case Carried():
            return True
        case Cast(a=a) if e.dtype != "bool":
            return stays_data(a, kept)
        case Binary(op=op, a=a, b=b) if op in ("+", "-") or e.dtype in FLOATS:
            return stays_data(a, kept) or stays_data(b, kept)
        case Binary(op="*", a=a, b=Const() as b) | Binary(op="*", a=Const() as b, b=a):
            return b.value != 0 and stays_data(a, kept)
        case Binary(op="*" | "min" | "max", a=a, b=b) | Select(a=a, b=b) | Call(func="if_then_else", args=(_, a, b)):
            return stays_data(a, kept) and stays_data(b, kept)
        case Call(func=func, args=args) if func != "isnan":
            return any(stays_data(a, kept) for a in args)
    return False


# ---------------------------------------------------------------------------------------------------------------- reads


@dataclass(frozen=True, slots=True)
class Affine:
    """`const + sum of coefficient * axis`; axes by their number in the stage (spatial first)."""

    terms: tuple[tuple[int, int], ...]
    const: int


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of `parts`, and `const`."""

    parts: tuple[Form, ...]
    const: int = 0


@dataclass(frozen=True, slots=True)
class Scaled:
    """`part` times `factor`."""

    part: Form
    factor: int


@dataclass(frozen=True, slots=True)
class Quotient:
    """`part // divisor`, or `part % divisor` with `mod`."""

    part: Form
    divisor: int
    mod: bool


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything else: the whole dimension may be read."""


Form = Affine | Sum | Scaled | Quotient | Unknown


def index_form(e: Expr, axes: dict[Var, int]) -> Form:
    """Classify an index expression over the axes of its stage."""
    match e:
        case Const():
            return Affine((), int(e.value))
        case Var():
            return Affine(((axes[e], 1),), 0) if e in axes else Unknown()
        case Binary(op="+", a=a, b=b):
            return _sum(index_form(a, axes), index_form(b, axes))
        case Binary(op="-", a=a, b=b):
            return _sum(index_form(a, axes), _scaled(index_form(b, axes), -1))
        case Binary(op="*", a=a, b=Const() as c) | Binary(op="*", a=Const() as c, b=a):
            return _scaled(index_form(a, axes), int(c.value))
        case Binary(op="//" | "%" as op, a=a, b=Const() as c) if c.value > 0:
            part = index_form(a, axes)
            return part if isinstance(part, Unknown) else Quotient(part, int(c.value), op == "%")
        case Select(cond=Const() as c, a=a, b=b):
            return index_form(a if c.value else b, axes)
        case _:
            return Unknown()


def _sum(a: Form, b: Form) -> Form:
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return Unknown()
    if isinstance(a, Affine) and isinstance(b, Affine):
        terms = dict(a.terms)
        for axis, c in b.terms:
            terms[axis] = terms.get(axis, 0) + c
        return Affine(tuple((axis, c) for axis, c in terms.items() if c), a.const + b.const)
    return Sum((a, b))


def _scaled(a: Form, factor: int) -> Form:
    if isinstance(a, Affine):
        return Affine(tuple((axis, c * factor) for axis, c in a.terms if factor), a.const * factor)
    return a if isinstance(a, Unknown) else Scaled(a, factor)


def goes_backward(form: Form) -> bool:
    """Whether an index, or a part of it, may fall while an axis rises: it has a negative coefficient."""
    match form:
        case Affine(terms=terms):
            return any(c < 0 for _, c in terms)
        case Sum(parts=parts):
            return any(goes_backward(part) for part in parts)
        case Scaled(part=part, factor=factor):
            return factor < 0 or goes_backward(part)
        case Quotient(part=part):
            return goes_backward(part)
        case Unknown():
            return False


@dataclass(frozen=True, slots=True)
class Read:
    """Stage `reader` reads a stage at `forms`, one per dimension; `backward` if some index `goes_backward`."""

    reader: int
    forms: tuple[Form, ...]
    backward: bool


@lru_cache(maxsize=1024)
def expanded_bodies(ops: tuple[Operation, ...], inlined: frozenset[int]) -> tuple[tuple[Expr, ...], ...]:
    """The bodies of all stages with the stages `inlined` substituted (empty for placeholders and inlined ones)."""
    hidden = {ops[k].key: ops[k] for k in inlined}
    done: dict[object, tuple[Expr, ...]] = {}

    def expand(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        key, indices = e.tensor.op.key, tuple([transform(i, expand) for i in e.indices])
        if key not in hidden:
            return rebuild(e, indices)
        return substitute(done[key][e.tensor.value_index], dict(zip(hidden[key].axis, indices, strict=True)))

    kept: dict[object, tuple[bool, ...]] = {}

    def stays(load: Load) -> bool:
        key = load.tensor.op.key
        return kept[key][load.tensor.value_index] if key in hidden else True

    for op in ops:
        if isinstance(op, ComputeOp):
            kept[op.key] = tuple([stays_data(e, stays) for e in op.body])
            done[op.key] = _expand_op(op, _pinning(op, stays), expand)
        else:
            done[op.key] = ()
    return tuple([() if op.key in hidden else done[op.key] for op in ops])


def _pinning(op: ComputeOp, stays: Callable[[Load], bool]) -> Callable[[Expr], Expr]:
    """What keeps the arithmetic on data of a stage what it is."""
    axes = (*op.axis, *op.reduce_axis)
    known = Widths({v: (0, v.extent - 1) for v in axes if isinstance(v.extent, int)})
    widths = Widths({v: (0, known.range(as_expr(v.extent))[0][1] - 1) for v in axes})
    return lambda e: kept_as_value(e, widths, stays)


def _expand_op(
    op: ComputeOp, pinned: Callable[[Expr], Expr], expand: Callable[[Expr], Expr | None]
) -> tuple[Expr, ...]:
    first = op.reduction
    if first is None:
        return tuple([transform(pinned(e), expand) for e in op.body])
    new = transform(rebuild(first, tuple(map(pinned, children(first)))), expand)
    assert isinstance(new, Reduce)
    return tuple(
        [Reduce(new.combiner, new.sources, new.axes, new.condition, k, new.init) for k in range(op.num_outputs)]
    )


@lru_cache(maxsize=1024)
def reads_by_producer(ops: tuple[Operation, ...], inlined: frozenset[int]) -> tuple[tuple[Read, ...], ...]:
    """For each stage the reads of it by stages that are not inlined, in stage order."""
    index = {op.key: k for k, op in enumerate(ops)}
    found: list[dict[Read, None]] = [{} for _ in ops]
    for k, bodies in enumerate(expanded_bodies(ops, inlined)):
        op = ops[k]
        axes: dict[Var, int] = {v: n for n, v in enumerate((*op.axis, *op.reduce_axis))}
        for body in bodies[:1] if op.reduce_axis else bodies:
            for node in walk(body):
                if isinstance(node, Load):
                    forms = tuple([index_form(i, axes) for i in node.indices])
                    found[index[node.tensor.op.key]].setdefault(Read(k, forms, any(map(goes_backward, forms))))
    return tuple(tuple(reads) for reads in found)


def reads_by(reader: int, ops: tuple[Operation, ...], inlined: frozenset[int] = frozenset()) -> list[tuple[int, Read]]:
    """The reads by stage `reader`, each with the stage that it reads, in stage order."""
    return [(p, r) for p, reads in enumerate(reads_by_producer(ops, inlined)) for r in reads if r.reader == reader]


def reads_all(read: Read, shape: tuple[int, ...], reader: tuple[int, ...]) -> bool:
    """Whether a read that runs through the shape of its reader meets every element of `shape`."""
    axes = [f.terms[0][0] for f in read.forms if isinstance(f, Affine) and f.const == 0 and len(f.terms) == 1]
    plain = all(isinstance(f, Affine) and f.terms and f.terms[0][1] == 1 for f in read.forms)
    fits = all(a < len(reader) and reader[a] == d for a, d in zip(axes, shape, strict=False))
    return plain and fits and len(set(axes)) == len(shape)


# --------------------------------------------------------------------------------------- indices that fused loops count


@dataclass(frozen=True)
class Counted:
    """An index that is `factor` times the value of a loop, fused of axes, plus `rest`; `same`: whether, or where."""

    rel: FuseRel
    factor: int
    rest: Affine
    same: Any


def counted_through(stage: Stage, form: Form) -> Iterator[Counted]:
    """An index by each loop that was fused of axes: the same where it counts through these as the loop does."""
    if isinstance(form, Affine) and len(form.terms) > 1:
        terms = dict(form.terms)
        for rel in [rel for rel in stage.relations if isinstance(rel, FuseRel) and terms.keys() >= set(rel.parts)]:
            strides, factor = fused_strides(stage, rel), terms[rel.parts[-1]]
            same = reduce(both, [terms[part] == factor * stride for part, stride in strides.items()])
            rest = tuple([(axis, c) for axis, c in form.terms if axis not in strides])
            yield Counted(rel, factor, Affine(rest, form.const), same)
