"""What every kind of step must do.  A test file inherits the suite and supplies two fixtures:

class TestMyStep(StepSuite):
    @pytest.fixture
    def kind(self):
        return MyStep

    @pytest.fixture
    def program(self):
        return state  # of a small computation, with a step of this kind
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.tasks.measure_values import MeasureInput, MeasureResult
from ansor.records.lines import dump_record_to_string, load_record_from_string
from te_lite.errors import RecordError, ScheduleError
from te_lite.meaning.interp import run
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.state import State
from te_lite.schedule.step import KINDS, OF_TVM, Step, from_json, kind_of, to_json
from tests.nonempty import nonempty
from tests.oracle import Oracle
from tests.te_lite.test_python_text import assert_same_program

WRONG: tuple[Any, ...] = (None, -1, 1.5, "", [], [-1], {}, "x" * 1000, 2**40)


class StepSuite:
    """Records, replay, Python and values of one kind."""

    @pytest.fixture
    def kind(self) -> type[Step]:
        raise NotImplementedError("supply a fixture `kind`")

    @pytest.fixture
    def program(self) -> State:
        raise NotImplementedError("supply a fixture `program`")

    def steps(self, kind: type[Step], program: State) -> list[Step]:
        return [step for step in program.steps if type(step) is kind]

    def test_its_letters_find_it(self, kind: type[Step]) -> None:
        assert kind_of(kind.tag) is kind and KINDS[kind.tag].name == kind.__name__
        assert is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        names = [f.name for f in fields(kind)]
        assert names[0] == "stage" and {*kind.about, *kind.follows} <= {*names}

    def test_its_json_says_all_of_it(self, kind: type[Step], program: State) -> None:
        for step in nonempty(self.steps(kind, program)):
            assert from_json(to_json(step)) == step and hash(from_json(to_json(step))) == hash(step)

    def test_json_that_is_no_step_is_refused_in_a_sentence(self, kind: type[Step], program: State) -> None:
        data = to_json(self.steps(kind, program)[0])
        for bad in nonempty([[*data, 0, 0], *[[*data[:k], wrong, *data[k + 1 :]] for k in (1,) for wrong in WRONG]]):
            with pytest.raises(RecordError, match=r"^[^\n]+$"):
                from_json(bad)

    def test_a_state_is_the_replay_of_its_steps(self, kind: type[Step], program: State) -> None:
        assert self.steps(kind, program) and replay(program.dag, program.steps) == program

    def test_the_state_before_it_is_left_alone(self, kind: type[Step], program: State) -> None:
        first = next(p for p, step in enumerate(program.steps) if type(step) is kind)
        before, same = [replay(program.dag, program.steps[:first]) for _ in range(2)]
        after = apply(before, program.steps[first])
        assert before == same and after != before and after.steps == program.steps[: first + 1]

    def test_a_stage_that_is_not_there_is_refused(self, kind: type[Step], program: State) -> None:
        step = self.steps(kind, program)[0].renumbered(lambda k: k + 1000)
        with pytest.raises(ScheduleError, match="stages, got stage="):
            apply(program, step)

    def test_renumbering_can_be_undone(self, kind: type[Step], program: State) -> None:
        for step in nonempty(self.steps(kind, program)):
            moved = step.renumbered(lambda k: k + 7, lambda p: p + 3)
            assert moved != step and moved.renumbered(lambda k: k - 7, lambda p: p - 3) == step

    def test_its_python_makes_the_same_program(self, kind: type[Step], program: State) -> None:
        assert_same_program(program)

    def test_records_keep_it(self, kind: type[Step], program: State) -> None:
        task = ansor.SearchTask(compute_dag=program.dag, target="c")
        line = dump_record_to_string(MeasureInput(task, program), MeasureResult([1.0], 0, "", 1.0, 0))
        read, _ = load_record_from_string(line)
        assert tuple(read.steps) == program.steps
        own = any(step.tag not in OF_TVM for step in program.steps)
        assert ('"v": "ansor-v1"' in line) is own and (kind.tag in OF_TVM or own)

    def test_the_program_computes_the_same(self, program: State) -> None:
        oracle = Oracle(te.ComputeDAG(program.dag.tensors), np.random.default_rng(0))
        assert oracle.mismatch(te.lower(program), run) is None
