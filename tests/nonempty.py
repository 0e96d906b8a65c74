"""A loop that asserts must have something to assert about: `for sketch in nonempty(sketches(...))`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeVar

T = TypeVar("T")


def nonempty(items: Iterable[T], what: str = "what this test goes through") -> Iterator[T]:
    """The items, one after the other; an empty iterable fails here and now, before anything is asked of the result."""
    rest = iter(items)
    for first in rest:
        return chain([first], rest)
    raise AssertionError(f"{what} is empty, so nothing was tested")
