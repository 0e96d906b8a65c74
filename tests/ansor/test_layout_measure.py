"""Programs are measured as they will be stored: with packed weights where a task says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor import LayoutRewriteOption, LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, SearchTask
from ansor.layout.packing import packed_layouts
from ansor.sketch import generate_sketches
from te_lite import topi
from te_lite.meaning.reference import evaluate
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program

OPTIONS = tuple(LayoutRewriteOption)


def dense_task(option: LayoutRewriteOption, target: str = "c") -> SearchTask:
    data, weight = te.placeholder((5, 48), name="data"), te.placeholder((40, 48), name="weight")
    tensors = [data, weight, topi.nn.relu(topi.nn.dense(data, weight))]
    return SearchTask(compute_dag=tensors, target=target, layout_rewrite_option=option)


def packing_programs(task: SearchTask, count: int) -> list[State]:
    rng = np.random.default_rng(0)
    sketches = generate_sketches(task.compute_dag, task.target, task.hardware_params)
    drawn = [drawn_program(sketches[k % len(sketches)], task.target, task.hardware_params, rng) for k in range(30)]
    return [s for s in drawn if s is not None and packed_layouts(s)][:count]


@pytest.fixture(scope="module")
def builder() -> Iterator[LocalBuilder]:
    made = LocalBuilder(n_parallel=1, timeout=60)
    yield made
    made.close()


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    made = LocalRunner(timeout=60, number=1, repeat=1, min_repeat_ms=0)
    yield made
    made.close()


@pytest.mark.parametrize("option", OPTIONS)
def test_programs_are_right_with_every_option(
    option: LayoutRewriteOption, builder: LocalBuilder, runner: LocalRunner
) -> None:
    task = dense_task(option)
    inputs = [MeasureInput(task, state) for state in packing_programs(task, 2)]
    builds = [builder.submit(inp).result() for inp in inputs]
    packed = [[k for k, _ in built.args] for built in builds]
    assert packed == [[1] if option == LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED else []] * 2
    assert all(runner.run(inp, built).error_no == 0 for inp, built in zip(inputs, builds, strict=True))
    again = [builder.submit(inp).result() for inp in inputs]
    assert all(len(figures) > 0 for figures in runner.compare(inputs, again))


def test_a_weight_in_the_wrong_order_is_a_wrong_answer(builder: LocalBuilder, runner: LocalRunner) -> None:
    task = dense_task(LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)
    inp = MeasureInput(task, packing_programs(task, 1)[0])
    built = builder.submit(inp).result()
    ((argument, digits),) = built.args
    wrong = dataclasses.replace(built, args=((argument, digits[::-1]),))
    assert runner.run(inp, wrong).error_no == MeasureErrorNo.WRONG_ANSWER


def test_records_keep_the_option_and_give_packed_programs(tmp_path: Path) -> None:
    task = dense_task(LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)
    log = tmp_path / "log.json"
    (state,) = packing_programs(task, 1)
    result = ansor.MeasureResult((1e-3,), 0, "", 1.0, 1)
    ansor.save_records(log, [MeasureInput(task, state)], [result])
    ((again, _),) = ansor.load_records(log)
    assert again.task.layout_rewrite_option == LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
    layout = next(iter(packed_layouts(state).values()))
    shapes = {option: [t.shape for t in task.apply_best(log, layout_rewrite_option=option)[1]] for option in OPTIONS}
    assert shapes[OPTIONS[0]] == shapes[OPTIONS[1]] == [(5, 48), (40, 48), (5, 40)]
    assert shapes[OPTIONS[2]] == [(5, 48), layout.packed_shape, (5, 40)]
    schedule, tensors = task.apply_best(log)
    assert [t.shape for t in tensors] == shapes[OPTIONS[2]]
    arrays = [np.random.default_rng(k).standard_normal(s).astype("float32") for k, s in enumerate(shapes[OPTIONS[0]])]
    want = evaluate(task.compute_dag.tensors, dict(zip(task.compute_dag.inputs, arrays, strict=False)), "float64")
    out = np.full((5, 40), np.nan, "float32")
    ansor.build(schedule, tensors, "c")(arrays[0], layout.pack(arrays[1]), out)
    np.testing.assert_allclose(out, want[task.compute_dag.outputs[0]], rtol=0, atol=1e-4)
    declared = np.full((5, 40), np.nan, "float32")
    task.build_best(log)(arrays[0], arrays[1], declared)
    np.testing.assert_allclose(declared, want[task.compute_dag.outputs[0]], rtol=0, atol=1e-4)


def test_options_are_checked() -> None:
    assert dense_task(LayoutRewriteOption.NO_REWRITE, "cuda").layout_rewrite_option == 0
    with pytest.raises(ansor.TaskError, match="for target c only"):
        dense_task(LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED, "cuda")
