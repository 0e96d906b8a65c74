"""The parts of the XGBoost tuner: features, the model, the search for its best points, diversity."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from ansor import autotvm
from ansor.autotvm import ConfigSpace
from ansor.autotvm.tuner import LookAtAll, SimulatedAnnealingOptimizer, Unseen
from ansor.autotvm.tuner.diversity import diverse
from ansor.autotvm.tuner.features import FeatureTable, numbers_in
from ansor.autotvm.tuner.xgb_model import KnobModel
from ansor.cost_model.metrics import pairwise_accuracy
from tests.conformance.tuner import LAYERS, all_scores, conv_task


def test_features_of_a_whole_space() -> None:
    space = conv_task().config_space
    rows = FeatureTable(space, "knob").rows(np.arange(len(space)))
    assert rows.dtype == np.float32 and rows.shape == (1600, 12 + 21)
    for index in (0, 17, 1599):
        sizes = [v[1] if kind == "sp" else v for _, kind, v in space.get(index).values()]
        assert rows[index, :12].tolist() == space.get(index).get_flatten_feature()
        np.testing.assert_allclose(rows[index, 12:], [np.log2(a * b) for a, b in combinations(sizes, 2)], rtol=1e-6)
    table = FeatureTable(space, "itervar")
    wide = table.rows(np.arange(len(space)))
    assert wide.shape == (1600, table.columns) == (1600, 12 + 5 * 8 + 21) and np.isfinite(wide).all()


def test_products_of_sizes_only() -> None:
    """Splits and positive numbers are sizes; zeros, texts and annotations are not."""
    space = ConfigSpace()
    space.define_split("t", 12, num_outputs=2)
    for name, choices in (("n", [2, 8]), ("zero", [0, 1]), ("text", ["a", "b"])):
        space.define_knob(name, choices)
    table = FeatureTable(space, "knob")
    index = space.index_of(space.get(len(space) - 1))
    assert table.columns == 2 + 3 + 1 and index is not None
    assert table.rows(np.array([index]))[0].tolist() == pytest.approx([1, 12, 8, 1, 1, np.log2(12 * 8)])


def test_itervar_features_by_hand() -> None:
    """A split of 12 into 3 x 4: lengths, logarithms, products down to and on from each loop, odd lengths."""
    space = ConfigSpace()
    space.define_split("t", 12, num_outputs=2)
    index = [e.size for e in space.space_map["t"].entities].index((-1, 4))
    three = np.log2(3)
    expected = [3, 4, three, 2, three, three + 2, three + 2, 2, 1, 0]
    np.testing.assert_allclose(FeatureTable(space, "itervar").rows(np.array([index]))[0], expected, rtol=1e-6)


def test_numbers_in_arguments() -> None:
    assert numbers_in((("TENSOR", (1, 16), "int8"), (2, (3.5, None)), "x")) == [0.0, 1.0, 16.0, 0.0, 2.0, 3.5, 0.0, 0.0]


@pytest.mark.parametrize("loss_type", ["rank", "reg"])
@pytest.mark.parametrize("feature_type", ["knob", "itervar"])
def test_the_model_orders_what_it_has_not_seen(loss_type: str, feature_type: str) -> None:
    task = conv_task()
    scores = all_scores(task)
    rng = np.random.default_rng(0)
    known = rng.choice(len(scores), 400, replace=False)
    unknown = np.setdiff1d(np.arange(len(scores)), known)
    model = KnobModel(task, feature_type, loss_type, None)
    assert model.fit(known, scores[known])
    found = model.predict(unknown)
    valid = scores[unknown] > 0
    assert found[valid].mean() > found[~valid].mean()
    assert pairwise_accuracy(found[valid], 1 / scores[unknown][valid]) > 0.7
    assert scores[unknown][np.argsort(-found)[:16]].max() > 0.9 * scores.max()
    again = KnobModel(task, feature_type, loss_type, None)
    again.fit(known, scores[known])
    np.testing.assert_array_equal(again.predict(unknown), model.predict(unknown))


def test_the_model_says_when_there_is_nothing_to_learn() -> None:
    model = KnobModel(conv_task(), "knob", "rank", None)
    assert not model.fit(np.zeros(0, np.int64), np.zeros(0))
    assert not model.fit(np.arange(5), np.zeros(5))
    assert not model.fit(np.array([3]), np.array([1.0]))


def test_other_layers_fade() -> None:
    """What others teach counts at once, and no more when enough of the task's own is known."""
    task = conv_task(LAYERS[1])
    pairs = [
        (autotvm.MeasureInput("vta", told, told.config_space.get(k)), autotvm.MeasureResult(c, int(e), "", 0.0, 0))
        for told in (conv_task(LAYERS[0]), conv_task(LAYERS[2]))
        for k, s in enumerate(all_scores(told))
        for c, e in [((told.flop / s,), 0) if s else ((1e9,), 1)]
    ]
    model, scores = KnobModel(task, "knob", "rank", None), all_scores(task)
    model.learn_from_others(pairs)
    assert model.fit(np.zeros(0, np.int64), np.zeros(0))
    found = model.predict(np.arange(len(scores)))
    assert scores[np.argsort(-found)[:32]].max() > 0.9 * scores.max()
    assert model.fit(np.arange(200), np.zeros(200))
    assert not model.fit(np.arange(300), np.zeros(300))


