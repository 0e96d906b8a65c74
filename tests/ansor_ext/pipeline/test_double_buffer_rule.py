"""Sketches with double-buffered tiles: what is counted, their place in the search, records, and their programs."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.features import SCHEMA, extract, state_features
from ansor.features.merge import states_features
from ansor.records.lines import OWN_VERSION, dump_record_to_string, load_record_from_string
from ansor.sketch import SketchContext, generate_sketches
from ansor.sketch.generate import rules_in_use
from ansor.sketch.shared_memory import estimated_shared_bytes, shared_bytes
from ansor.space.decisions.loops import holes
from ansor.space.limits import fits
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_space, random_variant
from ansor.space.states import concrete, parse
from ansor_ext.pipeline.double_buffer import double_buffered
from ansor_ext.pipeline.steps import DoubleBuffer
from ansor_ext.shared_tiles.padded_shared import padded
from codegen_cuda.emission.limits import usage
from te_lite.bounds.bounds import infer_bounds
from te_lite.computation.tensor import Tensor
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from tests.ansor.sketch_cases import HARDWARE
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle
from tests.workloads import conv2d_nchw, depthwise, matmul, softmax

GPU = HARDWARE["cuda"]
double_buffer_sketches = rules_in_use()["double_buffer"]
WORKLOADS: dict[str, Callable[[], list[Tensor]]] = {
    "conv2d": lambda: conv2d_nchw(2, 14, 16, 16, 3, 2, 1),
    "matmul": lambda: matmul(36, 48, 60),
    "half": lambda: matmul(32, 48, 40, "float16"),
}


def context(tensors: list[Tensor], target: str = "cuda") -> SketchContext:
    found = ansor.Target.of(target)
    return SketchContext(
        te.ComputeDAG(tensors), found, HARDWARE[target].completed(found), ansor.core.values.options.SketchOptions()
    )


def plain(state: State) -> State:
    return replay(state.dag, [s for s in state.steps if not isinstance(s, DoubleBuffer)])


@pytest.mark.parametrize("name", WORKLOADS)
def test_all_shared_copies_of_every_sketch_are_fetched_ahead(name: str) -> None:
    ctx = context(WORKLOADS[name]())
    found = double_buffer_sketches(ctx)
    assert [plain(s) for s in found] == generate_sketches(ctx.dag, "cuda", GPU)
    for sketch in found:
        copies = {k for k, s in enumerate(sketch.stages) if s.op.name.endswith(".shared")}
        assert copies == {k for k, s in enumerate(sketch.stages) if s.double_buffer} and len(copies) == 2
        assert double_buffered(sketch) is None, "there is nothing left to do"


def test_where_no_tiles_are_fetched_there_is_no_sketch() -> None:
    assert double_buffer_sketches(context(softmax(16, 32))) == []
    assert double_buffer_sketches(context(WORKLOADS["matmul"](), "c")) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_compute_the_workload(name: str) -> None:
    ctx = context(WORKLOADS[name]())
    oracle = Oracle(ctx.dag, np.random.default_rng(0))
    for sketch in nonempty(double_buffer_sketches(ctx)):
        both = padded(sketch) or sketch
        for i, start in enumerate((sketch, both, sketch, both)):
            state = drawn_program(start, "cuda", GPU, np.random.default_rng(i))
            assert state is not None and oracle.mismatch(te.lower(state), run) is None


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.one_in(2)
def test_lanes_are_the_programs_and_count_what_is_emitted(name: str) -> None:
    ctx = context(WORKLOADS[name]())
    ordinary = generate_sketches(ctx.dag, "cuda", GPU)
    column = [c.name for c in SCHEMA].index("shared_bytes")
    for sketch in nonempty(double_buffer_sketches(ctx)):
        rng = np.random.default_rng(3)
        variant = random_variant(random_space(sketch, rng, "cuda", GPU), rng)
        rows = sample_rows(variant, 12, rng, "cuda", GPU)
        made = programs(variant, rows, "cuda", GPU)
        ((_, lanes),) = shared_bytes(made.bounds).items()
        features = extract(made, GPU)
        assert fits(made, GPU).all()
        twice = set()
        for i, row in nonempty(enumerate(rows)):
            state = concrete(variant, row, "cuda", GPU)
            ((_, counted),) = shared_bytes(infer_bounds(state)).items()
            ((_, once),) = shared_bytes(infer_bounds(plain(state))).items()
            assert np.broadcast_to(lanes, len(rows))[i] == counted
            assert 0 <= usage(te.lower(state))[0].shared_bytes - counted < 32
            assert np.array_equal(features[i], state_features(state, GPU))
            assert np.array_equal(states_features([plain(state), state], GPU)[1], features[i])
            twice.add(counted > once)
            back = parse([*ordinary, sketch], state.steps, "cuda", GPU)
            assert back is not None and back[0].space.sketch == sketch and np.array_equal(back[1], row)
        assert True in twice
        assert features[:, :, column].max() > 0


def test_estimates_are_never_above_what_is_counted() -> None:
    ctx = context(WORKLOADS["matmul"]())
    (sketch,) = double_buffer_sketches(ctx)
    for seed in range(20):
        state = drawn_program(sketch, "cuda", GPU, np.random.default_rng(seed))
        assert state is not None
        lengths = {p: state.steps[p].lengths for p in holes(sketch)}  # type: ignore[union-attr]
        ((_, counted),) = shared_bytes(infer_bounds(state)).items()
        assert estimated_shared_bytes(sketch, lengths) == counted


def test_records_carry_our_version() -> None:
    ctx = context(WORKLOADS["matmul"]())
    task = ansor.SearchTask(compute_dag=ctx.dag, target="cuda", hardware_params=GPU)
    (sketch,) = double_buffer_sketches(ctx)
    state = drawn_program(sketch, "cuda", GPU, np.random.default_rng(0))
    assert state is not None
    line = dump_record_to_string(
        ansor.MeasureInput(task, steps=state.steps), ansor.MeasureResult((1.0,), 0, "", 1.0, 1)
    )
    assert json.loads(line)["v"] == OWN_VERSION and '["DBF", ' in line
    assert load_record_from_string(line)[0].steps == state.steps


def test_a_sketch_without_tiles_at_reductions_stays() -> None:
    for sketch in nonempty(generate_sketches(te.ComputeDAG(depthwise(1, 9, 12)), "cuda", GPU)):
        ahead = double_buffered(sketch)
        shared = [s for s in sketch.stages if s.op.name.endswith(".shared")]
        assert (ahead is None) == (not shared)
