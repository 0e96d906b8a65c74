"""Each check of the verifier, on the smallest programs that break it and on one that breaks none."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from te_lite.computation.tensor import placeholder
from te_lite.errors import UnsafeError
from te_lite.expr import reduction as red
from te_lite.expr.expr import Cast, Combiner, Expr, Var, binary, const, if_then_else, logical_or, select
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, If, LoweredFunc, Stmt, Store, ThreadReduce, seq
from te_lite.verify.verify import Proven, Refuted, Unproven, verdict, verify
from te_lite.verify.verify_walk import LAWS, Walk

SERIAL, BLOCK, THREAD, VECTORIZED = ForKind.SERIAL, ForKind.BLOCK, ForKind.THREAD, ForKind.VECTORIZED
K, J, B, T = Var("i"), Var("j"), Var("b"), Var("t")
IN, OUT = Buffer("in", "float32", (8,)), Buffer("out", "float32", (8,))
SHARED, LOCAL = Buffer("s", "float32", (8,), "shared"), Buffer("l", "float32", (1,), "local")
ZERO = const(0.0)
SUM: Combiner = red.sum(ZERO, red.reduce_axis((0, 2))).combiner
SET = Store(OUT, const(0), ZERO)


def func(body: Stmt, *args: Buffer) -> LoweredFunc:
    return LoweredFunc("f", args or (IN, OUT), body)


def serial(body: Stmt, var: Var = K, extent: int = 8, kind: ForKind = SERIAL) -> For:
    return For(var, extent, kind, body)


def block(body: Stmt, var: Var = B, tag: str = "blockIdx.x") -> For:
    return For(var, 2, BLOCK, body, tag)


def thread(body: Stmt, var: Var = T, tag: str = "threadIdx.x") -> For:
    return For(var, 4, THREAD, body, tag)


def reduce_to(dst: Buffer, src: Expr = ZERO, var: Var = T, extent: int = 4) -> Stmt:
    return ThreadReduce(SUM, (dst,), (src,), var, extent)


def parallel(body: Stmt) -> For:
    return serial(body, kind=ForKind.PARALLEL)


def in_kernel(body: Stmt) -> Stmt:
    return block(thread(Alloc(LOCAL, body)))


BROKEN: dict[str, dict[str, tuple[str, LoweredFunc]]] = {
    "variables": {
        "twice": ("i is bound by two", func(serial(serial(Store(OUT, K, ZERO))))),
        "unbound": ("j of `out.j. = 0.0f` is bound by no loop", func(serial(Store(OUT, J, ZERO)))),
        "in a value": ("j of", func(serial(Store(OUT, K, IN[J])))),
        "in a condition": ("j of", func(serial(If(J < 2, SET)))),
        "after its loop": ("i of", func(seq(serial(SET), Store(OUT, K, ZERO)))),
        "reduced thread": ("t of", func(block(Alloc(LOCAL, reduce_to(LOCAL))))),
        "empty loop": ("positive integer, got extent=0", func(serial(SET, extent=0))),
    },
    "buffers": {
        "unknown store": ("l of `l.0. = 0.0f` is neither", func(Store(LOCAL, const(0), ZERO))),
        "unknown load": ("l of", func(Store(OUT, const(0), LOCAL[0]))),
        "unknown load in an index": ("l of", func(Store(OUT, Cast("int32", LOCAL[0]), ZERO))),
        "outside": ("l of", func(seq(Alloc(LOCAL, SET), Store(LOCAL, const(0), ZERO)))),
        "unknown result": ("l of", func(block(thread(reduce_to(LOCAL))))),
        "twice": ("l is allocated twice", func(Alloc(LOCAL, Alloc(LOCAL, SET)))),
        "an argument": ("out is allocated twice", func(Alloc(OUT, SET))),
        "argument twice": ("out is two arguments", func(SET, OUT, OUT)),
    },
    "scopes": {
        "argument": ("l must be global, got scope='local'", func(SET, OUT, LOCAL)),
        "shared": ("s is allocated outside of a kernel", func(Alloc(SHARED, block(SET)))),
        "unknown": ("must be one of", func(Alloc(Buffer("x", "int8", (1,), "texture"), SET))),
    },
    "lowered": {
        "load": ("is not lowered", func(Store(OUT, const(0), placeholder((3,), name="X")[0]))),
        "reduction": ("is not lowered", func(Store(OUT, const(0), red.sum(ZERO, red.reduce_axis((0, 2)))))),
    },
    "dtypes": {
        "store": ("stores int32 to a buffer of float32", func(Store(OUT, const(0), const(1)))),
        "index": ("is bool, not an integer", func(Store(OUT, const(False, "bool"), ZERO))),
        "load index": ("of in is float32", func(Store(OUT, const(0), IN[IN[0]]))),
        "condition": ("is int32, not bool", func(serial(If(K, SET)))),
    },
    "kernels": {
        "no tag": ("must be one of blockIdx.x", func(block(SET, tag=""))),
        "wrong tag": ("must be one of threadIdx.x", func(thread(SET, tag="blockIdx.x"))),
        "tag of a serial loop": ("is for, and has the tag", func(For(K, 2, SERIAL, SET, "blockIdx.x"))),
        "twice": ("threadIdx.x is bound twice", func(thread(thread(SET, J)))),
        "block in thread": ("is inside a thread loop", func(thread(block(SET)))),
        "in a loop": ("is inside `for i in 0..8:`", func(serial(block(SET)))),
        "loop between": ("is inside `for i", func(block(serial(thread(SET))))),
        "sequence between": ("is inside `...`", func(block(seq(SET, thread(SET))))),
        "condition around": ("is inside `if", func(block(If(B < 1, thread(SET))))),
        "parallel": ("parallel loop i is inside a kernel", func(block(serial(SET, kind=ForKind.PARALLEL)))),
    },
    "meetings": {
        "barrier": ("`barrier..` is outside of a kernel", func(Barrier())),
        "reduction over a serial loop": ("i of .* is not the variable of a thread",
                                         func(in_kernel(serial(reduce_to(LOCAL, var=K))))),
        "too many threads": ("between 1 and 4 threads, got extent=5", func(in_kernel(reduce_to(LOCAL, extent=5)))),
        "not local": ("needs a local buffer", func(in_kernel(reduce_to(OUT)))),
        "wrong dtype": ("of one int32", func(in_kernel(reduce_to(LOCAL, const(1))))),
        "too few results": ("needs 1 results and sources, got 0 and 1",
                            func(in_kernel(ThreadReduce(SUM, (), (ZERO,), T, 4)))),
    },
    "vectors": {
        "loop inside": ("the vectorized loop i contains `for j", func(serial(serial(SET, J), kind=VECTORIZED))),
        "barrier inside": ("contains `barrier", func(block(serial(Barrier(), kind=VECTORIZED)))),
    },
    "in_bounds": {
        "store": (r"out\[8\] in `out\[i\] = 0.0f` is outside of 8 elements where i=8",
                  func(serial(Store(OUT, K, ZERO), extent=9))),
        "load": (r"in\[-1\]", func(serial(Store(OUT, K, IN[K - 1])))),
        "weak guard": (r"out\[8\]", func(serial(If(K <= 8, Store(OUT, K, ZERO)), extent=20))),
        "last of many points": (r"out\[8\]", func(serial(
            serial(Store(OUT, K // 999 + J // 999, ZERO), J, 3997), K, 3997))),
        "select": (r"in\[8\]", func(serial(Store(OUT, K % 8, select(K < 8, IN[K], ZERO)), extent=9))),
        "condition": (r"in\[8\]", func(serial(If(IN[K] > 0.0, SET), extent=9))),
    },
    "races": {
        "block": ("iteration 1 of block loop b reads an element of out, .* that iteration 0 writes",
                  func(block(serial(Store(OUT, K, OUT[7 - K]))))),
        "parallel": ("iteration 1 of parallel loop i reads", func(parallel(Store(OUT, K, OUT[K // 2])))),
        "argument of a reader": ("of parallel loop i reads an element of in", func(parallel(
            seq(serial(Store(IN, J, ZERO), J), Store(OUT, K, IN[7 - K]))))),
        "guards": ("of parallel loop i reads", func(parallel(
            If(K < 7, Store(OUT, K + 1, if_then_else(K > 5, OUT[K], ZERO)))))),
        "one iteration writes": ("iteration 0 of parallel loop i reads .* that iteration 5 writes", func(parallel(
            seq(If(K.equal(5), Store(OUT, const(0), ZERO)), Store(IN, K, OUT[0]))))),
        "threads accumulate": ("iteration 1 of thread loop t reads an element of out", func(block(thread(
            serial(Store(OUT, B, OUT[B] + IN[J]), J))))),
        "threads without a barrier": ("of thread loop t reads an element of out, as in `in", func(block(thread(
            seq(Store(OUT, B * 4 + T, ZERO), Store(IN, B * 4 + T, OUT[B * 4 + 3 - T])))))),
        "threads write the same": ("iteration 1 of thread loop t writes an element of out, as in .* iteration 0", func(
            block(thread(serial(Store(OUT, B * 4 + K, ZERO), extent=4))))),
        "a barrier for some": ("of thread loop t reads", func(block(thread(seq(
            Store(OUT, B * 4 + T, ZERO), If(IN[0] < 1.0, Barrier()), Store(IN, B * 4 + T, OUT[B * 4 + 3 - T])))))),
        "the next turn of a loop": ("of thread loop t reads", func(block(thread(serial(seq(
            Store(OUT, B * 4 + T, ZERO), Barrier(), Store(IN, B * 4 + T, OUT[B * 4 + 3 - T]))))))),
    },
    "written": {
        "own": ("reads l, to which no statement before it stores", func(Alloc(LOCAL, Store(OUT, const(0), LOCAL[0])))),
        "too late": ("`out.0. = l.0.` reads l", func(Alloc(LOCAL, serial(seq(
            Store(OUT, const(0), LOCAL[0]), Store(LOCAL, const(0), ZERO)))))),
        "made of itself": ("reads l", func(Alloc(LOCAL, Store(LOCAL, const(0), LOCAL[0] + 1.0)))),
        "forgotten": ("reads l", func(serial(seq(
            Alloc(LOCAL, Store(LOCAL, const(0), ZERO)), Alloc(LOCAL, Store(OUT, K, LOCAL[0])))))),
        "summed": ("reads l", func(in_kernel(reduce_to(LOCAL, LOCAL[0])))),
        "in a condition": ("`if l.0. > 0.0f:` reads l", func(Alloc(LOCAL, If(LOCAL[0] > 0.0, SET)))),
    },
}  # fmt: skip
CASES = [(check, case) for check, cases in BROKEN.items() for case in cases]


@pytest.mark.parametrize(("check", "case"), CASES)
def test_each_check_bites(check: str, case: str) -> None:
    sentence, program = BROKEN[check][case]
    first = verdict(program)
    assert isinstance(first, Refuted)
    found = [f.sentence for f in Walk(program).findings if f.law == check] or [first.sentence]
    assert check == first.law or any(f.law == check for f in Walk(program).findings)
    assert re.search(sentence, found[0])
    with pytest.raises(UnsafeError, match=rf"f: {first.law}: "):
        verify(program)


def test_an_output_holds_nothing_before_a_store() -> None:
    program = func(serial(Store(OUT, K, OUT[K] + 1.0)))
    assert isinstance(verdict(program), Proven)
    with pytest.raises(UnsafeError, match=r"f: written: `out.i. = out.i. . 1.0f` reads out, to which no statement"):
        verify(program, [OUT])


def test_every_check_has_a_breaking_program() -> None:
    assert set(LAWS) == set(BROKEN)


def test_a_sound_kernel_passes() -> None:
    stage = Store(SHARED, T, IN[B * 4 + T])
    fold = reduce_to(LOCAL, SHARED[3 - T])
    write = If(T.equal(0), Store(OUT, B, LOCAL[0]))
    vector = serial(Store(OUT, K + 4, IN[K]), extent=4, kind=VECTORIZED)
    body = seq(stage, Barrier(), fold, write, If(logical_or(T < 0, T < 1), serial(vector, J, 2)))
    kernel = block(Alloc(SHARED, thread(Alloc(LOCAL, body))))
    verify(func(seq(kernel, serial(SET, extent=3))))


GUARDED: dict[str, Callable[[], Stmt]] = {
    "if": lambda: If(K < 8, Store(OUT, K, ZERO)),
    "if_then_else": lambda: Store(OUT, K % 8, if_then_else(K >= 8, ZERO, IN[K])),
    "conjunction": lambda: If(binary("min", K, 1) < 9, Store(OUT, K % 8, if_then_else(K < 8, IN[K], IN[K - 8]))),
    "division": lambda: If(K > 0, Store(OUT, 8 // K % 8, ZERO)),
}


@pytest.mark.parametrize("name", GUARDED)
def test_guards_protect_accesses(name: str) -> None:
    assert isinstance(verdict(func(serial(GUARDED[name](), extent=16))), Proven)


def test_what_memory_decides_is_unproven_and_refused() -> None:
    program = func(serial(If(IN[K % 8] > 0.0, Store(OUT, K, ZERO)), extent=16))
    assert isinstance(verdict(program), Unproven)
    with pytest.raises(UnsafeError, match=r"f: unproven: nothing shows that out\[i\] in .* is inside of 8 elements"):
        verify(program)


LARGE = Buffer("large", "float32", (1 << 24,))
ACROSS = Store(IN, B * 4 + T, OUT[B * 4 + 3 - T])
NO_RACES: dict[str, Callable[[], Stmt]] = {
    "threads with a barrier": lambda: block(thread(seq(Store(OUT, B * 4 + T, ZERO), Barrier(), ACROSS))),
    "threads of two axes with a barrier": lambda: block(For(K, 2, THREAD, For(T, 2, THREAD, seq(
        Store(OUT, B * 4 + K * 2 + T, ZERO), Barrier(), Store(IN, B * 4 + K * 2 + T, OUT[B * 4 + 3 - K * 2 - T])),
        "threadIdx.x"), "threadIdx.y")),
    "threads with barriers in a loop": lambda: block(thread(serial(seq(
        Store(OUT, B * 4 + T, ZERO), Barrier(), ACROSS, Barrier())))),
    "threads that reduce between": lambda: in_kernel(seq(Store(OUT, B * 4 + T, ZERO), reduce_to(LOCAL), ACROSS)),
    "what threads write in turns": lambda: block(thread(seq(
        Store(OUT, B * 4 + T, ZERO), Barrier(), Store(OUT, B * 4 + 3 - T, ZERO)))),
    "one thread accumulates": lambda: block(thread(If(T.equal(3), serial(Store(OUT, B, OUT[B] + IN[J]), J)))),
    "threads accumulate": lambda: block(thread(serial(Store(OUT, B * 4 + T, OUT[B * 4 + T] + IN[J]), J))),
    "accumulation": lambda: parallel(seq(Store(OUT, K, ZERO), serial(Store(OUT, K, OUT[K] + IN[J]), J))),
    "blocks": lambda: block(serial(Store(OUT, B * 4 + K, OUT[B * 4 + 3 - K]), extent=4)),
    "computed again": lambda: parallel(serial(Store(OUT, J, ZERO), J)),
    "own buffer": lambda: parallel(Alloc(LOCAL, seq(Store(LOCAL, const(0), ZERO), Store(OUT, K, LOCAL[0])))),
    "guards": lambda: parallel(If(K > 5, Store(OUT, K, if_then_else(K > 5, ZERO, OUT[5 - K])))),
    "columns": lambda: For(K, 512, ForKind.PARALLEL, serial(
        Store(LARGE, J * 4096 + K * 8, LARGE[J * 4096 + K * 8 + 1]), J, 4096)),
    "fused": lambda: For(K, 4096, ForKind.PARALLEL, serial(Store(
        LARGE, (K * 7 + J) // 12 * 4096 + (K * 7 + J) % 12,
        LARGE[(K * 7 + J) // 12 * 4096 + (K * 7 + J) % 12]), J, 7)),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_RACES)
def test_iterations_that_keep_to_their_own_elements_are_proven(name: str) -> None:
    assert isinstance(verdict(func(NO_RACES[name](), IN, OUT, LARGE)), Proven)


@pytest.mark.parametrize("around", [parallel, lambda body: block(body, K)])
def test_a_race_that_memory_decides_is_unproven(around: Callable[[Stmt], Stmt]) -> None:
    index = binary("min", binary("max", Cast("int32", IN[K % 2]), 0), 7)
    program = func(around(Store(OUT, K, OUT[index])))
    assert isinstance(verdict(program), Unproven)
    with pytest.raises(UnsafeError, match="loop i read no element of out that another one writes: what they touch dep"):
        verify(program)
