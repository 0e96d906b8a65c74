"""A fragment as a table: which lane holds each element of the tile, as its value of which number."""

from __future__ import annotations

from .fragment import Fragment


def fragment_text(fragment: Fragment, rows: int | None = None) -> str:
    """Lines of `lane.value`, one for each of the first `rows` rows of the tile (default: all)."""
    lines = []
    for row in range(fragment.rows if rows is None else rows):
        cells = [fragment.holder(row, column) for column in range(fragment.columns)]
        lines.append(" ".join(f"{lane:>2}.{value:<2}" for lane, value in cells).rstrip())
    return "\n".join(lines)
