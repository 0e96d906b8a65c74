"""What the device draws and compares is what the host would, kernel by kernel, emulated."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from codegen_cuda.driver.array_checks import JUDGED, LARGE_CHECKS
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.emulation.emulator import run
from te_lite.expr.dtype import computed
from te_lite.meaning.drawn import DRAWN, DrawnArray, _hash, key_of
from tests.codegen_cuda.bound_cases import special
from tests.codegen_cuda.emulated_device import EmulatedDevice
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return EmulatedDevice()


@emulated
@pytest.mark.parametrize("dtype", sorted(DRAWN))
@pytest.mark.one_in(4)
def test_the_device_draws_what_the_host_draws(device: EmulatedDevice, dtype: str) -> None:
    drawn = DrawnArray((3, 1777), dtype, key_of(7, 2))
    handle = device.empty(drawn.shape, dtype)
    device.draw(handle, drawn.key)
    values = device.values(handle)
    assert values.tobytes() == drawn.whole().tobytes()
    assert device.drawn(handle, drawn.key) and not device.drawn(handle, key_of(7, 3))
    bits = values.reshape(-1).view(np.uint8)
    for at in (0, len(bits) // 2, len(bits) - 1):
        bits[at] ^= 1
        assert not device.drawn(handle, drawn.key)
        bits[at] ^= 1
    assert device.drawn(handle, drawn.key)


@emulated
def test_small_halves_are_rounded_as_numpy_does(device: EmulatedDevice) -> None:
    """Every magnitude of a drawn half near zero, and some at random; the float is `m * 2^-23`."""
    m = np.concatenate([np.arange(-1100, 1100), np.random.default_rng(0).integers(-(2**23), 2**23, 4000)])
    for dtype, kind in (("float16", "Half"), ("bfloat16", "Brain")):
        h = (m << 8).astype(np.int64).astype(np.uint32)
        out = np.zeros(len(m), np.uint16)
        probe = f"""
extern "C" __global__ void probe(const unsigned *h, {kind} *out, int count) {{
  EACH(i, count) out[i] = drawn<{kind}>(h[i]);
}}"""
        run(LARGE_CHECKS + probe, "probe", 8, 256, [h, out, np.int32(len(m))])
        want = (m.astype(np.float32) * np.float32(2.0**-23)).astype(np.dtype(dtype))
        zero = want == 0  # drawn zeros have no sign, nor have those of the host, which are made of integers
        assert (out[~zero] == want.view(np.uint16)[~zero]).all() and (out[zero] == 0).all()


@emulated
def test_the_hash_knows_64_bits() -> None:
    places = np.random.default_rng(1).integers(0, 2**40, 3000)
    out, key = np.zeros(3000, np.uint32), key_of(3, 4)
    probe = """
extern "C" __global__ void probe(const long long *places, unsigned *out, int count, unsigned first, unsigned second) {
  EACH(i, count) out[i] = hash(places[i], first, second);
}"""
    run(LARGE_CHECKS + probe, "probe", 4, 256, [places, out, np.int32(3000), *map(np.uint32, key)])
    assert (out == _hash(places.copy(), key)).all()


@emulated
@pytest.mark.parametrize("dtype", sorted(JUDGED))
def test_elements_that_differ_are_counted_and_named(device: EmulatedDevice, dtype: str) -> None:
    rng = np.random.default_rng(5)
    floats = "float" in dtype
    pool = np.concatenate([special(dtype), rng.normal(0, 3, 20).astype(dtype)])
    for slope, floor in ((0.0, 0.0), (0.25, 0.5)) if floats else ((0.0, 0.0),):
        want, got = rng.choice(pool, (2, 1301))
        got = np.where(rng.random(1301) < 0.9, want, got).astype(dtype)
        if floats:
            with np.errstate(all="ignore"):
                moved = want.astype("float64") * (1 + 0.2 * rng.random(1301))
                got = np.where(rng.random(1301) < 0.3, moved, got.astype("float64")).astype(dtype)
        count, places = device.astray(device.put(got), device.put(want), slope, floor, 1000)
        with np.errstate(all="ignore"):
            a, b = [x.astype(computed(dtype)).astype("float64") if floats else x for x in (got, want)]
            fine = (a == b) | (np.isnan(a) & np.isnan(b)) if floats else a == b
            if floats:
                kind = np.float64 if dtype == "float64" else np.float32
                off = np.abs(a.astype(kind) - b.astype(kind))
                fine |= np.isfinite(a) & np.isfinite(b) & (off <= kind(slope) * np.abs(b.astype(kind)) + kind(floor))
        assert count == (~fine).sum() > 0 and (places == np.flatnonzero(~fine)).all()
        few = device.astray(device.put(got), device.put(want), slope, floor, 3)
        assert few[0] == count and len(few[1]) == min(3, count) and np.isin(few[1], places).all()
    assert device.astray(device.put(want), device.put(want), 0.0, 0.0, 8)[0] == 0


@emulated
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int64"])
def test_elements_are_picked(device: EmulatedDevice, dtype: str) -> None:
    array = DrawnArray((40, 37), dtype, (1, 2)).whole()
    places = np.array([0, 5, 38, 40 * 37 - 1])
    picked = device.pick(device.put(array), device.put(places))
    assert picked.dtype == array.dtype and (picked == array.reshape(-1)[places]).all()


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_kernels_compile(arch: str) -> None:
    names = {k.name for k in compile_source(LARGE_CHECKS, arch).resources}
    floats = [d for d in JUDGED if "float" in d]
    assert names == {
        "fill", "differ", "unequal", "pick", *[f"astray_{d}" for d in floats],
        *[f"{word}_{d}" for d in DRAWN for word in ("draw", "altered")],
    }  # fmt: skip
