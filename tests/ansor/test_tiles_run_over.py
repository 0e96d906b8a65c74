"""Tiles that do not divide: what is drawn, and that programs with them are right on every target."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.values.options import SketchOptions
from ansor.sketch import generate_sketches
from ansor.sketch.generate import extra_sketches
from ansor.space.decisions.factor_tables import covered, draw_tiles, has_few_divisors, padded_extents, tile_table
from ansor.space.decisions.thread_plans import ThreadLimits, thread_plan
from ansor.space.spaces import space_of
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.loops.stmt import If, LoweredFunc, Store, stmts_of
from te_lite.meaning.interp import run
from te_lite.meaning.reference import evaluate
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle

HARDWARE = {t: HardwareParams(target=Target.of(t)).completed(Target.of(t)) for t in ("c", "cuda")}
RULES = ("packed_read", "padded_shared", "double_buffer")
LEAST = te.const(float("-inf"), "float32")


def contraction(
    combine: Callable[..., te.Expr], source: Callable[[te.Expr, te.Expr], te.Expr], terms: int = 37
) -> list[te.Tensor]:
    """out[i, j] = combine over k of source(A[i, k], B[k, j]), bounded below by a bias."""
    a, b = te.placeholder((29, terms), name="A"), te.placeholder((terms, 53), name="B")
    bias, k = te.placeholder((53,), name="bias"), te.reduce_axis((0, terms), "k")
    c = te.compute((29, 53), lambda i, j: combine(source(a[i, k], b[k, j]), axis=k), name="C")
    return [a, b, bias, te.compute((29, 53), lambda i, j: te.maximum(c[i, j], bias[j]), name="D")]


def convolution() -> list[te.Tensor]:
    """A 3x3 convolution of stride 2 of 11 channels of 25x25 padded by 1, to 13."""
    x, w = te.placeholder((1, 11, 25, 25), name="X"), te.placeholder((13, 11, 3, 3), name="W")
    return [x, w, te.topi.nn.relu(te.topi.nn.conv2d_nchw(x, w, stride=2, padding=1, dilation=1))]


def protected() -> list[te.Tensor]:
    """Reads that lie inside where the row says so: the row of what is read runs against it, from its end."""
    a, b = te.placeholder((90, 53), name="A"), te.placeholder((37, 53), name="B")
    k = te.reduce_axis((0, 37), "k")

    def read(i: te.Expr, j: te.Expr) -> te.Expr:
        return te.if_then_else(te.logical_and(i % 4 >= 1, i >= 17), a[i % 4 * 20 - i + 12 + k, j], 0.0)

    return [a, b, te.compute((29, 53), lambda i, j: te.sum(read(i, j) * b[k, j], axis=k), name="C")]


PROGRAMS: dict[str, Callable[[], list[te.Tensor]]] = {
    "sum of products": lambda: contraction(te.sum, lambda x, y: x * y),
    "maximum": lambda: contraction(te.max, lambda x, y: x * y),
    "minimum": lambda: contraction(te.min, lambda x, y: x + y),
    "product": lambda: contraction(te.prod, lambda x, y: 1 + x * y / 64),
    "sum of exponentials": lambda: contraction(te.sum, lambda x, y: te.exp(x * y)),
    "convolution": convolution,
    "protected reads": protected,
}
"""With zeros beyond the edge the source is the identity of those in `NEUTRAL`; the others keep their guards."""

NEUTRAL = ("sum of products", "product", "convolution")
OFTEN = ("sum of products", "protected reads")
MARKS = {**dict.fromkeys(OFTEN, ()), **dict.fromkeys(("maximum", "convolution"), pytest.mark.long)}
"""The others are for `make fuzz`."""


def drawn(name: str, target: str, count: int, seed: int) -> Iterator[tuple[State, LoweredFunc]]:
    """Programs of all sketches whose tiles run over, lowered."""
    dag, rng = te.ComputeDAG(PROGRAMS[name]()), np.random.default_rng(seed)
    sketches = generate_sketches(dag, target, HARDWARE[target])
    sketches += extra_sketches(dag, target, HARDWARE[target], rules=RULES)
    while count:
        sketch = sketches[int(rng.integers(len(sketches)))]
        state = drawn_program(sketch, target, HARDWARE[target], rng)
        if state is not None and any(runs_over(step) for step in state.steps):
            count -= 1
            yield state, te.lower(state)


def runs_over(step: object) -> bool:
    return isinstance(step, Split) and step.extent % int(np.prod([n or 1 for n in step.lengths])) != 0


def compiled(func: LoweredFunc, args: list[np.ndarray]) -> None:
    codegen_c.build(func)(*args)


def emulated(func: LoweredFunc, args: list[np.ndarray]) -> None:
    run_program(emit(func), args)


def test_extents_with_few_divisors() -> None:
    assert [e for e in range(1, 129) if not has_few_divisors(e)] == [
        e for e in range(1, 129) if all(any(e % d == 0 and t / 2 <= d * d / t <= 2 * t for d in range(1, e + 1))
                                        for t in (4, 8, 16, 32, 64) if t <= e)
    ]  # fmt: skip
    assert not any(has_few_divisors(e) for e in (1, 2, 3, 28, 56, 112, 196, 224, 256, 768, 784, 2048, 3136))
    assert padded_extents(1000, 0.125) == (1000, 1008, 1024) and has_few_divisors(3000)
    assert padded_extents(197, 0.125) == (197, 198, 200, 208)
    assert padded_extents(197, 0) == (197,) and padded_extents(7, 0.125) == (7,)


@pytest.mark.parametrize("extent", [13, 27, 149, 197, 1021])
def test_a_table_has_what_divides_each_extent_once(extent: int) -> None:
    extents = padded_extents(extent, 0.125)
    table = [tuple(row) for row in tile_table(extents, 2, 64).tolist()]
    every = [(a, b) for a in range(1, 2 * extent) for b in range(1, 65) if any(e % (a * b) == 0 for e in extents)]
    assert table == sorted(every)
    assert {covered(extents, a * b) for a, b in table} <= set(extents)


@pytest.mark.parametrize(("extents", "shares"), [((49, 50, 52), (1, 1, 1)), ((197, 198, 200, 208), (0.05, 1, 1, 1))])
def test_the_extents_of_a_tile_are_covered_equally_often(extents: tuple[int, ...], shares: tuple[float, ...]) -> None:
    """But the trivial tiles of a prime are not a quarter of all."""
    rng = np.random.default_rng(2)
    plan = thread_plan((extents, (8,)), 4, ThreadLimits(10**6, 1, 10**6), 10**6)
    for drawn in (draw_tiles(extents, 4, 10**6, 6000, rng), plan.draw(6000, rng)[0]):
        of = [covered(extents, inner) for inner in drawn.prod(axis=1).tolist()]
        found = np.array([of.count(e) / len(of) for e in extents])
        np.testing.assert_allclose(found, np.array(shares) / sum(shares), atol=0.03)


def test_one_parameter_turns_them_off() -> None:
    (sketch, *_) = generate_sketches(te.ComputeDAG(PROGRAMS["sum of products"]()), "cuda", HARDWARE["cuda"])
    for padding in (0.0, 0.125):
        space = space_of(sketch, "cuda", HARDWARE["cuda"], SketchOptions(max_padding=padding))
        assert any(len(t.extents) > 1 for t in space.tiles) == (padding > 0)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, pytest.mark.slow)) for n in PROGRAMS])
def test_programs_are_right(name: str, target: str) -> None:
    oracle = Oracle(te.ComputeDAG(PROGRAMS[name]()), np.random.default_rng(5))
    binary = compiled if target == "c" else emulated if shutil.which("g++") else None
    for n, (state, func) in nonempty(enumerate(drawn(name, target, 4, 11))):
        assert oracle.mismatch(func, run) is None, state
        if binary is not None and n % 3 == 0:
            assert oracle.mismatch(func, binary) is None, state  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PROGRAMS)
def test_infinities_and_nan_stay_in_their_rows(name: str) -> None:
    """What tiles read beyond the edge is zero, and not the neighbour of what is inside: 0 * inf would be NaN."""
    dag, rng = te.ComputeDAG(PROGRAMS[name]()), np.random.default_rng(3)
    inputs = {t: rng.standard_normal(t.shape, np.float32) for t in dag.tensors[:-1]}
    for value in inputs.values():
        value[..., -1] = rng.choice(np.float32([np.inf, -np.inf, np.nan, 0.5]), value.shape[:-1])
    with np.errstate(all="ignore"):
        want = evaluate(dag.tensors, inputs, dtype="float64")[dag.tensors[-1]]
        for state, func in nonempty(drawn(name, "cuda", 2, 17)):
            got = np.full(want.shape, 7, np.float32)
            run(func, [*[inputs[t].copy() for t in dag.tensors[:-1]], got])
            assert (np.isnan(got) == np.isnan(want)).all(), state
            assert (np.isposinf(got) == np.isposinf(want)).all() and (np.isneginf(got) == np.isneginf(want)).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_accumulators_run_unguarded_where_that_is_neutral(name: str) -> None:
    """On a GPU: guards stand around writes to memory only, and around accumulators that zeros would change."""
    guarded = 0
    for _, func in drawn(name, "cuda", 5, 23):
        for guard in [s for s in stmts_of(func.body) if isinstance(s, If)]:
            guarded += any(isinstance(s, Store) and s.buffer.storage == "local" for s in stmts_of(guard.then))
    assert (guarded == 0) == (name in NEUTRAL)


@pytest.mark.parametrize("neutral", [True, False])
@pytest.mark.one_in(2)
def test_parts_of_a_reduction_run_over(neutral: bool) -> None:
    """Of 127 terms the last part is short by one: zeros where the source of the reduction makes them neutral."""
    rng = np.random.default_rng(9)
    dag = te.ComputeDAG(contraction(te.sum if neutral else te.max, lambda x, y: x * y, 127))
    a, b, bias = [rng.standard_normal(t.shape, np.float32) for t in dag.tensors[:-1]]
    a[3, -1], b[-1, 5] = np.inf, np.nan
    terms = a.astype(np.float64)[:, :, None] * b.astype(np.float64)
    want = np.maximum(terms.sum(1) if neutral else terms.max(1), bias)
    sketches = extra_sketches(dag, "cuda", HARDWARE["cuda"], rules=["split_reduction"])
    assert [next(s.lengths for s in x.steps if isinstance(s, Split)) for x in sketches] == [(64,), (32,), (16,)]
    for sketch in sketches:
        state = drawn_program(sketch, "cuda", HARDWARE["cuda"], rng)
        assert state is not None
        func = te.lower(state)
        for execute in (run, emulated) if shutil.which("g++") else (run,):
            got = np.full(want.shape, 7, np.float32)
            execute(func, [a.copy(), b.copy(), bias.copy(), got])
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        guards = [s for s in stmts_of(func.body) if isinstance(s, If)]
        folds = [s for g in guards for s in stmts_of(g.then) if isinstance(s, Store) and s.buffer.storage == "local"]
        assert bool(folds) != neutral
