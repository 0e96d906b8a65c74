"""Timelines: when each module works and when it waits, as data, as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ansor.viz.svg import Svg

from ..core.kinds import Module
from ..isa.columns import Columns
from ..isa.disassemble import operation_text
from ..isa.encode import decode
from .cycles import Timing

_COLORS = {
    "LOAD UOP": "#b07aa1",
    "LOAD WGT": "#4e79a7",
    "LOAD INP": "#76b7b2",
    "LOAD ACC": "#9c755f",
    "GEMM reset": "#bab0ac",
    "GEMM": "#e15759",
    "ALU": "#f28e2b",
    "STORE": "#59a14f",
}
_LETTERS = {"LOAD UOP": "u", "LOAD WGT": "w", "LOAD INP": "i", "LOAD ACC": "a", "GEMM reset": "r", "GEMM": "G"}
_LETTERS |= {"ALU": "A", "STORE": "S"}
_LEFT, _WIDTH, _LANE = 80, 1000, 40
_LETTER = 9
"""Pixels of a box that has room for the letter of its kind, which tells it without its colour."""
_MIDDLE = 'text-anchor="middle" pointer-events="none"'


@dataclass(frozen=True)
class Span:
    """Instruction `index` keeps `module` busy from `start` to `end`, in cycles after the launch."""

    index: int
    module: Module
    title: str
    start: float
    end: float

    @property
    def kind(self) -> str:
        """What the legend calls it; empty for tokens and the end of the program."""
        return next((kind for kind in _COLORS if self.title.startswith(kind)), "")


def spans(c: Columns, times: Timing) -> list[Span]:
    """A span for each instruction, in the order of the program."""
    rows = zip(decode(c.config, c.words), c.module.tolist(), times.start.tolist(), times.end.tolist(), strict=True)
    return [Span(k, Module(m), operation_text(i.op), a, b) for k, (i, m, a, b) in enumerate(rows)]


def text(chosen: Sequence[Span], width: int = 100) -> str:
    """A line for each module, a character for each slice of time: what it did for most of the slice, or `.`."""
    begin, end = _limits(chosen)
    scale = width / (end - begin)
    lines = []
    for module in Module:
        own = [s for s in chosen if s.module is module and s.kind]
        lines.append(f"{module.name.lower():<8}{_letters(own, begin, scale, width)}")
    legend = "  ".join(f"{letter} {kind}" for kind, letter in _LETTERS.items() if any(s.kind == kind for s in chosen))
    return "\n".join([*lines, f"{'':<8}cycles {begin:.0f} to {end:.0f}   {legend}"])


def _letters(own: Sequence[Span], begin: float, scale: float, width: int) -> str:
    """What the spans of a module do for most of each slice."""
    busiest: list[tuple[float, str]] = [(0.0, ".")] * width
    for span in own:
        low, high = (span.start - begin) * scale, (span.end - begin) * scale
        for k in range(int(low), min(int(high) + 1, width)):
            share = min(high, k + 1) - max(low, k)
            busiest[k] = max(busiest[k], (share, _LETTERS[span.kind]))
    return "".join(letter for _, letter in busiest)


def picture(chosen: Sequence[Span], title: str = "") -> Svg:
    """An SVG drawing: a lane for each module, a box with its letter for each instruction, and its text as a tip."""
    begin, end = _limits(chosen)
    scale = _WIDTH / (end - begin)
    lanes = {module: 30 + k * (_LANE + 8) for k, module in enumerate(Module)}
    parts = [f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>']
    for module, y in lanes.items():
        parts.append(f'<text x="4" y="{y + _LANE // 2 + 4}">{module.name.lower()}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_LANE}" fill="#f2f2f2"/>')
    parts += [_box(span, begin, scale, lanes[span.module]) for span in chosen if span.kind]
    bottom = max(lanes.values()) + _LANE + 18
    parts.append(f'<text x="{_LEFT}" y="{bottom}">cycle {begin:.0f}</text>')
    parts.append(f'<text x="{_LEFT + _WIDTH}" y="{bottom}" text-anchor="end">cycle {end:.0f}</text>')
    parts += _legend([kind for kind in _COLORS if any(s.kind == kind for s in chosen)], bottom)
    size = f'width="{_LEFT + _WIDTH + 10}" height="{bottom + 30}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    parts.insert(0, '<rect width="100%" height="100%" fill="#fff"/>')
    return Svg("\n".join([head, *parts, "</svg>"]) + "\n")


def _box(span: Span, begin: float, scale: float, y: int) -> str:
    x, wide = _LEFT + (span.start - begin) * scale, (span.end - span.start) * scale
    tip = escape(f"{span.index}: {span.title}, cycles {span.start:.0f} to {span.end:.0f}")
    shape = f'<rect x="{x:.2f}" y="{y}" width="{max(wide, 0.2):.2f}" height="{_LANE}" fill="{_COLORS[span.kind]}"'
    frame = ' stroke="#fff" stroke-width="0.5"' if wide >= _LETTER else ""
    drawn = f"{shape}{frame}><title>{tip}</title></rect>"
    if wide < _LETTER:
        return drawn
    return f'{drawn}<text x="{x + wide / 2:.2f}" y="{y + _LANE // 2 + 4}" {_MIDDLE}>{_LETTERS[span.kind]}</text>'


def _legend(kinds: Sequence[str], y: int) -> Iterator[str]:
    for k, kind in enumerate(kinds):
        x = _LEFT + k * 120
        yield f'<rect x="{x}" y="{y + 8}" width="12" height="12" fill="{_COLORS[kind]}"/>'
        yield f'<text x="{x + 18}" y="{y + 18}">{_LETTERS[kind]} {kind}</text>'


def _limits(chosen: Sequence[Span]) -> tuple[float, float]:
    """The first and the last cycle, at least one apart."""
    begin = min((s.start for s in chosen), default=0.0)
    return begin, max(max((s.end for s in chosen), default=0.0), begin + 1.0)
