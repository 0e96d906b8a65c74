"""A swizzle: where the 16-byte chunks of rows in shared memory are, without it and with it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import xor

from ansor.viz.banks import bank_conflicts
from ansor.viz.boxes import PAD
from ansor.viz.svg import LINE as TEXT_LINE
from ansor.viz.svg import Svg, picture, rectangle, text
from te_lite.errors import LowerError, require

from .swizzle import CHUNK_BYTES, LINE, Swizzle

MOST_BYTES = 1024
ROWS = 8
"""Rows that `ldmatrix` reads a chunk of at once."""
WIDE, HIGH, GAP = 40, 18, 40
STYLE = """
rect.chunk { fill: #fff; stroke: #888; stroke-width: 0.5 }
rect.column { fill: #333; stroke: #888; stroke-width: 0.5 }
"""


def chunks_of(row_bytes: int, swizzled: bool) -> list[tuple[int, int]]:
    """The row and the number in it of each chunk of 8 rows, in the order of memory.

    Raises LowerError for rows that cannot be swizzled.
    """
    swizzle = Swizzle.of_rows("rows", row_bytes, 1)
    count = ROWS * swizzle.chunks
    order = [c if not swizzled else int(swizzle.place(c * CHUNK_BYTES, xor)) // CHUNK_BYTES for c in range(count)]
    there = {place: c for c, place in enumerate(order)}
    return [divmod(there[place], swizzle.chunks) for place in range(count)]


def times_asked(row_bytes: int, swizzled: bool) -> int:
    """How often memory is asked for the same chunk of all 8 rows: the worst chunk."""
    found = chunks_of(row_bytes, swizzled)
    chunks = range(len(found) // ROWS)
    starts = [[CHUNK_BYTES * place for place, (_, c) in enumerate(found) if c == wanted] for wanted in chunks]
    return max([bank_conflicts(own, CHUNK_BYTES) for own in starts])


def draw_swizzle(row_bytes: int) -> Svg:
    """Rows of so many bytes as an SVG file: on the left as they come, on the right swizzled.

    Raises LowerError for rows that cannot be swizzled, and for longer ones than fit a picture.
    """
    law = f"rows of at most {MOST_BYTES} bytes are drawn"
    require(row_bytes <= MOST_BYTES, LowerError, "swizzle", law, got=row_bytes)
    label = f"rows of {row_bytes} bytes"
    parts = [text(PAD, PAD + 12, f"{label}: r.c is chunk c (16 bytes) of row r; a line is all 32 banks", kind="head")]
    width = WIDE * LINE + GAP
    for k, (name, swizzled) in enumerate((("plain", False), ("swizzled", True))):
        parts += _half(row_bytes, name, swizzled, PAD + k * width, PAD + 2.5 * TEXT_LINE)
    lines = -(-len(chunks_of(row_bytes, False)) // LINE)
    bottom = PAD + 2.5 * TEXT_LINE + 6 + HIGH * lines
    parts.append(text(PAD, bottom + TEXT_LINE, "black: chunk 0 of each row; in one column they meet the same banks"))
    return picture(2 * width - GAP + 2 * PAD, bottom + TEXT_LINE + PAD, label, parts, STYLE)


def _half(row_bytes: int, name: str, swizzled: bool, x: float, y: float) -> Iterator[str]:
    asked = times_asked(row_bytes, swizzled)
    yield text(x, y, f"{name}: a chunk of 8 rows takes {asked} turn{'' if asked == 1 else 's'}", kind="head")
    for place, (row, chunk) in enumerate(chunks_of(row_bytes, swizzled)):
        at = (x + WIDE * (place % LINE), y + 6 + HIGH * (place // LINE))
        yield rectangle("column" if chunk == 0 else "chunk", *at, WIDE, HIGH)
        yield text(at[0] + WIDE / 2, at[1] + 13, f"{row}.{chunk}", "middle", "light" if chunk == 0 else "")
