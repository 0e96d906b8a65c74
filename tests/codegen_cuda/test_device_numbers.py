"""What the driver tells of a device becomes hardware parameters and a line of `ansor doctor`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansor.cli import main as main_module
from ansor.cli.devices import hardware_of
from ansor.core.errors import MeasureError
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.tasks.measure_values import DeviceInfo
from ansor.core.tasks.task import SearchTask
from ansor.measure.devices import list_devices
from ansor.measure.local import LocalRunner
from ansor.policy.sketch_policy import SketchPolicy
from ansor.policy.tuning_options import TuningOptions
from codegen_cuda import backend
from codegen_cuda.driver import device
from codegen_cuda.program.errors import DeviceError
from tests.workloads import matmul

NUMBERS = {
    "MULTIPROCESSOR_COUNT": 132, "MAX_SHARED_MEMORY_PER_BLOCK": 49152, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_REGISTERS_PER_BLOCK": 65536, "MAX_THREADS_PER_BLOCK": 1024, "WARP_SIZE": 32, "L2_CACHE_SIZE": 62914560,
    "CLOCK_RATE": 1980000, "MEMORY_CLOCK_RATE": 3201000,
}  # fmt: skip


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver with one device, without PyCUDA."""
    gpu = SimpleNamespace(
        name=lambda: "NVIDIA H200", compute_capability=lambda: (9, 0), get_attribute=NUMBERS.get,
        total_memory=lambda: 143771 << 20,
    )  # fmt: skip
    devices: Any = lambda index: gpu  # noqa: E731
    devices.count = lambda: 1
    names = SimpleNamespace(**{name: name for name in NUMBERS})
    cuda = SimpleNamespace(Device=devices, device_attribute=names, get_driver_version=lambda: 13020)
    for module in (device, backend):
        monkeypatch.setattr(module, "driver", lambda: cuda)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def driver() -> None:
        raise DeviceError(f"{device.NO_GPU}: no device")

    for module in (device, backend):
        monkeypatch.setattr(module, "driver", driver)


def test_hardware_parameters_of_a_device(one_gpu: None) -> None:
    found = HardwareParams.from_device("cuda")
    assert found == HardwareParams.for_target("cuda -model=H200") and found.max_shared_memory_per_block == 227 * 1024
    task = SearchTask(compute_dag=matmul(64, 64, 64), target="cuda", hardware_params=found)
    assert task.facts().hardware == tuple(found.to_json())


def test_tasks_keep_the_defaults_of_their_target(one_gpu: None) -> None:
    """The device widens a search only where somebody asks for it."""
    task = SearchTask(compute_dag=matmul(64, 64, 64), target="cuda")
    assert task.hardware_params.max_shared_memory_per_block == 49152


def test_the_report_has_the_numbers(one_gpu: None) -> None:
    rows = {name: (ok, text) for name, ok, text in backend.BACKEND.report()}
    assert {"nvrtc", "PyCUDA", "sanitizer"} <= set(rows) and rows["CUDA driver"] == (True, "13.2")
    assert rows["GPU 0"] == (
        True,
        "NVIDIA H200, sm_90, 132 SMs at 1980 MHz, shared memory 48 KiB a block (227 KiB on request), 65536 registers, "
        "L2 60 MiB, memory at 3201 MHz",
    )


def test_the_devices_are_listed(one_gpu: None) -> None:
    (found,) = list_devices("cuda")
    assert found == DeviceInfo("cuda", 0, "NVIDIA H200", "sm_90, 132 SMs, 140 GiB")
    assert found.label == "cuda 0 (NVIDIA H200)"


def test_a_driver_that_shows_no_device_is_one_sentence(one_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As CUDA_VISIBLE_DEVICES may have it."""
    monkeypatch.setattr(device.driver().Device, "count", lambda: 0)
    with pytest.raises(DeviceError, match=r"needs an NVIDIA GPU .*: the driver shows no device"):
        list_devices("cuda")


def test_without_a_device_there_is_one_sentence(no_gpu: None) -> None:
    with pytest.raises(DeviceError, match=r"needs an NVIDIA GPU with its driver and PyCUDA .* or use target 'c'"):
        HardwareParams.from_device("cuda")
    assert backend.BACKEND.report()[-1] == ("GPU", False, f"{device.NO_GPU}: no device")


def test_the_command_searches_what_the_device_grants(
    one_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model's choice comes from the space of the device; a target that names a model keeps its numbers."""
    monkeypatch.chdir(tmp_path)
    asked = []

    class Watched(SketchPolicy):
        def __init__(self, task: SearchTask, *args: Any, **options: Any) -> None:
            asked.append((task.hardware_params.max_shared_memory_per_block, str(task.target)))
            super().__init__(task, *args, **options)

    monkeypatch.setattr(main_module, "SketchPolicy", Watched)
    for target in ("cuda", "cuda -arch=sm_90", "cuda -model=T4"):
        command = ["tune", "matmul", "--shape", "8,8,8", "--trials", "0", "--verbose", "0", "--target", target]
        assert main_module.main(command) == 0
    arch = "cuda -arch=sm_90"
    assert asked == [(232448, arch), (49152, arch), (65536, "cuda -model=T4")]  # a choice for a named one asks no GPU
    assert hardware_of(Target("c")) == HardwareParams.from_device("c")


def test_devices_are_looked_for_first(
    one_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tune = ["tune", "matmul", "--shape", "8,8,8", "--trials", "1"]
    for command in (tune, ["tune-network", "resnet-18", "--trials", "1"]):
        assert main_module.main([*command, "--target", "cuda", "--devices", "0,7"]) == 4
        assert capsys.readouterr().err == "ansor: target 'cuda': its devices are [0], got device=7\n"
    assert not list(tmp_path.iterdir())
    task = SearchTask("matmul", (8, 8, 8), target="c")
    options = TuningOptions(1, verbose=0, runner=LocalRunner(devices=[0, 7]))
    with pytest.raises(MeasureError, match=r"^target 'c': its devices are \[0\], got device=7$"):
        task.tune(options, Untouched())


class Untouched:
    """A policy that must not be asked."""

    def search(self, *_: Any) -> None:
        raise AssertionError
