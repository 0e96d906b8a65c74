"""Programs for all sizes on a device: one compiled program, launched on the grids of its sizes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.records.lines import RecordReader
from ansor.sketch import generate_sketches
from te_lite.schedule.replay import replay
from tests.ansor_ext.open_sizes.gpu_tiles import tiled
from tests.ansor_ext.open_sizes.programs import CASES, Case, arrays
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.driver.module import open_device  # noqa: E402
from codegen_cuda.program.errors import DeviceError  # noqa: E402

SEED = 20261203
TARGET = ansor.Target("cuda")
HARDWARE = ansor.HardwareParams.for_target(TARGET)


@pytest.fixture(params=sorted(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check(case: Case, func: te.LoweredFunc, values: tuple[int, ...]) -> None:
    """One module at all combinations of these values of its sizes, more than once."""
    module = ansor.build(func, target="cuda")
    every = list(itertools.product(values, repeat=len(case.sizes)))
    for sizes in nonempty([*every, *every[::-1]]):
        *given, out = arrays(case, sizes, np.random.default_rng(sizes))
        module(*given, out)
        np.testing.assert_allclose(out, case.expected(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("draw", range(3))
def test_random_schedules(name: str, draw: int) -> None:
    case = CASES[name](1, 20)
    state, _ = Fuzzer(te.ComputeDAG(case.tensors), np.random.default_rng([SEED, draw]), True).draw()
    check(case, te.lower(state), (1, 2, 7, 16, 19, 20))


def test_programs_of_the_search(name: str) -> None:
    """What the GPU policy makes of the greatest sizes, for all."""
    most = 130
    fixed, case = te.ComputeDAG(CASES[name](most, most).tensors), CASES[name](2, most)
    for sketch in nonempty(generate_sketches(fixed, TARGET, HARDWARE)):
        drawn = drawn_program(sketch, TARGET, HARDWARE, np.random.default_rng(SEED))
        assert drawn is not None
        check(case, te.lower(replay(te.ComputeDAG(case.tensors), drawn.steps)), (2, 31, 64, 129, most))


@pytest.mark.parametrize("fuse", [False, True])
def test_the_ends_of_a_large_range(fuse: bool) -> None:
    case, func = tiled(1 << 20, fuse)
    check(case, func, (1, 15, 16, 17, 1000, 1 << 20))


def test_arrays_on_the_device_and_timing() -> None:
    case, func = tiled(1 << 20)
    module, device = ansor.build(func, target="cuda"), open_device()
    seconds = {}
    for n in nonempty((16, 1 << 20)):
        host = arrays(case, (n,), np.random.default_rng(n))
        held = [device.put(x) for x in host]
        module(*held)
        np.testing.assert_allclose(device.get(held[-1]), case.expected(*host[:-1]), rtol=1e-4, atol=1e-4)
        seconds[n] = min(module.time(*held, min_repeat_ms=10).results)
    assert seconds[16] < seconds[1 << 20] / 4, "the grid of 16 rows is one block along them"


def test_arrays_that_do_not_fit_are_refused() -> None:
    module = ansor.build(tiled(64)[1], target="cuda")
    b = np.ones((12, 10), "float32")
    with pytest.raises(DeviceError, match=r"argument 0 \(A\[n, 12\]\): n must be 1 to 64, .* got 65"):
        module(np.ones((65, 12), "float32"), b, np.ones((65, 10), "float32"))
    with pytest.raises(DeviceError, match=r"argument 2 \(D\[n, 10\]\): n must be 1 to 64, the same .* got 3"):
        module(np.ones((2, 12), "float32"), b, np.ones((3, 10), "float32"))
    with pytest.raises(DeviceError, match="3 arrays are needed"):
        module(b)
    with pytest.raises(DeviceError, match="A: an array of"):
        module(np.ones((2, 11), "float32"), b, np.ones((2, 10), "float32"))
    out = np.full((2, 10), np.nan, "float32")
    module(np.ones((2, 12), "float32"), b, out)
    np.testing.assert_allclose(out, np.full((2, 10), 13.0))


@pytest.mark.parametrize("name", ["rows_by_matrix", "softmax"])
def test_a_search_over_a_range(name: str, tmp_path: Path) -> None:
    """Tuned, built from the log alone, called at sizes that were measured and others, on arrays of the device, too."""
    case, log = CASES[name](1, 300), tmp_path / "log.json"
    sizes = {v.name: [1, 300] for v in case.sizes}
    task = ansor.SearchTask(compute_dag=list(case.tensors), target="cuda", sizes=sizes)
    task.tune(ansor.TuningOptions(48, measure_callbacks=[ansor.RecordToFile(log)], verbose=0))
    found = list(RecordReader(log))
    assert len(found) <= 48 and any("open_" in inp.task.workload_key and res.ok for inp, res in found)
    again = ansor.SearchTask(compute_dag=list(CASES[name](1, 300).tensors), target="cuda", sizes=sizes)
    function, device = again.build_best(log), open_device()
    for n in nonempty((1, 77, 128, 300)):
        *given, out = arrays(case, (n,) * len(case.sizes), np.random.default_rng(n))
        held = [device.put(x) for x in (*given, out)]
        function(*given, out)
        function(*held)
        for got in (out, device.get(held[-1])):
            np.testing.assert_allclose(got, case.expected(*given), rtol=1e-4, atol=1e-4)
