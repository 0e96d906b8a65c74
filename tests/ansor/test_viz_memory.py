"""Banks, fragments and swizzles: pictures say what the counting, the tables and the addresses say."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor.cli.main import main
from ansor.viz.accesses import accesses
from ansor.viz.banks import bank_conflicts
from ansor.viz.banks_picture import draw_banks, shared_accesses, worst_request
from ansor_ext.tensor_core.fragment_picture import draw_fragments
from ansor_ext.tensor_core.mma import MMA, mma
from ansor_ext.tensor_core.swizzle_picture import chunks_of, draw_swizzle, times_asked
from te_lite.errors import LowerError
from tests.ansor_ext.tensor_core.mma_schedules import PROGRAMS
from tests.ansor_ext.tensor_core.test_swizzle import columns_read
from tests.nonempty import nonempty

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str, kind: str) -> list[str]:
    found = [x for x in ElementTree.fromstring(svg).iter(f"{SVG}text") if kind in (x.get("class") or "").split()]
    return [x.text or "" for x in found]


def transposition(pad: int, columns: int = 32, name: str = "A") -> te.LoweredFunc:
    """B[i, j] = A[j, i] through a tile in shared memory, rows of `columns` elements, a block of 32 threads."""
    a = te.placeholder((columns, 32), name=name)
    b = te.compute((32, columns), lambda i, j: a[j, i], name="B")
    s = te.create_schedule(b.op)
    tile = s.cache_read(a, "shared", [b])
    (i, j) = s[b].op.axis
    s[b].bind(i, te.thread_axis("threadIdx.x"))
    s[b].bind(s[b].split(j, columns)[0], te.thread_axis("blockIdx.x"))
    s[tile].compute_at(s[b], i)
    s[tile].bind(s[tile].op.axis[0], te.thread_axis("threadIdx.x"))
    if pad:
        s[tile].storage_align(s[tile].op.axis[0], 32, pad)
    return te.lower(s, [a, b])


@given(st.lists(st.integers(0, 500), min_size=1, max_size=32), st.sampled_from([2, 4, 8, 16]))
def test_the_worst_group_needs_as_many_turns_as_are_counted(starts: list[int], nbytes: int) -> None:
    asked = {t: 4 * (s // max(1, nbytes // 4)) * max(1, nbytes // 4) for t, s in enumerate(starts)}
    request = worst_request(asked, nbytes)
    assert request.turns == bank_conflicts(asked.values(), nbytes)
    who = {t for threads in request.words.values() for t in threads}
    assert {asked[t] // 4 for t in who} <= set(request.words)


@pytest.mark.parametrize(("pad", "times"), [(0, 32), (1, 1), (2, 2)])
def test_rows_of_a_tile_by_hand(pad: int, times: int) -> None:
    """Threads write rows of 32 floats: all in one bank, unless rows are longer by one."""
    func = transposition(pad)
    (worst, *_) = shared_accesses(func)
    assert worst.conflicts == worst_request(worst.asked(), worst.nbytes).turns == times
    heads = texts(draw_banks(func, "t"), "head")
    assert any(("no conflict" if times == 1 else f"asked {times} times") in head for head in heads[1:2])


def test_guards_hold_threads_back() -> None:
    a = te.placeholder((20,), name="A")
    b = te.compute((20,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], 32)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    for access in nonempty(accesses(te.lower(s, [a, b]))):
        assert access.asked() == {t: 4 * t for t in range(20)} and len(access.of_warp()) == 32


@pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if p.swizzled])
def test_programs_of_tensor_cores(name: str) -> None:
    """Fragments that are loaded by `ldmatrix` meet no conflict in a swizzled tile."""
    program = PROGRAMS[name]
    tensors = program.tensors()
    found = shared_accesses(te.lower(program.schedule(tensors), tensors))
    loads = [x for x in found if x.rows]
    assert bool(loads) == bool(program.matrices) and all(x.conflicts == 1 and x.nbytes == 16 for x in loads)
    assert all(worst_request(x.asked(), x.nbytes).turns == x.conflicts for x in found)


@pytest.mark.parametrize("name", sorted(MMA))
def test_fragments_show_every_element_of_every_tile(name: str) -> None:
    op = mma(name)
    shown = texts(draw_fragments(op), "small")
    drawn = [op.a, op.d] if op.warps > 1 else [op.b, op.a, op.d]
    places = [(f, row, column) for f in drawn for row in range(f.rows) for column in range(f.columns)]
    assert shown == ["{}.{}".format(*f.holder(row, column)) for f, row, column in places]
    for cell, (f, row, column) in zip(shown, places, strict=True):
        assert f.place(*map(int, cell.split("."))) == (row, column)


@pytest.mark.parametrize("row_bytes", [16, 32, 64, 128, 256, 384])
def test_swizzles_against_addresses(row_bytes: int) -> None:
    for swizzled in (False, True):
        found = chunks_of(row_bytes, swizzled)
        assert sorted(found) == [(r, c) for r in range(8) for c in range(row_bytes // 16)]
        assert [r for r, _ in found] == list(np.repeat(np.arange(8), row_bytes // 16))
        assert times_asked(row_bytes, swizzled) == columns_read(row_bytes, swizzled)
    cells = [x.text for x in ElementTree.fromstring(draw_swizzle(row_bytes)).iter(f"{SVG}text")]
    assert sum("." in (x or "") and len(x or "") <= 4 for x in cells) == 2 * 8 * (row_bytes // 16)


def test_refusals_and_the_command(tmp_path: Path, monkeypatch: Any, refused: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "banks", "matmul", "--shape", "64,48,32", "--target", "cuda"]) == 0
    assert main(["draw", "fragment", "m16n8k16_f16_f32"]) == main(["draw", "swizzle", "64"]) == 0
    for words, said in (
        (["banks", "matmul", "--shape", "64,48,32"], "no thread reads or writes shared memory in this program"),
        (["fragment", "m1"], "there is no such instruction, known ones are "),
        (["swizzle", "48"], "rows of 16, 32, 64 or a multiple of 128 bytes can be swizzled, got bytes=48"),
        (["swizzle", "0"], "can be swizzled, got bytes=0"),
        (["swizzle", "2048"], "swizzle: rows of at most 1024 bytes are drawn, got 2048"),
    ):
        refused(["draw", *words, "-o", "x.svg"], said)
    assert not Path("x.svg").exists()
    with pytest.raises(LowerError, match="no thread reads"):
        draw_banks(te.lower(te.create_schedule(te.compute((4,), lambda i: i + 1, name="B").op)))
    assert "<script>" not in draw_banks(transposition(0, name="<script>"), "<script>")
