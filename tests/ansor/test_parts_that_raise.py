"""Parts of one's own that raise or give what is no answer are named in one sentence; what they raised is its cause."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.errors import MeasureError, PartError
from ansor.core.tasks.measure_values import BuildResult
from ansor.cost_model.api import scores_throughput
from ansor.evolve.mutation import CPU_MUTATIONS
from ansor.offline.analytical import AnalyticalRunner, NoBuilder
from ansor.sketch import generate_sketches
from ansor.sketch.rule import Condition
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from tests.workloads import matmul

PARAMS = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}
TARGETS = ("c", "cuda")
"""Measured in turn and overlapped."""


@pytest.fixture(scope="module")
def tasks() -> dict[str, ansor.SearchTask]:
    hardware = {"c": ansor.HardwareParams(num_cores=2, vector_unit_bytes=32), "cuda": None}
    dag = te.ComputeDAG(matmul(12, 8, 6))
    return {t: ansor.SearchTask(compute_dag=dag, target=t, hardware_params=hardware[t]) for t in TARGETS}


@pytest.fixture(autouse=True)
def no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.glob("ansor_failure*")), "a part that is wrong is no failure of the search"


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


def tune(task: ansor.SearchTask, policy: Any = None, runner: Any = None, builder: Any = None) -> None:
    runner = runner or AnalyticalRunner()
    policy = policy or ansor.SketchPolicy(task, ansor.RandomModel(0), PARAMS, seed=0, verbose=0)
    log = ansor.RecordToFile("log.json")
    task.tune(ansor.TuningOptions(8, None, 4, 0, builder or runner.builder(), runner, [log]), policy)


def giving(cls: type, method: str, answer: Any) -> Any:
    """An object of a class whose `method` gives `answer`, or does as it says."""
    does = answer if callable(answer) or isinstance(answer, property) else lambda *_: answer
    return type(cls.__name__, (cls,), {method: does})


def with_model(method: str) -> Callable[[ansor.SearchTask], None]:
    model = giving(Model, method, property(fails) if method == "ready" else fails)
    model.reads_features = method == "predict_features"
    return lambda t: tune(t, ansor.SketchPolicy(t, model(), PARAMS, seed=0, verbose=0))


def with_rule(action: Any, condition: Any = 2) -> Callable[[ansor.SearchTask], None]:
    meets = condition if callable(condition) else lambda *_: condition
    rule = ansor.PreloadCustomSketchRule(meets, action, "mine")
    return lambda t: tune(t, ansor.SketchPolicy(t, Model(), PARAMS, seed=0, verbose=0, init_search_callbacks=[rule]))


def with_mutation(t: ansor.SearchTask) -> None:
    tune(t, ansor.SketchPolicy(t, Model(), PARAMS, seed=0, verbose=0, mutations=[*CPU_MUTATIONS, Mutation()]))


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
    "mutation 'mine': apply raised": with_mutation,
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
    assert str(error) == f"{text} IndexError: list index out of range (test_parts_that_raise.py, line {line})"
    assert isinstance(error.__cause__, IndexError)


def result(
    costs: Any = (1e-3,), error_no: Any = 0, all_cost: Any = 0.1, error_msg: Any = ""
) -> ansor.MeasureResult:  # fmt: skip
    return ansor.MeasureResult(costs, error_no, error_msg, all_cost, 0)


def future(value: Any) -> Future[Any]:
    out: Future[Any] = Future()
    out.set_result(value)
    return out


ANSWERS = [
    ("runner Runner: run must give a MeasureResult, got None", Runner, "run", None),
    ("runner Runner: a cost must be a positive number of seconds, got -1", Runner, "run", result((-1,))),
    ("runner Runner: a cost must be a positive number of seconds, got nan", Runner, "run", result((np.nan,))),
    ("runner Runner: a cost must be a positive number of seconds, got 0", Runner, "run", result((1e-3, 0))),
    ("runner Runner: the cost of a failure must be a number, got inf", Runner, "run", result((np.inf,), 4)),
    ("runner Runner: costs must be a tuple of seconds, one a repeat, got 0.001", Runner, "run", result(1e-3)),
    ("runner Runner: costs must be a tuple of seconds, one a repeat, got ()", Runner, "run", result(())),
    (
        "runner Runner: error_msg must be text, got None",
        Runner,
        "run",
        result(error_msg=None),
    ),
    ("runner Runner: error_no must be a MeasureErrorNo (0 NO_ERROR, ", Runner, "run", result(error_no="bad")),
    ("runner Runner: error_no must be a MeasureErrorNo (0 NO_ERROR, ", Runner, "run", result(error_no=77)),
    ("runner Runner: error_no must be a MeasureErrorNo (0 NO_ERROR, ", Runner, "run", result(error_no=True)),
    ("runner Runner: all_cost must be a number of seconds, got 'now'", Runner, "run", result(all_cost="now")),
    (
        "runner Runner: timestamp must be a number of seconds since 1970, got 'now'",
        Runner,
        "run",
        replace(result(), timestamp="now"),
    ),
    ("runner Runner: device must be text, got 0", Runner, "run", replace(result(), device=0)),
    (
        "builder Builder: error_no must be a MeasureErrorNo (0 NO_ERROR, ",
        Builder,
        "submit",
        future(BuildResult("", (), 77, "", 0.0)),
    ),
    ("runner Runner: all_cost must be a number of seconds, got None", Runner, "run", result(all_cost=None)),
    ("builder Builder: submit must give a Future of a BuildResult, got None", Builder, "submit", None),
    ("builder Builder: the Future must give a BuildResult, got 'a.so'", Builder, "submit", future("a.so")),
    ("policy Policy: ask must give a list of states, got [1, 2]", Policy, "ask", [1, 2]),
    ("policy Policy: ask must give a list of states, got None", Policy, "ask", None),
    ("policy Policy: ask(4) must give at most 4 states, got 9", Policy, "ask", lambda p, n: p.random.ask(n + 5)),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("text", "part", "method", "answer"), ANSWERS)
def test_an_answer_that_is_none_is_named(
    tasks: dict[str, ansor.SearchTask], text: str, part: type, method: str, answer: Any, target: str
) -> None:
    task, made = tasks[target], giving(part, method, answer)
    if part is Policy:
        error = raised(lambda: tune(task, made(task)))
    else:
        error = raised(lambda: tune(task, **{part.__name__.lower(): made()}))
    assert str(error).startswith(text) if text.endswith(" ") else str(error) == text


@pytest.mark.parametrize("count", [0, -1, "2", None, True])
def test_a_builder_builds_at_least_one_at_a_time(tasks: dict[str, ansor.SearchTask], count: Any) -> None:
    error = raised(lambda: tune(tasks["c"], builder=type("Builder", (Builder,), {"n_parallel": count})()))
    assert str(error) == f"builder Builder: n_parallel must be a positive integer, got {count!r}"


@pytest.mark.parametrize("target", TARGETS)
def test_states_of_another_computation_are_no_answer(tasks: dict[str, ansor.SearchTask], target: str) -> None:
    other = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(12, 8, 5)), target=target)
    error = raised(lambda: tune(tasks[target], giving(Policy, "ask", lambda p, n: Policy(other).ask(n))(tasks[target])))
    assert str(error).startswith("policy Policy: ask must give states of this task, ")
    again = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(12, 8, 6)), target=target)
    tune(tasks[target], giving(Policy, "ask", lambda p, n: Policy(again).ask(n)[:1])(tasks[target]))
    foreign = other.compute_dag.init_state
    error = raised(lambda: with_rule(lambda *_: [(foreign, -1)])(tasks[target]))
    assert "sketch rule 'mine': a state must go on from the one it is given, but this one is of another" in str(error)


def test_what_a_policy_is_told_fits(tasks: dict[str, ansor.SearchTask]) -> None:
    other = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(12, 8, 5)), target="c")
    policy = ansor.SketchPolicy(tasks["c"], Model(), PARAMS, seed=0, verbose=0)
    inputs = [ansor.MeasureInput(tasks["c"], state) for state in policy.ask(2)]
    for told, results, text in (
        (inputs, [], "each input needs one result, got inputs=2 results=0"),
        (inputs, [1e-6] * 2, r"results must be a list of MeasureResult, got \[1e-06\]"),
        (None, [], "inputs must be a list of MeasureInput, got None"),
        ([ansor.MeasureInput(other)], [result()], "an input is of another task than SearchTask"),
    ):
        with pytest.raises(ansor.TaskError, match=f"^SketchPolicy.tell: {text}"):
            policy.tell(told, results)  # type: ignore[arg-type]
    policy.tell(inputs, [result()] * 2)


@pytest.mark.parametrize("answer", [fails, None, ([], None), ([1], []), ([1], [1e-3])])
def test_a_round_of_ones_own_is_named(tasks: dict[str, ansor.SearchTask], answer: Any) -> None:
    policy = giving(Policy, "continue_search_one_round", answer)(tasks["c"])
    runner = AnalyticalRunner()
    options = ansor.TuningOptions(8, None, 4, 0, runner.builder(), runner)
    error = raised(lambda: ansor.TaskScheduler([tasks["c"]], callbacks=[]).tune(options, [policy]))
    law = "continue_search_one_round " + ("raised IndexError: " if answer is fails else "must give a pair, the inputs")
    assert str(error).startswith(f"policy Policy: {law}") and isinstance(error.__cause__, IndexError) == (
        answer is fails
    )


def test_figures_in_turns_are_figures(tasks: dict[str, ansor.SearchTask]) -> None:
    for answer in (None, [], [[-1.0]], [[1e-3]] * 3, [None] * 8):
        error = raised(lambda answer=answer: tune(tasks["c"], runner=giving(Runner, "compare", answer)()))
        assert str(error).startswith("runner Runner: compare must give a list of positive figures for each of the")


def test_what_measuring_refuses_passes(tasks: dict[str, ansor.SearchTask]) -> None:
    def gone(*_: Any) -> Any:
        raise MeasureError("the device is gone")

    with pytest.raises(MeasureError, match=r"^the device is gone$"):
        tune(tasks["c"], runner=giving(Runner, "run", gone)())


class Enough(Exception):
    pass


def test_a_callback_ends_a_run_as_it_likes(tasks: dict[str, ansor.SearchTask]) -> None:
    class Ends:
        def callback(self, policy: Any, inputs: Any, results: Any) -> None:
            raise Enough

    runner = AnalyticalRunner()
    for policy in (None, Policy(tasks["c"])):
        with pytest.raises(Enough):
            tasks["c"].tune(ansor.TuningOptions(8, None, 4, 0, runner.builder(), runner, [Ends()]), policy)


@pytest.mark.parametrize("answer", [True, None, False, 1.0, "2", 3, -1])
def test_a_condition_says_which(tasks: dict[str, ansor.SearchTask], answer: Any) -> None:
    law = rf"the condition must be 0, 1 or 2 \(PASS, APPLY or APPLY_AND_SKIP_REST\), got {answer!r}"
    with pytest.raises(PartError, match=rf"^sketch rule 'Rule': {law}$"):
        generate_sketches(tasks["c"].compute_dag, "c", custom_rules=[giving(Rule, "condition", answer)()])
    with pytest.raises(PartError, match=rf"^mine: {law}$"):
        with_rule(fails, answer)(tasks["c"])
    for good in (2, np.int64(2), Condition.APPLY_AND_SKIP_REST):
        assert generate_sketches(tasks["c"].compute_dag, "c", custom_rules=[giving(Rule, "condition", good)()])


@pytest.mark.parametrize(
    ("extent", "lengths", "text"),
    [
        (12, (13,), r"lengths must fit a loop of 12 iterations, got lengths=\(13,\)"),
        (12, (4, 4), r"lengths must fit a loop of 12 iterations, got lengths=\(4, 4\)"),
        (12, (5,), None),
        (12, (4,), ""),
        (12, (None, 4), ""),
        (0, (4,), ""),
        (16, (4,), ""),
    ],
)
def test_lengths_fit_their_loop(
    tasks: dict[str, ansor.SearchTask], extent: int, lengths: tuple[int | None, ...], text: str | None
) -> None:
    def action(policy: Any, state: Any, k: int) -> Any:
        return [(apply(state, Split(k, 0, extent, lengths)) if k == 2 else state, k - 1)]

    rule = ansor.PreloadCustomSketchRule(lambda *_: 2, action, "mine")

    def make() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return generate_sketches(tasks["c"].compute_dag, "c", custom_rules=[rule])

    if text:
        with pytest.raises(PartError, match=f"^sketch rule 'mine': split of i: {text}"):
            make()
    elif text is None:
        with pytest.raises(UserWarning, match="sketch rule 'mine': split of i: 5 does not divide 12, so its programs"):
            make()
    else:
        assert make()


def test_one_above_all_others_is_no_score(tasks: dict[str, ansor.SearchTask]) -> None:
    for scores in (lambda *a: np.full(len(a[-1]), np.inf), lambda *a: np.append(np.zeros(len(a[-1]) - 1), np.inf)):
        model = giving(Model, "predict", scores)()
        policy = ansor.SketchPolicy(tasks["c"], model, PARAMS, seed=0, verbose=0)
        error = raised(lambda policy=policy: tune(tasks["c"], policy))
        assert str(error).startswith("cost model Model: a score must be finite, or -inf for what cannot be scored")


def test_a_model_that_reads_features_scores_them(tasks: dict[str, ansor.SearchTask]) -> None:
    class OnlyStates(ansor.PythonBasedModel):
        reads_features = True

    law = r"^cost model OnlyStates: it has reads_features = True, so predict_features\(task, features\) is needed$"
    with pytest.raises(PartError, match=law):
        ansor.SketchPolicy(tasks["c"], OnlyStates())


@pytest.mark.parametrize("flag", ["ready", "scores_throughput", "reads_features"])
def test_what_a_model_says_of_itself_is_true_or_false(tasks: dict[str, ansor.SearchTask], flag: str) -> None:
    for value, hint in ((lambda self: True, "; it is a method, make it a property, got "), ("yes", ", got 'yes'")):
        model = type("Model", (Model,), {flag: value})
        error = raised(lambda model=model: tune(tasks["c"], ansor.SketchPolicy(tasks["c"], model(), PARAMS, 0, 0)))
        assert str(error).startswith(f"cost model Model: {flag} must be True or False{hint}")


def test_a_model_without_the_base_class_may_score_throughputs() -> None:
    class Throughputs:
        scores_throughput = True
        update = predict = Model.predict

    assert scores_throughput(Throughputs()) and not scores_throughput(Model())


def test_complex_scores_have_no_order(tasks: dict[str, ansor.SearchTask]) -> None:
    model = giving(Model, "predict", lambda self, task, states: np.ones(len(states)) * 1j)()
    error = raised(lambda: tune(tasks["c"], ansor.SketchPolicy(tasks["c"], model, PARAMS, 0, 0)))
    assert str(error).startswith("cost model Model: scores must be numbers with an order, and complex ones have none")


def test_unknown_extra_rules_are_no_failure_of_the_search(tasks: dict[str, ansor.SearchTask]) -> None:
    with pytest.raises(
        ansor.TaskError,
        match=r"^extra_sketch_rules: the rule is unknown, did you mean packed_read\? known are .*, got 'pakced_read'$",
    ):
        ansor.SketchPolicy(tasks["c"], params={"extra_sketch_rules": "rows, pakced_read"})


def test_a_search_that_measures_nothing_is_told(tasks: dict[str, ansor.SearchTask]) -> None:
    for method, answer in (("search", None), ("ask", [])):
        with pytest.warns(UserWarning, match="SearchTask.tune: policy Policy measured none of 8 programs: "):
            tune(tasks["c"], giving(Policy, method, answer)(tasks["c"]))
