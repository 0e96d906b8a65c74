"""Planted faults: each is one edit to a kernel that is clean, and each is reported; the clean kernels are right."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from codegen_cuda.emulation.emulator import run
from codegen_cuda.emulation.emulator_report import EmulatorError, Finding

from .cuda_kernels import KERNELS, Kernel

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def execute(kernel: Kernel, seed: int = 0, check: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel computes, over a poisoned array, and what it should."""
    inputs, want = kernel.make(np.random.default_rng(seed))
    dtype = inputs[0].dtype if inputs[0].dtype.kind == "f" else np.dtype(np.int32)
    out = np.full(want.shape, np.nan if dtype.kind == "f" else -77, dtype)
    run(kernel.source, "k", kernel.grid, kernel.block, [*inputs, out], kernel.dynamic, check)
    return out, want


def findings(name: str, edits: tuple[tuple[str, str], ...]) -> tuple[str, tuple[Finding, ...]]:
    kernel = KERNELS[name]
    source = kernel.source
    for old, new in edits:
        assert source.count(old) >= 1, old
        source = source.replace(old, new, 1)
    with pytest.raises(EmulatorError) as caught:
        execute(replace(kernel, source=source))
    return source, caught.value.findings


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.one_in(3)
def test_clean_kernels_compute_their_result(name: str, check: bool) -> None:
    out, want = execute(KERNELS[name], check=check)
    error = np.abs(out.astype("float64") - want).max()
    assert error <= KERNELS[name].tolerance * 10 * np.abs(want).max()


NOTHING = ""
RACES = {
    "matmul: tile read before it is filled": ("matmul", ("__syncthreads();  // filled", NOTHING)),
    "matmul: tile overwritten while it is read": ("matmul", ("__syncthreads();  // used", NOTHING)),
    "tree: first step before the fill": ("tree", ("__syncthreads();  // filled", NOTHING)),
    "tree: no barrier between steps": ("tree", ("__syncthreads();  // added", NOTHING)),
    "tree: several threads add to one place": ("tree", ("if (t < step) s[t]", "if (t < step) s[t & ~1]")),
    "tree: every thread writes the same value": ("tree", ("if (t == 0) out[blockIdx.x] = s[0];", "s[3] = 1.0f;")),
    "warp: the lanes do not wait at first": ("warp_synchronous", ("__syncwarp();  // first", NOTHING)),
    "warp: the lanes do not wait in the loop": ("warp_synchronous", ("__syncwarp();  // added", NOTHING)),
    "warps: partial results read early": ("warps", ("__syncthreads();  // warps", NOTHING)),
    "stencil: neighbours read early": ("stencil", ("__syncthreads();  // filled", NOTHING)),
    "stencil: the halo has a writer too many": ("stencil", ("if (t == 0) s[0]", "if (t < 2) s[0]")),
    "stencil: a block writes its neighbour's output": ("stencil", ("out[i] =", "out[i < 159 ? i + 1 : i] =")),
    "reverse: vectors read early": ("reverse", ("__syncthreads();  // filled", NOTHING)),
    "reverse: vectors overlap": ("reverse", ("*(float4*)(s + t * 4) =", "*(float4*)(s + t / 2 * 4) =")),
    "half: read early": ("half", ("__syncthreads();  // filled", NOTHING)),
    "int8: read early": ("int8", ("__syncthreads();  // filled", NOTHING)),
    "histogram: counted without atomics": ("histogram", ("atomicAdd(&bins[x[threadIdx.x]], 1)", "++bins[x[0]]")),
    "histogram: cleared while counting": ("histogram", ("__syncthreads();  // cleared", NOTHING)),
    "tutorial: tile overwritten while it is read": ("tutorial", ("__syncthreads();", NOTHING)),
    "tutorial: tile read before it is filled": ("tutorial", ("}\n        __syncthreads();", "}")),
}  # fmt: skip


@pytest.mark.parametrize("fault", RACES)
@pytest.mark.one_in(2)
def test_planted_races_are_reported(fault: str) -> None:
    name, edit = RACES[fault]
    source, found = findings(name, (edit,))
    races = [f for f in found if f.kind == "race"]
    assert races, found
    lines = source.splitlines()
    for race in races:
        assert race.line is not None and race.other_line is not None, race
        assert "[" in lines[race.line - 1] or "*" in lines[race.line - 1], race


