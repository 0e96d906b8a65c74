"""A product in float32, step by step: schedules written by hand, each beside cuBLAS, on a GPU.

    python -m benchmarks.product_ladder [--n 2048 ...] [--json FILE]

Every rung changes one thing of the one before it.  `n` must be a multiple of 256.  Programs and PyTorch's product
(TF32 off) are recorded into CUDA graphs and timed in turns, and each result is compared with that in float64.  The
last column is the share of cuBLAS's speed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ansor
import te_lite as te
from benchmarks import pytorch, report
from benchmarks import workloads as benchmarks
from benchmarks.beside_cublas import beside_cublas
from benchmarks.operator_sides import random_tensors, relative_error
from te_lite.computation.tensor import Tensor
from te_lite.schedule.schedule import Loop, Schedule, StageHandle

TOLERANCE = 1e-5
VECTOR, BANKS = 4, 32


@dataclass(frozen=True)
class Rung:
    """A block of `rows` x `columns` elements, `sums` of them (rows x columns) for each thread, `step` terms a tile.

    `quadrants`: what a thread computes lies in pieces of 4 x 4, so that neighbours read neighbouring vectors;
    `vectors`: tiles are fetched in vectors; `transposed`: that of A is stored with the reduction outermost; `ahead`:
    the next tiles are fetched while these are used.
    """

    rows: int
    columns: int
    sums: tuple[int, int]
    step: int
    quadrants: bool = False
    vectors: bool = False
    transposed: bool = False
    ahead: bool = False

    @property
    def threads(self) -> tuple[int, int]:
        """Of a block, along rows and columns."""
        return self.rows // self.sums[0], self.columns // self.sums[1]


def rungs() -> dict[str, Rung]:
    """The ladder, from a thread for each element to the tiles of libraries."""
    element = Rung(16, 16, (1, 1), 16)
    tiled = Rung(128, 128, (8, 8), 16)
    vectors = replace(tiled, quadrants=True, vectors=True)
    transposed = replace(vectors, transposed=True)
    ahead = replace(transposed, ahead=True)
    large = replace(ahead, sums=(8, 16))
    return {
        "an element a thread": element, "8 x 8 sums a thread": tiled, "quadrants and vectors": vectors,
        "A transposed": transposed, "fetched ahead": ahead, "8 x 16 sums": large,
        "blocks of 128 x 256": replace(large, columns=256),
    }  # fmt: skip


def product(n: int, rung: Rung) -> tuple[Schedule, list[Tensor]]:
    """The schedule of `n` x `n` times `n` x `n`, and the arguments."""
    a, b, c = benchmarks.matmul(n, n, n)
    s = te.create_schedule(c.op)
    sums = s.cache_write(c, "local")
    thread = _blocks_and_threads(s[c], rung)
    s[sums].compute_at(s[c], thread)
    term = s[sums].op.reduce_axis[0]
    tile, inner = s[sums].split(term, factor=rung.step)
    s[sums].reorder(tile, inner, *s[sums].op.axis)
    s[sums].pragma(tile, "auto_unroll_max_step", 512)
    for operand in (a, b):
        shared = s.cache_read(operand, "shared", [sums])
        s[shared].compute_at(s[sums], tile)
        _fetched(s[shared], rung, rung.transposed and operand is a)
    return s, [a, b, c]


def _blocks_and_threads(stage: StageHandle, rung: Rung) -> Loop:
    """The output in blocks, pieces (virtual threads) and threads; the loop over threads."""
    cut = []
    for axis, length, sums, threads in zip(
        stage.op.axis, (rung.rows, rung.columns), rung.sums, rung.threads, strict=True
    ):
        block, rest = stage.split(axis, factor=length)
        piece, rest = stage.split(rest, nparts=sums // VECTOR if rung.quadrants else 1)
        thread, own = stage.split(rest, nparts=threads)
        cut.append((block, piece, thread, own))
    stage.reorder(*[loop for level in zip(*cut, strict=True) for loop in level])
    (rows, columns) = cut
    stage.bind(stage.fuse(rows[0], columns[0]), "blockIdx.x")
    stage.bind(stage.fuse(rows[1], columns[1]), "vthread")
    inner = stage.fuse(rows[2], columns[2])
    stage.bind(inner, "threadIdx.x")
    return inner


def _fetched(stage: StageHandle, rung: Rung, transposed: bool) -> None:
    """A shared tile, copied by all threads of the block."""
    axes = list(stage.op.axis)
    if transposed:
        stage.storage_order(1, 0)
        stage.storage_align(axes[1], BANKS, VECTOR)
    if rung.ahead:
        stage.double_buffer()
    element, lane = stage.split(stage.fuse(*axes), factor=VECTOR if rung.vectors else 1)
    _, thread = stage.split(element, factor=rung.threads[0] * rung.threads[1])
    stage.bind(thread, "threadIdx.x")
    stage.vectorize(lane)


def climbed(n: int) -> list[list[Any]]:
    """One row a rung: its name, the size, microseconds, TFLOP/s, and the share of cuBLAS's speed."""
    torch = pytorch.exact_torch()
    a, b = random_tensors(torch, benchmarks.matmul(n, n, n)[:2], "cuda")
    want = a.double() @ b.double()
    made: dict[str, tuple[Any, list[Any]]] = {}
    for name, rung in rungs().items():
        s, tensors = product(n, rung)
        module, out = ansor.build(s, tensors, "cuda"), torch.full_like(a, float("nan"))
        module(a, b, out)
        error = relative_error(torch, out, want)
        assert error <= TOLERANCE, f"{name}: the result differs from that in float64 by {error:.1e}"
        made[name] = module, [a, b, out]
    rows = beside_cublas(torch, lambda: torch.matmul(a, b), made, 2 * n**3)
    return [[name, n, *figures] for name, *figures in rows]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--n", type=int, nargs="+", default=[2048], help="rows and columns, multiples of 256")
    options = p.parse_args()
    device = report.gpu()
    report.require_packages("torch")
    lines = [line for n in options.n for line in climbed(n)]
    header = ["schedule", "n", "us", "TFLOP/s", "of cuBLAS"]
    report.table(lines, header)
    report.write_json(options.json, {"rows": [dict(zip(header, line, strict=True)) for line in lines]}, device)


if __name__ == "__main__":
    report.run(main)
