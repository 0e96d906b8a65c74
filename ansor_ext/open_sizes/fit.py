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

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from te_lite.computation.tensor import Tensor
from te_lite.errors import LowerError, UnsafeError, require
from te_lite.expr.element import Buffer, BufferLoad
from te_lite.expr.expr import Binary, Expr, SizeVar, as_expr, binary, same
from te_lite.expr.lanes import row_major
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute, transform
from te_lite.loops.stmt import (
    For,
    ForKind,
    Instruction,
    LoweredFunc,
    Stmt,
    Store,
    bodies,
    map_exprs,
    stmts_of,
    with_bodies,
)
from te_lite.loops.stmt_text import pretty
from te_lite.verify.verify import PROVEN

from .places import Here, with_places_here
from .shorten import shortened
from .whole import with_whole_tiles

Place = Callable[[Buffer, Expr], tuple[Buffer, Expr]]


def open_program(func: LoweredFunc, tensors: Sequence[Tensor]) -> LoweredFunc:
    """The program for all sizes of one that was lowered, and verified, for the greatest.

    Raises UnsafeError where an index is not shown to be inside of its dimension, LowerError for a program of tensor
    cores.
    """
    together = any(isinstance(s, Instruction) for s in stmts_of(func.body))
    law = "instructions of tensor cores are for extents that are numbers"
    require(not together, LowerError, func.name, law, sizes=list(func.sizes))
    made = _Opened(func, tensors).func
    PROVEN.add(made)
    return made


def loop_ranges(body: Stmt) -> Simplifier:
    """What is known of the loops of a program."""
    extents: dict[Any, int] = {}
    for s in stmts_of(body):
        if isinstance(s, For):
            extents[s.var] = max(s.extent, extents.get(s.var, 1))
    return Simplifier({v: (0, n - 1) for v, n in extents.items()})


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


class _Opened:
    """A program with its arguments of their own sizes."""

    def __init__(self, func: LoweredFunc, tensors: Sequence[Tensor]) -> None:
        self.name, self.simplifier = func.name, loop_ranges(func.body)
        self.args = {b: Buffer(b.name, b.dtype, t.op.extents) for b, t in zip(func.args, tensors, strict=True)}
        self.args = {b: new if any(_is_open(d) for d in new.shape) else b for b, new in self.args.items()}
        body = shortened(with_places_here(func.body, func.sizes, self.place), self.simplifier)
        threads = any(isinstance(s, For) and s.kind is ForKind.THREAD for s in stmts_of(body))
        body = body if threads else with_whole_tiles(body, self.simplifier)
        self.func = LoweredFunc(func.name, tuple(self.args.values()), body, func.sizes)

    def place(self, b: Buffer, index: Expr, here: Here) -> tuple[Buffer, Expr]:
        """Where an element is, by its number in a buffer of the greatest sizes.

        Raises UnsafeError where it is not shown to be inside.
        """
        new = self.args.get(b, b)
        if new is b:
            return b, index
        dims: tuple[Any, ...] = new.shape
        parts = [self.digit(index, d, b.shape, here) for d in range(len(dims))]
        for d in [d for d, end in enumerate(dims) if _is_open(end) and not here.never]:
            left = self.simplifier.simplify(_from_end(dims[d], parts[d]))
            if not _is_natural(left, here):
                law = (
                    f"nothing shows that index {pretty(parts[d])} of dimension {d} of {b.name} is below {dims[d].name}"
                )
                raise UnsafeError(f"{self.name}: in_bounds: {law}", "in_bounds")
        if not any(map(_is_open, dims[1:])):
            return new, index
        strides = [as_expr(1)] * len(dims)
        for d in reversed(range(len(dims) - 1)):
            strides[d] = binary("*", strides[d + 1], dims[d + 1])
        terms = [binary("*", part, stride) for part, stride in zip(parts, strides, strict=True)]
        return new, reduce(lambda x, y: binary("+", x, y), terms)

    def digit(self, index: Expr, d: int, shape: Sequence[int], here: Here) -> Expr:
        """The index of dimension `d` of an element, from its number in a buffer of `shape`."""
        index, read = here.apart_from_data(index)
        at = binary("//", index, row_major(shape)[d])
        at = self.simplifier.simplify(at if d == 0 else binary("%", at, shape[d]))
        return self.simplifier.simplify(substitute(here.less_digits(at), read))


def _is_open(extent: Any) -> bool:
    return isinstance(extent, SizeVar)


def _from_end(end: Expr, index: Expr) -> Expr:
    """An index counted from the last element, or what that is at least."""
    match index:
        case Binary(op="%", b=b) if same(b, end):
            return as_expr(0)  # at least
        case Binary(op="min" | "max" as op, a=a, b=b):
            return binary("max" if op == "min" else "min", _from_end(end, a), _from_end(end, b))
    return binary("-", binary("-", end, 1), index)


def _is_natural(index: Expr, here: Here) -> bool:
    """Whether an index is shown not to be negative."""
    match index:
        case Binary(op="max", a=a, b=b):
            return _is_natural(a, here) or _is_natural(b, here)
        case Binary(op="min", a=a, b=b):
            return _is_natural(a, here) and _is_natural(b, here)
    return here.within(index)
