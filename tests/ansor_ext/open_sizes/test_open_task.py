"""Tasks for a range of sizes: what is searched and measured, what a log alone gives, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.core.tasks.measure_values import MeasureErrorNo, MeasureResult, failed
from ansor.policy.tuning_options import TuningOptions
from ansor.records.lines import RecordReader
from ansor_ext.open_sizes import at_points
from ansor_ext.open_sizes.dispatch import OpenFunction
from ansor_ext.open_sizes.measure import Measuring
from ansor_ext.open_sizes.measured import Steps, Values, open_input, seconds_in
from ansor_ext.open_sizes.task import OpenTask
from codegen_c.errors import CallError
from te_lite.extensions import using
from te_lite.schedule.loop_steps import Split
from tests.ansor_ext.open_sizes.programs import CASES, Case, arrays
from tests.nonempty import nonempty

MOST = 24


def case() -> Case:
    return CASES["rows_by_matrix"](1, MOST)


def task_of(made: Case, values: Sequence[int] = (1, 8, 24)) -> OpenTask:
    found = ansor.SearchTask(compute_dag=list(made.tensors), target="c", sizes={"n": list(values)})
    assert isinstance(found, OpenTask)
    return found


def tiled(task: OpenTask, factor: int) -> Steps:
    """Rows in parts of `factor`, each part a parallel turn."""
    out = task.compute_dag.tensors[-1]
    s = te.create_schedule(out)
    outer, _ = s[out].split(s[out].op.axis[0], factor=factor)
    s[out].parallel(outer)
    return tuple(s.state.steps)


def note(log: Path, task: OpenTask, steps: Steps, seconds: dict[int, float | MeasureResult]) -> None:
    """Records of a program for all sizes."""
    for n, cost in seconds.items():
        result = cost if isinstance(cost, MeasureResult) else MeasureResult((cost,), 0, "", 1.0, 1)
        record = open_input(task.compute_dag, task.tasks[n,], (n,), steps)
        ansor.save_records(log, [record], [result])


def check(made: Case, function: OpenFunction, sizes: Sequence[int]) -> None:
    """What a function leaves in poisoned outputs, beside NumPy."""
    for n in nonempty(sizes):
        *given, out = arrays(made, (n,), np.random.default_rng(n))
        function(*given, out)
        np.testing.assert_allclose(out, made.expected(*given), rtol=1e-5, atol=1e-5)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Case, OpenTask, Path]:
    """A log of three programs, of which the second is the best nowhere."""
    made, log = case(), tmp_path / "log.json"
    task = task_of(made)
    note(log, task, tiled(task, 1), {1: 1e-6, 8: 8e-6, 24: 30e-6})
    note(log, task, tiled(task, 2), {1: 2e-6, 8: 9e-6, 24: 20e-6})
    note(log, task, tiled(task, 8), {1: 4e-6, 8: 5e-6, 24: 10e-6})
    return made, task, log


def test_all_sizes_of_a_range_are_right(written: tuple[Case, OpenTask, Path]) -> None:
    made, task, log = written
    check(made, task.build_best(log), range(1, MOST + 1))


def test_the_set_follows_from_the_log_alone(written: tuple[Case, OpenTask, Path]) -> None:
    _, task, log = written
    again = task_of(case())
    function, other = task.build_best(log), again.build_best(log)
    assert [s.steps for s in function.states] == [s.steps for s in other.states] == [tiled(task, 8), tiled(task, 1)]
    numbers = [function.number((n,)) for n in range(1, MOST + 1)]
    assert numbers == [other.number((n,)) for n in range(1, MOST + 1)]
    assert numbers[0] == 1 and numbers[7] == numbers[23] == 0 and numbers == sorted(numbers, reverse=True)


def test_a_size_is_decided_once(written: tuple[Case, OpenTask, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    made, task, log = written
    function = task.build_best(log)
    asked: list[Values] = []
    best = type(function._scores).best_at
    monkeypatch.setattr(type(function._scores), "best_at", lambda s, values: asked.append(values) or best(s, values))
    for n in (3, 24, 3, 3, 24):
        *given, out = arrays(made, (n,), np.random.default_rng(n))
        function(*given, out)
    assert asked == [(3,), (24,)]


def test_what_failed_somewhere_is_not_kept(written: tuple[Case, OpenTask, Path]) -> None:
    _, task, log = written
    note(log, task, tiled(task, 4), {1: 5e-7, 8: 5e-7, 24: failed(MeasureErrorNo.WRONG_ANSWER, "wrong", 1.0)})
    note(log, task, tiled(task, 3), {1: 1e-30, 8: 1e-30, 24: 1e-30})
    assert [s.steps for s in task.best_states(log)] == [tiled(task, 8), tiled(task, 1)]


def test_steps_that_are_no_program_are_left_out(written: tuple[Case, OpenTask, Path]) -> None:
    _, task, log = written
    beyond = Split(99, 0, 24, (4,))
    for steps in nonempty([(beyond,), (*tiled(task, 2), beyond)]):
        note(log, task, steps, {1: 1e-7, 8: 1e-7, 24: 1e-7})
    assert [s.steps for s in task.best_states(log)] == [tiled(task, 8), tiled(task, 1)]


@pytest.mark.parametrize("name", ["turned_around", "softmax", "batches"])
def test_several_sizes(name: str) -> None:
    """Values are in the order in which arguments have the sizes, and each combination has its own decision."""
    made = CASES[name](1, 9)
    sizes = {v.name: [1, 9] for v in made.sizes}
    task: Any = ansor.SearchTask(compute_dag=list(made.tensors), target="c", sizes=sizes)
    assert task.compute_dag.sizes == made.sizes and list(task.tasks) == [(1, 1), (1, 9), (9, 1), (9, 9)]
    function = task.build_default()
    for values in nonempty([(1, 9), (9, 1), (2, 7), (8, 3)]):
        *given, out = arrays(made, values, np.random.default_rng(values))
        function(*given, out)
        np.testing.assert_allclose(out, made.expected(*given), rtol=1e-4, atol=1e-5)
    assert list(function._decided) == [(1, 9), (9, 1), (2, 7), (8, 3)]


def test_at_most_eight_programs(tmp_path: Path) -> None:
    made, log, values = case(), tmp_path / "log.json", range(1, 13)
    task = task_of(made, values)
    for k in values:
        note(log, task, tiled(task, k), {n: 1e-6 if n == k else 1e-4 for n in values})
    assert len(task.best_states(log)) == 8


def test_records_have_extents_by_name(written: tuple[Case, OpenTask, Path]) -> None:
    _, task, log = written
    (inp, _), *rest = list(RecordReader(log))
    name, sizes, *shapes = json.loads(inp.task.workload_key)
    assert (sizes, shapes) == ({"n": [1, 24, 1]}, [["n", 12], [12, 10], ["n", 10]]) and len(rest) == 8
    fixed = task.tasks[1,]
    assert json.loads(fixed.workload_key) == [name.removeprefix("open_"), [1, 12], [12, 10], [1, 10]]
    assert name.startswith("open_")
    assert inp.task.compute_dag.workload_key() == fixed.workload_key
    with pytest.raises(ansor.NoRecordError):
        fixed.best_state(log)


def test_fixed_sizes_in_a_log_are_what_programs_are_held_against(written: tuple[Case, OpenTask, Path]) -> None:
    _, task, log = written
    fixed = task.tasks[24,]
    ansor.save_records(log, [ansor.MeasureInput(fixed, steps=tiled(task, 8))], [MeasureResult((2e-6,), 0, "", 1.0, 1)])
    assert dict(zip(task.tasks, task._known(log), strict=True)) == {(1,): math.inf, (8,): math.inf, (24,): 2e-6}


def test_a_log_without_programs_is_refused(tmp_path: Path) -> None:
    task, log = task_of(case()), tmp_path / "log.json"
    ansor.save_records(log, [ansor.MeasureInput(task.tasks[8,], steps=())], [MeasureResult((1e-5,), 0, "", 1.0, 1)])
    with pytest.raises(ansor.NoRecordError, match=r"it holds no program for all sizes of this task, got records=0$"):
        task.build_best(log)


def test_sizes_of_a_call_out_of_bounds_are_refused(written: tuple[Case, OpenTask, Path]) -> None:
    made, task, log = written
    function = task.build_best(log)
    b = np.ones((12, 10), "float32")
    with pytest.raises(CallError, match=r"\(A\[n, 12\]\): n must be 1 to 24, the same in all arguments, got 25$"):
        function(np.ones((25, 12), "float32"), b, np.empty((25, 10), "float32"))
    with pytest.raises(CallError, match=r"D\[n, 10\]\): n must be 1 to 24, the same in all .* got 3"):
        function(np.ones((2, 12), "float32"), b, np.empty((3, 10), "float32"))
    assert made.sizes


def test_default_programs_need_no_log() -> None:
    made = case()
    function = task_of(made).build_default()
    assert 1 <= len(function.programs) <= 3 and "_seconds" in function.source
    check(made, function, range(1, MOST + 1, 5))


def test_default_programs_of_tasks_of_numbers() -> None:
    task = ansor.SearchTask("matmul", (6, 8, 10), target="c")
    a, b = [np.random.default_rng(0).standard_normal(s).astype("float32") for s in ((6, 10), (10, 8))]
    c = np.full((6, 8), np.nan, "float32")
    task.build_default()(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def test_functions_take_sizes_as_arguments() -> None:
    n = te.size_var("n", 1, 64)
    task = ansor.SearchTask("matmul", (n, 8, 10), target="c", sizes={"n": [(1, 0.25), 64]})
    assert task.compute_dag.sizes == (n,) and list(task.tasks) == [(1,), (64,)]
    assert [p.weight for p in task.points] == [0.25, 0.75]
    assert repr(task) == "OpenTask(ComputeDAG(A, B, C), n=1..64, c)"


def test_the_least_the_middle_and_the_greatest_work_is_searched() -> None:
    task = task_of(case(), (24, 1, 3, 8, 12))
    assert [t.compute_dag.tensors[0].shape[0] for t in task.searched] == [1, 8, 24]
    assert [t.compute_dag.tensors[0].shape[0] for t in task_of(case(), (5,)).searched] == [5]


def rows(extent: Any, shift: int = 0) -> list[te.Tensor]:
    a = te.placeholder((extent,), name="A")
    return [a, te.compute((extent,), lambda i: a[i + shift] * 2.0, name="B")]


def alike() -> list[te.Tensor]:
    """Two sizes of one name."""
    a = te.placeholder((te.size_var("n", 1, 8), te.size_var("n", 1, 8)), name="A")
    return [a, te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="B")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"compute_dag": rows(8)}, "OpenTask: an extent is open, as te.size_var"),
        ({"compute_dag": rows(te.size_var("n", 1, 8)), "target": "vta"}, "OpenTask: .* for targets c and cuda, got"),
        ({"compute_dag": rows(te.size_var("n", 1, 8), 1)}, "B: in_bounds: index 8"),
        ({"func": "no_such_workload_at_all"}, "workload 'no_such_workload_at_all': is not registered"),
        ({}, "OpenTask: a computation is needed"),
        ({"func": "matmul"}, r"workload 'matmul': its function fails for the arguments \[\]: .*missing 3 required"),
        ({"func": "matmul", "args": "888"}, "workload 'matmul': args must be a list or tuple .* got '888'$"),
        ({"func": lambda: 3}, "a list of tensors is needed, the inputs and outputs of the workload, got 3$"),
        ({"compute_dag": 3}, "OpenTask: compute_dag: a list of tensors is needed, .* got 3$"),
        ({"compute_dag": "c"}, "OpenTask: the target must be a keyword, .* got 'c'$"),
        ({"func": "matmul", "target": None}, "OpenTask: a target is needed, for example target='c'$"),
        ({"func": "matmul", "precision": "tf32", "workload_key": None, "task_inputs": {}},
         "takes func, args, .* hardware_params, desc and invariant, got 'precision, task_inputs'$"),
        ({"compute_dag": alike()}, r"OpenTask: open extents have names of their own, got sizes=\['n', 'n'\]$"),
        ({"compute_dag": rows(te.size_var("n", 1, 8)), "sizes": {"n": [9]}}, "a value is one of 1 to 8, got 9"),
    ],
)  # fmt: skip
def test_what_is_no_task_for_a_range_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(te.errors.TeError, match=said) as caught:
        ansor.SearchTask(**{"target": "c", "sizes": {}, **given})
    assert "\n" not in str(caught.value)


def test_what_a_task_for_a_range_lacks_is_named() -> None:
    with pytest.raises(AttributeError, match=r"no 'export_best'; it has tune, best_states, build_best and build_def"):
        task_of(case()).export_best("log", "folder")
    with pytest.raises(ansor.TaskError, match=r"are recorded, got n; sizes=\{...\} says which values of open extents"):
        ansor.SearchTask("matmul", (te.size_var("n", 1, 8), 8, 8), target="c")


def test_a_log_is_needed_to_tune() -> None:
    with pytest.raises(ansor.TaskError, match=r"measure_callbacks need an ansor.RecordToFile"):
        task_of(case()).tune(TuningOptions(8))
    with pytest.raises(ansor.TaskError, match=r"the options must be ansor.TuningOptions"):
        task_of(case()).tune(8)  # type: ignore[arg-type]


def test_few_trials_measure_one_program_and_leave_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    for trials in nonempty((0, 1)):
        task_of(case(), (1, 24)).tune(TuningOptions(trials, measure_callbacks=[ansor.RecordToFile(log)], verbose=0))
        assert len(list(RecordReader(log))) == trials


def test_the_command_that_times_again_leaves_programs_for_all_sizes_alone(
    written: tuple[Case, OpenTask, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """It would time programs of numbers in their place, and the log would believe it."""
    _, _, log = written
    before = log.read_text()
    assert main(["remeasure", str(log)]) != 0
    assert "holds no valid record of a task whose extents are numbers" in capsys.readouterr().err
    assert log.read_text() == before


def test_a_search_over_a_range(tmp_path: Path) -> None:
    """The whole way, in worker processes; a second call goes on and measures nothing twice."""
    made, log = case(), tmp_path / "log.json"
    task = task_of(made, (1, 24))
    heard: list[str] = []

    class Hears(ansor.PythonBasedMeasureCallback):
        def callback(self, policy: Any, inputs: Any, results: Any) -> None:
            heard.extend([inp.task.workload_key for inp in inputs])

    for trials in (9, 3):
        with using("open_sizes"):
            task.tune(TuningOptions(trials, measure_callbacks=[ansor.RecordToFile(log), Hears()], verbose=0))
    found = [(inp.task.workload_key, inp.steps) for inp, _ in RecordReader(log)]
    assert len(set(found)) == len(found) == 12 and [key for key, _ in found] == heard
    assert sum("open_" in key for key, _ in found) == 6
    check(made, task.build_best(log), range(1, MOST + 1, 4))


def test_a_wrong_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is told one row less than there are leaves a row as it was."""
    task, log = task_of(case()), tmp_path / "log.json"
    text = at_points.text_at_points
    monkeypatch.setattr(
        at_points,
        "text_at_points",
        lambda func, points, target: text(func, [(n - (n > 1),) for (n,) in points], target),
    )
    runner = ansor.LocalRunner(min_repeat_ms=1)
    hearing = [ansor.RecordToFile(log)]
    measuring = Measuring(task.compute_dag, task.tasks, {}, hearing, runner, tmp_path, 9, math.inf)
    assert measuring.measure(tiled(task, 4), [(1,), (8,), (24,)])
    runner.close()
    assert [res.error_no for _, res in RecordReader(log)] == [MeasureErrorNo.NO_ERROR, MeasureErrorNo.WRONG_ANSWER]
    assert measuring.left == 7 and measuring.seconds[tiled(task, 4)][8,] == math.inf
    assert seconds_in(log, task.compute_dag, task.tasks)[tiled(task, 4)][8,] == math.inf
