"""The templates: their spaces, indices and operations, and what becomes of a trial."""

from __future__ import annotations

import dataclasses

import pytest

import te_lite as te
from ansor.autotvm import Refusal, RunOptions, Task, create, measure_option
from ansor.autotvm.tuner import GridSearchTuner
from ansor.core.device.backend import backend
from ansor.core.errors import BackendError
from ansor.core.tasks.measure_values import MeasureErrorNo
from tests.vta_sim.conv import BEST, LAYERS, Layer
from tests.vta_sim.packed import conv_of
from tests.vta_sim.test_conv_layers import TIMES
from vta_sim.backend import Trials
from vta_sim.compiler import Program, compile_schedule
from vta_sim.sim import PYNQ
from vta_sim.top import ConvKnobs, requantized, schedule_conv2d_packed, templates

# index of the best published configuration, size of the space, and millions of operations
SPACES = {
    "C2": (828, 2304, 231.211008),
    "C3": (681, 1728, 115.605504),
    "C4": (1113, 1728, 12.845056),
    "C5": (1330, 2304, 231.211008),
    "C6": (463, 1280, 115.605504),
    "C7": (526, 1280, 12.845056),
    "C8": (575, 1600, 231.211008),
    "C9": (203, 480, 115.605504),
    "C10": (203, 480, 12.845056),
    "C11": (243, 576, 231.211008),
}


def task_of(layer: Layer) -> Task:
    data = te.placeholder((1, layer.ci, layer.size, layer.size, 1, 16), dtype="int8")
    kernel = te.placeholder((layer.co, layer.ci, layer.kernel, layer.kernel, 16, 16), dtype="int8")
    both = (layer.stride,) * 2, (layer.pad,) * 2, (1, 1)
    return create(templates.conv2d_template, args=(data, kernel, *both, "NCHW1n16c", "int32"), target="vta")


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.one_in(3)
def test_spaces_and_best_configurations(name: str) -> None:
    """The index, the size of the space and the operations that are published; and the time of the trial."""
    index, size, mflop = SPACES[name]
    task = task_of(LAYERS[name])
    assert (len(task.config_space), task.flop) == (size, mflop * 1e6)
    assert task.name == "conv2d_packed.vta" and list(task.config_space) == [
        "tile_b", "tile_h", "tile_w", "tile_ci", "tile_co", "oc_nthread", "h_nthread"
    ]  # fmt: skip
    config = task.config_space.get(index)
    t = BEST[name]
    expected = [["sp", [-1, n]] for n in (1, t.tile_h, t.tile_w, t.tile_ci, t.tile_co)]
    expected += [["ot", t.oc_nthread], ["ot", t.h_nthread]]
    assert [choice.to_json() for _, choice in config.items()] == expected
    trials = backend("vta").templates  # type: ignore[attr-defined]
    costs = trials.run(task, trials.build(task, config), RunOptions())
    assert [c * 1e3 for c in costs] == [pytest.approx(TIMES[name][0], abs=6e-4)]


def test_what_becomes_of_trials() -> None:
    """Refused with the reason, run unchecked, found wrong."""
    layer = Layer(8, 32, 32, 3, 1, 1)
    task, trials = task_of(layer), Trials()
    space = task.config_space
    refused = trials.build(task, space.get(space.knob2point([0, 3, 3, 1, 0, 0, 0])))
    assert isinstance(refused, Refusal) and refused.error_no == MeasureErrorNo.INSTANTIATION_ERROR
    assert refused.reason.startswith("conv2d_packed: the tile of inputs must be evenly spaced rows of one plane, got")
    program = trials.build(task, space.get(space.knob2point([0, 3, 3, 0, 0, 1, 0])))
    assert isinstance(program, Program)
    seconds = trials.run(task, program, RunOptions())
    assert seconds == trials.run(task, program, RunOptions(check_correctness=False))
    body = program.body
    cut = dataclasses.replace(program, body=dataclasses.replace(body, body=body.body[2:]))
    stuck = trials.run(task, cut, RunOptions())
    assert isinstance(stuck, Refusal) and stuck.error_no == MeasureErrorNo.RUNTIME_DEVICE
    assert stuck.reason.startswith("deadlock after ")
    data, weights, conv = conv_of(layer).tensors()
    other = [data, weights, requantized(conv, bits=7)]
    wrong = trials.run(task, compile_schedule(schedule_conv2d_packed(ConvKnobs(), other[-1]), other), RunOptions())
    assert isinstance(wrong, Refusal) and wrong.error_no == MeasureErrorNo.WRONG_ANSWER
    assert wrong.reason.startswith("res: ") and wrong.reason.endswith("of 2048 elements differ from the reference")
    slow = Trials(model=dataclasses.replace(PYNQ, mhz=50.0)).run(task, program, RunOptions())
    assert slow == (2 * seconds[0],)  # type: ignore[index]


def test_grid_search_runs() -> None:
    """Through the tuner: every configuration in turn, valid or not."""
    found = []
    task = task_of(Layer(4, 16, 32, 3, 1, 1))
    tuner = GridSearchTuner(task)
    tuner.tune(36, measure_option=measure_option(), callbacks=[lambda t, i, r: found.extend(r)])
    assert len(found) == 36 and {r.error_no for r in found} == {0, 1}
    assert tuner.best_flops > 0


def test_sketches_have_no_programs() -> None:
    with pytest.raises(BackendError, match="target 'vta': a program is compiled by"):
        backend("vta").check("vta")
    assert [ok for _, ok, _ in backend("vta").report()] == [True, True]
