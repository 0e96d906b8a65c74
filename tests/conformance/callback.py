"""What every measure callback must do.  A test file inherits the suite and supplies one fixture:

class TestMyCallback(MeasureCallbackSuite):
    @pytest.fixture
    def callback(self, tmp_path):
        return MyCallback()
"""

from __future__ import annotations

from typing import Any

import pytest

import ansor
from ansor.core.tasks.measure_values import Baseline, DeviceUse, MeasureInput, MeasureResult
from ansor.core.tasks.protocols import MeasureCallback
from ansor.offline.common import NoBuilder
from tests.conformance.policy import Heard, MadeUpRunner, matmul_task


class MeasureCallbackSuite:
    """`heard(callback)` may be overridden to give how many results it has heard of, where it keeps them."""

    @pytest.fixture
    def callback(self) -> MeasureCallback:
        raise NotImplementedError("supply a fixture `callback`")

    def heard(self, callback: Any) -> int | None:
        return None

    @pytest.fixture
    def pairs(self) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Programs and their results; two failed."""
        task = matmul_task(13, 11, 7)
        inputs = [
            MeasureInput(task, s) for s in ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).ask(4)
        ]
        good = [MeasureResult((1e-3 * k, 2e-3 * k), 0, "", 0.5, 1_700_000_000 + k) for k in (1, 2)]
        bad = [MeasureResult((1e10,), error, "planted", 0.5, 1_700_000_003) for error in (4, 7)]
        return inputs, [good[0], bad[0], good[1], bad[1]]

    def test_results_one_by_one_and_many_at_a_time(
        self, callback: MeasureCallback, pairs: tuple[list[MeasureInput], list[MeasureResult]]
    ) -> None:
        """With a policy and without one, failures among them, and none at all."""
        inputs, results = pairs
        for inp, res in zip(inputs, results, strict=True):
            assert callback.callback(None, [inp], [res]) is None  # type: ignore[func-returns-value]
        callback.callback(ansor.EmptyPolicy(inputs[0].task), inputs, results)
        callback.callback(None, [], [])
        assert self.heard(callback) in (None, 8)

    def test_failures_only(
        self, callback: MeasureCallback, pairs: tuple[list[MeasureInput], list[MeasureResult]]
    ) -> None:
        inputs, results = pairs
        callback.callback(None, [inputs[1]], [results[1]])
        assert self.heard(callback) in (None, 1)

    def test_what_it_is_told_stays_as_it_was(
        self, callback: MeasureCallback, pairs: tuple[list[MeasureInput], list[MeasureResult]]
    ) -> None:
        inputs, results = pairs
        before = [(i, i.steps, r) for i, r in zip(inputs, results, strict=True)]
        callback.callback(None, inputs, results)
        assert before == [(i, i.steps, r) for i, r in zip(inputs, results, strict=True)]

    def test_a_search_goes_as_it_would_without_it(self, callback: MeasureCallback) -> None:
        runs = []
        for callbacks in ([], [callback]):
            task, heard = matmul_task(16, 16, 16), Heard()
            measurer = ansor.ProgramMeasurer(NoBuilder(), MadeUpRunner(1.5), [*callbacks, heard], verbose=0)
            ansor.SketchPolicy(task, ansor.RandomModel(0), seed=2, verbose=0).search(12, None, 4, measurer)
            runs.append([(i.steps, r.costs) for i, r in heard.pairs])
        assert runs[0] == runs[1] and len(runs[0]) == 12
        assert self.heard(callback) in (None, 12)

    def test_it_may_be_listed_in_tuning_options(self, callback: MeasureCallback) -> None:
        assert ansor.TuningOptions(1, measure_callbacks=[callback]).measure_callbacks == (callback,)

    def test_what_devices_did(self, callback: Any) -> None:
        if not hasattr(callback, "usage"):
            pytest.skip("does not ask what devices did")
        callback.usage([DeviceUse("c 0 (fast)", 3, 1.5, 2.0, 0), DeviceUse("c 1 (fast)", 0, 0.0, 2.0, 1)])
        callback.usage([])

    def test_what_is_no_trial(self, callback: Any, pairs: tuple[list[MeasureInput], list[MeasureResult]]) -> None:
        """Programs that nobody searched for, one of which failed, and figures in turns, of some programs none."""
        inputs, results = pairs
        if not hasattr(callback, "baseline") and not hasattr(callback, "confirmed"):
            pytest.skip("hears of trials only")
        if hasattr(callback, "baseline"):
            callback.baseline(None, Baseline.UNTUNED, inputs[0], results[0])
            callback.baseline(None, Baseline.DEFAULT, inputs[1], results[1])
        if hasattr(callback, "confirmed"):
            callback.confirmed(inputs, [[1e-3, 2e-3], [], [3e-3], []])
            callback.confirmed(inputs, [[] for _ in inputs])
        assert self.heard(callback) in (None, 0)
