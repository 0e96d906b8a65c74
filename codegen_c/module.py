"""A compiled program as a function of NumPy arrays, and its timing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ansor.core.device.exported_program import Argument, arguments_of
from ansor.core.device.nd import in_host_memory
from te_lite.errors import require
from te_lite.extensions import required_part
from te_lite.loops.stmt import LoweredFunc
from te_lite.timing import Timing

from .compile import FLAGS, load
from .emit import emit, entry_name
from .errors import CallError
from .processor import Options
from .timing import long_enough

Array = np.ndarray[Any, np.dtype[Any]]


class Module:
    """Call it with one array per argument, in order; outputs are written in place.

    Arrays are NumPy arrays, or objects with `__array_interface__`, C-contiguous, of the dtype and shape of the
    `arguments`.  `source` is the C text, `entry_name` the name of the function in it and in `library`.
    """

    def __init__(self, arguments: Sequence[Argument], source: str, entry_name: str, library: ctypes.CDLL) -> None:
        self.arguments = tuple(arguments)
        self.source = source
        self.entry_name = entry_name
        self._dtypes = [np.dtype(a.dtype) for a in arguments]
        pointers = [ctypes.c_void_p] * len(arguments)
        self._call = library[entry_name]
        self._call.restype, self._call.argtypes = None, pointers
        self._seconds = library[f"{entry_name}_seconds"]
        self._seconds.restype, self._seconds.argtypes = ctypes.c_double, [ctypes.c_int64, *pointers]

    def __call__(self, *arrays: Any) -> None:
        """Run once.  Raises CallError when the arrays do not fit."""
        self._call(*self._pointers(self._checked(arrays)))

    def time(self, *arrays: Any, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0) -> Timing:
        """Time the program: `repeat` timings, each the mean in seconds of at least `number` calls in a row.

        The calls are made and timed in C, after one that is not counted.  `number` grows until one repeat takes
        `min_repeat_ms` milliseconds.  Raises CallError when the arrays do not fit.
        """
        require(number >= 1 and repeat >= 1, CallError, self.entry_name, "number and repeat must be positive",
                number=number, repeat=repeat)  # fmt: skip
        held = self._checked(arrays)
        pointers = self._pointers(held)
        self._seconds(1, *pointers)
        results = []
        for _ in range(repeat):
            number, seconds = long_enough(lambda n: float(self._seconds(n, *pointers)), number, min_repeat_ms * 1e-3)
            results.append(seconds / number)
        return Timing(tuple(results))

    def time_evaluator(
        self, entry_name: str, dev: Any = None, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0
    ) -> Callable[..., Timing]:
        """A function that times the program on the arrays it is given; see `time`.  `dev` must be a CPU, or None."""
        require(entry_name == self.entry_name, CallError, "time_evaluator",
                f"the only entry is {self.entry_name!r}", entry_name=entry_name)  # fmt: skip
        kind = getattr(dev, "device_type", "cpu")
        require(kind in ("cpu", "c", "llvm", 1), CallError, "time_evaluator", "the program runs on the CPU", device=dev)
        return lambda *arrays: self.time(*arrays, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)

    def _pointers(self, arrays: Sequence[Array]) -> list[int]:
        return [a.ctypes.data for a in arrays]

    def _checked(self, arrays: tuple[Any, ...]) -> list[Array]:
        args, subject = self.arguments, self.entry_name
        if len(arrays) != len(args):
            names = ", ".join(f"{a.name}{list(a.shape)}" for a in args)
            raise CallError(f"{subject}: {len(args)} arrays are needed ({names}), got {len(arrays)}")
        held = [self._argument(k, item) for k, item in enumerate(arrays)]
        self._check_apart(held)
        return held

    def _argument(self, k: int, item: Any) -> Array:
        argument = self.arguments[k]
        if type(item) is np.ndarray and item.dtype == self._dtypes[k] and item.shape == argument.shape:
            flags = item.flags
            if flags.c_contiguous and (flags.writeable or not argument.written):
                return item
        return self._unusual_argument(argument, k, item)

    def _unusual_argument(self, argument: Argument, k: int, item: Any) -> Array:
        """An array that is not NumPy's own, or does not fit.  Raises CallError for the latter."""
        where = f"{self.entry_name}: argument {k} ({argument.name})"
        require(in_host_memory(item), CallError, where, "must be a NumPy array", type=type(item).__name__)
        a = np.asarray(item)
        if a.dtype != self._dtypes[k] or a.shape != argument.shape:
            wanted = f"{self._dtypes[k]} of shape {argument.shape}"
            raise CallError(f"{where}: must be {wanted}, got {a.dtype} of shape {a.shape}")
        require(a.flags.c_contiguous, CallError, where, "must be C-contiguous", strides=a.strides)
        require(a.flags.writeable or not argument.written, CallError, where, "is written, it must not be read-only")
        return a

    def _check_apart(self, arrays: list[Array]) -> None:
        for k, argument in enumerate(self.arguments):
            if not argument.written:
                continue
            for j, other in enumerate(arrays):
                if j != k and np.may_share_memory(arrays[k], other):
                    a, b = argument.name, self.arguments[j].name
                    raise CallError(f"{self.entry_name}: {a} is written, it must not share memory with {b}")


def build(
    func: LoweredFunc, name: str | None = None, options: Options | None = None, timeout: float | None = None,
    flags: Sequence[str] = FLAGS,
) -> Module:  # fmt: skip
    """Compile a lowered program; `name` replaces its name, `timeout` bounds the compiler (seconds), `flags` are its.

    Raises EmitError for programs that need thread blocks and CompileError when the compiler is missing or fails.
    """
    source = emit(func, name, options)
    made: Callable[..., Module] = required_part("open_module") if func.sizes else Module
    return made(arguments_of(func), source, entry_name(func, name), load(source, timeout, flags))
