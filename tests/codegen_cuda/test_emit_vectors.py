"""Vectorized loops: which become vector accesses, how wide, and that they compute what the interpreter does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest

from codegen_cuda import emit
from te_lite.errors import UnsafeError
from te_lite.expr.expr import Expr, Var, call, cast, compare, const, if_then_else, logical_and, maximum
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, If, LoweredFunc, Stmt, Store, seq
from tests.codegen_cuda.gpu_nests import check, func, kernel, v

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
V, S, U = ForKind.VECTORIZED, ForKind.SERIAL, ForKind.UNROLLED
THREADS, BLOCKS = 6, 3
Body = Callable[[Var, Var, Var], Stmt]


def in_threads(args: list[Buffer], lanes: int, body: Body) -> LoweredFunc:
    """`body(block, thread, lane)` in 3 blocks of 6 threads, each with a vectorized loop."""
    b, t, lane = v("b", "t", "lane")
    loop = For(lane, lanes, V, body(b, t, lane))
    return func(args, kernel([("blockIdx.x", b, BLOCKS), ("threadIdx.x", t, THREADS)], loop))


def at(b: Var, t: Var, lane: Var, lanes: int) -> Expr:
    return (b * THREADS + t) * lanes + lane


def copy_of(dtype: str, lanes: int, offset: int = 0) -> LoweredFunc:
    a = Buffer("A", dtype, (BLOCKS * THREADS * lanes + offset,))
    o = Buffer("O", dtype, (BLOCKS * THREADS * lanes,))
    return in_threads([a, o], lanes, lambda b, t, k: Store(o, at(b, t, k, lanes), a[at(b, t, k, lanes) + offset]))


COPIES = [
    ("float32", 4, "float4"), ("float32", 2, "float2"), ("float32", 8, "float4"), ("float32", 6, "float2"),
    ("float32", 3, ""), ("float64", 2, "double2"), ("float64", 4, "double2"), ("float16", 2, "half2"),
    ("float16", 4, "int2"), ("float16", 8, "int4"), ("int32", 4, "int4"), ("int64", 2, "longlong2"),
    ("int8", 4, "char4"), ("int8", 16, "int4"), ("uint8", 8, "int2"), ("int16", 8, "int4"), ("bool", 4, "int"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "lanes", "kind"), COPIES)
@pytest.mark.one_in(3)
def test_copies_use_the_widest_vector(dtype: str, lanes: int, kind: str) -> None:
    source = check(copy_of(dtype, lanes)).source
    assert re.findall(r"\*\((\w+) \*\)", source) == ([kind] if kind else [])
    assert (f"*(const {kind} *)" in source) == bool(kind)


@pytest.mark.parametrize(("offset", "lanes"), [(1, 4), (2, 4), (3, 2), (4, 4)])
def test_misaligned_reads_are_gathered_into_aligned_stores(offset: int, lanes: int) -> None:
    source = check(copy_of("float32", lanes, offset)).source
    assert f"*(float{lanes} *)" in source
    assert ("make_float" in source) == (offset % lanes != 0)


def test_misaligned_stores_are_scalar() -> None:
    a, o = Buffer("A", "float32", (72,)), Buffer("O", "float32", (73,))
    f = in_threads([a, o], 4, lambda b, t, k: seq(
        Store(o, at(b, t, k, 4) + 1, a[at(b, t, k, 4)]),
        If(logical_and(compare("==", b, 0), compare("==", t, 0), compare("==", k, 0)), Store(o, const(0), a[0])),
    ))  # fmt: skip
    source = check(f).source
    assert "float4" not in source and "#pragma unroll" in source


def test_strided_stores_are_scalar() -> None:
    a, o = Buffer("A", "float32", (72,)), Buffer("O", "float32", (4, 18))
    f = in_threads([a, o], 4, lambda b, t, k: Store(o, k * 18 + b * 6 + t, a[at(b, t, k, 4)]))
    assert "float4" not in check(f).source


def test_guards_that_lanes_share_stand_around_the_vector() -> None:
    a, o = Buffer("A", "float32", (72,)), Buffer("O", "float32", (72,))
    f = in_threads([a, o], 4, lambda b, t, k: seq(
        If(compare("<", b * 6 + t, 11), Store(o, at(b, t, k, 4), a[at(b, t, k, 4)])),
        If(compare(">=", b * 6 + t, 11), Store(o, at(b, t, k, 4), const(1.5, "float32"))),
    ))  # fmt: skip
    source = check(f).source
    assert source.count("if (") == 2 and "make_float4(1.5f, 1.5f, 1.5f, 1.5f)" in source


def test_padding_that_lanes_share_chooses_between_vectors() -> None:
    a, o = Buffer("A", "float32", (40,)), Buffer("O", "float32", (72,))
    f = in_threads([a, o], 4, lambda b, t, k: Store(
        o, at(b, t, k, 4),
        if_then_else(logical_and(compare(">=", b * 6 + t, 3), compare("<", b * 6 + t, 13)),
                     a[at(b, t, k, 4) - 12], const(0, "float32")),
    ))  # fmt: skip
    source = check(f).source
    assert "? *(const float4 *)" in source and "make_float4(0.0f, 0.0f, 0.0f, 0.0f)" in source


@pytest.mark.parametrize(("dtype", "lanes"), [("float16", 8), ("int8", 16), ("int8", 4)])
def test_padding_of_narrow_types_moves_whole_words(dtype: str, lanes: int) -> None:
    a, o = Buffer("A", dtype, (12 * lanes,)), Buffer("O", dtype, (18 * lanes,))
    f = in_threads([a, o], lanes, lambda b, t, k: Store(
        o, at(b, t, k, lanes),
        if_then_else(compare("<", b * 6 + t, 12), a[at(b, t, k, lanes)], const(0, dtype)),
    ))  # fmt: skip
    assert "? *(const " in check(f).source


def test_padding_that_differs_between_lanes_is_chosen_lane_by_lane() -> None:
    a, o = Buffer("A", "float32", (70,)), Buffer("O", "float32", (72,))
    f = in_threads([a, o], 4, lambda b, t, k: Store(
        o, at(b, t, k, 4),
        if_then_else(logical_and(compare(">=", at(b, t, k, 4), 1), compare("<", at(b, t, k, 4), 71)),
                     a[at(b, t, k, 4) - 1], const(0, "float32")),
    ))  # fmt: skip
    source = check(f).source
    assert source.count("?") == 4 and "*(float4 *)" in source and "const float4" not in source


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "float4"), ("float16", "half2"), ("int32", "int4")])
def test_arithmetic_reads_vectors_once(dtype: str, kind: str) -> None:
    a, c, o = Buffer("A", dtype, (72,)), Buffer("C", dtype, (18,)), Buffer("O", dtype, (72,))
    f = in_threads([a, c, o], 4, lambda b, t, k: Store(
        o, at(b, t, k, 4), maximum(a[at(b, t, k, 4)] * 2 + c[b * 6 + t], const(0, dtype)) - a[at(b, t, k, 4)]
    ))  # fmt: skip
    source = check(f).source
    assert f"const {kind} v" in source and f"make_{kind}(" in source


def test_lane_numbers_are_values_too() -> None:
    o = Buffer("O", "int32", (144,))
    f = in_threads([o], 8, lambda b, t, k: Store(o, at(b, t, k, 8), k * k + b))
    assert "make_int4(" in check(f).source


def test_vectors_go_through_shared_memory_and_registers() -> None:
    b, t, k, j, m = v("b", "t", "k", "j", "m")
    a, o = Buffer("A", "float32", (72,)), Buffer("O", "float32", (72,))
    tile, regs = Buffer("tile", "float32", (24,), "shared"), Buffer("regs", "float32", (4,), "local")
    body = seq(
        For(k, 4, V, Store(tile, t * 4 + k, a[at(b, t, k, 4)])),
        Barrier(),
        For(j, 4, V, Store(regs, j, tile[(5 - t) * 4 + j] * 3)),
        For(m, 4, V, Store(o, at(b, t, m, 4), regs[m] + 1)),
    )
    f = func([a, o], kernel([("blockIdx.x", b, 3), ("threadIdx.x", t, 6)], Alloc(tile, Alloc(regs, body))))
    source = check(f).source
    assert "*(float4 *)(tile + " in source and "const float4 v = *(const float4 *)(tile" in source
    assert "make_float4(regs[0] + 1.0f" in source and "(float4 *)(regs" not in source


def test_a_loop_inside_a_vectorized_loop_is_refused() -> None:
    a, o, r = Buffer("A", "float32", (72, 5)), Buffer("O", "float32", (72,)), Var("r")

    def body(b: Var, t: Var, k: Var) -> Stmt:
        add = Store(o, at(b, t, k, 4), o[at(b, t, k, 4)] + a[at(b, t, k, 4) * 5 + r])
        return seq(Store(o, at(b, t, k, 4), const(0, "float32")), For(r, 5, S, add))

    with pytest.raises(UnsafeError, match="the vectorized loop lane contains"):
        emit(in_threads([a, o], 4, body))


def test_choices_go_into_registers_as_vectors() -> None:
    a, o, regs = Buffer("A", "float32", (52,)), Buffer("O", "float32", (72,)), Buffer("regs", "float32", (4,), "local")
    b, t, k, j = v("b", "t", "k", "j")
    chosen = if_then_else(compare("<", b * 6 + t, 13), a[at(b, t, k, 4)], const(0, "float32"))
    body = seq(For(k, 4, V, Store(regs, k, chosen)), For(j, 4, V, Store(o, at(b, t, j, 4), regs[j] + 1)))
    source = check(func([a, o], kernel([("blockIdx.x", b, 3), ("threadIdx.x", t, 6)], Alloc(regs, body)))).source
    assert re.search(r"const float4 v\w* = .* \? \*\(const float4 \*\)", source) and "regs[3] = v" in source


def test_conversions_and_functions_lane_by_lane() -> None:
    a, o = Buffer("A", "int8", (72,)), Buffer("O", "float32", (72,))
    f = in_threads([a, o], 4, lambda b, t, k: Store(
        o, at(b, t, k, 4), call("exp", cast("float32", a[at(b, t, k, 4)]) * 0.01)
    ))  # fmt: skip
    source = check(f).source
    assert "const char4 v" in source and source.count("expf(") == 4
