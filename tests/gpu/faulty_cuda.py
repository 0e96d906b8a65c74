"""A CUDA backend for tests: builds of the matrix product whose kernels misbehave as a script says.

`$FAULTS` names a directory with `script` (one word per build, in order); `count` in it is the number of builds so far.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from codegen_cuda.backend import CudaBackend
from codegen_cuda.driver.architecture import target_architecture
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.driver.device import cubin_file
from te_lite.loops.stmt import LoweredFunc

BODIES = {
    "illegal_address": "C[(long long)blockIdx.x * 1000000000000LL + 999999999999LL] = 1.0f;",
    "misaligned": "((float4 *)(C + 1))[threadIdx.x] = make_float4(1, 1, 1, 1);",
    "endless": "volatile float *c = C; while (c[0] != 12345.0f) {}",
    "trap": 'asm volatile("trap;");',
    "wrong": "C[0] = 7.0f;",
    "nan": 'C[0] = nanf("");',
    "untouched": "if (threadIdx.x > 4096) C[0] = 1.0f;",
}
SOURCE = 'extern "C" __global__ void fault(const float *A, const float *B, float *C) {{ {body} }}\n'
FAULTS = (*BODIES, "too_many_threads", "too_much_shared", "worker_killed")


class FaultyCuda(CudaBackend):
    """Builds what the script says, or the real program for `good`."""

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        super().build(func, target, directory)
        place = Path(os.environ["FAULTS"])
        script = (place / "script").read_text().split()
        with open(place / "count", "a+") as f:
            f.write("x")
            fault = script[f.tell() - 1]
        (Path(directory) / "fault").write_text(fault)
        if fault in BODIES:
            self.plant(directory, target, BODIES[fault])
        elif fault == "too_many_threads":
            self.plant(directory, target, "C[0] = 1.0f;", block=[2048, 1, 1])
        elif fault == "too_much_shared":
            self.plant(directory, target, "C[0] = 1.0f;", dynamic=512 * 1024)

    def plant(self, directory: str, target: str, body: str, block: Any = (32, 1, 1), dynamic: int = 0) -> None:
        cubin = compile_source(SOURCE.format(body=body), target_architecture(target)).cubin
        kernel = {"name": "fault", "grid": [1, 1, 1], "block": list(block), "arguments": [0, 1, 2]}
        facts = {"arguments": 3, "scratch_bytes": [], "kernels": [{**kernel, "dynamic_bytes": dynamic}]}
        (Path(directory) / cubin_file(0)).write_bytes(cubin)
        (Path(directory) / "program.json").write_text(json.dumps(facts))

    def open(self, index: int) -> Any:
        device = super().open(index)
        load = device.load

        def checked(directory: str) -> Any:
            if (Path(directory) / "fault").read_text() == "worker_killed":
                os.kill(os.getpid(), signal.SIGKILL)
            return load(directory)

        device.load = checked  # type: ignore[method-assign]
        return device


BACKEND = FaultyCuda()
