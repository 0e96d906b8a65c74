"""Training data from which nothing can be learnt: the model never raises, gives random scores, and says so once."""

import itertools
import logging

import numpy as np
import pytest

import ansor
from te_lite.schedule.loop_steps import Pragma

INF, NAN = np.inf, np.nan


def feature_sets():
    """Names and features [6, 2, 7] of programs: sound ones, and such as have something wrong with them."""
    sound = np.random.default_rng(0).random((6, 2, 7)).astype(np.float32)
    yield "sound", sound
    yield "constant", np.ones_like(sound)
    yield "the same programs", np.broadcast_to(sound[0], sound.shape)
    yield "zero", np.zeros_like(sound)
    yield "one column varies", np.where(np.arange(7) == 3, sound, 1)
    yield "huge", sound * np.float32(3e38)
    for name, value in (("nan", NAN), ("inf", INF), ("-inf", -INF)):
        some, all_ = sound.copy(), np.full_like(sound, value)
        some[::2, 1, 4] = value
        yield f"some {name}", some
        yield f"all {name}", all_


COSTS = {
    "sound": [1e-3, 3e-3, 2e-3, 5e-3, 4e-3, 6e-3],
    "one program": [1e-3],
    "constant": [1e-3] * 6,
    "failures": [INF] * 6,
    "one that did not fail": [INF] * 5 + [1e-3],
    "some no figures": [NAN, 2e-3, -1.0, 3e-3, 1e-3, 0.0],
    "no figures": [NAN, -1.0, 0.0, NAN, NAN, -INF],
    "far apart": [1e-300, 1e300, 5e-324, 1e9, 1.0, INF],
}


@pytest.mark.parametrize(
    ("features", "costs"), list(itertools.product(feature_sets(), COSTS.items())), ids=lambda p: p[0]
)
@pytest.mark.one_in(5)
def test_degenerate_training_sets(features, costs, matmul_task, caplog):
    rows, seconds = features[1], costs[1]
    model = ansor.XGBModel(num_warmup_sample=0, seed=2)
    unseen = np.random.default_rng(1).random((20, 3, 7)).astype(np.float32)
    for _ in range(2):
        model.add_features(matmul_task, rows[: len(seconds)], np.array(seconds))
        model.use(model.fit(model.dataset()))
        scores = model.predict_features(matmul_task, unseen)
        assert scores.shape == (20,) and np.isfinite(scores).all()
    usable = [k for k, c in enumerate(seconds) if c > 0 and rows[k].any() and np.isfinite(rows[k]).all()]
    learnable = len({seconds[k] for k in usable}) > 1 and len({rows[k].tobytes() for k in usable}) > 1
    assert (model.trained_on > 0) == model.ready == learnable
    if not learnable:
        assert len(set(scores)) == 20
    warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len([m for m in warnings if "to learn from" in m]) == (not learnable)
    assert len([m for m in warnings if "left out" in m]) == (len(usable) < len(seconds))


def test_tasks_with_nothing_but_failures_or_one_program(matmul_task):
    others = [ansor.SearchTask("matmul", (k, 3, 2), target="c") for k in range(2, 8)]
    rows = np.random.default_rng(0).random((12, 2, 7)).astype(np.float32)
    alone = ansor.XGBModel(num_warmup_sample=0)
    for task, program in zip(others, rows, strict=False):
        alone.add_features(task, program[None], np.array([1e-3]))
    assert alone.fit(alone.dataset()) is None
    model = ansor.XGBModel(num_warmup_sample=0)
    model.add_features(matmul_task, rows[:6], np.full(6, INF))
    model.add_features(others[0], rows[6:], np.array(COSTS["sound"]))
    assert list(model.dataset().throughputs()[:6]) == [0] * 6
    model.use(model.fit(model.dataset()))
    assert model.trained_on == 12


def test_records_that_fit_no_program(matmul_task, states, caplog):
    good = ansor.MeasureInput(matmul_task, states(1)[0])
    bad = ansor.MeasureInput(matmul_task, steps=[Pragma(77, 0, "x$1")])
    model = ansor.XGBModel(num_warmup_sample=0)
    for inp, cost in itertools.product((good, bad), (1e-3, NAN, INF)):
        model.update([inp], [ansor.MeasureResult((cost,), 0, "", 0.0, 0)])
    assert model.predict(matmul_task, states(3)).shape == (3,)
    assert len([r for r in caplog.records if "left out" in r.message]) == 1
