"""Values of JSON that somebody else wrote: each is what it should be, or a GraphError says what it should have been."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from te_lite.errors import require

from ..errors import GraphError

MOST_SIZE = 1 << 62
MOST_CHARACTERS = 1000


def record(value: Any, names: Sequence[str], what: str) -> Mapping[str, Any]:
    """An object that has the parts `names`, and maybe others."""
    fits = isinstance(value, Mapping) and all(name in value for name in names)
    require(fits, GraphError, what, f"an object of {', '.join(names)} is needed", got=value)
    return dict(value)


def items(value: Any, what: str) -> list[Any]:
    """A list."""
    require(isinstance(value, list | tuple), GraphError, what, "a list is needed", got=value)
    return list(value)


def size(value: Any, what: str) -> int:
    """An integer of at least 0, which fits 63 bits."""
    fits = type(value) is int and 0 <= value <= MOST_SIZE
    require(fits, GraphError, what, "an integer of at least 0 is needed", got=value)
    return int(value)


def sizes(value: Any, what: str) -> tuple[int, ...]:
    """A list of such integers."""
    return tuple([size(v, what) for v in items(value, what)])


def text(value: Any, what: str) -> str:
    """Printable text of modest length."""
    fits = isinstance(value, str) and value.isprintable() and 0 < len(value) <= MOST_CHARACTERS
    require(fits, GraphError, what, f"1 to {MOST_CHARACTERS} printable characters are needed", got=value)
    return str(value)
