"""Tasks whose arrays are drawn and judged on the device: what a worker does with them, on an emulated device.

They are small here; the limits are lowered, so that few elements of an output are samples.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.measure import beside_reference, drawn_task, jobs, samples
from ansor.measure.channel import task_payload
from ansor.measure.check import accepted_values, mismatch
from ansor.measure.demand import Demand
from ansor.measure.drawn_task import DrawnTask, may_be_drawn
from ansor.measure.jobs import JobFailure, Workbench
from ansor.measure.samples import Definition, chosen_places
from ansor.sketch.plain import plain_state
from tests.codegen_cuda.emulated_device import BACKEND, COUNTS, REFERENCE_FAULT, EmulatedDevice
from tests.nonempty import nonempty
from tests.workloads import WORKLOADS, argmax, conv2d_nchw, matmul, matmul_relu, softmax

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
SEED = 11


def elementwise(shape: tuple[int, ...], dtype: str = "float32") -> list[te.Tensor]:
    x = te.placeholder(shape, dtype, "x")
    return [x, te.compute(shape, lambda *i: te.maximum(x[i], te.const(0.0, dtype)), name="y")]


def integers(n: int) -> list[te.Tensor]:
    x = te.placeholder((n, n), "int32", "x")
    return [x, te.compute((n, n), lambda i, j: x[i, j] * x[j, i] + 3, name="y")]


def loss(n: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, n), "j")
    total = te.compute((1,), lambda k: te.sum((a[i, j] - b[i, j]) * (a[i, j] - b[i, j]), axis=[i, j]), name="total")
    return [a, b, te.compute((1,), lambda k: total[k] / float(n * n), name="loss")]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(drawn_task, "LARGE_WORK", 0)
    monkeypatch.setattr(samples, "MOST", 64)
    monkeypatch.setattr(samples, "LEAST", 32)
    monkeypatch.setattr(samples, "BUDGET", 64)
    yield
    REFERENCE_FAULT.clear()
    BACKEND.device.free = EmulatedDevice.free


class Bench:
    """A worker in this process, and the plain program of a task."""

    def __init__(self, place: Path, tensors: list[te.Tensor]) -> None:
        self.place, self.workbench = place, Workbench()
        self.task = ansor.SearchTask(compute_dag=tensors, target="cuda -arch=sm_80")
        self.payload = {**task_payload(self.task), "backend": "tests.codegen_cuda.emulated_device"}
        self.folder = place / self.payload["task"]
        self.folder.mkdir()
        self.program = place / f"{self.payload['task']}_program"
        self.program.mkdir()
        func = te.lower(plain_state(self.task), self.task.compute_dag.tensors)
        BACKEND.build(func, "cuda", str(self.program))

    def prepare(self) -> DrawnTask:
        job = {**self.payload, "op": "prepare", "directory": str(self.folder), "seed": SEED, "device": 0}
        held = self.workbench.do(job)["held"]
        assert held[-1] == self.payload["task"]
        found = self.workbench._prepared[held[-1]]
        assert isinstance(found, DrawnTask)
        return found

    def run(self, word: str = "", packed: Any = ()) -> Any:
        (self.program / "fault").write_text(word)
        COUNTS.clear()
        return self.workbench.do({
            "op": "run", "task": self.payload["task"], "directory": str(self.program), "packed": packed, "number": 1,
            "repeat": 1, "min_repeat_ms": 0, "flush": False,
        })  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Callable[[list[te.Tensor]], Bench]:
    return lambda tensors: Bench(tmp_path, tensors)


TASKS: dict[str, Callable[[], list[te.Tensor]]] = {
    "matmul": lambda: matmul(17, 19, 23), "relu": lambda: matmul_relu(18, 21, 7), "softmax": lambda: softmax(16, 27),
    "conv": lambda: conv2d_nchw(2, 9, 3, 4, 3, 1, 1), "copy": lambda: elementwise((31, 29)),
    "halves": lambda: elementwise((31, 29), "float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TASKS))
@pytest.mark.one_in(2)
def test_right_programs_pass_and_planted_faults_are_found(bench: Any, name: str) -> None:
    one = bench(TASKS[name]())
    found = one.prepare()
    (k,) = found.checks
    check: Any = found.checks[k]
    assert len(check._samples.places) < check._samples.size / 3
    assert one.run()["costs"] == [1e-3]
    for word in ("corner", "middle", "nan", "infinite", "unwritten", "race", "middle later"):
        with pytest.raises(
            JobFailure, match=r"^output \w+: \d+ elements? (is|are) wrong of \d+, one at \(.*\): .*, not"
        ):
            one.run(word)
    with pytest.raises(JobFailure, match=r"^input \w+: the program has written to it"):
        one.run("scribble later")
    assert one.run()["costs"] == [1e-3]


def test_a_trial_moves_little_whatever_the_size(bench: Any) -> None:
    one = bench(elementwise((64, 128)))
    one.prepare()
    one.run()
    assert COUNTS["up"] == 0 and COUNTS["down"] < 64 * 128
    assert (COUNTS["fill"], COUNTS["altered"], COUNTS["astray"], COUNTS["pick"]) == (1, 1, 2, 2)


def test_the_message_names_the_element(bench: Any) -> None:
    one = bench(integers(20))
    one.prepare()
    one.run()
    with pytest.raises(JobFailure, match=r"^output y: 1 element is wrong of 400, one at \(19, 19\): \d+, not \d+$"):
        one.run("corner")


@pytest.mark.parametrize("word", ["corner", "unwritten", "nan"])
def test_a_fault_of_the_reference_program_is_found_by_the_definition(
    bench: Any, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if word != "corner":  # not at every sample
        monkeypatch.setattr(samples, "BUDGET", 1 << 20)
        monkeypatch.setattr(samples, "MOST", 300)
    REFERENCE_FAULT.append(word)
    with pytest.raises(
        JobFailure, match=r"output C: the reference program is wrong: \d+ elements? (is|are) wrong of 323"
    ):
        bench(matmul(17, 19, 23)).prepare()


def test_outputs_of_few_elements_are_known_everywhere(bench: Any) -> None:
    one = bench(loss(40))
    found = one.prepare()
    assert isinstance(found.checks[2], drawn_task.WithinBounds) and found.nbytes == 4 * (2 * 1600 + 1)
    assert one.run()["costs"] == [1e-3]
    with pytest.raises(JobFailure, match="output loss: 1 element is wrong of 1, the worst at"):
        one.run("corner")


def test_several_outputs(bench: Any) -> None:
    one = bench(argmax(50, 9))
    found = one.prepare()
    assert set(found.checks) == {1, 2}
    one.run()
    with pytest.raises(JobFailure, match=r"output best.*: 1 element is wrong of 50"):
        one.run("middle")


def test_elements_that_differ_though_they_are_right_are_judged_by_the_definition(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tolerance is made so small that rounding is beyond it; faults are still told apart."""
    one = bench(matmul_relu(18, 21, 7))
    found = one.prepare()
    check: Any = next(iter(found.checks.values()))
    check.slope, check.floor, check._most = 0.0, 0.0, 64
    reference = one.workbench._prepared[one.payload["task"]].device.values(check._reference)
    reference[3:5, ::2] = np.nextafter(reference[3:5, ::2], np.float32(9))
    before = len(check._samples.places)
    assert one.run()["costs"] == [1e-3]
    assert len(check._samples.places) > before
    with pytest.raises(JobFailure, match=r"[0-9]+ elements are wrong of 378"):
        one.run("unwritten")
    check._most = 3
    reference[6:, :] = np.nextafter(reference[6:, :], np.float32(9))
    with pytest.raises(JobFailure, match="elements of 378 differ from those of the reference program, too many"):
        one.run()


