"""All GPUs of a host: each measures its share, the figures agree, and a fault costs one candidate."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

import ansor
from ansor.cli.main import main
from ansor.measure import MeasureErrorNo as E
from ansor.measure.devices import list_devices
from tests.conv_layer import conv2d_layer
from tests.workloads import matmul

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

LIMIT = 6.0


def states_of(task: ansor.SearchTask, n: int) -> list[ansor.MeasureInput]:
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=5, params={"sample_init_min_population": 1}, verbose=0)
    return [ansor.MeasureInput(task, s) for s in policy.ask(n)]


def layer() -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=ansor.ComputeDAG(conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1)), target="cuda")


def test_the_command_lists_the_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    found = list_devices("cuda")
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    print(out)
    for one in found:
        assert f"cuda    {one.index}   {one.model}  (sm_" in out and " SMs, " in one.detail


def test_all_gpus_work_and_agree() -> None:
    """The same programs on each GPU alone, and shared out among all of them."""
    task, found = layer(), list_devices("cuda")
    inputs = states_of(task, 24)
    builder = ansor.LocalBuilder()
    costs = []
    for devices in ["all", *[[d.index] for d in found]]:
        runner = ansor.LocalRunner(devices=devices)  # type: ignore[arg-type]
        measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
        results = measurer.measure(task, None, inputs)
        assert [r.error_no for r in results] == [0] * len(inputs)
        wanted = {d.label for d in found if devices == "all" or d.index in devices}
        assert {r.device for r in results} == wanted
        costs.append([r.cost for r in results])
        print([(u.device, u.trials, round(u.share, 2)) for u in runner.usage()])
        measurer.close()
    for alone in costs[1:]:
        ratios = [a / b for a, b in zip(costs[0], alone, strict=True)]
        print(f"all over one: median {statistics.median(ratios):.4f}, {min(ratios):.3f} to {max(ratios):.3f}")
        assert 0.8 < statistics.median(ratios) < 1.25


def test_faults_cost_one_candidate_on_every_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["illegal_address", "good", "worker_killed", "good", "endless", "good", "wrong", "good", "trap", "good"]
    (tmp_path / "script").write_text("\n".join(words))
    monkeypatch.setenv("FAULTS", str(tmp_path))
    before = ansor.register_backend("cuda", "tests.gpu.faulty_cuda")
    builder = ansor.LocalBuilder(n_parallel=1)
    runner = ansor.LocalRunner(timeout=LIMIT, min_repeat_ms=50, devices="all")
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    try:
        task = ansor.SearchTask(compute_dag=ansor.ComputeDAG(matmul(256, 256, 256)), target="cuda")
        results = measurer.measure(task, None, states_of(task, len(words)))
        lost = sum(use.lost for use in runner.usage())
    finally:
        measurer.close()
        ansor.register_backend("cuda", before or "codegen_cuda.backend")
    wanted = {
        "good": E.NO_ERROR, "illegal_address": E.RUNTIME_DEVICE, "trap": E.RUNTIME_DEVICE,
        "worker_killed": E.RUNTIME_DEVICE, "endless": E.RUN_TIMEOUT, "wrong": E.WRONG_ANSWER,
    }  # fmt: skip
    assert [r.error_no for r in results] == [int(wanted[w]) for w in words]
    assert lost == 4


def test_a_search_on_all_gpus_keeps_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["tune", "matmul", "--shape", "256,256,256", "--target", "cuda", "--trials", "48", "--seed", "1"]
    assert main([*command, "--log", "log.json", "--devices", "all"]) == 0
    inputs, results = ansor.RecordReader("log.json").read_lines()
    assert len(inputs) == 48 and {r.device for r in results} <= {d.label for d in list_devices("cuda")}
    assert "# devices [" in Path("log.json").read_text()
