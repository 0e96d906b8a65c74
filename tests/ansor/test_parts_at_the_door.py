"""Parts of one's own that do not keep their protocol are refused in one sentence that names the part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.errors import PartError
from ansor.core.tasks.measure_values import failed
from ansor.evolve.checked import require_rows
from ansor.evolve.mutation import CPU_MUTATIONS
from ansor.offline.analytical import AnalyticalRunner
from ansor.sketch import CPU_RULES, generate_sketches
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.states import concrete
from ansor.space.variants import home
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from tests.ansor.evolution_cases import random_rows, space_named, valid
from tests.workloads import matmul

PARAMS = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}


@pytest.fixture(scope="module")
def task() -> ansor.SearchTask:
    hardware = ansor.HardwareParams(num_cores=2, vector_unit_bytes=32)
    return ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(12, 8, 6)), target="c", hardware_params=hardware)


def tune(task: ansor.SearchTask, model: Any = None, trials: int = 8, **options: Any) -> None:
    runner = AnalyticalRunner()
    policy = ansor.SketchPolicy(task, model or ansor.RandomModel(0), PARAMS, seed=0, verbose=0, **options)
    task.tune(ansor.TuningOptions(trials, None, 4, 0, runner.builder(), runner), policy)


def test_what_a_policy_learns_from_may_be_unfinished(task: ansor.SearchTask) -> None:
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), PARAMS, seed=0, verbose=0)
    inputs = [ansor.MeasureInput(task, state) for state in policy.generate_sketches()]
    policy.tell(inputs, [failed(2, "no lengths", 0.0) for _ in inputs])
    assert policy.measured == []


def one_sentence(text: str) -> Any:
    """A context that asks for a TaskError which says so, and that no report of a failed search is written."""
    return pytest.raises(ansor.TaskError, match=rf"^[^\n]*{text}[^\n]*$")


@pytest.fixture(autouse=True)
def no_report(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir()), "a part that is wrong is no failure of the search"


class Mutation:
    name, weight = "mine", 100.0

    def __init__(self, function: Callable[[np.ndarray], Any]) -> None:
        self.function = function

    def apply(self, rows: np.ndarray, space: Any, rng: np.random.Generator) -> Any:
        return self.function(rows)


class Model:
    """A model of features or states that gives what it is told to."""

    def __init__(self, scores: Callable[[int], Any]) -> None:
        self.scores = scores

    def update(self, inputs: Any, results: Any) -> None:
        pass

    def predict(self, task: Any, states: Any) -> Any:
        return self.scores(len(states))


def giving(**attributes: Any) -> Any:
    """An object with these attributes."""
    return type("Part", (), attributes)()


class Searches:
    """A policy whose search takes one argument only."""

    def search(self, trials: int) -> None:
        pass


class Sketches(ansor.SketchPolicy):
    """A policy that proposes sketches as if they were programs."""

    def ask(self, n: int) -> list[State]:
        return self.generate_sketches()[:n]


def tune_by(task: ansor.SearchTask, policy: Any) -> None:
    runner = AnalyticalRunner()
    task.tune(ansor.TuningOptions(4, None, 4, 0, runner.builder(), runner), policy)


class OnlyUpdates:
    def update(self, inputs: Any, results: Any) -> None:
        pass


class NoBuilderYet:
    def submit(self, inp: Any) -> Any:
        pass


def last_set(rows: np.ndarray, value: int) -> np.ndarray:
    """The same array, its last column changed."""
    rows[:, -1] = value
    return rows


def everywhere(rows: np.ndarray) -> np.ndarray:
    return np.ones(len(rows), bool)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda rows: (rows * 0 + 7, everywhere(rows)), "got .*7"),
        (lambda rows: (rows * 0 - 1, everywhere(rows)), "got .*-1"),
        (lambda rows: (rows[:, :1], everywhere(rows)), "the rows must be int64 of shape"),
        (lambda rows: (rows + 0.5, everywhere(rows)), "the rows must be int64 of shape .* dtype='float64'"),
        (lambda rows: (rows, everywhere(rows)[:-1]), r"the mask must be bool of shape .* shape=\(\d+,\)"),
        (lambda rows: (rows, np.ones(len(rows))), "the mask must be bool of shape"),
        (lambda rows: (rows, everywhere(rows)), "the mask must be True for the rows that differ .* got rows=.0, 1"),
        (lambda rows: (last_set(rows, 64), ~everywhere(rows)), "the mask must be True for the rows that differ"),
        (lambda rows: rows, "apply must give a pair"),
        (lambda rows: None, "apply must give a pair, .* got None"),
    ],
)
def test_a_mutation_must_give_programs(task: ansor.SearchTask, function: Callable[..., Any], text: str) -> None:
    with one_sentence(f"mutation 'mine': .*{text}"):
        tune(task, Model(np.arange), mutations=[Mutation(function)])


@pytest.mark.parametrize(
    ("mutations", "text"),
    [
        ([], "a list of mutations is needed"),
        (Mutation(lambda rows: None), "a list of mutations is needed"),
        ([3], "an object with name, weight and apply"),
        ([Mutation], "a class was given, call it"),
        ([OnlyUpdates()], "an object with name, weight and apply"),
        ([giving(name="mine", apply=print)], "is needed; it lacks weight, got"),
    ],
)
def test_mutations_are_a_list_of_objects(task: ansor.SearchTask, mutations: Any, text: str) -> None:
    with one_sentence(f"mutations: .*{text}"):
        tune(task, mutations=mutations)
    for weight in (0, -1.0, float("nan"), float("inf"), "1"):
        bad = Mutation(lambda rows: None)
        bad.weight = weight  # type: ignore[assignment]
        with one_sentence("mutation 'mine': the weight must be a positive number"):
            tune(task, mutations=[*CPU_MUTATIONS, bad])


@pytest.mark.parametrize(("name", "target"), [("prime_matmul", "c"), ("strided_conv", "cuda"), ("winograd", "c")])
def test_rows_are_judged_as_they_are_defined(name: str, target: str) -> None:
    """The oracle is the definition of a valid row in `evolution_cases`."""
    space, rng = space_named(name, target, 16), np.random.default_rng(0)
    rows = random_rows(space, 300, rng)
    require_rows(rows, space, "all")
    spoiled = rows + (rng.random(rows.shape) < 0.02) * rng.integers(-2, 3, rows.shape)
    good = valid(space, spoiled)
    assert 20 < good.sum() < 280
    for row, ok in zip(spoiled, good, strict=True):
        try:
            require_rows(row[None], space, "one")
        except PartError:
            assert not ok
        else:
            assert ok


def rule(action: Callable[[Any, Any, int], Any], name: str = "mine") -> Any:
    return ansor.PreloadCustomSketchRule(lambda policy, state, k: 2, action, name)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda policy, state, k: [[state, k]], "stage 2 is given back as it is, for ever"),
        (lambda policy, state, k: [[apply(state, Split(k, 0, 12, (1,))), k]], "goes on for ever"),
        (lambda policy, state, k: [[apply(state, Split(k, 0, 12, (None,))), k]] * 3, "for ever|states at once"),
        (lambda policy, state, k: [], "must give a list of pairs"),
        (lambda policy, state, k: None, "must return a list of pairs"),
        (lambda policy, state, k: [state], "must return pairs"),
        (lambda policy, state, k: [[state, k + 1]], "the stage to look at next must be one of its 3"),
        (lambda policy, state, k: [[state, -2]], "the stage to look at next must be one of its 3"),
        (lambda policy, state, k: [[policy.task.compute_dag.init_state, k - 1]], None),
    ],
)
def test_a_rule_must_lead_on(
    task: ansor.SearchTask, action: Callable[..., Any], text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ansor.sketch.custom.MOST_STATES", 2_000)
    with one_sentence(f"mine'?: .*({text})") if text is not None else nullcontext():
        tune(task, init_search_callbacks=[rule(action)])


def test_a_rule_must_go_on_from_its_state(task: ansor.SearchTask) -> None:
    def once(policy: Any, state: Any, k: int) -> Any:
        return [[apply(state, Split(k, 0, 12, (2,))) if not state.steps else policy.task.compute_dag.init_state, k - 1]]

    with one_sentence("sketch rule 'mine': a state must go on from the one it is given"):
        tune(task, init_search_callbacks=[rule(once)])


def test_a_rule_is_two_functions_or_an_object(task: ansor.SearchTask) -> None:
    with one_sentence("mine: a condition and an action are needed"):
        ansor.PreloadCustomSketchRule(3, 4, "mine")  # type: ignore[arg-type]
    with one_sentence("custom sketch rule: .* with paper, departs, condition and apply, is needed"):
        ansor.sketch.generate_sketches(task.compute_dag, "c", custom_rules=[OnlyUpdates()])  # type: ignore[list-item]


@pytest.mark.parametrize("model", ["xgb", 3, ansor.XGBModel, OnlyUpdates()])
def test_a_model_has_its_methods(task: ansor.SearchTask, model: Any) -> None:
    with one_sentence("SketchPolicy: a cost model, an object with update and predict, .* is needed"):
        ansor.SketchPolicy(task, model)


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (lambda n: np.full(n, np.nan), "NaN is none, got nan="),
        (lambda n: np.zeros(n + 1), "one score per program is needed"),
        (lambda n: None, "one score per program is needed|scores must be numbers"),
        (lambda n: ["good"] * n, "scores must be numbers"),
    ],
)
def test_scores_are_numbers(task: ansor.SearchTask, scores: Callable[[int], Any], text: str) -> None:
    with one_sentence(f"cost model Model: .*({text})"):
        tune(task, Model(scores))
    tune(task, Model(lambda n: np.where(np.arange(n) % 2, np.nan, 1.0)))


def test_a_number_of_numpy_is_a_number(task: ansor.SearchTask) -> None:
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), PARAMS, seed=0, verbose=0)
    assert len(policy.ask(np.int64(3))) == 3  # type: ignore[arg-type]
    assert policy.ask(0) == []


@pytest.mark.parametrize("field", ["num_cores", "vector_unit_bytes", "cache_line_bytes"])
def test_a_machine_has_cores_and_bytes(field: str) -> None:
    with one_sentence(f"hardware parameter {field}: .* got 0"):
        ansor.HardwareParams(**{field: 0})
    assert ansor.HardwareParams(*[0] * 8).num_cores == 0


NOTHING = OnlyUpdates()
HARDWARE = ansor.HardwareParams(num_cores=-1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: ansor.SearchTask(compute_dag=t.compute_dag, target="c", hardware_params="4"), "hardware_params"),
        (lambda t: ansor.SearchTask(compute_dag=t.compute_dag, target="c", hardware_params=HARDWARE), "num_cores"),
        (lambda t: ansor.SearchTask(compute_dag=3, target="c"), "compute_dag: must be a ComputeDAG or a list"),
        (lambda t: ansor.SearchTask("norm", 8, target="c"), "args: must be a list or tuple"),
        (lambda t: ansor.TuningOptions(4, measure_callbacks=[NOTHING]), "measure_callbacks: .* a method callback"),
        (lambda t: ansor.TuningOptions(4, measure_callbacks=[ansor.RecordToFile]), "a class must be called"),
        (lambda t: ansor.TuningOptions(4, runner=NOTHING), "runner: 'local' or an object with run and close"),
        (lambda t: ansor.TuningOptions(4, runner=ansor.LocalRunner), "runner: .*a class was given, call it"),
        (lambda t: ansor.TuningOptions(4, builder=3), "builder: 'local' or an object with n_parallel, submit and"),
        (lambda t: ansor.SketchPolicy("matmul"), "SketchPolicy: a SearchTask is needed"),
        (lambda t: ansor.SketchPolicy(t, params=[1]), "params must be a mapping"),
        (lambda t: ansor.SketchPolicy(t, init_search_callbacks=[NOTHING]), "init_search_callbacks"),
        (
            lambda t: ansor.SketchPolicy(t, init_search_callbacks=[CPU_RULES[0]]),
            r"init_search_callbacks: a SketchRule goes to generate_sketches\(custom_rules=\) or register_target",
        ),
        (lambda t: ansor.SketchPolicy(t, OnlyUpdates()), "is needed; it lacks predict, got"),
        (lambda t: ansor.TuningOptions(4, builder=NoBuilderYet()), "it lacks n_parallel, close, got"),
        (lambda t: ansor.SearchTask("norm", (np.arange(3), 8, 8), target="c"), r"argument: .* by its tolist\(\)"),
        (lambda t: ansor.register_target("npu", "json", rules=5), "register_target 'npu': rules: a list of .*, got 5"),
        (lambda t: sample_rows(None, 3, 0, "c", None), "sample_rows: rng: a numpy.random.Generator is needed"),
        (lambda t: t.tune(4), "the options must be ansor.TuningOptions"),
        (lambda t: t.tune(ansor.TuningOptions(4), ansor.SketchPolicy), "must be an object .* class was given, call it"),
        (
            lambda t: t.tune(ansor.TuningOptions(4), Searches()),
            r"policy Searches: search must take .* got \(trials",
        ),
        (lambda t: ansor.SketchPolicy(t, verbose=0).ask("3"), "SketchPolicy.ask: n must be an integer .* got '3'"),
        (lambda t: ansor.SketchPolicy(t, verbose=0).ask(2.5), "SketchPolicy.ask: n must be an integer .* got 2.5"),
        (lambda t: ansor.EmptyPolicy(t).ask(-1), "EmptyPolicy.ask: n must be an integer .* got -1"),
        (lambda t: generate_sketches(t.compute_dag, t.target, custom_rules=5), "custom_rules: a list .* got 5"),
        (lambda t: tune_by(t, Sketches(t, verbose=0)), "policy Sketches: ask must give programs, but a split of"),
        (lambda t: ansor.TaskScheduler(t), "a list of SearchTask objects"),
        (lambda t: ansor.TaskScheduler([t], objective_func=3), "objective_func must be a function"),
        (
            lambda t: ansor.TaskScheduler([t], objective_func=lambda c: 1 / 0),
            "objective_func: the function raised Zero",
        ),
        (lambda t: ansor.TaskScheduler([t], objective_func=lambda a, b: 1), "the function raised TypeError"),
        (lambda t: ansor.TaskScheduler([t], callbacks=[NOTHING]), "callbacks: .* a method pre_tune or post_tune"),
    ],
)
def test_what_is_handed_in_is_named(task: ansor.SearchTask, call: Callable[..., Any], text: str) -> None:
    with one_sentence(text):
        call(task)


@pytest.mark.parametrize("result", [None, 3, [], [3], "ab"])
def test_a_workload_gives_tensors(result: Any) -> None:
    ansor.register_workload("gives_what", lambda: result, override=True)
    with one_sentence("workload 'gives_what': its function must give a list of tensors"):
        ansor.SearchTask("gives_what", (), target="c")


def test_rows_have_the_columns_of_their_space() -> None:
    variant, hardware = (
        home(space_named("prime_matmul", "c", 16)),
        ansor.HardwareParams(num_cores=2, vector_unit_bytes=32),
    )
    rows = sample_rows(variant, 2, np.random.default_rng(0), "c", hardware)
    for bad in (rows[0, :-1], rows, rows[0].astype(float), rows[0].tolist()):
        with one_sentence(f"concrete: the row: an int64 array of shape .{variant.space.width},. is needed"):
            concrete(variant, bad, "c", hardware)  # type: ignore[arg-type]
    with one_sentence(f"programs: the rows: an int64 array of shape .2, {variant.space.width}. is needed"):
        programs(variant, rows[:, 1:], "c", hardware)
    assert concrete(variant, rows[0], "c", hardware)
