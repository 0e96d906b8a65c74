"""Kernels that keep rows: division by a number of the row, barriers, what they promise the compiler, their text."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

import te_lite as te
from ansor.sketch.generate import extra_sketches
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import Tensor
from te_lite.schedule.state import State
from tests.ansor.sketch_cases import HARDWARE
from tests.row_programs import layer_norm, softmax

EMULATES = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def sketch(tensors: list[Tensor], threads: int) -> State:
    """The sketch with so many threads a row, and the fewest rows a block."""
    found = extra_sketches(te.ComputeDAG(tensors), "cuda", HARDWARE["cuda"], rules=["rows"])
    return next(
        s for s in found if any(it.annotation == "threadIdx.x" and it.extent == threads for it in s.stages[-1].iters)
    )


def over_the_greatest(m: int, n: int) -> list[Tensor]:
    """`B[i, j] / max(A[i, :])`."""
    a, b = te.placeholder((m, n), name="A"), te.placeholder((m, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    most = te.compute((m,), lambda i: te.max(a[i, k], axis=k), name="most")
    return [a, b, te.compute((m, n), lambda i, j: b[i, j] / most[i], name="out")]


@EMULATES
def test_a_row_is_divided_by_its_number_as_by_division() -> None:
    """Off by 1.5 units in the last place at most for all exponents; zeros, infinities and NaN as IEEE has them."""
    rng = np.random.default_rng(5)
    divisors = [2.0**e * s for e in (-149, -140, -127, -126, -64, 0, 64, 126, 127) for s in (1.0, 1.37, -1.9)]
    divisors += [0.0, -0.0, np.inf, -np.inf, np.nan]
    m, n = len(divisors), 64
    a = np.repeat(np.array(divisors, "float32")[:, None], n, 1)
    with np.errstate(all="ignore"):
        b = (rng.standard_normal((m, n)) * np.exp2(rng.integers(-140, 127, (m, n)))).astype("float32")
        b[:, :4] = 0.0, np.inf, -np.inf, np.nan
        exact = b.astype("float64") / a.astype("float64")
        want = exact.astype("float32")
    out = np.zeros((m, n), "float32")
    run_program(emit(te.lower(sketch(over_the_greatest(m, n), 16))), [a, b, out])
    kind = np.isfinite(out) & np.isfinite(want)
    assert np.array_equal(np.isnan(out), np.isnan(exact))
    off = np.abs(out[kind].astype("float64") - exact[kind])
    assert (off <= 1.5 * np.spacing(np.abs(want[kind])).astype("float64")).all()
    at_the_end = np.abs(exact) > float(np.finfo("float32").max) * (1 - 2.0**-22)
    assert (np.isnan(exact) | kind | at_the_end | (out == want)).all()


def test_a_reduction_has_one_barrier() -> None:
    """Three sums, one after the other, take turns in two arrays of shared memory."""
    source = emit(te.lower(sketch(layer_norm(8, 768), 192))).source
    assert source.count("__syncthreads();") == 3 and len(re.findall(r"__shared__", source)) == 2
    assert "__syncthreads" not in emit(te.lower(sketch(softmax(16, 768), 32))).source


def test_a_row_is_read_once_in_vectors_and_its_exponentials_are_computed_once() -> None:
    source = emit(te.lower(sketch(softmax(4096, 1024), 128))).source
    assert source.count("const float4 *)(A") == 1 and source.count("*(float4 *)(") == 1 and source.count("expf(") == 1
    assert re.search(r"float A_local\[8\];", source) and source.count("__global__") == 1


def test_blocks_have_room_beside_each_other() -> None:
    """A thread gets what it keeps and 32 registers more, and as many blocks are asked for as these leave."""
    for n, threads, bounds in ((1024, 128, "128, 12"), (16384, 512, "512, 2"), (16384, 1024, "1024, 1")):
        assert f"__launch_bounds__({bounds})" in emit(te.lower(sketch(softmax(4096, n), threads))).source
