"""The interpreter: results, exact arithmetic, and every refusal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from te_lite import expr as ex
from te_lite import interp
from te_lite import reduction as red
from te_lite.errors import InterpError
from te_lite.expr import Var, call, cast, const, if_then_else, logical_and, maximum, select
from te_lite.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    LoweredFunc,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    seq,
)

SERIAL, PARALLEL, VECTORIZED = ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED
LANES = (PARALLEL, VECTORIZED)
ALL_KINDS = (SERIAL, PARALLEL, VECTORIZED, ForKind.UNROLLED, ForKind.VTHREAD)


def buf(name: str, *shape: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, dtype, shape, scope)


def loop(extent: int, body: Callable[[Var], Stmt], kind: ForKind = SERIAL, name: str = "i", tag: str = "") -> For:
    v = Var(name)
    return For(v, extent, kind, body(v), tag)


def blocks(extent: int, body: Callable[[Var], Stmt]) -> For:
    return loop(extent, body, ForKind.BLOCK, "bx", "blockIdx.x")


def threads(extent: int, body: Callable[[Var], Stmt]) -> For:
    return loop(extent, body, ForKind.THREAD, "tx", "threadIdx.x")


def poison(b: Buffer) -> np.ndarray:
    return np.full(b.shape, np.nan if b.dtype.startswith("float") else 77, b.dtype)


def execute(body: Stmt, args: list[Buffer], *inputs: np.ndarray) -> list[np.ndarray]:
    """Run with the given leading arguments; the others are poisoned outputs, which are returned."""
    outs = [poison(b) for b in args[len(inputs) :]]
    interp.run(LoweredFunc("f", tuple(args), body), [*inputs, *outs])
    return outs


def refuses(law: str, body: Stmt, args: list[Buffer], *inputs: np.ndarray) -> None:
    with pytest.raises(InterpError, match=law):
        execute(body, args, *inputs)


def rand(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(params=["as lanes", "one by one"])
def serial(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Serial loops with and without the shortcut over lanes."""
    if request.param == "one by one":
        monkeypatch.setattr(interp, "MAX_SERIAL_LANES", 0)
    return str(request.param)


# --------------------------------------------------------------------------------------------- whole programs


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
    combiner = red.argmax((axis, const(0.0)), axis)[0].combiner

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


# ------------------------------------------------------------------------------------------------ arithmetic

NUMBERS = {
    "int8": [-128, -7, -1, 1, 3, 100, 127],
    "int32": [-(2**31), -7, -1, 1, 3, 2**31 - 1],
    "float16": [-7.5, -1.0, 0.1, 3.0, 60000.0],
    "float32": [-7.5, -1e-3, 0.1, 3.0, 1e30],
    "float64": [-7.5, 0.1, 3.0],
}


def wrapped(value: int, dtype: str) -> int:
    bits = np.iinfo(dtype).bits
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def reference(op: str, a: float, b: float, dtype: str) -> float:
    if dtype.startswith("int"):
        exact = {
            "+": a + b, "-": a - b, "*": a * b, "//": a // b, "%": a % b, "min": min(a, b), "max": max(a, b),
            "/": abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        }[op]  # fmt: skip
        return wrapped(int(exact), dtype)
    t = np.dtype(dtype).type
    with np.errstate(all="ignore"):
        x, y = t(a), t(b)
        return {"+": x + y, "-": x - y, "*": x * y, "/": x / y, "//": np.floor(x / y), "%": x - np.floor(x / y) * y,
                "min": min(x, y), "max": max(x, y)}[op]  # fmt: skip


@pytest.mark.parametrize("kind", [SERIAL, VECTORIZED])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%", "min", "max"])
def test_arithmetic_is_done_in_the_dtype(op: str, dtype: str, kind: ForKind, serial: str) -> None:
    pairs = np.array(list(itertools.product(NUMBERS[dtype], repeat=2))).astype(dtype)
    n = len(pairs)
    x, y, out = buf("x", n, dtype=dtype), buf("y", n, dtype=dtype), buf("out", n, dtype=dtype)
    body = loop(n, lambda i: Store(out, i, ex.Binary(op, x[i], y[i])), kind)
    (got,) = execute(body, [x, y, out], pairs[:, 0].copy(), pairs[:, 1].copy())
    want = np.array([reference(op, a.item(), b.item(), dtype) for a, b in pairs])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", [SERIAL, VECTORIZED])
