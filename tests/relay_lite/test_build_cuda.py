"""Networks built for CUDA: NVRTC takes every kernel, and the plan is right when the block emulator runs the kernels."""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.device.network_plan import ExecutionPlan, Step
from ansor.core.target.hardware import HardwareParams
from ansor.policy.default_schedule import default_states
from ansor.sketch.plain import plain_state
from codegen_cuda import available_compilers
from codegen_cuda import emit as emit_cuda
from codegen_cuda.driver.architecture import runs_on
from codegen_cuda.emulation import emulator
from codegen_cuda.networks.network import CudaNetworkBackend
from codegen_cuda.overlap.prefetch import NOTHING
from relay_lite import reference
from relay_lite.compiler.build import build
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function, Tuple
from relay_lite.runtime.library import NetworkLibrary, load
from tests.oracle import Oracle
from tests.relay_lite.pass_graphs import Layers, relu
from tests.workloads import WORKLOADS

TARGET = "cuda -arch=sm_90"
Array = np.ndarray[Any, np.dtype[Any]]
pytestmark = [
    pytest.mark.skipif(not available_compilers(), reason="no CUDA compiler"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++"),
]


def network() -> Function:
    """Two convolutions with a skip, one of them with a stride; a reshape; softmax.  Two outputs."""
    make = Layers(np.random.default_rng(8), "NHWC", "float32")
    x = make.input(2, 5, 6, 4)
    first: Expr = relu(make.bias(make.conv(x, 4)))
    second = relu(call("add", make.conv(first, 4), x))
    third = make.conv(second, 6, 3, stride=2)
    return Function((x,), Tuple((call("nn.softmax", call("nn.batch_flatten", third)), first)))


@pytest.fixture(scope="module")
def library() -> NetworkLibrary:
    return build(network(), target=TARGET)


def emulate(library: NetworkLibrary, inputs: dict[str, Array]) -> list[Array]:
    """Carry the plan out with the emulator in place of a GPU; memory is full of NaN first, in floats of any width."""
    plan = library.plan
    arena = np.full(plan.arena_bytes, 0xFF, np.uint8)
    outside = [np.full(s.nbytes, 0xFF, np.uint8) for s in plan.storages[: plan.externals]]
    for place in (*plan.inputs, *plan.params):
        value = inputs[place.name] if place.name in inputs else library.values[place.name]
        outside[place.storage][: value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)

    def memory_of(storage: int) -> Array:
        whole, start = plan.place(storage)
        return (arena if whole is None else outside[whole])[start:][: plan.storages[storage].nbytes]

    k = 0
    while k < len(plan.steps):
        step, k = plan.steps[k], k + 1
        if step.back:
            k -= step.back + 1 if all(memory_of(s)[0] for s in step.where) else 0
            continue
        code, memory = library.kernels[step.kernel], list(map(memory_of, step.storages))
        for launch in code.facts["kernels"]:
            args: list[Any] = [memory[a] for a in launch["arguments"]]
            if code.facts.get("ahead"):
                args += [np.zeros(16, np.int8), *[np.uint32(n) for n in NOTHING.arguments(1, 1)[1:]]]
            emulator.run(code.source, launch["name"], tuple(launch["grid"]), tuple(launch["block"]), args,
                         launch["dynamic_bytes"], check=False)  # fmt: skip
    return [
        np.frombuffer(outside[p.storage].tobytes(), p.dtype)[: prod(p.shape)].reshape(p.shape) for p in plan.outputs
    ]


@pytest.mark.long
def test_the_plan_on_the_emulator(library: NetworkLibrary) -> None:
    assert set(library.binaries) == {f"{name}.cubin" for name in library.kernels}
    inputs = {"data": np.random.default_rng(0).uniform(-1, 1, (2, 5, 6, 4)).astype("float32")}
    for got, want in zip(emulate(library, inputs), reference.run(network(), inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * float(np.abs(want).max()))


def test_export_and_load(library: NetworkLibrary, tmp_path: Path) -> None:
    library.export(tmp_path / "network")
    again = load(tmp_path / "network")
    assert again.plan == library.plan and again.kernels == library.kernels and again.binaries == library.binaries
    assert again.machine == {"architecture": "sm_90"}


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_plan_that_passes_over_kernels_is_refused(
    library: NetworkLibrary, monkeypatch: pytest.MonkeyPatch, goes_back: bool
) -> None:
    """So is one with steps that go back where a bool is false: executors ask for those that are true."""
    monkeypatch.setattr(CudaNetworkBackend, "check_machine", lambda *_: None)
    first, *others = library.plan.steps
    storages = [replace(s, nbytes=1) if k == 0 else s for k, s in enumerate(library.plan.storages)]
    back = Step("", (), (), (), (0,), 1)
    steps = (first, back, *others) if goes_back else (replace(first, unless=(0,)), *others)
    guarded = object.__new__(ExecutionPlan)  # a guard is one byte, and this plan has no such storage
    vars(guarded).update(vars(library.plan) | {"steps": steps, "storages": storages})
    with pytest.raises(GraphError, match="network: executors of 'cuda' pass over no kernel, got kernels="):
        replace(library, plan=guarded)["default"]()


@pytest.mark.parametrize(
    "made, here, fits",
    [
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_90a", "sm_90a", True),
        ("sm_90a", "sm_90", False),
        ("sm_100", "sm_103", True),
        ("sm_10", "sm_100", False),
    ],
)
def test_which_devices_run_which_code(made: str, here: str, fits: bool) -> None:
    assert runs_on(made, here) is fits


def test_a_device_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen_cuda.driver.architecture.architecture", lambda index: "sm_75")
    with pytest.raises(GraphError, match="was compiled for sm_90; build it for this device, got device='sm_75'"):
        CudaNetworkBackend().check_machine({"architecture": "sm_90"}, 0)


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.one_in(3)
def test_plain_nests_for_a_gpu_are_right(name: str, vectors: bool) -> None:
    oracle = Oracle(te.ComputeDAG(WORKLOADS[name]()), np.random.default_rng(2))
    task = ansor.SearchTask(compute_dag=oracle.dag, target="cuda", hardware_params=HardwareParams.for_target("cuda"))
    func = te.lower(plain_state(task, vectors), oracle.dag.tensors)

    def run(func: te.LoweredFunc, args: Any) -> None:
        emulator.run_program(emit_cuda(func), args, check=False)

    assert oracle.mismatch(func, run) is None


@pytest.mark.parametrize(("dtype", "columns", "access"), [
    ("float32", 20, "float4"), ("float32", 6, "float2"), ("float32", 7, None), ("float16", 8, "half2"),
])  # fmt: skip
def test_a_kernel_without_reductions_moves_vectors(dtype: str, columns: int, access: str | None) -> None:
    x = te.placeholder((3, columns), dtype, "x")
    sums = te.compute((3, columns), lambda i, j: x[i, j] + x[i, j], name="sums")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([x, sums]), target=TARGET)
    text = emit_cuda(te.lower(next(default_states(task)), [x, sums])).source
    assert (access in text) if access else not any(f"{kind}{n}" in text for kind in ("float", "half") for n in "24")
