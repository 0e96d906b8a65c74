"""Where the arrays of a task are looked at between runs: on the device that holds them, or through copies on the host.

The host's look is the definition (`check.py`).  A device only ever acquits: what it does not find right is copied to
the host and judged there, which also says what is wrong.  So a right program of a task moves no array between device
and host, and a check takes as long as reading the arrays once on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from te_lite.computation.tensor import Tensor

from ..core.device.backend import Array, ChecksArrays, Device
from .check import Accepted, mismatch, poison_value


class ArrayChecks(Protocol):
    """Looks at the arrays of one device.  What `keep` and `keep_bounds` give is handed back with each question."""

    def keep(self, array: Array) -> Any:
        """What `same` compares with."""

    def keep_bounds(self, right: Accepted) -> Any:
        """What `wrong` compares with."""

    def poison(self, handle: Any, tensor: Tensor) -> None:
        """Fill the array of an output before a run."""

    def wrong(self, handle: Any, right: Accepted, kept: Any) -> str:
        """What is wrong with an output, as `check.mismatch` says it; empty when nothing is."""

    def same(self, handle: Any, array: Array, kept: Any) -> bool:
        """Whether an array on the device holds the bits of `array`."""


class OnHost:
    """Copies arrays of any device to the host and back."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def keep(self, array: Array) -> Any:
        """Nothing: the host has it."""

    def keep_bounds(self, right: Accepted) -> Any:
        """Nothing: the host has them."""

    def poison(self, handle: Any, tensor: Tensor) -> None:
        self._device.write(handle, np.broadcast_to(poison_value(tensor.dtype), tensor.shape))

    def wrong(self, handle: Any, right: Accepted, kept: Any) -> str:
        return mismatch(self._device.get(handle), right)

    def same(self, handle: Any, array: Array, kept: Any) -> bool:
        return same_bits(self._device.get(handle), array)


class OnDevice(OnHost):
    """Lets the device look first, at copies it keeps of the inputs and of the bounds of outputs."""

    def __init__(self, device: ChecksArrays) -> None:
        super().__init__(device)
        self._checks = device

    def keep(self, array: Array) -> Any:
        return self._checks.put(array)

    def keep_bounds(self, right: Accepted) -> Any:
        nan = np.empty(0, bool) if right.nan is None else right.nan
        return [self._checks.put(array) for array in (right.low, right.high, nan)]

    def poison(self, handle: Any, tensor: Tensor) -> None:
        self._checks.fill(handle, poison_value(tensor.dtype))

    def wrong(self, handle: Any, right: Accepted, kept: Any) -> str:
        return "" if self._checks.within(handle, *kept) else super().wrong(handle, right, kept)

    def same(self, handle: Any, array: Array, kept: Any) -> bool:
        return self._checks.same(handle, kept) or super().same(handle, array, kept)


def array_checks(device: Device, outputs: Sequence[Tensor], needed: int) -> ArrayChecks:
    """The checks of a task whose arrays are on `device`: there, if it can judge all outputs and has the memory.

    Copies of inputs and bounds, `needed` bytes, take half of what is free at most; programs may need the rest.
    """
    if not isinstance(device, ChecksArrays) or not all(device.judges(t.dtype) for t in outputs):
        return OnHost(device)
    return OnDevice(device) if needed <= device.free_bytes() // 2 else OnHost(device)


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays of one dtype and shape hold the same bits."""
    kind = f"u{a.dtype.itemsize}"
    return bool((np.ascontiguousarray(a).view(kind) == np.ascontiguousarray(b).view(kind)).all())
