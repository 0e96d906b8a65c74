"""SVG as text: rectangles, lines, words.  Every word is escaped; what a shape looks like is said by its class.

Letters have one width, so that the room a text takes is known.  A picture that stands alone carries its own styles, of
black, white and grey, and a white ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

CHARACTER = 7.3
"""The width of a letter, in pixels."""
LINE = 17
"""From one line of text to the next, in pixels."""
STYLE = """
text { font: 12px "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #000; white-space: pre }
text.head { font-weight: bold }
text.small { font-size: 9px }
text.light { fill: #fff }
rect, path, line { stroke: #000; stroke-width: 1; fill: none }
rect.ground { fill: #fff; stroke: none }
"""


class Svg(str):
    """The text of a file, which a notebook shows as a picture."""

    def _repr_svg_(self) -> str:
        return str(self)


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """Words at a point of their base line: their `start`, `middle` or `end`."""
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def rectangle(kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    """A rectangle by its upper left corner; `title` is shown under the pointer."""
    shape = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def width_of(words: str) -> float:
    """The pixels that a text takes."""
    return len(words) * CHARACTER


def shortened(words: str, most: int) -> str:
    """A text of at most `most` letters: a longer one without its middle."""
    return words if len(words) <= most else f"{words[: most // 2 - 1]}..{words[len(words) - most + most // 2 + 1 :]}"


def picture(width: float, height: float, label: str, parts: Sequence[str], style: str = "") -> Svg:
    """A file of its own; `label` says what it shows to those who do not see it."""
    return Svg(drawing(width, height, label, [f"<style>{STYLE}{style}</style>", *parts]) + "\n")


def drawing(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """A picture in a page that has the styles."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" xml:space="preserve" aria-label={quoteattr(label)}>'
    )
    return "\n".join([head, rectangle("ground", 0, 0, width, height), *parts, "</svg>"])
