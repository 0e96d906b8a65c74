"""Charts as SVG text that follows the colours of the page and can be read in black and white.

Lines differ in dashes and dots in shape, and a legend names them.  Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from ..viz.svg import Svg, picture, rule, text
from .scale import Scale

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 10, 42
MOST_CHARACTERS = 24
DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "1 5", "5 2 1 2 1 2")
STYLE = """
line.grid { stroke: #ccc }
polyline { fill: none; stroke: #000; stroke-width: 2 }
circle { stroke: none; fill: #000 }
polygon.band { stroke: none; fill: #888; fill-opacity: 0.25 }
"""
Text = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """A curve of the class `s0` to `s6`, which decides its dashes and, to `s3`, its colour on a page; `title` is shown
    under the mouse."""

    name: str
    points: Sequence[tuple[float, float]]
    style: int = 0


@dataclass(frozen=True)
class Dot:
    """A marked point: a circle, a `small` one where there are many, or a `cross`."""

    x: float
    y: float
    title: str
    cross: bool = False
    small: bool = False


@dataclass(frozen=True)
class Band:
    """What lies between two curves, in grey: x, the lower and the upper of each point."""

    points: Sequence[tuple[float, float, float]]


@dataclass
class Chart:
    """Axes with names and texts of ticks; lines and dots are drawn in the order in which they are added.

    The names of lines are at the top on the right, with `low_legend` at the bottom.
    """

    x: Scale
    y: Scale
    x_name: str
    y_name: str
    x_text: Text = "{:g}".format
    y_text: Text = "{:g}".format
    lines: list[Line] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    low_legend: bool = False

    def svg(self, label: str) -> str:
        """The picture; `label` says what it shows to those who do not see it."""
        return _picture(WIDTH, HEIGHT, label, self._parts())

    def picture(self, label: str) -> Svg:
        """The same as a file of its own, in black, white and grey."""
        return picture(WIDTH, HEIGHT, label, self._parts(), STYLE)

    def _parts(self) -> list[str]:
        parts = [*self._axes(), *[self._band(one) for one in self.bands], *[self._line(line) for line in self.lines]]
        return [*parts, *[self._dot(dot) for dot in self.dots], *self._legend()]

    def _at(self, x: float, y: float) -> tuple[float, float]:
        across = LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT)
        return round(across, 1), round(HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM), 1)

    def _axes(self) -> list[str]:
        bottom, right, parts = HEIGHT - BOTTOM, WIDTH - RIGHT, list[str]()
        for tick in self.x.ticks():
            at, _ = self._at(tick, self.y.low)
            parts += [rule("grid", at, TOP, at, bottom), text(at, bottom + 16, self.x_text(tick), "middle")]
        for tick in self.y.ticks():
            _, at = self._at(self.x.low, tick)
            parts += [rule("grid", LEFT, at, right, at), text(LEFT - 6, at + 4, self.y_text(tick), "end")]
        frame = [rule("axis", LEFT, bottom, right, bottom), rule("axis", LEFT, TOP, LEFT, bottom)]
        name = f'<text transform="translate(13 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">'
        y_name = f"{name}{escape(self.y_name)}</text>"
        return [*parts, *frame, text((LEFT + right) / 2, HEIGHT - 6, self.x_name, "middle"), y_name]

    def _line(self, line: Line) -> str:
        return polyline(f"line s{line.style}", [self._at(x, y) for x, y in line.points], line.name, line.style)

    def _band(self, one: Band) -> str:
        there = [self._at(x, low) for x, low, _ in one.points]
        back = [self._at(x, high) for x, _, high in reversed(one.points)]
        return f'<polygon class="band" points="{" ".join(f"{x},{y}" for x, y in [*there, *back])}"/>'

    def _dot(self, dot: Dot) -> str:
        x, y = self._at(dot.x, dot.y)
        title = f"<title>{escape(dot.title)}</title>"
        if dot.cross:
            return f'<path class="cross" d="M{x - 4} {y - 4}l8 8m0 -8l-8 8">{title}</path>'
        kind, radius = ("dot small", 2.5) if dot.small else ("dot", 4.5)
        return f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius}">{title}</circle>'

    def _legend(self) -> list[str]:
        parts, right, named = list[str](), WIDTH - RIGHT - 8, [line for line in self.lines if line.name]
        first = HEIGHT - BOTTOM + 4 - 16 * len(named) if self.low_legend else TOP + 14
        for k, line in enumerate(named):
            y = first + 16 * k
            parts.append(polyline(f"line s{line.style}", [(right - 24, y - 4), (right, y - 4)], "", line.style))
            parts.append(text(right - 30, y, line.name, "end"))
        return parts


@dataclass(frozen=True)
class Column:
    """An axis of parallel coordinates, and how the numbers at its ends are written."""

    name: str
    scale: Scale
    text: Text = "{:g}".format


@dataclass(frozen=True)
class Row:
    """A line of parallel coordinates: a number for each column; `style` decides its dashes."""

    numbers: Sequence[float]
    kind: str
    title: str
    style: int = 0


def parallel(columns: Sequence[Column], rows: Sequence[Row], label: str, legend: Sequence[tuple[str, Row]]) -> str:
    """Parallel coordinates: an axis for each column, a line for each row; below, what the lines of a `legend` are."""
    gap, left, bottom = 76, 40, 350
    top = 40 + 4 * max([len(shortened(column.name)) for column in columns])
    parts, ys = [], list[dict[float, float]]()
    for k, column in enumerate(columns):
        different = {row.numbers[k] for row in rows}
        ys.append({number: round(bottom - column.scale.place(number) * (bottom - top), 1) for number in different})
    for row in rows:
        points = [(left + gap * k, ys[k][number]) for k, number in enumerate(row.numbers)]
        parts.append(polyline(f"line {row.kind}", points, row.title, row.style))
    for k, (name, row) in enumerate(legend):
        y = bottom + 36 + 18 * k
        parts.append(polyline(f"line {row.kind}", [(left - 20, y - 4), (left + 20, y - 4)], "", row.style))
        parts.append(text(left + 28, y, name))
    for k, column in enumerate(columns):
        x, scale, name = left + gap * k, column.scale, shortened(column.name)
        parts += [rule("axis", x, top, x, bottom), text(x, bottom + 15, column.text(scale.low), "middle")]
        parts.append(text(x, top - 6, column.text(scale.high), "middle"))
        title = f"<title>{escape(column.name)}</title>"
        parts.append(f'<text transform="translate({x + 4} {top - 22}) rotate(-35)">{title}{escape(name)}</text>')
    width = left + gap * len(columns) + left
    return _picture(width, bottom + 22 + 18 * len(legend), label, parts, width)


@dataclass(frozen=True)
class Bar:
    """A bar of parts, one behind the other, and what it says above them."""

    name: str
    parts: Sequence[float]


def stacked(bars: Sequence[Bar], label: str) -> str:
    """Bars below each other on one scale; the parts of a bar are of the classes `p0`, `p1`, ..."""
    longest, parts = max([sum(bar.parts) for bar in bars] + [1e-300]), []
    for k, bar in enumerate(bars):
        x, y = 1.0, 40 * k + 20
        parts.append(text(1, y - 6, bar.name))
        for n, value in enumerate(bar.parts):
            width = round(value / longest * (WIDTH - 2), 1)
            parts.append(f'<rect class="part p{n}" x="{x:.1f}" y="{y}" width="{width}" height="13"/>')
            x += width
    return _picture(WIDTH, 40 * len(bars), label, parts)


def shortened(name: str) -> str:
    """A name that has room at the top of an axis: its end, which tells names of one stage apart."""
    return name if len(name) <= MOST_CHARACTERS else "..." + name[3 - MOST_CHARACTERS :]


def polyline(kind: str, points: Sequence[tuple[float, float]], title: str, style: int = 0) -> str:
    """A line through points of the picture."""
    dash = f' stroke-dasharray="{DASHES[style]}"' if DASHES[style] else ""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<polyline class="{kind}"{dash} points="{" ".join(f"{x},{y}" for x, y in points)}">{inside}</polyline>'


def _picture(width: float, height: float, label: str, parts: Sequence[str], least: float = 0) -> str:
    """The parts in a frame that shrinks with the page, to `least` pixels."""
    size = f"max-width:{width}px;min-width:{least}px"
    kind = "" if least else ' class="shrinks"'
    head = f'<svg{kind} role="img" aria-label={quoteattr(label)} viewBox="0 0 {width} {height}" style="{size}">'
    return "\n".join([head, *parts, "</svg>"])
