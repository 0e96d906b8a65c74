"""What the zoo's script does without torch: graphs known by digest, emission for CUDA, processes that end too early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from benchmarks import zoo
from benchmarks.zoo_check import Result, cuda_text, graph_digest
from relay_lite.frontend import from_onnx
from relay_lite.ir.module import IRModule
from tests.relay_lite.onnx_models import Builder


def graph(epsilon: float = 1e-5, seed: int = 0, swapped: bool = False) -> IRModule:
    b = Builder(17, seed)
    x, y = b.input((2, 3)), b.input((2, 3))
    product = b.add("Gemm", *((y, x) if swapped else (x, y)), transB=1)
    return from_onnx(b.model(b.add("LayerNormalization", product, b.weight(2), axis=1, epsilon=epsilon)))[0]


def test_a_digest_says_all_that_a_graph_computes() -> None:
    """Attributes, weights, and which input is which."""
    same = graph_digest(graph())
    assert same == graph_digest(graph())
    assert len({same, *map(graph_digest, (graph(1e-3), graph(seed=1), graph(swapped=True)))}) == 4


def test_text_for_cuda_needs_no_gpu() -> None:
    emitted: set[str] = set()
    assert cuda_text(graph(), emitted) == "ok" and emitted


def test_a_process_that_ends_costs_one_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second exporter ends its process; the third runs in another one."""
    runs: list[list[str]] = []

    def lines(arguments: list[str], seconds: float) -> tuple[list[str], str]:
        exporters = arguments[2:]
        runs.append(exporters)
        good = exporters[: exporters.index("b")] if "b" in exporters else exporters
        return [json.dumps({"exporter": e, "outcome": "pass"}) for e in good], "exit status -11: "

    monkeypatch.setattr(zoo, "_lines", lines)
    found = zoo.check_model("alexnet", ["a", "b", "c"], Path("nowhere"), 1.0)
    assert [r.outcome for r in found] == ["pass", "crashed", "pass"] and runs == [["a", "b", "c"], ["c"]]
    assert found[1] == Result("b", "crashed", "exit status -11: ")
