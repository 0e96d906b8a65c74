"""Swizzled tiles: one place for every element, chunks that stay whole, and how often banks are asked at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import xor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor.viz.banks import bank_conflicts
from ansor_ext.tensor_core.instructions import WarpLoad
from ansor_ext.tensor_core.mma import MatrixLoad, mma
from ansor_ext.tensor_core.steps import Swizzled
from ansor_ext.tensor_core.swizzle import Swizzle, line_of
from te_lite.errors import LowerError, ScheduleError
from te_lite.expr.expr import BufferLoad, Var, as_expr, index_xor
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute, walk
from te_lite.loops.stmt import For, LoweredFunc, exprs_of, stmts_of
from te_lite.loops.stmt_text import pretty
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_schedule
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from te_lite.verify.verify_points import value_at
from te_lite.verify.verify_span import Spans
from tests.ansor_ext.tensor_core.mma_schedules import PROGRAMS, Tiled
from tests.te_lite.test_python_text import assert_same_program


@pytest.mark.parametrize(("row", "line"), [(8, 8), (32, 32), (40, 64), (48, 64), (56, 64), (64, 64), (80, 64)])
def test_rows_are_cut_into_lines_that_can_be_swizzled(row: int, line: int) -> None:
    assert line_of(row, 2) == line


@given(st.sampled_from([1, 2, 4, 8, 16, 24, 40]), st.sampled_from([1, 2, 4]), st.integers(1, 33))
def test_a_swizzle_is_its_own_inverse_and_keeps_rows_and_chunks(chunks: int, nbytes: int, rows: int) -> None:
    width = 16 // nbytes
    swizzle = Swizzle.of_rows("tile", chunks * width, nbytes)
    index = np.arange(rows * chunks * width)
    place = swizzle.place(index, xor)
    assert np.array_equal(swizzle.place(place, xor), index) and sorted(place) == list(index)
    assert np.array_equal(place // (chunks * width), index // (chunks * width))
    assert np.array_equal(place % width, index % width)
    assert [swizzle.place(int(i), xor) for i in index[:40]] == place[:40].tolist()


def columns_read(row_bytes: int, swizzled: bool) -> int:
    """How often banks are asked for a chunk of each of 8 rows, as `ldmatrix` does: the worst of all 8 x 16 bytes."""
    swizzle = Swizzle.of_rows("tile", row_bytes, 1)
    worst = 1
    for row in range(0, 64, 8):
        for chunk in range(row_bytes // 16):
            starts = [(row + r) * row_bytes + 16 * chunk for r in range(8)]
            worst = max(worst, bank_conflicts([swizzle.place(x, xor) if swizzled else x for x in starts], 16))
    return worst


@pytest.mark.parametrize(("row_bytes", "plain"), [(32, 2), (64, 4), (128, 8), (256, 8), (384, 8)])
def test_columns_of_chunks_meet_every_bank_once(row_bytes: int, plain: int) -> None:
    assert columns_read(row_bytes, swizzled=False) == plain and columns_read(row_bytes, swizzled=True) == 1


def test_conflicts_are_counted() -> None:
    assert bank_conflicts(range(0, 128, 4), 4) == 1 and bank_conflicts([0] * 32, 4) == 1
    assert bank_conflicts(range(0, 256, 8), 4) == 2 and bank_conflicts(range(0, 4096, 128), 4) == 32
    assert bank_conflicts(range(0, 64, 2), 2) == 1 and bank_conflicts(range(0, 512, 16), 16) == 1
    assert bank_conflicts([16 * x + 128 * (x % 4) for x in range(8)], 16) == 1
    assert bank_conflicts(range(0, 1024, 32), 8) == 4
    # the fragments of TF32, k rows of 64 floats: lane 4g + q reads row q, column g (PTX manual)
    assert bankwise(64) == 4 and bankwise(72) == 1 and bankwise(68) == 2


def bankwise(row: int) -> int:
    return bank_conflicts([4 * (row * (lane % 4) + lane // 4) for lane in range(32)], 4)


def test_fragments_by_ldmatrix_from_a_swizzled_tile() -> None:
    """The addresses of all lanes, tile after tile, of rows of 64 bytes: 4 times plain, once swizzled."""
    op, form, row = mma("m16n8k16_f16_f32"), MatrixLoad(4), 32
    swizzle = Swizzle.of_rows("tile", row, 2)
    for k in (0, 16):
        starts = [form.place(op.a, 2, x) for x in range(32)]
        places = [r * row + c + k for r, c in starts]
        assert bank_conflicts([2 * x for x in places], 16) == 4
        assert bank_conflicts([2 * swizzle.place(x, xor) for x in places], 16) == 1


@given(*[st.integers(0, 60)] * 4)
def test_ranges_of_an_exclusive_or(a: int, b: int, c: int, d: int) -> None:
    x, y = Var("x"), Var("y")
    boxes = {x: (min(a, b), max(a, b)), y: (min(c, d), max(c, d))}
    found = [i ^ j for i in range(boxes[x][0], boxes[x][1] + 1) for j in range(boxes[y][0], boxes[y][1] + 1)]
    e = index_xor(x, y)
    simplifier = Simplifier()
    for v, (low, high) in boxes.items():
        simplifier.bind(v, low, high)
    for low, high in (Spans(boxes).of(e), simplifier.bounds(e)):
        assert low is not None and high is not None and low <= min(found) and max(found) <= high < 64
    grid = {x: np.arange(64)[:, None], y: np.arange(64)}
    assert np.array_equal(value_at(e, grid), np.arange(64)[:, None] ^ np.arange(64))
    assert pretty(simplifier.simplify((e * 8 + 5) // 8 + (e * 8 + 5) % 8 - e)) == "5"


def test_constants_of_an_exclusive_or_fold() -> None:
    x = Var("x")
    assert index_xor(x, 0) is x and pretty(index_xor(as_expr(6), as_expr(3))) == "5"
    assert pretty(substitute(index_xor(x, x % 4), {x: as_expr(6)})) == "4"


# ------------------------------------------------------------------------------------------------------ programs


def shared_reads(func: LoweredFunc) -> Iterator[tuple[str, int]]:
    """The buffers in shared memory that fragments are read from, and how often their banks are asked at once."""
    (lane,) = [s.var for s in stmts_of(func.body) if isinstance(s, For) and s.tag == "threadIdx.x"]
    for s in stmts_of(func.body):
        found = [x for e in exprs_of(s) for x in walk(e) if isinstance(x, BufferLoad) and x.buffer.storage == "shared"]
        for x in found:
            grid: dict[Var, object] = dict.fromkeys(free_vars(x.index), 0)
            places = value_at(x.index, grid | {lane: np.arange(32)}) * np.dtype(x.buffer.dtype).itemsize
            given = 8 * s.form.count if isinstance(s, WarpLoad) else 32
            nbytes = 16 if isinstance(s, WarpLoad) else 4
            yield x.buffer.name, bank_conflicts(np.broadcast_to(places, 32).tolist()[:given], nbytes)


SWIZZLED = {name: program for name, program in PROGRAMS.items() if program.swizzled}


def reads_of(program: Tiled) -> dict[str, int]:
    tensors = program.tensors()
    return dict(shared_reads(te.lower(program.schedule(tensors), tensors)))


def test_fragments_are_read_without_conflicts() -> None:
    """Rows of 64 bytes of A: 32-bit reads of two rows in a line; rows of 128 bytes of B: two halves a word."""
    program = SWIZZLED["swizzled"]
    assert reads_of(replace(program, swizzled=False)) == {"A.shared": 4, "B.shared": 4}
    assert reads_of(program)["A.shared"] == 1
    tf32 = SWIZZLED["tf32, swizzled"]
    assert reads_of(replace(tf32, swizzled=False)) == {"A.shared": 8, "B.shared": 8}
    assert reads_of(tf32) == {"A.shared": 1, "B.shared": 1}


@pytest.mark.parametrize("name", [name for name, program in SWIZZLED.items() if program.matrices])
@pytest.mark.one_in(3)
def test_matrices_are_loaded_without_conflicts(name: str) -> None:
    """Rows of 64 bytes meet a bank 4 times, of 128 bytes and more 8 times; swizzled once."""
    program = SWIZZLED[name]
    assert set(reads_of(replace(program, swizzled=False)).values()) <= {4, 8}
    assert reads_of(program) == {"A.shared": 1, "B.shared": 1}


def test_texts_and_records() -> None:
    tensors = SWIZZLED["swizzled"].tensors()
    state = SWIZZLED["swizzled"].schedule(tensors).state
    steps = [from_json(to_json(step)) for step in state.steps]
    assert sum(isinstance(x, Swizzled) for x in steps) == 2 and replay(state.dag, steps) == state
    assert "A.shared swizzled" in str(state) and ".swizzle()" in python_schedule(state)
    assert_same_program(state)


def copied(columns: int, scope: str = "shared", align: bool = False) -> te.LoweredFunc:
    a = te.placeholder((8, columns), name="A")
    b = te.compute((8, columns), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    tile = s.cache_read(a, scope, [b])
    s[b].bind(s[b].op.axis[0], te.thread_axis("threadIdx.x"))
    s[tile].compute_at(s[b], s[b].op.axis[0])
    s[tile].bind(s[tile].op.axis[0], te.thread_axis("threadIdx.x")) if scope == "shared" else None
    if align:
        s[tile].storage_align(tile.op.axis[0], 8, 4)
    s[tile].swizzle()
    return te.lower(s, [a, b])


def test_a_computed_argument_is_stored_as_its_caller_does() -> None:
    """Swizzled is what a stage has in storage of its own."""
    a = te.placeholder((32, 64), name="A")
    d = te.compute((32, 64), lambda i, j: a[i, j] + 1.0, name="D")
    c = te.compute((32, 64), lambda i, j: d[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    block, thread = s[c].split(c.op.axis[0], factor=32)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    s[d].compute_at(s[c], block)
    s[d].set_scope("shared")
    s[d].swizzle()
    given = np.arange(32 * 64, dtype="float32").reshape(32, 64)
    stored, doubled = np.zeros_like(given), np.zeros_like(given)
    run(te.lower(s, [a, d, c]), [given, stored, doubled])
    assert (stored == given + 1).all() and (doubled == 2 * stored).all()


def test_refusals() -> None:
    copied(16)
    with pytest.raises(LowerError, match=r"A.shared: rows of 16, 32, 64 .* bytes can be swizzled, got bytes=48"):
        copied(12)
    with pytest.raises(LowerError, match=r"swizzle A.local: needs shared memory, not aligned, got scope='local'"):
        copied(16, "local")
    with pytest.raises(LowerError, match=r"swizzle A.shared: needs shared memory, not aligned"):
        copied(16, align=True)
    tensors = PROGRAMS["half"].tensors()
    s = PROGRAMS["half"].schedule(tensors)
    with pytest.raises(ScheduleError, match="swizzle C: arguments of the program are stored as their caller does"):
        s[tensors[2]].swizzle()
    tile = next(x for x in s.stages if x.op.name == "A.shared")
    tile.swizzle()
    with pytest.raises(ScheduleError, match="it is swizzled already"):
        tile.swizzle()
