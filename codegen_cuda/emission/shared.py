"""The shared memory of a kernel: its shared buffers, then the work space of its reductions, each 16-byte aligned."""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.expr.dtype import BYTES
from te_lite.loops.stmt import Buffer

from ..program.cuda_program import VECTOR_BYTES, KernelNest
from ..text.reduce import workspace_slots
from .kernel_parts import tensor_cores_of


@dataclass(frozen=True)
class SharedArray:
    """`size` elements from byte `start` on; `buffer` is None for work space, which `key` tells apart."""

    buffer: Buffer | None
    key: str
    dtype: str
    size: int
    start: int

    @property
    def end(self) -> int:
        """The first byte after it that is a multiple of 16."""
        return self.start + -(-BYTES[self.dtype] * self.size // VECTOR_BYTES) * VECTOR_BYTES


def shared_layout(nest: KernelNest) -> tuple[SharedArray, ...]:
    """All shared arrays of a kernel, one after the other; first those that tensor cores read themselves, of which each
    is a multiple of what they are aligned to."""
    out: list[SharedArray] = []
    tiles = tensor_cores_of(nest.body).tiles(nest.body)
    for b in sorted(nest.allocated("shared"), key=lambda b: b not in tiles):
        out.append(SharedArray(b, "", b.dtype, max(b.size, 1), out[-1].end if out else 0))
    for key, size in workspace_slots(nest).items():
        out.append(SharedArray(None, key, key.split()[0], size, out[-1].end if out else 0))
    return tuple(out)