def test_packed_inputs(bench: Any) -> None:
    """The order is one that moves nothing, so that the same program is right."""
    one = bench(matmul(16, 19, 12))
    one.prepare()
    packed = [[1, [[0, 3], [0, 4], [1, 19]]]]
    for _ in range(2):
        assert one.run(packed=packed)["costs"] == [1e-3]
    assert COUNTS["up"] == 0
    with pytest.raises(JobFailure, match="output C"):
        one.run(packed=[[1, [[1, 19], [0, 12]]]])


def test_a_task_that_does_not_fit_is_refused(bench: Any) -> None:
    one = bench(elementwise((31, 29)))
    BACKEND.device.free = 3 * 4 * 31 * 29 - 1
    with pytest.raises(JobFailure, match="must fit into the memory of the device"):
        one.prepare()


def test_what_is_known_at_samples_is_made_ahead_and_read(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench(matmul(17, 19, 23))
    one.workbench.do({**one.payload, "op": "data", "directory": str(one.folder), "seed": SEED})
    assert sorted(p.name for p in one.folder.iterdir()) == [
        f"2.samples.{x}.npy" for x in ("high", "low", "nan", "places")
    ]

    def again(*_: Any) -> None:
        raise AssertionError("samples were evaluated again")

    monkeypatch.setattr(Definition, "accepted_at", again)
    one.prepare()
    one.run()


def test_inputs_that_are_given_and_devices_that_cannot_draw_keep_the_task_on_the_host(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = te.ComputeDAG(matmul(5, 6, 7))
    assert may_be_drawn(dag, tmp_path)
    monkeypatch.setattr(EmulatedDevice, "judges", lambda self, dtype: False)
    assert drawn_task.drawing_device(BACKEND.device, dag) is None
    np.save(tmp_path / "0.npy", np.zeros((5, 7), "float32"))
    assert not may_be_drawn(dag, tmp_path)


def test_room_is_made_for_tasks_by_what_they_take_on_the_device(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = bench(elementwise((31, 29))), bench(elementwise((31, 30)))
    other.workbench = one.workbench
    first, second = one.prepare(), other.prepare()
    assert len(one.workbench._prepared) == 2
    monkeypatch.setattr(jobs, "KEPT_ON_DEVICE", first.nbytes + second.nbytes - 1)
    one.prepare()
    assert list(one.workbench._prepared) == [one.payload["task"]]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_what_is_accepted_at_samples_is_what_is_accepted_of_the_whole(name: str) -> None:
    dag = te.ComputeDAG(WORKLOADS[name]())
    definition = Definition(dag, 3, "strict")
    whole = accepted_values(dag, {dag.tensors[k]: d.whole() for k, d in definition.inputs.items()})
    for k, t in nonempty((k, t) for k, t in enumerate(dag.tensors) if t in dag.outputs):
        places = np.arange(int(np.prod(t.shape)))
        right = definition.accepted_at(k, places)
        for a, b in ((right.low, whole[t].low), (right.high, whole[t].high)):
            np.testing.assert_allclose(a.astype("float64"), b.reshape(-1).astype("float64"), rtol=1e-6)
        assert mismatch(((right.low + right.high) / 2).astype(t.dtype).reshape(t.shape), whole[t]) == "" or (
            t.dtype not in te.expr.dtype.FLOATS
        )


def test_samples_have_corners_and_edges_and_share_long_rows() -> None:
    dag = te.ComputeDAG(softmax(200, 300))
    rows, columns = np.unravel_index(chosen_places((200, 300), Demand([dag.outputs[0]]), np.random.default_rng(0)),
                                     (200, 300))  # fmt: skip
    corners = {(0, 0), (0, 299), (199, 0), (199, 299)}
    assert corners <= set(zip(rows.tolist(), columns.tolist(), strict=True))
    assert len(set(rows.tolist())) <= 4 and len(set(columns.tolist())) > 8
    dag = te.ComputeDAG(elementwise((7, 8, 9)))
    places = chosen_places((7, 8, 9), Demand([dag.outputs[0]]), np.random.default_rng(0))
    points = np.stack(np.unravel_index(places, (7, 8, 9)), axis=1)
    at_ends = (points == 0) | (points == np.array([6, 7, 8]))
    assert at_ends.any(axis=0).all() and (~at_ends.any(axis=1)).any() and at_ends.all(axis=1).sum() >= 8
    assert beside_reference.tolerance(np.ones(3, "float32"), _known([1.0, 1, 1], [1.0, 1, 1.5]), "float32") == (
        0.25,
        0.25,
    )


def _known(low: list[float], high: list[float]) -> samples.Samples:
    right = samples.Accepted(np.array(low, "float32"), np.array(high, "float32"))
    return samples.Samples(9, np.arange(3), right, False)
