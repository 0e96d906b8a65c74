"""The flags of the C compiler with which programs are compiled in half the time."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_c.compile import compiler_command, compiler_version

FASTER, OF_GCC = ("-O1",), ("-fno-thread-jumps",)
"""At -O1 gcc 13 threads jumps wrongly through comparisons with NaN (seed 42443 of `tests.whole_way`), not at -O3."""


def soon(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags with few optimizations instead of all."""
    own = () if "clang" in compiler_version(compiler_command()) else OF_GCC
    return (*FASTER, *own, *[flag for flag in flags if flag != "-O3"])
