"""One program for all sizes, from the program of the greatest ones.

An extent that is open has its greatest value wherever a schedule, bounds and storage need a number, and is itself where
a program asks whether a point is inside (`if i < n`).  So a lowered program does the right thing for every size, if
its arguments are as large as they can be; what is done here makes it a program for arguments of the sizes:

    proof       every index of an argument is below the extent of its dimension, for all sizes at once
    loops       a loop ends where `if i < n`, which stands around all inside, holds no more
    strides     rows of an argument are as far apart as its extents say

The proof is that of the verifier for conditions that compare sums (`verify_access.py`), in which a size is one more
variable: `i < n` is the access of element `n - 1 - i`.  Nothing is tried out, and what is not shown is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from te_lite.computation.tensor import Tensor
from te_lite.errors import UnsafeError
from te_lite.expr.element import Buffer, BufferLoad
from te_lite.expr.expr import Binary, Expr, SizeVar, as_expr, binary
from te_lite.expr.lanes import row_major
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import transform
from te_lite.loops.stmt import For, LoweredFunc, Stmt, Store, bodies, map_exprs, stmts_of, with_bodies
from te_lite.loops.stmt_text import pretty
from te_lite.verify.verify import PROVEN, distinct
from te_lite.verify.verify_access import inside
from te_lite.verify.verify_scope import Access
from te_lite.verify.verify_walk import Walk

from .shorten import shortened

Place = Callable[[Buffer, Expr], tuple[Buffer, Expr]]
Extents = Mapping[Buffer, tuple[Any, ...]]
ANY_SIZE = 1 << 62


def open_program(func: LoweredFunc, tensors: Sequence[Tensor]) -> LoweredFunc:
    """The program for all sizes of one that was lowered, and verified, for the greatest.

    Raises UnsafeError where an index is not shown to be inside of its dimension.
    """
    extents = {b: t.op.extents for b, t in zip(func.args, tensors, strict=True)}
    simplifier = loop_ranges(func.body)
    _require_inside(func, extents, simplifier)
    args = {b: Buffer(b.name, b.dtype, extents[b]) if _is_open(extents[b]) else b for b in func.args}
    body = with_places(func.body, lambda b, at: (args.get(b, b), _place(b, at, extents.get(b, ()), simplifier)))
    made = LoweredFunc(func.name, tuple(args.values()), shortened(body, simplifier), func.sizes)
    PROVEN.add(made)
    return made


def loop_ranges(body: Stmt) -> Simplifier:
    """What is known of the loops of a program."""
    extents: dict[Any, int] = {}
    for s in stmts_of(body):
        if isinstance(s, For):
            extents[s.var] = max(s.extent, extents.get(s.var, 1))
    return Simplifier({v: (0, n - 1) for v, n in extents.items()})


def _is_open(dims: Sequence[Any]) -> bool:
    return any(isinstance(d, SizeVar) for d in dims)


def with_places(s: Stmt, place: Place) -> Stmt:
    """A statement whose elements of memory are others: `place(buffer, index)` gives both."""

    def moved(x: Expr) -> Expr | None:
        return BufferLoad(*place(x.buffer, transform(x.index, moved))) if isinstance(x, BufferLoad) else None

    def stored(x: Stmt) -> Stmt:
        match x:
            case Store(buffer=buffer, index=index, value=value):
                return Store(*place(buffer, index), value)
        return with_bodies(x, tuple(map(stored, bodies(x))))

    return stored(map_exprs(s, lambda e: transform(e, moved)))


def _index(index: Expr, d: int, shape: Sequence[int], simplifier: Simplifier) -> Expr:
    """The index of dimension `d` of an element, from its number in a buffer of `shape`."""
    at = binary("//", index, row_major(shape)[d])
    return simplifier.simplify(at if d == 0 else binary("%", at, shape[d]))


def _place(b: Buffer, index: Expr, dims: Sequence[Any], simplifier: Simplifier) -> Expr:
    """Where an element is in an argument of the extents `dims`, by its number in one of the greatest ones."""
    if not _is_open(dims[1:]):
        return index
    strides = [as_expr(1)] * len(dims)
    for d in reversed(range(len(dims) - 1)):
        strides[d] = binary("*", strides[d + 1], dims[d + 1])
    parts = [binary("*", _index(index, d, b.shape, simplifier), stride) for d, stride in enumerate(strides)]
    return reduce(lambda x, y: binary("+", x, y), parts)


def _require_inside(func: LoweredFunc, extents: Extents, simplifier: Simplifier) -> None:
    """Raise UnsafeError for an index that is not shown to be below the extent of its dimension."""
    for d in range(max([len(dims) for dims in extents.values()], default=0)):
        ends = {b: dims[d] for b, dims in extents.items() if d < len(dims) and isinstance(dims[d], SizeVar)}
        _require_below(func, d, ends, simplifier)


def _require_below(func: LoweredFunc, d: int, ends: Mapping[Buffer, SizeVar], simplifier: Simplifier) -> None:
    """The same of dimension `d`, of the arguments for which `ends` has its extent."""
    turned = {b: Buffer(b.name, b.dtype, (end.range[1],)) for b, end in ends.items()}
    end_of = {turned[b]: end for b, end in ends.items()}

    def from_end(b: Buffer, index: Expr) -> tuple[Buffer, Expr]:
        if b not in ends:
            return b, index
        return turned[b], simplifier.simplify(_from_end(ends[b], _index(index, d, b.shape, simplifier)))

    args = tuple([turned.get(b, b) for b in func.args])
    walk = Walk(LoweredFunc(func.name, args, with_places(func.body, from_end), func.sizes))
    for x in [x for x in distinct(walk.open) if x.buffer in end_of and not _is_inside(x.index, x)]:
        end = end_of[x.buffer]
        index = pretty(simplifier.simplify(_from_end(end, x.index)))
        law = f"nothing shows that index {index} of dimension {d} of {x.buffer.name} is below {end.name}"
        raise UnsafeError(f"{func.name}: in_bounds: {law}", "in_bounds")


def _from_end(end: Expr, index: Expr) -> Expr:
    """An index counted from the last element."""
    match index:
        case Binary(op="min" | "max" as op, a=a, b=b):
            return binary("max" if op == "min" else "min", _from_end(end, a), _from_end(end, b))
    return binary("-", binary("-", end, 1), index)


def _is_inside(index: Expr, x: Access) -> bool:
    """Whether an index is shown not to be negative, where the access `x` happens."""
    match index:
        case Binary(op="max", a=a, b=b):
            return _is_inside(a, x) or _is_inside(b, x)
        case Binary(op="min", a=a, b=b):
            return _is_inside(a, x) and _is_inside(b, x)
    return inside(index, ANY_SIZE, x.scope.conditions, x.forms, x.forms.ends(x.scope.spans))
