"""A product of halves on a Hopper in six schedules, from one tile that is waited for to a ring whose blocks stay.

    python -m benchmarks.ring_ladder [--size 4096] [--json FILE] [--emulated]

Every rung is one schedule of `tests/ansor_ext/tensor_core/mma_schedules.py` with one thing more than the one before it.
B is stored [N, K].  Each result is compared with that in float64; programs and cuBLAS (through PyTorch) are recorded
into CUDA graphs and timed in turns, and the last column is the share of cuBLAS's speed.  `--emulated` runs them on the
block emulator instead, without a GPU, at a small size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import te_lite as te
from benchmarks import pytorch, report
from benchmarks.beside_cublas import beside_cublas
from benchmarks.operator_sides import TOLERANCES, relative_error
from codegen_cuda import emit
from codegen_cuda.driver.module import CudaModule, open_device
from codegen_cuda.emulation.emulator import run_program
from te_lite.expr.lanes import ceildiv
from tests.ansor_ext.tensor_core.mma_schedules import Ring

EMULATED, ROWS_TOGETHER = (256, 512, 256), 16


def ladder(sizes: tuple[int, int, int], multiprocessors: int) -> dict[str, Ring]:
    """The schedules of a product of `sizes` (rows, columns, terms)."""
    m, n, _ = sizes
    one = Ring(
        "wgmma_k16_f16_f32", sizes, (64, 256, 64), (16, 256), turned=True, swizzled=True, matrices="ab", pairs=True,
        out="float16", blocks_at_once=ceildiv(m, 64) * ceildiv(n, 256), beside=1, engine=False,
    )  # fmt: skip
    two = replace(one, block=(128, 256, 64), blocks_at_once=ceildiv(m, 128) * ceildiv(n, 256))
    ahead = replace(two, tiles=4)
    ring = replace(ahead, engine=True)
    together = replace(ring, beside=min(ROWS_TOGETHER, ceildiv(m, 128)))
    return {
        "one tile, waited for": one,
        "two groups of warps": two,
        "four tiles, fetched ahead": ahead,
        "a ring of the copy engine": ring,
        "blocks with rows in common": together,
        "blocks that stay": replace(together, blocks_at_once=multiprocessors),
    }


def lowered(program: Ring) -> te.LoweredFunc:
    """A schedule as a program."""
    tensors = program.tensors()
    return te.lower(program.schedule(tensors), tensors)


def climbed(size: int) -> list[list[Any]]:
    """A row for each schedule: name, microseconds, TFLOP/s, share of cuBLAS's speed; AssertionError for a wrong one."""
    torch = pytorch.exact_torch()
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = [torch.randn((size, size), generator=generator, device="cuda").half() for _ in range(2)]
    want = a.double() @ b.double().T
    made: dict[str, tuple[CudaModule, list[Any]]] = {}
    for name, program in ladder((size,) * 3, torch.cuda.get_device_properties(0).multi_processor_count).items():
        module, out = CudaModule(lowered(program), open_device().arch), torch.full_like(want, float("nan")).half()
        module(a, b, out)
        error = relative_error(torch, out, want)
        assert error <= TOLERANCES["fp16"], f"{name}: the result differs from that in float64 by {error:.1e}"
        made[name] = module, [a, b, out]
    return beside_cublas(torch, lambda: torch.matmul(a, b.T), made, 2 * size**3)


def emulated() -> list[list[Any]]:
    """A row for each schedule: name, largest error relative to the largest element, seconds of the run."""
    rows = []
    for name, program in ladder(EMULATED, 3).items():
        a, b = program.inputs(np.random.default_rng(0))
        got = np.full((EMULATED[0], EMULATED[1]), np.nan, np.float16)
        ran = run_program(emit(lowered(program)), [a, b, got])
        want = a.astype(np.float64) @ b.astype(np.float64).T
        rows.append([name, f"{np.abs(got - want).max() / np.abs(want).max():.1e}", ran.seconds])
    return rows


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--emulated", action="store_true", help="on the block emulator, of 256 x 512 elements")
    p.add_argument("--size", type=int, default=4096)
    options = p.parse_args()
    if options.emulated:
        report.table(emulated(), ["schedule", "error", "s"])
        return
    device = report.gpu()
    report.require_packages("torch")
    rows, header = climbed(options.size), ["schedule", "us", "TFLOP/s", "of cuBLAS"]
    report.table(rows, header)
    report.write_json(options.json, {"size": options.size, "header": header, "rows": rows}, device)


if __name__ == "__main__":
    report.run(main)
