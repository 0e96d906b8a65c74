"""A product of halves that the copy engine of a Hopper feeds, written by hand, step by step, each beside cuBLAS.

    python -m benchmarks.copy_engine_ladder [--n 4096 ...] [--json FILE] [--emulated]

It is the goal for the programs that we emit: none of these kernels is one of ours.  All compute 128 x 256 elements a
block, from tiles of 64 terms (`copy_engine_product.cu`); every rung changes one thing of the one before it.  `n` must
be a multiple of 256.  Kernels and PyTorch's product are recorded into CUDA graphs and timed in turns, on normal
inputs, and each result is compared with that in float64.  The last column is the share of cuBLAS's speed.

`--emulated` runs the kernels on the block emulator instead, without a GPU, with few terms and few blocks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pytorch, report
from benchmarks.beside_cublas import recorded_beside_cublas
from benchmarks.operator_sides import TOLERANCES, recorded, relative_error
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.driver.tensor_maps import encoded
from codegen_cuda.emulation.emulated_maps import tensor_map
from codegen_cuda.emulation.emulator import Launch, Memory, run_launches
from codegen_cuda.program.cuda_program import TensorMap

SOURCE = Path(__file__).with_name("copy_engine_product.cu")
ROWS, COLUMNS, TERMS, THREADS, ROW_BYTES = 128, 256, 64, 384, 128
BOX_ROWS = ROWS, TERMS, ROWS // 2
"""Of A, B and the result: boxes of so many rows of 128 bytes."""
MOST_SHARED = 8
"""Of `CUfunction_attribute`: the dynamic shared memory of a kernel, in bytes."""


@dataclass(frozen=True)
class Rung:
    """A kernel with `stages` tiles, `going_on` products at work while the next tile is waited for.

    `stay`: a block a multiprocessor, which computes one part of the result after the other; `boxes`: the result is
    stored by the copy engine, else from registers.
    """

    stages: int
    going_on: int = 0
    stay: bool = False
    boxes: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        return f"-DSTAGES={self.stages}", f"-DGOING_ON={self.going_on}", f"-DBOXES={int(self.boxes)}"

    @property
    def shared_bytes(self) -> int:
        """Barriers, tiles of both factors, and two boxes for each of two groups."""
        boxes = 4 * ROWS // 2 * ROW_BYTES if self.boxes else 0
        return 1024 + self.stages * (ROWS + COLUMNS) * ROW_BYTES + boxes


def rungs() -> dict[str, Rung]:
    """The ladder, from a tile that is waited for to blocks that store one part while they compute the next."""
    return {
        "one tile": Rung(1), "a ring of four tiles": Rung(4), "products go on": Rung(4, going_on=1),
        "blocks stay": Rung(4, going_on=1, stay=True),
        "stored by the copy engine": Rung(4, going_on=1, stay=True, boxes=True),
    }  # fmt: skip


def source() -> str:
    """The text of the kernels, with the instruction that multiplies for a group of warps."""
    sums = COLUMNS // 2
    registers = ", ".join(f"%{k}" for k in range(sums))
    outputs = ", ".join(f'"+f"(d[{k}])' for k in range(sums))
    text = f"""DEVICE void multiply(float *d, u64 a, u64 b, int adds) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{sums + 2}, 0; "
               "wgmma.mma_async.sync.aligned.m64n{COLUMNS}k16.f32.f16.f16 "
               "{{{registers}}}, %{sums}, %{sums + 1}, p, 1, 1, 0, 1; }}" : {outputs} : "l"(a), "l"(b), "r"(adds));
}}"""
    return SOURCE.read_text().replace("MULTIPLY", text)


def emulated(rung: Rung, n: int, terms: int, blocks: int, text: str = "", check: bool = True) -> tuple[float, float]:
    """The error of an n x n result of so many terms on the block emulator, relative to its largest element, and the
    seconds of the run; `text` stands in for the kernels' text; so many `blocks` where they stay; see `run_launches`."""
    rng = np.random.default_rng(0)
    a, b = [rng.standard_normal(shape).astype(np.float16) for shape in ((n, terms), (terms, n))]
    c = np.full((n, n), np.nan, np.float16)
    width = ROW_BYTES // 2
    maps = [
        tensor_map(x, i, (rows, width), ROW_BYTES) for i, (x, rows) in enumerate(zip((a, b, c), BOX_ROWS, strict=True))
    ]
    values = [a, b, c, *maps, *[np.int32(x) for x in (n, n, terms)]]
    memories = [Memory(f"argument_{i}", value, True) for i, value in enumerate(values)]
    parts = n // ROWS * (n // COLUMNS)
    grid = (min(parts, blocks) if rung.stay else parts, 1, 1)
    launch = Launch("product", grid, (THREADS, 1, 1), (3, 4, 5, 2, 6, 7, 8), rung.shared_bytes)
    defined = "".join([f"#define {option[2:].replace('=', ' ')}\n" for option in rung.options])
    ran = run_launches(defined + (text or source()), [launch], memories, check, 120.0)
    want = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.abs(c - want).max() / np.abs(want).max()), ran.seconds


