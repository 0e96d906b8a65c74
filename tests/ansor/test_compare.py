"""`ansor tune --compare`: what stands beside the best program, under its name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli import compare as cli_compare
from ansor.cli import main as cli_main
from ansor.cli.main import main
from ansor.cli.numpy_side import OPERATORS as NUMPY_OPERATORS
from ansor.cli.numpy_side import numpy_run
from ansor.cli.torch_side import OPERATORS, check_torch, torch_run
from ansor.core.errors import MeasureError, TaskError
from ansor.core.target.hardware import host_cores
from ansor.core.tasks import workloads
from ansor.core.tasks.catalog import CATALOG
from ansor.measure.progress import reach_text
from te_lite.meaning.reference import evaluate, multiplies_matrices, random_inputs
from tests.ansor.fake_torch import Tensor, fake_torch
from tests.workloads import matmul

SMALL = {
    "conv2d": (2, 6, 5, 7, 3, 3, 2, 1), "matmul": (9, 8, 7), "dense": (3, 10, 6), "batch_matmul": (2, 5, 6, 7),
    "conv1d": (1, 12, 5, 4, 3, 2, 1), "conv2d_nhwc": (1, 7, 6, 5, 3, 3, 1, 1), "conv3d": (1, 5, 4, 6, 3, 2, 3, 2, 1),
    "depthwise_conv2d": (1, 7, 6, 5, 3, 2, 1), "softmax": (5, 9), "norm": (2, 5, 6),
}  # fmt: skip


def task_of(name: str, target: str = "c") -> ansor.SearchTask:
    return ansor.SearchTask(workload_key=CATALOG[name].key(SMALL[name]), target=target)


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function is registered under a name of the catalogue, as other tests do."""
    monkeypatch.setattr(workloads, "_FUNCTIONS", {})
    monkeypatch.setattr(workloads, "_DAGS", {})


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = fake_torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))


@pytest.mark.parametrize("name", CATALOG)
def test_numpy_computes_each_workload_of_the_catalogue(name: str, own_names: None) -> None:
    task = task_of(name)
    tensors = task.compute_dag.tensors
    inputs = random_inputs(tensors, np.random.default_rng(1))
    words, run = numpy_run(task, inputs)
    assert words == f"NumPy, {NUMPY_OPERATORS[task.name][0]}"
    right = evaluate(tensors, inputs, "float64")[tensors[-1]]
    assert run().shape == right.shape and np.abs(run() - right).max() <= 1e-5 * np.abs(right).max()


def test_a_function_with_a_name_of_the_catalogue_is_evaluated_as_it_is(own_names: None, torch: Any) -> None:
    ansor.register_workload("softmax", lambda m, n: matmul(m, n, 2))
    task = ansor.SearchTask("softmax", (3, 4), target="c")
    inputs = random_inputs(task.compute_dag.tensors, np.random.default_rng(1))
    words, run = numpy_run(task, inputs)
    a, b = inputs.values()
    assert words == "the reference evaluator (matmul)" and np.allclose(run(), a @ b, atol=1e-6)
    with pytest.raises(TaskError, match="no operator of PyTorch is known for this workload"):
        check_torch(task)


def test_numpy_is_named_for_what_it_does() -> None:
    by_products = {name for name in CATALOG if multiplies_matrices(task_of(name).compute_dag.tensors)}
    assert by_products == set(CATALOG) - {"softmax"}
    a, k = te.placeholder((4, 6), name="A"), te.reduce_axis((0, 6), name="k")
    greatest = te.compute((4,), lambda i: te.max(a[i, k] * a[i, k], axis=k), name="B")
    assert not multiplies_matrices([a, greatest])


@pytest.mark.parametrize("name", CATALOG)
def test_pytorch_computes_each_workload_of_the_catalogue(name: str, own_names: None, torch: Any) -> None:
    task = task_of(name)
    tensors = task.compute_dag.tensors
    inputs = random_inputs(tensors, np.random.default_rng(1))
    given = [inputs[t] for t in tensors if t in inputs]
    result = evaluate(tensors, inputs)[tensors[-1]]
    run = torch_run(task, given, result)
    assert isinstance(run(), Tensor) and torch.threads == host_cores()
    with pytest.raises(MeasureError, match="PyTorch's result is another one"):
        torch_run(task, given, result + np.abs(result).max() * 0.01)
    with pytest.raises(MeasureError, match="PyTorch's result is another one"):
        torch_run(task, given, result[..., :-1])


def test_every_workload_of_the_catalogue_has_an_operator() -> None:
    assert set(OPERATORS) == {entry.name for entry in CATALOG.values()}


