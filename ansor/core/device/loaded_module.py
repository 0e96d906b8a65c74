"""A program as a function of arrays on any device that runs programs: copied there, run, copied back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.loops.stmt import LoweredFunc, stored_in
from te_lite.timing import Timing

from ..errors import BackendError, TaskError
from ..files.private_files import scratch_folder
from .backend import Array, Backend


class LoadedModule:
    """Call it with one NumPy array per argument, in order; outputs are written in place.

    `source` is the text of the program, `entry_name` its name.  Raises the backend's error when it cannot be built, and
    BackendError for one of open sizes.
    """

    def __init__(self, backend: Backend, func: LoweredFunc, target: str) -> None:
        law = "functions of arrays of all sizes are for targets c and cuda"
        require(not func.sizes, BackendError, f"target {target!r}", law, sizes=func.sizes)
        self.func, self.entry_name, self._written = func, func.name, stored_in(func.body)
        self.source = backend.source(func, target)
        self._folder = scratch_folder("program")
        backend.build(func, target, self._folder.name)
        self._device = backend.open(0)
        self._program = self._device.load(self._folder.name)

    def __call__(self, *arrays: Any) -> None:
        """Run once.  Raises TaskError when the arrays do not fit."""
        held = self._checked(arrays)
        handles = [self._device.put(a) for a in held]
        self._program.run(handles)
        for buffer, array, handle in zip(self.func.args, held, handles, strict=True):
            if buffer in self._written:
                array[...] = self._device.get(handle)

    def time(self, *arrays: Any, number: int = 3, repeat: int = 1, min_repeat_ms: int = 0) -> Timing:
        """Seconds per call, `repeat` figures (see `Program.time`), after one call that is not counted."""
        handles = [self._device.put(a) for a in self._checked(arrays)]
        self._program.run(handles)
        return Timing(tuple(self._program.time(handles, number, repeat, min_repeat_ms, False, math.inf)))

    def _checked(self, arrays: tuple[Any, ...]) -> list[Array]:
        args = self.func.args
        require(len(arrays) == len(args), TaskError, self.entry_name, f"{len(args)} arrays are needed", got=len(arrays))
        held = [np.asarray(a) for a in arrays]
        for buffer, a in zip(args, held, strict=True):
            ok = a.dtype == np.dtype(buffer.dtype) and a.shape == tuple(buffer.shape)
            law = f"argument {buffer.name} must be {buffer.dtype} of shape {tuple(buffer.shape)}"
            require(ok, TaskError, self.entry_name, law, dtype=str(a.dtype), shape=a.shape)
        return held
