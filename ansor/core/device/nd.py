"""Arrays as the tutorials spell them: `nd.array(x, device=cpu())`, `nd.empty(shape)`, `.asnumpy()`.

A thin shell around a NumPy array, with the memory aligned to 64 bytes.  NumPy arrays serve everywhere these do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.dtype import STORED

from ..errors import BackendError, GraphError
from ..target.registry import has_programs, program_kinds
from .backend import backend

Array = np.ndarray[Any, np.dtype[Any]]
ALIGNMENT = 64


@dataclass(frozen=True)
class DeviceId:
    """A device by kind and number."""

    device_type: str
    device_id: int = 0

    def __str__(self) -> str:
        return f"{self.device_type}({self.device_id})"


def cpu(device_id: int = 0) -> DeviceId:
    """The processor of this machine."""
    return DeviceId("cpu", device_id)


def gpu(device_id: int = 0) -> DeviceId:
    """A CUDA device; arrays on it need target `cuda`."""
    return DeviceId("cuda", device_id)


def device(kind: str, device_id: int = 0) -> DeviceId:
    """The device of a target: `device("c")`, `device("cuda -arch=sm_90")`; options of the target are passed over."""
    known = {"c": "cpu", "cpu": "cpu", "llvm": "cpu", "cuda": "cuda", "gpu": "cuda"}
    require(isinstance(kind, str), BackendError, "device", "the kind is a text, such as 'c'", got=kind)
    devices = {**{name: name for name in program_kinds()}, **known}
    name = kind.partition(" ")[0]
    law = f"the kind must be one of {', '.join(devices)}"
    require(name in devices or has_programs(name), BackendError, "device", law, kind=kind)
    return DeviceId(devices.get(name, name), device_id)


def aligned_empty(shape: Sequence[int], dtype: Any) -> Array:
    """An uninitialised C-contiguous array that starts at a multiple of 64 bytes.

    Raises GraphError when there is no such memory.
    """
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    try:
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise GraphError(f"memory: this machine does not have {size} bytes for an array") from error
    start = -raw.ctypes.data % ALIGNMENT
    made: Array = raw[start : start + size].view(kind).reshape(tuple(shape))
    return made


def aligned_copy(source: Array) -> Array:
    """A C-contiguous copy that starts at a multiple of 64 bytes."""
    made = aligned_empty(source.shape, source.dtype)
    made[...] = source
    return made


class NDArray:
    """An array in the memory of this machine."""

    def __init__(self, array: Array, device: DeviceId) -> None:
        self._array = array
        self.device = device

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.dtype in STORED:  # the interface has no word for them; NumPy asks `__array__` then
            raise AttributeError(f"{self.dtype} has no array interface")
        return self._array.__array_interface__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype, copy=copy)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)

    @property
    def dtype(self) -> str:
        return str(self._array.dtype)

    def asnumpy(self) -> Array:
        """A copy on the host."""
        made: Array = self._array.copy()
        return made

    numpy = asnumpy

    def copyfrom(self, source: Any) -> NDArray:
        """Overwrite with the values of `source`."""
        self._array[...] = np.asarray(source)
        return self

    def __repr__(self) -> str:
        return f"<NDArray shape={self.shape} {self.dtype} on {self.device}>\n{self._array}"


def in_host_memory(array: Any) -> bool:
    """Whether NumPy can read an object where it lies; stored dtypes have no array interface (see `NDArray`)."""
    return isinstance(array, np.ndarray | NDArray) or hasattr(array, "__array_interface__")


class DeviceNDArray:
    """An array in the memory of a device, copied there and back by the device's backend."""

    def __init__(self, array: Array, device: DeviceId) -> None:
        self._device = backend(device.device_type).open(device.device_id)
        self._handle = self._device.put(array)
        self.shape = tuple(array.shape)
        self.dtype = str(array.dtype)
        self.device = device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        made: dict[str, Any] = self._handle.__cuda_array_interface__
        return made

    def asnumpy(self) -> Array:
        """A copy on the host."""
        return self._device.get(self._handle)

    numpy = asnumpy

    def copyfrom(self, source: Any) -> DeviceNDArray:
        """Overwrite with the values of `source`."""
        self._device.write(self._handle, np.ascontiguousarray(source, self.dtype).reshape(self.shape))
        return self

    def __repr__(self) -> str:
        return f"<NDArray shape={self.shape} {self.dtype} on {self.device}>"


def empty(shape: Sequence[int], dtype: str = "float32", device: DeviceId | None = None) -> NDArray | DeviceNDArray:
    """An uninitialised array.  Raises BackendError, or the backend's error, when the device cannot be had."""
    device = device or cpu()
    host = aligned_empty(shape, dtype)
    return NDArray(host, device) if device.device_type == "cpu" else DeviceNDArray(host, device)


def array(source: Any, device: DeviceId | None = None) -> NDArray | DeviceNDArray:
    """A copy of `source` on a device."""
    source = np.asarray(source)
    return empty(source.shape, source.dtype, device).copyfrom(source)
