"""Tables that are written into documents, between two marks."""

from __future__ import annotations


def replaced(text: str, begin: str, table: str, end: str) -> str:
    """A document with what stands between its two marks replaced."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}\n{end}{after}"
