"""Iterations whose scores are all masked, or none is: a condition on columns and rows, read as bounds for a block.

    s[i, j] if t * 128 + j <= block * 64 + i else -inf         0 <= i < 64, 0 <= j < 128

holds for all of an iteration t where t * 128 - block * 64 + 127 <= 0, and for none of it where t * 128 - block * 64 is
more than 63.  So later iterations of a block add nothing, and earlier ones need not ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import inf

from te_lite.expr.expr import BufferLoad, Call, Compare, Const, Expr, Select, Var, as_expr, binary, compare, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import children, free_vars, transform
from te_lite.loops.stmt import Buffer, Stmt, exprs_of, map_exprs, stmts_of

from .copy_boxes import negative, terms_of


@dataclass(frozen=True)
class Mask:
    """Scores of iteration t count where t * `stride` + `least` is negative, all of them where t * `stride` + `most` is;
    both depend on the block alone."""

    stride: int
    least: Expr
    most: Expr

    def is_live(self, turn: Expr) -> Expr:
        """Whether any score of an iteration counts; of the first one it is taken so."""
        return compare("<", binary("+", binary("*", turn, self.stride), self._least), 0)

    def is_clean(self, turn: Expr) -> Expr:
        """Whether all scores of an iteration count."""
        return compare("<", binary("+", binary("*", turn, self.stride), self.most), 0)

    def last_live(self, turns: int) -> Expr:
        """The last iteration of which a score counts."""
        return binary("min", binary("//", binary("-", -1, self._least), self.stride), turns - 1)

    @property
    def _least(self) -> Expr:
        return binary("min", self.least, -1)


def mask_of(stmts: Sequence[Stmt], scores: Buffer, turn: Var, blocks: Set[Var], ranges: Simplifier) -> Mask | None:
    """The mask of all scores that statements read, where they have one that grows with the iterations."""
    found: Mask | None = None
    for e in [e for s in stmts for x in stmts_of(s) for e in exprs_of(x)]:
        for cond in _conditions(e, scores):
            made = None if cond is None else _mask(cond, turn, blocks, ranges)
            if made is None or (found is not None and not _alike(found, made)):
                return None
            found = made
    return found


def without_mask(stmts: Sequence[Stmt], scores: Buffer) -> list[Stmt]:
    """Statements that take the scores as they are."""

    def bare(e: Expr) -> Expr | None:
        inside = _masked(e, scores)
        return None if inside is None else transform(inside[1], bare)

    return [map_exprs(s, lambda e: transform(e, bare)) for s in stmts]


def _conditions(e: Expr, scores: Buffer) -> Iterator[Expr | None]:
    """The condition of each masked score in an expression; None for a score without one."""
    inside = _masked(e, scores)
    if inside is not None:
        yield inside[0]
    elif isinstance(e, BufferLoad) and e.buffer is scores:
        yield None
    else:
        for x in children(e):
            yield from _conditions(x, scores)


def _masked(e: Expr, scores: Buffer) -> tuple[Expr, Expr] | None:
    """The condition and the value of a masked expression of scores; None for others."""
    match e:
        case (
            Call(func="if_then_else", args=(cond, a, Const(value=value))) | Select(cond=cond, a=a, b=Const(value=value))
        ):
            if value == -inf and any(True for _ in _conditions(a, scores)):
                return cond, a
    return None


def _mask(cond: Expr, turn: Var, blocks: Set[Var], ranges: Simplifier) -> Mask | None:
    if not isinstance(cond, Compare) or cond.op not in ("<", "<=", ">", ">="):
        return None
    stride, block, rest = 0, as_expr(0), as_expr(0)
    for e, factor in terms_of(ranges.simplify(negative(cond))):
        term = binary("*", e, factor)
        if e is turn:
            stride += factor
        elif turn in free_vars(e):
            return None
        elif free_vars(e) and free_vars(e) <= blocks:
            block = binary("+", block, term)
        else:
            rest = binary("+", rest, term)
    low, high = ranges.bounds(ranges.simplify(rest))
    if stride <= 0 or low is None or high is None or free_vars(rest) & blocks:
        return None
    return Mask(stride, *[ranges.simplify(binary("+", block, n)) for n in (low, high)])


def _alike(a: Mask, b: Mask) -> bool:
    return a.stride == b.stride and same(a.least, b.least) and same(a.most, b.most)
