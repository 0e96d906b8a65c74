"""Numbers in sentences, and in columns."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, what: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def columns_of(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells beside each other, the first ones to the left, the others to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join([x.rjust(w) if c else x.ljust(w) for c, (x, w) in enumerate(zip(row, widths, strict=True))])
        for row in rows
    ]
