"""Parts of one's own that raise or break their protocol are named in one sentence; what they raised is its cause."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.errors import MeasureError, PartError
from ansor.core.tasks.measure_values import BuildResult, failed
from ansor.cost_model.api import scores_throughput
from ansor.evolve.checked import require_rows
from ansor.evolve.mutation import CPU_MUTATIONS
from ansor.offline.analytical import AnalyticalRunner, NoBuilder
from ansor.sketch import CPU_RULES, generate_sketches
from ansor.sketch.rule import Condition
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import home
from ansor.space.states import concrete
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from tests.ansor.evolution_cases import random_rows, space_named, valid
from tests.workloads import matmul

PARAMS = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}
TARGETS = ("c", "cuda")
"""Measured in turn and overlapped."""


@pytest.fixture(scope="module")
def tasks() -> dict[str, ansor.SearchTask]:
    hardware = {"c": ansor.HardwareParams(num_cores=2, vector_unit_bytes=32), "cuda": None}
    dag = te.ComputeDAG(matmul(12, 8, 6))
    return {t: ansor.SearchTask(compute_dag=dag, target=t, hardware_params=hardware[t]) for t in TARGETS}


@pytest.fixture
def task(tasks: dict[str, ansor.SearchTask]) -> ansor.SearchTask:
    return tasks["c"]


@pytest.fixture(autouse=True)
def no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.glob("ansor_failure*")), "a part that is wrong is no failure of the search"


def sketch_policy(task: ansor.SearchTask, model: Any = None, **options: Any) -> ansor.SketchPolicy:
    return ansor.SketchPolicy(task, model or ansor.RandomModel(0), PARAMS, seed=0, verbose=0, **options)


def tune(task: ansor.SearchTask, policy: Any = None, runner: Any = None, builder: Any = None) -> None:
    runner = runner or AnalyticalRunner()
    log = ansor.RecordToFile("log.json")
    options = ansor.TuningOptions(8, None, 4, 0, builder or runner.builder(), runner, [log])
    task.tune(options, policy or sketch_policy(task))


def one_sentence(text: str, error: type[ansor.TaskError] = ansor.TaskError) -> Any:
    return pytest.raises(error, match=rf"^[^\n]*{text}[^\n]*$")


def fails(*_: Any) -> Any:
    return [][1]


class Model(ansor.PythonBasedModel):
    def update(self, inputs: Any, results: Any) -> None:
        pass

    def predict(self, task: Any, states: Any) -> Any:
        return np.arange(len(states), dtype=float)

    def predict_features(self, task: Any, features: Any) -> Any:
        return np.arange(len(features), dtype=float)


class Mutation:
    name, weight = "mine", 100.0
    apply = fails


class Rule:
    paper = departs = ""

    def condition(self, ctx: Any, state: Any, k: int) -> Any:
        return Condition.APPLY_AND_SKIP_REST

    def apply(self, ctx: Any, state: Any, k: int) -> Any:
        return [(state, k - 1)]


class Policy:
    def __init__(self, task: ansor.SearchTask) -> None:
        self.task = task
        self.random = ansor.SketchPolicy(task, ansor.RandomModel(0), PARAMS, seed=0, verbose=0)

    def ask(self, n: int) -> Any:
        return self.random.ask(n)

    def tell(self, inputs: Any, results: Any) -> None:
        pass

    def search(self, trials: int, early_stopping: int | None, per_round: int, measurer: Any) -> Any:
        return ansor.policy.search_loop.search_loop(self, self.task, trials, early_stopping, per_round, measurer)


class Runner(AnalyticalRunner):
    pass


class Builder(NoBuilder):
    pass


class OneMethod:
    """No builder, and no policy: its search takes one argument only."""

    def submit(self, inp: Any) -> Any:
        pass

    def search(self, trials: int) -> None:
        pass


class OnlyUpdates:
    def update(self, inputs: Any, results: Any) -> None:
        pass


def giving(cls: type, method: str, answer: Any) -> Any:
    """An object of a class whose `method` gives `answer`, or does as it says."""
    does = answer if callable(answer) or isinstance(answer, property) else lambda *_: answer
    return type(cls.__name__, (cls,), {method: does})


def with_model(method: str) -> Callable[[ansor.SearchTask], None]:
    model = giving(Model, method, property(fails) if method == "ready" else fails)
    model.reads_features = method == "predict_features"
    return lambda t: tune(t, sketch_policy(t, model()))


def with_rule(action: Any, condition: Any = 2) -> Callable[[ansor.SearchTask], None]:
    meets = condition if callable(condition) else lambda *_: condition
    rule = ansor.PreloadCustomSketchRule(meets, action, "mine")
    return lambda t: tune(t, sketch_policy(t, Model(), init_search_callbacks=[rule]))


def with_mutation(apply: Callable[..., Any], *others: Any) -> Callable[[ansor.SearchTask], None]:
    return lambda t: tune(t, sketch_policy(t, Model(), mutations=[*others, giving(Mutation, "apply", apply)()]))


def raised(call: Callable[[], None]) -> PartError:
    with pytest.raises(PartError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


RAISES = {
    "cost model Model: predict raised": with_model("predict"),
    "cost model Model: predict_features raised": with_model("predict_features"),
    "cost model Model: update raised": with_model("update"),
    "cost model Model: ready raised": with_model("ready"),
    "mutation 'mine': apply raised": with_mutation(fails, *CPU_MUTATIONS),
    "sketch rule 'mine': the condition raised": with_rule(fails, fails),
    "sketch rule 'mine': the action raised": with_rule(fails),
    "policy Policy: ask raised": lambda t: tune(t, giving(Policy, "ask", fails)(t)),
    "policy Policy: tell raised": lambda t: tune(t, giving(Policy, "tell", fails)(t)),
    "policy Policy: search raised": lambda t: tune(t, giving(Policy, "search", lambda *_: fails())(t)),
    "runner Runner: run raised": lambda t: tune(t, runner=giving(Runner, "run", fails)()),
    "builder Builder: submit raised": lambda t: tune(t, builder=giving(Builder, "submit", fails)()),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", RAISES)
def test_a_part_that_raises_is_named(tasks: dict[str, ansor.SearchTask], text: str, target: str) -> None:
    error = raised(lambda: RAISES[text](tasks[target]))
    line = fails.__code__.co_firstlineno + 1
    assert str(error) == f"{text} IndexError: list index out of range (test_parts_at_the_door.py, line {line})"
    assert isinstance(error.__cause__, IndexError)


def result(costs: Any = (1e-3,), error_no: Any = 0, all_cost: Any = 0.1, **fields: Any) -> ansor.MeasureResult:
    return replace(ansor.MeasureResult(costs, error_no, "", all_cost, 0), **fields)


def future(value: Any) -> Future[Any]:
    out: Future[Any] = Future()
    out.set_result(value)
    return out


ANSWERS = [
    (Runner, "run", "MeasureResult, got None", None),
    (Runner, "run", "positive .*, got -1", result((-1,))),
    (Runner, "run", "positive .*, got nan", result((np.nan,))),
    (Runner, "run", "positive .*, got 0", result((1e-3, 0))),
    (Runner, "run", "the cost of a failure .*, got inf", result((np.inf,), 4)),
    (Runner, "run", "costs .*, got 0.001", result(1e-3)),
    (Runner, "run", r"costs .*, got \(\)", result(())),
    (Runner, "run", "error_msg .*, got None", result(error_msg=None)),
    (Runner, "run", "error_no .*, got 'bad'", result(error_no="bad")),
    (Runner, "run", "error_no .*, got 77", result(error_no=77)),
    (Runner, "run", "error_no .*, got True", result(error_no=True)),
    (Runner, "run", "all_cost .*, got 'now'", result(all_cost="now")),
    (Runner, "run", "all_cost .*, got None", result(all_cost=None)),
    (Runner, "run", "timestamp .*, got 'now'", result(timestamp="now")),
    (Runner, "run", "device .*, got 0", result(device=0)),
    (Runner, "compare", "compare .* positive figures for each", None),
    (Runner, "compare", "compare .* positive figures for each", []),
    (Runner, "compare", "compare .* positive figures for each", [[-1.0]]),
    (Runner, "compare", "compare .* positive figures for each", [[1e-3]] * 3),
    (Runner, "compare", "compare .* positive figures for each", [None] * 8),
    (Builder, "submit", "submit .*, got None", None),
    (Builder, "submit", "the Future .*, got 'a.so'", future("a.so")),
    (Builder, "submit", "error_no .*, got 77", future(BuildResult("", (), 77, "", 0.0))),
    (Policy, "ask", r"ask .* list of states, got \[1, 2\]", [1, 2]),
    (Policy, "ask", "ask .* list of states, got None", None),
    (Policy, "ask", r"ask\(4\) .* at most 4 states, got 9", lambda p, n: p.random.ask(n + 5)),
    (Policy, "ask", "ask must give programs, but a split of", lambda p, n: p.random.generate_sketches()[:n]),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("part", "method", "text", "answer"), ANSWERS)
def test_an_answer_that_is_none_is_named(
    tasks: dict[str, ansor.SearchTask], part: type, method: str, text: str, answer: Any, target: str
) -> None:
    task, made, kind = tasks[target], giving(part, method, answer), part.__name__.lower()
    with one_sentence(f"{kind} {part.__name__}: .*{text}", PartError):
        tune(task, **{kind: made(task) if part is Policy else made()})


@pytest.mark.parametrize("count", [0, -1, "2", None, True])
def test_a_builder_builds_at_least_one_at_a_time(task: ansor.SearchTask, count: Any) -> None:
    with one_sentence(f"builder Builder: n_parallel .*, got {count!r}", PartError):
        tune(task, builder=type("Builder", (Builder,), {"n_parallel": count})())


@pytest.mark.parametrize("target", TARGETS)
def test_states_of_another_computation_are_no_answer(tasks: dict[str, ansor.SearchTask], target: str) -> None:
    other = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(12, 8, 5)), target=target)
    error = raised(lambda: tune(tasks[target], giving(Policy, "ask", lambda p, n: Policy(other).ask(n))(tasks[target])))
    assert str(error).startswith("policy Policy: ask must give states of this task, ")
    again = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(12, 8, 6)), target=target)
    tune(tasks[target], giving(Policy, "ask", lambda p, n: Policy(again).ask(n)[:1])(tasks[target]))


def test_what_a_policy_is_told_fits(task: ansor.SearchTask) -> None:
    other = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(12, 8, 5)), target="c")
    policy = sketch_policy(task, Model())
    inputs = [ansor.MeasureInput(task, state) for state in policy.ask(2)]
    for told, results, text in (
        (inputs, [], "each input needs one result"),
        (inputs, [1e-6] * 2, r"results must be a list of MeasureResult, got \[1e-06\]"),
        (None, [], "inputs must be a list of MeasureInput, got None"),
        ([ansor.MeasureInput(other)], [result()], "an input is of another task than SearchTask"),
    ):
        with pytest.raises(ansor.TaskError, match=f"^SketchPolicy.tell: {text}"):
            policy.tell(told, results)  # type: ignore[arg-type]
    policy.tell(inputs, [result()] * 2)
    sketches = [ansor.MeasureInput(task, state) for state in policy.generate_sketches()]
    policy.tell(sketches, [failed(2, "no lengths", 0.0) for _ in sketches])
    assert len(policy.measured) == 2


@pytest.mark.parametrize("answer", [fails, None, ([], None), ([1], []), ([1], [1e-3])])
def test_a_round_of_ones_own_is_named(task: ansor.SearchTask, answer: Any) -> None:
    policy = giving(Policy, "continue_search_one_round", answer)(task)
    runner = AnalyticalRunner()
    options = ansor.TuningOptions(8, None, 4, 0, runner.builder(), runner)
    error = raised(lambda: ansor.TaskScheduler([task], callbacks=[]).tune(options, [policy]))
    assert str(error).startswith("policy Policy: continue_search_one_round ")
    assert isinstance(error.__cause__, IndexError) == (answer is fails)


def test_what_measuring_refuses_passes(task: ansor.SearchTask) -> None:
    def gone(*_: Any) -> Any:
        raise MeasureError("the device is gone")

    with pytest.raises(MeasureError, match=r"^the device is gone$"):
        tune(task, runner=giving(Runner, "run", gone)())


class Enough(Exception):
    pass


def test_a_callback_ends_a_run_as_it_likes(task: ansor.SearchTask) -> None:
    class Ends:
        def callback(self, policy: Any, inputs: Any, results: Any) -> None:
            raise Enough

    runner = AnalyticalRunner()
    for policy in (None, Policy(task)):
        with pytest.raises(Enough):
            task.tune(ansor.TuningOptions(8, None, 4, 0, runner.builder(), runner, [Ends()]), policy)


# ---------------------------------------------------------------------------------------------------- mutations


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
        with_mutation(lambda self, rows, space, rng: function(rows))(task)


@pytest.mark.parametrize(
    ("mutations", "text"),
    [
        ([], "a list of mutations is needed"),
        (Mutation(), "a list of mutations is needed"),
        ([3], "an object with name, weight and apply"),
        ([Mutation], "a class was given, call it"),
        ([OnlyUpdates()], "an object with name, weight and apply"),
        ([Rule()], "is needed; it lacks name, weight, got"),
    ],
)
def test_mutations_are_a_list_of_objects(task: ansor.SearchTask, mutations: Any, text: str) -> None:
    with one_sentence(f"mutations: .*{text}"):
        sketch_policy(task, mutations=mutations)
    for weight in (0, -1.0, float("nan"), float("inf"), "1"):
        bad = giving(Mutation, "weight", property(lambda _, weight=weight: weight))()
        with one_sentence("mutation 'mine': the weight must be a positive number"):
            sketch_policy(task, mutations=[*CPU_MUTATIONS, bad])


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


# -------------------------------------------------------------------------------------------------- sketch rules


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda policy, state, k: [[state, k]], "stage 2 is given back as it is, for ever"),
        (lambda policy, state, k: [[apply(state, Split(k, 0, 12, (1,))), k]], "goes on for ever"),
        (lambda policy, state, k: [[apply(state, Split(k, 0, 12, (None,))), k]] * 3, "(for ever|states at once)"),
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
    monkeypatch.setattr("ansor.sketch.rule.MOST_STATES", 2_000)
    with one_sentence(f"mine'?: .*{text}") if text is not None else nullcontext():
        with_rule(action, lambda policy, state, k: 2)(task)


@pytest.mark.parametrize("target", TARGETS)
def test_a_rule_must_go_on_from_its_state(tasks: dict[str, ansor.SearchTask], target: str) -> None:
    foreign = te.ComputeDAG(matmul(12, 8, 5)).init_state

    def once(policy: Any, state: Any, k: int) -> Any:
        return [[apply(state, Split(k, 0, 12, (2,))) if not state.steps else policy.task.compute_dag.init_state, k - 1]]

    for action in (once, lambda *_: [(foreign, -1)]):
        with one_sentence("sketch rule 'mine': a state must go on from the one it is given", PartError):
            with_rule(action)(tasks[target])


def test_a_rule_is_two_functions_or_an_object(task: ansor.SearchTask) -> None:
    with one_sentence("mine: a condition and an action are needed"):
        ansor.PreloadCustomSketchRule(3, 4, "mine")  # type: ignore[arg-type]
    with one_sentence("custom sketch rule: .* with paper, departs, condition and apply, is needed"):
        ansor.sketch.generate_sketches(task.compute_dag, "c", custom_rules=[OnlyUpdates()])  # type: ignore[list-item]


@pytest.mark.parametrize("answer", [True, None, False, 1.0, "2", 3, -1])
def test_a_condition_says_which(task: ansor.SearchTask, answer: Any) -> None:
    law = f"the condition must be 0, 1 or 2 .*, got {answer!r}"
    with one_sentence(f"sketch rule 'Rule': {law}", PartError):
        generate_sketches(task.compute_dag, "c", custom_rules=[giving(Rule, "condition", answer)()])
    with one_sentence(f"mine: {law}", PartError):
        with_rule(fails, answer)(task)
    for good in (2, np.int64(2), Condition.APPLY_AND_SKIP_REST):
        assert generate_sketches(task.compute_dag, "c", custom_rules=[giving(Rule, "condition", good)()])


@pytest.mark.parametrize(
    ("extent", "lengths", "error"),
    [
        (12, (13,), PartError), (12, (4, 4), PartError), (12, (5,), UserWarning), (12, (4,), None),
        (12, (None, 4), None), (0, (4,), None), (16, (4,), None),
    ],
)  # fmt: skip
def test_lengths_fit_their_loop(task: ansor.SearchTask, extent: int, lengths: Any, error: Any) -> None:
    """Such that do not divide it are a warning."""

    def action(policy: Any, state: Any, k: int) -> Any:
        return [(apply(state, Split(k, 0, extent, lengths)) if k == 2 else state, k - 1)]

    rule = ansor.PreloadCustomSketchRule(lambda *_: 2, action, "mine")
    refused = nullcontext() if error is None else pytest.raises(error, match=r"^sketch rule 'mine': split of i: ")
    with warnings.catch_warnings(), refused:
        warnings.simplefilter("error")
        assert generate_sketches(task.compute_dag, "c", custom_rules=[rule])


# -------------------------------------------------------------------------------------------------- cost models


@pytest.mark.parametrize("model", ["xgb", 3, ansor.XGBModel, OnlyUpdates()])
def test_a_model_has_its_methods(task: ansor.SearchTask, model: Any) -> None:
    with one_sentence("SketchPolicy: a cost model, an object with update and predict, .* is needed"):
        ansor.SketchPolicy(task, model)


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (lambda n: np.full(n, np.nan), "NaN is none, got nan="),
        (lambda n: np.zeros(n + 1), "one score per program is needed"),
        (lambda n: None, "(one score per program is needed|scores must be numbers)"),
        (lambda n: ["good"] * n, "scores must be numbers"),
        (lambda n: np.ones(n) * 1j, "scores must be numbers with an order"),
        (lambda n: np.full(n, np.inf), "a score must be finite, or -inf"),
        (lambda n: np.append(np.zeros(n - 1), np.inf), "a score must be finite, or -inf"),
        (lambda n: np.where(np.arange(n) % 2, np.nan, 1.0), None),
    ],
)
def test_scores_are_numbers(task: ansor.SearchTask, scores: Callable[[int], Any], text: str | None) -> None:
    model = giving(Model, "predict", lambda self, task, states: scores(len(states)))()
    with one_sentence(f"cost model Model: .*{text}", PartError) if text else nullcontext():
        tune(task, sketch_policy(task, model))


def test_a_number_of_numpy_is_a_number(task: ansor.SearchTask) -> None:
    policy = sketch_policy(task)
    assert len(policy.ask(np.int64(3))) == 3  # type: ignore[arg-type]
    assert policy.ask(0) == []


def test_a_model_that_reads_features_scores_them(task: ansor.SearchTask) -> None:
    class OnlyStates(ansor.PythonBasedModel):
        reads_features = True

    with one_sentence("cost model OnlyStates: .* predict_features.* is needed", PartError):
        ansor.SketchPolicy(task, OnlyStates())


@pytest.mark.parametrize("flag", ["ready", "scores_throughput", "reads_features"])
@pytest.mark.parametrize(("value", "hint"), [(lambda self: True, "make it a property"), ("yes", "got 'yes'")])
def test_what_a_model_says_of_itself_is_true_or_false(task: ansor.SearchTask, flag: str, value: Any, hint: str) -> None:
    with one_sentence(f"cost model Model: {flag} must be True or False.*{hint}", PartError):
        tune(task, sketch_policy(task, type("Model", (Model,), {flag: value})()))


def test_a_model_without_the_base_class_may_score_throughputs() -> None:
    class Throughputs:
        scores_throughput = True
        update = predict = Model.predict

    assert scores_throughput(Throughputs()) and not scores_throughput(Model())


# ---------------------------------------------------------------------------------------------- what is handed in


def test_a_search_that_measures_nothing_is_told(task: ansor.SearchTask) -> None:
    for method, answer in (("search", None), ("ask", [])):
        with pytest.warns(UserWarning, match="SearchTask.tune: policy Policy measured none of 8 programs: "):
            tune(task, giving(Policy, method, answer)(task))


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
        (lambda t: ansor.SearchTask("norm", 8, target="c"), "needs args, a list or tuple"),
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
        (lambda t: ansor.TuningOptions(4, builder=OneMethod()), "it lacks n_parallel, close, got"),
        (lambda t: ansor.SearchTask("norm", (np.arange(3), 8, 8), target="c"), r"argument: .* by its tolist\(\)"),
        (lambda t: ansor.register_target("npu", "json", rules=5), "register_target 'npu': rules: a list of .*, got 5"),
        (lambda t: sample_rows(None, 3, 0, "c", None), "sample_rows: rng: a numpy.random.Generator is needed"),
        (lambda t: t.tune(4), "the options must be ansor.TuningOptions"),
        (lambda t: t.tune(ansor.TuningOptions(4), ansor.SketchPolicy), "must be an object .* class was given, call it"),
        (
            lambda t: t.tune(ansor.TuningOptions(4), OneMethod()),
            r"policy OneMethod: search must take .* got \(trials",
        ),
        (lambda t: ansor.SketchPolicy(t, verbose=0).ask("3"), "SketchPolicy.ask: n must be an integer .* got '3'"),
        (lambda t: ansor.SketchPolicy(t, verbose=0).ask(2.5), "SketchPolicy.ask: n must be an integer .* got 2.5"),
        (lambda t: ansor.EmptyPolicy(t).ask(-1), "EmptyPolicy.ask: n must be an integer .* got -1"),
        (lambda t: generate_sketches(t.compute_dag, t.target, custom_rules=5), "custom_rules: a list .* got 5"),
        (
            lambda t: ansor.SketchPolicy(t, params={"extra_sketch_rules": "rows, pakced_read"}),
            r"extra_sketch_rules: .* did you mean packed_read\? .*, got 'pakced_read'",
        ),
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
    variant = home(space_named("prime_matmul", "c", 16))
    hardware = ansor.HardwareParams(num_cores=2, vector_unit_bytes=32)
    rows = sample_rows(variant, 2, np.random.default_rng(0), "c", hardware)
    for bad in (rows[0, :-1], rows, rows[0].astype(float), rows[0].tolist()):
        with one_sentence(f"concrete: the row: an int64 array of shape .{variant.space.width},. is needed"):
            concrete(variant, bad, "c", hardware)  # type: ignore[arg-type]
    with one_sentence(f"programs: the rows: an int64 array of shape .2, {variant.space.width}. is needed"):
        programs(variant, rows[:, 1:], "c", hardware)
    assert concrete(variant, rows[0], "c", hardware)
