"""What emission asks about pipelines and tensor cores: extensions answer, and a kernel without either needs none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from te_lite.errors import require
from te_lite.expr.simplify import Simplifier
from te_lite.extensions import installed_part, required_part
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, Instruction, LoweredFunc, Stmt, Store, stmts_of

from ..program.cuda_program import VECTOR_BYTES, KernelNest, TensorMap, kernel_nests
from ..program.errors import EmitError
from ..text.vectors import VectorStore, Writer


class Pipelines:
    """Of kernels without copies that do not wait."""

    def ahead(self, body: Stmt, ranges: Simplifier, threads: int) -> Stmt:
        """A kernel of so many threads a block whose loops over pipelined tiles read operands ahead of themselves."""
        return body

    def scalar_copy(self, writer: Writer, store: Store) -> str | None:
        """A store of one element as an asynchronous copy; None where it is none."""
        return None

    def vector_store(self, writer: Writer, loop: For, store: Store) -> VectorStore:
        """The vector form of a store of the vectorized loop `loop`."""
        return VectorStore(writer, loop, store)

    def wait(self, helpers: dict[str, str], left: int) -> str:
        """What waits for all groups of copies of a thread but the last `left` ones."""
        raise NotImplementedError


class TensorCores:
    """Of kernels without instructions of tensor cores."""

    alignment = VECTOR_BYTES
    """Bytes, of shared memory."""
    fence = cluster = ""
    """What a thread does before a barrier that tensor cores are behind, and how blocks are clusters, if so."""

    def nest(self, nest: KernelNest) -> KernelNest:
        """A kernel in the form that it is written in.  Raises EmitError for one that has none."""
        return nest

    def tiles(self, body: Stmt) -> set[Buffer]:
        """The shared buffers that tensor cores read themselves."""
        return set()

    def epilogue(self, nest: KernelNest) -> Stmt:
        """The body of a kernel, with the results of tensor cores stored in vectors."""
        return nest.body

    def maps(self, body: Stmt, buffers: Sequence[Buffer]) -> tuple[TensorMap, ...]:
        """The tensor maps that a kernel takes; `buffers` are those of the program."""
        return ()

    def by_map(self, body: Stmt) -> set[Buffer]:
        """The buffers that a kernel uses through its maps alone, and has no pointers of."""
        return set()

    def fenced(self, helpers: dict[str, str]) -> str:
        """The fence, its function among the `helpers`."""
        raise NotImplementedError

    def text(self, writer: Any, s: Instruction) -> str:
        """An instruction."""
        raise NotImplementedError

    def wait(self, writer: Any, product: Instruction) -> str:
        """What waits for a product of a group of warps."""
        raise NotImplementedError

    def goes_beside(self, s: Stmt, product: Instruction) -> bool:
        """Whether a product of a group of warps, already begun, goes on during a statement."""
        raise NotImplementedError


def pipelines_of(body: Stmt) -> Pipelines:
    """What is asked about the pipelines of a kernel.  Raises EmitError where the extension is not installed."""
    there = any(
        (isinstance(s, Barrier) and s.publishes) or (isinstance(s, Alloc) and s.buffer.pipelined)
        for s in stmts_of(body)
    )
    made: Pipelines = _part("cuda_pipelines", "pipeline")() if there else Pipelines()
    return made


def tensor_cores_of(body: Stmt) -> TensorCores:
    """What is asked about the tensor cores of a kernel.  Raises EmitError where the extension is not installed."""
    there = any(isinstance(s, Instruction) for s in stmts_of(body))
    made: TensorCores = _part("cuda_tensor_cores", "tensor_core")(body) if there else TensorCores()
    return made


def _part(name: str, extension: str) -> Any:
    found = installed_part(name)
    law = f"kernels like this need the extension {extension!r}, which is not installed"
    require(found is not None, EmitError, "cuda", law)
    return found


def emitted_nests(func: LoweredFunc) -> tuple[list[KernelNest], list[Buffer]]:
    """The kernels of a program in the form that they are written in, and its scratch buffers (`kernel_nests`).

    Raises EmitError for one that has no such form.
    """
    nests, scratch = kernel_nests(func)
    nests = list(map(required_part("open_grid"), nests)) if func.sizes else nests
    return [tensor_cores_of(nest.body).nest(nest) for nest in nests], scratch
