"""The parts of `benchmarks.operators` that need neither a GPU nor PyTorch: rows, limits, what is known, turns."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.cli import torch_side
from ansor.core.errors import TaskError
from benchmarks import beside_cublas, operators, pytorch, report
from benchmarks.operator_limits import limits_of
from benchmarks.operator_rows import MEAN, OWN, Row, chosen_rows, moved_bytes, read_rows
from benchmarks.operator_table import Journal, verdict
from te_lite import ComputeDAG, Tensor
from te_lite.meaning.reference import evaluate, random_inputs


def test_our_own_rows() -> None:
    """All of them are computations, none stands twice; on GPUs all but the vocabulary's argmax have limits, or their
    mean has one."""
    rows = read_rows(OWN)
    parts = {part: [r.name for r in chosen_rows(rows, [part])] for part in "ABCDEFGHIJKLMNOPQ"}
    assert [len(names) for names in parts.values()] == [11, 16, 16, 6, 12, 5, 1, 6, 4, 10, 6, 5, 2, 10, 12, 8, 16]
    assert len({r.name for r in rows}) == 146 + 1 and "".join(r.part for r in rows if r.name == MEAN) == "ABEJKHNOPQ"
    assert [r.name for r in rows if not r.limits["cuda"] and r.part not in "GHJK"] == ["argmax 1x50257"]
    assert sum(bool(r.limits["c"]) for r in rows) == 10


@pytest.mark.parametrize(
    ("name", "inputs", "output"),
    [
        ("linear 197x3072x768", [(197, 768), (3072, 768)], (197, 3072)),
        ("matmul 127x509x1021", [(127, 1021), (1021, 509)], (127, 509)),
        ("batch_matmul 12x197x64x197", [(12, 197, 197), (12, 197, 64)], (12, 197, 64)),
        ("conv2d 1x17x17x160->192 7x1", [(1, 17, 17, 160), (7, 1, 160, 192)], (1, 17, 17, 192)),
        ("conv2d 2x9x8x4->6 3x1 stride 2 pad 0", [(2, 9, 8, 4), (3, 1, 4, 6)], (2, 4, 4, 6)),
        ("conv2d_layer 1x7x8x6->4 3x3", [(1, 6, 7, 8), (4, 6, 3, 3), (1, 4, 1, 1)], (1, 4, 7, 8)),
        ("depthwise_conv2d 1x5x6x3 3x3", [(1, 5, 6, 3), (3, 3, 3, 1)], (1, 5, 6, 3)),
        ("conv3d 1x4x5x6x2->3 3x3x1", [(1, 4, 5, 6, 2), (3, 3, 1, 2, 3)], (1, 4, 5, 6, 3)),
        ("layer_norm 4x10", [(4, 10), (10,), (10,)], (4, 10)),
        ("row_sums 3x5", [(3, 5)], (3,)),
        ("column_sums 3x5", [(3, 5)], (5,)),
        ("argmax 3x5", [(3, 5)], (3,)),
        ("global_avg_pool 2x3x7x7", [(2, 3, 7, 7)], (2, 3, 1, 1)),
    ],
)
def test_rows_have_the_shapes_that_they_name(name: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]) -> None:
    tensors = Row(name, "", {}).tensors()
    assert [t.shape for t in tensors] == [*inputs, output]
    assert moved_bytes(ComputeDAG(tensors)) == 4 * sum(map(math.prod, [*inputs, output]))


def test_a_convolution_has_several_computations() -> None:
    """Winograd's, where it is one of 3x3 and stride 1: of the same inputs, with the same result."""
    for name, target, others in (
        ("conv2d 1x6x5x3->4 3x3", "cuda", ["winograd 2", "winograd 4"]),
        ("conv2d 1x6x5x3->4 3x3", "c", ["winograd 4 by axis"]),
        ("conv3d 1x3x6x5x3->4 3x3x3", "c", ["winograd 4 by axis"]),
    ):
        found = Row(name, "", {}).computations(target)
        assert list(found) == ["as written", *others]
        _compute_the_same(found)
    for name in ("conv2d 1x6x5x3->4 3x3 stride 2", "conv2d 1x6x5x3->4 3x1", "conv3d 1x3x6x5x3->4 3x1x3"):
        assert list(Row(name, "", {}).computations("c")) == ["as written"]
    for name in ("conv3d 1x3x6x5x3->4 3x3x3", "linear 3x5x7 fp16"):
        assert list(Row(name, "", {}).computations("cuda")) == ["as written"]


