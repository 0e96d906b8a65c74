"""The iteration space of one GEMM or ALU instruction as lists of indices, in the order in which it is walked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from te_lite.errors import require

from ..core.config import Config
from ..core.errors import MachineError
from ..core.kinds import Memory
from ..isa.fields import Ints
from ..isa.uop import Uops, unpack_uops

CHUNK = 1 << 16
"""At most so many iterations are laid out at once."""


@dataclass(frozen=True)
class InstructionLoops:
    """The two loops of an instruction: extents, and how far each moves (dst, src, wgt)."""

    extents: tuple[int, int]
    outer: tuple[int, int, int]
    inner: tuple[int, int, int]


def check_indices(config: Config, loops: InstructionLoops, uops: Uops, memories: tuple[Memory | None, ...]) -> None:
    """Raise MachineError when an index (dst, src, wgt) leaves its memory; None is an index that is not used."""
    if min(loops.extents) < 1 or not len(uops):
        return
    for k, (memory, index) in enumerate(zip(memories, unpack_uops(config, uops), strict=True)):
        if memory is not None:
            last = int(index.max()) + (loops.extents[0] - 1) * loops.outer[k] + (loops.extents[1] - 1) * loops.inner[k]
            depth = config.depth(memory)
            name = ("dst", "src", "wgt")[k]
            law = f"the index {name} of a micro-op must stay below {depth}, the elements of {memory.name}"
            require(last < depth, MachineError, "compute", law, reaches=last)


def walk(config: Config, loops: InstructionLoops, uops: Uops) -> Iterator[tuple[Ints, Ints, Ints]]:
    """The indices (dst, src, wgt) of all iterations, int64 [at most CHUNK] at a time, innermost the micro-ops."""
    base = unpack_uops(config, uops)
    (extent_out, extent_in), n = loops.extents, len(uops)
    total = extent_out * extent_in * n
    for start in range(0, total, CHUNK):
        at = np.arange(start, min(start + CHUNK, total))
        u, rest = at % n, at // n
        y, x = rest // extent_in, rest % extent_in
        dst, src, wgt = (b[u] + y * fo + x * fi for b, fo, fi in zip(base, loops.outer, loops.inner, strict=True))
        yield dst, src, wgt
