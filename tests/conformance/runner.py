"""What every builder and every runner must do.  A test file inherits a suite and supplies the fixture:

class TestMyRunner(RunnerSuite):
    @pytest.fixture
    def runner(self):
        return MyRunner()

    @pytest.fixture
    def builder(self):                 # what builds for it; without it nothing is built
        return LocalBuilder()

class TestMyBuilder(BuilderSuite):
    @pytest.fixture
    def builder(self):
        return MyBuilder()
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import ansor
import te_lite as te
from ansor.core.tasks.measure_values import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
from ansor.core.tasks.protocols import Builder, Runner
from ansor.offline.common import NoBuilder
from te_lite.schedule.loop_steps import Pragma
from tests.conformance.policy import matmul_task
from tests.nonempty import nonempty

PATIENCE = 60.0


def ended_well(future: Future[BuildResult]) -> bool:
    """Whether it has been cancelled, or ends with an error that is one of ours, or with a result."""
    if future.cancelled():
        return True
    error = future.exception(PATIENCE)
    return isinstance(error, ansor.MeasureError) if error else isinstance(future.result(), BuildResult)


class _Programs:
    """The task and its programs, the same for both suites."""

    @pytest.fixture
    def task(self) -> ansor.SearchTask:
        return matmul_task(13, 11, 7)

    @pytest.fixture
    def inputs(self, task: ansor.SearchTask) -> list[MeasureInput]:
        """Three programs that are in order."""
        return [MeasureInput(task, s) for s in ansor.SketchPolicy(task, ansor.RandomModel(0), seed=5, verbose=0).ask(3)]

    @pytest.fixture
    def unfit(self, task: ansor.SearchTask) -> MeasureInput:
        """Steps that are none of the task's."""
        return MeasureInput(task, steps=[Pragma(77, 0, "auto_unroll_max_step$16")])

    @pytest.fixture
    def builder(self) -> Builder:
        return NoBuilder()

    @pytest.fixture(autouse=True)
    def _closed(self, builder: Any) -> Iterator[None]:
        yield
        builder.close()


class RunnerSuite(_Programs):
    """`replays`: it answers with results of another time, so the times in them are not of now."""

    replays = False

    @pytest.fixture
    def runner(self) -> Runner:
        raise NotImplementedError("supply a fixture `runner`")

    @pytest.fixture(autouse=True)
    def _closed_too(self, runner: Any) -> Iterator[None]:
        yield
        runner.close()

    def measured(self, runner: Runner, builder: Builder, inp: MeasureInput) -> MeasureResult:
        """Build and run; whatever the result says of time must fit between two looks at the clock."""
        before, start = time.time(), time.monotonic()
        built = builder.submit(inp).result(PATIENCE)
        result = runner.run(inp, built)
        spent = time.monotonic() - start
        if not self.replays:
            assert 0 <= built.time_cost <= result.all_cost + 1e-9
            assert result.all_cost <= spent + 1e-3, "seconds are needed, of this run"
            assert result.timestamp == 0 or int(before) <= result.timestamp <= time.time(), "seconds since 1970"
        return result

    def test_programs_in_order_have_costs_in_seconds(
        self, runner: Runner, builder: Builder, inputs: list[MeasureInput]
    ) -> None:
        for inp in nonempty(inputs):
            result = self.measured(runner, builder, inp)
            assert result.ok and result.error_msg == ""
            assert isinstance(result.costs, tuple) and result.costs
            assert all(isinstance(c, float) and 0 < c < math.inf for c in nonempty(result.costs))
            assert isinstance(result.timestamp, int) and isinstance(result.device, str)
            line = ansor.dump_record_to_string(inp, result)
            assert ansor.load_record_from_string(line)[1].costs == result.costs

    def test_a_failed_build_is_a_failed_result(self, runner: Runner, inputs: list[MeasureInput]) -> None:
        """With the error of the build, and the seconds that it took."""
        for error in (MeasureErrorNo.COMPILE_HOST, MeasureErrorNo.BUILD_TIMEOUT):
            result = runner.run(inputs[0], BuildResult("", (), int(error), "planted", 1.5))
            assert (result.error_no, result.error_msg, result.ok) == (error, "planted", False)
            assert result.costs and min(result.costs) >= 1e9 and 1.5 <= result.all_cost < 2.5

    def test_steps_that_do_not_fit_are_a_result(
        self, runner: Runner, builder: Builder, unfit: MeasureInput, inputs: list[MeasureInput]
    ) -> None:
        """And cost nobody else anything."""
        result = self.measured(runner, builder, unfit)
        assert result.error_no in set(MeasureErrorNo) and not result.ok and result.error_msg
        assert min(result.costs) >= 1e9
        assert self.measured(runner, builder, inputs[0]).ok

    def test_a_program_may_be_run_again(self, runner: Runner, builder: Builder, inputs: list[MeasureInput]) -> None:
        assert [self.measured(runner, builder, inputs[0]).ok for _ in range(2)] == [True, True]

    def test_after_closing_it_starts_anew(self, runner: Runner, builder: Builder, inputs: list[MeasureInput]) -> None:
        for _ in range(2):
            assert self.measured(runner, builder, inputs[0]).ok
            runner.close()
            runner.close()

    def test_a_search_with_it(self, runner: Runner, builder: Builder, inputs: list[MeasureInput]) -> None:
        """Results come in the order of the inputs, each with its own."""
        measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
        try:
            results = measurer.measure(inputs[0].task, None, inputs)
        finally:
            measurer.close()
        best = measurer.best_of(inputs[0].task)
        assert best is not None and best.cost == min(r.cost for r in results)
        assert measurer.count == len(results) == len(inputs)

    def test_what_devices_did_is_told_in_seconds(
        self, runner: Any, builder: Builder, inputs: list[MeasureInput], task: ansor.SearchTask
    ) -> None:
        if not hasattr(runner, "usage"):
            pytest.skip("tells nothing of devices")
        start = time.monotonic()
        assert runner.slots(task) >= 1
        for inp in inputs:
            self.measured(runner, builder, inp)
        spent = time.monotonic() - start
        for use in runner.usage():
            assert 0 <= use.busy <= use.seconds <= spent and use.trials <= len(inputs) and use.lost >= 0


