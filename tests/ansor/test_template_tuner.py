"""The tuners: the suite that each must pass, how well they search, and what they refuse."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from ansor import autotvm
from ansor.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from ansor.autotvm.tuner.unseen import Unseen
from tests.ansor.fake_clock import FakeClock
from tests.conformance.tuner import (
    LAYERS,
    MadeUpDevice,
    TunerSuite,
    all_scores,
    conv_task,
    option,
    regrets,
    small_task,
)


class TestRandom(TunerSuite):
    def make(self, task: autotvm.Task, rng: np.random.Generator) -> Tuner:
        return RandomTuner(task, rng=rng)


class TestGridSearch(TunerSuite):
    ordered = True

    def make(self, task: autotvm.Task, rng: np.random.Generator) -> Tuner:
        return GridSearchTuner(task, rng=rng)


class TestGA(TunerSuite):
    learns = True

    def make(self, task: autotvm.Task, rng: np.random.Generator) -> Tuner:
        return GATuner(task, pop_size=50, rng=rng)


@pytest.mark.slow
class TestXGB(TunerSuite):
    learns = True

    def make(self, task: autotvm.Task, rng: np.random.Generator) -> Tuner:
        return XGBTuner(task, rng=rng)


class TestXGBOtherwise(TunerSuite):
    """Figures instead of ranks, annealing instead of looking at all, a plan that is chosen for diversity."""

    def make(self, task: autotvm.Task, rng: np.random.Generator) -> Tuner:
        return XGBTuner(
            task, plan_size=24, feature_type="itervar", loss_type="reg", optimizer="sa", diversity_filter_ratio=2,
            rng=rng,
        )  # fmt: skip


@pytest.mark.parametrize("loss_type", ["rank", pytest.param("reg", marks=pytest.mark.slow)])
@pytest.mark.long
def test_xgb_comes_close_to_the_optimum(loss_type: str) -> None:
    found = [
        regrets(lambda t, rng: XGBTuner(t, loss_type=loss_type, rng=rng), layer, seed)[-1]
        for layer in LAYERS
        for seed in (0, 1, 2)
    ]
    assert np.median(np.reshape(found, (len(LAYERS), 3)), axis=1).max() <= 1.05


@pytest.mark.long
def test_a_plan_that_brought_nothing_is_followed_by_a_random_one() -> None:
    """Of plans after progress a small share lies outside of what the model likes best, of others most."""

    def liked(results_after_the_best: int) -> float:
        tuner = XGBTuner(conv_task(), rng=np.random.default_rng(1))
        scores = all_scores(tuner.task)
        best = int(scores.argmax())
        others = np.setdiff1d(np.random.default_rng(2).choice(len(scores), 200, replace=False), [best])
        before, after = np.split(others, [len(others) - results_after_the_best])
        known = np.concatenate([before, [best], after])
        for index in known.tolist():
            tuner.unseen.take(index)
        tuner.learn(known, scores[known])
        plans = [tuner.plan() for _ in range(20)]
        left = np.setdiff1d(np.arange(len(scores)), known)
        top = left[np.argsort(-tuner.model.predict(left), kind="stable")[:32]]
        return float(np.isin(np.concatenate(plans), top).mean())

    assert liked(0) > 0.9 and liked(15) > 0.9
    assert 0.2 < liked(16) < 0.4


def test_the_made_up_device_is_worth_searching() -> None:
    """About 1,600 points of which few are valid and very few good."""
    scores = all_scores(conv_task())
    assert len(scores) == 1600 and 0.05 < (scores > 0).mean() < 0.4
    assert 1 <= (scores > 0.95 * scores.max()).sum() <= 12


@pytest.mark.long
def test_transfer_from_another_layer() -> None:
    """Told of all of one layer, the first plan for another one holds better programs than a random one."""
    told, task = conv_task(LAYERS[0]), conv_task(LAYERS[2])
    device, history = MadeUpDevice(), []
    GridSearchTuner(told).tune(
        2000,
        option(device),
        callbacks=[lambda tuner, inputs, results: history.extend(zip(inputs, results, strict=True))],
    )
    scores = all_scores(task)

    def first_plan(tell: bool, seed: int) -> float:
        tuner = XGBTuner(task, rng=np.random.default_rng(seed))
        assert tuner.load_history(history if tell else []) == 0
        return max(scores[c.index] for c in tuner.next_batch(16))

    assert min(first_plan(True, s) for s in range(4)) > 2 * max(scores.mean(), 1.0)
    assert np.mean([first_plan(True, s) for s in range(4)]) > 1.5 * np.mean([first_plan(False, s) for s in range(4)])


def test_history_of_another_space_is_left_out() -> None:
    """Records whose configuration is none of the space any more teach nothing and hide nothing."""
    task = small_task()
    config = autotvm.ConfigEntity(3, {"x": autotvm.OtherOptionEntity(77), "y": autotvm.OtherOptionEntity(0)})
    pair = (autotvm.MeasureInput("vta", task, config), autotvm.MeasureResult((1e-9,), 0, "", 0.0, 0))
    tuner = XGBTuner(task, rng=np.random.default_rng(0))
    assert tuner.load_history([pair]) == 0 and len(tuner.unseen) == 40 and tuner.best_flops == 0


@pytest.mark.parametrize("make", [RandomTuner, GridSearchTuner])
def test_a_range_of_indices(make: Any) -> None:
    device = MadeUpDevice()
    make(small_task(), range_idx=(7, 19), rng=np.random.default_rng(0)).tune(100, option(device))
    assert sorted(device.calls) == list(range(7, 20))


def test_early_stopping() -> None:
    """Counted from the best so far, or from the start while nothing works."""
    device = MadeUpDevice()
    tuner = GridSearchTuner(small_task())
    tuner.tune(1000, option(device), early_stopping=8)
    assert tuner.best_iter == 14 and len(device.calls) == 22


def test_a_time_limit_ends_a_task_after_the_batch_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, device = FakeClock(), MadeUpDevice()
    monkeypatch.setattr("ansor.autotvm.tuner.tuner.time", clock)

    def takes_a_second(tuner: Tuner, inputs: Any, results: Any) -> None:
        clock.passed += len(inputs)

    GridSearchTuner(small_task()).tune(1000, option(device), callbacks=[takes_a_second], time_limit=6.5)
    batch = option(device).open(small_task()).n_parallel
    assert len(device.calls) == -(-7 // batch) * batch


@pytest.mark.slow
def test_a_space_too_large_to_list() -> None:
    @autotvm.template("made_up.large")
    def large() -> None:
        cfg = autotvm.get_config()
        for k in range(6):
            cfg.define_knob(f"k{k}", list(range(50)))
        cfg.add_flop(1.0)

    class Device:
        def __init__(self) -> None:
            self.calls: list[int] = []

        def build(self, task: Any, config: Any) -> Any:
            self.calls.append(config.index)
            return 1e-6 * (1 + sum((v.val - 17) ** 2 for _, v in config.items()))

        def run(self, task: Any, program: Any, options: Any) -> Any:
            return [program]

    best: dict[str, list[float]] = {}
    for name, make in (("random", RandomTuner), ("ga", GATuner), ("xgb", XGBTuner)):
        for seed in range(6):
            device = Device()
            tuner = make(autotvm.create("made_up.large", (), "vta"), rng=np.random.default_rng(seed))
            assert tuner.unseen.listed is None
            tuner.tune(150, option(device))
            assert len(set(device.calls)) == 150
            best.setdefault(name, []).append(tuner.best_flops)
    mean = {name: np.exp(np.mean(np.log(found))) for name, found in best.items()}
    assert mean["ga"] > 1.2 * mean["random"] < mean["xgb"]


def test_unseen_counts_what_is_left() -> None:
    unseen, rng = Unseen(small_task().config_space, (3, 30)), np.random.default_rng(0)
    assert len(unseen) == 28 and not unseen.take(2) and not unseen.take(31)
    taken = unseen.sample(10, rng)
    assert len(set(taken)) == 10 and all(unseen.take(k) and not unseen.take(k) for k in taken)
    left = [k for k in range(3, 31) if k not in taken]
    assert unseen.ahead(0, 100) == left and unseen.listed.tolist() == left and len(unseen) == 18
    assert unseen.fresh(np.array([-1, 40, left[0], taken[0]])).tolist() == [False, False, True, False]


def test_many_failures_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MadeUpDevice):
        def run(self, task: Any, program: Any, options: Any) -> Any:
            raise RuntimeError("no power")

        def build(self, task: Any, config: Any) -> Any:
            return 1

    with caplog.at_level(logging.WARNING, "autotvm"):
        RandomTuner(conv_task(), rng=np.random.default_rng(0)).tune(400, option(Broken()))
    said = [r.getMessage() for r in caplog.records]
    assert said == [
        "150 configurations in a row failed; the last: RuntimeError: no power",
        "all 400 configurations failed, 400 of them thus: RuntimeError: no power",
    ]


REFUSED: list[tuple[Any, str]] = [
    (lambda t: RandomTuner(t, range_idx=(3, 40)), "range_idx must be a pair of indices within 0 .. 39"),
    (lambda t: RandomTuner(t, rng=7), "the random numbers come from a numpy Generator"),
    (lambda t: GATuner(t, pop_size=1), "pop_size must be at least 2"),
    (lambda t: GATuner(t, mutation_prob=1.5), "mutation_prob a probability"),
    (lambda t: XGBTuner(t, plan_size=0), "plan_size must be at least 1"),
    (lambda t: XGBTuner(t, feature_type="curve"), "feature_type must be one of knob, itervar"),
    (lambda t: XGBTuner(t, loss_type="log"), "loss_type must be one of reg, rank"),
    (lambda t: XGBTuner(t, optimizer="best"), "the optimizer must be 'auto', 'all', 'sa'"),
    (lambda t: XGBTuner(t, diversity_filter_ratio=0.5), "diversity_filter_ratio must be at least 1"),
    (lambda t: RandomTuner(t).tune(0, option(MadeUpDevice())), "n_trial must be at least 1"),
    (lambda t: RandomTuner(t).tune(5, option(MadeUpDevice()), early_stopping=0), "early_stopping must be at least 1"),
    (lambda t: RandomTuner(t).tune(5, option(MadeUpDevice()), time_limit=0.0), "a positive number of seconds"),
    (lambda t: RandomTuner(t).tune(5, "local"), "the measure option must come from measure_option"),
    (lambda t: RandomTuner(t).tune(5, option(MadeUpDevice()), si_prefix="X"), "the unit prefix must be one of"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(autotvm.TemplateError, match=text.replace("(", r"\(").replace("..", r"\.\.")):
        call(small_task())
