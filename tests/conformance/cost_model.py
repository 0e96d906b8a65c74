"""What every cost model must do.  A test file inherits the suite and supplies one fixture:

class TestMyModel(CostModelSuite):
    learns = True

    @pytest.fixture
    def model(self):
        return MyModel()
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cost_model import CostModel, reads_features
from ansor.cost_model.metrics import pairwise_accuracy
from te_lite.expr.lanes import product
from te_lite.schedule.state import State

PROGRAMS = 96


@dataclass(frozen=True)
class Measured:
    """Distinct programs of one task with made-up costs that their loops explain."""

    task: ansor.SearchTask
    states: list[State]
    costs: np.ndarray

    def told(self, index: slice, failed: bool = False) -> tuple[list[Any], list[Any]]:
        """Measure inputs and results of some of the programs."""
        inputs = [ansor.MeasureInput(self.task, s) for s in self.states[index]]
        costs = [1e10 if failed else float(c) for c in self.costs[index]]
        return inputs, [ansor.MeasureResult((c,), 4 if failed else 0, "", 0.1, 0) for c in costs]


def made_up_cost(state: State) -> float:
    """Seconds: short vectors, long inner loops and much unrolling cost."""
    stages = [s for s in state.dag.infer_bound_from_state(state).stages if not s.is_placeholder]
    loops = max(([it for it in s.iters] for s in stages), key=lambda its: product([it.extent or 1 for it in its]))
    vector = product([it.extent or 1 for it in loops if it.annotation == "vectorize"])
    unroll = max(s.auto_unroll_max_step for s in stages)
    return float(1e-4 * (1 + 8 / vector) * (1 + unroll / 128) * (1 + abs(np.log2(loops[-2].extent or 1) - 2)))


@lru_cache(maxsize=1)
def _measured() -> Measured:
    a, b = te.placeholder((34, 60), name="A"), te.placeholder((60, 48), name="B")
    k = te.reduce_axis((0, 60), name="k")
    product_of = te.compute((34, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="C")
    hardware = ansor.HardwareParams(num_cores=2, target="c")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, product_of]), target="c", hardware_params=hardware)
    states = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=3, verbose=0).ask(PROGRAMS)
    assert len(states) == PROGRAMS
    return Measured(task, states, np.array([made_up_cost(s) for s in states]))


@pytest.fixture(scope="module")
def measured() -> Measured:
    """For tests beside the suite, which has its own."""
    return _measured()


class CostModelSuite:
    """`learns`: scores order unseen programs better after an update.  `random`: equal questions, other answers."""

    learns = False
    random = False

    @pytest.fixture
    def measured(self) -> Measured:
        return _measured()

    @pytest.fixture
    def model(self) -> CostModel:
        raise NotImplementedError("supply a fixture `model`")

    def test_one_finite_score_a_state(self, model: CostModel, measured: Measured) -> None:
        for n in (1, 7):
            scores = np.asarray(model.predict(measured.task, measured.states[:n]))
            assert scores.shape == (n,) and scores.dtype == np.float64 and np.isfinite(scores).all()

    def test_nothing_in_nothing_out(self, model: CostModel, measured: Measured) -> None:
        for told in (slice(0), slice(40)):
            model.update(*measured.told(told))
            assert np.asarray(model.predict(measured.task, [])).shape == (0,)

    def test_failures_only(self, model: CostModel, measured: Measured) -> None:
        model.update(*measured.told(slice(40), failed=True))
        assert np.isfinite(model.predict(measured.task, measured.states)).all()

    def test_what_was_told_stays_as_it_was(self, model: CostModel, measured: Measured) -> None:
        inputs, results = measured.told(slice(40))
        before = [(i.steps, r) for i, r in zip(inputs, results, strict=True)]
        model.update(inputs, results)
        assert before == [(i.steps, r) for i, r in zip(inputs, results, strict=True)]

    def test_the_order_of_the_states_has_no_meaning(self, model: CostModel, measured: Measured) -> None:
        model.update(*measured.told(slice(48)))
        order = np.random.default_rng(0).permutation(PROGRAMS)
        scores = np.asarray(model.predict(measured.task, measured.states))
        shuffled = np.asarray(model.predict(measured.task, [measured.states[k] for k in order]))
        assert sorted(scores) != [0.0] * PROGRAMS
        if not self.random:
            np.testing.assert_array_equal(shuffled, scores[order])

    def test_better_than_chance_after_training(self, model: CostModel, measured: Measured) -> None:
        if not self.learns:
            pytest.skip("learns nothing")
        model.update(*measured.told(slice(0, 24)))
        model.update(*measured.told(slice(24, 64)))
        scores = model.predict(measured.task, measured.states[64:])
        accuracy = pairwise_accuracy(scores, measured.costs[64:])
        assert accuracy > 0.7, f"{accuracy:.3f} of the pairs of unseen programs are in order, chance is 0.5"

    def test_saved_and_loaded_models_agree(self, model: Any, measured: Measured, tmp_path: Any) -> None:
        if not hasattr(model, "save"):
            pytest.skip("is not saved")
        model.update(*measured.told(slice(48)))
        model.save(tmp_path / "model")
        loaded = type(model)()
        loaded.load(tmp_path / "model")
        expected = model.predict(measured.task, measured.states)
        np.testing.assert_array_equal(loaded.predict(measured.task, measured.states), expected)

    def test_features_are_scored_as_they_come(self, model: CostModel, measured: Measured) -> None:
        """Before anything is learnt any features will do; -inf marks a program that cannot be scored."""
        if not reads_features(model):
            pytest.skip("reads no features")
        features = np.random.default_rng(0).random((9, 3, 5)).astype(np.float32)
        features[4] = np.nan
        scores = np.asarray(model.predict_features(measured.task, features))
        assert scores.shape == (9,) and scores.dtype == np.float64 and not np.isnan(scores).any()
        assert np.asarray(model.predict_features(measured.task, features[:0])).shape == (0,)
