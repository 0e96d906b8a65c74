"""Task extraction: counts that TVM's own tests hold, order, names, and what is not a task."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import ansor
import relay_lite as relay
from ansor.core.tasks.networks import extract_tasks
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Expr, Function, FunctionCall
from relay_lite.ir.visit import free_vars
from relay_lite.testing import get_workload


def conv(data: Expr, name: str, channels: int = 8, kernel: int = 3) -> Expr:
    weight = relay.var(name, shape=(kernel, kernel, data.shape[-1], channels))
    return relay.nn.conv2d(
        data, weight, padding=(kernel // 2,) * 2, channels=channels, kernel_size=(kernel, kernel), data_layout="NHWC",
        kernel_layout="HWIO",
    )  # fmt: skip


def tasks_of(body: Expr, target: str = "c", **options: object) -> tuple[list[ansor.SearchTask], list[int]]:
    function = Function(free_vars(body), body)
    rng = np.random.default_rng(0)
    params = {v.name: rng.random(v.shape, dtype=np.float32) for v in function.params if v.name != "x"}
    return ansor.extract_tasks(function, params, target, **options)  # type: ignore[arg-type]


def image(channels: int = 8) -> Expr:
    return relay.var("x", shape=(1, 14, 14, channels))


def test_a_convolution_used_twice_is_one_task() -> None:
    tasks, weights = tasks_of(conv(relay.nn.relu(conv(conv(image(), "w1"), "w2")), "w3"))
    assert weights == [2, 1]
    assert [task.desc for task in tasks] == ["fused_nn_conv2d", "fused_nn_conv2d_nn_relu"]


def test_two_different_convolutions_are_two_tasks_in_network_order() -> None:
    tasks, weights = tasks_of(conv(conv(image(), "w1", 16), "w2", 4))
    assert weights == [1, 1]
    assert [json.loads(t.workload_key)[-1] for t in tasks] == [[1, 14, 14, 16], [1, 14, 14, 4]]


def test_groups_of_equal_text_are_one_task_with_all_their_names() -> None:
    x = image()
    for channels in (8, None):
        weight = relay.var(f"w{channels}", shape=(3, 3, 8, 8))
        x = relay.nn.conv2d(x, weight, padding=1, channels=channels, data_layout="NHWC", kernel_layout="HWIO")
    tasks, weights = tasks_of(x)
    assert weights == [2]
    assert [task.desc for task in tasks] == ["fused_nn_conv2d,fused_nn_conv2d_1"]


def test_a_primitive_function_of_the_user_is_one_task() -> None:
    x = relay.var("p", shape=(1, 14, 14, 8))
    weights = [relay.var(f"q{k}", shape=(3, 3, 8, 8)) for k in (0, 1)]
    body: Expr = x
    for weight in weights:
        body = relay.nn.conv2d(body, weight, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    mine = Function((x, *weights), body, {"primitive": True})  # type: ignore[arg-type]
    called = FunctionCall(mine, (image(), *[relay.var(f"w{k}", shape=(3, 3, 8, 8)) for k in (0, 1)]))
    tasks, counts = tasks_of(called)
    assert counts == [1]
    assert str(tasks[0].compute_dag).count("+=") == 2


def test_simple_groups_are_tasks_on_request(tmp_path: Path) -> None:
    body = relay.nn.relu(relay.add(image(), relay.const(1.0)))
    assert tasks_of(body) == ([], [])
    log = tmp_path / "dags.json"
    (task,), weights = tasks_of(body, include_simple_tasks=True, dump_workload_to_dag_log=log)
    assert weights == [1]
    assert json.loads(log.read_text()) == {task.workload_key: str(task.compute_dag)}
    assert str(task.compute_dag) == (
        "p0 = PLACEHOLDER [1, 14, 14, 8]\n"
        "compile_engine_const() = 1f\n"
        "T_add(ax0, ax1, ax2, ax3) = (p0[ax0, ax1, ax2, ax3] + compile_engine_const[])\n"
        "T_relu(ax0, ax1, ax2, ax3) = max(T_add[ax0, ax1, ax2, ax3], 0f)\n"
    )


def test_hardware_and_target_reach_the_tasks() -> None:
    hardware = ansor.HardwareParams(num_cores=3, target="c")
    (task,), _ = tasks_of(conv(image(), "w"), target="llvm", hardware_params=hardware)
    assert task.hardware_params.num_cores == 3
    assert task.target.kind.name == "c"


def test_two_dense_layers_of_one_shape() -> None:
    x: Expr = relay.var("x", shape=(1, 32))
    for k in (0, 1):
        x = relay.nn.dense(x, relay.var(f"w{k}", shape=(32, 32)))
        x = relay.nn.relu(relay.nn.bias_add(x, relay.var(f"b{k}", shape=(32,))))
    tasks, weights = tasks_of(x, "cuda")
    assert len(tasks) == 1 and weights == [2]


def test_without_parameters_nothing_folds() -> None:
    graph, params = get_workload("resnet-18")
    with_params, _ = ansor.extract_tasks(graph, params, "cuda")
    without, _ = ansor.extract_tasks(graph, None, "cuda")
    assert sum("T_multiply" in str(t.compute_dag) for t in with_params) == 1
    assert sum("T_multiply" in str(t.compute_dag) for t in without) > 1
    assert sum("winograd_weight_transform" in t.desc for t in with_params) == 0
    assert sum("winograd_weight_transform" in t.desc for t in without) > 0


def test_the_current_context_still_forbids_passes() -> None:
    graph, params = get_workload("mobilenet", layout="NCHW")
    with relay.transform.PassContext(opt_level=0, disabled_pass=["FoldScaleAxis"]):
        tasks, weights = ansor.extract_tasks(graph, params, "cuda")
    assert (len(tasks), sum(weights)) == (22, 30)
    assert sum("T_multiply" in str(t.compute_dag) for t in tasks) == 19


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    body = conv(image(), "w")
    module = IRModule.from_expr(body)
    with pytest.raises(ansor.TaskError, match="unknown"):
        ansor.extract_tasks(module, {}, "tpu")
    with pytest.raises(relay.GraphError, match="no such parameter"):
        ansor.extract_tasks(module, {"v": np.zeros(3, np.float32)}, "c")

    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="relay_lite")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        ansor.BackendError, match="extract_tasks needs the package relay_lite, which this installation lacks"
    ):
        extract_tasks(module, {}, "c")
