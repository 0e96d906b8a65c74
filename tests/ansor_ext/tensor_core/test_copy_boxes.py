"""Boxes of arrays that copies are found to be: against an enumeration of what the copies and the engine read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ansor_ext.tensor_core.copy_boxes import Box, Copy, box_of, can_be_told
from te_lite.expr.expr import Expr, Var, as_expr, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute
from te_lite.loops.stmt import Buffer
from tests.amount import examples
from tests.nonempty import nonempty

OUTER = 3
"""Values of the variable of blocks."""


def value(e: Expr, env: dict[Var, int]) -> int:
    found = Simplifier().simplify(substitute(e, {v: as_expr(n) for v, n in env.items()}))
    return int(getattr(found, "value"))  # noqa: B009


@st.composite
def copies(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], list[int], list[int], list[int]]:
    """An array's extents, those of a box, its steps, where it begins, and how much further each block begins."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(2, 9), min_size=rank, max_size=rank)))
    extents = [draw(st.integers(1, n + 1)) for n in shape]
    steps = [draw(st.integers(1, 2)) if d < rank - 1 else 1 for d in range(rank)]
    starts = [draw(st.integers(0, n - 1)) for n in shape]
    moves = [draw(st.integers(0, n)) for n in shape]
    return shape, extents, steps, starts, moves


def fetched(box: Box, array: np.ndarray, env: dict[Var, int]) -> np.ndarray:
    """What the engine brings of a box: zeros from outside of the array."""
    seen, start = array.reshape(box.view), [value(e, env) for e in box.start]
    out = np.zeros(box.extents, array.dtype)
    for at in itertools.product(*[range(n) for n in box.extents]):
        place = [s + i * step for s, i, step in zip(start, at, box.steps, strict=True)]
        if all(0 <= p < n for p, n in zip(place, box.view, strict=True)):
            out[at] = seen[tuple(place)]
    return out


def copied(
    array: np.ndarray, index: Expr, inside: Sequence[Expr], loops: dict[Var, int], env: dict[Var, int]
) -> np.ndarray:
    """What the loops copy, zero where a condition does not hold."""
    out = np.zeros([n for n in loops.values() if n > 1], array.dtype)
    for at in itertools.product(*[range(n) for n in loops.values()]):
        here = {**env, **dict(zip(loops, at, strict=True))}
        if all(value(c, here) for c in inside):
            out[tuple([i for i, n in zip(at, loops.values(), strict=True) if n > 1])] = array.flat[value(index, here)]
    return out


@given(copies(), st.booleans(), st.integers(-1, 1), st.integers(0, 2))
@examples(60)
def test_a_box_is_what_the_loops_copy(
    copy: tuple[tuple[int, ...], list[int], list[int], list[int], list[int]], simplified: bool, off: int, which: int
) -> None:
    """Whenever one is found; and it is found where the conditions are those of the edges, none of them `off` by one."""
    shape, extents, steps, starts, moves = copy
    block, loops = Var("block"), {Var(f"i{d}"): n for d, n in enumerate(extents)}
    ranges = Simplifier({block: (0, OUTER - 1), **{v: (0, n - 1) for v, n in loops.items()}})
    at = [s + block * m + v * k for s, m, v, k in zip(starts, moves, loops, steps, strict=True)]
    edges = list(shape)
    edges[which % len(shape)] += off
    inside = [compare("<", x, n) for x, n in zip(at, edges, strict=True)]
    index: Expr = as_expr(0)
    for d, x in enumerate(at):
        index = index + x * prod(shape[d + 1 :])
    if simplified:
        index, inside = ranges.simplify(index), [ranges.simplify(c) for c in inside]
    buffer = Buffer("A", "float16", shape)
    box = box_of(Copy.of(buffer, index, inside, loops, ranges))
    if box is None:
        wide = any(max(m, k) >= n for m, k, n in zip(moves, steps, shape, strict=True))
        assert off or wide or sum(m > 0 for m in moves) > 1, "each term belongs to one axis only"
        return
    array = np.arange(1, prod(shape) + 1)
    for n in nonempty(range(OUTER)):
        env = {block: n}
        first = [max(value(x, {**env, **dict.fromkeys(loops, 0)}), 0) for x in at]
        beyond = any(r + (e - 1) * k >= s for r, e, k, s in zip(first, extents, steps, shape, strict=True))
        got = fetched(box, array, env)  # a copy with an edge that is too far would read beyond the array
        want = got if off > 0 and beyond else copied(array, index, inside, loops, env)
        assert (got.reshape(want.shape) == want).all()


