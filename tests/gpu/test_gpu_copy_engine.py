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
from codegen_cuda.driver.tensor_maps import encoded  # noqa: E402
from codegen_cuda.program.cuda_program import TensorMap  # noqa: E402
from tests.ansor_ext.tensor_core.test_emulated_copies import (  # noqa: E402
    BOXES,
    LOAD,
    ROUNDED,
    STORE,
    STORED,
    Box,
    assert_bits,
    kernel,
    unswizzled,
)
from tests.ansor_ext.tensor_core.test_emulated_windows import HEAD, WINDOWS, Windows  # noqa: E402

STATIC = 1 << 15


def called(name: str, *args: Any) -> None:
    code = ctypes.CDLL("libcuda.so.1")[name](*args)
    assert code == 0, f"{name}: error {code}"


def map_of(box: Box | Windows, address: int) -> Any:
    """A map, made by the driver."""
    if isinstance(box, Windows):
        return ctypes.create_string_buffer(encoded(box.map(), address))
    steps = box.steps or (1,) * len(box.shape)
    made = TensorMap(0, box.map_dtype, box.shape, box.box, steps, box.swizzle)
    return ctypes.create_string_buffer(encoded(made, address))


def run(source: str, box: Box | Windows, array: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The array and the bytes beside it, behind the kernel."""
    device, module, function = open_device(), ctypes.c_void_p(), ctypes.c_void_p()
    held, beside = device.put(array), device.put(other)
    called("cuModuleLoadData", ctypes.byref(module), compile_source(source, "sm_90a").cubin)
    called("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    made, pointer = map_of(box, held.pointer), ctypes.c_void_p(beside.pointer)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(made), ctypes.addressof(pointer))
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


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_loaded(name: str) -> None:
    windows = WINDOWS[name]
    array = windows.array()
    _, out = run(kernel(HEAD, windows.body, STATIC), windows, array, np.zeros(windows.nbytes, np.uint8))
    got = unswizzled(out, windows.swizzle).view(windows.dtype).reshape(windows.pixels, windows.channels)
    np.testing.assert_array_equal(got, windows.want(array))


@pytest.mark.parametrize("kind", ROUNDED)
def test_floats_are_rounded_on_their_way(kind: str) -> None:
    """Bit by bit, by maps of `CU_TENSOR_MAP_DATA_TYPE_TFLOAT32`."""
    box = ROUNDED[kind]
    body = LOAD.format(nbytes=box.nbytes, load=box.text("load"))
    source = kernel("const __grid_constant__ TensorMap M, unsigned char *out", body, STATIC)
    array = box.array()
    _, out = run(source, box, array, np.zeros(box.nbytes, np.uint8))
    assert_bits(box, out, array)


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
