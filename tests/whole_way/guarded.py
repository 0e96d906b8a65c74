"""Arrays between guard zones: what is written before or behind them, to an input, or not at all, is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from te_lite.loops.stmt import Buffer

from .bounded import Value, mismatch

Array = np.ndarray[Any, np.dtype[Any]]
GUARD = 512
PATTERN = 0xA5
POISON = {"bfloat16": 0x7FDA, "float16": 0x7E5A, "float32": 0x7FDA5A5A, "float64": 0x7FFDA5A5A5A5A5A5}
"""A NaN that no operation makes: what is not written, or read before it is, shows it even where a NaN is wanted."""


class Arrays:
    """The arguments of one program: copies of the inputs, and poisoned outputs."""

    def __init__(self, args: tuple[Buffer, ...], names: list[str], inputs: Mapping[str, Array]) -> None:
        self.names, self.inputs = names, inputs
        self.whole = [np.full(b.size * np.dtype(b.dtype).itemsize + 2 * GUARD, PATTERN, np.uint8) for b in args]
        self.views = [w[GUARD:-GUARD].view(b.dtype).reshape(b.shape) for w, b in zip(self.whole, args, strict=True)]
        for view, name in zip(self.views, names, strict=True):
            if name in inputs:
                view[...] = inputs[name]
            elif view.dtype.name in POISON:
                _bits(view).fill(POISON[view.dtype.name])

    def wrong(self, wanted: Mapping[str, Value]) -> str | None:
        """What a program did wrong, or None."""
        for view, whole, name in zip(self.views, self.whole, self.names, strict=True):
            if (whole[:GUARD] != PATTERN).any() or (whole[-GUARD:] != PATTERN).any():
                return f"{name}: written outside of the array"
            if name in self.inputs:
                if view.tobytes() != self.inputs[name].tobytes():
                    return f"{name}: the input was changed"
                continue
            if view.dtype == bool and (view.view(np.uint8) > 1).any():
                return f"{name}: some elements are not written"
            if view.dtype.name in POISON and (_bits(view) == POISON[view.dtype.name]).any():
                return f"{name}: some elements are not written, or made of what was not written"
            text = mismatch(wanted[name], view)
            if text:
                return f"{name}{text}"
        return None


def _bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")
