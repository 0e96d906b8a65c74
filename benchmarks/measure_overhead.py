"""Where the time of a trial goes on a GPU: lower, emit, compile, load, run, check, time.

python -m benchmarks.measure_overhead [--programs 48] [--matmul N] [--json FILE]

The programs are random ones of the convolution layer, or of a matrix product of N x N x N.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ansor
import te_lite as te
from ansor.measure.array_checks import array_checks
from ansor.measure.check import accepted_values, poison
from ansor.sketch import generate_sketches
from benchmarks import report
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.driver.device import CudaDevice, DeviceProgram, cubin_file
from codegen_cuda.emission.emit import emit
from codegen_cuda.program.cuda_program import CudaProgram
from codegen_cuda.program.facts import program_facts
from te_lite.meaning.reference import random_inputs
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.workloads import matmul


class Parts:
    """Milliseconds of each part of a trial, one figure a program."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = {}

    def take(self, part: str, do: Callable[[], Any]) -> Any:
        """What `do()` gives; the time it takes is that of a part."""
        start = time.perf_counter()
        made = do()
        self.ms.setdefault(part, []).append((time.perf_counter() - start) * 1e3)
        return made


class Arrays:
    """The arrays of a computation on the device, and what a worker keeps there to check them."""

    def __init__(self, device: CudaDevice, dag: te.ComputeDAG, rng: np.random.Generator) -> None:
        self.tensors, (self.output,) = dag.tensors, dag.outputs
        self.inputs = random_inputs(dag.tensors, rng)
        self.right = accepted_values(dag, self.inputs)[self.output]
        self.handles = {t: device.put(self.inputs.get(t, poison(t.shape, t.dtype))) for t in dag.tensors}
        needed = self.right.nbytes + sum(a.nbytes for a in self.inputs.values())
        self.checks = array_checks(device, dag.outputs, needed)
        self.kept = {t: self.checks.keep(a) for t, a in self.inputs.items()}
        self.bounds = self.checks.keep_bounds(self.right)

    def run(self, program: DeviceProgram) -> None:
        """Poison the output, then run."""
        self.checks.poison(self.handles[self.output], self.output)
        program.run(list(self.handles.values()))

    def check(self) -> None:
        """The output must be right."""
        wrong = self.checks.wrong(self.handles[self.output], self.right, self.bounds)
        assert not wrong, wrong

    def check_inputs(self) -> None:
        """The inputs must be as they were."""
        assert all(self.checks.same(self.handles[t], a, self.kept[t]) for t, a in self.inputs.items())

    def check_all(self) -> None:
        """The inputs must be as they were, and the output right."""
        self.check_inputs()
        self.check()


def _compiled(program: CudaProgram, arch: str) -> list[bytes]:
    return [compile_source(unit, arch, use_cache=False).cubin for unit in program.units]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--programs", type=int, default=48)
    p.add_argument("--matmul", type=int, default=0)
    options = p.parse_args()
    gpu = report.gpu()
    n = options.matmul
    dag = te.ComputeDAG(matmul(n, n, n) if n else conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1))
    target, rng = ansor.Target("cuda"), np.random.default_rng(0)
    hardware = ansor.HardwareParams.for_target(target)
    sketch = generate_sketches(dag, target, hardware)[0]
    device, parts, best = CudaDevice(0), Parts(), math.inf
    arrays, folder = Arrays(device, dag, rng), tempfile.mkdtemp()
    handles = list(arrays.handles.values())
    for _ in range(options.programs):
        state = parts.take("sample", partial(drawn_program, sketch, target, hardware, rng))
        func = parts.take("lower", partial(te.lower, state))
        program = parts.take("emit", partial(emit, func))
        compiled = parts.take("compile", partial(_compiled, program, device.arch))
        for k, cubin in enumerate(compiled):
            (Path(folder) / cubin_file(k)).write_bytes(cubin)
        (Path(folder) / "program.json").write_text(json.dumps(program_facts(program)))
        loaded = parts.take("load", partial(device.load, folder))
        parts.take("run", partial(arrays.run, loaded))
        parts.take("check", arrays.check)
        best = min(best, *parts.take("time", partial(loaded.time, handles, 3, 1, 100, False, best)))
        parts.take("check again", arrays.check_all)
    total = sum(statistics.mean(v) for v in parts.ms.values())
    rows: list[list[Any]] = [
        [k, statistics.median(v), statistics.mean(v), max(v), statistics.mean(v) / total] for k, v in parts.ms.items()
    ]
    report.table(rows, ["part of a trial", "median ms", "mean ms", "max ms", "share"])
    print(f"one trial after the other on one core: {total:.0f} ms; builders run in parallel with the device")
    print(f"best program: {best * 1e6:.1f} us")
    report.write_json(options.json, {r[0]: r[1:] for r in rows}, gpu)


if __name__ == "__main__":
    report.run(main)
