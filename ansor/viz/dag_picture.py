"""A computation as a graph: a box for each tensor with its definition, an arrow to each that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from te_lite.computation.computation import Computation
from te_lite.computation.text import op_lines

from .boxes import PAD, Box
from .layers import Layered, layered
from .svg import LINE, Svg, picture, shortened, text, width_of

MOST, MOST_LINES = 48, 4
"""Letters of a line of text, and lines of a definition."""
MOST_TITLE = 72
ACROSS, DOWN = 24, 40
"""Pixels between boxes of a layer, and between layers."""
HEAD = 8
"""Pixels of the tip of an arrow."""
ROOM = 12
"""Pixels that an arrow takes which passes through a layer."""
STYLE = """
rect.input { fill: #e6e6e6 }
rect.stage { fill: #fff }
rect.output { fill: #fff; stroke-width: 3 }
path.tip { fill: #000 }
"""


def draw_dag(dag: Computation, title: str = "") -> Svg:
    """The computation as an SVG file: inputs grey, results in thick frames."""
    edges = [(p, k) for k in range(len(dag.ops)) for p in dag.access.read_from[k]]
    graph = layered(len(dag.ops), edges)
    boxes = {k: _box(dag, k) for k in range(len(dag.ops))}
    spots, width, height = _spots(graph, boxes)
    width = max(width, width_of(shortened(title, MOST_TITLE)) + 2 * PAD)
    parts = [text(PAD, PAD + 12, shortened(title, MOST_TITLE), kind="head")]
    for path in graph.paths.values():
        parts += _arrow([spots[point] for point in path], boxes[path[0]].height)
    for k, box in boxes.items():
        parts += box.draw(spots[k].x - box.width / 2, spots[k].top, box.width)
    return picture(width, height, title or "computation", parts, STYLE)


def _box(dag: Computation, k: int) -> Box:
    op = dag.ops[k]
    kind = "input" if dag.access.is_placeholder(k) else "output" if dag.access.is_output(k) else "stage"
    shape = f"{' x '.join(map(str, op.shape)) or 'one element'} {op.dtype}"
    definition = [] if kind == "input" else [line for text in op_lines(op) for line in wrapped(text)]
    ranges = ", ".join([f"{v.name} in 0..{v.extent}" for v in op.reduce_axis])
    lines = (shortened(op.name, MOST), shape, *definition, *([f"over {ranges}"] if ranges else []))
    return Box(kind, lines, kinds=("head",), title="\n".join(op_lines(op)))


def wrapped(words: str) -> list[str]:
    """A text in at most `MOST_LINES` lines, the last one cut short where it is longer."""
    lines = wrap(words, MOST, subsequent_indent="  ")
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "  .."]


@dataclass(frozen=True)
class Spot:
    """Where a box or waypoint is: the middle of its upper side, and where its layer ends."""

    x: float
    top: float
    bottom: float


def _spots(graph: Layered, boxes: Mapping[int, Box]) -> tuple[dict[int, Spot], float, float]:
    """The spot of each box and waypoint, and the size of the picture."""
    wide = {node: boxes[node].width if node in boxes else ROOM for layer in graph.layers for node in layer}
    lengths = [sum([wide[node] + ACROSS for node in layer]) - ACROSS for layer in graph.layers]
    width, y, spots = max(lengths) + 2 * PAD, 2.0 * PAD + LINE, dict[int, Spot]()
    for layer, length in zip(graph.layers, lengths, strict=True):
        x, bottom = (width - length) / 2, y + max([boxes[node].height for node in layer if node in boxes])
        for node in layer:
            spots[node] = Spot(x + wide[node] / 2, y, bottom)
            x += wide[node] + ACROSS
        y = bottom + DOWN
    return spots, width, y - DOWN + PAD


def _arrow(path: Sequence[Spot], height: float) -> Iterator[str]:
    """From the lower side of a box, `height` below its upper one, through waypoints to the upper side of another."""
    first, *between, last = path
    corners = [(first.x, first.top + height), (first.x, first.bottom)]
    corners += [corner for spot in between for corner in ((spot.x, spot.top), (spot.x, spot.bottom))]
    corners += [(last.x, last.top - HEAD), (last.x, last.top)]
    yield f'<path class="arrow" d="M{" L".join([f"{x:g} {y:g}" for x, y in corners])}"/>'
    yield f'<path class="tip" d="M{last.x - HEAD / 2:g} {last.top - HEAD:g} h{HEAD} L{last.x:g} {last.top:g} z"/>'
