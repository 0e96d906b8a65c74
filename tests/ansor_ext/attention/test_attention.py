"""Attention in one kernel: which computations the rule takes, and what its programs compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import FP32X3, TF32, Target
from ansor.sketch.generate import extra_sketches
from ansor.sketch.rule import SketchContext
from ansor_ext.attention.attention import attention_of
from ansor_ext.attention.grains import grains, registers, shared_bytes
from ansor_ext.online.steps import ComputeAlong, PostponeDivision
from benchmarks.compiled import compile_many
from codegen_cuda import CompileError, emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import Tensor, topi
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.amount import examples
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER
from tests.oracle import poisoned

Array = np.ndarray
Scores = Callable[[Tensor, Tensor], Tensor]
TARGET = f"cuda -model=H200 -precision={TF32}"
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 11}
"""Of the fraction of what is multiplied, floats in TF32."""


def scaled(s: Tensor, mask: Tensor) -> Tensor:
    return te.compute(s.shape, lambda h, i, j: s[h, i, j] * 0.25, name="scaled")


def masked(s: Tensor, mask: Tensor) -> Tensor:
    return te.compute(s.shape, lambda h, i, j: s[h, i, j] * 0.25 + mask[i, j], name="masked")


def causal(s: Tensor, mask: Tensor) -> Tensor:
    hidden = te.const(-np.inf, "float32")
    return te.compute(s.shape, lambda h, i, j: te.if_then_else(j <= i, s[h, i, j], hidden), name="causal")


@dataclass(frozen=True)
class Case:
    """softmax(f(Q K^T)) V for so many heads, queries, keys and columns; `after`: what follows element by element.

    `turned`: the keys are the last axis of V.
    """

    sizes: tuple[int, int, int, int]
    scores: Scores = scaled
    dtype: str = "float16"
    out: str = "float16"
    after: bool = False
    turned: bool = False

    def tensors(self) -> list[Tensor]:
        h, m, n, d = self.sizes
        shapes = {"Q": (h, m, d), "K": (h, n, d), "V": (h, d, n) if self.turned else (h, n, d)}
        q, k, v = [te.placeholder(shape, name=name, dtype=self.dtype) for name, shape in shapes.items()]
        mask = te.placeholder((m, n), name="mask", dtype="float32")
        return [q, k, v, *([mask] if self.scores is masked else []), self.of(q, k, v, mask)]

    def of(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """The result, of tensors that need not be inputs."""
        h, m, n, d = self.sizes
        r, j1, j2, j3 = [te.reduce_axis((0, x), name) for x, name in ((d, "r"), (n, "j1"), (n, "j2"), (n, "j3"))]

        def wide(e: te.Expr) -> te.Expr:
            return e.astype("float32")

        s = te.compute((h, m, n), lambda b, i, j: te.sum(wide(q[b, i, r]) * wide(k[b, j, r]), axis=r), name="S")
        x = self.scores(s, mask)
        most = te.compute((h, m), lambda b, i: te.max(x[b, i, j1], axis=j1), name="most")
        e = te.compute((h, m, n), lambda b, i, j: te.exp(x[b, i, j] - most[b, i]), name="E")
        whole = te.compute((h, m), lambda b, i: te.sum(e[b, i, j2], axis=j2), name="whole")
        p = te.compute((h, m, n), lambda b, i, j: (e[b, i, j] / whole[b, i]).astype(self.dtype), name="P")

        def value(b: te.Expr, c: te.Expr) -> te.Expr:
            return wide(v[b, c, j3] if self.turned else v[b, j3, c])

        o = te.compute((h, m, d), lambda b, i, c: te.sum(wide(p[b, i, j3]) * value(b, c), axis=j3), name="O")
        after = 2.0 if self.after else 1.0
        return te.compute((h, m, d), lambda b, i, c: (o[b, i, c] * after).astype(self.out), name="out")

    def inputs(self, rng: np.random.Generator) -> list[Array]:
        """Random inputs of 11 digits; the mask hides all keys of a row from it, the first ones of another."""
        h, m, n, d = self.sizes
        made = [(rng.standard_normal((h, x, d)) * 2).astype("float16").astype(self.dtype) for x in (m, n, n)]
        if self.turned:
            made[2] = np.ascontiguousarray(made[2].transpose(0, 2, 1))
        if self.scores is masked:
            mask = np.where(rng.random((m, n)) < 0.3, -np.inf, rng.standard_normal((m, n)))
            mask[0], mask[-1, : n - 1] = -np.inf, -np.inf
            made.append(mask.astype("float32"))
        return made

    def wanted(self, arrays: Sequence[Array]) -> Array:
        """In float64, by hand."""
        q, k, v = [x.astype("float64") for x in arrays[:3]]
        v = v.transpose(0, 2, 1) if self.turned else v
        s = q @ k.transpose(0, 2, 1)
        if self.scores is causal:
            s = np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf)
        else:
            s = s * 0.25 + (arrays[3] if self.scores is masked else 0)
        with np.errstate(invalid="ignore"):
            e = np.exp(s - s.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True) @ v * (2 if self.after else 1)


def sketches(tensors: Sequence[Tensor], target: str = TARGET) -> list[State]:
    return extra_sketches(ComputeDAG(tensors), target, rules=["attention"])


def check(case: Case, got: Array, arrays: Sequence[Array]) -> None:
    """Shares and results are rounded once each."""
    want = case.wanted(arrays)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    size = np.abs(arrays[2].astype("float64")).max() * (2 if case.after else 1)
    assert np.nanmax(np.abs(got.astype("float64") - want), initial=0) <= 2 * 2.0 ** -DIGITS[case.dtype] * size


CASES = {
    "scaled": Case((2, 37, 50, 32)),
    "masked": Case((2, 20, 70, 16), masked),
    "causal": Case((1, 65, 65, 24), causal, after=True),
    "floats out": Case((1, 16, 129, 40), out="float32"),
    "one turn": Case((3, 50, 33, 64)),
    "tf32, masked": Case((1, 20, 41, 16), masked, "float32", "float32"),
}
MORE = {
    "tf32, causal": Case((2, 65, 65, 24), causal, "float32", "float32", after=True),
    "tf32, 197 tokens": Case((1, 197, 197, 32), scaled, "float32", "float32"),
    "tf32, longer than a turn": Case((1, 33, 300, 40), masked, "float32", "float32"),
    "bfloat16": Case((2, 37, 50, 32), masked, "bfloat16", "float32"),
    "197 tokens": Case((1, 197, 197, 32), causal),
    "columns of values": Case((1, 37, 50, 32), turned=True),
    "tf32, columns of values": Case((1, 37, 50, 32), scaled, "float32", "float32", turned=True),
}
EVERY = {**CASES, **MORE}
OFTEN = ("scaled", "causal", "floats out", "tf32, masked")
"""What `make test` computes in the interpreter."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in EVERY])
def test_programs_compute_attention(name: str) -> None:
    case = EVERY[name]
    tensors, rng = case.tensors(), np.random.default_rng(3)
    found = sketches(tensors)
    assert len(found) > 5
    arrays = case.inputs(rng)
    for state in [found[k] for k in sorted({0, len(found) // 2, len(found) - 1})]:
        out = poisoned(case.wanted(arrays).shape, case.out)
        run(te.lower(state, tensors), [*arrays, out])
        check(case, out, arrays)


@examples(8)
@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(16, 70), st.integers(16, 150), st.integers(16, 48)),
    scores=st.sampled_from([scaled, masked]),
    dtype=st.sampled_from(["float16", "float32"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_sizes_that_hurt(sizes: tuple[int, int, int, int], scores: Scores, dtype: str, seed: int) -> None:
    case, rng = Case(sizes, scores, dtype), np.random.default_rng(seed)
    tensors, arrays = case.tensors(), case.inputs(rng)
    found = sketches(tensors)
    out = poisoned(case.wanted(arrays).shape, case.out)
    run(te.lower(found[int(rng.integers(len(found)))], tensors), [*arrays, out])
    check(case, out, arrays)


@pytest.mark.parametrize("name", ["masked", "causal", "tf32, masked"])
@pytest.mark.one_in(3)
def test_kernels_compute_attention(name: str) -> None:
    case = CASES[name]
    assert "__shfl_xor_sync" in emulated(case, sketches(case.tensors())[-1])


def emulated(case: Case, state: State) -> str:
    """The source of a program that computes a case right on the emulator."""
    arrays = case.inputs(np.random.default_rng(4))
    out = poisoned(case.wanted(arrays).shape, case.out)
    program = emit(te.lower(state, state.dag.tensors))
    run_program(program, [*arrays, out])
    check(case, out, arrays)
    return program.source


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_kernel_computes_attention_and_compiles(name: str) -> None:
    """All numbers of a sketch are in it, so each is one program."""
    case = EVERY[name]
    sources = [emulated(case, state) for state in sketches(case.tensors())]
    assert sources
    for arch in ("sm_80", "sm_90") if HAVE_COMPILER else ():
        refused = [str(x) for x in compile_many(sources, arch, workers=2) if isinstance(x, CompileError)]
        assert refused == []


def test_floats_in_two_parts_are_as_exact_as_float32() -> None:
    case, rng = Case((1, 17, 33, 32), masked, "float32", "float32"), np.random.default_rng(5)
    tensors, arrays = case.tensors(), case.inputs(rng)
    arrays[:3] = [rng.standard_normal(x.shape).astype("float32") for x in arrays[:3]]
    want = case.wanted(arrays)
    off = {}
    for precision in (TF32, FP32X3):
        out = poisoned(want.shape, case.out)
        run(te.lower(sketches(tensors, f"cuda -model=H200 -precision={precision}")[0], tensors), [*arrays, out])
        off[precision] = np.nanmax(np.abs(out - want))
    assert 1e-4 < off[TF32] < 1e-2 and off[FP32X3] < 1e-6


def test_what_is_no_number_stays_in_its_row() -> None:
    case = CASES["scaled"]
    tensors, arrays = case.tensors(), case.inputs(np.random.default_rng(5))
    arrays[0][0, 3, 1], arrays[0][1, 9, 0] = np.nan, np.inf
    out = poisoned(case.wanted(arrays).shape, case.out)
    run(te.lower(sketches(tensors)[0], tensors), [*arrays, out])
    assert np.isnan(out).all(axis=-1).sum() == np.isnan(out).any(axis=-1).sum() == 2


def test_steps_are_recorded_and_written_as_python() -> None:
    tensors = CASES["masked"].tensors()
    dag = ComputeDAG(tensors)
    state = extra_sketches(dag, TARGET, rules=["attention"])[0]
    assert {ComputeAlong, PostponeDivision} <= {type(step) for step in state.steps}
    again = replay(dag, [from_json(to_json(step)) for step in state.steps])
    assert again == state
    names = {"te": te, "s": te.Schedule(dag), **python_names(dag)}
    exec(python_schedule(state), names)
    assert names["s"].state == state


def test_other_computations_have_no_such_sketch() -> None:
    assert sketches(Case((1, 32, 32, 32), dtype="float32").tensors(), "cuda -model=H200") == []
    tensors = Case((1, 32, 32, 32)).tensors()
    assert sketches(tensors, "c") == []
    assert sketches(tensors, "cuda -arch=sm_75") == []
    assert len(sketches(tensors)) > 0
    out = tensors[-1]
    twice = te.compute(out.shape, lambda b, i, c: out[b, i, c] + out[b, c, i], name="twice")
    assert sketches([*tensors[:-1], twice]) == []


def test_attention_of_the_operator_library() -> None:
    """Its softmax keeps terms, shares and their casts apart, as graphs of networks have it."""
    q, k, v = [te.placeholder((2, 33, 32), name=name, dtype="float16") for name in "QKV"]
    scores = topi.multiply(topi.nn.batch_matmul(q, k, out_dtype="float32"), 0.25)
    shares = topi.cast(topi.nn.softmax(scores), "float16")
    out = topi.cast(topi.nn.batch_matmul(shares, v, out_dtype="float32", transpose_b=False), "float16")
    case, tensors = Case((2, 33, 33, 32)), [q, k, v, out]
    arrays = case.inputs(np.random.default_rng(7))
    result = poisoned((2, 33, 32), "float16")
    run(te.lower(sketches(tensors)[-1], tensors), [*arrays, result])
    check(case, result, arrays)
    both = te.compute(shares.shape, lambda b, i, j: shares[b, i, j] + te.const(1.0, "float16"), name="both")
    assert sketches([q, k, v, out, both]) == []


def test_sketches_fit_a_thread() -> None:
    target = Target.of(TARGET)
    hardware = HardwareParams(target=target).completed(target)
    dag = ComputeDAG(Case((12, 2048, 2048, 128)).tensors())
    found = attention_of(SketchContext(dag, target, hardware), dag.init_state)
    assert found is not None
    sizes = [(s.warps, s.queries, s.keys, s.tiles) for s in grains(dag.init_state, found, hardware)]
    assert (8, 1, 128, 2) in sizes
    for grain in grains(dag.init_state, found, hardware):
        assert registers(found.op, grain, 128, 128) <= 255
        assert shared_bytes(found, grain, 128, 128) <= hardware.max_shared_memory_per_block
