"""The threads of networks: those of team.c where the compiler is gcc, whose calls it answers, else of OpenMP's library.

A network is a hundred parallel loops one after the other, and OpenMP's library ends none before each of its threads has
come to it.  With those of team.c whoever is there does the work (docs/measuring.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ansor.core.command import ANSWER_SECONDS, Unfinished, run_command

from .compile import OBJECT_FLAGS, compiler_command, object_code
from .errors import CompileError

SOURCE = Path(__file__).parent / "team.c"
NAME = "team"
_FLAGS = (*[flag for flag in OBJECT_FLAGS if flag != "-fopenmp"], "-fvisibility=hidden")


def team_objects() -> Mapping[str, bytes]:
    """What is linked with the kernels of a network in place of OpenMP's library; nothing where that is needed.

    Raises CompileError.
    """
    return {NAME: object_code(SOURCE.read_text(), NAME, _FLAGS)} if is_gcc(compiler_command()) else {}


@lru_cache(maxsize=8)
def is_gcc(command: tuple[str, ...]) -> bool:
    """Whether the compiler is gcc for Linux, and none that only says so."""
    try:
        said = run_command([*command, "-dM", "-E", "-x", "c", "/dev/null"], ANSWER_SECONDS).stdout
    except Unfinished as e:
        raise CompileError(f"C compiler: {' '.join(command)} -dM -E {e}") from e
    macros = {line.split()[1] for line in said.splitlines() if line.startswith("#define ")}
    return {"__GNUC__", "__linux__"} <= macros and not macros & {"__clang__", "__INTEL_COMPILER"}
