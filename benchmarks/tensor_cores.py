"""A matrix product on tensor cores, step by step: what each part of its schedule brings, on a GPU.

    python -m benchmarks.tensor_cores [--size 4096] [--only f16|tf32] [--json FILE]

Every program is one schedule of `tests/ansor_ext/tensor_core/mma_schedules.py`, checked against float64 on rows of the
result.  Programs and cuBLAS (through PyTorch, with TF32 for floats) are recorded into CUDA graphs and timed in turns;
the last column is the share of cuBLAS's speed.  B is stored [N, K] for TF32, of which no 32-bit matrix can be
transposed on the way to registers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import te_lite as te
from benchmarks import pytorch, report
from benchmarks.beside_cublas import beside_cublas
from codegen_cuda.driver.module import CudaModule, open_device
from tests.ansor_ext.tensor_core.mma_schedules import Tiled

ROUNDINGS = 16
ROWS = 64


def ladder(element: str, size: int) -> dict[str, Tiled]:
    """The programs, each with one thing more than the one before."""
    name, k = {"f16": ("m16n8k16_f16_f32", 32), "tf32": ("m16n8k8_tf32_f32", 32)}[element]
    plain = Tiled(name, (size, size, size), (64, 64, k), (32, 32), turned=element == "tf32")
    swizzled = replace(plain, swizzled=True)
    matrices = replace(swizzled, matrices="ab", pairs=True)
    ahead = replace(matrices, tiles=2)
    larger = replace(ahead, block=(128, 128, k), warp=(64, 64))
    return {
        "32 x 32 a warp": plain,
        "swizzled": swizzled,
        "ldmatrix": matrices,
        "fetched ahead": ahead,
        "64 x 64 a warp": larger,
        "three tiles": replace(larger, tiles=3),
        "four tiles": replace(larger, tiles=4),
        "three tiles, 128 x 256 a block": replace(larger, tiles=3, block=(128, 256, k)),
        "four tiles of 128 bytes a row": replace(larger, tiles=4, block=(128, 256, 128 // plain.op.element.nbytes)),
    }


def climbed(element: str, size: int) -> list[list[Any]]:
    """A row for each program: name, microseconds, TFLOP/s, share of cuBLAS's speed; AssertionError for a wrong one."""
    torch = pytorch.exact_torch()
    torch.backends.cuda.matmul.allow_tf32 = element == "tf32"
    programs = ladder(element, size)
    first = next(iter(programs.values()))
    a, b = first.inputs(np.random.default_rng(0))
    some = np.random.default_rng(1).choice(size, ROWS, replace=False)
    x, y = [torch.from_numpy(array).cuda() for array in (a, b)]
    made: dict[str, tuple[CudaModule, list[Any]]] = {}
    for name, program in programs.items():
        tensors = program.tensors()
        module = CudaModule(te.lower(program.schedule(tensors), tensors), open_device().arch)
        out = torch.full((size, size), float("nan"), dtype=torch.float32, device="cuda")
        module(x, y, out)
        wrong = program.wrong(a[some], b, out[some].cpu().numpy(), ROUNDINGS)
        assert wrong is None, f"{element} {name}: {wrong}"
        made[name] = module, [x, y, out]
    rows = beside_cublas(torch, lambda: torch.matmul(x, y.T if first.turned else y), made, 2 * size**3)
    return [[f"{element} {name}", *figures] for name, *figures in rows]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--size", type=int, default=4096)
    p.add_argument("--only", choices=("f16", "tf32"))
    options = p.parse_args()
    device = report.gpu()
    report.require_packages("torch")
    elements = [options.only] if options.only else ["f16", "tf32"]
    rows = [row for element in elements for row in climbed(element, options.size)]
    header = ["schedule", "us", "TFLOP/s", "of cuBLAS"]
    report.table(rows, header)
    report.write_json(options.json, {"size": options.size, "header": header, "rows": rows}, device)


if __name__ == "__main__":
    report.run(main)
