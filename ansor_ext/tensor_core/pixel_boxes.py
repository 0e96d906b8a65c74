"""Copies whose rows are the pixels of all images as one axis, as windows see them: columns of im2col.

    for r in 0..128: for c in 0..64:
        tile[place(r, c)] = X[p // 196, p // 14 % 14 * s + y, p % 14 * s + x, c0 + c]  if inside; else 0    p = b + r

are 128 pixels from number b on, of images with 14 lines of 14 windows, `s` apart, of which the element (y, x) is read.
The copy engine counts so, too: from a first pixel on through a line of windows, those of an image, and of all images;
it adds the place in the window, and reads zeros beyond the edges of an image, and of the last one.

An index says this in many ways.  What it adds up of rows and blocks is looked at by its values, for every row of every
block: they must be those of pixels that are counted so.  What else there is must be a place in a window, as in other
boxes (`copy_boxes.py`), and conditions those that it lies inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from codegen_cuda.program.errors import EmitError
from te_lite.errors import require
from te_lite.expr.expr import Compare, Const, Expr, Var, as_expr, binary, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.stmt import Buffer
from te_lite.meaning.interp_expr import evaluate

from .copy_boxes import Box, Copy, Pixels, asked, boxes_in, negative, terms_of

MOST_STEP, FURTHEST = 8, 128
"""Pixels from window to window, and from the corners of an image to those of the boxes of all windows."""
Terms = Sequence[tuple[Expr, int]]


@dataclass(frozen=True, eq=False)
class Counted:
    """Pixels of `rows` of each block that are counted: where they stand in their image, line and column, `down` and
    `right` from window to window; and which there are, which none, by block and row."""

    line: np.ndarray
    column: np.ndarray
    inside: np.ndarray
    lines: int
    columns: int
    down: int
    right: int

    @classmethod
    def of(cls, places: np.ndarray, view: tuple[int, ...]) -> Counted | None:
        """Those that stand in so many places from the first pixel of all on, by block and row."""
        images, height, width, _ = view
        area = height * width
        first = np.unique(places[(places >= 0) & (places < area)])
        whole = [np.unique(first // width), np.unique(first % width)]
        down, right = [int(x[1] - x[0]) if len(x) > 1 else 1 for x in whole]
        lines, columns = [len(x) for x in whole]
        if not len(first) or max(down, right) > MOST_STEP:
            return None
        start = places[:, :1]
        number = start // area * (lines * columns) + start % area // width // down * columns + start % width // right
        number = number + np.arange(places.shape[1])
        line, column = number // columns % lines, number % columns
        inside = number < images * lines * columns
        counted = number // (lines * columns) * area + line * down * width + column * right
        return cls(line, column, inside, lines, columns, down, right) if (counted == places)[inside].all() else None

    def box(self, copy: Copy, view: tuple[int, ...], places: Box, first: Expr) -> Box:
        """The box of a copy whose windows begin at pixel `first`, with the places in them."""
        rows, columns = copy.loops.values()
        steps = 1, self.down, self.right, 1
        pixels = Pixels(self.lines, self.columns)
        start = first, *places.start
        return Box(copy.buffer, view, start, (rows, 1, 1, columns), steps, pixels=pixels)

    def sides(self, at: tuple[Var, Var]) -> list[tuple[Var, np.ndarray, int]]:
        """The lines and columns of all pixels, what they are called, and how far apart they are."""
        return [(at[0], self.line[self.inside], self.down), (at[1], self.column[self.inside], self.right)]

    def condition(
        self, values: np.ndarray, rest: Terms, at: tuple[Var, Var]
    ) -> tuple[list[Expr] | None, np.ndarray | bool]:
        """What says that `values` and the `rest` are negative, of lines and columns, None for nothing; and where pixels
        are that is said of."""
        if any(not isinstance(e, Const) for e, _ in rest):
            found = self._fit(values, at)
            terms = [] if found is None else [(e, f * found[1]) for e, f in rest]
            return None if found is None else [compare("<", binary("+", found[0], sum_of(terms)), 0)], True
        holds = values + sum([f for _, f in rest]) < 0
        within = None if (holds == self.inside).all() else self._within(holds, at)
        return within or [], holds if within is None else True

    def _fit(self, values: np.ndarray, at: tuple[Var, Var]) -> tuple[Expr, int] | None:
        """How so many times `values` are a line, or a column, or a number less one of them."""
        held = values[self.inside]
        for (var, of, step), sign, times in product(self.sides(at), (1, -1), {1, self.down, self.right}):
            rest = np.unique(held * times - of * (sign * step))
            if len(rest) == 1 and (of != of[0]).any():
                return binary("+", binary("*", var, sign * step), int(rest[0])), times
        return None

    def _within(self, holds: np.ndarray, at: tuple[Var, Var]) -> list[Expr] | None:
        """The lines, or columns, within which a condition `holds`; None where that is not what it says."""
        held = holds[self.inside]
        for var, of, _ in self.sides(at) if held.any() else []:
            low, high = int(of[held].min()), int(of[held].max())
            if (held == ((of >= low) & (of <= high))).all():
                return [compare(">=", var, low), compare("<", var, high + 1)]
        return None


@dataclass(frozen=True)
class PixelBoxes:
    """Finds boxes of pixels in a kernel whose `blocks` are so many."""

    blocks: Mapping[Var, int]
    seen: dict[str, np.ndarray] = field(default_factory=dict)
    counted: dict[tuple[str, Buffer, tuple[int, ...]], Counted | None] = field(default_factory=dict)

    def box(self, copy: Copy) -> Box | None:
        """The pixels that a copy fetches; None where it does not."""
        if len(copy.loops) != 2:
            return None
        row, channels = next(iter(copy.loops)), copy.buffer.shape[-1]
        own, rest = self._parts(row, copy.terms)
        rest += [(e, f) for e, f in own if f % channels]
        places = [(e, f // channels) for e, f in own if f % channels == 0]
        found = (self._in_view(copy, view, places, rest) for view in views(copy.buffer.shape, places))
        return next((box for box in found if box is not None), None)

    def _in_view(self, copy: Copy, view: tuple[int, ...], places: Terms, rest: Terms) -> Box | None:
        """The pixels of images of lines in these places, with the `rest` of the index; None where there are none."""
        row, column = copy.loops
        if view != copy.buffer.shape:  # a block may have a head of its own
            heads = [(e, f) for e, f in places if row not in free_vars(e) and _is_line(e, f, view, copy.wide)]
            rest = [*rest, *[(e, f * view[-1]) for e, f in heads]]
            places = [x for x in places if x not in heads]
        counted = self._counted(copy, view, row, places)
        if counted is None or any(row in free_vars(e) for e, _ in rest):
            return None
        at = Var("line"), Var("column")
        for var, n in zip(at, (counted.lines, counted.columns), strict=True):
            for ranges in (copy.ranges, copy.wide):
                ranges.bind(var, 0, n - 1)
        given = self._told(copy, row, counted, at)
        left = replace(copy, loops={column: copy.loops[column]}, terms=tuple(rest), given=tuple(given or ()))
        rows = [binary("*", var, step) for var, step in zip(at, (counted.down, counted.right), strict=True)]
        box = None if given is None else next(boxes_in(left, view[1:], rows=rows), None)
        first = copy.wide.simplify(substitute(sum_of(places), {row: as_expr(0)}))
        return None if box is None else counted.box(copy, view, box, first)

    def _counted(self, copy: Copy, view: tuple[int, ...], row: Var, places: Terms) -> Counted | None:
        """What is counted, if pixels in these places are."""
        key = str(sum_of(places)), copy.buffer, view
        if key not in self.counted:
            values = self._values(places, copy, row) if places else None
            self.counted[key] = None if values is None else Counted.of(values, view)
        return self.counted[key]

    def _values(self, terms: Terms, copy: Copy, row: Var) -> np.ndarray:
        """The sum of terms by block and by row."""
        key = str(sum_of(terms))
        if key not in self.seen:
            grids = np.meshgrid(*[np.arange(n, dtype=np.int32) for n in self.blocks.values()], indexing="ij")
            values = {v: grid.reshape(-1, 1) for v, grid in zip(self.blocks, grids, strict=True)}
            values[row] = np.arange(copy.loops[row], dtype=np.int32).reshape(1, -1)
            shape = np.broadcast_shapes(*[x.shape for x in values.values()])
            self.seen[key] = np.broadcast_to(evaluate(sum_of(terms), values), shape).astype(np.int64)
        return self.seen[key]

    def _parts(self, row: Var, terms: Terms) -> tuple[list[tuple[Expr, int]], list[tuple[Expr, int]]]:
        """The terms of rows and blocks alone, and the others."""
        known = {row, *self.blocks}
        own = [(e, f) for e, f in terms if set() < free_vars(e) <= known]
        return own, [x for x in terms if x not in own]

    def _told(self, copy: Copy, row: Var, counted: Counted, at: tuple[Var, Var]) -> list[Expr] | None:
        """The conditions of a copy, told of the line and the column of a window; None where others than its pixels are
        left out."""
        out, there = [], np.ones_like(counted.inside)
        for c in copy.given:
            ordered = isinstance(c, Compare) and c.op in ("<", "<=", ">", ">=")
            terms = terms_of(copy.ranges.simplify(negative(c))) if isinstance(c, Compare) and ordered else ()
            own, rest = self._parts(row, list(terms))
            if not own:
                out.append(c)
                continue
            found, holds = counted.condition(self._values(own, copy, row), rest, at)
            if found is None:
                return None
            others = free_vars(c) <= self.blocks.keys() and (counted.inside & ~holds).any()
            out += [c] if others else found  # blocks of a further part of the terms, which only their bounds know
            there = there & (others | holds)
        return asked(out, copy.ranges) if (there == counted.inside).all() else None


def views(shape: tuple[int, ...], places: Terms) -> list[tuple[int, ...]]:
    """Images of lines of pixels, with channels; of a shape [heads of all texts, tokens, channels] a head is a line, and
    a text, whose tokens are counted, as many lines as it has heads."""
    if len(shape) != 3:
        return [shape] if len(shape) == 4 else []
    heads = [f // shape[1] for _, f in places if f > 0 and f % shape[1] == 0]
    return [(shape[0] // n, n, *shape[1:]) for n in dict.fromkeys(heads) if shape[0] % n == 0]


def _is_line(e: Expr, factor: int, view: tuple[int, ...], ranges: Simplifier) -> bool:
    """Whether a term, so many times an expression, is a line of one image."""
    low, high = ranges.bounds(e)
    inside = low is not None and high is not None and low >= 0 and high * factor < view[1] * view[2]
    return factor % view[2] == 0 and inside


def told(box: Box, ranges: Simplifier) -> tuple[Box, list[Expr], list[Expr]]:
    """What the engine is told of a box of pixels: the image, line and column of the first one, and the place in the
    window, from the corner of all places on.  Raises EmitError where that is too far away."""
    first, *place, _ = box.start
    _, height, width, _ = box.view
    assert box.pixels is not None
    corner, further = [], []
    for x in place:
        low, high = ranges.bounds(x)
        near = low is not None and high is not None and low >= -FURTHEST and high - low < 2 * FURTHEST
        require(near, EmitError, "copy engine", f"windows must begin within {FURTHEST} pixels of their image", place=x)
        corner.append(min(low or 0, 0))
        further.append(ranges.simplify(binary("-", x, corner[-1])))
    line, column = binary("%", binary("//", first, width), height), binary("%", first, width)
    start = [binary("//", first, height * width), binary("+", line, corner[0]), binary("+", column, corner[1])]
    pixels = replace(box.pixels, corner=(corner[0], corner[1]))
    return replace(box, start=(), pixels=pixels), [ranges.simplify(x) for x in start], further


def sum_of(terms: Terms) -> Expr:
    """The sum of terms times their factors."""
    total = as_expr(0)
    for e, factor in terms:
        total = binary("+", total, binary("*", e, factor))
    return total
