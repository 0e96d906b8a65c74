"""TVM's page on tuning a network runs here, with other import lines, on a small network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ansor
from tests.test_examples import PATHS, ROOT, run

SCRIPT = "tutorials/tune_network_cuda.py"
PAGE = """\
tasks, task_weights = auto_scheduler.extract_tasks(mod["main"], params, target)
for idx, task in enumerate(tasks):
    print("========== Task %d  (workload key: %s) ==========" % (idx, task.workload_key))
    print(task.compute_dag)
    measure_ctx = auto_scheduler.LocalRPCMeasureContext(repeat=1, min_repeat_ms=300, timeout=10)
    tuner.tune(tune_option)
with auto_scheduler.ApplyHistoryBest(log_file):
    with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
        lib = relay.build(mod, target=target, params=params)
dev = tvm.device(str(target), 0)
module = graph_executor.GraphModule(lib["default"](dev))
data_tvm = tvm.nd.array((np.random.uniform(size=input_shape)).astype(dtype))
module.set_input("data", data_tvm)
print(module.benchmark(dev, repeat=3, min_repeat_ms=500))
"""


def test_the_code_is_that_of_the_page() -> None:
    code = [line.partition("  # ")[0] for line in (ROOT / "examples" / SCRIPT).read_text().splitlines()]
    found = [line for line in code if line in PAGE.splitlines()]
    assert found == PAGE.splitlines()


@pytest.mark.long
def test_tutorial_page(tmp_path: Path) -> None:
    """A residual network of eight layers on pictures of 28x28: extract, tune, compile, time, distill, resume.

    One thread a program: on a busy machine threads that wait for each other make a call of microseconds last
    milliseconds, and the 10 seconds that the page allows a program are then too few.
    """
    small = {"ANSOR_NETWORK": "resnet-8", "ANSOR_IMAGE": "28", "ANSOR_TRIALS": "13", "OMP_NUM_THREADS": "1"}
    done = run(SCRIPT, tmp_path, PYTHONPATH=PATHS, **small)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^=+ Task \d+  \(workload key: \[.*\]\) =+$", done.stdout, re.MULTILINE)) == 13
    assert "conv2d_nhwc(nn, yy, xx, ff) += (pad_temp[" in done.stdout
    assert re.search(r"Estimated total latency: [\d.]+ ms\tTrials: 13\tUsed time : \d+ s\tNext ID: -", done.stdout)
    assert re.search(r"Execution time summary:\n mean \(ms\) .*\n +[\d.]+ +[\d.]+", done.stdout)
    assert "\tTrials: 15\t" in done.stdout and "no record" not in done.stderr
    log = tmp_path / "resnet-8-NHWC-B1-c.json"
    assert len(list(ansor.load_records(log))) == 15
    best = list(ansor.load_records(f"{log}.best.json"))
    assert len({i.task.workload_key for i, _ in best}) == len(best) == 13


@pytest.mark.long
def test_no_gpu_is_one_sentence(tmp_path: Path) -> None:
    """All 24 tasks of ResNet-18 for a GPU are printed without one."""
    done = run(SCRIPT, tmp_path, "cuda", PYTHONPATH=PATHS, CUDA_VISIBLE_DEVICES="")
    assert done.returncode != 0
    assert "target 'cuda' needs" in done.stderr.splitlines()[-1]
    assert done.stdout.count("(workload key: [") == 24
