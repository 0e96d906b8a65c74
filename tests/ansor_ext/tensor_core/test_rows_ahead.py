"""Rows that groups of warps load an iteration ahead: in which order, and that nothing is read or written too early."""

from __future__ import annotations

import ctypes
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from codegen_cuda import emit
from codegen_cuda.driver import nvrtc
from codegen_cuda.driver.toolkit import include_folders
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from tests.ansor_ext.tensor_core.mma_schedules import GROUPS, Tiled

FLOATS = GROUPS["tf32, four tiles"]


def program(of: Tiled) -> te.LoweredFunc:
    tensors = of.tensors()
    return te.lower(of.schedule(tensors), tensors)


@pytest.mark.parametrize(
    "of, ahead",
    [(FLOATS, True), (replace(FLOATS, tiles=5), True), (replace(FLOATS, tiles=3), False),
     (replace(GROUPS["half, two tiles of rows a warp"], sizes=(128, 64, 330), tiles=4), True),
     (GROUPS["tf32x3"], False), (GROUPS["half"], False)],
)  # fmt: skip
def test_rows_of_the_next_turn_are_loaded_while_this_one_multiplies(of: Tiled, ahead: bool) -> None:
    """Where they are loaded at all and a tile is to spare; floats in parts are cut between two barriers."""
    source = emit(program(of)).source
    iteration = source[source.index("for (int k_0 = 0") :]
    order = re.findall(r"__syncthreads|copy_async<|ldmatrix_x4|wgmma_m|wgmma_wait", iteration)
    found = [x for k, x in enumerate(order) if k == 0 or x != order[k - 1]]
    assert (found[:2] == ["wgmma_m", "__syncthreads"]) == ahead
    if ahead:
        assert " ".join([x for x in found if x != "copy_async<"]) == "wgmma_m __syncthreads ldmatrix_x4 wgmma_wait"


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize(
    "old, new, found",
    [("      __syncthreads();\n", "", "asynchronous copy"), ("wait_all_but<1>", "wait_all_but<2>", "asynchronous copy"),
     ("  wgmma_wait_24_f32(C_local + 0);\n", "", "wrong"), ("(k_0 + 3) & 3", "k_0 & 3", "asynchronous copy"),
     ("((k_0 + 1) & 3)", "(k_0 & 3)", "wrong")],
)  # fmt: skip
@pytest.mark.one_in(2)
def test_what_comes_too_early_is_caught(old: str, new: str, found: str) -> None:
    made = emit(program(FLOATS))
    start = made.source.index("for (int k_0 = 0")
    assert old in made.source[start:]
    a, b = FLOATS.inputs(np.random.default_rng(0))
    out = np.full(FLOATS.sizes[:2], 77, np.float32)
    spoilt = replace(made, source=made.source[:start] + made.source[start:].replace(old, new))
    try:
        run_program(spoilt, [a, b, out])
    except EmulatorError as error:
        assert found in str(error)
        return
    assert FLOATS.wrong(a, b, out) is not None and found == "wrong"


def ptx(source: str) -> str:
    """What NVRTC makes of a source for Hopper."""
    lib, made, size = nvrtc.library(), ctypes.c_void_p(), ctypes.c_size_t()
    assert lib is not None
    words = [b"--gpu-architecture=compute_90a", *[f"--include-path={f}".encode() for f in include_folders()]]
    assert not lib.nvrtcCreateProgram(ctypes.byref(made), source.encode(), b"program.cu", 0, None, None)
    assert not lib.nvrtcCompileProgram(made, len(words), (ctypes.c_char_p * len(words))(*words))
    assert not lib.nvrtcGetPTXSize(made, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    assert not lib.nvrtcGetPTX(made, text)
    lib.nvrtcDestroyProgram(ctypes.byref(made))
    return text.value.decode()


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["half, two tiles of rows a warp", "tf32, four tiles", "int8"])
def test_no_row_is_loaded_into_a_register_of_a_product_that_goes_on(name: str) -> None:
    """To a compiler a product is through where it begins, so that it puts the next rows where the last ones were."""
    columns, terms = GROUPS[name].block[1:]
    of = replace(
        GROUPS[name], sizes=(128, columns, 40 * terms), block=(128, columns, terms), warp=(32, columns), tiles=4
    )
    going_on: set[str] = set()
    products = 0
    for line in ptx(emit(program(of)).source).splitlines():
        registers = [set(found.split(", ")) for found in re.findall(r"\{(%[^}]*)\}", line)]
        if "wgmma.mma_async" in line:
            products, going_on = products + 1, going_on | registers[1]
        elif "wgmma.wait_group" in line:
            going_on.clear()
        elif "ldmatrix" in line:
            assert not going_on & registers[0]
    assert products > 0
