"""What the emission of CUDA asks about pipelines: copies that do not wait, and loops that read ahead of themselves."""

from __future__ import annotations

from codegen_cuda.emission.kernel_parts import Pipelines
from codegen_cuda.program.errors import EmitError
from codegen_cuda.text.vectors import VectorStore, Writer
from te_lite.errors import require
from te_lite.expr.simplify import Simplifier
from te_lite.loops.stmt import For, Stmt, Store, stored_in

from .async_copy import scalar_copy, vector_store, wait
from .register_double_buffer import with_register_double_buffers
from .steps import COPY_ENGINE


def by_engine(body: Stmt) -> bool:
    """Whether statements fill tiles that the copy engine is to fetch."""
    return any(b.pipelined == COPY_ENGINE for b in stored_in(body))


class CudaPipelines(Pipelines):
    """Of a kernel with pipelined buffers."""

    def ahead(self, body: Stmt, ranges: Simplifier, threads: int) -> Stmt:
        """A kernel whose pipelined accumulations read their operands a step ahead.

        Raises EmitError for tiles of the copy engine in a kernel that has no ring.
        """
        law = f"tiles by the {COPY_ENGINE} are for groups of warps that multiply (wgmma)"
        require(not by_engine(body), EmitError, "pipeline", law)
        return with_register_double_buffers(body, ranges, threads)

    def scalar_copy(self, writer: Writer, store: Store) -> str | None:
        """A store of one element as an asynchronous copy; None where it is none."""
        return scalar_copy(writer, store)

    def vector_store(self, writer: Writer, loop: For, store: Store) -> VectorStore:
        """The vector form of a store, asynchronous where that is possible."""
        return vector_store(writer, loop, store)

    def wait(self, helpers: dict[str, str], left: int) -> str:
        """What waits for all groups of copies of a thread but the last `left` ones."""
        return wait(helpers, left)
