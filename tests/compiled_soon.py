"""The flags of the C compiler with which programs are compiled in half the time."""

from __future__ import annotations

from collections.abc import Sequence

FASTER = ("-O1", "-fno-thread-jumps")
"""At -O1 gcc 13 threads jumps wrongly through comparisons with NaN (seed 42443 of `tests.whole_way`), not at -O3."""


def soon(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags with few optimizations instead of all."""
    return (*FASTER, *[flag for flag in flags if flag != "-O3"])
