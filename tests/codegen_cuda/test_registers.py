"""How far loops are unrolled: arrays become registers, and the compiler is not kept busy without need."""

from __future__ import annotations

import re

import pytest

from codegen_cuda import compile_source, emit
from codegen_cuda.passes.registers import MAX_ARRAY_BYTES, MAX_MEMORY_STATEMENTS, MAX_STATEMENTS, MAX_UNROLL
from te_lite.expr.expr import const
from te_lite.loops.stmt import Alloc, Buffer, ForKind, LoweredFunc, Store, seq
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER, check, func, kernel, nest, v

U, S = ForKind.UNROLLED, ForKind.SERIAL


def pragmas(source: str) -> dict[str, str]:
    """What stands before each loop, by its variable: the count of a pragma, "all", or ""."""
    lines = source.splitlines()
    out = {}
    for k, line in enumerate(lines):
        found = re.search(r"for \(int (\w+) = 0", line)
        if found:
            before = lines[k - 1].strip()
            out[found[1]] = (before.removeprefix("#pragma unroll").strip() or "all") if "#pragma" in before else ""
    return out


def tile(rows: int, columns: int, steps: int, unrolled: bool = True) -> LoweredFunc:
    """Each thread sums `steps` outer products of `rows` and `columns` elements in a local tile, and stores it."""
    t, i, j, k, x, y, p, q = v("t", "i", "j", "k", "x", "y", "p", "q")
    a, b = Buffer("A", "float32", (steps * rows,)), Buffer("B", "float32", (steps * columns,))
    c, local = Buffer("C", "float32", (32 * rows * columns,)), Buffer("L", "float32", (rows * columns,), "local")
    kind = U if unrolled else S
    product = local[i * columns + j] + a[k * rows + i] * b[k * columns + j]
    body = seq(
        nest((x, rows, S), (y, columns, S), Store(local, x * columns + y, const(0, "float32"))),
        nest((k, steps, kind), (i, rows, kind), (j, columns, kind), Store(local, i * columns + j, product)),
        nest((p, rows, S), (q, columns, S), Store(c, t * rows * columns + p * columns + q, local[p * columns + q])),
    )
    return func([a, b, c], kernel([("threadIdx.x", t, 32)], Alloc(local, body)), "p")


def test_a_tile_is_stored_from_registers_when_its_sum_is_unrolled_already() -> None:
    """The stores exceed the budget by little; without them in registers the whole tile would be in memory."""
    f = tile(8, 8, MAX_STATEMENTS // 64)
    loops = pragmas(emit(f).source)
    assert all(loops[name] == "all" for name in ("x", "y", "i", "j", "p", "q"))
    check(f)


def test_what_grows_a_program_much_stays_rolled() -> None:
    loops = pragmas(emit(tile(8, 8, MAX_STATEMENTS // 32, unrolled=False)).source)
    assert loops["i"] == loops["j"] == "all" and loops["k"] == ""
    f = tile(16, 16, 9)
    assert pragmas(emit(f).source)["p"] == ""
    check(f)


@pytest.mark.parametrize(("rows", "columns", "terms", "sum_loop"), [(17, 17, 3, "all"), (17, 17, 9, "1")])
def test_loops_around_arrays_in_memory_are_not_unrolled_far(rows: int, columns: int, terms: int, sum_loop: str) -> None:
    assert rows * columns * 4 > MAX_ARRAY_BYTES
    f = tile(rows, columns, terms)
    loops = pragmas(emit(f).source)
    assert rows * columns > MAX_MEMORY_STATEMENTS >= columns
    assert (columns * terms <= MAX_MEMORY_STATEMENTS) == (sum_loop == "all")
    assert (loops["k"], loops["i"], loops["j"]) == (sum_loop, "1", "all")
    check(f)


@pytest.mark.parametrize(("extent", "expected"), [(128, "all"), (256, "128"), (288, "96"), (131, "128"), (34, "all")])
def test_one_loop_is_written_out_a_bounded_number_of_times(extent: int, expected: str) -> None:
    t, k = v("t", "k")
    a, s = Buffer("A", "float32", (extent * 4,)), Buffer("s", "float32", (extent * 4,), "shared")
    c = Buffer("C", "float32", (4,))
    body = Alloc(s, seq(nest((k, extent, U), Store(s, k * 4 + t, a[k * 4 + t])), Store(c, t, s[t])))
    assert pragmas(emit(func([a, c], kernel([("threadIdx.x", t, 4)], body), "p")).source)["k"] == expected
    assert MAX_UNROLL == 128


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
def test_a_tile_that_is_unrolled_has_no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEGEN_CUDA_CACHE", "off")
    found = compile_source(emit(tile(8, 8, MAX_STATEMENTS // 64)).source, "sm_90").resources[0]
    assert found.stack == 0 and found.spills == 0
