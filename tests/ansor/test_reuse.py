"""How many elements reads touch, beside sets of indices that NumPy counts."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import given

from ansor.sketch.extra.joined_rows import with_axes_joined
from ansor.sketch.extra.reuse import elements, lines
from te_lite import ComputeDAG
from te_lite.reads import Affine, Read, Unknown, reads_by_producer
from te_lite.topi import benchmarks

EXTENTS = st.lists(st.integers(1, 4), min_size=3, max_size=3)
INDICES = st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=3)


@given(EXTENTS, INDICES)
def test_affine_indices(extents: list[int], indices: list[list[int]]) -> None:
    forms = tuple([Affine(tuple([(d, c) for d, c in enumerate(index) if c]), 5) for index in indices])
    points = itertools.product(*map(range, extents))
    touched = {tuple([sum(c * x for c, x in zip(index, point, strict=True)) for index in indices]) for point in points}
    assert elements(Read(1, forms, backward=False), extents) == len(touched)


def test_pixels_of_joined_axes_share_windows() -> None:
    """14 pixels that run on from one line of 7 to the next touch 4 lines of 9, with windows of 3x3."""
    state = ComputeDAG(benchmarks.conv2d(1, 7, 7, 8, 16, 3, 1, 1)).init_state
    joined = with_axes_joined(state, 3, 1, 2)
    assert joined is not None
    (read,) = [read for read in reads_by_producer(joined.state.ops, frozenset())[1] if read.reader == 3]
    assert elements(read, [1, 14, 1, 3, 3, 8]) == 4 * 9 * 8


def test_lines_of_rows_and_of_columns() -> None:
    """6 rows of 512 floats lie in 32 lines each; of 512 rows, 6 floats each, every row is a line."""
    row, column, point = Affine(((0, 1),), 0), Affine(((1, 1),), 0), Affine(((2, 1),), 0)
    assert lines(Read(1, (row, column), backward=False), (600, 512), [6, 512], 4) == 6 * 32
    assert lines(Read(1, (column, row), backward=False), (512, 600), [6, 512], 4) == 512
    assert lines(Read(1, (row, column, point), backward=False), (600, 512, 3), [6, 512, 3], 4) == 6 * 96
    assert lines(Read(1, (row, column, point), backward=False), (600, 512, 9), [6, 512, 3], 4) == 6 * 512


def test_unknown_indices_touch_another_element_each_time() -> None:
    assert elements(Read(1, (Affine(((0, 1),), 0), Unknown()), backward=False), [3, 4]) == 12
