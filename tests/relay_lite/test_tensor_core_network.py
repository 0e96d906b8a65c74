"""Networks whose products are on tensor cores, by precision: from tasks to records to kernels on the block emulator."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.records.dispatch import ApplyHistoryBest
from ansor.sketch.generate import extra_sketches
from ansor.space.sample import sample_rows
from ansor.space.spaces import home, space_of
from ansor.space.states import concrete
from codegen_cuda import available_compilers
from relay_lite import build, reference
from relay_lite.ir.make import call
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Constant, Expr, Function
from relay_lite.transform import PassContext
from relay_lite.tuning.network import Network, in_precision
from tests.relay_lite.pass_graphs import Layers, relu
from tests.relay_lite.test_build_cuda import emulate

pytestmark = [
    pytest.mark.skipif(not available_compilers(), reason="no CUDA compiler"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++"),
]
LIMITS = {"fp32x3": 2e-6, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1.5e-2}


def network() -> Network:
    """A convolution on rows of 20 with a norm, one of 1 x 1 with a skip, a product of rows, softmax."""
    make = Layers(np.random.default_rng(8), "NHWC", "float32")
    x = make.input(1, 3, 20, 32)
    first: Expr = relu(make.bn(make.conv(x, 32)))
    second = relu(call("add", make.bias(make.conv(first, 32, 1)), first))
    rows = call("reshape", second, newshape=(60, 32))
    scores = call("multiply", make.bias(make.dense(rows, 24)), Constant(np.float32(0.01)))
    graph = IRModule.from_expr(Function((x,), call("nn.softmax", scores)))
    return Network("layers", graph, {}, graph)


def on_tensor_cores(task: ansor.SearchTask) -> tuple[Any, ...] | None:
    """The steps of a random program of the first sketch with tensor cores; None where there is none."""
    hardware = HardwareParams(target=task.target)
    for sketch in extra_sketches(task.compute_dag, task.target, hardware, rules=["tensor_core"])[:1]:
        space = space_of(sketch, task.target, hardware)
        (row,) = sample_rows(home(space), 1, np.random.default_rng(0), task.target, hardware)
        return concrete(home(space), row, task.target, hardware).steps
    return None


@pytest.mark.parametrize(
    "precision",
    [
        "fp16",
        pytest.param("tf32", marks=pytest.mark.long),
        *[pytest.param(x, marks=pytest.mark.slow) for x in ("bf16", "fp32x3")],
    ],
)
def test_a_network_by_precision(precision: str, tmp_path: Path) -> None:
    plain = network()
    made, target = in_precision(plain, "cuda -arch=sm_90", precision)
    tasks, _ = ansor.extract_tasks(made.graph, made.params, target)
    steps = {t.workload_key: (t, found) for t in tasks if (found := on_tensor_cores(t)) is not None}
    assert len(steps) == 3, [t.desc for t in tasks]
    result = ansor.MeasureResult((1e-5,), 0, "", 1.0, 0)
    inputs = [ansor.MeasureInput(t, steps=found) for t, found in steps.values()]
    ansor.save_records(tmp_path / "log.json", inputs, [result] * len(inputs))
    with ApplyHistoryBest(tmp_path / "log.json"), PassContext(opt_level=3):
        library = build(made.graph, target=Target.of(target), params=made.params)
    assert sum("mma.sync" in code.source for code in library.kernels.values()) == 3
    x = {"data": np.random.default_rng(1).standard_normal((1, 3, 20, 32)).astype("float32")}
    (got,), want = emulate(library, x), reference.run(plain.original, x, dtype="float64")
    error = np.abs(got - want).max() / np.abs(want).max()
    assert LIMITS[precision] / 1000 < error <= LIMITS[precision]
    assert np.abs(want - want.mean()).max() > 0.3 * np.abs(want).max()  # or any result would do
