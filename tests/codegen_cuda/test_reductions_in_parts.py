"""Long reductions to few elements: known from parts that the device computes, and right or refused as all others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.measure import parts, samples
from ansor.measure.check import accepted_values
from ansor.measure.demand import Demand
from ansor.measure.drawn_task import WithinBounds
from ansor.measure.jobs import JobFailure
from ansor.measure.parts import in_parts
from ansor.measure.samples import Definition, samples_of
from relay_lite.op.moments import _te as moments
from te_lite.meaning.reference import evaluate, random_inputs
from tests.codegen_cuda.emulated_device import REFERENCE_FAULT
from tests.codegen_cuda.test_large_tasks import SEED, Bench, bench, loss, small_limits
from tests.workloads import argmax, softmax

__all__ = ["bench", "small_limits"]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def largest(n: int) -> list[te.Tensor]:
    x, k = te.placeholder((n, 3, n), name="x"), te.reduce_axis((0, n), "k")
    m = te.reduce_axis((0, n), "m")
    return [x, te.compute((3,), lambda c: te.max(x[k, c, m], axis=[k, m]), name="most")]


def spread(rows: int, n: int) -> list[te.Tensor]:
    x = te.placeholder((rows, n), name="x")
    return [x, *moments([te.compute((rows, n), lambda i, j: x[i, j] + 2.0, name="y")], {"axis": (1,)}, "cuda")]


def normalised(rows: int, n: int) -> list[te.Tensor]:
    """A reduction of what another one gives, and a large output."""
    x, k, m = te.placeholder((rows, n), name="x"), te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "m")
    total = te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), name="total")
    squares = te.compute(
        (rows,), lambda i: te.sum((x[i, m] - total[i] / n) * (x[i, m] - total[i] / n), axis=m), name="squares"
    )
    return [x, te.compute((rows, n), lambda i, j: x[i, j] * squares[i], name="z")]


TASKS: dict[str, Callable[[], list[te.Tensor]]] = {
    "loss": lambda: loss(41), "largest": lambda: largest(23), "moments": lambda: spread(3, 1021),
    "normalised": lambda: normalised(5, 523), "argmax": lambda: argmax(5, 509), "softmax": lambda: softmax(4, 700),
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LONG", 256), ("TERMS", 48), ("LEAST_TERMS", 20)):
        monkeypatch.setattr(parts, name, value)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_computation_in_parts_is_the_same(name: str) -> None:
    dag = te.ComputeDAG(TASKS[name]())
    made = in_parts(dag)
    assert made is not None and made.dag.inputs == dag.inputs and made.found
    assert [t.shape for t in made.dag.tensors[: len(dag.tensors)]] == [t.shape for t in dag.tensors]
    for t, count in zip(made.found, made.count, strict=True):
        assert t.shape[-1] == count > 1
    inputs = random_inputs(dag.tensors, np.random.default_rng(5))
    want, got = evaluate(dag.tensors, inputs, "float64"), evaluate(made.dag.tensors, inputs, "float64")
    for a, b in zip(dag.tensors, made.dag.tensors, strict=False):
        np.testing.assert_allclose(got[b], want[a], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(TASKS))
@pytest.mark.one_in(2)
def test_right_programs_pass_and_planted_faults_are_found(bench: Any, name: str) -> None:
    one: Bench = bench(TASKS[name]())
    found = one.prepare()
    assert len(found.handles) == len(one.task.compute_dag.tensors)
    assert one.run()["costs"] == [1e-3]
    for word in ("corner", "nan"):
        with pytest.raises(JobFailure, match=r"^output \S+: \d+ elements? (is|are) wrong of \d+"):
            one.run(word)
    assert one.run()["costs"] == [1e-3]


@pytest.mark.parametrize("name", ["loss", "moments"])
def test_a_part_left_out_by_the_reference_program_is_found(
    bench: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "BUDGET", 1 << 16)
    REFERENCE_FAULT.append("unwritten")
    with pytest.raises(JobFailure, match=r"the reference program is wrong: \d+ elements? (is|are) wrong"):
        bench(TASKS[name]()).prepare()


def test_what_is_accepted_is_near_what_the_whole_definition_accepts(bench: Any, tmp_path: Path) -> None:
    """Neither so narrow that a right program fails, nor so wide that what is left out passes."""
    one: Bench = bench(loss(90))
    check = one.prepare().checks[2]
    assert isinstance(check, WithinBounds)
    dag = one.task.compute_dag
    whole = accepted_values(dag, {dag.tensors[k]: d.whole() for k, d in Definition(dag, SEED, "strict").inputs.items()})
    right = whole[dag.outputs[0]]
    low, high = float(check._right.low[0]), float(check._right.high[0])
    assert 0.3 < (high - low) / float(right.high[0] - right.low[0]) < 4
    assert low < (float(right.low[0]) + float(right.high[0])) / 2 < high


def test_the_host_does_not_walk_through_a_long_sum(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made ahead is nothing, and the samples of parts stay within the budget."""
    one: Bench = bench(loss(90))
    one.workbench.do({**one.payload, "op": "data", "directory": str(one.folder), "seed": SEED})
    assert not list(one.folder.iterdir())
    asked: list[int] = []
    before = Definition.accepted_at

    def counted(self: Definition, k: int, places: Any) -> Any:
        asked.append(len(places))
        return before(self, k, places)

    monkeypatch.setattr(Definition, "accepted_at", counted)
    one.prepare()
    assert len(asked) == 2 and sum(asked) < 90


def test_short_reductions_and_those_to_many_elements_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_parts(te.ComputeDAG(softmax(4, 200))) is None
    monkeypatch.setattr(parts, "FEW", 3)
    assert in_parts(te.ComputeDAG(softmax(4, 700))) is None
    dag = te.ComputeDAG(softmax(4, 200))
    assert set(samples_of(Definition(dag, SEED, "strict"), Path("nowhere"), len(dag.tensors))) == set()


def test_places_that_rounding_may_move_stay_whole() -> None:
    """Of two elements of a part that are nearly the largest, either may be."""
    for factor, cut in ((1.0, True), (1.7, False)):
        x, k = te.placeholder((5, 509), name="x"), te.reduce_axis((0, 509), "k")
        y = te.compute((5, 509), lambda i, j, x=x, f=factor: x[i, j] if f == 1.0 else x[i, j] * f, name="y")
        places = te.compute((5,), lambda i, y=y, k=k: te.argmax((k.astype("int32"), y[i, k]), axis=k), name="best")
        assert (in_parts(te.ComputeDAG([x, *places])) is not None) == cut


def test_every_output_of_a_part_is_asked_for_within_the_budget(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    before = Definition.accepted_at

    def counted(self: Definition, k: int, places: Any) -> Any:
        asked.append(len(places))
        return before(self, k, places)

    monkeypatch.setattr(Definition, "accepted_at", counted)
    monkeypatch.setattr(samples, "AT_MOST", 64)
    bench(spread(3, 1021)).prepare()
    assert len(asked) == 6 and max(asked[:3]) <= 4


def test_an_operation_is_known_when_all_its_outputs_are() -> None:
    _, count, mean, squares = spread(3, 1021)
    assert Demand([mean], {count}).needed and not Demand([mean], {count, mean, squares}).needed
