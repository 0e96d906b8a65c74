"""Kernels of networks as compiled programs on the simulated machine, and inference with them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.dispatch import ApplyConfig
from ansor.autotvm.knob import OtherOptionEntity
from ansor.autotvm.split import SplitEntity
from relay_lite import reference
from relay_lite.ir.errors import GraphError
from relay_lite.ir.types import TensorType
from tests.amount import some
from vta_sim import Config, Device
from vta_sim.core.errors import CompileError
from vta_sim.core.kinds import AluOp
from vta_sim.graph import MachineKernel, graph_pack
from vta_sim.graph.alu_operations import AluOperation
from vta_sim.graph.reference import run_kernel
from vta_sim.graph.schedule import choose_knobs
from vta_sim.network.device_kernels import DeviceKernels
from vta_sim.network.executor import VtaModule
from vta_sim.network.vta_network import VtaNetwork
from vta_sim.top import ConvKnobs, ConvShape

from .networks import images, quantized

LIMITS = (AluOperation(AluOp.MIN, 127), AluOperation(AluOp.MAX, -127))


@pytest.fixture(autouse=True)
def no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workloads of these sizes have no records."""
    monkeypatch.setattr(logging.getLogger("autotvm"), "disabled", True)


def device() -> Device:
    made = Device()
    made.finds_races = True
    return made


