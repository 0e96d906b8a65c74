"""What the emission of CUDA asks about tensor cores: instructions of warps, and of groups of four warps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen_cuda.emission.kernel_parts import TensorCores
from codegen_cuda.program.cuda_program import TFLOAT32, KernelNest, TensorMap
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad
from te_lite.expr.visit import walk
from te_lite.loops.stmt import Buffer, Instruction, Stmt, exprs_of, stmts_of, written_by

from .copy_boxes import Box
from .group_steps import TILE_BYTES
from .instructions import RingCall
from .mma_text import instruction_text, wait_text
from .near_one import with_near_ones
from .rows_ahead import goes_beside
from .swizzle import CHUNK_BYTES
from .vectorized_epilogue import with_vectorized_epilogue
from .warpgroup import in_groups, multiplies_in_groups, tiles_of
from .wgmma_text import FENCE, FENCE_HELPER


def tensor_map(box: Box, buffers: Sequence[Buffer]) -> TensorMap:
    """What the copy engine is told of the array of a box."""
    nbytes = box.extents[-1] * BYTES[box.buffer.dtype]
    swizzle, dtype = nbytes if nbytes > CHUNK_BYTES else 0, TFLOAT32 if box.nearest else box.buffer.dtype
    margins = () if box.pixels is None else box.pixels.margins(box.view[1:3], box.steps[1:3])
    return TensorMap(buffers.index(box.buffer), dtype, box.view, box.extents, box.steps, swizzle, margins)


class CudaTensorCores(TensorCores):
    """Of a kernel that multiplies on tensor cores."""

    def __init__(self, body: Stmt) -> None:
        self.grouped = multiplies_in_groups(body)
        if self.grouped:
            self.alignment, self.fence = TILE_BYTES, FENCE
        calls = [s for s in stmts_of(body) if isinstance(s, RingCall)]
        blocks = [str(s.number).split(",")[0] for s in calls if s.function in ("cluster_release", "cluster_add")]
        self.cluster = f"__cluster_dims__(1, {blocks[0]}, 1) " if blocks else ""

    def nest(self, nest: KernelNest) -> KernelNest:
        """A kernel of groups of warps in the form that it is written in.

        Raises EmitError for groups that do not read one factor from shared memory as tensor cores can.
        """
        return in_groups(nest) if self.grouped else nest

    def tiles(self, body: Stmt) -> set[Buffer]:
        """The shared buffers that tensor cores read themselves."""
        return tiles_of(body)

    def epilogue(self, nest: KernelNest) -> Stmt:
        """The body of a kernel, with vectors stored by neighbouring threads of a warp together, and GELU by fewer
        instructions."""
        return with_near_ones(with_vectorized_epilogue(nest))

    def fenced(self, helpers: dict[str, str]) -> str:
        """The fence, its function among the `helpers`."""
        helpers["fence_async_proxy"] = FENCE_HELPER
        return self.fence

    def maps(self, body: Stmt, buffers: Sequence[Buffer]) -> tuple[TensorMap, ...]:
        """What the copy engine is told of arrays, which are numbered among `buffers`."""
        boxes = {s.map: s.box for s in stmts_of(body) if isinstance(s, RingCall) and s.box is not None}
        return tuple([tensor_map(boxes[k], buffers) for k in range(len(boxes))])

    def by_map(self, body: Stmt) -> set[Buffer]:
        """The arrays that only the copy engine reads or writes."""
        own = {s.box.buffer for s in stmts_of(body) if isinstance(s, RingCall) and s.box is not None}
        others = [s for s in stmts_of(body) if not isinstance(s, RingCall)]
        read = {e.buffer for s in others for root in exprs_of(s) for e in walk(root) if isinstance(e, BufferLoad)}
        return own - read - {b for s in others for b in written_by(s)}

    def text(self, writer: Any, s: Instruction) -> str:
        """An instruction."""
        return instruction_text(writer, s)

    def wait(self, writer: Any, product: Instruction) -> str:
        """What waits for a product of a group of warps."""
        return wait_text(writer, product)

    def goes_beside(self, s: Stmt, product: Instruction) -> bool:
        """Whether a product of a group of warps, already begun, goes on during a statement."""
        return goes_beside(s, product)
