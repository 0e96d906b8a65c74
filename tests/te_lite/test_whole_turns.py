"""Loops of kernels, and around vectors, that run over their end: only iterations at the edge ask, and all are right."""

from __future__ import annotations

import numpy as np

import codegen_c
import te_lite as te
from te_lite import LoweredFunc
from te_lite.expr.expr import Call
from te_lite.expr.visit import walk
from te_lite.loops.stmt import For, ForKind, If, bodies, exprs_of, stmts_of
from te_lite.meaning.interp import run
from te_lite.schedule.schedule import Schedule
from tests.oracle import poisoned


def lowered(n: int, m: int, threads: int, items: int, inside: int) -> LoweredFunc:
    """`out[i, j] = 2 * a[i, j]` where `j < inside`, else -1; parts of `items` by `threads` elements, items unrolled."""
    a = te.placeholder((n, m), name="A")
    out = te.compute((n, m), lambda i, j: te.if_then_else(j < inside, a[i, j] * 2.0, -1.0), name="out")
    s = te.create_schedule(out.op)
    i, j = s[out].op.axis
    whole, thread = s[out].split(j, threads)
    part, item = s[out].split(whole, items)
    s[out].unroll(item)
    s[out].bind(s[out].fuse(i, part), te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    assert isinstance(s, Schedule)
    return te.lower(s, [a, out])


def conditions(func: LoweredFunc) -> int:
    """Conditions of the text, one in a loop counted once."""
    found = [s for s in stmts_of(func.body) if isinstance(s, If)]
    calls = [e for s in stmts_of(func.body) for r in exprs_of(s) for e in walk(r) if isinstance(e, Call)]
    return len(found) + sum(e.func == "if_then_else" for e in calls)


def test_every_turn_computes_what_it_did() -> None:
    rng = np.random.default_rng(17)
    for _ in range(40):
        threads, items = int(rng.integers(1, 9)), int(rng.integers(1, 7))
        n, m = int(rng.integers(1, 4)), int(rng.integers(1, 60))
        inside = int(rng.integers(0, m + 4))
        x, out = rng.standard_normal((n, m)).astype("float32"), poisoned((n, m), "float32")
        run(lowered(n, m, threads, items, inside), [x, out])
        assert np.array_equal(out, np.where(np.arange(m) < inside, x * 2, np.float32(-1)))


def test_only_the_last_turn_asks() -> None:
    """13 threads: 100 elements are 7 whole iterations and one of 9; 40 are 3 and one of 1; 91 are 7."""
    for m, iterations, ask in ((100, 8, 1), (40, 4, 1), (91, 7, 0)):
        func = lowered(2, m, 13, iterations, 1000)
        loops = [s for s in stmts_of(func.body) if isinstance(s, For) and s.kind is ForKind.UNROLLED]
        assert conditions(func) == ask
        assert [loop.extent for loop in loops] == [iterations - ask]
        assert not any(isinstance(s, If) for loop in loops for b in bodies(loop) for s in stmts_of(b))


def test_a_condition_of_its_own_is_taken_off_too() -> None:
    """32 of 64 elements are inside: the first two iterations of 16, and the last two, which still ask."""
    assert conditions(lowered(1, 64, 16, 4, 64)) == 0
    func = lowered(1, 64, 16, 4, 32)
    assert [s.extent for s in stmts_of(func.body) if isinstance(s, For) and s.kind is ForKind.UNROLLED] == [2, 2]


def rows_in_vectors(n: int, m: int, lanes: int, inside: int) -> LoweredFunc:
    """On a CPU: sums of rows, a lane each for a part, and `out[i, j] = 2 * a[i, j]` in vectors that run over."""
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    total = te.compute((n,), lambda i: te.sum(te.if_then_else(k < inside, a[i, k], 1.0), axis=k), name="total")
    out = te.compute((n, m), lambda i, j: a[i, j] * 2.0 + total[i], name="out")
    s = te.create_schedule(out.op)
    _, lane = s[total].split(s[total].op.reduce_axis[0], lanes)
    part = s.rfactor(total, lane, 1)
    (outer,) = s[part].op.reduce_axis
    s[part].reorder(s[part].op.axis[0], outer, s[part].op.axis[1])
    s[part].vectorize(s[part].op.axis[1])
    _, lane = s[out].split(s[out].op.axis[1], lanes)
    s[out].vectorize(lane)
    return te.lower(s, [a, out])


def test_vectors_that_run_over_are_whole_but_for_the_last() -> None:
    rng = np.random.default_rng(18)
    for n, m, lanes in [(2, 197, 16), (3, 7, 4), (1, 16, 8), (2, 5, 8), *rng.integers(1, 40, (12, 3)).tolist()]:
        inside = int(rng.integers(0, m + 2))
        func = rows_in_vectors(n, m, lanes, inside)
        x, got = rng.standard_normal((n, m)).astype("float32"), poisoned((n, m), "float32")
        run(func, [x, got])
        total = np.where(np.arange(m) < inside, x, 1.0).astype("f8").sum(1, keepdims=True)
        assert np.allclose(got, x * 2 + total, rtol=1e-5, atol=1e-4)
        if n < 4:
            compiled = poisoned((n, m), "float32")
            codegen_c.build(func)(x, compiled)
            assert np.allclose(compiled, got, rtol=1e-5, atol=1e-4)


def test_no_whole_vector_asks() -> None:
    func = rows_in_vectors(2, 197, 16, 1000)
    around = [s for s in stmts_of(func.body) if isinstance(s, For) and s.extent == 12]
    assert len(around) == 2 and conditions(func) == 2
    assert not any(isinstance(s, If) for loop in around for s in stmts_of(loop.body))
