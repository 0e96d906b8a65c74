"""What a scan means: step after step along the last axis, all lines at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ..computation.tensor import ComputeOp
from ..expr.element import Before, Carried
from ..expr.expr import Expr, Var
from .reference_expr import Array, np_dtype

Evaluate = Callable[[Mapping[Var, Array], Expr], Array]
"""The value of an expression where axes and what is carried have these values."""


def scanned(op: ComputeOp, evaluate: Evaluate, float_dtype: str | None) -> list[Array]:
    """The outputs of a scan."""
    *outer, last = op.axis
    lines = [np.asarray(i) for i in np.unravel_index(np.arange(math.prod(op.shape[:-1])), op.shape[:-1] or (1,))]
    count, steps = max(1, math.prod(op.shape[:-1])), op.shape[-1]
    dtypes = [np_dtype(body.dtype, float_dtype) for body in op.body]
    before: list[Array] = [np.zeros(count, d) for d in dtypes]
    out: list[Array] = [np.empty((count, steps), d) for d in dtypes]
    for t in range(steps):
        env: dict[Var, Array] = dict(zip(outer, lines, strict=False))
        env |= {last: np.full(1, t, np.int64)} | {e: before[e.output] for e in op.carried if isinstance(e, Before)}
        present = []
        for o, body in enumerate(op.body):
            present.append(np.broadcast_to(evaluate(env, body), (count,)).astype(dtypes[o]))
            env |= {e: present[o] for e in op.carried if type(e) is Carried and e.output == o}
            out[o][:, t] = present[o]
        before = present
    return [array.reshape(op.shape) for array in out]
