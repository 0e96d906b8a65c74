"""How much is drawn: in `make test` a part of what random tests draw, in `make fuzz` (ANSOR_WHOLE=1) all of it."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from hypothesis import settings

WHOLE = bool(os.environ.get("ANSOR_WHOLE"))
SHARE, LEAST = 4, 3
USUAL = 100
"""Examples of a test that names no number."""


T = TypeVar("T")


def some(whole: T, part: T) -> T:
    """How many are drawn, or which: `part` of them, or the `whole` number."""
    return whole if WHOLE else part


def examples(whole: int, **others: Any) -> settings:
    """Settings of a test that draws `whole` examples, however long each takes; a quarter of them in `make test`."""
    return settings(max_examples=some(whole, max(-(-whole // SHARE), min(whole, LEAST))), deadline=None, **others)


def draw_some() -> None:
    """Let tests that name no number of examples draw a quarter of them, too."""
    settings.register_profile("some", max_examples=some(USUAL, USUAL // SHARE))
    settings.load_profile("some")