def test_boxes_of_networks_are_found() -> None:
    """Of matrices, batches, and images with padding: what stands beyond the edge is asked for on both sides."""
    n, y, x, c, t = [Var(name) for name in ("n", "y", "x", "c", "t")]
    loops = {n: 1, y: 4, x: 8, c: 32}
    ranges = Simplifier({t: (0, 8), **{v: (0, extent - 1) for v, extent in loops.items()}})
    row, column = y + t // 3 - 1, x + t % 3 - 1
    index = row * (8 * 32) + column * 32 + c
    inside = [compare(">=", row, 0), compare("<", row, 8), compare(">=", column, 0), compare("<", column, 8)]
    box = box_of(Copy.of(Buffer("X", "float16", (1, 8, 8, 32)), index, inside, loops, ranges))
    assert box is not None and box.view == (8, 8, 32) and box.extents == (4, 8, 32)
    for d, want in nonempty(enumerate((t // 3 - 1, t % 3 - 1, as_expr(0)))):
        assert [value(box.start[d], {t: k}) for k in range(9)] == [value(want, {t: k}) for k in range(9)]
    assert box_of(Copy.of(Buffer("X", "float16", (1, 8, 8, 32)), index, inside[1:], loops, ranges)) is None


def test_axes_in_parts_have_an_edge_for_each() -> None:
    """Rows of texts of 10 tokens, 4 at a time, and heads of 6 columns in boxes of 8: zeros behind each of them."""
    i, j, text, head, turn = [Var(name) for name in ("i", "j", "text", "head", "turn")]
    loops, blocks = {i: 4, j: 8}, {text: 3, head: 2, turn: 3}
    ranges = Simplifier({v: (0, n - 1) for v, n in (loops | blocks).items()})
    index = (text * 10 + turn * 4 + i) * 12 + head * 6 + j
    inside = [compare("<", turn * 4 + i, 10), compare("<", j, 6)]
    buffer = Buffer("X", "float16", (30, 12))
    box = box_of(Copy.of(buffer, index, inside, loops, ranges))
    assert box is not None and box.view == (3, 10, 2, 6)
    array = np.arange(1, 361)
    for at in nonempty(itertools.product(range(3), range(2), range(3))):
        env = dict(zip((text, head, turn), at, strict=True))
        assert (fetched(box, array, env).squeeze() == copied(array, index, inside, loops, env)).all()
    assert box_of(Copy.of(buffer, index, [compare("<", turn * 4 + i, 9), inside[1]], loops, ranges)) is None


def test_what_is_no_box_is_none() -> None:
    i, j = Var("i"), Var("j")
    ranges, loops = Simplifier({i: (0, 3), j: (0, 7)}), {i: 4, j: 8}
    a = Buffer("A", "float16", (16, 16))
    assert box_of(Copy.of(a, i * 16 + j, [], loops, ranges)) is not None
    assert box_of(Copy.of(a, i * 17 + j, [], loops, ranges)) is None  # a diagonal
    assert box_of(Copy.of(a, j * 16 + i, [], loops, ranges)) is None  # turned
    assert box_of(Copy.of(a, i * 16 + j * 2, [], loops, ranges)) is None  # every second element of a line
    assert box_of(Copy.of(a, i * 16 + j, [compare("<", j, 7)], loops, ranges)) is None  # zeros inside of the array


def test_every_second_row_is_a_box_that_the_engine_is_not_told_of() -> None:
    i, j = Var("i"), Var("j")
    ranges, loops, a = Simplifier({i: (0, 3), j: (0, 7)}), {i: 4, j: 8}, Buffer("A", "float16", (16, 16))
    for step, told in ((1, True), (2, False)):
        box = box_of(Copy.of(a, i * (16 * step) + j, [], loops, ranges))
        assert box is not None and box.steps == (step, 1) and can_be_told(box) == told
