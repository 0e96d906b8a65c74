"""Programs for all sizes on a GPU: a launch has the sizes as arguments, and the grid that they say."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ansor.core.device.exported_program import Argument, arguments_of
from codegen_cuda.driver.device import DeviceProgram
from codegen_cuda.driver.module import CudaFunction, CudaModule, compiled_program, open_device
from codegen_cuda.program.cuda_program import CudaKernel
from codegen_cuda.program.errors import DeviceError
from codegen_cuda.program.facts import program_facts
from te_lite.loops.stmt import LoweredFunc
from te_lite.timing import Timing

from .grids import grid_at
from .sizes import Sizes, arguments_at, kept, sizes_of


class OpenCudaModule(CudaModule):
    """As `CudaModule`, for arrays of all sizes; the extents of its `arguments` are numbers and `SizeVar`s."""

    def __init__(self, func: LoweredFunc, arch: str) -> None:
        self._kept: dict[tuple[int, ...], CudaFunction] = {}
        self.program, self._compiled = compiled_program(func, arch)
        facts, cubin = program_facts(replace(self.program, sizes=())), self._compiled.cubin
        CudaFunction.__init__(self, arguments_of(func), self.program.source, func.name, cubin, facts)

    def __call__(self, *arrays: Any) -> None:
        """Run once and wait.  Raises DeviceError when the arrays do not fit."""
        self.at(arrays)(*arrays)

    def time(self, *arrays: Any, number: int = 3, repeat: int = 1, min_repeat_ms: int = 100) -> Timing:
        """See `CudaFunction`."""
        return self.at(arrays).time(*arrays, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)

    def at(self, arrays: Sequence[Any]) -> CudaFunction:
        """The program for the sizes of these arrays.  Raises DeviceError where they do not fit it."""
        return self.at_sizes(self.sizes(arrays))

    def sizes(self, arrays: Sequence[Any]) -> Sizes:
        """The sizes of these arrays.  Raises DeviceError where they do not fit."""
        return sizes_of(self.entry_name, self.arguments, arrays, DeviceError)

    def at_sizes(self, sizes: Sizes) -> CudaFunction:
        """The program for some sizes."""
        return kept(self._kept, tuple(sizes.values()), lambda: self._sized(sizes))

    def _sized(self, sizes: Sizes) -> CudaFunction:
        return _Sized(arguments_at(self.arguments, sizes), self, program_at(self._load(), sizes, self.program.kernels))

    def _load(self) -> DeviceProgram:
        if self._loaded is None:
            facts = {**self._facts, "sizes": [0] * len(self.program.sizes)}
            self._loaded = DeviceProgram(open_device(), [self._cubin], facts)
        return self._loaded


class _Sized(CudaFunction):
    """A program with numbers for its sizes."""

    def __init__(self, arguments: Sequence[Argument], of: OpenCudaModule, program: DeviceProgram) -> None:
        super().__init__(arguments, of.source, of.entry_name, b"", {})
        self._loaded = program


def program_at(loaded: DeviceProgram, sizes: Sizes, kernels: Sequence[CudaKernel]) -> DeviceProgram:
    """The same kernels and scratch memory, launched for some sizes; kernels without a block are left out."""
    sized = copy.copy(loaded)
    grids = [grid_at(kernel, sizes) for kernel in kernels]
    pairs = zip(loaded.kernels, grids, strict=True)
    sized.kernels = [(f, {**k, "grid": grid}) for (f, k), grid in pairs if prod(grid) > 0]
    sized.sizes = list(sizes.values())
    return sized
