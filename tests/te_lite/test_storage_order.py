"""The order in which a stage stores its axes: results, strides, texts, records, and what is refused."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from te_lite.errors import ScheduleError
from te_lite.expr.storage import stored_strides
from te_lite.loops.stmt import Alloc, stmts_of
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_schedule
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from te_lite.schedule.storage_steps import StorageOrder


def scheduled(order: tuple[int, ...], align: int | None = None) -> tuple[te.Schedule, te.Tensor, list[te.Tensor]]:
    """A sum of products over the last axis of A[4, 6, 10], of which a tile is copied."""
    a, b = te.placeholder((4, 6, 10), name="A"), te.placeholder((10,), name="B")
    k = te.reduce_axis((0, 10), "k")
    c = te.compute((4, 6), lambda i, j: te.sum(a[i, j, k] * b[k], axis=k), name="C")
    s = te.create_schedule([c.op])
    tile = s.cache_read(a, "local", [c])
    s[c].split(c.op.axis[1], 4)
    s[tile].compute_at(s[c], c.op.axis[0])
    s[tile].storage_order(*order)
    if align is not None:
        s[tile].storage_align(tile.op.axis[align], 8, 3)
    return s, tile, [a, b, c]


@pytest.mark.parametrize("order", permutations(range(3)))
@pytest.mark.parametrize("align", [None, 0, 1, 2])
def test_programs_compute_the_same(order: tuple[int, ...], align: int | None) -> None:
    s, tile, tensors = scheduled(order, align)
    func = te.lower(s, tensors)
    (buffer,) = [x.buffer for x in stmts_of(func.body) if isinstance(x, Alloc) and x.buffer.name == tile.name]
    assert buffer.strides is not None
    assert align == order[-1] or buffer.strides[order[-1]] == 1
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((4, 6, 10), np.float32), rng.standard_normal(10, np.float32)
    got = np.full((4, 6), 7, np.float32)
    run(func, [a, b, got])
    np.testing.assert_allclose(got, np.einsum("ijk,k->ij", a.astype(np.float64), b), rtol=1e-5, atol=1e-5)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.data())
def test_no_two_elements_share_a_place(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    align = data.draw(st.none() | st.tuples(st.integers(0, len(shape) - 1), st.integers(1, 9), st.integers(0, 9)))
    strides = stored_strides(shape, align, order)
    places = [int(np.dot(point, strides)) for point in np.ndindex(*shape)]
    assert len(set(places)) == len(places)
    assert align is None or align[1] == 0 or strides[align[0]] % align[1] == align[2] % align[1]
    if align is None:
        moved = np.empty([shape[d] for d in order], np.int8)
        assert strides == [moved.strides[order.index(d)] for d in range(len(shape))]


def test_texts_and_records() -> None:
    s, _, _ = scheduled((2, 0, 1))
    assert "storage_order: 2 0 1" in str(s.state) and "storage_order(2, 0, 1)" in python_schedule(s.state)
    steps = [from_json(to_json(step)) for step in s.state.steps]
    assert StorageOrder(1, (2, 0, 1)) in steps and replay(s.state.dag, steps) == s.state


@pytest.mark.parametrize("order", [(), (0, 1), (0, 1, 1), (0, 1, 3), (-1, 0, 1)])
def test_every_axis_must_be_there_once(order: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match=r"storage_order A\.local: every axis from 0 to 2 must be there once"):
        scheduled(order)


def test_arguments_stay_as_they_are() -> None:
    s, _, (a, _, c) = scheduled((0, 1, 2))
    for tensor in (a, c):
        with pytest.raises(ScheduleError, match=rf"storage_order {tensor.name}: arguments .* as their caller does"):
            s[tensor].storage_order(*range(len(tensor.shape)))
