"""Lanes of a population are the programs that its rows become, one by one, and rows come back from their steps."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ansor.sketch import generate_sketches
from ansor.sketch.shared_memory import shared_bytes
from ansor.space.decisions.draw import Matrix
from ansor.space.programs import Programs, program, programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import Space, Variant, home, random_space, random_variant
from ansor.space.states import concrete, parse
from te_lite import ComputeDAG
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.loop_steps import Pragma, Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import FuseRel, Stage, State
from te_lite.schedule.step import from_json, to_json
from tests.ansor import sketch_cases
from tests.ansor.sketch_cases import CASES, HARDWARE, dag_of
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty

TARGETS = ("c", "cuda")


def any_rows(space: Space, n: int, rng: np.random.Generator, base: Matrix) -> Matrix:
    """`base`, cut or repeated to n rows, with any choice given any of its values, as mutations do."""
    rows: Matrix = base[np.arange(n) % len(base)].copy()
    for c in space.choices:
        changed = rng.random(n) < 0.5
        rows[changed, c.column] = np.array(c.values)[rng.integers(len(c.values), size=int(changed.sum()))]
    return rows


def variants(dag: ComputeDAG, target: str, rng: np.random.Generator, most: int = 6) -> list[Variant]:
    """Random variants of the sketches of a computation, the sketches taken in turn."""
    sketches = generate_sketches(dag, target, HARDWARE[target])
    chosen = itertools.islice(itertools.cycle(sketches), max(most, 2))
    return [random_variant(random_space(s, rng, target, HARDWARE[target]), rng) for s in chosen]


def meanings(variant: Variant, rows: Matrix, target: str) -> Matrix:
    """`rows` with the numbers of parallel and vector loops that have an effect."""
    made = programs(variant, rows, target, HARDWARE[target])
    out: Matrix = rows.copy()
    for c in variant.space.choices:
        if c.kind == "parallel":
            out[:, c.column] = made.parallel.get(c.stage, 0)
        elif c.kind == "vectorize":
            out[:, c.column] = made.vectorize.get(c.stage, 0)
    return out


def lane(value: object, i: int) -> object:
    return int(value[i]) if isinstance(value, np.ndarray) else value


def marked(state: State, annotation: str) -> dict[int, int]:
    """How many loops of each stage, parts of a fused one counted one by one, carry an annotation."""
    out = {}
    for k, stage in enumerate(state.stages):
        parts = {rel.fused: len(rel.parts) for rel in stage.relations if isinstance(rel, FuseRel)}
        out[k] = sum(parts.get(it.uid, 1) for it in stage.iters if it.annotation == annotation)
    return {k: n for k, n in out.items() if n}


def plain_before_parallel(stage: Stage) -> int:
    """The loops outside the parallel one, which have extent 1."""
    outside = list(itertools.takewhile(lambda it: it.annotation != "parallel", stage.iters))
    if len(outside) == len(stage.iters):
        return 0
    assert all(it.extent == 1 for it in outside)
    return len(outside)


def assert_same(made: Programs, i: int, state: State) -> None:
    """Lane `i` of `made` is the program `state`."""
    bounded = infer_bounds(state)
    assert made.bounds.scopes == bounded.scopes
    for k, (many, one) in enumerate(zip(made.bounds.state.stages, bounded.state.stages, strict=True)):
        regions = [lane(r.extent, i) for r in made.bounds.regions[k]]
        assert regions == [r.extent for r in bounded.regions[k]]
        # fusing for an annotation appends loops
        extents = [lane(v.extent, i) for v in many.vars]
        assert extents == [v.extent for v in one.vars][: len(extents)]
        assert lane(made.unroll.get(k, 0), i) == one.auto_unroll_max_step
        assert (many.where, many.attach is None) == (one.where, one.attach is None)
    depths = {k: lane(d, i) for k, d in made.parallel.items()}
    for k, stage in enumerate(bounded.state.stages):
        count = marked(bounded.state, "parallel").get(k, 0)
        assert depths.get(k, 0) == (count and count + plain_before_parallel(stage))
    if made.vectorize:
        lanes = {k: lane(n, i) for k, n in made.vectorize.items()}
        assert marked(bounded.state, "vectorize") == {k: n for k, n in lanes.items() if n}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(5)
def test_lanes_are_the_concrete_programs(name: str, target: str) -> None:
    rng = np.random.default_rng([1, len(name)])
    hardware = HARDWARE[target]
    for variant in nonempty(variants(dag_of(name), target, rng)):
        drawn = sample_rows(variant, 8, rng, target, hardware)
        rows = np.concatenate([drawn, any_rows(variant.space, 8, rng, drawn)])
        made = programs(variant, rows, target, hardware)
        assert made.n == len(rows) == 16
        for i in (0, 3, 9, 12, 15):
            state = concrete(variant, rows[i], target, hardware)
            assert replay(state.dag, state.steps) == state and state.concrete
            assert_same(made, i, state)
            assert_same(program(variant, rows[i], target, hardware), 0, state)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(5)
def test_rows_come_back_from_their_steps(name: str, target: str) -> None:
    rng = np.random.default_rng([2, len(name)])
    hardware = HARDWARE[target]
    dag = dag_of(name)
    sketches = generate_sketches(dag, target, hardware)
    for variant in nonempty(variants(dag, target, rng, most=4)):
        drawn = sample_rows(variant, 4, rng, target, hardware)
        mutated = any_rows(variant.space, 8, rng, drawn)
        meant = meanings(variant, mutated, target)
        for row, expected in nonempty(zip((*drawn[:2], *mutated[:4]), (*drawn[:2], *meant[:4]), strict=True)):
            steps = concrete(variant, row, target, hardware).steps
            found = parse(sketches, steps, target, hardware)
            assert found is not None and found[0] == variant and hash(found[0]) == hash(variant)
            assert found[1].tolist() == expected.tolist()
            assert concrete(*found, target, hardware).steps == steps


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(5)
def test_every_sampled_state_is_a_row(name: str, target: str) -> None:
    hardware = HARDWARE[target]
    sketches = generate_sketches(dag_of(name), target, hardware)
    for n, sketch in nonempty(enumerate(sketches[:8])):
        for seed in range(2):
            state = drawn_program(sketch, target, hardware, np.random.default_rng([seed, n]))
            assert state is not None
            found = parse(sketches, state.steps, target, hardware)
            assert found is not None
            assert concrete(*found, target, hardware).steps == state.steps


def test_lanes_need_no_truth_of_an_extent() -> None:
    """Loops inside loops of extent 1 run in parallel in some lanes and not in others."""
    rng = np.random.default_rng(0)
    hardware = HARDWARE["c"]
    found = set()
    for sketch in generate_sketches(dag_of("matmul"), "c", hardware):
        variant = home(random_space(sketch, rng, "c", hardware))
        rows = sample_rows(variant, 512, rng, "c", hardware)
        made = programs(variant, rows, "c", hardware)
        for k, depth in made.parallel.items():
            if made.bounds.state.stages[k].attach is not None:
                depths = np.broadcast_to(depth, (made.n,))
                found |= set((depths > 0).tolist())
                for i in np.flatnonzero(depths)[:3]:
                    assert_same(made, i, concrete(variant, rows[i], "c", hardware))
    assert found == {False, True}


@pytest.mark.parametrize("name", ["matmul", "conv2d_bn_relu", "softmax"])
def test_numbers_that_mean_the_same_settle_at_once(name: str) -> None:
    rng = np.random.default_rng(3)
    changed = 0
    for variant in variants(dag_of(name), "c", rng, most=4):
        drawn = sample_rows(variant, 16, rng, "c", HARDWARE["c"])
        assert (meanings(variant, drawn, "c") == drawn).all()
        rows = any_rows(variant.space, 64, rng, drawn)
        settled = meanings(variant, rows, "c")
        assert (meanings(variant, settled, "c") == settled).all()
        changed += int((rows != settled).any(axis=1).sum())
    assert changed > 10


# ----------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize(("target", "log"), [("cuda", "cuda_h200"), ("c", "cpu")])
def test_programs_that_tvm_measured_are_rows(target: str, log: str) -> None:
    dag = ComputeDAG(sketch_cases.matmul(1024, 1024, 1024))
    hardware = HARDWARE[target]
    sketches = generate_sketches(dag, target, hardware)
    lines = (Path(__file__).parents[1] / "golden" / f"tvm_log_matmul1024_{log}.json").read_text().splitlines()
    assert len(lines) == 64
    for line in lines:
        steps = [from_json(step) for step in json.loads(line)["i"][1][1]]
        found = parse(sketches, steps, target, hardware)
        assert found is not None
        again = concrete(*found, target, hardware)
        known = [replace(s, extent=0) if isinstance(s, Split) else s for s in steps]
        assert [replace(s, extent=0) if isinstance(s, Split) else s for s in again.steps] == known
        assert shared_bytes(infer_bounds(again)) == shared_bytes(infer_bounds(replay(dag, steps)))


@pytest.mark.parametrize("target", TARGETS)
def test_other_steps_are_no_rows(target: str) -> None:
    hardware = HARDWARE[target]
    sketches = generate_sketches(dag_of("conv2d_bn_relu"), target, hardware)
    rng = np.random.default_rng(4)
    for sketch in nonempty(sketches):
        state = drawn_program(sketch, target, hardware, rng)
        assert state is not None
        steps = list(state.steps)
        last = max(n for n, s in enumerate(steps) if isinstance(s, Pragma))
        k = steps[last].stage
        for wrong in (
            [], [*steps, steps[-1]], steps[: len(sketch.steps)], [*steps[:last], *steps[last + 1 :]],
            [*steps[:last], Pragma(k, 0, "auto_unroll_max_step$17"), *steps[last + 1 :]],
            [*steps[:last], Pragma(k, 0, "auto_unroll_max_step$x"), *steps[last + 1 :]],
        ):  # fmt: skip
            assert parse(sketches, wrong, target, hardware) is None
        stale = [replace(s, extent=77) if isinstance(s, Split) else s for s in steps]
        found, same = parse(sketches, stale, target, hardware), parse(sketches, steps, target, hardware)
        assert found is not None and same is not None
        assert found[0] == same[0] and found[1].tolist() == same[1].tolist()


def test_steps_survive_a_record() -> None:
    rng = np.random.default_rng(5)
    for target in TARGETS:
        for variant in nonempty(variants(dag_of("winograd"), target, rng, most=3)):
            for row in nonempty(sample_rows(variant, 2, rng, target, HARDWARE[target])):
                state = concrete(variant, row, target, HARDWARE[target])
                text = json.dumps([to_json(step) for step in state.steps])
                assert replay(state.dag, [from_json(x) for x in json.loads(text)]) == state
