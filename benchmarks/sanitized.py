"""Emitted kernels, run once each, to be watched by NVIDIA's compute-sanitizer: so many, or what some seconds allow.

compute-sanitizer --tool memcheck  --error-exitcode 9 python -m benchmarks.sanitized 200 600
compute-sanitizer --tool racecheck --error-exitcode 9 python -m benchmarks.sanitized 200 600
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import ansor
import te_lite as te
from ansor.sketch import generate_sketches
from ansor.sketch.generate import extra_sketches
from benchmarks import report
from codegen_cuda.driver.module import CudaModule, open_device
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.oracle import Oracle
from tests.workloads import matmul, softmax

WORKLOADS: dict[str, Callable[[], list[te.Tensor]]] = {
    "matmul": lambda: matmul(96, 80, 64),
    "conv2d": lambda: conv2d_layer(1, 7, 7, 32, 16, 3, 1, 1),
    "softmax": lambda: softmax(33, 96),
    "tall matmul": lambda: matmul(8, 8, 512),
}


def run(wanted: int, seconds: float) -> None:
    """Run kernels until there are so many, or the time is up."""
    target, rng = ansor.Target("cuda"), np.random.default_rng(0)
    hardware = ansor.HardwareParams.for_target(target)
    kernels, end = 0, time.monotonic() + seconds
    while kernels < wanted and time.monotonic() < end:
        for name, build in WORKLOADS.items():
            oracle = Oracle(te.ComputeDAG(build()), rng)
            extra = extra_sketches(oracle.dag, target, hardware, rules=("double_buffer", "split_reduction"))[:2]
            for sketch in [*generate_sketches(oracle.dag, target, hardware), *extra]:
                state = drawn_program(sketch, target, hardware, rng)
                assert state is not None
                module = CudaModule(te.lower(state), open_device().arch)
                args = oracle.arguments()
                module(*args)
                wrong = oracle.compare(args)
                assert wrong is None, f"{name}: {wrong}"
                kernels += len(module.program.kernels)
    print(f"{kernels} kernels ran, all right")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kernels", nargs="?", type=int, default=200)
    p.add_argument("seconds", nargs="?", type=float, default=600.0)
    options = p.parse_args()
    report.gpu()
    run(options.kernels, options.seconds)


if __name__ == "__main__":
    report.run(main)
