"""The geometry that convolutions and pools share: layouts and windows.

A layout is a string with a letter for each dimension: N (batch), C (channels) and the spatial ones, D, H and W; a
kernel has O and I (output and input channels).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansor.core.values.checks import require_tensor
from te_lite.errors import require
from te_lite.topi.nn import get_pad_tuple_generic
from te_lite.topi.utils import conv_extent, per_dim

from ..ir.errors import GraphError
from .define import Array, Shape, integers
from .numpy_windows import windows

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def check_layout(layout: Any, letters: str, what: str) -> str:
    """`layout`, which must be `letters` in some order."""
    ok = isinstance(layout, str) and sorted(layout) == sorted(letters)
    require(ok, GraphError, what, f"the layout must be {letters} in some order", layout=layout)
    return str(layout)


def pick(shape: Sequence[int], layout: str, letters: str) -> Shape:
    """The extents of `letters`, in their order."""
    return tuple(shape[layout.index(letter)] for letter in letters)


def to_layout(x: Array, layout: str, target: str) -> Array:
    """`x` with its dimensions in another order (a view)."""
    return np.transpose(x, [layout.index(letter) for letter in target])


@dataclass(frozen=True)
class Window:
    """Windows over the spatial dimensions; all tuples have one entry for each of them."""

    kernel: Shape
    strides: Shape
    dilation: Shape
    before: Shape
    after: Shape

    @staticmethod
    def of(kernel: Any, strides: Any, dilation: Any, padding: Any, n: int, what: str) -> Window:
        """From attributes, where one integer stands for all.  `padding`: one integer, n, or n befores and n afters."""
        sizes = per_dim(kernel, n, f"{what} kernel")
        steps, spread = per_dim(strides, n, f"{what} strides"), per_dim(dilation, n, f"{what} dilation")
        positive = min(*sizes, *steps, *spread) > 0
        require(positive, GraphError, what, "kernel, strides and dilation must be at least 1", kernel=sizes,
                strides=steps, dilation=spread)  # fmt: skip
        before, after = pads(padding, n, what)
        return Window(sizes, steps, spread, before, after)

    def extents(self, size: Shape, what: str, extra: Sequence[int] = ()) -> Shape:
        """How many windows fit in each dimension; `extra` room at the end is allowed."""
        room = extra or (0,) * len(size)
        rows = list(zip(size, self.kernel, self.strides, self.before, self.after, self.dilation, room, strict=True))
        fits = all((k - 1) * d + 1 <= n + b + a + r for n, k, _, b, a, d, r in rows)
        require(fits, GraphError, what, "the window must fit into the padded data", data=size,
                kernel=self.kernel, padding=self.before + self.after)  # fmt: skip
        out = tuple(conv_extent(n, k, s, b, a + r, d) for n, k, s, b, a, d, r in rows)
        whole = [n + b + a + r for n, b, a, r in zip(size, self.before, self.after, room, strict=True)]
        require_tensor(whole, "int8", f"{what}, the padded data")
        return out

    @property
    def padding(self) -> Shape:
        """All befores, then all afters."""
        return self.before + self.after

    def padded(self, x: Array, value: Any, extra: Sequence[int] = ()) -> Array:
        """`x` [.., spatial] surrounded by `value`."""
        room = extra or (0,) * len(self.kernel)
        sides = [(b, a + r) for b, a, r in zip(self.before, self.after, room, strict=True)]
        return np.pad(x, [(0, 0)] * (x.ndim - len(sides)) + sides, constant_values=value)

    def view(self, padded: Array) -> Array:
        """Every window of `padded` [.., spatial]: a view [.., positions, kernel]."""
        return windows(padded, self.kernel, self.strides, self.dilation)


def pads(padding: Any, n: int, what: str) -> tuple[Shape, Shape]:
    """The padding before and after: one integer, one a dimension, or all befores and then all afters."""
    values = integers(padding, what)
    law = f"1, {n} or {2 * n} amounts of padding are needed"
    require(len(values) in (1, n, 2 * n), GraphError, what, law, padding=padding)
    before, after = get_pad_tuple_generic(values[0] if len(values) == 1 else values, (1,) * n)
    require(min(*before, *after) >= 0, GraphError, what, "padding must not be negative", padding=padding)
    return before, after


def repeated(value: Any, n: int, what: str) -> Shape:
    """An integer or integers as a tuple, where a single one stands for all `n` dimensions."""
    values = integers(value, what)
    return values * n if len(values) == 1 else values


def all_sides(padding: Any, n: int, what: str) -> Shape:
    """The padding as all befores, then all afters: the form in which calls keep it."""
    before, after = pads(padding, n, what)
    return before + after
