"""Run CUDA text of a learner on the block emulator, whose findings become sentences that help."""

from __future__ import annotations

from typing import Any

from codegen_cuda.emulation.emulator import run
from codegen_cuda.emulation.emulator_report import EmulatorError

from .verdict import Wrong

HELP = {
    "out of bounds": "compare the index with the size before you use it",
    "race": "a barrier (`__syncthreads()`) must lie between a write and what other threads do with it",
    "uninitialised": "a barrier (`__syncthreads()`) must lie between a write and what other threads do with it",
    "barrier": "all threads of a block must reach a barrier, so it may not lie in a branch that some do not take",
}


def emulate(source: str, kernel: str, grid: int, block: int, args: list[Any]) -> None:
    """Launch a kernel on arrays, which it changes.  Raises Wrong with the first finding and what to do about it."""
    try:
        run(source, kernel, grid, block, args)
    except EmulatorError as error:
        told = str(error).removeprefix("emulator: ")
        help_ = next((text for what, text in HELP.items() if what in told), "")
        raise Wrong(f"{told}{': ' if help_ else ''}{help_}") from error
