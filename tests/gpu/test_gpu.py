"""What needs a CUDA device: results, timing, and that a fault costs one candidate."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.device.export import export_program
from ansor.measure import MeasureErrorNo as E
from ansor.measure.array_checks import OnDevice, array_checks, same_bits
from ansor.measure.check import mismatch, poison_value
from ansor.sketch import generate_sketches
from ansor.sketch.generate import extra_sketches
from benchmarks.workloads import OPERATORS, WORKLOADS
from te_lite.expr.dtype import DTYPES
from tests.codegen_cuda.bound_cases import one_case
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.gpu.faulty_cuda import FAULTS
from tests.oracle import Oracle
from tests.schedule_fuzz import Fuzzer
from tests.workloads import WORKLOADS as SMALL
from tests.workloads import matmul

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.driver.array_checks import JUDGED  # noqa: E402
from codegen_cuda.driver.module import CudaModule, open_device  # noqa: E402
from codegen_cuda.emission.limits import usage  # noqa: E402
from tests.nonempty import nonempty  # noqa: E402

EXPECTED = {
    **dict.fromkeys(("illegal_address", "misaligned", "trap", "worker_killed"), E.RUNTIME_DEVICE),
    **dict.fromkeys(("wrong", "nan", "untouched"), E.WRONG_ANSWER),
    "endless": E.RUN_TIMEOUT,
    "too_many_threads": E.RUNTIME_DEVICE,
    "too_much_shared": E.COMPILE_DEVICE,
}


def on_device(func: te.LoweredFunc, args: list[np.ndarray]) -> None:
    CudaModule(func, open_device().arch)(*args)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_random_schedules(name: str) -> None:
    oracle = Oracle(te.ComputeDAG(SMALL[name]()), np.random.default_rng(2))
    for i in range(6):
        _, func = Fuzzer(oracle.dag, np.random.default_rng([5, i]), gpu=True).draw()
        assert oracle.mismatch(func, on_device) is None  # type: ignore[arg-type]


REAL = {
    "conv2d_layer": lambda: conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1),
    "winograd": lambda: WORKLOADS["conv2d_winograd_nhwc"](1, 14, 14, 256, 256, 4),
    "softmax": lambda: WORKLOADS["softmax"](64, 1024),
    "dense": lambda: WORKLOADS["dense"](1, 512, 1000),
    "depthwise": lambda: OPERATORS["DEP"](1, 7, 7, 1024, 3, 1, 1),
    "batch_matmul": lambda: OPERATORS["GMM"](1, 512, 512, 512),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_sampled_programs_at_real_shapes(name: str) -> None:
    oracle = Oracle(te.ComputeDAG(REAL[name]()), np.random.default_rng(2))
    target, rng = ansor.Target("cuda"), np.random.default_rng(0)
    hardware = ansor.HardwareParams.for_target(target)
    ordinary, extra = generate_sketches(oracle.dag, target, hardware), extra_sketches(oracle.dag, target, hardware)
    for sketch, count in nonempty([*[(s, 3) for s in ordinary], *[(s, 1) for s in extra]]):
        for _ in nonempty(range(count)):
            state = drawn_program(sketch, target, hardware, rng)
            assert state is not None
            func = te.lower(state)
            args = oracle.arguments()
            on_device(func, args)
            for t, got in nonempty(zip(oracle.dag.tensors, args, strict=True)):
                if t not in oracle.inputs:
                    want = oracle.reference[t]
                    assert np.abs(got - want).max() <= 2e-4 * np.abs(want).max(), name


def test_the_device_tells_its_numbers_and_grants_large_blocks() -> None:
    target = ansor.Target("cuda")
    hardware = ansor.HardwareParams.from_device(target)
    assert hardware.max_threads_per_block == 1024 and hardware.warp_size == 32
    assert hardware.max_shared_memory_per_block > 48 * 1024
    oracle = Oracle(te.ComputeDAG(matmul(512, 384, 256)), np.random.default_rng(3))
    (sketch,) = generate_sketches(oracle.dag, target, hardware)
    rng, large = np.random.default_rng(0), 0
    while large < 3:
        state = drawn_program(sketch, target, hardware, rng)
        assert state is not None
        func = te.lower(state)
        if max(u.shared_bytes for u in usage(func)) > 48 * 1024:
            assert oracle.mismatch(func, on_device) is None  # type: ignore[arg-type]
            large += 1


@pytest.mark.parametrize("dtype", sorted(JUDGED))
def test_the_device_judges_as_the_host_does(dtype: str) -> None:
    """As the emulated kernels of `test_array_checks.py`."""
    device, rng, right_ones = open_device(), np.random.default_rng(1), 0
    assert isinstance(array_checks(device, (), 1 << 20), OnDevice)
    for _ in range(60):
        got, right = one_case(rng, dtype)
        nan = np.zeros(0, bool) if right.nan is None else right.nan
        fine = device.within(*[device.put(a) for a in (got, right.low, right.high, nan)])
        assert fine == (mismatch(got, right) == "")
        right_ones += fine
    assert 5 < right_ones < 55


def test_the_device_fills_and_compares_bit_by_bit() -> None:
    device, rng = open_device(), np.random.default_rng(1)
    for dtype in DTYPES:
        want = np.full((1031, 7), poison_value(dtype))
        handle = device.put(np.zeros_like(want))
        device.fill(handle, poison_value(dtype))
        assert same_bits(device.get(handle), want)
    for size in (1, 7, 8, 1023, 1 << 22):
        a = rng.integers(0, 256, size).astype(np.uint8)
        kept, b = device.put(a), a.copy()
        assert device.same(device.put(b), kept)
        b[rng.integers(size)] ^= 1
        assert not device.same(device.put(b), kept)


def test_a_hopeless_program_is_called_once_and_a_fast_one_until_its_time_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One block of a matrix product is slow enough to count as long."""
    tensors = matmul(64, 64, 2048)
    s = te.create_schedule(tensors[-1].op)
    fused = s[tensors[-1]].fuse(*tensors[-1].op.axis)
    _, inner = s[tensors[-1]].split(fused, factor=32)
    s[tensors[-1]].bind(inner, "threadIdx.x")
    module = CudaModule(te.lower(s, tensors), open_device().arch)
    program, device = module._load(), open_device()
    handles = [device.put(np.ones(t.shape, "float32")) for t in tensors]
    calls: list[int] = []
    launch = program.launch
    monkeypatch.setattr(program, "launch", lambda *args: calls.append(1) or launch(*args))
    program.run(handles)
    (known,) = program.time(handles, 3, 1, 100, False, float("inf"))
    assert known > 1.5e-3 and len(calls) >= 4
    calls.clear()
    program.run(handles)
    (once,) = program.time(handles, 3, 1, 100, False, known / 10)
    assert len(calls) == 1 and once == pytest.approx(known, rel=0.3)


