"""The threads of networks: those of team.c where the compiler is gcc, whose calls it answers, else of OpenMP's library.

A network is a hundred parallel loops one after the other, and OpenMP's library ends none before each of its threads has
come to it.  With those of team.c whoever is there does the work (docs/measuring.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .compile import OBJECT_FLAGS, compiler_command, object_code
from .processor import NATIVE, macros_of

SOURCE = Path(__file__).parent / "team.c"
NAME = "threads.team"
"""No kernel has such a name."""
_OTHERS = {"__clang__", "__INTEL_COMPILER", "__NVCOMPILER", "__PGI"}
_FLAGS = (*[flag for flag in OBJECT_FLAGS if flag != "-fopenmp"], "-fvisibility=hidden")


def team_objects() -> Mapping[str, bytes]:
    """What is linked with the kernels of a network in place of OpenMP's library; nothing where that is needed.

    Raises CompileError.
    """
    return {NAME: object_code(SOURCE.read_text(), "team", _FLAGS)} if is_gcc(compiler_command()) else {}


def is_gcc(command: tuple[str, ...]) -> bool:
    """Whether the compiler is gcc for Linux, and none that only says so.  Raises CompileError."""
    macros = macros_of(command, NATIVE)
    return {"__GNUC__", "__linux__"} <= macros and not macros & _OTHERS
