"""Tensor maps: what the copy engine of a Hopper is told of arrays, as the driver's library encodes it.

It needs the addresses of the arrays, so maps are made for each launch; the same ones of the same addresses once.
Kernels that take them are launched here: PyCUDA hands over all arguments in one piece, which the driver puts where the
parameters of a kernel may begin (0x210 on sm_90), and not where those of a kernel with maps do, at the next multiple
of 64: an illegal instruction on an H200.  So each argument is handed over by its address.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from itertools import accumulate
from operator import mul
from typing import Any

from ..program.cuda_program import MAP_BYTES, MAP_TYPES, SWIZZLES, TensorMap
from ..program.errors import DeviceError

Numbers = tuple[int, ...]


def map_numbers(m: TensorMap) -> tuple[int, int, Numbers, Numbers, Numbers, Numbers, int, int, Numbers]:
    """What `cuTensorMapEncodeTiled` takes besides the address, innermost axes first.

    They are the numbers of the dtype and of the axes; the extents, the bytes from element to element along all axes but
    the innermost one, the box, and the steps; the number of the swizzle.  Of windows, for `cuTensorMapEncodeIm2col`,
    4 follows, and the upper and the lower corner; of others 0, and nothing.
    """
    sizes, box, steps, margins = [x[::-1] for x in (m.extents, m.box, m.steps, m.margins)]
    strides = tuple([MAP_BYTES[m.dtype] * n for n in accumulate(sizes[:-1], mul)])
    end = SWIZZLES[m.swizzle], len(margins), tuple([-n for n in margins])
    return MAP_TYPES[m.dtype], len(sizes), sizes, strides, box, steps, *end


def encode_map(
    address: int, dtype: int, rank: int, extents: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...],
    steps: tuple[int, ...], swizzle: int, numbers: int, corners: tuple[int, ...],
) -> bytes:  # fmt: skip
    """A map of the array at an address; it fetches lines of 128 bytes into L2, and zeros from outside of the array."""
    room = ctypes.create_string_buffer(192)
    place = ctypes.c_void_p(-(-ctypes.addressof(room) // 64) * 64)
    windows = [(ctypes.c_int * 2)(*corners[2:]), (ctypes.c_int * 2)(*corners[:2]), box[0], box[-1]]
    call, sizes = ("Im2col", windows) if numbers else ("Tiled", [(ctypes.c_uint32 * 5)(*box)])
    code = getattr(ctypes.CDLL("libcuda.so.1"), f"cuTensorMapEncode{call}")(
        place, dtype, rank, ctypes.c_void_p(address), (ctypes.c_uint64 * 5)(*extents), (ctypes.c_uint64 * 4)(*strides),
        *sizes, (ctypes.c_uint32 * 5)(*steps), 0, swizzle, 2, 0,
    )  # fmt: skip
    if code:
        raise RuntimeError(f"cuTensorMapEncode{call}: error {code}")
    return ctypes.string_at(place, 128)


@functools.lru_cache(maxsize=4096)
def encoded(m: TensorMap, address: int) -> bytes:
    """The map of an array at an address.  Raises DeviceError."""
    try:
        return encode_map(address, *map_numbers(m))
    except (OSError, AttributeError, RuntimeError) as error:
        raise DeviceError(f"tensor map: the driver does not make {m} of address {address:#x}: {error}") from error


@functools.lru_cache(maxsize=1024)
def kernel_params(*values: int | bytes) -> Any:
    """The addresses of what a kernel is called with, and behind them the values, at multiples of 64 bytes.

    Tensor maps are bytes, all others are integers, and as long here; of a shorter parameter the driver reads the first
    bytes (all machines with CUDA are little-endian).  Launches of the same values share them, so nobody writes there.
    """
    room = (ctypes.c_uint64 * (17 * len(values) + 8))()
    start = -(-(ctypes.addressof(room) + 8 * len(values)) // 64) * 64
    data = b"".join([value if isinstance(value, bytes) else value.to_bytes(128, "little") for value in values])
    room[: len(values)] = [*range(start, start + len(data), 128)]
    ctypes.memmove(start, data, len(data))
    return room


class MapKernel:
    """A kernel that takes tensor maps, called as those of PyCUDA are; it is unloaded when nobody has it any more."""

    def __init__(self, cubin: bytes, name: str, dynamic_bytes: int) -> None:
        self._driver, self._name = ctypes.CDLL("libcuda.so.1"), name
        module, self._function, most_dynamic = ctypes.c_void_p(), ctypes.c_void_p(), 8
        self._driver.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        weakref.finalize(self, self._driver.cuModuleUnload, module).atexit = False  # then the context may have gone
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        self._call("cuFuncSetAttribute", self._function, most_dynamic, dynamic_bytes)

    def prepared_async_call(self, grid: Numbers, block: Numbers, stream: Any, *values: Any, shared_size: int) -> None:
        """Queue it on a stream of PyCUDA (None: the default one).  Raises DeviceError."""
        queue = stream and stream.handle
        self._call("cuLaunchKernel", self._function, *grid, *block, shared_size, queue, kernel_params(*values), None)

    def _call(self, call: str, *values: Any) -> None:
        code = getattr(self._driver, call)(*values)
        if code:
            raise DeviceError(f"kernel {self._name}: {call}: error {code}")