def conv_kernel(
    size: tuple[int, int], blocks: tuple[int, int], kernel: int, stride: int, *operations: AluOperation
) -> MachineKernel:
    """A 3x3 or 1x1 convolution with a bias."""
    (h, w), (ci, co), pad = size, blocks, kernel // 2
    data, weight = TensorType((1, ci, h, w, 1, 16), "int8"), TensorType((co, ci, kernel, kernel, 16, 16), "int8")
    out = TensorType((1, co, (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1, 1, 16), "int8")
    tensors = [("TENSOR", t.shape, t.dtype) for t in (data, weight)]
    workload = ("conv2d_packed.vta", *tensors, (stride, stride), (pad, pad), (1, 1), "NCHW1n16c", "int32")
    return MachineKernel(workload, (data, weight, TensorType((1, co, 1, 1, 1, 16), "int32")), out, operations)


def sum_kernel(shape: tuple[int, ...], *operations: AluOperation) -> MachineKernel:
    t = TensorType(shape, "int8")
    return MachineKernel(None, (t, t), t, (AluOperation(AluOp.ADD, extra=0), *operations))


def arrays_of(kernel: MachineKernel, rng: np.random.Generator) -> list[np.ndarray]:
    ranges = {"int8": (-128, 128), "int32": (-70_000, 70_000)}
    return [rng.integers(*ranges[t.dtype], t.shape).astype(t.dtype) for t in kernel.inputs]


BIAS, ROUND = AluOperation(AluOp.ADD, extra=0), (AluOperation(AluOp.ADD, 512), AluOperation(AluOp.SHR, 10))
KERNELS = {
    "conv3x3": conv_kernel((7, 9), (2, 4), 3, 1, BIAS, *ROUND, *LIMITS),
    "stride": conv_kernel((9, 6), (3, 2), 3, 2, BIAS, AluOperation(AluOp.MAX, 0), *ROUND, *LIMITS),
    "conv1x1": conv_kernel(
        (8, 8), (1, 3), 1, 2, BIAS, AluOperation(AluOp.SHR, -3), AluOperation(AluOp.SHR, 11), *LIMITS
    ),
    "no bias": conv_kernel((5, 5), (2, 2), 3, 1, AluOperation(AluOp.MUL, 3), AluOperation(AluOp.SHR, 9), *LIMITS),
    "wraps": conv_kernel((5, 5), (2, 2), 3, 1, BIAS),
    "sum": sum_kernel((1, 4, 56, 56, 1, 16), AluOperation(AluOp.MAX, 0), AluOperation(AluOp.MIN, 127)),
    "odd sum": sum_kernel((1, 3, 13, 41, 1, 16), *LIMITS),
    "one block": sum_kernel((1, 1, 7, 7, 1, 16)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_kernels_do_what_the_reference_says(name: str) -> None:
    kernel = KERNELS[name]
    if not any(o.extra is not None for o in kernel.operations):
        kernel = MachineKernel(kernel.workload, kernel.inputs[:2], kernel.output, kernel.operations)
    kernels = DeviceKernels(device())
    rng = np.random.default_rng(len(name))
    for _ in range(2):
        arrays = arrays_of(kernel, rng)
        want = run_kernel(kernel, arrays)
        assert np.ptp(want.astype(int)) > 20
        np.testing.assert_array_equal(kernels(kernel, arrays), want)
    assert [k for k, _ in kernels.launches] == [kernel] * 2 and kernels.launches[0][1].counters.alu_counter > 0


IMAGES = some(3, 1)


@pytest.mark.long
def test_inference_on_the_machine_is_the_reference() -> None:
    kernels = DeviceKernels(device())
    network = VtaNetwork(graph_pack(quantized(), 1, 16, 8, device_annot=True), kernels)
    for image in images(IMAGES, seed=5):
        want = reference.run(quantized(), {"data": image})
        np.testing.assert_array_equal(network.run({"data": image}), want)
    assert len(kernels.launches) == IMAGES * 27
    convs = [(k.workload, launch) for k, launch in kernels.launches[:27] if k.workload is not None]
    iterations = sum(launch.counters.gemm_counter for _, launch in convs)
    assert iterations == sum(_iterations(workload) for workload, _ in convs)


def _iterations(workload: tuple[Any, ...]) -> int:
    _, (_, (_, _, h, w, _, _), _), (_, (co, ci, kh, kw, _, _), _), strides, pads, *_ = workload
    size = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip((h, w), pads, (kh, kw), strides, strict=True)]
    return int(np.prod([co, ci, kh, kw, *size]))


# ---------------------------------------------------------------------------------------------- configurations


def entity(**knobs: int) -> ConfigEntity:
    tiles = {f"tile_{k}": SplitEntity((-1, knobs.get(k, 1))) for k in ("b", "h", "w", "ci", "co")}
    return ConfigEntity(0, {**tiles, "oc_nthread": OtherOptionEntity(knobs["oc"]), "h_nthread": OtherOptionEntity(1)})


SHAPE = ConvShape(56, 56, 4, 4, (3, 3), (1, 1), (1, 1))


def test_a_recorded_configuration_is_taken_where_it_fits() -> None:
    workload = KERNELS["conv3x3"].workload
    assert workload is not None
    with ApplyConfig(entity(h=8, w=56, co=2, oc=2)):
        assert choose_knobs(workload, SHAPE, Config()) == ConvKnobs(1, 8, 56, 1, 2, 2, 1)
        residual = ConvShape(56, 56, 4, 4, (3, 3), (1, 1), (1, 1), extra=((4, 56, 56),))
        other = choose_knobs(workload, residual, Config())
    assert other != ConvKnobs(1, 8, 56, 1, 2, 2, 1) and other.threads == 2
    assert 2 * other.tile_h * other.tile_w * other.tile_co * other.threads <= 2048


def test_a_record_decides_the_program() -> None:
    kernel = KERNELS["conv3x3"]
    arrays = arrays_of(kernel, np.random.default_rng(0))
    counts = []
    for config in (entity(h=7, w=9, co=2, oc=2), entity(h=1, w=9, co=4, oc=1)):
        kernels = DeviceKernels(device())
        with ApplyConfig(config):
            np.testing.assert_array_equal(kernels(kernel, arrays), run_kernel(kernel, arrays))
        counts.append(kernels.launches[0][1].counters.wgt_load_nbytes)
    assert counts[1] == 7 * counts[0]


def test_what_fits_no_machine_is_refused() -> None:
    with pytest.raises(CompileError, match="no tiles fit the machine"):
        choose_knobs(("x",), ConvShape(4, 4, 1, 1, (99, 99), (98, 98), (1, 1)), Config())
    wide = sum_kernel((1, 2, 1, 4096, 1, 16))
    with pytest.raises(CompileError, match="a row of 4096 elements must fit 512"):
        DeviceKernels(device())(wide, arrays_of(wide, np.random.default_rng(0)))


# -------------------------------------------------------------------------------------------------- the executor


@pytest.mark.long
def test_the_executor_runs_and_times_a_network() -> None:
    graph = graph_pack(quantized(), 1, 16, 8, device_annot=True)
    module = VtaModule(graph)
    image = images(1, seed=8)[0]
    module.set_input("data", image)
    module.run()
    got = module.get_output(0).numpy()
    want = VtaNetwork(graph, cpu=module.network.cpu).run({"data": image})
    np.testing.assert_array_equal(got, want)
    assert len(module.kernels.launches) == 27
    cycles = [launch.timing().cycles for _, launch in module.kernels.launches]
    assert module.vta_seconds() == pytest.approx(sum(cycles) / 100e6)
    result = module.time_evaluator("run", number=1, repeat=2)()
    assert len(result.results) == 2 and result.min > module.vta_seconds()


def test_wrong_uses_of_the_executor() -> None:
    module = VtaModule(graph_pack(quantized(), 1, 16, 8))
    with pytest.raises(GraphError, match="there is no result before run"):
        module.get_output(0)
    with pytest.raises(GraphError, match="the inputs are data, got 'image'"):
        module.set_input("image", 1)
    with pytest.raises(GraphError, match="the inputs are data"):
        module.run()
    with pytest.raises(GraphError, match="the function is 'run'"):
        module.time_evaluator("set_input")
