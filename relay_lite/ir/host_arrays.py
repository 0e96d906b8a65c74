"""What users give as arrays, as NumPy arrays."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from .nodes import Array


@runtime_checkable
class ArrayObject(Protocol):
    """An array on a device, such as those of `ansor.nd` and of PyTorch."""

    def numpy(self) -> Array:
        """Its elements in the memory of this machine."""


def host_array(value: Any) -> Array:
    """The elements of an array object, a NumPy array, or what NumPy makes an array of."""
    return np.asarray(value.numpy() if isinstance(value, ArrayObject) else value)
