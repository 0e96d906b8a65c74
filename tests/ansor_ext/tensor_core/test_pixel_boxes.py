"""Boxes of windows that copies are found to be: against an enumeration of what the copies and the engine read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansor_ext.tensor_core.copy_boxes import Box, Copy
from ansor_ext.tensor_core.pixel_boxes import PixelBoxes, told, views
from codegen_cuda.program.errors import EmitError
from te_lite.expr.expr import Expr, Var, as_expr, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute
from te_lite.loops.stmt import Buffer
from tests.amount import examples
from tests.nonempty import nonempty


def value(e: Expr, env: dict[Var, int]) -> int:
    found = Simplifier().simplify(substitute(e, {v: as_expr(n) for v, n in env.items()}))
    return int(getattr(found, "value"))  # noqa: B009


@dataclass(frozen=True)
class Convolution:
    """Images NHWC under filters of `kernel` elements, `steps` apart, with zeros around: blocks of `rows` windows each,
    and of `line` channels."""

    images: int
    size: tuple[int, int]
    channels: int
    kernel: tuple[int, int]
    padding: tuple[int, int]
    steps: tuple[int, int]
    rows: int
    line: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.images, *self.size, self.channels

    @property
    def counts(self) -> tuple[int, int]:
        each = zip(self.size, self.kernel, self.padding, self.steps, strict=True)
        lines, columns = [(n + 2 * p - k) // s + 1 for n, k, p, s in each]
        return lines, columns

    @property
    def total(self) -> int:
        return self.images * self.counts[0] * self.counts[1]

    @property
    def blocks(self) -> int:
        return -(-self.total // self.rows)

    @property
    def turns(self) -> int:
        return self.kernel[0] * self.kernel[1] * -(-self.channels // self.line)

    @property
    def starts(self) -> bool:
        """All windows begin before the end of their image: others are not looked for."""
        each = zip(self.counts, self.steps, self.size, strict=True)
        return all(n > 0 and (n - 1) * s < size for n, s, size in each)


class Made:
    """The copy of a convolution, and what its variables are."""

    def __init__(self, c: Convolution, simplified: bool, off: int = 0, which: int = 0) -> None:
        self.block, self.turn, self.row, self.channel = [Var(x) for x in ("block", "turn", "row", "channel")]
        self.loops = {self.row: c.rows, self.channel: c.line}
        bound = {self.block: (0, c.blocks - 1), self.turn: (0, c.turns - 1)}
        ranges = Simplifier({**bound, **{v: (0, n - 1) for v, n in self.loops.items()}})
        lines, columns = c.counts
        number, parts = self.block * c.rows + self.row, -(-c.channels // c.line)
        place = self.turn // (parts * c.kernel[1]), self.turn // parts % c.kernel[1]
        y = number // columns % lines * c.steps[0] + place[0] - c.padding[0]
        x = number % columns * c.steps[1] + place[1] - c.padding[1]
        z = self.turn % parts * c.line + self.channel
        edges = [c.total, *c.size, c.channels]
        edges[which] += off
        inside = [compare("<", number, edges[0]), compare("<", y, edges[1]), compare("<", x, edges[2])]
        inside += [compare("<", z, edges[3]), compare(">=", y, 0), compare(">=", x, 0)]
        index = ((number // (lines * columns) * c.size[0] + y) * c.size[1] + x) * c.channels + z
        if simplified:
            index, inside = ranges.simplify(index), [ranges.simplify(e) for e in inside]
        self.c, self.index, self.inside, self.ranges = c, index, inside, ranges
        self.buffer = Buffer("X", "float16", c.shape)

    def box(self) -> Box | None:
        copy = Copy.of(self.buffer, self.index, self.inside, self.loops, self.ranges)
        return PixelBoxes({self.block: self.c.blocks}).box(copy)

    def copied(self, array: np.ndarray, env: dict[Var, int]) -> np.ndarray:
        out = np.zeros((self.c.rows, self.c.line), array.dtype)
        for row, channel in np.ndindex(*out.shape):
            here = {**env, self.row: row, self.channel: channel}
            if all(value(e, here) for e in self.inside):
                out[row, channel] = array.flat[value(self.index, here)]
        return out

    def fetched(self, box: Box, array: np.ndarray, env: dict[Var, int]) -> np.ndarray:
        """What the engine brings: from the first window on through lines and images, which begin at the corner."""
        made, start, further = told(box, self.ranges)
        assert made.pixels is not None
        (n, y, x), (down, right) = [value(e, env) for e in start], [value(e, env) for e in further]
        assert min(down, right) >= 0
        corner, last = made.pixels.corner, [s - 1 for s in self.c.size]
        margins = made.pixels.margins(self.c.size, box.steps[1:3])
        last = [e - m for e, m in zip(last, margins[2:], strict=True)]
        assert list(margins[:2]) == [-k for k in corner]
        first, out = value(box.start[-1], env), np.zeros((self.c.rows, self.c.line), array.dtype)
        padded = np.pad(array, ((0, 0), (0, 0), (0, 0), (0, self.c.line)))
        for row in range(self.c.rows):
            at = y + down, x + right
            if n < self.c.images and all(0 <= a < s for a, s in zip(at, self.c.size, strict=True)):
                out[row] = padded[(n, *at)][first : first + self.c.line]
            x += box.steps[2]
            if x > last[1]:
                x, y = corner[1], y + box.steps[1]
            if y > last[0]:
                y, n = corner[0], n + 1
        return out


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    def pair(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    size, kernel, padding, steps = pair(3, 9), pair(1, 3), pair(0, 2), pair(1, 3)
    channels, rows = draw(st.sampled_from([4, 8, 12])), draw(st.sampled_from([8, 16, 24]))
    made = Convolution(draw(st.integers(1, 3)), size, channels, kernel, padding, steps, rows, 8)
    assume(made.starts)
    return made


@given(convolutions(), st.booleans(), st.sampled_from([0, 0, 0, -1, 1]), st.integers(0, 3))
@examples(60)
def test_a_box_is_what_the_loops_copy(c: Convolution, simplified: bool, off: int, which: int) -> None:
    """Whenever one is found; and it is found where the conditions are those of the edges, none of them `off` by one."""
    made = Made(c, simplified, off, which)
    box = made.box()
    plain = c.steps == (1, 1) and c.counts == c.size
    if box is None:
        assert off or plain or c.channels < c.line or 1 in (*c.counts, c.blocks, c.turns), c
        return
    array = np.arange(1, 1 + np.prod(c.shape)).reshape(c.shape)
    for n, t in nonempty([(n, t) for n in range(c.blocks) for t in (0, c.turns // 2, c.turns - 1)]):
        env = {made.block: n, made.turn: t}
        got = made.fetched(box, array, env)  # a copy with an edge that is too far would read beyond the array
        assert off > 0 or (got == made.copied(array, env)).all()


NETWORKS = {
    "3 x 3": Convolution(2, (14, 14), 128, (3, 3), (1, 1), (1, 1), 64, 64),
    "3 x 3, one image": Convolution(1, (7, 7), 64, (3, 3), (1, 1), (1, 1), 64, 64),
    "3 x 3, lines of 8": Convolution(3, (8, 8), 72, (3, 3), (1, 1), (1, 1), 128, 64),
    "3 x 3, every second pixel": Convolution(2, (13, 17), 64, (3, 3), (1, 1), (2, 2), 64, 64),
    "1 x 1, every second pixel": Convolution(2, (14, 14), 128, (1, 1), (0, 0), (2, 2), 64, 64),
    "7 x 1": Convolution(2, (17, 9), 64, (7, 1), (3, 0), (1, 1), 128, 64),
    "5 x 5, no zeros": Convolution(2, (12, 12), 64, (5, 5), (0, 0), (1, 1), 64, 64),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_boxes_of_networks_are_found(name: str) -> None:
    c = NETWORKS[name]
    box = Made(c, True).box()
    assert box is not None and box.pixels is not None
    assert (box.pixels.lines, box.pixels.columns) == c.counts and box.steps == (1, *c.steps, 1)
    assert box.extents == (c.rows, 1, 1, c.line)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("off", [-1, 1])
def test_other_edges_are_refused(which: int, off: int) -> None:
    """Of the number of windows, of lines, of columns and of channels."""
    assert Made(NETWORKS["3 x 3, lines of 8"], True, off, which).box() is None


def test_windows_that_begin_too_far_away_are_refused() -> None:
    made = Made(NETWORKS["3 x 3"], True)
    box = made.box()
    assert box is not None
    first, _, x, c = box.start
    with pytest.raises(EmitError, match="within 128 pixels"):
        told(
            Box(box.buffer, box.view, (first, as_expr(-129), x, c), box.extents, box.steps, False, box.pixels),
            made.ranges,
        )


def test_heads_of_texts_are_lines_of_images_in_every_way_that_divides_them() -> None:
    """In the order of the terms; what counts backwards is no number of heads."""
    n = Var("n")
    assert views((24, 50, 64), [(n, -150), (n, 250), (n, 1), (n, 150), (n, 300)]) == [(8, 3, 50, 64), (4, 6, 50, 64)]
    assert views((2, 3, 4, 5), [(n, 7)]) == [(2, 3, 4, 5)] and views((6, 5), [(n, 5)]) == []
