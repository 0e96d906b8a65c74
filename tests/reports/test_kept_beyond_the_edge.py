"""Stages beyond the edge that read what is computed at their own loops: it is there for the point, not for the edge.

The tiles of a consumer run over its last element, and the reductions have tails, conditions, or reads of other tensors,
so that not every read is seen to have an element.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from te_lite.lowering.lower import lower
from te_lite.meaning import interp
from te_lite.schedule.schedule import Schedule
from tests.nonempty import nonempty
from tests.reports.everywhere import SPOILED

KINDS: dict[str, tuple[Callable[..., Any], Callable[..., float]]] = {
    "plain": (lambda at, p, b, axes: te.sum(p, axis=axes), lambda at, p, b: p),
    "where": (lambda at, p, b, axes: te.sum(p, axis=axes, where=p > 0.5), lambda at, p, b: p if p > 0.5 else 0),
    "two": (lambda at, p, b, axes: te.sum(p * b, axis=axes), lambda at, p, b: p * b),
    "branch": (
        lambda at, p, b, axes: te.sum(te.if_then_else(p > 0.5, p * b, 0.0), axis=axes),
        lambda at, p, b: p * b if p > 0.5 else 0,
    ),
    "place": (
        lambda at, p, b, axes: te.sum(te.if_then_else(at > 1, p, 0.0), axis=axes),
        lambda at, p, b: p if at > 1 else 0,
    ),
}


def scheduled(kind: str, n: int, rows: int, columns: int, tile: int, own: int, tail: int) -> tuple[Schedule, list[Any]]:
    """A sum over windows of a copy, which is computed at a loop of the sum, which is computed at a tile of a result."""
    a = te.placeholder((n + rows - 1, columns), name="a")
    b = te.placeholder((n + 1, columns), name="b")
    copy = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, "copy")
    k, c = te.reduce_axis((0, rows), "k"), te.reduce_axis((0, columns), "c")
    total = te.compute((n,), lambda x: KINDS[kind][0](x + k, copy[x + k, c], b[x + 1, c], [k, c]), "total")
    out = te.compute((n,), lambda x: total[x] + 0.0, "out")
    s = te.create_schedule(out.op)
    s[total].compute_at(s[out], s[out].split(out.op.axis[0], factor=tile)[0])
    loop = s[total].split(total.op.axis[0], factor=own)[0] if own else total.op.axis[0]
    s[copy].compute_at(s[total], loop)
    if tail:
        s[total].split(s[total].fuse(*total.op.reduce_axis), factor=tail)
    return s, [a, b, out]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(2)
def test_of_all_sizes(kind: str) -> None:
    rng = np.random.default_rng(7)
    sizes = list(product((3, 5), (2, 3, 4), ((3, 1), (2, 3)), (0, 2), (0, 2, 4)))
    compiled = set(rng.permutation(len(sizes))[:4]) if shutil.which("gcc") else set()
    for number, (n, tile, (rows, columns), own, tail) in nonempty(list(enumerate(sizes))):
        s, args = scheduled(kind, n, rows, columns, tile, own, tail)
        a, b = (rng.normal(size=t.shape).astype("float32") for t in args[:2])
        wanted = [
            sum(KINDS[kind][1](x + k, float(a[x + k, c]) + 1, float(b[x + 1, c])) for k, c in np.ndindex(rows, columns))
            for x in range(n)
        ]
        func = lower(s, args)
        for run in [interp.run, *([lambda f, given: codegen_c.build(f)(*given)] if number in compiled else [])]:
            out = np.full(n, SPOILED, "float32")
            run(func, [a, b, out])
            np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5, err_msg=str((kind, sizes[number])))