def _compute_the_same(found: dict[str, list[Tensor]]) -> None:
    drawn = random_inputs(found["as written"], np.random.default_rng(0))
    inputs = [drawn[t] for t in found["as written"][:-1]]
    results = [
        evaluate(tensors, dict(zip(tensors, inputs, strict=False)), "float64")[tensors[-1]]
        for tensors in found.values()
    ]
    for got in results[1:]:
        np.testing.assert_allclose(got, results[0], rtol=0, atol=1e-6)


def test_floats_of_8_bits_have_scales() -> None:
    """The result against NumPy; PyTorch's product in float64 is a plain one, times the scales."""
    row = Row("linear 5x6x32 fp8", "", {})
    *inputs, out = row.tensors()
    assert [t.shape for t in inputs] == [(5, 32), (6, 32), (1,), (1,)] and inputs[1].dtype == "float8_e4m3fn"
    drawn = random_inputs([*inputs, out], np.random.default_rng(0))
    a, b, x, y = [drawn[t].astype("float64") for t in inputs]
    got = evaluate([*inputs, out], drawn, "float64")[out]
    assert out.dtype == "bfloat16" and np.abs(got - a @ b.T * x * y).max() <= 2.0**-8 * np.abs(got).max()
    linear = SimpleNamespace(linear=lambda data, weight: data @ weight.T)
    torch = SimpleNamespace(int8="", float8_e4m3fn="", nn=SimpleNamespace(functional=linear))
    np.testing.assert_allclose(row.library(torch).call(a, b, x, y), a @ b.T * x * y)
    with pytest.raises(TaskError, match="its factors may be floats and halves"):
        Row("conv2d 1x6x5x3->4 3x3 fp8", "", {}).tensors()


@pytest.mark.slow
def test_trials_are_shared_out_among_computations(tmp_path: Path) -> None:
    row = Row("conv2d 1x6x6x8->8 3x3", "", {})
    tasks = {
        name: ansor.SearchTask(compute_dag=ComputeDAG(tensors), target="c")
        for name, tensors in row.computations("c").items()
    }
    best, found = operators.searched_best(tasks, tmp_path / "log.json", 12, lambda: None)
    counts = {name: len(operators.records_of(task, tmp_path / "log.json")) for name, task in tasks.items()}
    assert tasks[found["computation"]] is best and counts.pop(found["computation"]) == 9 and set(counts.values()) == {3}
    assert found["trials"] == found["asked"] == found["search"]["trials"] == 12 and found["complete"]
    costs = {name: operators.best_seconds(task, tmp_path / "log.json") for name, task in tasks.items()}
    assert min(costs, key=lambda name: costs[name]) in tasks and all(map(math.isfinite, costs.values()))
    again = operators.searched_best(tasks, tmp_path / "log.json", 12, lambda: None)[1]
    assert again["search"]["trials"] == 0 and again["trials"] == 12


def test_products_of_halves_and_in_tf32() -> None:
    rows = {x: Row(f"linear 197x3072x768{x}", "", {}) for x in ("", " tf32", " fp16", " fp32x3")}
    found = {x: [(t.shape, t.dtype) for t in row.tensors()] for x, row in rows.items()}
    assert found[""] == found[" tf32"] and [shape for shape, _ in found[""]] == [shape for shape, _ in found[" fp16"]]
    assert {dtype for _, dtype in found[" fp16"]} == {"float16"}
    assert [row.precision for row in rows.values()] == ["strict", "tf32", "strict", "fp32x3"]


