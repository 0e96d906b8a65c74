"""CUDA C++: the text of the kernels of a lowered program, one for each stage at root."""

from dataclasses import dataclass
from math import prod

from .c import CTYPES, FLOOR, Text
from .expr import Op
from .lower import Barrier, Lowered, Stmt, Var


@dataclass(frozen=True)
class Kernel:
    """A kernel by its name, with the blocks of its grid and the threads of a block; `buffers` are its arguments."""

    name: str
    source: str
    blocks: int
    threads: int
    buffers: tuple[Op, ...]


class CudaText(Text):
    """Writes statements of kernels."""

    def name(self, thing: Op | Var) -> str:
        return thing.name if "Idx." in thing.name else super().name(thing)

    def stmt(self, s: Stmt, indent: str = "  ") -> list[str]:
        return [f"{indent}__syncthreads();"] if isinstance(s, Barrier) else super().stmt(s, indent)

    def pragma(self, kind: str, var: Var, indent: str) -> list[str]:
        return [f"{indent}#pragma unroll"] if kind in ("unroll", "vectorize") else []

    def local(self, buffer: Op, body: Stmt, indent: str) -> list[str]:
        place = "__shared__ " if buffer.scope == "shared" else ""
        lines = [f"{indent}{place}{CTYPES[buffer.dtype]} {self.name(buffer)}[{buffer.shape[0]}];"]
        return lines + self.stmt(body, indent)


def kernels(program: Lowered) -> list[Kernel]:
    """The kernels of a program in the order in which they run."""
    out = []
    for n, (nest, launch) in enumerate(zip(program.nests, program.launch, strict=True)):
        text, buffers = CudaText(), (*program.args, *program.own)
        args = ", ".join(f"{CTYPES[b.dtype]} *__restrict__ {text.name(b)}" for b in buffers)
        threads = prod(v.extent for tag, v in launch.items() if tag.startswith("threadIdx"))
        blocks = prod(v.extent for tag, v in launch.items() if tag.startswith("blockIdx"))
        head = f'extern "C" __global__ void __launch_bounds__({threads}) program_{n}({args}) {{'
        source = [FLOOR.replace("inline", "__device__ inline"), head, *text.stmt(nest), "}", ""]
        out.append(Kernel(f"program_{n}", "\n".join(source), blocks, threads, buffers))
    return out
