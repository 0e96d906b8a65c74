"""Attention in one kernel: which computations the rule takes, and what its programs compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import te_lite as te
from ansor.core.hardware import HardwareParams
from ansor.core.target import Target
from ansor.sketch.extra import extra_sketches
from ansor.sketch.extra.attention import attention_of, grains, registers, shared_bytes
from ansor.sketch.rule import SketchContext
from codegen_cuda import emit
from codegen_cuda.emulator import run_program
from te_lite import Tensor, topi
from te_lite.dag import ComputeDAG
from te_lite.interp import run
from te_lite.python_text import python_names, python_schedule
from te_lite.replay import replay
from te_lite.state import State
from te_lite.step import ComputeAlong, PostponeDivision, from_json, to_json
from tests.oracle import poisoned

Array = np.ndarray
Scores = Callable[[Tensor, Tensor], Tensor]
TARGET = "cuda -model=H200"


def scaled(s: Tensor, mask: Tensor) -> Tensor:
    return te.compute(s.shape, lambda h, i, j: s[h, i, j] * 0.25, name="scaled")


def masked(s: Tensor, mask: Tensor) -> Tensor:
    return te.compute(s.shape, lambda h, i, j: s[h, i, j] * 0.25 + mask[i, j], name="masked")


def causal(s: Tensor, mask: Tensor) -> Tensor:
    hidden = te.const(-np.inf, "float32")
    return te.compute(s.shape, lambda h, i, j: te.if_then_else(j <= i, s[h, i, j], hidden), name="causal")


@dataclass(frozen=True)
class Case:
    """softmax(f(Q K^T)) V for so many heads, queries, keys and columns; `after`: what follows element by element."""

    sizes: tuple[int, int, int, int]
    scores: Scores = scaled
    dtype: str = "float16"
    out: str = "float16"
    after: bool = False

    def tensors(self) -> list[Tensor]:
        h, m, n, d = self.sizes
        q, k, v = [te.placeholder((h, x, d), name=name, dtype=self.dtype) for x, name in ((m, "Q"), (n, "K"), (n, "V"))]
        mask = te.placeholder((m, n), name="mask", dtype="float32")
        r, j1, j2, j3 = [te.reduce_axis((0, x), name) for x, name in ((d, "r"), (n, "j1"), (n, "j2"), (n, "j3"))]

        def wide(e: te.Expr) -> te.Expr:
            return e.astype("float32")

        s = te.compute((h, m, n), lambda b, i, j: te.sum(wide(q[b, i, r]) * wide(k[b, j, r]), axis=r), name="S")
        x = self.scores(s, mask)
        most = te.compute((h, m), lambda b, i: te.max(x[b, i, j1], axis=j1), name="most")
        e = te.compute((h, m, n), lambda b, i, j: te.exp(x[b, i, j] - most[b, i]), name="E")
        whole = te.compute((h, m), lambda b, i: te.sum(e[b, i, j2], axis=j2), name="whole")
        p = te.compute((h, m, n), lambda b, i, j: (e[b, i, j] / whole[b, i]).astype(self.dtype), name="P")
        o = te.compute((h, m, d), lambda b, i, c: te.sum(wide(p[b, i, j3]) * wide(v[b, j3, c]), axis=j3), name="O")
        after = 2.0 if self.after else 1.0
        out = te.compute((h, m, d), lambda b, i, c: (o[b, i, c] * after).astype(self.out), name="out")
        return [q, k, v, *([mask] if self.scores is masked else []), out]

    def inputs(self, rng: np.random.Generator) -> list[Array]:
        """Random inputs; the mask hides all keys of a row from it, the first ones of another."""
        h, m, n, d = self.sizes
        made = [rng.standard_normal((h, x, d)).astype(self.dtype) * 2 for x in (m, n, n)]
        if self.scores is masked:
            mask = np.where(rng.random((m, n)) < 0.3, -np.inf, rng.standard_normal((m, n)))
            mask[0], mask[-1, : n - 1] = -np.inf, -np.inf
            made.append(mask.astype("float32"))
        return made

    def wanted(self, arrays: Sequence[Array]) -> Array:
        """In float64, by hand."""
        q, k, v = [x.astype("float64") for x in arrays[:3]]
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
    """Shares and results are rounded to 11 digits once each."""
    want = case.wanted(arrays)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    size = np.abs(arrays[2].astype("float64")).max() * (2 if case.after else 1)
    assert np.nanmax(np.abs(got.astype("float64") - want), initial=0) <= 2 * 2.0**-11 * size


CASES = {
    "scaled": Case((2, 37, 50, 32)),
    "masked": Case((2, 20, 70, 16), masked),
    "causal": Case((1, 65, 65, 24), causal, after=True),
    "floats out": Case((1, 16, 129, 40), out="float32"),
    "one turn": Case((3, 50, 33, 64)),
}
BY_NAME = pytest.mark.parametrize("name", CASES)


@BY_NAME
def test_programs_compute_attention(name: str) -> None:
    case = CASES[name]
    tensors, rng = case.tensors(), np.random.default_rng(3)
    found = sketches(tensors)
    assert len(found) > 5
    arrays = case.inputs(rng)
    for state in [found[k] for k in sorted({0, len(found) // 2, len(found) - 1})]:
        out = poisoned(case.wanted(arrays).shape, case.out)
        run(te.lower(state, tensors), [*arrays, out])
        check(case, out, arrays)


@settings(max_examples=8, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(16, 70), st.integers(16, 150), st.integers(16, 48)),
    scores=st.sampled_from([scaled, masked]),
    seed=st.integers(0, 2**32 - 1),
)
def test_sizes_that_hurt(sizes: tuple[int, int, int, int], scores: Scores, seed: int) -> None:
    case, rng = Case(sizes, scores), np.random.default_rng(seed)
    tensors, arrays = case.tensors(), case.inputs(rng)
    found = sketches(tensors)
    out = poisoned(case.wanted(arrays).shape, case.out)
    run(te.lower(found[int(rng.integers(len(found)))], tensors), [*arrays, out])
    check(case, out, arrays)


@pytest.mark.parametrize("name", ["masked", "causal"])
def test_kernels_compute_attention(name: str) -> None:
    case = CASES[name]
    tensors, arrays = case.tensors(), case.inputs(np.random.default_rng(4))
    out = poisoned(case.wanted(arrays).shape, case.out)
    program = emit(te.lower(sketches(tensors)[-1], tensors))
    run_program(program, [*arrays, out])
    check(case, out, arrays)
    assert "__shfl_xor_sync" in program.source


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
    assert sketches(Case((1, 32, 32, 32), dtype="float32").tensors()) == []
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
        assert shared_bytes(found.op, grain, 128, 128) <= hardware.max_shared_memory_per_block