@pytest.mark.parametrize(
    "name",
    [
        "softmax",
        "softmax 3x5 fp16",
        "linear 3x5x7 fp64",
        "softmax 0x5",
        "softmax 3x5x7",
        "convolution 3x5",
        "conv2d 1x2x3x4 3x3",
    ],
)
def test_rows_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"row\n{name}\n")
    with pytest.raises(TaskError, match="row"):
        read_rows(tmp_path / "mine.csv")


def test_a_file_of_rows_and_a_choice(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("row,c\nsoftmax 3x5,ratio <= 1.5 and us <= 2\nargmax 3x5,\nsoftmax 4x5\n")
    rows = read_rows(tmp_path / "mine.csv")
    assert {r.part for r in rows} == {"mine"} and [str(x) for x in rows[0].limits["c"]] == ["ratio <= 1.5", "us <= 2"]
    assert [r.name for r in chosen_rows(rows, ["softmax *", "argmax 3x5"])] == [r.name for r in rows]
    assert chosen_rows(rows, ["*4x5"]) == rows[2:] and chosen_rows(rows, []) == rows == chosen_rows(rows, ["mine"])
    with pytest.raises(TaskError, match="--rows 'D'"):
        chosen_rows(rows, ["D"])


@pytest.mark.parametrize("text", ["ratio < 1", "ratio <= -1", "speed <= 1", "ratio <= 1, us <= 2", "ratio <= 1 and"])
def test_limits_that_cannot_be_read(text: str) -> None:
    with pytest.raises(TaskError, match="limits"):
        limits_of(text)


def test_whether_limits_hold() -> None:
    limits = limits_of("ratio <= 1.1 and TB/s >= 3.75")
    assert verdict(limits, {"ratio": 1.1, "TB/s": 3.75}) == "holds"
    assert verdict(limits, {"ratio": 1.2}) == verdict(limits, {"ratio": 1.0, "TB/s": 3.7}) == "does not"
    assert verdict(limits, {"ratio": 1.0}) == verdict((), {"ratio": 1.0}) == ""


def found_row(name: str, ratio: float, commit: str = "one", **more: Any) -> dict[str, Any]:
    """What a run says of a row."""
    figures = operators.figures_of({"ours": [ratio, ratio, 2 * ratio], "eager": [1, 1, 1], "compile": [2, 2, 2]},
                                   {"trials": 4, "seconds": 2.0}, 10**6, {"ours": 3e-7, "eager": 2e-7})  # fmt: skip
    return {
        "row": name, "target": "c", "machine": "m", "threads": 2, "commit": commit, "date": "2026-11-23T05:00:00",
        "sides": "ours and torch",
        "asked": 8, "trials": 8, "complete": True, "search": {"trials": 4, "seconds": 2.0}, **figures, **more,
    }  # fmt: skip


def test_figures_of_a_row() -> None:
    found = found_row("softmax 3x5", 0.5)
    assert found["best"] == "eager" and found["torch_us"] == {"eager": 1e6, "compile": 2e6}
    assert found["figures"] == pytest.approx({"us": 5e5, "TB/s": 2e-6, "s/trial": 0.5, "ratio": 0.5, "error": 1.5})
    assert found["error_bar"] == pytest.approx(0.125 / 0.5)


def test_what_is_known_is_kept_and_what_is_done_is_not_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.csv").write_text(
        "row,c\nsoftmax 3x5,ratio <= 1\nargmax 3x5,\nargmax 4x5,\ngeometric mean,ratio <= 1\n"
    )
    rows, file, place = read_rows(tmp_path / "mine.csv"), str(tmp_path / "found.json"), ("c", "m", 2)
    journal = Journal(file)
    journal.add(found_row("softmax 3x5", 0.5, "zero"), rows)
    journal.add(found_row("softmax 3x5", 4.0), rows)
    journal.add(found_row("argmax 3x5", 1.0, complete=False), rows)
    older = str(tmp_path / "older.json")
    Journal(older).add(found_row("softmax 3x5", 0.1, date="2026-11-22T23:00:00"), rows)
    journal = Journal(None, [file, older])
    assert journal.places() == [place] and journal.means(rows, place)["mine"] == (pytest.approx(2.0), 2, 3)
    run = operators.Run(None, "c", place, "ours and torch", 8, tmp_path, "one", float("inf"))
    done = [run.is_done(journal.get(r.name, place, run.sides)) for r in rows]
    assert done == [True, False, False, False]
    assert not operators.Run(None, "c", place, run.sides, 9, tmp_path, "one", 0.0).is_done(found_row("a", 1.0))
    assert not operators.Run(None, "c", place, run.sides, 8, tmp_path, "two", 0.0).is_done(found_row("a", 1.0))
    journal.print_table(rows)
    lines = capsys.readouterr().out.splitlines()
    assert "does not" in lines[4] and "8 of 8" in lines[5] and "2 of 3 rows" in lines[6]


