"""Where the time of a trial goes on a GPU: lower, emit, compile, load, check, time.

python -m benchmarks.measure_overhead [--programs 48] [--json FILE]
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import ansor
import te_lite as te
from ansor.measure.check import accepted_values, mismatch, poison
from ansor.sketch import generate_sketches
from benchmarks import report
from codegen_cuda.compile import compile_source
from codegen_cuda.device import CudaDevice
from codegen_cuda.emit import emit
from codegen_cuda.facts import program_facts
from te_lite.reference import random_inputs
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program

PARTS = ("sample", "lower", "emit", "compile", "load", "run and check", "time")


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--programs", type=int, default=48)
    options = p.parse_args()
    dag = te.ComputeDAG(conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1))
    target, rng = ansor.Target("cuda"), np.random.default_rng(0)
    hardware = ansor.HardwareParams.for_target(target)
    sketch = generate_sketches(dag, target, hardware)[0]
    device = CudaDevice(0)
    inputs = random_inputs(dag.tensors, rng)
    right = accepted_values(dag, inputs)[dag.outputs[0]]
    handles = [device.put(inputs.get(t, poison(t.shape, t.dtype))) for t in dag.tensors]
    out = dag.tensors.index(dag.outputs[0])
    seconds: dict[str, list[float]] = {part: [] for part in PARTS}
    folder = tempfile.mkdtemp()
    for _ in range(options.programs):
        marks = [time.perf_counter()]
        state = drawn_program(sketch, target, hardware, rng)
        assert state is not None
        marks.append(time.perf_counter())
        func = te.lower(state)
        marks.append(time.perf_counter())
        program = emit(func)
        marks.append(time.perf_counter())
        compiled = compile_source(program.source, device.arch, use_cache=False)
        marks.append(time.perf_counter())
        (Path(folder) / "program.cubin").write_bytes(compiled.cubin)
        (Path(folder) / "program.json").write_text(json.dumps(program_facts(program)))
        loaded = device.load(folder)
        marks.append(time.perf_counter())
        device.write(handles[out], poison(dag.tensors[out].shape, "float32"))
        loaded.run(handles)
        assert not mismatch(device.get(handles[out]), right)
        marks.append(time.perf_counter())
        loaded.time(handles, 3, 1, 100, False)
        marks.append(time.perf_counter())
        for part, a, b in zip(PARTS, marks, marks[1:], strict=False):
            seconds[part].append((b - a) * 1e3)
    total = sum(statistics.mean(v) for v in seconds.values())
    rows = [
        [k, statistics.median(v), statistics.mean(v), max(v), statistics.mean(v) / total] for k, v in seconds.items()
    ]
    report.table(rows, ["part of a trial", "median ms", "mean ms", "max ms", "share"])
    print(f"one trial after the other on one core: {total:.0f} ms; builders run in parallel with the device")
    report.write_json(options.json, {r[0]: r[1:] for r in rows}, device.cuda.Device(0).name())


if __name__ == "__main__":
    main()
