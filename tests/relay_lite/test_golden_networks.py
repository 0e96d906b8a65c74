"""The tasks of whole networks are those that TVM extracts: number, weights, FLOPs, texts and keys."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import ansor
from relay_lite.ir.nodes import Call
from relay_lite.testing import get_workload
from relay_lite.transform import ConvertLayout, PassContext, Sequential, alter_op_layout

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDED = json.loads((GOLDEN / "network_tasks.json").read_text())


@lru_cache(maxsize=1)
def extracted(network: str) -> tuple[list[ansor.SearchTask], list[int]]:
    name, layout, target = network.split("/")
    graph, params = get_workload(name, batch_size=1, layout=layout)
    return ansor.extract_tasks(graph["main"], params, target)


def of_tvm(conv: Call) -> int | None:
    """Where TVM computes a convolution by Winograd's method on a CPU, in tiles of 4; ours takes what takes least."""
    return 4 if 64 < conv.shape[3] < 512 else None


@pytest.mark.parametrize("network", RECORDED)
@pytest.mark.one_in(5)
def test_tasks_of_a_network(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_op_layout, "_least", of_tvm)
    tasks, weights = extracted.__wrapped__(network)
    ours = {t.workload_key: (w, t.compute_dag.flop_ct, str(t.compute_dag)) for t, w in zip(tasks, weights, strict=True)}
    golden = {json.dumps(e["workload_key"]): (e["weight"], e["flop"], e["dag"]) for e in RECORDED[network]}
    assert len(ours) == len(tasks)
    assert ours.keys() == golden.keys()
    for key, entry in golden.items():
        assert ours[key] == entry


def tutorial_tasks() -> dict[str, str]:
    """The printed tasks of the tutorial, texts by workload key."""
    page = (GOLDEN / "tutorial_resnet18_tasks.txt").read_text()
    parts = re.split(r"^=+ Task \d+  \(workload key: (.*)\) =+\n", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_printed_tasks_of_the_tutorial() -> None:
    tasks, weights = extracted("resnet-18/NHWC/cuda")
    texts: dict[str, Any] = tutorial_tasks()
    assert {t.workload_key for t in tasks} == set(texts)
    for task in tasks:
        assert f"{task.compute_dag}\n" == texts[task.workload_key]
    twice = [t.workload_key for t, w in zip(tasks, weights, strict=True) if w != 1]
    assert sum(weights) == 25
    assert [json.loads(key)[1:4] for key in twice] == [[[1, 56, 56, 64], [6, 6, 64, 64], [1, 1, 1, 64]]]


def test_a_converted_network_has_the_tasks_of_its_layout() -> None:
    graph, params = get_workload("resnet-18", layout="NCHW")
    with PassContext(opt_level=3):
        converted = Sequential([ConvertLayout({"nn.conv2d": ["NHWC", "default"]})])(graph)
    tasks, weights = ansor.extract_tasks(converted, params, "cuda")
    golden = {json.dumps(e["workload_key"]): e["weight"] for e in RECORDED["resnet-18/NHWC/cuda"]}
    assert {t.workload_key: w for t, w in zip(tasks, weights, strict=True)} == golden
