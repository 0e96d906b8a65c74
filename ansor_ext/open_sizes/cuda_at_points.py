"""Programs for all sizes on a GPU as a runner takes them: compiled once, with the launches of each point.

What a runner's worker loads says how kernels are launched, and kernels take the sizes behind their pointers: so the
machine code is that of all sizes, and the point stands in `program.json`, as grids and as `sizes`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from ansor.core.target.target import Target
from ansor.core.tasks.measure_values import BuildResult
from codegen_cuda.driver.architecture import target_architecture
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.driver.device import cubin_file
from codegen_cuda.driver.module import emitted_program
from codegen_cuda.program.errors import CompileError, EmitError, LimitError
from codegen_cuda.program.facts import program_facts
from te_lite.loops.stmt import LoweredFunc

from .grids import closed_program
from .measured import Values


class CudaAtPoints:
    """As `BuiltAtPoints`, for an architecture.  Raises LimitError, EmitError or CompileError."""

    def __init__(self, func: LoweredFunc, arch: str) -> None:
        self.program = emitted_program(func, arch)
        self._cubins = [compile_source(unit, arch).cubin for unit in self.program.units]

    def at(self, values: Values, folder: Path) -> BuildResult:
        """The program for a point, in a folder of its own inside of `folder`, which the runner removes."""
        place = Path(mkdtemp(dir=folder))
        program = closed_program(self.program, dict(zip(self.program.sizes, values, strict=True)))
        cubins = {k.name: cubin for k, cubin in zip(self.program.kernels, self._cubins, strict=True)}
        for number, kernel in enumerate(program.kernels):
            (place / cubin_file(number)).write_bytes(cubins[kernel.name])
        (place / "program.json").write_text(json.dumps({**program_facts(program), "sizes": values}))
        return BuildResult(str(place), (), 0, "", 0.0)


def built(func: LoweredFunc, points: Sequence[Values], target: Target, invariant: bool = False) -> CudaAtPoints | None:
    """The program, compiled as for any task; None where it cannot be.

    Raises DeviceError where no architecture is known.
    """
    try:
        return CudaAtPoints(func, target_architecture(str(target)))
    except (LimitError, EmitError, CompileError):
        return None
