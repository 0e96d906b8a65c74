"""What the emission of CUDA asks about tensor cores: instructions of warps, and of groups of four warps."""

from __future__ import annotations

from typing import Any

from codegen_cuda.emission.kernel_parts import TensorCores
from codegen_cuda.program.cuda_program import KernelNest
from te_lite.loops.stmt import Buffer, Instruction, Stmt

from .mma_text import instruction_text, wait_text
from .rows_ahead import goes_beside
from .vectorized_epilogue import with_vectorized_epilogue
from .warpgroup import TILE_BYTES, in_groups, multiplies_in_groups, tiles_of
from .wgmma_text import FENCE, FENCE_HELPER


class CudaTensorCores(TensorCores):
    """Of a kernel that multiplies on tensor cores."""

    def __init__(self, body: Stmt) -> None:
        self.grouped = multiplies_in_groups(body)
        if self.grouped:
            self.alignment, self.fence = TILE_BYTES, FENCE

    def nest(self, nest: KernelNest) -> KernelNest:
        """A kernel of groups of warps in the form that it is written in.

        Raises EmitError for groups that do not read one factor from shared memory as tensor cores can.
        """
        return in_groups(nest) if self.grouped else nest

    def tiles(self, body: Stmt) -> set[Buffer]:
        """The shared buffers that tensor cores read themselves."""
        return tiles_of(body)

    def epilogue(self, nest: KernelNest) -> Stmt:
        """The body of a kernel, with vectors stored by neighbouring threads of a warp together."""
        return with_vectorized_epilogue(nest)

    def fenced(self, helpers: dict[str, str]) -> str:
        """The fence, its function among the `helpers`."""
        helpers["fence_async_proxy"] = FENCE_HELPER
        return self.fence

    def text(self, writer: Any, s: Instruction) -> str:
        """An instruction."""
        return instruction_text(writer, s)

    def wait(self, writer: Any, product: Instruction) -> str:
        """What waits for a product of a group of warps."""
        return wait_text(writer, product)

    def goes_beside(self, s: Stmt, product: Instruction) -> bool:
        """Whether a product of a group of warps, already begun, goes on during a statement."""
        return goes_beside(s, product)
