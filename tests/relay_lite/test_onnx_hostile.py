"""Hostile models give a graph or one sentence, within limits of memory and time: see `hostile_onnx.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.types import TensorType
from te_lite.environment import ANSOR_TENSOR_BYTES
from tests.amount import some
from tests.relay_lite.hostile_onnx import ABSURD, one
from tests.relay_lite.onnx_models import Builder

ROOT = Path(__file__).parent.parent.parent


def imported(first: int, count: int, tensor_bytes: int) -> None:
    """Import in a process of its own, which has less memory than the largest tensor."""
    words = [sys.executable, "-m", "tests.relay_lite.hostile_onnx", str(first), str(count)]
    env = {**os.environ, ANSOR_TENSOR_BYTES.name: str(tensor_bytes)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500, check=False)
    lines = done.stdout.splitlines()
    wanted = count + (len(ABSURD) if first == 0 else 0)
    assert done.returncode == 0 and lines[-1].startswith(f"{wanted} of {wanted} as promised"), done.stdout + done.stderr


def test_hostile_models() -> None:
    imported(0, some(120, 40), 1 << 29)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 7_000, 1_000))
def test_more_hostile_models(first: int) -> None:
    imported(first, 1_000, int(ANSOR_TENSOR_BYTES.default))


def test_the_limit_of_a_tensor_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphError, match=r"at most 4294967296 bytes \(ANSOR_TENSOR_BYTES\), got shape"):
        TensorType((1 << 15, 1 << 16))
    assert TensorType((1 << 15, 1 << 15)).size == 1 << 30
    monkeypatch.setenv(ANSOR_TENSOR_BYTES.name, str(1 << 34))
    assert TensorType((1 << 15, 1 << 16)).size == 1 << 31
    monkeypatch.setenv(ANSOR_TENSOR_BYTES.name, "1000")
    with pytest.raises(GraphError, match="at most 1000 bytes"):
        from_onnx(one("Relu", (1, 300)))


def test_what_is_too_large_to_compute_now_stays_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the same later."""
    monkeypatch.setenv(ANSOR_TENSOR_BYTES.name, str(1 << 16))
    model = one("Tile", np.ones((4, 4), np.float32), np.array([16, 16]))
    module, _ = from_onnx(model)
    assert module["main"].body.type == TensorType((64, 64)) and "tile" in repr(module["main"].body)
    monkeypatch.delenv(ANSOR_TENSOR_BYTES.name)
    assert "const" in repr(from_onnx(model)[0]["main"].body)


def test_weights_that_are_handed_on_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ANSOR_TENSOR_BYTES.name, str(1 << 16))
    b = Builder(18)
    x, w = b.input((64, 64)), b.array(np.ones((64, 64), np.float32))
    for _ in range(20):
        w = b.add("Identity", w)
    assert from_onnx(b.model(b.add("Add", x, w)))[0]["main"].body.type == TensorType((64, 64))


def test_names_that_are_there_twice() -> None:
    model = one("Add", (4,), np.ones(4, np.float32))
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(GraphError, match="every initializer must be there once"):
        from_onnx(model)
    model = one("Softmax", (4, 4), axis=0)
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    with pytest.raises(GraphError, match="every attribute must be there once"):
        from_onnx(model)
