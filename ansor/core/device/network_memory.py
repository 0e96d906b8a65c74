"""The storages of a network in the memory of this machine: what executors that compute on the host are made of."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require

from ..errors import GraphError
from .nd import ALIGNMENT, DeviceId, NDArray, aligned_empty, cpu, in_host_memory
from .network_backend import Array, CompiledNetwork


class HostMemory:
    """All of an `Executor` but its runs; `arena` is memory that the steps share, `device` is what arrays say."""

    def __init__(self, network: CompiledNetwork, device: DeviceId | None = None) -> None:
        self.plan = network.plan
        self.device = cpu() if device is None else device
        self.arena = aligned_empty((max(self.plan.arena_bytes, 1),), np.uint8)
        self._memory: dict[int, Array] = {}
        for k, storage in enumerate(self.plan.storages[: self.plan.externals]):
            self.use(k, aligned_empty((storage.nbytes,), np.uint8))
        for place in self.plan.params:
            if place.name in network.lent:
                self.point(place.storage, network.lent[place.name])
            else:
                self.use(place.storage, network.aligned_value(place.name).reshape(-1).view(np.uint8))

    def use(self, storage: int, memory: Array) -> None:
        """Let `memory`, as bytes, be that of a storage outside the arena from now on."""
        self._memory[storage] = memory

    def bytes_of(self, storage: int) -> Array:
        """The bytes of a storage."""
        whole, start = self.plan.place(storage)
        memory = self.arena if whole is None else self._memory[whole]
        return memory[start : start + self.plan.storages[storage].nbytes]

    def write(self, storage: int, array: Array) -> None:
        if not self._memory[storage].flags.writeable:
            self.use(storage, aligned_empty((self.plan.storages[storage].nbytes,), np.uint8))
        self._memory[storage].view(array.dtype)[...] = array.reshape(-1)

    def array(self, storage: int, shape: Sequence[int], dtype: str) -> NDArray:
        return NDArray(self._memory[storage].view(dtype).reshape(tuple(shape)), self.device)

    def attach(self, storage: int, array: Any) -> None:
        law = "an array of this machine is needed"
        require(in_host_memory(array), GraphError, "zero copy", law, type=type(array).__name__)
        host = np.asarray(array)
        sound = host.flags.c_contiguous and host.ctypes.data % ALIGNMENT == 0
        law = f"the array must be contiguous and start at a multiple of {ALIGNMENT} bytes"
        require(sound, GraphError, "zero copy", law, address=hex(host.ctypes.data), strides=host.strides)
        written = any(self.plan.place(s)[0] == storage for step in self.plan.steps for s in step.written)
        law = "the network writes to this tensor, so the array must be writeable"
        require(host.flags.writeable or not written, GraphError, "zero copy", law)
        self.use(storage, host.reshape(-1).view(np.uint8))

    def point(self, storage: int, address: int) -> None:
        nbytes = self.plan.storages[storage].nbytes
        self.use(storage, np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)))

    def point_arena(self, address: int) -> None:
        self.arena = np.ctypeslib.as_array((ctypes.c_uint8 * max(self.plan.arena_bytes, 1)).from_address(address))

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def flush(self, nbytes: int) -> None:
        np.full(nbytes, 1, np.uint8)
