"""Kernels that take tensor maps on a GPU: called, recorded, exchanged, waiting, timed, and loaded from an export."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from ansor.core.device.exported_program import Argument  # noqa: E402
from codegen_cuda.driver.compile import compile_source  # noqa: E402
from codegen_cuda.driver.device import DeviceArray, DeviceProgram  # noqa: E402
from codegen_cuda.driver.export import loader  # noqa: E402
from codegen_cuda.driver.module import CudaFunction, Pointer, open_device  # noqa: E402
from codegen_cuda.networks.cuda_graph import LaunchGraph, RecordedKernel  # noqa: E402
from codegen_cuda.program.errors import DeviceError  # noqa: E402
from codegen_cuda.program.facts import facts_from_json, program_facts  # noqa: E402
from tests.codegen_cuda.copy_kernels import COPIES, Copy  # noqa: E402

COPY = COPIES["swizzled over 128 bytes"]


@pytest.fixture(autouse=True)
def hopper() -> None:
    if open_device().arch != "sm_90":
        pytest.skip("these instructions are those of sm_90")


def facts(copy: Copy) -> dict[str, Any]:
    return dict(json.loads(json.dumps(program_facts(copy.program()))))


def arguments(copy: Copy) -> list[Argument]:
    return [Argument(b.name, b.dtype, tuple(b.shape), b.name != "A") for b in copy.program().args]


def loaded(copy: Copy, ahead: bool = False) -> DeviceProgram:
    source = copy.waiting() if ahead else copy.program().source
    cubin = compile_source(source, "sm_90").cubin
    return DeviceProgram(open_device(), [cubin], facts_from_json({**facts(copy), "ahead": ahead}))


def check(copy: Copy, held: Sequence[DeviceArray], runs: int) -> None:
    given, got, count = [open_device().get(x) for x in held]
    np.testing.assert_array_equal(got, copy.want(given))
    assert count[0] == runs


@pytest.mark.parametrize("name", COPIES)
def test_a_function_with_maps(name: str) -> None:
    copy = COPIES[name]
    source, arrays = copy.program().source, copy.arrays()
    function = CudaFunction(arguments(copy), source, "boxes", compile_source(source, "sm_90").cubin, facts(copy))
    function(*arrays)
    np.testing.assert_array_equal(arrays[1], copy.want(arrays[0]))
    assert arrays[2].tolist() == [1, 0, 0, 0]
    assert min(function.time(*arrays).results) > 0


@pytest.mark.parametrize("ahead", [False, True], ids=["plain", "waiting"])
def test_maps_of_a_recording_are_exchanged(ahead: bool) -> None:
    device, program = open_device(), loaded(COPY, ahead)
    first, second = [[device.put(x) for x in COPY.arrays()] for _ in range(2)]

    def record(stream: Any) -> list[RecordedKernel]:
        made = []
        for _ in range(2):
            (launch,) = program.launches(first)
            program.launch([launch], stream)
            made.append(RecordedKernel(stream, ahead))
        return made

    graph = LaunchGraph(device.cuda, record, early=ahead)
    graph.launch()
    device.context.synchronize()
    check(COPY, first, 2)
    graph.exchange(1, program.launches(second)[0][3])
    graph.launch()
    device.context.synchronize()
    check(COPY, first, 3)
    check(COPY, second, 1)


def test_launches_of_their_own_streams() -> None:
    """Two streams run kernels of one program at a time; each waits for its own."""
    device, program = open_device(), loaded(COPY)
    both = [[device.put(x) for x in COPY.arrays()] for _ in range(2)]
    streams, calls = [device.cuda.Stream() for _ in both], [program.launches(held) for held in both]
    for _ in range(50):
        for stream, call in zip(streams, calls, strict=True):
            program.launch(call, stream)
    for stream, held in zip(streams, both, strict=True):
        stream.synchronize()
        check(COPY, held, 50)


@pytest.mark.parametrize("ahead", [False, True], ids=["plain", "waiting"])
def test_timings_are_of_launches_that_run(ahead: bool) -> None:
    device, program = open_device(), loaded(COPY, ahead)
    held = [device.put(x) for x in COPY.arrays()]
    program.run(held)
    seconds = program.time(held, 10, 3, 0, False, math.inf)
    assert len(seconds) == 3 and all(0 < x < 1e-3 for x in seconds)
    given, got, count = [device.get(x) for x in held]
    np.testing.assert_array_equal(got, COPY.want(given))
    assert count[0] > 30


def test_kernels_that_are_gone_leave_others_alone() -> None:
    device, kept = open_device(), loaded(COPY)
    held = [device.put(x) for x in COPY.arrays()]
    for _ in range(20):
        loaded(COPY).run(held)
        gc.collect()
    kept.run(held)
    check(COPY, held, 21)


def test_an_address_that_the_driver_refuses() -> None:
    device, program = open_device(), loaded(COPY)
    held = [device.put(x) for x in COPY.arrays()]
    with pytest.raises(DeviceError, match=r"tensor map: the driver does not make .*: cuTensorMapEncodeTiled: error 1$"):
        program.launches([Pointer(held[0].pointer + 2), *held[1:]])


def test_the_exported_loader(tmp_path: Path) -> None:
    program = COPY.program()
    (tmp_path / "boxes.cubin").write_bytes(compile_source(program.source, "sm_90").cubin)
    (tmp_path / "boxes.py").write_text(loader("boxes", arguments(COPY), program.kernels))
    (tmp_path / "manifest.json").write_text(json.dumps({"launch": facts(COPY)}))
    np.savez(tmp_path / "given.npz", *COPY.arrays())
    code = (
        "import numpy as np; from boxes import boxes; given = np.load('given.npz'); arrays = [*given.values()]; "
        "boxes(*arrays); boxes(*arrays); np.savez('got.npz', *arrays)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)
    given, got, count = np.load(tmp_path / "got.npz").values()
    np.testing.assert_array_equal(got, COPY.want(given))
    assert count[0] == 2
