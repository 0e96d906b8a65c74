"""How much work the values of a tensor at some points are for `points.py`, before anything is evaluated.

Each reduction is folded once a point that is read.  How many points of it `n` points of the tensor need is bounded by
how often one needs it, by the extents of those axes of the tensor that decide which point is read (a row of a softmax
needs its sum once), and by its size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from te_lite.computation.computation import Computation
from te_lite.computation.tensor import ComputeOp, Tensor
from te_lite.expr.expr import Load, Var
from te_lite.expr.visit import free_vars, walk
from te_lite.schedule.state import root_extent


@dataclass(frozen=True)
class Needed:
    """What one point of a tensor needs of a reduction: `times` points of it, of `size` in all, of `terms` terms each.

    Which points those are depends on the tensor's `axes`, by number.
    """

    times: int
    size: int
    terms: int
    axes: frozenset[int]

    def work(self, points: int, reach: Sequence[int]) -> int:
        """The terms that so many points of the tensor need, whose axes take `reach` values each."""
        different = min(points, math.prod([reach[d] for d in self.axes]))
        return min(self.times * different, self.size) * self.terms


@dataclass
class _Asked:
    """How one point of the tensor asks for points of an operation: `reads` ways to get at them, and for each of its
    dimensions how many indices, and the axes of the tensor that decide which.
    """

    reads: int
    indices: list[int]
    axes: list[frozenset[int]]


class Demand:
    """What the points of `tensors`, which are of one operation's shape, need beyond what is `known`; see the module."""

    def __init__(self, tensors: Sequence[Tensor], known: Collection[Tensor] = ()) -> None:
        rank = len(tensors[0].shape)
        own = [frozenset([d]) for d in range(rank)]
        self._asked = {t.op.key: _Asked(1, [1] * rank, own) for t in tensors}
        self.needed: list[Needed] = []
        for op in reversed(Computation(tensors).ops):
            is_known = all(op.output(k) in known for k in range(op.num_outputs))
            if isinstance(op, ComputeOp) and op.key in self._asked and not is_known:
                self._enter(op)

    def work(self, points: int, reach: Sequence[int]) -> int:
        """Terms of all reductions, and the points themselves."""
        return points + sum([n.work(points, reach) for n in self.needed])

    def _enter(self, op: ComputeOp) -> None:
        """Hand what is asked of `op` down to what it reads."""
        asked = self._asked[op.key]
        extents: dict[Var, int] = {v: root_extent(v, op.axis) for v in op.reduce_axis}
        if op.reduction is not None:
            axes, times = frozenset[int]().union(*asked.axes), asked.reads * math.prod(asked.indices)
            self.needed.append(Needed(times, math.prod(op.shape), math.prod(extents.values()), axes))
        if op.scans:
            size = math.prod(op.shape)
            self.needed.append(Needed(size, size, 1, frozenset()))
        counts = extents | dict(zip(op.axis, asked.indices, strict=True))
        sources: dict[Var, frozenset[int]] = dict(zip(op.axis, asked.axes, strict=True))
        ways: dict[object, set[tuple[int, ...]]] = {}
        for load in _loads(op):
            ways.setdefault(load.tensor.op.key, set()).add(tuple(map(id, load.indices)))
            used = [free_vars(i) for i in load.indices]
            indices = [math.prod([counts.get(v, 1) for v in u]) for u in used]
            axes_read = [frozenset[int]().union(*[sources.get(v, frozenset()) for v in u]) for u in used]
            reads = asked.reads * len(ways[load.tensor.op.key])
            self._ask(load.tensor.op.key, _Asked(reads, indices, axes_read))

    def _ask(self, key: object, new: _Asked) -> None:
        old = self._asked.get(key, new)
        axes = [a | b for a, b in zip(old.axes, new.axes, strict=True)]
        indices = [max(a, b) for a, b in zip(old.indices, new.indices, strict=True)]
        self._asked[key] = _Asked(max(old.reads, new.reads), indices, axes)


def _loads(op: ComputeOp) -> list[Load]:
    """Every read of an operation."""
    return [e for body in op.body for e in walk(body) if isinstance(e, Load)]
