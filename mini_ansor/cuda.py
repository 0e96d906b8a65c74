"""CUDA C++: the text of the kernels of a lowered program, one for each stage at root.

Loops that steps bound to blocks and threads are the launch of a kernel, not loops in it.  Copies in shared memory are
filled by all threads of a block between two barriers; private buffers become registers, once every loop over them is
unrolled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .c import CTYPES, Text
from .expr import FOLDS, Const, Expr, Load, Op, binary
from .lower import Barrier, FoldThreads, Lowered, Stmt, Var


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
        match s:
            case Barrier():
                return [f"{indent}__syncthreads();"]
            case FoldThreads(part, fold, threads):
                return self.folded(part, fold, threads, indent)
            case _:
                return super().stmt(s, indent)

    def pragma(self, kind: str, var: Var, indent: str) -> list[str]:
        return [f"{indent}#pragma unroll"] if kind in ("unroll", "vectorize") else []

    def local(self, buffer: Op, body: Stmt, indent: str) -> list[str]:
        place = "__shared__ " if buffer.scope == "shared" else ""
        lines = [f"{indent}{place}{CTYPES[buffer.dtype]} {self.name(buffer)}[{buffer.shape[0]}];"]
        return lines + self.stmt(body, indent)

    def folded(self, part: Op, fold: str, threads: int, indent: str) -> list[str]:
        """Threads fold in pairs, then pairs of pairs, until the first has the whole, which all read."""
        shared = Op(f"{part.name}.all", part.axes, None, part.dtype, f"{part.key}.all", scope="shared")
        name, here, t = self.name(shared), self.expr(Load(part, (Const(0),))), Var("threadIdx.x", threads)
        step = Var("step", threads)
        both: Expr = binary(FOLDS[fold][0], Load(shared, (t,)), Load(shared, (t + step,)))
        s = self.name(step)
        return [
            f"{indent}__shared__ {CTYPES[part.dtype]} {name}[{threads}];",
            f"{indent}{name}[threadIdx.x] = {here};",
            f"{indent}__syncthreads();",
            f"{indent}for (int {s} = 1; {s} < {threads}; {s} *= 2) {{",
            f"{indent}  if (threadIdx.x % (2 * {s}) == 0 && threadIdx.x + {s} < {threads}) "
            f"{name}[threadIdx.x] = {self.expr(both)};",
            f"{indent}  __syncthreads();",
            f"{indent}}}",
            f"{indent}{here} = {name}[0];",
            f"{indent}__syncthreads();",
        ]


HEAD = """\
static __device__ inline int floordiv(int a, int b) { return a / b - (a % b < 0); }
static __device__ inline int floormod(int a, int b) { return (a % b + b) % b; }
"""


def kernels(program: Lowered) -> list[Kernel]:
    """The kernels of a program in the order in which they run."""
    out = []
    for n, (nest, launch) in enumerate(zip(program.nests, program.launch, strict=True)):
        text, buffers = CudaText(), (*program.args, *program.own)
        args = ", ".join(f"{CTYPES[b.dtype]} *__restrict__ {text.name(b)}" for b in buffers)
        threads = prod(v.extent for tag, v in launch.items() if tag.startswith("threadIdx"))
        blocks = prod(v.extent for tag, v in launch.items() if tag.startswith("blockIdx"))
        name = f"program_{n}"
        head = f'extern "C" __global__ void __launch_bounds__({threads}) {name}({args}) {{'
        out.append(Kernel(name, "\n".join([HEAD, head, *text.stmt(nest), "}", ""]), blocks, threads, buffers))
    return out
