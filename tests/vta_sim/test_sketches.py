"""Sketches without a template: what is drawn compiles and is right, what is not drawn is no program, and the cycles of
the lanes are those of the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.errors import BackendError, TaskError
from ansor.core.tasks.measure_values import BuildResult, MeasureErrorNo, MeasureInput
from ansor.core.tasks.task import SearchTask
from ansor.cost_model import XGBModel
from ansor.policy.sketch_policy import SketchPolicy
from ansor.records.dispatch import ApplyHistoryBest, DispatchContext
from ansor.records.lines import validated_records
from ansor.records.recorder import RecordToFile
from ansor.space.decisions.loops import fill, holes
from te_lite import ComputeDAG
from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import TeError
from tests.amount import some
from tests.nonempty import nonempty
from tests.vta_sim import random_programs
from tests.vta_sim.conv import LAYERS
from tests.vta_sim.packed import conv_of
from tests.vta_sim.sketches import OPERATORS, VTA, drawn, random_conv, run, sketches_of
from vta_sim.compiler import compile_schedule
from vta_sim.core.config import Config
from vta_sim.core.kinds import Memory
from vta_sim.measure.played import PlayedRunner
from vta_sim.sim import PYNQ
from vta_sim.sketch import workloads
from vta_sim.sketch.cycles import cycles
from vta_sim.sketch.draft import draft
from vta_sim.sketch.lane_nest import lane_nest
from vta_sim.sketch.limits import fits
from vta_sim.sketch.roles import product_of
from vta_sim.sketch.tiles import points
from vta_sim.top import conv2d_grouped_packed, packed_groups, requantized

AS_USERS = {"evolutionary_search_num_iters": 4}


@pytest.mark.long
def test_random_programs_are_right() -> None:
    """Bit for bit, and the cycles of all operators are known; `make fuzz` runs more of them."""
    assert random_programs.main(["--seeds", "0:15"]) == 0


def test_a_wrong_program_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    right = {"seed": 1, "operator": "dense", "errors": [0.01], "wrong": []}
    assert random_programs.summary([right])
    assert not random_programs.summary([right, {**right, "seed": 2, "wrong": ["planted"]}])
    assert not random_programs.summary([{**right, "errors": [0.03]}]) and "seed 2: planted" in capsys.readouterr().out


@pytest.mark.long
def test_what_is_drawn_is_what_compiles() -> None:
    """Lengths at random, divisors or not: the lanes know what the compiler refuses."""
    rng = np.random.default_rng(3)
    seen = {True: 0, False: 0}
    for _ in range(some(3, 2)):
        tensors = random_conv(rng)
        for sketch in sketches_of(tensors):
            opened, n = holes(sketch), 6
            lanes = {p: [lengths(s.extent, n, rng) for _ in s.lengths] for p, s in opened.items()}
            known = np.broadcast_to(fits(lane_nest(infer_bounds(fill(sketch, lanes))), Config()), (n,))
            for k in range(n):
                state = fill(sketch, {p: [int(x[k]) for x in columns] for p, columns in lanes.items()})
                is_program = compiled(state, tensors)
                assert is_program or not known[k]
                if all(s.extent for s in opened.values()):  # a part longer than its tile is the tile to the compiler
                    assert is_program == known[k]
                seen[is_program] += 1
    assert min(seen.values()) > 10


def lengths(extent: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Divisors of an extent, and others now and then."""
    divide = [d for d in range(1, (extent or 4) + 1) if (extent or 4) % d == 0]
    return np.where(rng.random(n) < 0.1, 5, rng.choice(divide, n))


def compiled(state: te.State, tensors: list[te.Tensor]) -> bool:
    try:
        compile_schedule(state, tensors)
    except TeError:
        return False
    return True


