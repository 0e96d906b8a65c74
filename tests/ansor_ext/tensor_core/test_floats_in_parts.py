"""Products of floats in two TF32 parts (`fp32x3`): as exact as float32 says they are, and found by the search."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.analytical import machine_of, seconds
from ansor.core.target.target import FP32X3, Target
from ansor.measure.check import accepted_values, mismatch
from ansor.space.programs import programs
from ansor.space.spaces import home
from ansor.space.states import concrete
from ansor_ext.tensor_core.mma import mma
from ansor_ext.tensor_core.mma_meaning import operands, pairs
from ansor_ext.tensor_core.warp_tiles import products
from benchmarks.compiled import compile_many
from codegen_cuda import CompileError, emit
from codegen_cuda.emulation.emulator import run as run_source
from te_lite import ComputeDAG
from te_lite.meaning.interp import run
from te_lite.schedule.storage_steps import SetScope
from tests.ansor_ext.tensor_core.mma_schedules import GROUPS, Tiled
from tests.ansor_ext.tensor_core.test_tensor_core_rule import (
    HARDWARE,
    after_relu,
    agrees,
    batched,
    conv,
    drawn,
    every_row,
    linear,
    matmul,
    sketches,
    softmax,
    spaces,
    two_products,
)
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.nonempty import nonempty

NAME, OF_GROUPS, APART = "m16n8k8_tf32x3_f32", "wgmma_k8_tf32x3_f32", "wgmma_k8_tf32x3_f32_apart"
TARGET = Target(f"cuda -model=H200 -precision={FP32X3}")
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
Array = np.ndarray[Any, Any]


def product_of(k: int, m: int = 32, n: int = 32) -> Tiled:
    return Tiled(NAME, (m, n, k), (m, n, 32), (16, n // 2), tiles=2)


def product_of_groups(k: int) -> Tiled:
    return replace(GROUPS["tf32x3"], sizes=(64, 32, k), block=(64, 32, 32), warp=(16, 32))


def func_of(tiled: Tiled) -> te.LoweredFunc:
    tensors = tiled.tensors()
    return te.lower(tiled.schedule(tensors), tensors)


def interpreted(tiled: Tiled, a: Array, b: Array) -> Array:
    got = np.full(tiled.sizes[:2], np.nan, "float32")
    with np.errstate(all="ignore"):
        run(func_of(tiled), [a, b, got])
    return got


def fused(a: Array, b: Array) -> Array:
    """The product as a strict kernel has it: a multiply-add a term, each rounded once to float32, in order."""
    out = np.zeros((len(a), b.shape[1]), "float32")
    for k in range(a.shape[1]):
        out = (np.multiply.outer(a[:, k].astype("float64"), b[k]) + out).astype("float32")
    return out


def errors(got: Array, a: Array, b: Array) -> Array:
    """Against float64: relative in the Frobenius norm, and the largest of |error| / sum |a| |b|."""
    exact, size = a.astype("float64") @ b, np.abs(a).astype("float64") @ np.abs(b)
    off = np.abs(got - exact)
    return np.array([np.linalg.norm(off) / np.linalg.norm(exact), (off / size).max()])


def truncating(extra: int) -> Any:
    """Sums as tensor cores were observed to add up (Fasi et al., Numerical behavior of NVIDIA tensor cores, 2021).

    Terms are cut off at the last place of the largest, and `extra` bits behind it, their sum at 24 bits; towards zero.
    """

    def added(x: Array, y: Array, c: Array) -> Array:
        terms = x.astype("float64")[..., :, :, None] * y.astype("float64")[..., None, :, :]
        terms = np.concatenate([terms, c.astype("float64")[..., :, None, :]], axis=-2)
        unit = np.ldexp(1.0, np.frexp(np.abs(terms).max(axis=-2, keepdims=True))[1] - 24 - extra)
        total = (np.trunc(terms / unit) * unit).sum(axis=-2)
        near = total.astype("float32")
        return np.where(np.abs(near.astype("float64")) > np.abs(total), np.nextafter(near, np.float32(0)), near)

    return added


# ----------------------------------------------------------------------------------------------------- how exact


@pytest.mark.parametrize("k", [32, 61, 1024, pytest.param(4096, marks=pytest.mark.slow)])
def test_the_error_is_at_most_twice_that_of_float32(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where tensor cores cut off as much as any did."""
    tiled = product_of(k, 16, 16)
    a, b = tiled.inputs(np.random.default_rng(k))
    limit = 2 * errors(fused(a, b), a, b)
    assert (errors(interpreted(tiled, a, b), a, b) <= limit).all()
    for extra in (0, 2):
        monkeypatch.setattr("ansor_ext.tensor_core.mma_meaning.added", truncating(extra))
        assert (errors(interpreted(tiled, a, b), a, b) <= limit).all()


