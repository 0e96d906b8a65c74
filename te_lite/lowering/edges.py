"""Beyond the edge, in lowering: where axes leave their extents, and what may then be computed (see `overrun.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..bounds.loop_scope import across_threads, lanes_of_rows
from ..bounds.overrun import runs_over
from ..expr.constant_folding import stored
from ..expr.expr import Call, Compare, Const, Expr, Load, Reduce, Select, Var, binary, compare, same
from ..expr.visit import transform, walk
from ..schedule.state import ATTACHED
from .lower_facts import Facts


@dataclass(frozen=True)
class Edge:
    """Where an axis may leave `0 .. size - 1`: before its start (`low`), behind its end (`high`)."""

    axis: Var
    value: Expr
    size: Any
    low: bool
    high: bool

    @property
    def guards(self) -> list[Expr]:
        """What holds on this side of the edge."""
        low = [compare(">=", self.value, 0)] if self.low else []
        return low + ([compare("<", self.value, self.size)] if self.high else [])

    @property
    def nearest(self) -> Expr:
        """The value, moved to the edge from beyond it."""
        value = binary("max", self.value, 0) if self.low else self.value
        return binary("min", value, self.size - 1) if self.high else value


class Edges:
    """Which stages of a program are computed beyond the edge, and how; none of them without `over`."""

    def __init__(self, low: Facts, over: bool) -> None:
        self.low = low
        self.beyond: set[int] = set()
        """The stages, producers first; what reads no memory reads only what is there beyond the edge, too."""
        arguments = [t.op.key for t in low.args]
        for k, stage in enumerate(low.stages):
            if over and runs_over(low.state, k, arguments) and (not across_threads(stage) or lanes_of_rows(stage)):
                kept = [n for n in self._read(k) if low.stages[n].where == ATTACHED]
                if self._copies_memory(k) or self.beyond.issuperset(kept):
                    self.beyond.add(k)

    def _read(self, k: int) -> Iterator[int]:
        loads = (x for body in self.low.bodies[k] for x in walk(body) if isinstance(x, Load))
        return (self.low.index_of[x.tensor.op.key] for x in loads)

    def _copies_memory(self, k: int) -> bool:
        """Whether stage k folds nothing and reads what is not kept for its kernel alone."""
        memory = any(self.low.stages[n].where != ATTACHED for n in self._read(k))
        return memory and not isinstance(self.low.bodies[k][0], Reduce)

    def copies(self, k: int) -> bool:
        """Whether stage k is zero beyond the edge."""
        asked = self.asks_where(k) and self.keeps(k) and not isinstance(self.low.bodies[k][0], Reduce)
        return k in self.beyond and (asked or self._copies_memory(k) or self._is_factor(k))

    def keeps(self, k: int) -> bool:
        """Whether stage k reads what is computed at loops: that is there for its points, not for those at the edge."""
        return any(self.low.stages[n].where == ATTACHED for n in self._read(k))

    def _is_factor(self, k: int) -> bool:
        """Whether stage k computes, element by element, what instructions multiply: its terms may run over.

        What only loads a tile that holds zeros has them already.
        """
        body = self.low.bodies[k][0]
        computed = k in self.low.layouts and self.low.layouts[k].factor and not isinstance(body, Reduce)
        return computed and not (isinstance(body, Load) and self._holds_zeros(next(self._read(k))))

    def _holds_zeros(self, k: int) -> bool:
        """Whether stage k has zeros beyond the edge: its own, or those of a copy that it copies as it is."""
        if k not in self.beyond or self.copies(k):
            return self.copies(k)
        body, axes = self.low.bodies[k][0], self.low.state.ops[k].axis
        as_it_is = isinstance(body, Load) and all(map(same, body.indices, axes))
        return as_it_is and self._holds_zeros(next(self._read(k)))

    def asks_where(self, k: int) -> bool:
        """Whether stage k has conditions, which may protect its reads: then both must be about the same point."""
        parts = [x for body in self.low.bodies[k] for x in walk(body)]
        asked = any(isinstance(x, Reduce) and x.condition is not None for x in parts)
        return asked or any(isinstance(x, Select) or (isinstance(x, Call) and x.func == "if_then_else") for x in parts)

    def neutral_axes(self, k: int) -> list[int]:
        """The reduction axes of stage k (by number among all its axes) behind whose end nothing is folded in."""
        op, first = self.low.state.ops[k], self.low.bodies[k][0]
        if not isinstance(first, Reduce) or first.condition is not None or k not in self.beyond:
            return []
        numbers = range(len(op.axis), len(op.axis) + len(op.reduce_axis))
        axes = zip(numbers, op.reduce_axis, strict=True)
        return [n for n, axis in axes if self._is_neutral(first, axis, axis.extent)]

    def is_neutral_where_not(self, k: int, condition: Expr) -> bool:
        """Whether the reduction of stage k folds nothing in at points of its storage where `condition` fails.

        The halves of a reduction (rfactor) have such conditions: `k.o * 128 + k.i < 1021`.
        """
        first = self.low.bodies[k][0]
        match condition:
            case Compare(op="<", a=index, b=Const(value=end)) if k in self.beyond and isinstance(first, Reduce):
                return self._is_neutral(first, index, end)
        return False

    def _is_neutral(self, reduction: Reduce, index: Expr, end: Any) -> bool:
        """Whether the sources are the identity with zeros for the copies that end where `index` is `end`."""

        def beyond(x: Expr) -> Expr | None:
            if not isinstance(x, Load):
                return None
            k = self.low.index_of[x.tensor.op.key]
            ends = any(i == index and size == end for i, size in zip(x.indices, x.tensor.shape, strict=True))
            return Const(stored(0, x.dtype), x.dtype) if ends and self._holds_zeros(k) else None

        sources = [self.low.simplifier.simplify(transform(s, beyond)) for s in reduction.sources]
        return all(s == e for s, e in zip(sources, reduction.combiner.identity, strict=True))
