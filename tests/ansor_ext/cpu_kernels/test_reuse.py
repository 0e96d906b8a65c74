"""How many elements and lines reads touch, beside sets of them that are counted one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import hypothesis.strategies as st
from hypothesis import given

from ansor_ext.cpu_kernels import reuse
from ansor_ext.cpu_kernels.joined_rows import with_axes_joined
from ansor_ext.cpu_kernels.reuse import elements, lines
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG
from te_lite.bounds.reads import Affine, Form, Quotient, Read, Scaled, Sum, Unknown, reads_by_producer

Index = tuple[Form, Callable[[Sequence[int]], int]]
Three = tuple[int, int, int]
EXTENTS = st.tuples(*[st.integers(1, 5)] * 3)


def affine(coefficients: list[int], const: int) -> Index:
    terms = tuple([(d, c) for d, c in enumerate(coefficients) if c])
    return Affine(terms, const), lambda x: const + sum(c * v for c, v in zip(coefficients, x, strict=True))


def divided(part: Index, divisor: int, mod: bool) -> Index:
    form, at = part
    return Quotient(form, divisor, mod), lambda x: at(x) % divisor if mod else at(x) // divisor


def added(a: Index, b: Index) -> Index:
    return Sum((a[0], b[0]), 1), lambda x: a[1](x) + b[1](x) + 1


def scaled(part: Index, factor: int) -> Index:
    return Scaled(part[0], factor), lambda x: part[1](x) * factor


AFFINE = st.builds(affine, st.lists(st.integers(-3, 3), min_size=3, max_size=3), st.integers(-2, 2))
INDEX: st.SearchStrategy[Index] = st.recursive(
    AFFINE,
    lambda inner: st.one_of(
        st.builds(divided, inner, st.integers(1, 5), st.booleans()),
        st.builds(added, inner, inner),
        st.builds(scaled, inner, st.integers(-2, 2)),
    ),
    max_leaves=3,
)


def read_of(indices: Sequence[Index]) -> Read:
    return Read(1, tuple([form for form, _ in indices]), backward=False)


def points(extents: Sequence[int], indices: Sequence[Index]) -> set[tuple[int, ...]]:
    return {tuple([at(x) for _, at in indices]) for x in itertools.product(*map(range, extents))}


@given(EXTENTS, st.lists(INDEX, min_size=1, max_size=3))
def test_elements(extents: Three, indices: list[Index]) -> None:
    assert elements(read_of(indices), extents) == len(points(extents, indices))


@given(EXTENTS, st.lists(INDEX, min_size=1, max_size=3))
def test_more_points_than_are_counted_are_at_least_as_many(extents: Three, indices: list[Index]) -> None:
    exact, before = len(points(extents, indices)), reuse.MOST_POINTS
    reuse.MOST_POINTS = 0
    elements.cache_clear()
    try:
        assert exact <= elements(read_of(indices), extents)
    finally:
        reuse.MOST_POINTS = before
        elements.cache_clear()


@given(
    EXTENTS,
    st.lists(st.lists(st.sampled_from([0, 1, 2, 16]), min_size=3, max_size=3), min_size=1, max_size=3),
    st.sampled_from([(1, 64), (4, 16), (8, 8)]),
    st.booleans(),
)
def test_lines(extents: Three, coefficients: list[list[int]], sizes: tuple[int, int], short: bool) -> None:
    """Of arrays whose rows begin with a line; with `short` in several dimensions that hold a line together."""
    size, in_line = sizes
    indices = [affine(c, 0) for c in coefficients]
    most = [max(p) + 1 for p in zip(*points(extents, indices), strict=True)]
    shape = (*most[:-1], -(-most[-1] // in_line) * in_line)
    if short:
        indices.append(affine([0, 0, 0], 0))
        shape = (*shape, 1)
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    flat = {sum(i * s for i, s in zip(p, strides, strict=True)) // in_line for p in points(extents, indices)}
    assert lines(read_of(indices), shape, extents, size) == len(flat)


def test_pixels_of_joined_axes_share_windows() -> None:
    """10 pixels that run on from one line of 7 to the next touch 9 of three lines and 5 of the fourth."""
    state = ComputeDAG(benchmarks.conv2d(1, 7, 7, 8, 16, 3, 1, 1)).init_state
    joined = with_axes_joined(state, 3, 1, 2)
    assert joined is not None
    (read,) = [read for read in reads_by_producer(joined.state.ops, frozenset())[1] if read.reader == 3]
    assert elements(read, (1, 10, 1, 3, 3, 8)) == (3 * 9 + 5) * 8


def test_unknown_indices_touch_another_element_each_time() -> None:
    read = Read(1, (Affine(((0, 1),), 0), Unknown()), backward=False)
    assert elements(read, (3, 4)) == lines(read, (3, 100), (3, 4), 4) == 12