def summed_in_turns(a: Array, b: Array, added: Any) -> Array:
    """The product as a group of warps has it: the terms of a turn are `added` up in the tensor core, turns outside."""
    op, out = mma(OF_GROUPS), np.zeros((len(a), b.shape[1]), "float32")
    x, y = operands(op, a, b)
    for turn in range(0, a.shape[1], 32):
        total = np.zeros_like(out)
        for i, j in pairs(op):
            for k in range(turn, min(turn + 32, a.shape[1]), op.k):
                total = added(x[i][:, k : k + op.k], y[j][k : k + op.k], total)
        out = out + total
    return out


@pytest.mark.parametrize("k", [64, 253, 4096])
def test_the_error_of_groups_of_warps_is_at_most_twice_that_of_float32(k: int) -> None:
    """Of the products of a turn, which tensor cores add up, cutting off as much as any did."""
    a, b = product_of(k, 16, 16).inputs(np.random.default_rng(k))
    limit = 2 * errors(fused(a, b), a, b)
    for extra in (0, 2):
        assert (errors(summed_in_turns(a, b, truncating(extra)), a, b) <= limit).all()


def test_sums_in_the_tensor_core_would_drift() -> None:
    """What the additions in float32 are for: 4,096 terms that a truncating core adds up are off by more than that."""
    tiled = product_of(4096)
    a, b = tiled.inputs(np.random.default_rng(0))
    got, add = np.zeros((32, 32), "float32"), truncating(2)
    for k in range(0, 4096, 8):
        got = add(a[:, k : k + 8], b[k : k + 8], got)
    assert (errors(got, a, b) > 5 * errors(fused(a, b), a, b)).all()


@pytest.mark.parametrize("spread", [4, 20, 60])
def test_factors_of_mixed_magnitude(spread: int) -> None:
    """Each product is off by 2^-21 of it at most; beyond 2^66 by 2^-9, and below 2^-102 by 2^-126 of a factor."""
    rng, tiled = np.random.default_rng(spread), product_of(256)
    a, b = [(x * 2.0 ** rng.integers(-spread, spread, x.shape)).astype("float32") for x in tiled.inputs(rng)]
    a[:, :8] *= np.float32(2.0**-100)
    got, size = interpreted(tiled, a, b), np.abs(a).astype("float64") @ np.abs(b)
    lost = 2.0**-126 * (np.abs(a).sum(axis=1, keepdims=True) + np.abs(b).sum(axis=0)).astype("float64")
    assert (np.abs(got - a.astype("float64") @ b) <= 2.0**-20 * size + lost).all()
    assert (errors(got, a, b)[0] <= 2 * errors(fused(a, b), a, b)[0]) or spread > 4


def wrongness(tiled: Tiled, got: Array, a: Array, b: Array) -> str:
    tensors = tiled.tensors()
    right = accepted_values(ComputeDAG(tensors), dict(zip(tensors, (a, b), strict=False)), FP32X3)
    return mismatch(got, right[tensors[-1]])


