"""What is added to results is read before the first is written: the results stay, and the instructions are so."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest

from codegen_cuda.driver.compile import compile_source
from codegen_cuda.emission.emit import emit
from codegen_cuda.passes.reads_first import MOST_WORDS, with_reads_first
from te_lite.expr.expr import cast, compare, if_then_else, maximum
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, LoweredFunc, Stmt, Store, seq, stmts_of, stored_in
from te_lite.meaning import interp
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER, check, func, kernel, v
from tests.codegen_cuda.sass import INSTRUCTION, texts

READ, WRITE, WAIT = 0x981, 0x986, 0x82E
"""The opcodes of LDG, STG and ACQBULK, which waits for the kernel before."""
THREADS = 4


def residual(rows: int, lanes: int, guarded: bool = False, reads_result: bool = False) -> LoweredFunc:
    """Sums of a thread, `rows` x `lanes`, to which a bias of each column and halves of each element are added.

    With `guarded` the last three rows are beyond the edge.
    """
    b, t, i, j = v("b", "t", "i", "j")
    size = 2 * THREADS * rows * lanes
    a, out, bias = Buffer("A", "float32", (size,)), Buffer("O", "float32", (size,)), Buffer("B", "float32", (lanes,))
    other, sums = Buffer("R", "float16", (size,)), Buffer("S", "float32", (rows * lanes,), "local")
    place, row = ((b * THREADS + t) * rows + i) * lanes + j, t * rows + i
    added = out[place] if reads_result else cast("float32", other[place])
    write: Stmt = Store(out, place, maximum(sums[i * lanes + j] + bias[j] + added, 0.0))
    write = For(j, lanes, ForKind.VECTORIZED, write)
    if guarded:
        write = For(j, lanes, ForKind.UNROLLED, If(compare("<", row, THREADS * rows - 3), write.body))
    fill = For(i, rows, ForKind.SERIAL, For(j, lanes, ForKind.SERIAL, Store(sums, i * lanes + j, a[place] * 2.0)))
    body = Alloc(sums, seq(fill, For(i, rows, ForKind.SERIAL, write)))
    args = [a, bias, out] if reads_result else [a, bias, other, out]
    return func(args, kernel([("blockIdx.x", b, 2), ("threadIdx.x", t, THREADS)], body))


def reads_first(f: LoweredFunc) -> LoweredFunc:
    return replace(f, body=with_reads_first(f.body, frozenset(stored_in(f.body))))


def registers(f: LoweredFunc) -> list[int]:
    """The elements of the arrays for what is read first."""
    return [s.buffer.size for s in stmts_of(f.body) if isinstance(s, Alloc) and s.buffer.name.endswith("_first")]


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
@pytest.mark.parametrize(("rows", "lanes", "guarded"), [(4, 2, False), (5, 4, True), (3, 1, True), (40, 4, False)])
def test_the_results_are_the_same(rows: int, lanes: int, guarded: bool) -> None:
    plain = residual(rows, lanes, guarded)
    changed = reads_first(plain)
    assert len(registers(changed)) == 2 and max(registers(changed)) * 4 <= 8 * MOST_WORDS
    check(changed)
    rng = np.random.default_rng(1)
    size = 2 * THREADS * rows * lanes
    a, bias = rng.standard_normal(size, "float32"), rng.standard_normal(lanes, "float32")
    other, got, want = rng.standard_normal(size).astype("float16"), np.full(size, np.nan, "float32"), np.zeros(size)
    interp.run(changed, [a, bias, other, got])
    want = np.maximum((2 * a).reshape(-1, lanes) + bias + other.astype("float32").reshape(-1, lanes), 0).reshape(-1)
    whole = np.arange(size) // lanes % (THREADS * rows) < (THREADS * rows - 3 if guarded else THREADS * rows)
    assert np.array_equal(got[whole], want[whole]) and np.isnan(got[~whole]).all()


def test_what_is_written_and_what_may_not_be_read_stays_where_it_is() -> None:
    """The result itself; a read under a condition, which may be beyond the end; a single result."""
    found = reads_first(residual(4, 2, reads_result=True))
    assert len(registers(found)) == 1
    i, t = v("i", "t")
    a, out, sums = Buffer("A", "float32", (8,)), Buffer("O", "float32", (16,)), Buffer("S", "float32", (4,), "local")
    value = sums[i] + if_then_else(compare("<", t, 2), a[t * 4 + i], 0.0)
    body = Alloc(sums, For(i, 4, ForKind.UNROLLED, Store(out, t * 4 + i, value)))
    f = func([a, out], kernel([("threadIdx.x", t, 4)], body))
    assert not registers(reads_first(f)) and not registers(reads_first(residual(1, 1)))


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
@pytest.mark.parametrize(("rows", "lanes", "guarded"), [(8, 1, False), (8, 2, False), (6, 1, True)])
def test_instructions_of_a_kernel_that_waits(rows: int, lanes: int, guarded: bool) -> None:
    """All reads stand behind the wait and before the writes; one that does not wait is written as ever."""
    f = residual(rows, lanes, guarded)
    (code,) = texts(compile_source(emit(f, waits=True).source, "sm_90", use_cache=False).cubin)
    found = [word & 0xFFF for (word,) in struct.iter_unpack(f"<H{INSTRUCTION - 2}x", code)]
    order = [x for x in found if x in (READ, WRITE, WAIT)]
    assert order[0] == WAIT and order.count(WAIT) == 1 and order.count(WRITE) == rows
    assert READ not in order[order.index(WRITE) :]
    assert "_first" not in emit(f).source
