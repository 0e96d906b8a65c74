"""Lanes, threads and blocks that meet in memory: races are refused, barriers make them legal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from te_lite.expr import expr as ex
from te_lite.expr import reduction as red
from te_lite.expr.expr import Var, cast, const
from te_lite.loops.stmt import Alloc, Barrier, ForKind, If, Seq, Stmt, Store, ThreadReduce, seq
from tests.te_lite.loops import (
    LANES,
    PARALLEL,
    blocks,
    buf,
    execute,
    loop,
    refuses,
    threads,
)


@pytest.mark.parametrize("kind", LANES)
def test_lanes_writing_one_element(kind: ForKind) -> None:
    x, out = buf("x", 8), buf("out", 1)
    body = seq(Store(out, const(0), const(0.0)), loop(8, lambda i: Store(out, const(0), out[0] + x[i]), kind))
    refuses(f"out: {kind.value} lanes write the same element, got index=0", body, [x, out], np.zeros(8, np.float32))


@pytest.mark.parametrize("kind", LANES)
@pytest.mark.parametrize("shift", [-1, 1])
def test_lanes_reading_what_another_writes(kind: ForKind, shift: int) -> None:
    x, out = buf("x", 9), buf("out", 9)
    fill = loop(9, lambda i: Store(out, i, x[i]))
    body = seq(fill, loop(7, lambda i: Store(out, i + 1, out[i + 1 + shift]), kind))
    refuses("out: writes in a race", body, [x, out], np.zeros(9, np.float32))
    x2 = buf("x2", 7)
    later = seq(fill, loop(7, lambda i: seq(Store(out, i + 1, const(1.0)), Store(x2, i, out[i + 1 + shift])), kind))
    refuses("out: reads in a race", later, [x, out, x2], np.zeros(9, np.float32))


def test_two_parallel_loops_in_a_row_do_not_race() -> None:
    out, rev = buf("out", 6, dtype="int32"), buf("rev", 6, dtype="int32")
    first = loop(6, lambda i: Store(out, i, i * 3), PARALLEL)
    body = seq(first, loop(6, lambda i: Store(rev, i, out[5 - i]), PARALLEL))
    _, got = execute(body, [out, rev])
    np.testing.assert_array_equal(got, [15, 12, 9, 6, 3, 0])


def test_inner_parallel_loops_join() -> None:
    """Iterations of the outer loop stay apart; those of an inner loop may read what an earlier inner loop wrote."""
    out, rev = buf("out", 4, 5, dtype="int32"), buf("rev", 4, 5, dtype="int32")

    def body(i: Var, row: ex.ExprLike) -> Stmt:
        write = loop(5, lambda j: Store(out, i * 5 + j, i + j), PARALLEL, "j")
        return seq(write, loop(5, lambda j: Store(rev, i * 5 + j, out[row * 5 + 4 - j]), PARALLEL, "j"))

    _, got = execute(loop(4, lambda i: body(i, i), PARALLEL), [out, rev])
    np.testing.assert_array_equal(got, np.arange(4)[:, None] + np.arange(4, -1, -1))
    refuses("out: reads in a race: another parallel lane", loop(4, lambda i: body(i, 3 - i), PARALLEL), [out, rev])


def test_equal_values_are_still_a_race() -> None:
    s, out = buf("s", 1, scope="shared"), buf("out", 4)
    nest = Alloc(s, threads(4, lambda t: seq(Store(s, const(0), const(1.0)), Barrier(), Store(out, t, s[0]))))
    in_kernel = blocks(1, lambda b: nest)
    refuses("s: thread lanes write the same element", in_kernel, [out])
    one = blocks(1, lambda b: Alloc(s, threads(4, lambda t: seq(
        If(t.equal(2), Store(s, const(0), const(1.0))), Barrier(), Store(out, t, s[0])))))  # fmt: skip
    (got,) = execute(one, [out])
    np.testing.assert_array_equal(got, np.ones(4))


@pytest.mark.parametrize("writer", range(4))
def test_writing_what_several_threads_read(writer: int) -> None:
    s, out = buf("s", 1, scope="shared"), buf("out", 4)

    def nest(together: bool, meet: tuple[Stmt, ...]) -> Stmt:
        def body(t: Var) -> Stmt:
            reads = [Store(out, t, s[0])] if together else [If(t.equal(k), Store(out, t, s[0])) for k in range(4)]
            init = If(t < 1, Store(s, const(0), const(1.0)))
            return Seq((init, Barrier(), *reads, *meet, If(t.equal(writer), Store(s, const(0), const(2.0)))))

        return blocks(2, lambda b: Alloc(s, threads(4, lambda t: If(b.equal(1), body(t)))))

    for together in (True, False):
        refuses("s: writes in a race.*bx=1, tx=" + str(writer), nest(together, ()), [out])
        (got,) = execute(nest(together, (Barrier(),)), [out])
        np.testing.assert_array_equal(got, np.ones(4))


def test_writing_twice_by_different_threads() -> None:
    s, out = buf("s", 4, scope="shared"), buf("out", 4)

    def nest(meet: tuple[Stmt, ...]) -> Stmt:
        body = lambda t: Seq(  # noqa: E731
            (Store(s, t, const(1.0)), *meet, Store(s, 3 - t, const(2.0)), Barrier(), Store(out, t, s[t]))
        )
        return blocks(1, lambda b: Alloc(s, threads(4, body)))

    refuses("s: writes in a race", nest(()), [out])
    (got,) = execute(nest((Barrier(),)), [out])
    np.testing.assert_array_equal(got, np.full(4, 2))


def test_thread_reduce_is_a_barrier() -> None:
    s, one, out = buf("s", 4, scope="shared"), buf("one", 1, scope="local"), buf("out", 4)
    combiner = red.sum(const(1.0), red.reduce_axis((0, 2))).combiner

    def nest(cond: Callable[[Var], ex.Expr]) -> Stmt:
        def body(t: Var) -> Stmt:
            join = ThreadReduce(combiner, (one,), (s[t],), t, 4)
            return seq(Store(s, t, cast("float32", t)), If(cond(t), seq(join, Store(out, t, s[3 - t] + one[0]))))

        return blocks(1, lambda b: Alloc(s, Alloc(one, threads(4, body))))

    (got,) = execute(nest(lambda t: t < 4), [out])
    np.testing.assert_array_equal(got, [9, 8, 7, 6])
    refuses("barrier: only some threads of a block reach it", nest(lambda t: t < 3), [out])


def test_thread_reduce_of_some_blocks_reads_nothing_in_the_others() -> None:
    x, one, out = buf("x", 6), buf("one", 1, scope="local"), buf("out", 2, 4)
    combiner = red.sum(const(1.0), red.reduce_axis((0, 2))).combiner

    def body(b: Var, t: Var) -> Stmt:
        return If(b < 1, seq(ThreadReduce(combiner, (one,), (x[b * 4 + t],), t, 3), Store(out, b * 4 + t, one[0])))

    nest = blocks(2, lambda b: Alloc(one, threads(4, lambda t: body(b, t))))
    (got,) = execute(nest, [x, out], np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(got[0], np.full(4, 3))
    assert np.isnan(got[1]).all()


def test_global_memory_exists_once_in_a_kernel() -> None:
    out, g = buf("out", 3, dtype="int32"), buf("g", 1, dtype="int32")
    body = loop(3, lambda k: Alloc(g, seq(Store(g, const(0), k * 5), Store(out, k, g[0]))))
    (got,) = execute(blocks(1, lambda b: body), [out])
    np.testing.assert_array_equal(got, [0, 5, 10])
    refuses("g: block lanes write the same", blocks(2, lambda b: Alloc(g, Store(g, const(0), b))), [])


def test_a_kernel_in_a_loop_starts_anew_each_time() -> None:
    out = buf("out", 6, dtype="int32")
    body = loop(6, lambda k: blocks(2, lambda b: threads(3, lambda t: Store(out, (b * 3 + t + k) % 6, b * 3 + t))))
    (got,) = execute(body, [out])
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 5, 0])


def test_blocks_do_not_share() -> None:
    out, copy = buf("out", 6, dtype="int32"), buf("copy", 6, dtype="int32")
    same = blocks(3, lambda b: threads(2, lambda t: Store(out, t, b)))
    refuses("out: block lanes write the same element", same, [out])

    def body(b: Var, t: Var) -> Stmt:
        return seq(Store(out, b * 2 + t, t), Barrier(), Store(copy, b * 2 + t, out[(b + 1) % 3 * 2 + t]))

    nest = blocks(3, lambda b: threads(2, lambda t: body(b, t)))
    refuses("out: reads in a race: another block", nest, [out, copy])


def test_global_memory_is_visible_in_the_block_after_a_barrier_and_to_the_next_kernel() -> None:
    out, rev, tmp = buf("out", 6, dtype="int32"), buf("rev", 6, dtype="int32"), buf("tmp", 6, dtype="int32")

    def body(b: Var, t: Var, meet: tuple[Stmt, ...]) -> Stmt:
        return Seq((Store(tmp, b * 3 + t, b * 10 + t), *meet, Store(out, b * 3 + t, tmp[b * 3 + 2 - t])))

    def program(meet: tuple[Stmt, ...]) -> Stmt:
        first = blocks(2, lambda b: threads(3, lambda t: body(b, t, meet)))
        second = blocks(6, lambda b: Store(rev, b, tmp[5 - b]))
        return Alloc(tmp, seq(first, second))

    got, back = execute(program((Barrier(),)), [out, rev])
    np.testing.assert_array_equal(got, [2, 1, 0, 12, 11, 10])
    np.testing.assert_array_equal(back, [12, 11, 10, 2, 1, 0])
    refuses("tmp: reads in a race: another thread", program(()), [out, rev])


def test_barriers_must_not_diverge() -> None:
    out = buf("out", 2, 4, dtype="int32")
    s = buf("s", 4, dtype="int32", scope="shared")

    def nest(cond: Callable[[Var, Var], ex.Expr]) -> Stmt:
        def body(b: Var, t: Var) -> Stmt:
            return seq(Store(s, t, t), If(cond(b, t), seq(Barrier(), Store(out, b * 4 + t, s[3 - t]))))

        return blocks(2, lambda b: Alloc(s, threads(4, lambda t: body(b, t))))

    refuses("barrier: only some threads of a block reach it", nest(lambda b, t: t < 2), [out])
    (got,) = execute(nest(lambda b, t: b < 1), [out])
    np.testing.assert_array_equal(got[0], [3, 2, 1, 0])
    assert (got[1] == 77).all()


def test_a_barrier_of_one_block_does_not_help_another() -> None:
    s, out = buf("s", 4, dtype="int32", scope="shared"), buf("out", 2, 4, dtype="int32")

    def body(b: Var, t: Var) -> Stmt:
        return seq(Store(s, t, t), If(b < 1, Barrier()), Store(out, b * 4 + t, s[3 - t]))

    refuses("s: reads in a race.*bx=1", blocks(2, lambda b: Alloc(s, threads(4, lambda t: body(b, t)))), [out])