@dataclass
class Kernel:
    """A rung on matrices of halves in memory of the device, row by row."""

    rung: Rung
    a: Any
    b: Any
    c: Any
    multiprocessors: int
    held: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        cubin = compile_source(source(), "sm_90", self.rung.options).cubin
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        self._call("cuModuleGetFunction", ctypes.byref(self.function), module, b"product")
        self._call("cuFuncSetAttribute", self.function, MOST_SHARED, self.rung.shared_bytes)
        (m, k), n = self.a.shape, self.c.shape[1]
        maps = [self._map(x, rows) for x, rows in zip((self.a, self.b, self.c), BOX_ROWS, strict=True)]
        numbers = [ctypes.c_void_p(self.c.data_ptr()), *[ctypes.c_int(x) for x in (m, n, k)]]
        self.arguments = (ctypes.c_void_p * 7)(*maps, *[ctypes.addressof(x) for x in numbers])
        self.held += [module, *numbers]
        parts = m // ROWS * (n // COLUMNS)
        self.blocks = min(parts, self.multiprocessors) if self.rung.stay else parts

    def _call(self, name: str, *args: Any) -> None:
        code = self.driver[name](*args)
        assert code == 0, f"{name}: the call must succeed, got error {code}"

    def _map(self, matrix: Any, rows: int) -> int:
        """The address of a map of boxes of so many rows of 128 bytes."""
        boxes = TensorMap(0, "float16", tuple(matrix.shape), (rows, ROW_BYTES // 2), (1, 1))
        self.held.append(ctypes.create_string_buffer(encoded(boxes, matrix.data_ptr())))
        return ctypes.addressof(self.held[-1])

    def launch(self, stream: int) -> None:
        self._call(
            "cuLaunchKernel", self.function, self.blocks, 1, 1, THREADS, 1, 1, self.rung.shared_bytes,
            ctypes.c_void_p(stream), self.arguments, None,
        )  # fmt: skip


def climbed(n: int) -> list[list[Any]]:
    """One row a rung: its name, the size, microseconds, TFLOP/s, and the share of cuBLAS's speed."""
    torch = pytorch.exact_torch()
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = [torch.randn((n, n), generator=generator, device="cuda").half() for _ in range(2)]
    want = a.double() @ b.double()
    count = torch.cuda.get_device_properties(0).multi_processor_count
    recorders: dict[str, pytorch.Recorder] = {}
    for name, rung in rungs().items():
        kernel = Kernel(rung, a, b, torch.full_like(a, float("nan")), count)
        kernel.launch(torch.cuda.current_stream().cuda_stream)
        error = relative_error(torch, kernel.c, want)
        assert error <= TOLERANCES["fp16"], f"{name}: the result differs from that in float64 by {error:.1e}"
        recorders[name] = partial(recorded, torch, _on_stream(torch, kernel))
    rows = recorded_beside_cublas(torch, lambda: torch.matmul(a, b), recorders, 2 * n**3)
    return [[name, n, *figures] for name, *figures in rows]


def _on_stream(torch: Any, kernel: Kernel) -> Callable[[], None]:
    return lambda: kernel.launch(torch.cuda.current_stream().cuda_stream)


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--emulated", action="store_true", help="on the block emulator, of 256 rows, columns and terms")
    p.add_argument("--n", type=int, nargs="+", default=[4096], help="rows and columns, multiples of 256")
    options = p.parse_args()
    if options.emulated:
        ran = {name: emulated(rung, 256, 256, 1) for name, rung in rungs().items()}
        report.table(
            [[name, f"{error:.1e}", seconds] for name, (error, seconds) in ran.items()], ["kernel", "error", "s"]
        )
        return
    device = report.gpu()
    report.require_packages("torch")
    rows = [row for n in options.n for row in climbed(n)]
    columns = ["kernel", "n", "us", "TFLOP/s", "share of cuBLAS"]
    report.table(rows, columns)
    report.write_json(options.json, {"rows": [dict(zip(columns, row, strict=True)) for row in rows]}, device)


if __name__ == "__main__":
    report.run(main)