def test_roles() -> None:
    """Axes are told by what they index."""
    found = product_of(ComputeDAG(conv_of(LAYERS["C2"]).requantized()))
    assert found is not None
    assert (found.channels, found.rows, found.blocks, found.taps) == ((1,), (0, 2, 3), (6,), (7, 8))
    grouped = product_of(ComputeDAG(OPERATORS["grouped"](np.random.default_rng(0))))
    assert grouped is not None and (grouped.own, grouped.channels, grouped.blocks) == ((1,), (), ())


def test_no_sketch_for_what_the_machine_cannot() -> None:
    """A computation in floats, and operations that the ALU lacks."""
    x = te.placeholder((1, 2, 4, 4, 1, 16), name="x", dtype="float32")
    floats = [x, te.compute(x.shape, lambda *i: x(*i) * 2.0, name="y")]
    y = te.placeholder((1, 2, 4, 4, 1, 16), name="y", dtype="int32")
    thirds = [y, te.compute(y.shape, lambda *i: (y(*i) // 3).astype("int8"), name="z")]
    for tensors in (floats, thirds):
        policy = SketchPolicy(SearchTask(compute_dag=ComputeDAG(tensors), target="vta"), verbose=0, seed=0)
        with pytest.raises(TaskError, match="no sketch"):
            policy.ask(1)


def test_another_machine_has_other_programs() -> None:
    """Half the accumulators: no tile needs more."""
    small = Config(log_acc_buff_size=16, log_inp_buff_size=16)
    rng = np.random.default_rng(5)
    tensors = conv_of(LAYERS["C8"]).requantized()
    for sketch in nonempty(sketches_of(tensors)[:2]):
        for state in nonempty(drawn(sketch, 4, rng, small)):
            assert compile_schedule(state, tensors, small).config.depth(Memory.ACC) == 1024


@pytest.mark.long
def test_the_first_programs_of_a_search() -> None:
    """Before anything is measured the draft model proposes programs as good as the best of the template."""
    for name, optimum in (("C2", 566_753), ("C11", 736_904))[: some(2, 1)]:
        tensors = conv_of(LAYERS[name]).requantized()
        task = SearchTask(compute_dag=ComputeDAG(tensors), target="vta")
        policy = SketchPolicy(task, params=AS_USERS, verbose=0, seed=0)
        found = []
        for state in policy.ask(8):
            nest = lane_nest(infer_bounds(state))
            found.append(float(cycles(nest, 1, Config(), PYNQ)[0]))
        assert min(found) < optimum


def test_groups_are_packed_with_zeros() -> None:
    """A convolution in groups equals that of the packed weights."""
    rng = np.random.default_rng(6)
    weights = rng.integers(-9, 9, (32, 4, 3, 3)).astype(np.int8)
    packed = packed_groups(weights, 16)
    assert packed.shape == (2, 3, 3, 16, 16) and np.count_nonzero(packed) == np.count_nonzero(weights)
    data = te.placeholder((1, 2, 6, 5, 1, 16), name="data", dtype="int8")
    kernel = te.placeholder(packed.shape, name="kernel", dtype="int8")
    tensors = [data, kernel, requantized(conv2d_grouped_packed(data, kernel, (1, 1), (1, 1)), bits=2)]
    x = rng.integers(-9, 9, (32, 6, 5))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    plain = np.zeros((32, 6, 5), np.int64)
    for c in range(32):
        for k, dy, dx in np.ndindex(4, 3, 3):
            plain[c] += padded[c // 4 * 4 + k, dy : dy + 6, dx : dx + 5] * int(weights[c, k, dy, dx])
    found = te.meaning.reference.evaluate(tensors, {data: pack(x), kernel: packed})[tensors[-1]]
    np.testing.assert_array_equal(found, pack(np.clip(plain >> 2, 0, 127)))


def pack(x: np.ndarray) -> np.ndarray:
    """Channels, rows, columns as NCHW1n16c, int8."""
    return x.reshape(1, -1, 16, *x.shape[1:]).transpose(0, 1, 3, 4, 2)[:, :, :, :, None].astype(np.int8)


@pytest.mark.long
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.one_in(3)
def test_a_search_measures_records_and_replays(operator: str, tmp_path: Path) -> None:
    """Every measured program is right; the log gives them back, and where they lie in the space."""
    tensors = OPERATORS[operator](np.random.default_rng(8))
    task = SearchTask(compute_dag=ComputeDAG(tensors), target="vta")
    log = str(tmp_path / "vta.json")
    options = ansor.TuningOptions(12, num_measures_per_round=6, verbose=0, measure_callbacks=[RecordToFile(log)])
    task.tune(options, SketchPolicy(task, XGBModel(num_warmup_sample=4, seed=0), seed=0, verbose=0))
    found = list(validated_records(log))
    most = min(12, sum(len(table.points) for s in sketches_of(tensors) if (table := points(s, Config())) is not None))
    assert len(found) == most > 4 and all(result.ok for _, result in found)
    policy = SketchPolicy(task, seed=1, verbose=0)
    assert policy.preload_measured_states(log) == most
    assert all(measured.row is not None for measured in policy.measured)
    best = min(found, key=lambda pair: pair[1].cost)
    with ApplyHistoryBest(log):
        known = DispatchContext.current.query("vta", task.workload_key, dag=task.compute_dag)
    assert known is not None and known.steps == best[0].steps


def test_drafts_are_as_good_as_tuned_templates() -> None:
    """The program of the fewest cycles of C10, unmeasured, is faster than the best configuration of the template."""
    layer = LAYERS["C10"]
    tensors = conv_of(layer).requantized()
    state = draft(ComputeDAG(tensors), VTA)
    assert state is not None
    out, expected, launch = run(state, tensors, np.random.default_rng(9))
    np.testing.assert_array_equal(out, expected)
    assert launch.timing().ms < 0.9 < 1.05


def test_a_wrong_program_is_no_result() -> None:
    """The runner compares every bit."""
    tensors = conv_of(LAYERS["C10"]).requantized()
    task = SearchTask(compute_dag=ComputeDAG(tensors), target="vta")
    state = draft(task.compute_dag, VTA)
    runner, built = PlayedRunner(), BuildResult("", (), 0, "", 0.0)
    assert runner.run(MeasureInput(task, state), built).ok
    (key,) = runner._expected
    runner._expected[key][-1][0, 0, 0, 0, 0, 0] ^= 1
    result = runner.run(MeasureInput(task, state), built)
    assert result.error_no == MeasureErrorNo.WRONG_ANSWER and "1 of " in result.error_msg
    open_lengths = sketches_of(tensors)[0]
    refused = runner.run(MeasureInput(task, open_lengths), built)
    assert refused.error_no == MeasureErrorNo.INSTANTIATION_ERROR


def test_the_default_program_is_no_function_of_arrays() -> None:
    """The machine model knows no plain nests, with which other targets begin."""
    task = SearchTask(workloads.dense, args=(1, 32, 64), target="vta")
    with pytest.raises(BackendError, match="target 'vta': a program is compiled by"):
        task.build_default()


@pytest.mark.parametrize(
    ("workload", "args"),
    [
        ("vta_dense", (1, 32, 63)),
        ("vta_grouped_conv2d", (1, 7, 7, 8, 3, 3, 1, 1)),
        ("vta_conv2d", (1, 9, 9, 1, 4, 7, 7, 2, 3)),
    ],
)
def test_layers_that_templates_never_had(workload: str, args: tuple[int, ...]) -> None:
    """The last layer of ResNet-18, a depthwise one of MobileNet, and a first one whose channels are filled up."""
    task = SearchTask(getattr(workloads, workload.removeprefix("vta_")), args=args, target="vta")
    assert json.loads(task.workload_key)[0] == workload
    state = draft(task.compute_dag, VTA)
    assert state is not None
    result = PlayedRunner().run(MeasureInput(task, state), BuildResult("", (), 0, "", 0.0))
    assert result.ok, result.error_msg
