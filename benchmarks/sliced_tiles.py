"""The tiles of rule `sliced_tiles`, the best by its estimate, measured beside cuBLAS on a GPU.

    python -m benchmarks.sliced_tiles ['linear 197x3072x768' ...] [--top 24] [--json FILE]

Rows are products of `benchmarks/operator_rows.py`.  For each, the sketches of its `--top` tiles are completed at
random, compiled, compared with the result in float64, and recorded into CUDA graphs that are timed in turns with
PyTorch's product (TF32 off).  Last comes, for each row, how far the best of the tiles that become sketches is from the
fastest of all.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

import ansor
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.rule import SketchContext
from ansor_ext.register_tiles.sliced_tiles import SKETCHES, best_tiles, shape_of, sliced_sketches
from ansor_ext.register_tiles.tile_cost import BlockTile, cycles
from benchmarks import pytorch, report
from benchmarks.beside_cublas import beside_cublas
from benchmarks.compiled import compile_many
from benchmarks.operator_rows import Row
from benchmarks.operator_sides import TOLERANCES, random_tensors, relative_error
from codegen_cuda import emit
from codegen_cuda.driver.device import architecture
from te_lite import ComputeDAG, lower
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program

ROWS = (
    "linear 197x3072x768", "linear 197x768x3072", "linear 197x768x768", "linear 197x2304x768", "linear 128x3072x768",
    "linear 128x768x768", "batch_matmul 12x197x197x64", "batch_matmul 12x197x64x197", "matmul 1000x1000x1000",
    "matmul 1024x1024x1024", "matmul 512x2048x768", "matmul 2048x2048x2048",
)  # fmt: skip
TARGET = "cuda"


def completed(dag: ComputeDAG, top: int) -> dict[BlockTile, tuple[float, State]]:
    """The best tiles of a product, each with the cycles of its estimate and a program drawn at random."""
    target, hardware = Target.of(TARGET), HardwareParams.from_device(TARGET)
    ctx = SketchContext(dag, target, hardware)
    shapes = [shape_of(ctx, dag.init_state, k) for k in range(len(dag.ops))]
    (product,) = [shape.product for shape in shapes if shape is not None]
    tiles, rng = best_tiles(product, hardware.max_shared_memory_per_block, top), np.random.default_rng(1)
    drawn = [drawn_program(s, target, hardware, rng) for s in sliced_sketches(ctx, top)]
    pairs = zip(tiles, drawn, strict=True)
    return {tile: (cycles(tile, product), state) for tile, state in pairs if state is not None}


def measured(torch: Any, name: str, top: int) -> list[dict[str, Any]]:
    """One entry a tile in the order of the estimates, after that of cuBLAS."""
    row = Row(name, "", {})
    tensors = row.tensors()
    inputs, library = random_tensors(torch, tensors[:-1], "cuda"), row.library(torch)
    want = library.call(*[x.double() for x in inputs])
    found = completed(ComputeDAG(tensors), top)
    compile_many([emit(lower(state, tensors)).source for _, state in found.values()], architecture())
    made = {}
    for tile, (_, state) in found.items():
        module, out = ansor.build(state, tensors, TARGET), torch.full_like(want, float("nan"), dtype=torch.float32)
        module(*inputs, out)
        error = relative_error(torch, out, want)
        assert error <= TOLERANCES[""], f"{name}, {tile}: the result differs from that in float64 by {error:.1e}"
        made[str(tile)] = module, [*inputs, out]
    operations = 2 * want.numel() * inputs[0].shape[-1]
    times = {label: us for label, us, *_ in beside_cublas(torch, lambda: library.call(*inputs), made, operations)}
    entries = [{**asdict(tile), "cycles": found[tile][0], "us": times[str(tile)]} for tile in found]
    return [{"us": times["cuBLAS"]}, *entries]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("rows", nargs="*", metavar="ROW", default=ROWS, help="products (default: a dozen)")
    p.add_argument("--top", type=int, default=24, help="tiles to measure of each")
    options = p.parse_args()
    device = report.gpu()
    torch, figures, lines = pytorch.exact_torch(), {}, []
    for name in options.rows:
        cublas, *tiles = figures[name] = measured(torch, name, options.top)
        first, fastest = min([t["us"] for t in tiles[:SKETCHES]]), min([t["us"] for t in tiles])
        best = next(t for t in tiles if t["us"] == fastest)
        label = "{rows}x{columns} {sums} {steps} steps x {slices} slices, {parts} parts".format(**best)
        lines.append([name, cublas["us"], first, fastest, first / fastest, label])
    report.table(lines, ["product", "cuBLAS us", "sketches us", "fastest us", "ratio", "fastest tile"])
    report.write_json(options.json, {"rows": figures}, device)


if __name__ == "__main__":
    report.run(main)