def test_what_cannot_be_compared_is_refused(torch: Any, matmul_task: ansor.SearchTask) -> None:
    a = te.placeholder((4,), name="A")
    own = ansor.SearchTask(compute_dag=[a, te.compute((4,), lambda i: a[i] + 1.0, name="B")], target="c")
    with pytest.raises(TaskError, match="no operator of PyTorch is known for this workload, but for conv2d_layer, "):
        check_torch(own)
    with pytest.raises(TaskError, match="on the processor only"):
        check_torch(task_of("softmax", "cuda"))


def test_a_missing_pytorch_is_said_before_anything_is_measured(
    no_torch: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["tune", "softmax", "--shape", "5,9", "--trials", "2", "--compare", "torch"]
    assert "pip install torch" in refused(words, "PyTorch is not installed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["tune"], ["tune", "--compare"]])
def test_a_command_that_is_not_finished_says_how_it_goes_on(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "usage: ansor" in capsys.readouterr().err


def test_an_unknown_library_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "softmax", "--compare", "jax"])
    assert "choose from" in capsys.readouterr().err


def test_a_workload_after_it_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(cli_main, "tune", lambda args: told.append((args.workload, args.compare)) or 0)
    for workload in ("softmax", "mine.py:f"):
        for words in (["--compare", workload], [workload, "--compare"], ["--compare", "torch", workload]):
            assert main(["tune", *words, "--trials", "2"]) == 0
    library = ["numpy", "numpy", "torch"]
    assert told == [("softmax", name) for name in library] + [("mine.py:f", name) for name in library]


def log_of(task: ansor.SearchTask, folder: Path, cost: float) -> Path:
    """A log of one program."""
    state = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).ask(1)[0]
    result = ansor.MeasureResult((cost,), 0, "", 0.1, 1_700_000_000)
    ansor.RecordToFile(folder / "log.json").callback(None, [ansor.MeasureInput(task, state)], [result])
    return folder / "log.json"


def timed(runs: Any, rounds: int) -> dict[str, list[float]]:
    """A millisecond more for each run, a half of it less and more."""
    for run in runs.values():
        run()
    return {name: [1e-3 * (k + 1 + off) for off in (0, -0.5, 0.5)] for k, name in enumerate(runs)}


@pytest.mark.parametrize(("cost", "now", "told"), [
    (1e-3, 1.5e-3, ["slower than untuned"]),
    (1e-3, 3e-3, ["takes 3 times what the log says of it, 1 ms; is the machine another one, or was it busy now?"]),
    (9e-3, 3e-3, ["takes 0.33 times what the log says of it, 9 ms"]),
])  # fmt: skip
def test_a_busy_machine_is_no_judge(cost: float, now: float, told: list[str], tmp_path: Path) -> None:
    task = task_of("softmax")
    log = log_of(task, tmp_path, cost)
    best = ansor.MeasureInput(task, task.best_state(str(log)))
    lines = list(cli_compare._verdict(task, log, best, now, slower=True))
    assert len(lines) == len(told) and all(text in line for text, line in zip(told, lines, strict=True))


@pytest.mark.parametrize(("library", "names"), [
    ("numpy", ["the best program", "the untuned loop nest", "NumPy, exp(a - max) / sum"]),
    ("torch", ["the best program", "the untuned loop nest", "NumPy, exp(a - max) / sum", "PyTorch"]),
])  # fmt: skip
def test_the_lines_of_a_comparison(
    library: str, names: list[str], torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    task = task_of("softmax")
    log = log_of(task, tmp_path, 1e-3)
    monkeypatch.setattr(cli_compare, "timed_in_turns", timed)
    found = cli_compare.compare(task, log, np.random.default_rng(0), library)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "x   " in line]
    assert [line[:32].strip() for line in lines] == names and list(found)[-1] == library
    reach = [line.split("x   ")[1] for line in lines]
    assert reach == [reach_text([1e-3 * k - 5e-4, 1e-3 * k + 5e-4]) for k in range(1, len(lines) + 1)]


def test_a_faster_operator_of_pytorch_is_the_verdict(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = task_of("softmax")
    log = log_of(task, tmp_path, 4e-3)
    monkeypatch.setattr(cli_compare, "timed_in_turns", lambda runs, rounds: timed(dict(reversed(runs.items())), rounds))
    cli_compare.compare(task, log, np.random.default_rng(0), "torch")
    assert "slower than torch: PyTorch's operator takes 1 ms, the best program 4 ms" in capsys.readouterr().out
