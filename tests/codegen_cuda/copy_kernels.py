"""Programs written by hand whose kernels take tensor maps: a box of one array is copied to its place in another."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from codegen_cuda import CudaKernel, CudaProgram
from codegen_cuda.overlap.dependent_launch import waiting
from codegen_cuda.overlap.prefetch import HELPER
from codegen_cuda.program.cuda_program import TensorMap
from te_lite.loops.stmt import Buffer

STRUCT = "struct alignas(64) TensorMap { unsigned long long opaque[16]; };"
HEAD = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
static __device__ __forceinline__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
static __device__ __forceinline__ void await(u32 b, u32 parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }"
               ::"r"(b), "r"(parity) : "memory");
}
"""
BODY = r"""  __shared__ __align__(1024) unsigned char x[NBYTES];
  __shared__ __align__(8) u64 barrier[1];
  const u32 b = at(barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(NBYTES) : "memory");
    LOAD
  }
  await(b, 0);
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
"""
COUNT = "  if (threadIdx.x == 0) count[0] += 1;\n"


@dataclass(frozen=True)
class Copy:
    """A box at `at` of an array of `extents` that is copied to the same place of another array.

    The arrays are of shape `shape`, and are addressed as `extents` say.
    """

    dtype: str
    shape: tuple[int, ...]
    extents: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    swizzle: int = 0

    def maps(self) -> tuple[TensorMap, TensorMap]:
        """Of the array that is read, and of the one that is written."""
        steps = (1,) * len(self.box)
        first, second = [TensorMap(k, self.dtype, self.extents, self.box, steps, self.swizzle) for k in (0, 1)]
        return first, second

    def body(self) -> str:
        n, numbers = len(self.at), ", ".join(f'"r"({x})' for x in self.at[::-1])
        places = ", ".join(f"%{2 + k}" for k in range(n))
        name = f"cp.async.bulk.tensor.{n}d"
        load = (
            f'asm volatile("{name}.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], '
            f'[%{2 + n}];" ::"r"(at(x)), "l"(&map0), {numbers}, "r"(b) : "memory");'
        )
        store = (
            f'asm volatile("{name}.global.shared::cta.bulk_group [%0, {{{places}}}], [%1];" '
            f'::"l"(&map1), "r"(at(x)), {numbers} : "memory");'
        )
        nbytes = prod(self.box) * np.dtype(self.dtype).itemsize
        return BODY.replace("LOAD", load).replace("STORE", store).replace("NBYTES", str(nbytes))

    def program(self) -> CudaProgram:
        """The kernel takes two maps, and a pointer to a counter of its runs."""
        maps = ", ".join([f"const __grid_constant__ TensorMap map{k}" for k in (0, 1)])
        head = f'extern "C" __global__ void __launch_bounds__(64) boxes_kernel0({maps}, int *count)'
        source = f"{STRUCT}\n{HEAD}{head} {{\n{self.body()}{COUNT}}}\n"
        kernel = CudaKernel("boxes_kernel0", (1, 1, 1), (64, 1, 1), (2,), 0, 0, self.maps())
        args = (*[Buffer(name, self.dtype, self.shape) for name in ("A", "B")], Buffer("count", "int32", (4,)))
        return CudaProgram("boxes", source, (source,), (kernel,), args, ())

    def waiting(self) -> str:
        """The source of a kernel that does the same when the one before it has ended."""
        head = 'extern "C" __global__ void __launch_bounds__(64) '
        params = [*[f"const __grid_constant__ TensorMap map{k}" for k in (0, 1)], "int *__restrict__ count"]
        lines = [*self.body().splitlines(), COUNT.rstrip()]
        kernel = waiting(head, "boxes_kernel0", params, ["count"], lines, ["map0", "map1"])
        return f"{STRUCT}\n{HEAD}{HELPER}\n{kernel}\n"

    def arrays(self) -> list[np.ndarray]:
        """What is read, what is written (ones), and the counter."""
        size = prod(self.shape)
        given = (np.arange(size) % 113 + 2).astype(self.dtype).reshape(self.shape)
        return [given, np.ones(self.shape, self.dtype), np.zeros(4, np.int32)]

    def want(self, given: np.ndarray) -> np.ndarray:
        """The array that is written, after a run."""
        out = np.ones(self.shape, self.dtype)
        size = prod(self.extents)
        places = tuple([slice(a, min(a + n, e)) for a, n, e in zip(self.at, self.box, self.extents, strict=True)])
        seen = out.reshape(-1)[:size].reshape(self.extents)
        seen[places] = given.reshape(-1)[:size].reshape(self.extents)[places]
        return out


COPIES = {
    "swizzled over 128 bytes": Copy("float16", (128, 64), (128, 64), (64, 64), (32, 0), 128),
    "over the end": Copy("float32", (40, 32), (40, 32), (16, 16), (32, 16), 64),
    "four axes as two": Copy("float16", (2, 8, 4, 32), (64, 32), (16, 16), (24, 16), 32),
    "a part of an array": Copy("int8", (10, 48), (9, 48), (4, 16), (7, 16)),
    "three axes": Copy("float32", (4, 6, 16), (4, 6, 16), (2, 3, 8), (1, 2, 8)),
}
