"""Vectors that are read and written in part: 7 floats are a vector of 8 of which one lane is not used."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace

import numpy as np
import pytest

import codegen_c
import te_lite as te

OPTIONS = codegen_c.host_options()
pytestmark = pytest.mark.skipif(not OPTIONS.masks, reason="the processor has no masked vectors (AVX-512VL)")
PROT_NONE = 0


def rows(lanes: int, dtype: str) -> te.LoweredFunc:
    """out[i, j] = a[i, j] * b[j] + max(a[i, j], b[j]) over 3 rows, the j loop vectorized."""
    a, b = te.placeholder((3, lanes), dtype, name="a"), te.placeholder((lanes,), dtype, name="b")
    out = te.compute((3, lanes), lambda i, j: a[i, j] * b[j] + te.max(a[i, j], b[j]), name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize(s[out].op.axis[1])
    return te.lower(s, [a, b, out])


def before_a_wall(array: np.ndarray) -> tuple[np.ndarray, mmap.mmap]:
    """A copy of `array` that ends where memory ends: to touch the byte behind it is a segmentation fault."""
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + size), page, PROT_NONE) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy, memory


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("lanes", [3, 5, 7, 9, 13, 15, 21, 31])
def test_no_byte_behind_an_array_is_touched(lanes: int, dtype: str) -> None:
    rng = np.random.default_rng(lanes)
    func = rows(lanes, dtype)
    a, b = [rng.integers(-9, 9, s).astype(dtype) for s in ((3, lanes), (lanes,))]
    walled = [before_a_wall(x) for x in (a, b, np.full((3, lanes), 77, dtype))]
    codegen_c.build(func, options=OPTIONS)(*[x for x, _ in walled])
    assert np.array_equal(walled[2][0], a * b + np.maximum(a, b))


def test_seven_floats_are_one_vector() -> None:
    source = codegen_c.emit(rows(7, "float32"), options=OPTIONS)
    assert source.count("load7_f32x8(&") == 4 and source.count("store7_f32x8(&") == 1
    whole = codegen_c.emit(rows(7, "float32"), options=replace(OPTIONS, masks=False))
    assert "%{z%}" in source and "%{z%}" not in whole and "f32x4" in whole and "f32x2" in whole


def test_eight_bit_numbers_have_no_masks() -> None:
    assert "%{" not in codegen_c.emit(rows(7, "int8"), options=OPTIONS)