class BuilderSuite(_Programs):
    """`builds_nothing`: what cannot be built is noticed later."""

    builds_nothing = False

    def test_builds_are_done_in_the_time_they_say(self, builder: Builder, inputs: list[MeasureInput]) -> None:
        assert isinstance(builder.n_parallel, int) and builder.n_parallel >= 1
        for inp in inputs:
            start = time.monotonic()
            future = builder.submit(inp)
            assert isinstance(future, Future)
            built = future.result(PATIENCE)
            assert (built.error_no, built.error_msg) == (0, "")
            assert 0 <= built.time_cost <= time.monotonic() - start

    def test_many_may_be_queued_and_each_gets_its_own(self, builder: Builder, inputs: list[MeasureInput]) -> None:
        futures = [builder.submit(inp) for inp in [*inputs, *inputs]]
        built = [f.result(PATIENCE) for f in futures]
        places = [b.filename for b in built if b.filename]
        assert all(b.error_no == 0 for b in built) and len(set(places)) == len(places)

    def test_what_cannot_be_built_is_a_result(
        self, builder: Builder, unfit: MeasureInput, inputs: list[MeasureInput]
    ) -> None:
        futures = [builder.submit(inp) for inp in (unfit, inputs[0])]
        bad, good = [f.result(PATIENCE) for f in futures]
        assert good.error_no == 0
        assert self.builds_nothing or (bad.error_no in set(MeasureErrorNo) and bad.error_no and bad.error_msg)

    def test_what_the_verifier_refuses_is_told_apart(self, builder: Builder) -> None:
        """The program trusts an index that is read from memory."""
        x, at = te.placeholder((9,), name="x"), te.placeholder((4,), "int32", "at")
        task = ansor.SearchTask(compute_dag=[x, at, te.compute((4,), lambda i: x[at[i]] * 2.0)], target="c")
        built = builder.submit(MeasureInput(task, task.compute_dag.init_state)).result(PATIENCE)
        assert self.builds_nothing or built.error_no == MeasureErrorNo.REFUSED

    def test_after_closing_it_starts_anew(self, builder: Builder, inputs: list[MeasureInput]) -> None:
        for _ in range(2):
            assert builder.submit(inputs[0]).result(PATIENCE).error_no == 0
            builder.close()
            builder.close()

    def test_what_was_queued_ends_when_it_is_closed(self, builder: Builder, inputs: list[MeasureInput]) -> None:
        """With a result, cancelled, or with an error that is one sentence: nobody waits for ever."""
        futures = [builder.submit(inputs[k % len(inputs)]) for k in range(12)]
        builder.close()
        assert all(ended_well(future) for future in futures)
