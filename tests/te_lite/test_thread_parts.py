"""Private arrays that threads share out: each keeps its part, reads nothing else, and what would is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from te_lite.errors import LowerError
from te_lite.expr.expr import Expr
from te_lite.loops.stmt import Alloc, stmts_of
from te_lite.meaning.interp import run
from te_lite.verify.verify import verify

ROWS = 3
Index = Callable[[Expr], Expr]


def program(n: int, threads: int, lanes: int, read: Index = lambda j: j, reader: int = 0) -> te.LoweredFunc:
    """`out[i, j] = 2 A[i, read(j)] + 1`, the double kept by the threads of a row; they read it in `reader` threads."""
    a = te.placeholder((ROWS, n), name="A")
    kept = te.compute((ROWS, n), lambda i, j: a[i, j] * 2.0, name="kept")
    out = te.compute((ROWS, n), lambda i, j: kept[i, read(j)] + 1.0, name="out")
    s = te.create_schedule(out.op)
    s[kept].set_scope("local")
    row = s[out].op.axis[0]
    s[out].bind(row, te.thread_axis("blockIdx.x"))
    s[kept].compute_at(s[out], row)
    for tensor, count in ((out, reader or threads), (kept, threads)):
        outer, lane = s[tensor].split(s[tensor].op.axis[1], lanes)
        _, thread = s[tensor].split(outer, count)
        s[tensor].bind(thread, te.thread_axis("threadIdx.x"))
        if tensor is kept:
            s[tensor].vectorize(lane)
    return te.lower(s, [a, out])


@pytest.mark.parametrize(
    ("n", "threads", "lanes"), [(64, 8, 4), (61, 8, 1), (60, 8, 4), (7, 8, 1), (24, 3, 2), (64, 1, 4)]
)
def test_a_thread_keeps_its_part(n: int, threads: int, lanes: int) -> None:
    func = program(n, threads, lanes)
    verify(func)
    (kept,) = [s.buffer for s in stmts_of(func.body) if isinstance(s, Alloc)]
    assert kept.size == -(-n // (threads * lanes)) * lanes if threads > 1 else n
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((ROWS, n)).astype("float32"), np.full((ROWS, n), np.nan, "float32")
    run(func, [x, y])
    assert np.array_equal(y, x * 2 + 1)


OTHERS: dict[str, tuple[int, Index]] = {
    "its neighbour's": (0, lambda j: (j + 1) % 64),
    "in the other order": (0, lambda j: 63 - j),
    "every second one": (0, lambda j: j // 2),
    "by fewer threads": (4, lambda j: j),
    "by more threads": (16, lambda j: j),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_another_thread_computed_is_not_read(name: str) -> None:
    reader, read = OTHERS[name]
    with pytest.raises(LowerError, match=r"kept: (a thread may only read what it computed itself|all threads)"):
        program(64, 8, 4, read, reader)
