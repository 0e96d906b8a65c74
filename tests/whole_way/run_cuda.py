"""Many CUDA programs in one source, built once for the block emulator and run in one process."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codegen_cuda import emit
from codegen_cuda.emission.limits import Limits, require_limits
from codegen_cuda.emulation import emulator_build as build
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.program.cuda_program import CudaProgram
from te_lite import LoweredFunc

Case = tuple[CudaProgram, list[np.ndarray]]
_HELPER = re.compile(r"^static __device__[^(\n]*?((?!copy_async)\b\w+)\(", re.MULTILINE)
_SHARED = re.compile(r"__shared__[^;\[]*?(\w+)\s*\[")


def program_of(func: LoweredFunc) -> CudaProgram:
    """The CUDA program.  Raises LimitError or EmitError."""
    require_limits(func, Limits())
    return emit(func)


def run_cases(cases: Sequence[Case], seconds: float) -> list[str | None]:
    """Run programs, each on its arrays, which it changes; what each did wrong, or None.

    A program that is found out is left out, and the others are run again.  All are given `seconds` in all.
    """
    if not cases:
        return []
    fresh = [[a.copy() for a in arrays] for _, arrays in cases]
    whole = _together([program for program, _ in cases])
    try:
        run_program(whole, [a for _, arrays in cases for a in arrays], timeout=seconds)
        return [None] * len(cases)
    except EmulatorError as error:
        guilty = {f.kernel.split("_kernel")[0] for f in error.findings}
        message = str(error)
    finally:
        _forget(whole)
    if len(cases) == 1:
        return [message]
    for (_, arrays), saved in zip(cases, fresh, strict=True):
        for a, b in zip(arrays, saved, strict=True):
            a[...] = b
    names = [p.name for p, _ in cases]
    if guilty & set(names):
        rest = [c for c in cases if c[0].name not in guilty]
        answers = iter(run_cases(rest, seconds))
        return [message if name in guilty else next(answers) for name in names]
    middle = len(cases) // 2
    return run_cases(cases[:middle], seconds) + run_cases(cases[middle:], seconds)


def _together(programs: Sequence[CudaProgram]) -> CudaProgram:
    """One program that runs the kernels of all; what is not a kernel gets names of its own."""
    args = [b for p in programs for b in p.args]
    scratch = [b for p in programs for b in p.scratch]
    kernels, first_arg, first_scratch = [], 0, len(args)
    for p in programs:
        places = [*range(first_arg, first_arg + len(p.args)), *range(first_scratch, first_scratch + len(p.scratch))]
        kernels += [replace(k, arguments=tuple([places[i] for i in k.arguments])) for k in p.kernels]
        first_arg, first_scratch = first_arg + len(p.args), first_scratch + len(p.scratch)
    source = "\n".join([apart(p) for p in programs])
    return CudaProgram("batch", source, (), tuple(kernels), tuple(args), tuple(scratch))


def apart(program: CudaProgram) -> str:
    """The source with names of its own for helper functions and shared arrays; members (`blockIdx.y`) keep theirs."""
    own = set(_HELPER.findall(program.source)) | set(_SHARED.findall(program.source))
    if not own:
        return program.source
    names = "|".join(map(re.escape, sorted(own)))
    return re.sub(rf"(?<!\.)\b({names})\b", rf"\1_of_{program.name}", program.source)


def _forget(program: CudaProgram) -> None:
    """Remove what was built for a program; thousands of batches would fill the disk."""
    kernels = tuple(dict.fromkeys(k.name for k in program.kernels))
    dynamic = max(k.dynamic_bytes for k in program.kernels)
    try:
        made = build.library(program.source, kernels, dynamic, True)
    except EmulatorError:
        return
    shutil.rmtree(made.path.parent)
    build.forget()