@pytest.mark.parametrize("k", [32, 1024, pytest.param(4096, marks=pytest.mark.slow)])
def test_a_product_of_parts_that_is_left_out_is_found(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tiled = product_of(k, 16, 16)
    a, b = tiled.inputs(np.random.default_rng(1))
    assert not wrongness(tiled, interpreted(tiled, a, b), a, b)
    assert not wrongness(tiled, fused(a, b), a, b)
    pairs = ((1, 0), (0, 1), (0, 0))
    for dropped in pairs:
        kept = tuple([x for x in pairs if x != dropped])
        monkeypatch.setattr("ansor_ext.tensor_core.mma_meaning.pairs", lambda op, kept=kept: kept)
        assert "wrong" in wrongness(tiled, interpreted(tiled, a, b), a, b), dropped


# -------------------------------------------------------------------------------------------------------- kernels


def launched(tiled: Tiled, source: str, a: Array, b: Array) -> Array:
    program = emit(func_of(tiled))
    (kernel,) = program.kernels
    got = np.full(tiled.sizes[:2], np.nan, "float32")
    run_source(source, kernel.name, kernel.grid, kernel.block, [a, b, got], kernel.dynamic_bytes)
    return got


@emulated
def test_kernels_compute_what_the_interpreter_does() -> None:
    """Infinities, NaN and overflows included, in the text for every architecture; and no product may be left out."""
    tiled = product_of(256, 16, 16)
    a, b = tiled.inputs(np.random.default_rng(2))
    source = emit(func_of(tiled)).source
    assert np.array_equal(launched(tiled, source, a, b), interpreted(tiled, a, b))
    calls = [line for line in source.splitlines() if line.startswith("  mma_m16n8k8_tf32_f32_cut(t, ")]
    assert len(calls) == 3
    for call in calls:
        assert "wrong" in wrongness(tiled, launched(tiled, source.replace(call, ""), a, b), a, b)


@emulated
@pytest.mark.parametrize("call", ["small + 4, tile", "big + 0, others", "big + 8, tile"])
def test_no_product_of_a_group_of_warps_may_be_left_out(call: str) -> None:
    tiled = product_of_groups(96)
    a, b = tiled.inputs(np.random.default_rng(2))
    source = emit(func_of(tiled)).source
    (line,) = [line for line in source.splitlines() if call in line]
    assert "wrong" in wrongness(tiled, launched(tiled, source.replace(line, ""), a, b), a, b)


@emulated
@pytest.mark.parametrize("groups, newer", [(False, False), (False, True), (True, True)])
def test_kernels_pass_on_what_is_infinite(groups: bool, newer: bool) -> None:
    tiled = product_of_groups(64) if groups else product_of(32)
    a, b = tiled.inputs(np.random.default_rng(3))
    stored, b = b, b.T if tiled.turned else b
    for place, value in {(0, 3): np.inf, (1, 4): -np.inf, (2, 5): np.nan, (3, 6): 3e38, (4, 7): 1e-40}.items():
        a[place] = value
    b[3, 0], b[4, 1], b[6, 2], b[:, 3] = 0.0, 1.0, 2e38, 1000 / 3
    with np.errstate(all="ignore"):
        want = fused(a, b)
    source = emit(func_of(tiled)).source
    source = source.replace("__CUDA_ARCH__ >= 860", "1") if newer else source
    special, size = ~np.isfinite(want), np.where(np.isfinite(a), np.abs(a), 0).astype("float64") @ np.abs(b)
    assert special[:4].any(axis=1).all()
    for got in (launched(tiled, source, a, stored), interpreted(tiled, a, stored)):
        assert np.array_equal(got[special], want[special], equal_nan=True)
        known, found = want[~special], got[~special]
        allowed = np.where(np.abs(known) > 1e30, 2.0**-9, 1e-5)  # factors beyond 2^66 are cut to TF32
        assert (np.abs(found - known) <= allowed * np.abs(known) + 1e-7 * size[~special]).all()


# --------------------------------------------------------------------------------------------------------- search

CASES = {
    "product": lambda: matmul(40, 32, 48, "float32", turned=True),
    "odd": lambda: linear(53, 27, 61, "float32"),
    "batch": lambda: batched(2, 33, 40, 45, "float32", (True, False)),
    "convolution": lambda: conv(1, 3, 28, 19, 27, 3, "float32"),
    "relu before": lambda: after_relu(40, 24, 48, "float32"),
    "two products": lambda: two_products(32),
    "split sums": lambda: linear(53, 40, 512, "float32"),
    "softmax": lambda: softmax(32, 32, 32),
}


def test_sketches_use_it_where_it_is_asked_for() -> None:
    dag = ComputeDAG(matmul(64, 64, 64, "float32"))
    scopes = {s.scope for sketch in sketches(dag, TARGET) for s in sketch.steps if isinstance(s, SetScope)}
    assert scopes == {f"fragment.{name}.{operand}" for name in (NAME, OF_GROUPS, APART) for operand in "abd"}
    assert sketches(ComputeDAG(matmul(64, 64, 31, "float32")), TARGET) == []  # too few terms to be as exact
    assert len(sketches(ComputeDAG(matmul(64, 64, 32, "float32")), TARGET)) == 3  # groups of warps want two turns
    halves = {
        s.scope for s in sketches(ComputeDAG(matmul(64, 64, 64, "float16")), TARGET)[0].steps if hasattr(s, "scope")
    }
    assert "fragment.m16n8k16_f16_f32.d" in halves


@pytest.mark.parametrize("name", ["product", pytest.param("convolution", marks=pytest.mark.slow)])
def test_programs_compute_the_workload(name: str) -> None:
    agrees(ComputeDAG(CASES[name]()), 1, 0, on_emulator=False, target=TARGET)


@emulated
def test_kernels_compute_the_workload() -> None:
    agrees(ComputeDAG(CASES["odd"]()), 1, 1, on_emulator=True, target=TARGET)


@pytest.mark.long
@emulated
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(4)
def test_many_kernels_compute_the_workload(name: str) -> None:
    agrees(ComputeDAG(CASES[name]()), 1, 2, on_emulator=True, target=TARGET)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("name", CASES)
def test_twenty_kernels_of_every_sketch_compute_the_workload(name: str) -> None:
    agrees(ComputeDAG(CASES[name]()), 20, 3, on_emulator=True, target=TARGET)


@pytest.mark.long
@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
@pytest.mark.parametrize("arch, name", [("sm_80", "odd"), ("sm_90", "convolution")])
def test_kernels_compile(arch: str, name: str) -> None:
    """With addresses out of registers at worst."""
    dag = ComputeDAG(CASES[name]())
    sources = [emit(te.lower(state, dag.tensors)).source for state in drawn(dag, 2, 5, TARGET)]
    for module in nonempty(compile_many(sources, arch, workers=2)):
        assert not isinstance(module, CompileError), str(module)
        assert all(found.spills <= 160 for found in nonempty(module.resources)), module.resources


@pytest.mark.parametrize("row, ahead", [((2, 4, 2, 8, 2), False), ((2, 2, 2, 8, 2), True)])
def test_fragments_are_loaded_ahead_where_their_parts_leave_room(row: tuple[int, ...], ahead: bool) -> None:
    """Of 64 x 64 sums a warp the registers have no room for two sets and the parts of one; of 32 x 64 they have."""
    dag = ComputeDAG(matmul(128, 128, 64, "float32"))
    state = concrete(home(spaces(dag, TARGET)[0]), np.array(row), TARGET, HARDWARE)
    assert ("_local_ahead[" in emit(te.lower(state, dag.tensors)).source) == ahead


def test_estimates_count_three_products_and_the_parts_in_registers() -> None:
    """4096^3 takes three times the rate of an H200's instruction at least; a thread has 255 registers."""
    machine = machine_of(TARGET, HARDWARE)
    for name, rate in (NAME, 323e12), (OF_GROUPS, 540e12):
        found = []
        for space in spaces(ComputeDAG(matmul(4096, 4096, 4096, "float32", turned=True)), TARGET):
            if name in {x.op.name for x in products(space.sketch)}:
                rows = every_row(space)
                estimates = seconds(programs(home(space), rows, TARGET, HARDWARE), machine)
                found += zip(estimates.tolist(), map(tuple, rows.tolist()), strict=True)
        least = 3 * 2 * 4096**3 / rate
        assert least < min(found)[0] < 1.5 * least
        if name == NAME:
            assert max(4 * tm * tn + 2 * (4 * tm + 2 * tn) for _, (_, tm, _, tn, _) in found) <= 255 - 40
        else:
            assert max(2 * 4 * tm * tn + 2 * 4 * tm * steps for _, (_, tm, _, tn, steps) in found) <= 255 - 40
