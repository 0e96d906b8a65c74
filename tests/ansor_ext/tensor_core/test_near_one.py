"""`1 + erf(x)` and `1 + tanh(x)` by fewer instructions: how exact they are, and kernels in which they stand."""

from __future__ import annotations

import ctypes
import math
import subprocess

import ml_dtypes
import numpy as np
import pytest

import te_lite as te
from ansor.space.spaces import home, space_of
from ansor.space.states import concrete
from ansor_ext.tensor_core.near_one import HELPERS
from ansor_ext.tensor_core.warp_tiles import products, table
from codegen_cuda import compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import Tensor
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER
from tests.nonempty import nonempty

from .test_ring_sketches import HARDWARE, TARGET, emulated, product, rings, row_of

LIMITS = {"erf": 2.0**-16, "tanh": 2.0**-20}
BELOW = 2.0**-14
"""Where the least of a float16's 10 bits is that of the smallest normal one."""
PARTS = {"all": 1.0, "half": 0.5}
FUNCTIONS = {"erf": math.erfc, "tanh": lambda x: 2 / (1 + math.exp(2 * x))}
"""One and the function of `-x`, in float64, without the loss of digits of a sum."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("near_one")
    loops = [
        f'extern "C" void {part}_{name}(const float *x, float *y, long n) '
        f"{{ for (long i = 0; i < n; ++i) y[i] = one_and_{name}<{str(part == 'half').lower()}>(x[i]); }}"
        for name in HELPERS
        for part in PARTS
    ]
    head = "#include <math.h>\n#define __device__\n#define __forceinline__ inline\n"
    (folder / "f.cpp").write_text(head + "\n".join([*HELPERS.values(), *loops]))
    command = ["g++", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", "f.so", "f.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "f.so"))


def values(compiled: ctypes.CDLL, name: str, x: np.ndarray, part: str) -> np.ndarray:
    out = np.full(x.shape, 77, np.float32)
    getattr(compiled, f"{part}_{name}")(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(x.size)
    )
    return out


@emulated
@pytest.mark.parametrize("name", HELPERS)
@pytest.mark.parametrize("part", PARTS)
def test_enough_bits_are_right(name: str, part: str, compiled: ctypes.CDLL) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    x = np.concatenate([halves[np.isfinite(halves)], np.linspace(-12, 12, 100_001, dtype=np.float32)])
    want = np.array([FUNCTIONS[name](-v) if v > -300 else 0.0 for v in x.astype(np.float64)]) * PARTS[part]
    off = np.abs(values(compiled, name, x, part) - want)
    assert (off <= LIMITS[name] * np.maximum(want, BELOW)).all(), (off / np.maximum(want, BELOW)).max()


@emulated
@pytest.mark.parametrize("name", HELPERS)
@pytest.mark.parametrize("part", PARTS)
def test_what_is_no_number_stays_so(name: str, part: str, compiled: ctypes.CDLL) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, 3e38, -3e38], np.float32)
    found = values(compiled, name, x, part) / PARTS[part]
    assert np.isnan(found[2]) and found[[0, 1, 3, 4, 5, 6, 7]].tolist() == [2, 0, 1, 1, 1, 2, 0]


def gelu(m: int, n: int, k: int, dtype: str, function: str) -> list[Tensor]:
    """A product, a bias, and its GELU, rounded to `dtype`."""
    a, b, c = product(m, n, k, dtype)
    z, (sums,) = te.placeholder((n,), name="Z", dtype="float32"), c.op.input_tensors()

    def value(i: te.Expr, j: te.Expr) -> te.Expr:
        x = sums[i, j] + z[j]
        one = te.erf(x * math.sqrt(0.5)) + 1.0
        if function == "tanh":
            one = 1.0 + te.tanh((x * x * x * 0.044715 + x) * 0.797885)
        return te.cast(dtype, x * 0.5 * one)

    return [a, b, z, te.compute((m, n), value, name="D")]


def wanted(function: str, x: np.ndarray) -> np.ndarray:
    inner = x * math.sqrt(0.5) if function == "erf" else (x * x * x * 0.044715 + x) * 0.797885
    return x * 0.5 * np.vectorize(FUNCTIONS[function])(-np.maximum(inner, -300))


@emulated
@pytest.mark.parametrize(("function", "dtype"), [("erf", "float16"), ("tanh", "bfloat16")])
@pytest.mark.one_in(2)
def test_kernels_compute_gelu(function: str, dtype: str) -> None:
    args, rng = gelu(136, 200, 72, dtype, function), np.random.default_rng(5)
    stores = set()
    for sketch in nonempty(rings(args)[:2]):
        points = table(products(sketch)[0], HARDWARE).points
        for point in nonempty(points[[0, -1]]):
            space = space_of(sketch, TARGET, HARDWARE)
            made = emit(te.lower(concrete(home(space), row_of(space, point), TARGET, HARDWARE), args))
            assert f"one_and_{function}<true>(" in made.source.split("__global__")[-1]
            stores.add("box_store" in made.source)
            kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
            a, b = [rng.standard_normal([int(n) for n in t.shape]).astype(kind) for t in args[:2]]
            z, out = rng.standard_normal(200).astype(np.float32), np.full((136, 200), 77, kind)
            run_program(made, [a, b, z, out])
            want = wanted(function, a.astype(np.float64) @ b.astype(np.float64) + z)
            unit = 2.0**-11 if dtype == "float16" else 2.0**-8
            assert (np.abs(out.astype(np.float64) - want) <= 1.01 * unit * np.abs(want) + 1e-5).all()
            if HAVE_COMPILER:
                assert not [r for r in compile_source(made.source, "sm_90").resources if r.spill_stores]
    assert stores


def test_other_sums_and_other_dtypes_stay() -> None:
    args = gelu(136, 200, 72, "float16", "erf")
    a, b, _, d = args
    (sums, *_) = d.op.input_tensors()
    wide = te.compute((136, 200), lambda i, j: sums[i, j] * (te.erf(sums[i, j]) + 1.0), name="W")
    less = te.compute((136, 200), lambda i, j: te.cast("float16", te.erf(sums[i, j]) + 1.0 - sums[i, j]), name="L")
    for out in (wide, less):
        sketch = rings([a, b, out])[0]
        space, point = space_of(sketch, TARGET, HARDWARE), table(products(sketch)[0], HARDWARE).points[0]
        assert (
            "one_and_"
            not in emit(te.lower(concrete(home(space), row_of(space, point), TARGET, HARDWARE), [a, b, out])).source
        )
