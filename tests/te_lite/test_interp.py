"""The interpreter runs whole programs; random serial nests agree with plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from te_lite.errors import InterpError
from te_lite.expr import constant_folding, own_reducers
from te_lite.expr import expr as ex
from te_lite.expr import reduction as red
from te_lite.expr.expr import Var, const, maximum
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, If, Seq, Stmt, Store, ThreadReduce, seq
from tests.nonempty import nonempty
from tests.te_lite.loops import (
    ALL_KINDS,
    PARALLEL,
    SERIAL,
    VECTORIZED,
    blocks,
    buf,
    execute,
    loop,
    rand,
    refuses,
    threads,
)


def matmul(m: int, n: int, k: int, kinds: tuple[ForKind, ForKind, ForKind]) -> tuple[Stmt, list[Buffer]]:
    a, b, c = buf("A", m, k), buf("B", k, n), buf("C", m, n)

    def update(i: Var, j: Var) -> Stmt:
        at = i * n + j
        return seq(Store(c, at, const(0.0)),
                   loop(k, lambda r: Store(c, at, c[at] + a[i * k + r] * b[r * n + j]), kinds[2], "k"))  # fmt: skip

    return loop(m, lambda i: loop(n, lambda j: update(i, j), kinds[1], "j"), kinds[0]), [a, b, c]


@pytest.mark.parametrize("outer", [SERIAL, PARALLEL, ForKind.UNROLLED])
@pytest.mark.parametrize("inner", [SERIAL, VECTORIZED, ForKind.VTHREAD])
def test_matmul(outer: ForKind, inner: ForKind, rng: np.random.Generator, serial: str) -> None:
    m, n, k = 5, 7, 11
    body, args = matmul(m, n, k, (outer, inner, SERIAL))
    x, y = rand(rng, m, k), rand(rng, k, n)
    (out,) = execute(body, args, x, y)
    want = np.zeros((m, n), np.float32)
    for r in range(k):
        want = want + x[:, r, None] * y[None, r]
    np.testing.assert_array_equal(out, want)


def shared_matmul(guarded: bool = True, barriers: tuple[bool, bool] = (True, True)) -> tuple[Stmt, list[Buffer]]:
    """18 x 10 times 10 x 12: blocks of 9 x 4 outputs, 12 threads of 3 each, B staged through shared memory."""
    a, b, c = buf("A", 18, 10), buf("B", 10, 12), buf("C", 18, 12)
    acc, stage = buf("acc", 3, scope="local"), buf("B.shared", 5, 4, scope="shared")

    def body(bx: Var, by: Var, tx: Var) -> Stmt:
        row, col = bx * 9 + tx // 4 * 3, by * 4 + tx % 4

        def fetch(ko: Var) -> Stmt:
            def one(s: Var) -> Stmt:
                p = s * 12 + tx
                load = Store(stage, p, b[(ko * 5 + p // 4) * 12 + by * 4 + p % 4])
                return If(p < 20, load) if guarded else load

            return loop(2, one, name="s")

        def compute(ko: Var) -> Stmt:
            return loop(5, lambda ki: loop(3, lambda u: Store(
                acc, u, acc[u] + a[(row + u) * 10 + ko * 5 + ki] * stage[ki * 4 + tx % 4]), name="u"))  # fmt: skip

        def outer(ko: Var) -> Stmt:
            first, second = [[Barrier()] if on else [] for on in barriers]
            return Seq((*first, fetch(ko), *second, compute(ko)))

        return seq(
            loop(3, lambda u: Store(acc, u, const(0.0)), VECTORIZED, "u"),
            loop(2, outer, name="ko"),
            loop(3, lambda u: Store(c, (row + u) * 12 + col, maximum(acc[u], const(0.0))), name="u"),
        )

    nest = loop(2, lambda bx: Alloc(acc, Alloc(stage, loop(
        3, lambda by: threads(12, lambda tx: body(bx, by, tx)), ForKind.BLOCK, "by", "blockIdx.y"))),
        ForKind.BLOCK, "bx", "blockIdx.x")  # fmt: skip
    return nest, [a, b, c]


def test_kernel_with_shared_memory(rng: np.random.Generator, serial: str) -> None:
    body, args = shared_matmul()
    x, y = rand(rng, 18, 10), rand(rng, 10, 12)
    (out,) = execute(body, args, x, y)
    want = np.zeros((18, 12), np.float32)
    for r in range(10):
        want = want + x[:, r, None] * y[None, r]
    np.testing.assert_array_equal(out, np.maximum(want, 0))


@pytest.mark.parametrize(("barriers", "law"), [((True, False), "reads in a race"), ((False, True), "writes in a race")])
def test_missing_barrier_is_found(barriers: tuple[bool, bool], law: str, rng: np.random.Generator, serial: str) -> None:
    body, args = shared_matmul(barriers=barriers)
    with pytest.raises(InterpError, match=rf"B\.shared: {law}.*since the last barrier.*B\.shared\[.*tx="):
        execute(body, args, rand(rng, 18, 10), rand(rng, 10, 12))


def test_missing_guard_is_found(rng: np.random.Generator, serial: str) -> None:
    body, args = shared_matmul(guarded=False)
    refuses(r"B\.shared: index out of bounds, got index=20 size=20", body, args, rand(rng, 18, 10), rand(rng, 10, 12))


@pytest.mark.parametrize("contributing", [8, 5])
def test_thread_reduce(contributing: int, rng: np.random.Generator, serial: str) -> None:
    x, out = buf("x", 3, 37), buf("out", 3, dtype="float32")
    part, total = buf("part", 1, scope="local"), buf("total", 1, scope="local")
    combiner = red.sum(const(1.0), red.reduce_axis((0, 2))).combiner

    def body(b: Var, t: Var) -> Stmt:
        at = lambda k: k * 8 + t  # noqa: E731
        return seq(
            Store(part, const(0), const(0.0)),
            loop(5, lambda k: If(at(k) < 37, Store(part, const(0), part[0] + x[b * 37 + at(k)])), name="k"),
            ThreadReduce(combiner, (total,), (part[0],), t, contributing),
            If(t.equal(0), Store(out, b, total[0])),
        )

    nest = blocks(3, lambda b: Alloc(part, Alloc(total, threads(8, lambda t: body(b, t)))))
    data = rand(rng, 3, 37)
    (got,) = execute(nest, [x, out], data)
    want = sum(data[:, t::8].astype(np.float64).sum(1) for t in range(contributing))
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_thread_reduce_of_pairs_gives_every_thread_the_result(rng: np.random.Generator) -> None:
    x, at, best = buf("x", 4, 6), buf("at", 4, 6, dtype="int32"), buf("best", 4, 6)
    i, v = buf("i", 1, dtype="int32", scope="local"), buf("v", 1, scope="local")
    axis = red.reduce_axis((0, 6))
    combiner = own_reducers.argmax((axis, const(0.0)), axis)[0].combiner

    def body(y: Var, t: Var) -> Stmt:
        return seq(
            ThreadReduce(combiner, (i, v), (t, x[y * 6 + t]), t, 6),
            Store(at, y * 6 + t, i[0]),
            Store(best, y * 6 + t, v[0]),
        )

    nest = threads(6, lambda t: Alloc(i, Alloc(v, loop(4, lambda y: body(y, t), ForKind.THREAD, "ty", "threadIdx.y"))))
    data = rand(rng, 4, 6)
    where, value = execute(nest, [x, at, best], data)
    np.testing.assert_array_equal(where, np.broadcast_to(data.argmax(1)[:, None], (4, 6)))
    np.testing.assert_array_equal(value, np.broadcast_to(data.max(1)[:, None], (4, 6)))


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_alloc_inside_a_loop_is_private_to_an_iteration(
    kind: ForKind, scope: str, rng: np.random.Generator, serial: str
) -> None:
    x, out, tmp = buf("x", 6, 4), buf("out", 6), buf("tmp", 4, scope=scope)

    def body(i: Var) -> Stmt:
        return Alloc(tmp, seq(
            loop(4, lambda j: Store(tmp, j, x[i * 4 + j] * 2.0), name="j"),
            Store(out, i, tmp[0] + tmp[1] - tmp[2] * tmp[3])))  # fmt: skip

    data = rand(rng, 6, 4)
    t = data * np.float32(2)
    (got,) = execute(loop(6, body, kind), [x, out], data)
    np.testing.assert_array_equal(got, t[:, 0] + t[:, 1] - t[:, 2] * t[:, 3])


def plain(s: Stmt, env: dict[Var, int], mem: dict[Buffer, list[int]]) -> None:
    """The meaning of serial integer programs, one scalar at a time."""

    def value(e: ex.Expr) -> int:
        match e:
            case ex.Const():
                return int(e.value)
            case Var():
                return env[e]
            case ex.BufferLoad():
                return mem[e.buffer][value(e.index)]
            case ex.Binary():
                return int(constant_folding.fold(e.op, value(e.a), value(e.b), e.dtype))
            case ex.Compare():
                return int(value(e.a) < value(e.b))
        raise AssertionError(e)

    match s:
        case For():
            for k in range(s.extent):
                plain(s.body, {**env, s.var: k}, mem)
        case Store():
            mem[s.buffer][value(s.index)] = value(s.value) % 1000
        case If():
            if value(s.cond):
                plain(s.then, env, mem)
        case Seq():
            for x in s.stmts:
                plain(x, env, mem)


SIZE = 97


def random_index(rng: np.random.Generator, bound: list[Var], near: ex.Expr | None = None) -> ex.Expr:
    """A sum over the loop variables, or something that differs a little from `near`."""
    pick = rng.random()
    if near is not None and pick < 0.4:
        return near
    v = bound[int(rng.integers(len(bound)))]
    if near is not None and pick < 0.8:
        nudge = (near + int(rng.integers(1, 4)), near + v, near - v + 3, near + (v + near) // 2, near + v % 2)
        return nudge[int(rng.integers(len(nudge)))]
    e: ex.Expr = const(int(rng.integers(0, 3)))
    for v in bound:
        e = e + v * int(rng.choice([0, 1, 1, 2, 4, 8, 12]))
    return e if rng.random() < 0.8 else e + v % 2 * 4 if rng.random() < 0.7 else ex.minimum(e, 5)


def random_nest(rng: np.random.Generator, buffers: list[Buffer], bound: list[Var], depth: int) -> Stmt:
    if bound and (depth == 0 or rng.random() < 0.1):
        out = buffers[int(rng.integers(len(buffers)))]
        at = random_index(rng, bound)
        loads = [buffers[int(rng.integers(len(buffers)))][random_index(rng, bound, at)] for _ in range(2)]
        s: Stmt = Store(out, at, (loads[0] * 3 + loads[1] + random_index(rng, bound)) % 1000)
        return If(random_index(rng, bound) < int(rng.integers(1, 30)), s) if rng.random() < 0.3 else s
    v = Var(f"v{len(bound)}")
    inner = [random_nest(rng, buffers, [*bound, v], depth - 1) for _ in range(int(rng.integers(1, 3)))]
    return For(v, int(rng.integers(1, 5)), SERIAL, seq(*inner))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.one_in(3)
def test_random_serial_nests(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(12):
        start = [buf(f"s{k}", SIZE * 3, dtype="int32") for k in range(4)]
        buffers = [buf(f"b{k}", SIZE * 3, dtype="int32") for k in range(4)]
        data = [rng.integers(0, 1000, SIZE * 3).astype(np.int32) for _ in start]
        nest = random_nest(rng, buffers, [], int(rng.integers(1, 5)))
        copies = [loop(SIZE * 3, lambda i, b=b, s=s: Store(b, i, s[i])) for b, s in zip(buffers, start, strict=True)]
        got = execute(seq(*copies, nest), [*start, *buffers], *data)
        mem = {b: d.tolist() for b, d in zip(buffers, data, strict=True)}
        plain(nest, {}, mem)
        for b, array in nonempty(zip(buffers, got, strict=True)):
            np.testing.assert_array_equal(array, mem[b])
