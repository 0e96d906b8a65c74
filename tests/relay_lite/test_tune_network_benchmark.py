"""The parts of `benchmarks.tune_network` that need no GPU: logs of several runs, cuDNN's figures, PyTorch's network."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import ansor
from benchmarks import torch_network, tune_network
from relay_lite.testing import get_workload
from relay_lite.tuning.network import load_network
from relay_lite.tuning.network_times import NetworkTimes, TaskTime
from relay_lite.tuning.tune_network import largest_difference, per_round, reference_outputs


@pytest.mark.parametrize(
    ("trials", "tasks", "seconds", "size"),
    [(4992, 24, None, 64), (4992, 24, 75, 12), (4992, 24, 600, 64), (192, 24, 75, 4), (400, 24, None, 8),
     (400, 24, math.inf, 8)],
)  # fmt: skip
def test_first_rounds_leave_half_of_the_trials_and_of_the_time(
    trials: int, tasks: int, seconds: float | None, size: int
) -> None:
    assert per_round(trials, tasks, seconds) == size


@pytest.mark.slow
def test_a_run_and_its_continuation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run starts from a copy of the first one's log and measures what is missing."""
    command = ["tune_network", "--network", "mlp", "--target", "c", "--repeat", "1"]
    first, second, figures = tmp_path / "first.json", tmp_path / "out" / "second.json", tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", [*command, "--log", str(first), "--trials", "4", "--parts", "tune"])
    tune_network.main()
    monkeypatch.setattr(
        sys, "argv",
        [*command, "--log", str(second), "--resume", str(first), str(first), "--trials", "5", "--json", str(figures)],
    )  # fmt: skip
    tune_network.main()
    lines, earlier = [[x for x in log.read_text().splitlines() if x[0] == "{"] for log in (second, first)]
    assert lines[:4] == earlier and len(set(lines)) == 5
    found = json.loads(figures.read_text())["figures"]
    assert found["tuning"]["trials"] == 5 and found["tuning"]["trials_of_this_run"] == 1
    compiled = found["compiled"]
    assert compiled["difference"] == pytest.approx(compiled["end_to_end_us"] / compiled["estimated_us"] - 1)
    assert compiled["error"] < 1e-4 < compiled["contrast"] and len(compiled["tasks"]) == 4


def test_seconds_of_a_log_leave_out_pauses() -> None:
    assert tune_network.log_seconds([130, 100, 110, 5000, 5007]) == 37
    assert tune_network.log_seconds([]) == 0


def test_every_convolution_has_a_figure_of_cudnn() -> None:
    """20 of the 24 tasks are convolutions; the ratio is ours over the faster of cuDNN's two layouts."""
    tasks, weights = ansor.extract_tasks(*get_workload("resnet-18"), "cuda")
    times = NetworkTimes(
        tuple([TaskTime(t, w, 64, 10e-6, 11e-6) for t, w in zip(tasks, weights, strict=True)]), {"softmax": 2e-6}, 3e-4
    )
    *rows, total = tune_network.beside_cudnn(times)
    known = [row for row in rows if row[-1] != "-"]
    assert len(rows) == 24 and len(known) == 20 and all("conv2d" in row[0] for row in known)
    assert all(row[-1] == pytest.approx(10 / row[-2]) for row in known)
    stem = next(row for row in rows if "224, 224, 3" in tasks[int(row[0][:2])].workload_key)
    assert stem[-2] == 22.32
    assert total[3] == pytest.approx(sum(row[1] * row[3] for row in known)) and total[3] == pytest.approx(210)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_the_network_in_pytorch(layout: str) -> None:
    torch = importlib.import_module("torch")
    torch.set_grad_enabled(False)
    network = load_network("resnet-18", batch_size=2, layout=layout, image_size=(40, 33))
    inputs = network.inputs(np.random.default_rng(0))
    picture = inputs["data"].transpose(0, 3, 1, 2) if layout == "NHWC" else inputs["data"]
    got = torch_network.resnet18(torch, network.params, layout)(torch.from_numpy(picture.copy())).numpy()
    assert largest_difference(got, reference_outputs(network, inputs)[0]) < 1e-5
