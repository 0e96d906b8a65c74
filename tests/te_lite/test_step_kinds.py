"""The kinds of steps and their table: each passes the suite, none is loaded unasked, unknown letters are a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pytest

import te_lite as te
from te_lite import ScheduleError, State
from te_lite.errors import RecordError
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule import step as step_module
from te_lite.schedule.loop_steps import FollowFusedSplit, FollowSplit
from te_lite.schedule.step import KINDS, OF_TVM, Step, from_json, kind_of, register, to_json
from tests.conformance.step import StepSuite
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer
from tests.workloads import matmul_relu


def scheduled(schedule: Callable[[te.Schedule, te.Tensor, te.Tensor], object]) -> State:
    """A product of matrices with its double behind it, after `schedule(s, product, double)`."""
    a, b = [te.placeholder((8, 8), name=name) for name in "ab"]
    k = te.reduce_axis((0, 8), name="k")
    product = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    double = te.compute((8, 8), lambda i, j: product[i, j] * 2.0, name="double")
    s = te.create_schedule(double.op)
    schedule(s, product, double)
    return s.state


def following(s: te.Schedule, product: te.Tensor, double: te.Tensor) -> None:
    for loop in s[product].leaf_iter_vars[:2]:
        s[product].split(loop, factor=4)
    s.apply(FollowSplit(s.stage_id(double), 0, 0, 1))
    s.apply(FollowFusedSplit(s.stage_id(double), 2, (0, 1), 0, True))


def copied(s: te.Schedule, product: te.Tensor, double: te.Tensor) -> None:
    a = s.state.dag.tensors[0]
    copy = s.reindex(a, "local", product)
    s[copy].storage_order(1, 0)
    s[copy].storage_align(s[copy].op.axis[0], 16, 4)
    s[product].set_scope("local")
    s[product].pragma(s[product].leaf_iter_vars[0], "unroll_explicit", True)


def joined(s: te.Schedule, product: te.Tensor, double: te.Tensor) -> None:
    s.join_axes(product, 0, 2)


def fetched(s: te.Schedule, product: te.Tensor, double: te.Tensor) -> None:
    """In a kernel, two shared copies at the loop of the sum, of which one is swizzled."""
    own = s.cache_write(product, "local")
    copies = [s.cache_read(t, "shared", [own]) for t in s.state.dag.tensors[:2]]
    i, j = s[product].op.axis
    s[product].bind(i, te.thread_axis("blockIdx.x"))
    s[product].bind(j, te.thread_axis("threadIdx.x"))
    s[own].compute_at(s[product], j)
    outer, _ = s[own].split(s[own].op.reduce_axis[0], factor=4)
    for copy in copies:
        s[copy].compute_at(s[own], outer)
    s[copies[0]].double_buffer()
    s[copies[1]].pipeline(2)
    s[copies[1]].swizzle()


def in_parts(s: te.Schedule, product: te.Tensor, double: te.Tensor) -> None:
    s.in_parts(product, s.reindex(s.state.dag.tensors[1], "global", product, (0, 8)))


def factored(s: te.Schedule, product: te.Tensor, double: te.Tensor) -> None:
    outer, _ = s[product].split(s[product].op.reduce_axis[0], factor=4)
    s.rfactor(product, outer)


PROGRAMS = {
    "RF": factored,
    "FSP": following, "FFSP": following, "RIX": copied, "STO": copied, "SA": copied, "SSC": copied, "PRX": copied,
    "JAX": joined, "PIP": fetched, "DBF": fetched, "SWZ": fetched, "PRT": in_parts,
}  # fmt: skip
DRAWN = ("AN", "FU", "PR", "RE", "SP", "CA", "CI", "CR", "CHR", "CHW")


@lru_cache(maxsize=1)
def drawn() -> tuple[State, ...]:
    """Random programs."""
    fuzzer = Fuzzer(te.ComputeDAG(matmul_relu(8, 8, 8)), np.random.default_rng(0), gpu=False)
    return tuple([fuzzer.draw()[0] for _ in range(60)])


class TestKinds(StepSuite):
    @pytest.fixture(params=[*PROGRAMS, *DRAWN])
    def kind(self, request: pytest.FixtureRequest) -> type[Step]:
        return kind_of(request.param)

    @pytest.fixture
    def program(self, kind: type[Step]) -> State:
        if kind.tag in PROGRAMS:
            return scheduled(PROGRAMS[kind.tag])
        return next(state for state in drawn() if kind.tag in [step.tag for step in state.steps])


def test_letters_that_nobody_has_are_one_sentence() -> None:
    with pytest.raises(RecordError, match=r"^step 'XYZ': unknown tag, known ones are AN, FU, [A-Z, ]+$"):
        from_json(["XYZ", 0])
    with pytest.raises(RecordError, match=r"^step 'XYZ': unknown tag"):
        scheduled(lambda s, product, double: s[double].step("XYZ", 1))


def test_any_step_is_made_by_its_letters() -> None:
    made = scheduled(lambda s, product, double: s[double].step("SP", 0, 8, [4], 1))
    assert [to_json(step) for step in made.steps] == [["SP", 3, 0, 8, [4], 1]]


def test_nobody_takes_the_letters_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "KINDS", dict(KINDS))

    @dataclass(frozen=True, slots=True)
    class Mine(Step):
        tag: ClassVar[str] = "SP"
        stage: int

    with pytest.raises(ScheduleError, match=r"^step SP: other steps have these letters, got steps='Split'$"):
        register()(Mine)


def test_a_kind_without_words_is_written_with_its_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "KINDS", dict(KINDS))
    register()(Noted)
    state = scheduled(lambda s, product, double: s.apply(Noted(3, (1, 2), "a b", True)))
    assert state.dag.print_python_code_from_state(state).endswith('s[double].step("NTD", [1, 2], "a b", 1)\n')  # type: ignore[attr-defined]
    names = {"s": te.Schedule(state.dag.init_state), "te": te, **python_names(state.dag)}  # type: ignore[attr-defined]
    exec(python_schedule(state), names)
    assert names["s"].state == state


@dataclass(frozen=True, slots=True)
class Noted(Step):
    """Changes nothing; its fields are of all the types that are read without help."""

    tag: ClassVar[str] = "NTD"
    stage: int
    numbers: tuple[int, ...]
    text: str
    flag: bool

    def effect(self, state: State) -> State:
        return state


def test_no_kind_is_loaded_unasked() -> None:
    """What TVM's records do not have is imported when its letters, or its primitive, are met."""
    code = """
import json, sys
import te_lite as te
from te_lite.schedule.step import KINDS, kind_of
before = {kind.module for kind in KINDS.values()} & set(sys.modules)
kind_of("PIP")
print(json.dumps([sorted(before), sorted({kind.module for kind in KINDS.values()} & set(sys.modules) - before)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    assert {KINDS[letters].module for letters in nonempty(OF_TVM)} <= set(before)
    assert {KINDS[k].module for k in ("DBF", "SWZ", "RIX", "JRD")}.isdisjoint(before)
    assert after == [KINDS["PIP"].module]
