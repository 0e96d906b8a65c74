"""Vectors of integers in other dtypes: in steps of a factor of two, and with NumPy's values."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

import codegen_c
import te_lite as te

INTO = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")


def conversions(source: str) -> te.LoweredFunc:
    """One vectorized stage for every dtype that the elements become."""
    x = te.placeholder((16,), source, name="x")
    outs = [te.compute((16,), lambda i, d=d: te.cast(d, x[i]) + te.cast(d, x[i]), name=f"to_{d}") for d in INTO]
    s = te.create_schedule([out.op for out in outs])
    for out in outs:
        s[out].vectorize(s[out].op.axis[0])
    return te.lower(s, [x, *outs])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("source", [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)])
def test_integers_in_other_dtypes(source: str) -> None:
    info = np.iinfo(source)
    drawn = np.random.default_rng(1).integers(info.min, info.max, 14, source, endpoint=True)
    x = np.concatenate([drawn, np.array([info.min, info.max], source)])
    outs = [np.full(16, 77, d) for d in INTO]
    codegen_c.build(conversions(source))(x, *outs)
    with np.errstate(over="ignore"):
        for out in outs:
            np.testing.assert_array_equal(out, x.astype(out.dtype) + x.astype(out.dtype))


def test_eight_bits_are_widened_by_way_of_sixteen() -> None:
    text = codegen_c.emit(conversions("int8"))
    assert re.search(r"__builtin_convertvector\(__builtin_convertvector\(.*, i16x\d+\), i32x\d+\)", text)
