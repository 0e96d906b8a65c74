"""An array as a grid of cells: black where all is touched, hatched where some is, white where nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .svg import rectangle
from .touched import Array, Mask

MOST_CELLS = 64
"""Cells along a side; in longer arrays a cell stands for a power of two of elements, as tiles mostly are."""
SIDE = 256
SMALLEST, LARGEST = 4, 20
"""Pixels of the longer side of a grid, and of a cell."""
LINED = 24
"""Grids with so many cells along a side, at most, have lines between them."""
STYLE = """
rect.all { fill: #333; stroke: none; shape-rendering: crispEdges }
rect.some { fill: url(#some); stroke: none }
line.cell { stroke: #bbb; stroke-width: 0.5 }
"""
HATCH = (
    '<defs><pattern id="some" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<path d="M0 4L4 0" style="stroke:#333"/></pattern></defs>'
)


@dataclass(frozen=True, eq=False)
class Grid:
    """The two dimensions of an array that say most about what is touched of it (fewer where it has fewer)."""

    mask: Mask

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Dimensions that are touched in parts before others, long ones before short ones; in their order."""
        met = self.met
        partial = {d: 0 < met[d] < size for d, size in enumerate(self.mask.shape)}
        ranked = sorted(range(self.mask.ndim), key=lambda d: (not partial[d], -self.mask.shape[d]))
        return tuple(sorted(ranked[:2]))

    @cached_property
    def met(self) -> tuple[int, ...]:
        """How many values of the index of each dimension are met."""
        others = [tuple([x for x in range(self.mask.ndim) if x != d]) for d in range(self.mask.ndim)]
        return tuple([int(self.mask.any(axis=rest).sum()) for rest in others])

    @cached_property
    def shares(self) -> Array:
        """The part of each cell that is touched, 0 to 1, [rows, columns], whatever the other dimensions are."""
        flat = self.mask.any(axis=tuple([d for d in range(self.mask.ndim) if d not in self.dims]))
        flat = flat.reshape((1,) * (2 - flat.ndim) + flat.shape)
        rows, columns = [self.per_cell(size) for size in flat.shape]
        sums = np.add.reduceat(flat.astype(np.int64), np.arange(0, flat.shape[0], rows), axis=0)
        sums = np.add.reduceat(sums, np.arange(0, flat.shape[1], columns), axis=1)
        heights, widths = [
            np.diff([*range(0, n, step), n]) for n, step in zip(flat.shape, (rows, columns), strict=True)
        ]
        return np.asarray(sums / np.outer(heights, widths))

    @staticmethod
    def per_cell(size: int) -> int:
        """The elements of a dimension that a cell stands for."""
        return 1 << max(0, -(-size // MOST_CELLS) - 1).bit_length()

    @property
    def cell(self) -> float:
        """Pixels of the side of a cell."""
        most: int = max(self.shares.shape)
        return min(max(SIDE / most, SMALLEST), LARGEST)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in pixels."""
        rows, columns = self.shares.shape
        return columns * self.cell, rows * self.cell

    def draw(self, x: float, y: float) -> Iterator[str]:
        """The grid with its upper left corner at a point."""
        width, height = self.size
        yield rectangle("ground", x, y, width, height)
        for kind, cells in (("all", self.shares == 1), ("some", (self.shares > 0) & (self.shares < 1))):
            for row, first, count in runs(cells):
                yield rectangle(kind, x + first * self.cell, y + row * self.cell, count * self.cell, self.cell)
        rows, columns = self.shares.shape
        if max(rows, columns) <= LINED:
            for n in range(1, columns):
                yield _line(x + n * self.cell, y, 0, height)
            for n in range(1, rows):
                yield _line(x, y + n * self.cell, width, 0)
        yield rectangle("frame", x, y, width, height)


def _line(x: float, y: float, across: float, down: float) -> str:
    return f'<line class="cell" x1="{x:g}" y1="{y:g}" x2="{x + across:g}" y2="{y + down:g}"/>'


def runs(cells: Array) -> Iterator[tuple[int, int, int]]:
    """The runs of a bool array as row, first column, length."""
    for row, line in enumerate(cells):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(np.int8), [0]])))
        yield from [(row, int(a), int(b - a)) for a, b in edges.reshape(-1, 2)]


def dims_text(names: Sequence[str], grid: Grid) -> list[str]:
    """What the rows and columns are, and how much of the dimensions that are not shown is met."""
    shape, lines = grid.mask.shape, []
    for word, d in zip(("down", "across")[2 - len(grid.dims) :], grid.dims, strict=True):
        step = grid.per_cell(shape[d])
        lines.append(f"{word} {names[d]}: {grid.met[d]} of {shape[d]}{f', {step} to a cell' if step > 1 else ''}")
    return lines + [
        f"also {names[d]}: {grid.met[d]} of {n}" for d, n in enumerate(shape) if d not in grid.dims and n > 1
    ]
