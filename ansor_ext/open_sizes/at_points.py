"""Programs for all sizes as a runner takes them: built once, with an entry for each point, and run as any candidate.

A runner calls a built program with pointers alone, so the sizes of a point are written behind the program, where the
compiler must not see their values: it would compile another program than the one for all sizes.

    double default_function_at0_seconds(int64_t number, void *a0, void *a1, void *a2) {
      volatile int64_t n0 = 128;
      return default_function_seconds(number, a0, a1, a2, n0);
    }

The worker that runs it compares the results on poisoned outputs with the reference of the task of these sizes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from ansor.core.host.process import host_family
from ansor.core.target.target import Target
from ansor.core.tasks.measure_values import BuildResult
from codegen_c.backend import LIBRARY
from codegen_c.compile import FLAGS, library_path
from codegen_c.emit import emit, entry_name
from codegen_c.errors import CompileError, EmitError
from codegen_c.processor import flags_for, options_for
from te_lite.loops.stmt import LoweredFunc

from .measured import Values
from .same_bits import SAME_BITS

SECONDS = 30.0
"""What the compiler may take."""


def entry_at(func: LoweredFunc, k: int) -> str:
    """The name of the entry for point `k`."""
    return f"{entry_name(func)}_at{k}"


def text_at_points(func: LoweredFunc, points: Sequence[Values], target: Target) -> str:
    """The C text of a program with an entry for each point."""
    arrays = [f"a{k}" for k in range(len(func.args))]
    parameters = ", ".join(["int64_t number", *[f"void *{a}" for a in arrays]])
    given = ", ".join(["number", *arrays, *[f"n{k}" for k in range(len(func.sizes))]])
    lines = [emit(func, options=options_for(str(target)))]
    for k, values in enumerate(points):
        lines.append(f"double {entry_at(func, k)}_seconds({parameters}) {{")
        lines += [f"  volatile int64_t n{d} = {n};" for d, n in enumerate(values)]
        lines += [f"  return {entry_name(func)}_seconds({given});", "}"]
    return "\n".join(lines) + "\n"


class BuiltAtPoints:
    """A program for all sizes that was compiled; `at` gives what a runner takes for one of the points.

    Raises EmitError or CompileError.
    """

    def __init__(self, func: LoweredFunc, points: Sequence[Values], target: Target, invariant: bool = False) -> None:
        self.func, self.points = func, tuple(points)
        flags = flags_for(str(target), SAME_BITS if invariant else FLAGS)
        self._library = library_path(text_at_points(func, points, target), SECONDS, flags)

    def at(self, values: Values, folder: Path) -> BuildResult:
        """The program for a point, in a folder of its own inside of `folder`, which the runner removes.

        A process takes two libraries that lay under one name for the same, so no name comes twice.
        """
        place = Path(mkdtemp(dir=folder))
        shutil.copyfile(self._library, place / LIBRARY)
        entry = entry_at(self.func, self.points.index(values))
        facts = {"entry": entry, "arguments": len(self.func.args), "family": host_family()}
        (place / "program.json").write_text(json.dumps(facts))
        return BuildResult(str(place), (), 0, "", 0.0)


def built(func: LoweredFunc, points: Sequence[Values], target: Target, invariant: bool = False) -> BuiltAtPoints | None:
    """The program, compiled; None where it cannot be."""
    try:
        return BuiltAtPoints(func, points, target, invariant)
    except (CompileError, EmitError):
        return None
