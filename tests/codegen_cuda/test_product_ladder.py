"""The rungs of `benchmarks/product_ladder.py` compute the product, and are written as they say."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import te_lite as te
from benchmarks.product_ladder import product, rungs
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
@pytest.mark.parametrize("name", rungs())
@pytest.mark.one_in(2)
def test_rungs_compute_the_product(name: str) -> None:
    schedule, tensors = product(256, rungs()[name])
    rng = np.random.default_rng(3)
    a, b = [rng.standard_normal((256, 256), dtype=np.float32) for _ in range(2)]
    out = np.full((256, 256), np.nan, np.float32)
    run_program(emit(te.lower(schedule, tensors)), [a, b, out])
    want = a.astype("f8") @ b.astype("f8")
    assert np.abs(out - want).max() <= 1e-5 * np.abs(want).max()


def test_each_rung_adds_what_it_says() -> None:
    texts = {}
    for name, rung in rungs().items():
        schedule, tensors = product(512, rung)
        texts[name] = emit(te.lower(schedule, tensors)).source
    ahead = [name for name, text in texts.items() if "_operands[" in text]
    assert ahead == ["fetched ahead", "8 x 16 sums", "blocks of 128 x 256"]
    assert all("A_shared_fetched[" in texts[name] and "make_float4(apart(C_local" in texts[name] for name in ahead)
    fetched = ["const float4 *)(A" in texts[name] or "(const float4 *)(B" in texts[name] for name in rungs()]
    assert fetched == [False, False, True, True, True, True, True]
