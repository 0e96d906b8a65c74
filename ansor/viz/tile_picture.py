"""The tile of an output in its array, and what it touches of the inputs."""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.computation.tensor import ComputeOp, Operation

from .boxes import PAD
from .grid import HATCH, STYLE, Grid, dims_text
from .svg import LINE, Svg, picture, shortened, text, width_of
from .tile import ComputedTile
from .touched import Mask

GAP = 28
MOST = 72
"""Letters of the lines above the arrays."""
MOST_NAME = 32


@dataclass(frozen=True)
class Panel:
    """An array with lines of text above it."""

    lines: tuple[str, ...]
    grid: Grid

    @property
    def width(self) -> float:
        """Pixels from side to side."""
        return max(self.grid.size[0], *[width_of(line) for line in self.lines])


def draw_tile(tile: ComputedTile, title: str = "") -> Svg:
    """The tile as an SVG file: a panel for its own array and one for each input."""
    ops = tile.state.ops
    panels = [_panel(ops[tile.stage], tile.own, "computes")]
    panels += [_panel(ops[j], mask, "reads") for j, mask in tile.inputs.items()]
    words = f"one turn of {tile.loop} of {ops[tile.stage].name}" if tile.loop else f"all of {ops[tile.stage].name}"
    heads = [shortened(line, MOST) for line in (title, words) if line]
    parts = [HATCH, *[text(PAD, PAD + LINE * (k + 1) - 4, line, kind="head") for k, line in enumerate(heads)]]
    deep = max([len(panel.lines) for panel in panels])
    top, x = PAD + LINE * (len(heads) + 1.0), float(PAD)
    for panel in panels:
        parts += [text(x, top + LINE * k + 12, line, kind="" if k else "head") for k, line in enumerate(panel.lines)]
        parts += panel.grid.draw(x, top + LINE * deep + 6)
        x += panel.width + GAP
    bottom = top + LINE * deep + 6 + max([panel.grid.size[1] for panel in panels])
    width = max(x - GAP, *[width_of(line) for line in heads]) + PAD
    legend = "black: touched; hatched: in part; white: not"
    parts.append(text(PAD, bottom + LINE, legend))
    return picture(max(width, width_of(legend) + 2 * PAD), bottom + LINE + PAD, title or words, parts, STYLE)


def _panel(op: Operation, mask: Mask, verb: str) -> Panel:
    grid = Grid(mask)
    names = [v.name for v in op.axis] if isinstance(op, ComputeOp) else [f"dim {d}" for d in range(mask.ndim)]
    count = f"{verb} {int(mask.sum()):,} of {mask.size:,}"
    shape = f"{shortened(op.name, MOST_NAME)}: {' x '.join(map(str, op.shape)) or 'one element'}"
    return Panel((shape, count, *[shortened(line, MOST_NAME + 8) for line in dims_text(names, grid)]), grid)