BOUNDS = {
    "matmul: no guard on the row": ("matmul", ("row < M && k0", "k0")),
    "matmul: no guard on the output": ("matmul", ("if (row < M && column < N)", "if (column < N)")),
    "matmul: tile column off by one": ("matmul", ("a[y][i] * b[i][x]", "a[y][i + 1] * b[i][x]")),
    "matmul: register array": ("matmul", ("float sum = 0.0f;", "float r[4] = {}; float sum = r[x];")),
    "tree: beyond the shared array": ("tree", ("s[t + step]", "s[t + step + 16]")),
    "tree: negative shared index": ("tree", ("s[t] = x", "s[t - 1] = x")),
    "tree: one block too many": ("tree", ("x[blockIdx.x * 64 + t]", "x[(blockIdx.x + 1) * 64 + t]")),
    "tree: before the input": ("tree", ("x[blockIdx.x * 64 + t]", "x[(int)blockIdx.x * 64 + t - 1]")),
    "warps: vector beyond the input": ("warps", ("blockIdx.x * 96 + t]", "blockIdx.x * 97 + t]")),
    "stencil: no guard at the left end": ("stencil", ("i > 0 ? x[i - 1] : 0.0f", "x[i - 1]")),
    "stencil: no guard at the right end": ("stencil", ("i < 159 ? x[i + 1] : 0.0f", "x[i + 1]")),
    "stencil: beyond the dynamic shared memory": ("stencil", ("s[41] =", "s[42] =")),
    "stencil: before the dynamic shared memory": ("stencil", ("s[t + 1] = x", "s[t - 1] = x")),
    "reverse: vector beyond the shared array": ("reverse", ("(31 - t) * 4", "(32 - t) * 4")),
    "reverse: vector before the shared array": ("reverse", ("(31 - t) * 4", "(30 - t) * 4")),
    "reverse: vector past the end of the output": ("reverse", ("out + (blockIdx.x * 128", "out + (blockIdx.x * 132")),
    "half: pair past the end": ("half", ("*(half2*)(out + i)", "*(half2*)(out + i + 2)")),
    "int8: beyond the shared array": ("int8", ("i <= (int)threadIdx.x", "i <= (int)threadIdx.x + 1")),
    "histogram: atomic beyond the bins": ("histogram", ("bins[x[threadIdx.x]]", "bins[x[threadIdx.x] + 1]")),
    "tutorial: padding without its guard": ("tutorial", ("((1 <= ((((", "((-1 <= ((((")),
    "tutorial: weights beyond the tile": ("tutorial", ("< 1024) {", "< 1025) {")),
    "far away: another argument's distance": ("tree", ("x[blockIdx.x * 64 + t]", "x[t * 33554432 + 64]")),
}  # fmt: skip


@pytest.mark.parametrize("fault", BOUNDS)
@pytest.mark.one_in(5)
def test_planted_accesses_out_of_bounds_are_reported(fault: str) -> None:
    name, edit = BOUNDS[fault]
    _, found = findings(name, (edit,))
    assert found[-1].kind == "out of bounds" and found[-1].line is not None, found


OTHERS = {
    "misaligned": [
        ("reverse", ("(s + (31 - t) * 4)", "(s + (31 - t) * 3)")),
        ("reverse", ("x + blockIdx.x * 128 + t * 4", "x + blockIdx.x * 126 + t * 4")),
        ("reverse", ("__shared__ __align__(16) float", "__shared__ float")),
        ("half", ("*(half2*)(out + i)", "*(half2*)(out + i - (i > 0))")),
    ],
    "divergence": [
        ("tree", ("__syncthreads();  // added", "if (t < step) __syncthreads();")),
        ("tree", ("s[t] = x", "if (t == 63) return; s[t] = x")),
        ("matmul", ("__syncthreads();  // filled", "if (x) __syncthreads(); else\n __syncthreads();")),
        ("warps", ("__shfl_sync(0x7, best, 1)", "__shfl_sync(0x6, best, 1)")),
        ("warps", ("if (t < 3) {", "if (t < 2) {")),
        ("warps", ("const float4 v", "if (t == 5) return; const float4 v")),
        ("warp_synchronous", ("if (t < 32)", "if (t < 32 && t != 7)")),
    ],
    "uninitialised": [
        ("tree", ("s[t] = x", "if (t != 9) s[t] = x")),
        ("stencil", ("if (t == 0) s[0] =", "if (t == 0 && i > 0) s[0] =")),
    ],
    "division": [("tree", ("blockIdx.x * 64 + t]", "blockIdx.x * 64 + t + 0 / (t - 5)]"))],
    "crash": [("tree", ("const int t", "volatile char big[200000]; big[0] = 1; const int t"))],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "case"), [(kind, i) for kind, cases in OTHERS.items() for i in range(len(cases))])
def test_other_planted_faults_are_reported(kind: str, case: int) -> None:
    name, edit = OTHERS[kind][case]
    _, found = findings(name, (edit,))
    assert kind in {f.kind for f in found}, found
