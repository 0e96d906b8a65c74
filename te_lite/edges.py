"""Beyond the edge, in lowering: where axes leave their extents, and what may then be computed (see `overrun.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .expr import Call, Const, Expr, IterVar, Load, Reduce, Select, Var, binary, compare
from .laws import stored
from .lower_facts import Facts
from .overrun import runs_over
from .state import ATTACHED
from .visit import transform, walk


@dataclass(frozen=True)
class Edge:
    """Where an axis may leave `0 .. size - 1`: before its start (`low`), behind its end (`high`)."""

    axis: Var
    value: Expr
    size: int
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


def reads_memory(low: Facts, k: int) -> bool:
    """Whether stage k reads what is not kept for its kernel alone: beyond the edge of that there is nothing."""
    return any(low.stages[low.index_of[x.tensor.op.key]].where != ATTACHED for x in _loads(low, k))


def _loads(low: Facts, k: int) -> Iterator[Load]:
    return (x for body in low.bodies[k] for x in walk(body) if isinstance(x, Load))


def copies(low: Facts, k: int) -> bool:
    """Whether stage k is zero beyond the edge."""
    return runs_beyond(low, k) and not isinstance(low.bodies[k][0], Reduce) and reads_memory(low, k)


def asks_where(low: Facts, k: int) -> bool:
    """Whether stage k has conditions, which may protect its reads: then both must be about the same point."""
    return any(isinstance(body, Reduce) and body.condition is not None for body in low.bodies[k]) or any(
        isinstance(x, Select) or (isinstance(x, Call) and x.func == "if_then_else")
        for body in low.bodies[k]
        for x in walk(body)
    )


def runs_beyond(low: Facts, k: int) -> bool:
    """`runs_over` for the arguments of a program."""
    return runs_over(low.state, k, [t.op.key for t in low.args])


def neutral_axes(low: Facts, k: int) -> list[int]:
    """The reduction axes of stage k (by number among all its axes) behind whose end nothing is folded in."""
    op, first = low.state.ops[k], low.bodies[k][0]
    if not isinstance(first, Reduce) or first.condition is not None or not runs_beyond(low, k):
        return []
    numbers = range(len(op.axis), len(op.axis) + len(op.reduce_axis))
    return [n for n, axis in zip(numbers, op.reduce_axis, strict=True) if _is_neutral(low, first, axis)]


def _is_neutral(low: Facts, reduction: Reduce, axis: IterVar) -> bool:
    def beyond(x: Expr) -> Expr | None:
        if not isinstance(x, Load):
            return None
        k = low.index_of[x.tensor.op.key]
        ends = [d for d, i in enumerate(x.indices) if i is axis and x.tensor.shape[d] == axis.extent]
        return Const(stored(0, x.dtype), x.dtype) if ends and copies(low, k) else None

    sources = [low.simplifier.simplify(transform(s, beyond)) for s in reduction.sources]
    return all(s == e for s, e in zip(sources, reduction.combiner.identity, strict=True))
