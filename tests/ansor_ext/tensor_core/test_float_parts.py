"""Parts of floats as a stage: what they are, on the interpreter and in kernels, and where there are none."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import te_lite as te
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import Schedule, Tensor
from te_lite.errors import ScheduleError
from te_lite.meaning.interp import run
from tests.ansor_ext.tensor_core.mma_schedules import nearest_tf32

BIG = np.float32(2.0**66)
ROWS, COLUMNS, TERMS = 4, 8, 64


def floats() -> np.ndarray:
    """Of all sizes: ties of rounding, the ends of binades, subnormals, infinities and NaN among them."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**32, COLUMNS * TERMS, dtype=np.uint32)
    exponents = rng.integers(60, 190, drawn.size, dtype=np.uint32) << 23
    bits = drawn & 0x807FFFFF | exponents
    bits[:64] = bits[:64] & 0xFFFFE000 | 0x1000
    bits[64:128] |= 0x7FFFFF
    bits[128:136] = [0, 1 << 31, 1, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF]
    return bits.view(np.float32).reshape(COLUMNS, TERMS)


def product() -> tuple[list[Tensor], Tensor, Schedule]:
    a, b = te.placeholder((ROWS, TERMS), name="a"), te.placeholder((COLUMNS, TERMS), name="b")
    k = te.reduce_axis((0, TERMS), "k")
    copy = te.compute(b.shape, lambda j, t: b[j, t], name="copy")
    c = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] * copy[j, k], axis=k), name="c")
    return [a, b, c], copy, te.create_schedule(c.op)


def parts_of(b: np.ndarray, emulated: bool) -> np.ndarray:
    """What the stage of parts stores: an output of its own, which reads it, says so."""
    (_, x, c), copy, s = product()
    made = s.in_parts(c, copy)
    shown = te.compute(made.shape, lambda p, j, t: made[p, j, t], name="shown")
    out = np.full((2, COLUMNS, TERMS), 77, "float32")
    s = te.create_schedule(shown.op)
    if emulated:
        for stage in (made, shown):
            s[stage].bind(s[stage].fuse(*s[stage].leaf_iter_vars), "threadIdx.x")
        run_program(emit(te.lower(s, [x, shown])), [b, out])
    else:
        with np.errstate(all="ignore"):
            run(te.lower(s, [x, shown]), [b, out])
    return out


@pytest.mark.parametrize(
    "emulated",
    [False, pytest.param(True, marks=pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH"))],
)
def test_a_big_part_is_the_nearest_and_a_small_one_what_is_left(emulated: bool) -> None:
    b = floats()
    small, big = parts_of(b, emulated)
    finite = np.isfinite(b)
    usual = finite & (np.abs(b) < BIG) & (np.abs(b) >= 2.0**-126)
    assert usual.sum() > 400 and np.array_equal(big[usual], nearest_tf32(b)[usual])
    assert (np.abs(small[usual]) <= 2.0**-11 * np.abs(b[usual])).all()
    assert np.array_equal((big.astype("float64") + small)[usual], b[usual])
    large = np.abs(b) >= BIG
    assert large.any() and np.array_equal(big[large], np.copysign(BIG, b[large]))
    assert np.array_equal(small[np.isinf(b)], b[np.isinf(b)]) and np.isnan(small[np.isnan(b)]).all()


def test_a_product_by_parts_is_that_of_floats() -> None:
    args, copy, s = product()
    s.in_parts(args[-1], copy)
    rng = np.random.default_rng(1)
    a, b = [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in args[:2]]
    out = np.full((ROWS, COLUMNS), np.nan, "float32")
    run(te.lower(s, args), [a, b, out])
    assert np.allclose(out, a.astype("float64") @ b.T, atol=1e-5)


def test_others_are_refused() -> None:
    """A factor of the caller's, one that others read, too, and what is no sum of products."""
    (_, b, c), copy, s = product()
    with pytest.raises(ScheduleError, match="in_parts b: arguments of the program are stored as their caller does"):
        s.in_parts(c, b)
    s[copy].split(s[copy].leaf_iter_vars[0], 4)
    with pytest.raises(ScheduleError, match="in_parts copy: it must come before other steps on these loops"):
        s.in_parts(c, copy)
    twice = te.compute((ROWS, COLUMNS), lambda i, j: c[i, j] + copy[j, 0], name="twice")
    with pytest.raises(ScheduleError, match="read by the product alone"):
        te.create_schedule(twice.op).in_parts(c, copy)
    plain = te.compute((COLUMNS, TERMS), lambda j, t: copy[j, t] * 2.0, name="plain")
    with pytest.raises(ScheduleError, match="is for a factor of a sum of products in float32"):
        te.create_schedule(plain.op).in_parts(plain, copy)
