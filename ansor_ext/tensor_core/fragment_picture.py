"""Fragments of an instruction of tensor cores: which thread of a warp holds which element of the three tiles."""

from __future__ import annotations

from collections.abc import Iterator

from ansor.viz.boxes import PAD
from ansor.viz.svg import LINE, Svg, picture, rectangle, text

from .fragment import Fragment
from .mma import Mma

WIDE, HIGH = 30, 18
STYLE = """
rect.even { fill: #fff; stroke: #888; stroke-width: 0.5 }
rect.odd { fill: #dcdcdc; stroke: #888; stroke-width: 0.5 }
rect.first { fill: #333; stroke: #888; stroke-width: 0.5 }
"""
QUAD = 4


def draw_fragments(op: Mma) -> Svg:
    """The instruction as an SVG file: A on the left, B above, the sums D where their rows and columns meet."""
    across, down = op.k * WIDE + 2 * LINE, op.k * HIGH + 2 * LINE
    left, top = float(PAD), PAD + 2.0 * LINE
    parts = [text(PAD, PAD + 12, op.name, kind="head")]
    shared = op.warps > 1
    b = "B: read from shared memory" if shared else f"B: {op.k} x {op.n}, {op.b.values} values a thread"
    parts += _tile(op.b, b, left + across, top, shared)
    parts += _tile(op.a, f"A: {op.m} x {op.k}, {op.a.values} values a thread", left, top + down)
    parts += _tile(op.d, f"D: {op.m} x {op.n}, {op.d.values} values a thread", left + across, top + down)
    bottom = top + down + op.m * HIGH + 2 * LINE
    lines = ("t.v: value v of thread t", "black: thread 0", "grey and white: threads in fours")
    parts += [text(left, top + LINE * k, line) for k, line in enumerate(lines)]
    width = max(left + across + op.n * WIDE + PAD, left + across + 270)
    return picture(width, bottom, f"fragments of {op.name}", parts, STYLE)


def _tile(fragment: Fragment, name: str, x: float, y: float, empty: bool = False) -> Iterator[str]:
    """The elements of a tile with their holders, under its name."""
    yield text(x, y, name, kind="head")
    for row in range(fragment.rows):
        for column in range(fragment.columns):
            lane, value = fragment.holder(row, column)
            at = (x + WIDE * column, y + 6 + HIGH * row)
            kind = "even" if empty else "first" if lane == 0 else "odd" if lane // QUAD % 2 else "even"
            yield rectangle(kind, *at, WIDE, HIGH)
            if not empty:
                style = "small light" if kind == "first" else "small"
                yield text(at[0] + WIDE / 2, at[1] + 12, f"{lane}.{value}", "middle", style)
