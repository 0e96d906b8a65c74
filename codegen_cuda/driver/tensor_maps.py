"""Tensor maps: what the copy engine of a Hopper is told of arrays, as the driver's library encodes it.

It needs the addresses of the arrays, so maps are made for each launch; the same ones of the same addresses once.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from itertools import accumulate
from operator import mul

from te_lite.expr.dtype import BYTES

from ..program.cuda_program import MAP_TYPES, SWIZZLES, TensorMap
from ..program.errors import DeviceError

MAP_BYTES = 128
Numbers = tuple[int, ...]


def map_numbers(m: TensorMap) -> tuple[int, int, Numbers, Numbers, Numbers, Numbers, int]:
    """What `cuTensorMapEncodeTiled` takes besides the address, innermost axes first.

    They are the numbers of the dtype and of the axes; the extents, the bytes from element to element along all axes but
    the innermost one, the box, and the steps; the number of the swizzle.
    """
    extents = m.extents[::-1]
    strides = tuple([BYTES[m.dtype] * n for n in accumulate(extents[:-1], mul)])
    return MAP_TYPES[m.dtype], len(extents), extents, strides, m.box[::-1], m.steps[::-1], SWIZZLES[m.swizzle]


def encode(
    address: int, dtype: int, rank: int, extents: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...],
    steps: tuple[int, ...], swizzle: int,
) -> bytes:  # fmt: skip
    """A map of the array at an address; it fetches lines of 128 bytes into L2, and zeros from outside of the array."""
    room = ctypes.create_string_buffer(192)
    place = ctypes.c_void_p(-(-ctypes.addressof(room) // 64) * 64)
    code = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        place, dtype, rank, ctypes.c_void_p(address), (ctypes.c_uint64 * 5)(*extents), (ctypes.c_uint64 * 4)(*strides),
        (ctypes.c_uint32 * 5)(*box), (ctypes.c_uint32 * 5)(*steps), 0, swizzle, 2, 0,
    )  # fmt: skip
    if code:
        raise RuntimeError(f"cuTensorMapEncodeTiled: error {code}")
    return ctypes.string_at(place, 128)


@lru_cache(maxsize=4096)
def encoded(m: TensorMap, address: int) -> bytes:
    """The map of an array at an address.  Raises DeviceError."""
    try:
        return encode(address, *map_numbers(m))
    except (OSError, AttributeError, RuntimeError) as error:
        raise DeviceError(f"tensor map: the driver does not make {m} of address {address:#x}: {error}") from error
