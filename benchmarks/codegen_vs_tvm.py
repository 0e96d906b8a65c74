"""Our CUDA emitter against TVM's, on the same schedules.

    python -m benchmarks.codegen_vs_tvm [--log tests/golden/tvm_log_matmul1024_cuda_h200.json] [--json FILE]

Every state of a log that TVM wrote on an H200 is rebuilt, checked against float64 and timed; the log's own costs are
TVM's times.  Then the schedule of the tutorial page, executed through our API, is timed beside the kernel the page
prints.  Criteria: geometric mean of ours / recorded at most 1.05, none above 1.5; the tutorial's at most 1.05.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

import ansor
import te_lite as te
from benchmarks import report
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.driver.device import DeviceProgram
from codegen_cuda.driver.module import CudaModule, open_device
from te_lite import Tensor
from te_lite.meaning.reference import evaluate, random_inputs
from tests.te_lite.test_tutorial_schedule import tutorial_schedule
from tests.workloads import matmul

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
LOG = GOLDEN / "tvm_log_matmul1024_cuda_h200.json"


def register_matmul() -> None:
    def workload(n: int, m: int, k: int) -> list[Tensor]:
        return matmul(n, m, k)

    ansor.register_workload("matmul", workload, override=True)


class Case:
    """A computation's arrays on the device, and its float64 outputs."""

    def __init__(self, tensors: list[Tensor]) -> None:
        rng = np.random.default_rng(0)
        self.tensors = tensors
        inputs = random_inputs(tensors, rng)
        self.want = evaluate(tensors, inputs, dtype="float64")
        self.inputs = inputs
        device = open_device()
        self.handles = [device.put(inputs.get(t, np.full(t.shape, np.nan, t.dtype))) for t in tensors]

    def error(self) -> float:
        """The largest error of the outputs relative to the largest value; outputs are poisoned again."""
        worst = 0.0
        for t, handle in zip(self.tensors, self.handles, strict=True):
            if t in self.inputs:
                continue
            got = open_device().get(handle)
            gap = np.abs(got - self.want[t]).max() / np.abs(self.want[t]).max()
            worst = max(worst, float("inf") if np.isnan(gap) else float(gap))
            open_device().write(handle, np.full(t.shape, np.nan, t.dtype))
        return worst


def rebuilt(log: Path) -> list[list[Any]]:
    """One row a record: line, our microseconds, TVM's, their ratio, relative error."""
    register_matmul()
    inputs, results = ansor.RecordReader(str(log)).read_lines()
    case: Case | None = None
    rows = []
    for line, (inp, res) in enumerate(zip(inputs, results, strict=True)):
        if res.error_no:
            continue
        case = case or Case(list(inp.task.compute_dag.tensors))
        module = CudaModule(te.lower(inp.state, inp.task.compute_dag.tensors), open_device().arch)
        module(*case.handles)
        error = case.error()
        ours = module.time(*case.handles, repeat=3, min_repeat_ms=50).median * 1e6
        tvm = float(np.mean(res.costs)) * 1e6
        rows.append([line, ours, tvm, ours / tvm, error])
    return rows


def tutorial() -> dict[str, float]:
    """Microseconds of the page's kernel and of its schedule through our API, and our relative error."""
    schedule, args = tutorial_schedule()
    case = Case(args)
    ours = CudaModule(te.lower(schedule, args, name="conv2d_layer"), open_device().arch)
    ours(*case.handles)
    error = case.error()
    source = (GOLDEN / "tutorial_conv2d_kernel.cu").read_text()
    facts = {
        "arguments": 4,
        "scratch_bytes": [],
        "kernels": [
            {
                "name": "default_function_kernel0",
                "grid": [64, 1, 1],
                "block": [98, 1, 1],
                "arguments": [0, 1, 3, 2],
                "dynamic_bytes": 0,
            }
        ],
    }
    page = DeviceProgram(open_device(), [compile_source(source, open_device().arch).cubin], facts)
    page.run(case.handles)
    assert case.error() < 1e-5
    times: dict[str, list[float]] = {"ours": [], "page": []}
    for _ in range(5):
        times["page"] += page.time(case.handles, 3, 1, 50, False, math.inf)
        times["ours"] += ours.time(*case.handles, min_repeat_ms=50).results
    return {"ours_us": min(times["ours"]) * 1e6, "page_us": min(times["page"]) * 1e6, "error": error}


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--log", type=report.path_to_read, default=LOG)
    options = p.parse_args()
    device = report.gpu()
    rows = rebuilt(options.log)
    report.table(rows, ["line", "ours us", "TVM us", "ratio", "error"])
    ratios = [r[3] for r in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"\ngeometric mean {mean:.3f} (at most 1.05), worst {max(ratios):.3f} (at most 1.5), "
          f"largest error {max(r[4] for r in rows):.1e}")  # fmt: skip
    page = tutorial()
    print(f"tutorial: ours {page['ours_us']:.1f} us, the page's kernel {page['page_us']:.1f} us, "
          f"ratio {page['ours_us'] / page['page_us']:.3f} (at most 1.05), error {page['error']:.1e}")  # fmt: skip
    figures = {"rows": rows, "geometric_mean": mean, "worst": max(ratios), "tutorial": page}
    report.write_json(options.json, figures, device)


if __name__ == "__main__":
    report.run(main)
