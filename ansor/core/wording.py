"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
