"""The estimate of processors, one effect at a time: lines, warm caches, parts of sums, edges of padding, short sums."""

from __future__ import annotations

from dataclasses import replace

import te_lite as te
from ansor.analytical import CPU, seconds
from ansor.analytical.machine import Cache, KiB
from ansor.space.programs import Programs
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.state import State
from tests.workloads import matmul

CORE = CPU("core", 1, 2.5e9, 32, 64, registers=16, l1=Cache(32 * KiB, 8), l2=Cache(512 * KiB, 8), masks=False)


def estimate(state: State, machine: CPU = CORE) -> float:
    return float(seconds(Programs(infer_bounds(state)), machine)[0])


def tiled(n: int, rows: int, lanes: int, terms: int = 0) -> State:
    """A product of n rows, columns and terms in tiles of sums; `terms` at a time for all tiles of some rows, or all."""
    c = matmul(n, n, n)[-1]
    s = te.create_schedule([c])
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    i0, i1 = s[c].split(i, factor=rows)
    j0, j1 = s[c].split(j, factor=lanes)
    if terms:
        k0, k1 = s[c].split(k, factor=terms)
        s[c].reorder(i0, k0, j0, k1, i1, j1)
    else:
        s[c].reorder(j0, i0, k, i1, j1)
    s[c].unroll(i1)
    s[c].vectorize(j1)
    return s.state


def in_panels(n: int, rows: int, lanes: int) -> State:
    """The same product in tiles of sums, with the columns of a tile side by side in memory."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n // lanes, n, lanes), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n // lanes, lanes), lambda i, j, m: te.sum(a[i, k] * b[j, k, m], axis=k), name="C")
    s = te.create_schedule([c])
    i, j, m = s[c].op.axis
    i0, i1 = s[c].split(i, factor=rows)
    s[c].reorder(j, i0, s[c].op.reduce_axis[0], i1, m)
    s[c].unroll(i1)
    s[c].vectorize(m)
    return s.state


def test_a_line_is_moved_once_for_the_terms_in_it() -> None:
    """Rows and columns of a tile are more than the first cache holds; each step meets the next 4 bytes of a row."""
    far = replace(CORE, l2_per_clock=1e9)
    assert estimate(in_panels(2000, 4, 16)) < 1.3 * estimate(in_panels(2000, 4, 16), far)


def test_lines_of_short_rows_are_not_foreseen() -> None:
    """Each step meets a line of another row: on two cores such products took 1.4 to 2.3 times as long."""
    assert 1.4 < estimate(tiled(2000, 4, 16)) / estimate(in_panels(2000, 4, 16)) < 2.5


def test_what_the_last_cache_holds_is_there_again() -> None:
    def per_element(n: int) -> float:
        a = te.placeholder((n, n), name="A")
        b = te.compute((n, n), lambda i, j: a[i, j] + 1.0, name="B")
        return estimate(te.ComputeDAG([a, b]).init_state, replace(CORE, dram=1e9)) / n**2

    assert per_element(4096) > 4 * per_element(1024)


def test_columns_are_read_again_for_each_part_of_the_sums() -> None:
    """Of 32 x 16 sums 4 x 16 fit the registers; the columns, whose lines meet in few sets, come anew for each part."""
    slow = replace(CORE, l3_per_clock=0.5)
    parts, whole = [estimate(tiled(2048, rows, 16), slow) for rows in (32, 4)]
    assert parts > 0.9 * whole


def padded_rows(lanes_along_row: bool, padded: bool) -> State:
    """Sums of 3 x 64 terms for 30 elements of a row, along which vectors lie, or of which two are in a tile."""
    data = te.placeholder((64, 32), name="data")
    weight = te.placeholder((64, 3, 32), name="weight")
    c, r = te.reduce_axis((0, 64), name="c"), te.reduce_axis((0, 3), name="r")

    def read(x: te.Expr) -> te.Expr:
        inside = te.all(x + r >= 1, x + r < 31)
        return te.if_then_else(inside, data[c, x + r - 1], 0.0) if padded else data[c, x + r]

    if lanes_along_row:
        out = te.compute((32, 30), lambda f, x: te.sum(read(x) * weight[c, r, f], axis=[c, r]), name="out")
    else:
        out = te.compute((30, 32), lambda x, f: te.sum(read(x) * weight[c, r, f], axis=[c, r]), name="out")
    s = te.create_schedule([out])
    one, lanes = s[out].op.axis
    one0, one1 = s[out].split(one, factor=2)
    s[out].reorder(one0, c, r, one1, lanes)
    s[out].unroll(one1)
    s[out].vectorize(lanes)
    return s.state


def test_padding_costs_most_where_it_is_asked_for_in_lanes() -> None:
    lanes, tile = [estimate(padded_rows(way, True)) / estimate(padded_rows(way, False)) for way in (True, False)]
    assert lanes > 1.8 * tile > 1.8


def test_short_sums_end_often() -> None:
    near = replace(CORE, l2_per_clock=1e9, l3_per_clock=1e9)
    assert estimate(tiled(512, 4, 16, terms=32), near) > 1.1 * estimate(tiled(512, 4, 16), near)