class FakeGpu:
    """Events of a device whose clock the replays move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self.cuda = SimpleNamespace(Event=lambda enable_timing: FakeEvent(self))

    def recorder(self, name: str, seconds: float) -> Callable[[int], Callable[[], None]]:
        def replay(calls: int) -> None:
            self.now += calls * seconds
            self.order.append(f"{name} {calls}")

        return lambda calls: lambda: replay(calls)


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.at = gpu, 0.0

    def record(self) -> None:
        self.at = self.gpu.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: FakeEvent) -> float:
        return 1e3 * (end.at - self.at)


def test_graphs_take_turns() -> None:
    """Two milliseconds a graph, one call at least; each figure behind a replay of its own."""
    gpu = FakeGpu()
    recorders = {"ours": gpu.recorder("ours", 7e-6), "slow": gpu.recorder("slow", 5e-3)}
    times = pytorch.graphs_in_turns(gpu, recorders, 4)
    assert times == {"ours": pytest.approx([7e-6] * 4), "slow": pytest.approx([5e-3] * 4)}
    turn = ["ours 286"] * 2 + ["slow 1"] * 2
    assert gpu.order[-4 * len(turn) :] == turn * 4


def test_shares_of_the_speed_of_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    monkeypatch.setattr(beside_cublas, "recorded", lambda torch, run, calls: gpu.recorder("theirs", run())(calls))
    monkeypatch.setattr(beside_cublas, "our_graph", lambda name, seconds, calls: gpu.recorder(name, *seconds)(calls))
    rows = beside_cublas.beside_cublas(gpu, lambda: 1e-3, {"slow": ("a", [4e-3]), "fast": ("b", [5e-4])}, 2 * 10**9)
    assert [name for name, *_ in rows] == ["cuBLAS", "slow", "fast"]
    figures = [[1e3, 2.0, 1.0], [4e3, 0.5, 0.25], [5e2, 4.0, 2.0]]
    assert [row[1:] for row in rows] == [pytest.approx(wanted) for wanted in figures]


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_run_and_its_continuation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run goes on where the first one stopped, the third has nothing to do."""
    (tmp_path / "mine.csv").write_text("row,c\nlayer_norm 6x40,\nconv2d 1x5x5x4->6 3x1,\n")
    words = ["--csv", str(tmp_path / "mine.csv"), "--json", str(tmp_path / "a.json"), "--log", str(tmp_path)]
    for trials, expected in ((3, 6), (5, 10), (5, 10)):
        monkeypatch.setattr(sys, "argv", ["operators", *words, "--trials", str(trials)])
        with pytest.raises(SystemExit) as end:
            operators.main()
        (log,) = tmp_path.glob("operators_c_*.json")
        assert end.value.code == 0 and len(log.read_text().splitlines()) == expected
    found = json.loads((tmp_path / "a.json").read_text())["figures"]["rows"]
    assert [f["search"]["trials"] for f in found] == [5, 5] and all(f["figures"]["ratio"] > 0 for f in found)


def test_without_pytorch_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_side.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["benchmarks/operators.py", "--rows", "softmax*"])
    with pytest.raises(SystemExit, match=r"^operators: PyTorch: it is not installed; `.* -m pip install torch`$"):
        report.run(operators.main)
    for script in Path(operators.__file__).parent.glob("*.py"):
        if "exact_torch" in script.read_text() and "def main(" in script.read_text():
            assert script.read_text().endswith("    report.run(main)\n"), script
