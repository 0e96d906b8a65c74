"""Norms of groups in one shape, so that they can be one kernel: what is elementwise after a reshape goes before it.

    y = norm(reshape(x, [N, G, L]))                        z = reshape(x, [N, G, C/G, H, W])
    reshape(y, [N, C, H, W]) * gamma[C, 1, 1]      ->      reshape(norm(z) * gamma[G, C/G, 1, 1], [N, C, H, W])

Exporters write a group norm so.  The shape in between is the coarsest one that refines both; reductions, and what is
elementwise between them, are restated in it.  Only what folds rows and keeps their places (`keepdims`) is moved: other
reshapes stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeGuard

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType
from ..ir.visit import is_op, rewrite
from .sequential import Pass, acts_on

Shape = tuple[int, ...]
FOLD_ATTRS = {"axis", "keepdims", "exclude"}


@acts_on("reshape")
def RowShapes() -> Pass:
    """Move reshapes of folded rows behind the elementwise operators that read them."""
    return Pass("RowShapes", 0, (), _run)


def _run(function: Function) -> Function:
    seen = _Seen()

    def change(node: Expr) -> Expr:
        if not is_elementwise(node):
            return node
        rows = [a for a in node.args if is_op(a, "reshape") and seen.folds(a.args[0]) and a.shape == node.shape]
        refined = _Refined.of(rows[0].args[0].shape, node.shape, seen) if rows else None
        if refined is None:
            return node
        args = [refined.moved(a, node.shape) for a in node.args]
        return call("reshape", call(node.op.name, *args, **node.attrs), newshape=node.shape)

    return rewrite(function, change)


def is_elementwise(e: Expr) -> TypeGuard[Call]:
    """An operator without axes that reads its arguments at the place of its result, or broadcasts them."""
    if not isinstance(e, Call) or not isinstance(e.type, TensorType) or not e.args:
        return False
    plain = e.op.pattern == OpPattern.ELEMWISE and len(e.args) == 1
    return plain or (e.op.pattern <= OpPattern.BROADCAST and not e.attrs)


def _is_fold(e: Expr) -> TypeGuard[Call]:
    return isinstance(e, Call) and e.op.pattern == OpPattern.COMM_REDUCE and set(e.attrs) == FOLD_ATTRS


@dataclass(frozen=True)
class _Seen:
    """What is known of the expressions of a function: which fold rows, and what those became in which shape."""

    folding: dict[Expr, bool] = field(default_factory=dict)
    moved: dict[tuple[Expr, Shape, Shape], Expr] = field(default_factory=dict)

    def folds(self, e: Expr) -> bool:
        """Whether an expression is a reduction that keeps its dimensions, or elementwise from one."""
        if e not in self.folding:
            kept = _is_fold(e) and bool(e.attrs["keepdims"])
            self.folding[e] = kept or (is_elementwise(e) and any(map(self.folds, e.args)))
        return self.folding[e]


@dataclass(frozen=True)
class _Refined:
    """A shape `all` that refines two others of the same size; the lengths that each of their dimensions falls into."""

    all: Shape
    parts: dict[Shape, list[Shape]]
    seen: _Seen

    @staticmethod
    def of(a: Shape, b: Shape, seen: _Seen) -> _Refined | None:
        """The coarsest one; None where their dimensions cut across each other."""
        ends = sorted({*_ends(a), *_ends(b)})
        steps = list(pairwise(ends))
        if any(y % x for x, y in steps):
            return None
        return _Refined(tuple([y // x for x, y in steps]), {shape: _parts(shape, ends) for shape in (a, b)}, seen)

    def shape(self, small: Shape, whole: Shape) -> Shape:
        """The shape of what broadcasts to `whole`, one of the two."""
        padded = (*[1] * (len(whole) - len(small)), *small)
        lengths = [p if d > 1 else (1,) * len(p) for d, p in zip(padded, self.parts[whole], strict=True)]
        return tuple([n for p in lengths for n in p])

    def moved(self, e: Expr, whole: Shape) -> Expr:
        """`e`, which broadcasts to `whole`, in the refined shape."""
        key = (e, whole, self.all)
        if key not in self.seen.moved:
            self.seen.moved[key] = e if whole == self.all else self._moved(e, whole)
        return self.seen.moved[key]

    def _moved(self, e: Expr, whole: Shape) -> Expr:
        shape = self.shape(e.shape, whole)
        if is_op(e, "reshape") and self.seen.folds(e.args[0]) and e.args[0].shape in self.parts:
            return self.moved(e.args[0], e.args[0].shape)
        if is_elementwise(e) and self.seen.folds(e):
            return call(e.op.name, *[self.moved(a, whole) for a in e.args], **e.attrs)
        if _is_fold(e) and e.attrs["keepdims"] and e.args[0].shape == whole:
            inner = self.moved(e.args[0], whole)
            axes = tuple([d for d, (n, one) in enumerate(zip(inner.shape, shape, strict=True)) if n != one])
            if axes:  # over dimensions of one element nothing is left to be folded
                return call(e.op.name, inner, axis=axes, keepdims=True, exclude=False)
        source = e.args[0] if is_op(e, "reshape") else e
        return source if source.shape == shape else call("reshape", source, newshape=shape)


def _ends(shape: Shape) -> list[int]:
    """The products of leading dimensions."""
    products = [1]
    for n in shape:
        products.append(products[-1] * n)
    return products


def _parts(shape: Shape, ends: list[int]) -> list[Shape]:
    """The lengths between `ends` that each dimension falls into; none for a dimension of 1."""
    return [
        tuple([y // x for x, y in pairwise(ends) if low <= x and y <= high]) for low, high in pairwise(_ends(shape))
    ]