def test_calls(kind: ForKind, rng: np.random.Generator, serial: str) -> None:
    def gelu(v: float) -> float:
        return math.erf(v) + 1 / (1 + math.exp(-v)) + 1 / math.sqrt(abs(v)) + math.pow(abs(v), 1.5) + round(v * 3)

    x, out = buf("x", 23, dtype="float64"), buf("out", 23, dtype="float64")
    data = rand(rng, 23, dtype="float64")

    def value(e: ex.Expr) -> ex.Expr:
        size = call("abs", e)
        smooth = call("erf", e) + call("sigmoid", e) + call("rsqrt", size)
        return smooth + call("pow", size, 1.5) + call("round", e * 3.0)

    (got,) = execute(loop(23, lambda i: Store(out, i, value(x[i])), kind), [x, out], data)
    np.testing.assert_allclose(got, [gelu(v) for v in data], rtol=1e-14)


@pytest.mark.parametrize("func", [f for f in ex.CALLS if f not in ("if_then_else", "pow", "isnan")])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_float_calls_keep_the_dtype(func: str, dtype: str, rng: np.random.Generator) -> None:
    x, out = buf("x", 9, dtype=dtype), buf("out", 9, dtype=dtype)
    data = (rng.random(9) + 0.5).astype(dtype)
    (got,) = execute(loop(9, lambda i: Store(out, i, call(func, x[i])), VECTORIZED), [x, out], data)
    other = {"atan": np.arctan, "round": np.rint, "rsqrt": lambda v: v**-0.5, "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
             "erf": np.vectorize(math.erf)}  # fmt: skip
    want = other.get(func, getattr(np, func, None))(data.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol={"float16": 4e-3, "float32": 1e-6, "float64": 1e-14}[dtype])


def test_casts_truncate_and_wrap() -> None:
    x, i, j = buf("x", 4), buf("i", 4, dtype="int32"), buf("j", 4, dtype="int8")
    body = loop(4, lambda k: seq(Store(i, k, cast("int32", x[k])), Store(j, k, cast("int8", cast("int32", x[k])))))
    whole, small = execute(body, [x, i, j], np.array([-2.9, 2.9, 300.5, -0.5], np.float32))
    np.testing.assert_array_equal(whole, [-2, 2, 300, 0])
    np.testing.assert_array_equal(small, [-2, 2, 44, 0])


def test_float32_sums_round_after_every_step() -> None:
    x, out = buf("x", 3), buf("out", 1)
    body = Store(out, const(0), x[0] + x[1] + x[2])
    (got,) = execute(body, [x, out], np.array([1e8, 1.0, -1e8], np.float32))
    assert got[0] == 0.0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_if_then_else_protects_an_access_and_select_does_not(kind: ForKind, serial: str) -> None:
    x, out = buf("x", 5), buf("out", 9)
    inside = lambda i: logical_and(i >= 2, i < 7)  # noqa: E731
    data = np.arange(1, 6, dtype=np.float32)
    lazy = loop(9, lambda i: Store(out, i, if_then_else(inside(i), x[i - 2], 0.5)), kind)
    (got,) = execute(lazy, [x, out], data)
    np.testing.assert_array_equal(got, [0.5, 0.5, 1, 2, 3, 4, 5, 0.5, 0.5])
    eager = loop(9, lambda i: Store(out, i, select(inside(i), x[i - 2], 0.5)), kind)
    refuses("x: index out of bounds, got index=-2 size=5", eager, [x, out], data)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_if_masks_and_conjunction_is_lazy(kind: ForKind, serial: str) -> None:
    x, out = buf("x", 4), buf("out", 7)
    data = np.array([1, -1, 2, -2], np.float32)
    body = seq(
        loop(7, lambda i: Store(out, i, const(0.0)), kind),
        loop(7, lambda i: If(logical_and(i < 4, x[i] > 0.0), Store(out, i, x[i])), kind),
    )
    (got,) = execute(body, [x, out], data)
    np.testing.assert_array_equal(got, [1, 0, 2, 0, 0, 0, 0])


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_out_of_bounds(kind: ForKind, serial: str) -> None:
    x, out = buf("x", 6), buf("out", 7)
    data = np.zeros(6, np.float32)
    read = loop(7, lambda i: Store(out, i, x[i]), kind)
    law = r"buffer x: index out of bounds, got index=6 size=6, in `out\[i\] = x\[i\]` where i=6"
    refuses(law, read, [x, out], data)
    write = loop(7, lambda i: Store(out, i - 1, const(1.0)), kind)
    refuses("out: index out of bounds, got index=-1 size=7", write, [out])


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_uninitialised_reads(kind: ForKind, serial: str) -> None:
    out, tmp = buf("out", 5), buf("tmp", 5, scope="local")
    half = loop(5, lambda i: If(i < 4, Store(tmp, i, const(1.0))), kind)
    copy = loop(5, lambda i: Store(out, i, tmp[i]), kind)
    refuses("tmp: reads an uninitialised element, got index=4 size=5", Alloc(tmp, seq(half, copy)), [out])
    refuses("out: reads an uninitialised", loop(5, lambda i: Store(out, i, out[i] + 1.0), kind), [out])


