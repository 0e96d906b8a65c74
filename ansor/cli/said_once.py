"""Warnings of a command: a log that is read several times has one complaint, which is printed once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Fresh(logging.Filter):
    """Lets every text pass once."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        fresh = text not in self._said
        self._said.add(text)
        return fresh


@contextmanager
def said_once() -> Iterator[None]:
    """While this is open, warnings of the logger `ansor` that were given before are not given again."""
    logger, fresh = logging.getLogger("ansor"), _Fresh()
    logger.addFilter(fresh)
    try:
        yield
    finally:
        logger.removeFilter(fresh)
