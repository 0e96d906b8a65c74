"""Python's collector of cycles, which a round of the search, or a build, can do without."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles of garbage inside; it goes on behind, where it went on before.

    Each full search walks all objects of the process, which takes 0.1 s, and the many small objects of a round make it
    run about once in each.  A round leaves some thousand objects in cycles; they are found after it.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