def test_a_new_alloc_forgets_the_old_values(serial: str) -> None:
    out, tmp = buf("out", 2), buf("tmp", 1, scope="local")
    body = loop(2, lambda i: Alloc(tmp, seq(If(i < 1, Store(tmp, const(0), const(1.0))), Store(out, i, tmp[0]))))
    refuses("tmp: reads an uninitialised", body, [out])


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("op", ["//", "%", "/"])
def test_division_by_zero_of_active_lanes(op: str, kind: ForKind, serial: str) -> None:
    x, out = buf("x", 4, dtype="int32"), buf("out", 4, dtype="int32")
    data = np.array([3, 0, -2, 1], np.int32)
    bare = loop(4, lambda i: Store(out, i, ex.binary(op, 7, x[i])), kind)
    refuses("integers must not be divided by zero.*where i=1", bare, [x, out], data)
    guarded = loop(4, lambda i: Store(out, i, if_then_else(x[i] != 0, ex.binary(op, 7, x[i]), -9)), kind)
    (got,) = execute(guarded, [x, out], data)
    assert got[1] == -9


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


def test_arguments_are_checked() -> None:
    x, out = buf("x", 3, 2), buf("out", 6)
    func = LoweredFunc("f", (x, out), loop(6, lambda i: Store(out, i, x[i])))
    good, res = np.zeros((3, 2), np.float32), np.zeros(6, np.float32)
    frozen = np.zeros(6, np.float32)
    frozen.flags.writeable = False
    for args, law in [
        ([good], "2 arrays are needed, got args=1"),
        ([good.tolist(), res], "x: a NumPy array is needed"),
        ([good.astype(np.float64), res], "x: the dtype must be float32, got dtype='float64'"),
        ([good.reshape(2, 3), res], r"x: the shape must be \(3, 2\)"),
        ([np.zeros((2, 3), np.float32).T, res], "x: must be C-contiguous"),
        ([good, frozen], "out: the program writes to a read-only array"),
    ]:
        with pytest.raises(InterpError, match=law):
            interp.run(func, args)


def test_malformed_programs() -> None:
    out = buf("out", 6)
    i = Var("i")
    refuses("i: the variable is bound by no loop", Store(out, i, const(0.0)), [out])
    refuses("tmp: the buffer is neither argument nor allocated", Store(buf("tmp", 1), const(0), const(0.0)), [out])
    refuses("out: stores must be of float32", Store(out, const(0), const(1)), [out])
    refuses("only threads of a kernel can meet", Barrier(), [out])
    nested = threads(2, lambda t: seq(Store(out, t, const(0.0)), blocks(2, lambda b: Store(out, b, const(0.0)))))
    refuses("block loop must be in the nest that starts a kernel", nested, [out])


# ------------------------------------------------------------------------- random nests against plain Python


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
                return int(ex.fold(e.op, value(e.a), value(e.b), e.dtype))
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
        for b, array in zip(buffers, got, strict=True):
            np.testing.assert_array_equal(array, mem[b])
