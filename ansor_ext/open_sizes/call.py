"""Programs for all sizes as functions of NumPy arrays, whose shapes say what the sizes are."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ansor.core.device.exported_program import Argument
from codegen_c.errors import CallError
from codegen_c.module import Module
from te_lite.errors import require
from te_lite.expr.expr import SizeVar
from te_lite.timing import Timing

MOST_KEPT = 64


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
        """The program for the sizes of these arrays.  Raises CallError where they are out of bounds or differ."""
        sizes = sizes_of(self.entry_name, self.arguments, [np.shape(a) for a in arrays])
        key = tuple(sizes.values())
        if key not in self._kept:
            if len(self._kept) == MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
            arguments = [replace(a, shape=extents_at(a.shape, sizes)) for a in self.arguments]
            self._kept[key] = _Sized(arguments, self.source, self.entry_name, self._library, key)
        return self._kept[key]


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


def extents_at(dims: Sequence[Any], sizes: Mapping[SizeVar, int]) -> tuple[int, ...]:
    """The extents, those that are open at some sizes."""
    return tuple([sizes.get(d, 0) if isinstance(d, SizeVar) else int(d) for d in dims])


def sizes_of(subject: str, arguments: Sequence[Argument], shapes: Sequence[tuple[int, ...]]) -> dict[SizeVar, int]:
    """The value of each size, in the order in which arguments have them.

    Raises CallError where a size has several values or one out of its bounds.
    """
    found: dict[SizeVar, int] = {}
    for argument, shape in zip(arguments, shapes, strict=False):
        for d, n in zip(argument.shape, shape, strict=False):
            if isinstance(d, SizeVar):
                least, most = d.range
                law = f"{d.name} must be {least} to {most}, the same in all arguments"
                ok = found.setdefault(d, int(n)) == n and least <= n <= most
                require(ok, CallError, f"{subject}: {argument.name}", law, got=n)
    return found
