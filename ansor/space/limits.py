"""Which programs a machine can run, told from extents alone.

`fits` asks bounded programs; `rows_fit` asks decisions, for what they tell without bounds, and is cheap enough to
draw a mutation again.  Ints and lanes are treated alike.  CPUs have no limit but the length of a vector loop that the
search makes; one that a sketch has is a loop over whole vectors there, as long as the rows that it copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.loop_scope import THREADS, kernel_of
from te_lite.expr.lanes import larger, product, where
from te_lite.schedule.state import INLINED, Stage

from ..core.target.hardware import HardwareParams
from ..sketch.shared_memory import element_bytes, shared_bytes
from .decisions.draw import Mask, Matrix
from .programs import Programs
from .spaces import Space
from .trace import Replayer, Symbol

VECTORS_PER_LOOP = 8
"""A vector loop may be cut into so many vectors of `vector_unit_bytes`; the CUDA emitter writes no longer ones."""

MAX_ACCUMULATORS = 16384
"""Elements of the local arrays of one thread, virtual threads included.

They are meant for registers, of which a thread has 255; the compiler spills the rest to memory.  64 times as many
(64 KiB) is far beyond anything fast, and the largest that TVM kept in a log of 64 measured matmuls, so nothing that
its search finds worth measuring is masked.
"""


def fits(programs: Programs, hardware: HardwareParams) -> Mask:
    """Which programs keep to the limits of `hardware`: bool [programs.n].

    threads of a block, virtual threads of a stage, bytes of shared memory of a block, elements and bytes of the local
    arrays of a thread, bytes of a vector loop.  All do on a machine of another kind, whose decisions keep its limits.
    """
    if hardware.of_another_kind:
        return np.ones(programs.n, np.bool_)
    replayed = _player.replayed(programs, hardware)
    everything = slice(0, programs.n)
    kept = _kept(programs, hardware) if replayed is None else [*replayed.lanes(everything), replayed.meaning]
    out = np.ones(programs.n, np.bool_)
    for limit in kept:
        out &= limit
    return out


def _kept(programs: Programs, hardware: HardwareParams) -> list[Any]:
    """For each limit whether it is kept: bools or lanes."""
    blocks = hardware.max_threads_per_block > 0
    numbers: list[tuple[Any, int]] = [
        (n, hardware.vector_unit_bytes * VECTORS_PER_LOOP) for n in vector_bytes(programs, of_sketches=blocks)
    ]
    if blocks:
        numbers += _of_blocks(programs.bounds, hardware)
    return [number <= most for number, most in numbers]


def _of_blocks(bounds: Bounds, hardware: HardwareParams) -> Iterator[tuple[Any, int]]:
    """What blocks and threads have, and the most of it; arrays that a CPU keeps for a loop are `local`, too."""
    yield from [(n, hardware.max_threads_per_block) for n in threads_per_block(bounds).values()]
    yield from [(_bound_to(s, "vthread"), max(hardware.max_vthread_extent, 1)) for s in bounds.state.stages]
    yield from [(n, hardware.max_shared_memory_per_block) for n in shared_bytes(bounds).values()]
    for elements, size in accumulators(bounds).values():
        yield elements, MAX_ACCUMULATORS
        yield size, hardware.max_local_memory_per_block


def _kept_lanes(programs: Programs, hardware: HardwareParams) -> tuple[list[Any], bool]:
    """The limits that depend on the row, and whether all others are kept."""
    kept = _kept(programs, hardware)
    return [x for x in kept if isinstance(x, Symbol)], all(x for x in kept if not isinstance(x, Symbol))


_player = Replayer(_kept_lanes)


def _bound_to(stage: Stage, tag: str) -> Any:
    return product([it.extent for it in stage.iters if it.annotation == tag])


def threads_per_block(bounds: Bounds) -> dict[int, Any]:
    """The threads of a block of each kernel, by its root stage."""
    state = bounds.state
    extents: dict[int, dict[str, Any]] = {}
    for k, stage in enumerate(state.stages):
        for tag in THREADS:
            if any(it.annotation == tag for it in stage.iters):
                of_kernel = extents.setdefault(kernel_of(state, k), {})
                of_kernel[tag] = larger(of_kernel.get(tag, 1), _bound_to(stage, tag))
    return {kernel: product(list(tags.values())) for kernel, tags in extents.items()}


def accumulators(bounds: Bounds) -> dict[int, tuple[Any, Any]]:
    """Elements and bytes of the local arrays of one thread of each kernel, by its root stage.

    A local array is there once for every virtual thread around it; of one that is shared out a thread has its part.
    """
    state = bounds.state
    out: dict[int, tuple[Any, Any]] = {}
    for k, stage in enumerate(state.stages):
        if bounds.storage(k) == "local" and stage.attach is not None and stage.where != INLINED:
            points = bounds.kept_points(k)
            copies = product([_bound_to(outer, "vthread") for outer in _around(bounds, k)])
            kernel = kernel_of(state, k)
            elements, size = out.get(kernel, (0, 0))
            out[kernel] = elements + points * copies, size + points * copies * element_bytes(stage.op.dtype)
    return out


def _around(bounds: Bounds, k: int) -> Iterator[Stage]:
    """The stages in whose loops stage `k` is computed."""
    attach = bounds.state.stages[k].attach
    while attach is not None:
        stage = bounds.state.stages[attach.stage]
        yield stage
        attach = stage.attach


def vector_bytes(programs: Programs, of_sketches: bool = True) -> Iterator[Any]:
    """The bytes of the vector loops of each stage that may have some; those that are decided already `of_sketches`."""
    for k, stage in enumerate(programs.bounds.state.stages):
        if stage.is_placeholder or stage.where == INLINED:
            continue
        lanes = _bound_to(stage, "vectorize")
        count = programs.vectorize.get(k)
        if count is not None:
            inside = reversed(stage.iters)
            lanes = product([where(depth < count, it.extent, 1) for depth, it in enumerate(inside)])
        elif not of_sketches:
            continue
        yield lanes * element_bytes(stage.op.dtype)


# ------------------------------------------------------------------------------------------------ decisions


def rows_fit(space: Space, rows: Matrix, hardware: HardwareParams) -> Mask:
    """Which rows have numbers that sampling could have drawn, of threads and virtual threads for one: bool [n].

    Sampling wants at least a warp where the output has that many points.  All rows of a CPU fit.
    """
    out = np.ones(len(rows), np.bool_)
    for decision in space.decisions:
        out &= decision.fits(space.of(decision.name), rows, space.sketch, hardware)
    return out
