"""The copy engine of a Hopper on a GPU: the boxes on which the emulator is tested, by maps that the driver makes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.driver.compile import compile_source  # noqa: E402
from codegen_cuda.driver.module import open_device  # noqa: E402
from codegen_cuda.program.cuda_program import SWIZZLES  # noqa: E402
from tests.ansor_ext.tensor_core.test_emulated_copies import (  # noqa: E402
    BOXES,
    LOAD,
    STORE,
    STORED,
    Box,
    kernel,
    unswizzled,
)

TYPES = {"int8": 0, "float16": 6, "float32": 7}
"""Of `CUtensorMapDataType`; it has no signed bytes."""
STATIC = 1 << 15


def called(name: str, *args: Any) -> None:
    code = ctypes.CDLL("libcuda.so.1")[name](*args)
    assert code == 0, f"{name}: error {code}"


def map_of(box: Box, address: int, room: Any) -> int:
    """The address of a map, made by the driver."""
    array, n = box.array(), len(box.shape)
    place = -(-ctypes.addressof(room) // 64) * 64
    steps = box.steps or (1,) * n
    called(
        "cuTensorMapEncodeTiled", ctypes.c_void_p(place), TYPES[box.dtype], n, ctypes.c_void_p(address),
        (ctypes.c_uint64 * n)(*box.shape[::-1]), (ctypes.c_uint64 * max(n - 1, 1))(*array.strides[-2::-1]),
        (ctypes.c_uint32 * n)(*box.box[::-1]), (ctypes.c_uint32 * n)(*steps[::-1]), 0, SWIZZLES[box.swizzle], 0, 0,
    )  # fmt: skip
    return place


def run(source: str, box: Box, array: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The array and the bytes beside it, behind the kernel."""
    device, module, function = open_device(), ctypes.c_void_p(), ctypes.c_void_p()
    held, beside = device.put(array), device.put(other)
    called("cuModuleLoadData", ctypes.byref(module), compile_source(source, "sm_90a").cubin)
    called("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    room, pointer = ctypes.create_string_buffer(192), ctypes.c_void_p(beside.pointer)
    arguments = (ctypes.c_void_p * 2)(map_of(box, held.pointer, room), ctypes.addressof(pointer))
    called("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, arguments, None)
    device.context.synchronize()
    return device.get(held), device.get(beside)


@pytest.fixture(autouse=True)
def hopper() -> None:
    if open_device().arch != "sm_90":
        pytest.skip("these instructions are those of sm_90")


@pytest.mark.parametrize("name", BOXES)
def test_a_box_is_loaded(name: str) -> None:
    box = BOXES[name]
    body = LOAD.format(nbytes=box.nbytes, load=box.text("load"))
    source = kernel("const __grid_constant__ TensorMap M, unsigned char *out", body, STATIC)
    array = box.array()
    _, out = run(source, box, array, np.zeros(box.nbytes, np.uint8))
    got = unswizzled(out, box.swizzle).view(box.dtype).reshape(box.counts)
    np.testing.assert_array_equal(got, box.want(array))


@pytest.mark.parametrize("name", STORED)
def test_a_box_is_stored(name: str) -> None:
    """Those that begin before their tensor on an axis end in an illegal instruction, and the context with them."""
    box = STORED[name]
    array = box.array()
    given, want = box.stored(array)
    body = STORE.format(nbytes=box.nbytes, store=box.text("store"))
    source = kernel("const __grid_constant__ TensorMap M, const unsigned char *given", body, STATIC)
    got, _ = run(source, box, array, given)
    np.testing.assert_array_equal(got, want)
