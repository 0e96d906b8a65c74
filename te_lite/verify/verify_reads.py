"""Does a computation read inside of every dimension of its tensors?  One look at a computation, whatever its schedules.

A lowered program has flat indices, and is inside of a buffer also where a column beyond the last is the first one of
the next row.  What a computation means has no such element (`reference.py`), so it is refused here, before it is
lowered, with the point of its axes that shows it.
"""

from __future__ import annotations

import weakref

from ..computation.computation import Computation
from ..computation.tensor import ComputeOp
from ..errors import UnsafeError
from ..expr.expr import Compare, Expr, Load, Reduce, Select, logical_not
from ..loops.stmt import For, ForKind, seq
from .verify_access import Counterexample, settle
from .verify_form import Forms
from .verify_scope import Read, Scope, parts
from .verify_span import Spans

LAW = "in_bounds"
_INSIDE: weakref.WeakSet[Computation] = weakref.WeakSet()


def require_reads_inside(dag: Computation) -> None:
    """Raise UnsafeError, one sentence, for a read that is outside of a dimension; a computation is looked at once.

    What can be neither shown nor refuted is left to the verifier of programs.
    """
    if dag in _INSIDE:
        return
    for op in dag.ops:
        if isinstance(op, ComputeOp):
            _Reads(op)
    _INSIDE.add(dag)


class _Reads:
    """Looks at all reads of one operation."""

    def __init__(self, op: ComputeOp) -> None:
        self.op = op
        self.forms = Forms()
        scope = Scope(Spans({}), frozenset())
        for v in (*op.axis, *op.reduce_axis):
            most = v.extent if isinstance(v.extent, int) else scope.spans.of(v.extent)[1]
            if most < 1:
                return
            scope = scope.within(For(v, most, ForKind.SERIAL, seq()))
            if isinstance(v.extent, Expr):
                scope = scope.where(Compare("<", v, v.extent))
        for body in op.body:
            self.expr(body, scope)

    def expr(self, e: Expr, scope: Scope) -> None:
        if id(e) in scope.seen:
            return
        scope.seen.add(id(e))
        match e:
            case Load():
                self.load(e, scope)
            case Select(cond=cond, a=a, b=b):
                self.expr(cond, scope)
                self.expr(a, scope.where(cond))
                self.expr(b, scope.where(logical_not(cond)))
            case Reduce(condition=Expr() as condition, sources=sources):
                self.expr(condition, scope)
                for x in sources:
                    self.expr(x, scope.where(condition))
            case _:
                for x, inner in parts(e, scope):
                    self.expr(x, inner)

    def load(self, e: Load, scope: Scope) -> None:
        for d, (index, extent) in enumerate(zip(e.indices, e.tensor.op.shape, strict=True)):
            self.expr(index, scope)
            low, high = scope.spans.of(index)
            if scope.never or (low >= 0 and high < extent):
                continue
            found = settle(Read(e, d, scope, self.forms))
            if isinstance(found, Counterexample):
                raise UnsafeError(f"{self.op.name}: {LAW}: {found.sentence}", LAW)
