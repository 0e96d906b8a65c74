"""Tasks for a range of sizes on target cuda, on an emulated device: searched, measured, built from the log alone."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.target import registry
from ansor.core.tasks.measure_values import BuildResult, MeasureErrorNo
from ansor.policy.tuning_options import TuningOptions
from ansor.records.lines import RecordReader
from ansor_ext.open_sizes import cuda, cuda_at_points
from ansor_ext.open_sizes.cuda import OpenCudaModule
from ansor_ext.open_sizes.dispatch import OpenFunction
from ansor_ext.open_sizes.measure import Measuring
from ansor_ext.open_sizes.measured import Steps, Values, seconds_in
from ansor_ext.open_sizes.task import OpenTask
from codegen_cuda import CudaProgram, emit
from codegen_cuda.driver import module
from codegen_cuda.program.errors import DeviceError
from te_lite.schedule.replay import replay
from tests.ansor_ext.open_sizes.programs import CASES, Case, arrays
from tests.codegen_cuda.emulated_device import EmulatedDevice
from tests.nonempty import nonempty

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
MOST = 24
BACKEND = "tests.ansor_ext.open_sizes.emulated_backend"


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """A device in the emulator, here and in workers, for which the text is the machine code."""
    found = EmulatedDevice()
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    registry.register_backend("cuda", BACKEND)
    for part in (module, cuda):
        monkeypatch.setattr(part, "open_device", lambda: found)

    def compiled(func: te.LoweredFunc, arch: str) -> tuple[CudaProgram, Any]:
        program = emit(func)
        return program, SimpleNamespace(cubin=program.source.encode())

    monkeypatch.setattr(cuda, "compiled_program", compiled)
    monkeypatch.setattr(cuda_at_points, "compile_source", lambda text, arch: SimpleNamespace(cubin=text.encode()))
    return found


def task_of(case: Case, values: tuple[int, ...] = (1, MOST)) -> OpenTask:
    sizes = {v.name: list(values) for v in case.sizes}
    found = ansor.SearchTask(compute_dag=list(case.tensors), target="cuda -arch=sm_80", sizes=sizes)
    assert isinstance(found, OpenTask)
    return found


def check(case: Case, function: OpenFunction, sizes: tuple[int, ...]) -> None:
    *given, out = arrays(case, sizes, np.random.default_rng(sizes))
    function(*given, out)
    np.testing.assert_allclose(out, case.expected(*given), rtol=1e-4, atol=1e-5)


def tiled(task: OpenTask, factor: int) -> Steps:
    """Tiles of `factor` rows, a block each."""
    out = task.compute_dag.tensors[-1]
    s = te.create_schedule(out)
    for op in (out.op.input_tensors()[0].op, out.op):
        outer, inner = s[op].split(s[op].op.axis[0], factor=factor)
        s[op].bind(outer, te.thread_axis("blockIdx.x"))
        s[op].bind(inner, te.thread_axis("threadIdx.x"))
    return tuple(s.state.steps)


@pytest.mark.parametrize("name", sorted(CASES))
def test_default_programs(name: str) -> None:
    case = CASES[name](1, MOST)
    function = task_of(case).build_default()
    assert all(isinstance(program, OpenCudaModule) for program in function.programs) and "__global__" in function.source
    for n in nonempty((1, 7, MOST)):
        check(case, function, (n, MOST + 1 - n)[: len(case.sizes)])


def test_a_search_over_a_range(tmp_path: Path, device: EmulatedDevice) -> None:
    """The whole way, in worker processes; the log alone gives the function, for arrays of the host and the device."""
    case, log = CASES["rows_by_matrix"](1, MOST), tmp_path / "log.json"
    task_of(case).tune(TuningOptions(6, measure_callbacks=[ansor.RecordToFile(log)], verbose=0))
    found = [(inp.task.workload_key, res.error_no) for inp, res in RecordReader(log)]
    assert [error for _, error in found] == [0] * 6 and sum("open_" in key for key, _ in found) == 3
    function = task_of(case).build_best(log)
    for n in nonempty((1, 15, MOST)):
        check(case, function, (n,))
    host = arrays(case, (5,), np.random.default_rng(5))
    held = [device.put(x) for x in host]
    function(*held)
    np.testing.assert_allclose(device.get(held[-1]), case.expected(*host[:-1]), rtol=1e-4, atol=1e-5)
    assert len(function.time(*held, number=1).results) == 1
    with pytest.raises(DeviceError, match=r"argument 0 \(A\[n, 12\]\): n must be 1 to 24, the same .* got 25$"):
        function(np.ones((MOST + 1, 12), "float32"), host[1], np.ones((MOST + 1, 10), "float32"))


def test_a_wrong_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is told one row less than there are leaves a row as it was."""
    task, log = task_of(CASES["rows_by_matrix"](1, MOST), (1, 17, MOST)), tmp_path / "log.json"
    at = cuda_at_points.CudaAtPoints.at

    def told(built: cuda_at_points.CudaAtPoints, values: Values, folder: Path) -> BuildResult:
        found = at(built, values, folder)
        place = Path(found.filename) / "program.json"
        facts = json.loads(place.read_text())
        place.write_text(json.dumps({**facts, "sizes": [n - (n > 1) for n in values]}))
        return found

    monkeypatch.setattr(cuda_at_points.CudaAtPoints, "at", told)
    runner, hearing = ansor.LocalRunner(min_repeat_ms=1), [ansor.RecordToFile(log)]
    measuring = Measuring(task.compute_dag, task.tasks, {}, hearing, runner, tmp_path, 9, math.inf)
    assert measuring.measure(tiled(task, 4), [(1,), (17,), (MOST,)])
    runner.close()
    assert [res.error_no for _, res in RecordReader(log)] == [MeasureErrorNo.NO_ERROR, MeasureErrorNo.WRONG_ANSWER]
    assert measuring.left == 7 and seconds_in(log, task.compute_dag, task.tasks)[tiled(task, 4)][17,] == math.inf


def test_a_program_beyond_the_limits_costs_no_trial(tmp_path: Path) -> None:
    task = task_of(CASES["rows_by_matrix"](1, 4096), (1, 4096))
    runner = ansor.LocalRunner()
    measuring = Measuring(task.compute_dag, task.tasks, {}, [], runner, tmp_path, 9, math.inf)
    assert measuring.measure(tiled(task, 2048), list(task.tasks))
    assert measuring.left == 9 and measuring.seconds == {tiled(task, 2048): {(1,): math.inf}}


def test_machine_code_is_that_of_all_sizes(tmp_path: Path) -> None:
    """What is written for two points differs in grids and sizes alone."""
    task = task_of(CASES["rows_by_matrix"](1, MOST))
    func = te.lower(replay(task.compute_dag, tiled(task, 4)))
    built = cuda_at_points.CudaAtPoints(func, "sm_80")
    one, other = [Path(built.at(values, tmp_path).filename) for values in ((1,), (MOST,))]
    for name in nonempty(["kernel0.cubin", "kernel1.cubin"]):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    facts = [json.loads((place / "program.json").read_text()) for place in (one, other)]
    assert [(f["sizes"], [k["grid"] for k in f["kernels"]]) for f in facts] == [
        ([1], [[1, 1, 1]] * 2), ([MOST], [[6, 1, 1]] * 2),
    ]  # fmt: skip
