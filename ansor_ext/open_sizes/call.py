"""Programs for all sizes as functions of NumPy arrays, whose shapes say what the sizes are."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ansor.core.device.exported_program import Argument
from codegen_c.errors import CallError
from codegen_c.module import Module
from te_lite.timing import Timing

from .sizes import Sizes, arguments_at, kept, sizes_of


class OpenModule(Module):
    """As `Module`, for arrays of all sizes; the extents of its `arguments` are numbers and `SizeVar`s."""

    def __init__(self, arguments: Sequence[Argument], source: str, entry_name: str, library: ctypes.CDLL) -> None:
        super().__init__(arguments, source, entry_name, library)
        self._library = library
        self._kept: dict[tuple[int, ...], Module] = {}

    def __call__(self, *arrays: Any) -> None:
        """Run once.  Raises CallError when the arrays do not fit."""
        self.at(arrays)(*arrays)

    def time(self, *arrays: Any, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0) -> Timing:
        """See `Module`."""
        return self.at(arrays).time(*arrays, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)

    def at(self, arrays: Sequence[Any]) -> Module:
        """The program for the sizes of these arrays.  Raises CallError where they do not fit it."""
        return self.at_sizes(self.sizes(arrays))

    def sizes(self, arrays: Sequence[Any]) -> Sizes:
        """The sizes of these arrays.  Raises CallError where they do not fit."""
        return sizes_of(self.entry_name, self.arguments, arrays, CallError)

    def at_sizes(self, sizes: Sizes) -> Module:
        """The program for some sizes."""
        return kept(self._kept, tuple(sizes.values()), lambda: self._sized(sizes))

    def _sized(self, sizes: Sizes) -> Module:
        arguments = arguments_at(self.arguments, sizes)
        return _Sized(arguments, self.source, self.entry_name, self._library, tuple(sizes.values()))


class _Sized(Module):
    """A program with numbers for its sizes, which are its last arguments."""

    def __init__(
        self, arguments: Sequence[Argument], source: str, name: str, library: ctypes.CDLL, sizes: tuple[int, ...]
    ) -> None:
        super().__init__(arguments, source, name, library)
        self._sizes = sizes
        for function in (self._call, self._seconds):
            function.argtypes = [*(function.argtypes or ()), *[ctypes.c_int64] * len(sizes)]

    def _pointers(self, arrays: Sequence[Any]) -> list[int]:
        return [*super()._pointers(arrays), *self._sizes]