# ----------------------------------------------------------------------------------------------- optimisers


def hilly(dims: tuple[int, ...], seed: int) -> tuple[ConfigSpace, Any, int]:
    """A space, a score with one highest point among many hills, and that point."""
    space, rng = ConfigSpace(), np.random.default_rng(seed)
    for k, n in enumerate(dims):
        space.define_knob(f"k{k}", list(range(n)))
    peak = rng.integers(0, dims)

    def score(indices: Any) -> Any:
        off = space.digits(indices) - peak
        return -(off**2).sum(axis=1) + 1.5 * np.cos(3 * off).sum(axis=1)

    return space, score, space.knob2point(peak.tolist())


@pytest.mark.parametrize("seed", range(4))
def test_annealing_finds_the_highest_point(seed: int) -> None:
    space, score, peak = hilly((30, 30, 30, 30, 30), seed)
    unseen, rng = Unseen(space), np.random.default_rng(seed)
    found = SimulatedAnnealingOptimizer().find(score, 8, unseen, rng)
    assert found[0] == peak and len(set(found)) == 8
    values = score(np.array(found))
    assert (np.diff(values) <= 0).all()
    unseen.take(peak)
    assert peak not in SimulatedAnnealingOptimizer().find(score, 8, unseen, rng)


def test_annealing_goes_on_where_it_was() -> None:
    space, score, peak = hilly((40, 40, 40, 40), 1)
    unseen, rng = Unseen(space), np.random.default_rng(0)
    optimizer = SimulatedAnnealingOptimizer(n_iter=30)
    best = [score(np.array(optimizer.find(score, 1, unseen, rng)))[0] for _ in range(12)]
    assert best[-1] > best[0] and best[-1] >= score(np.array([peak]))[0] - 3


def test_annealing_of_one_point() -> None:
    space, score, _ = hilly((1, 1), 0)
    assert SimulatedAnnealingOptimizer().find(score, 4, Unseen(space), np.random.default_rng(0)) == [0]


def test_looking_at_all() -> None:
    space, score, peak = hilly((9, 8, 7), 2)
    unseen = Unseen(space)
    found = LookAtAll().find(score, 500, unseen, np.random.default_rng(0))
    assert found[0] == peak and len(set(found)) == 500
    np.testing.assert_allclose(score(np.array(found)), np.sort(score(np.arange(504)))[::-1][:500])
    flat = LookAtAll().find(lambda indices: np.zeros(len(indices)), 8, unseen, np.random.default_rng(0))
    assert flat != sorted(flat)


def test_diverse_choices() -> None:
    """Without weight on new choices the best come first; with it each brings as many new ones as it can."""
    digits = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [2, 2]])
    scores = np.array([1.0, 0.9, 0.8, 0.5, 0.0])
    assert diverse(scores, digits, 3, knob_weight=0.0) == [0, 1, 2]
    assert diverse(scores, digits, 3) == [0, 3, 4]
    assert sorted(diverse(scores, digits, 9)) == [0, 1, 2, 3, 4]
