"""Boxes in boxes: each as wide as its text and what is in it need, one below the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from .svg import LINE, rectangle, text, width_of

PAD = 8
GAP = 6


@dataclass(frozen=True)
class Box:
    """Lines of text above the boxes `inside`; `kind` is its class, `kinds` are those of the first lines.

    `title` is shown under the pointer.
    """

    kind: str
    lines: tuple[str, ...]
    inside: tuple[Box, ...] = ()
    kinds: tuple[str, ...] = ()
    title: str = ""

    @property
    def width(self) -> float:
        """The least pixels from side to side."""
        words = [width_of(line) for line in self.lines]
        return max([*words, *[box.width for box in self.inside]], default=0.0) + 2 * PAD

    @property
    def height(self) -> float:
        """Pixels from top to bottom."""
        return LINE * len(self.lines) + GAP + stacked(self.inside)

    def draw(self, x: float, y: float, width: float) -> Iterator[str]:
        """The box with its upper left corner at a point, `width` wide, and what is in it."""
        yield rectangle(self.kind, x, y, width, self.height, self.title)
        for k, (line, kind) in enumerate(zip_longest(self.lines, self.kinds, fillvalue="")):
            yield text(x + PAD, y + LINE * (k + 1), line, kind=kind)
        yield from column(self.inside, x + PAD, y + LINE * len(self.lines) + GAP, width - 2 * PAD)


def stacked(boxes: Sequence[Box]) -> float:
    """The height of boxes below each other."""
    return sum([box.height + GAP for box in boxes])


def column(boxes: Sequence[Box], x: float, y: float, width: float) -> Iterator[str]:
    """Boxes below each other, all of one width."""
    for box in boxes:
        yield from box.draw(x, y, width)
        y += box.height + GAP