def test_arrays_of_others() -> None:
    torch = pytest.importorskip("torch")
    tensors = matmul(64, 48, 32)
    s = te.create_schedule(tensors[-1].op)
    i, j = tensors[-1].op.axis
    s[tensors[-1]].bind(i, "blockIdx.x")
    s[tensors[-1]].bind(j, "threadIdx.x")
    module = CudaModule(te.lower(s, tensors), open_device().arch)
    a, b = torch.rand(64, 32, device="cuda"), torch.rand(32, 48, device="cuda")
    c = torch.full((64, 48), float("nan"), device="cuda")
    module(a, b, c)
    assert torch.allclose(c, a @ b, rtol=1e-3, atol=1e-4)
    with pytest.raises(te.TeError, match="contiguous"):
        module(a.t().contiguous().t(), b, c)
    with pytest.raises(te.TeError, match="an array of"):
        module(b, a, c)


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = ansor.register_backend("cuda", "tests.gpu.faulty_cuda")
    monkeypatch.setenv("FAULTS", str(tmp_path))
    yield tmp_path
    assert before is not None
    ansor.register_backend("cuda", before)


def test_fifty_faults(faulty: Path, tmp_path: Path) -> None:
    """No record is lost, nothing is stuck, and the program after each fault takes the time it always takes."""
    words = ["good"] * 5 + [w for k in range(50) for w in (FAULTS[k % len(FAULTS)], "good")]
    (faulty / "script").write_text("\n".join(words))
    ansor.register_workload("faulty_matmul", lambda n: matmul(n, n, n), override=True)
    task = ansor.SearchTask("faulty_matmul", (512,), target="cuda")
    sketch = generate_sketches(task.compute_dag, task.target, task.hardware_params)[0]
    rng = np.random.default_rng(3)
    state = drawn_program(sketch, task.target, task.hardware_params, rng)
    assert state is not None
    log = tmp_path / "log.json"
    builder, runner = ansor.LocalBuilder(n_parallel=1), ansor.LocalRunner(timeout=6, min_repeat_ms=50)
    measurer = ansor.ProgramMeasurer(builder, runner, callbacks=[ansor.RecordToFile(log)], verbose=0)
    try:
        results = measurer.measure(task, None, [ansor.MeasureInput(task, state) for _ in words])
    finally:
        builder.close()
        runner.close()
    assert len(list(ansor.load_records(log))) == len(words)
    wrong = [(w, r.error_no, r.error_msg) for w, r in zip(words, results, strict=True)
             if r.error_no != EXPECTED.get(w, E.NO_ERROR)]  # fmt: skip
    assert not wrong, wrong
    good = [r.cost for w, r in zip(words, results, strict=True) if w == "good"]
    undisturbed = statistics.median(good[:5])
    off = [c / undisturbed for c in good if abs(c / undisturbed - 1) > 0.05]
    assert not off, (undisturbed, off)


def test_an_exported_program(tmp_path: Path) -> None:
    """By `load_module`, and by its loader in a process that does not find this package."""
    task = ansor.SearchTask("softmax", (64, 200), target="cuda")
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), {"extra_sketch_rules": ""}, seed=0, verbose=0)
    export_program(policy.ask(1)[0], task.compute_dag.tensors, "cuda", tmp_path / "made", "softmax")
    x = np.random.default_rng(0).normal(size=(64, 200)).astype("float32")
    out = np.empty_like(x)
    ansor.load_module(tmp_path / "made")(x, out)
    want = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, want / want.sum(axis=1, keepdims=True), rtol=1e-5)
    np.savez(tmp_path / "case.npz", x=x, out=out)
    code = "import numpy as np; from softmax import softmax; case = np.load('../case.npz'); out = case['out'] * 0;"
    code += "softmax(case['x'], out); assert np.array_equal(out, case['out'])"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "made", check=True)
