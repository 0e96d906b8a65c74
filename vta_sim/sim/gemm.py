"""The matrix products of one GEMM instruction, as a few large ones.

Additions that wrap around can be done in any order, so only this counts: which (input, weight) pairs does each
accumulator gather?  Accumulators that gather the same weights from different inputs are rows of one product, those that
gather the same inputs with different weights are columns of it.  A convolution of a tile becomes one product of
(pixels, window) by (window, output channels), whatever loops and micro-ops it was written with.

Products of floats are exact here: a product of two int8 is at most 2^14, so float32 holds any sum of up to 2^10 of
them, and float64 of up to 2^39.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..core.config import Config
from ..core.kinds import Memory
from ..isa.fields import Ints
from .iteration_space import InstructionLoops, check_indices, walk
from .sram import Sram

_FLOAT32_TERMS = 1 << 10


@dataclass(frozen=True, eq=False)
class Product:
    """ACC[dst[m, n]] += sum over k of INP[src[m, k]] WGT[wgt[n, k]]^T, with no accumulator twice."""

    dst: Ints
    src: Ints
    wgt: Ints


@dataclass(frozen=True, eq=False)
class GemmPlan:
    """What an instruction does with the micro-ops it finds: products one after the other, or accumulators to clear."""

    products: tuple[Product, ...]
    cleared: Ints

    def run(self, sram: Sram) -> None:
        """Execute it."""
        if len(self.cleared):
            sram.acc[self.cleared] = 0
        for product in self.products:
            _multiply(sram, product)


@lru_cache(maxsize=256)
def gemm_plan(config: Config, loops: InstructionLoops, reset: bool, uop_bytes: bytes) -> GemmPlan:
    """The plan of an instruction; the 256 that were asked for last are remembered.

    Raises MachineError when an index leaves its memory.
    """
    uops = np.frombuffer(uop_bytes, np.uint32)
    memories = (Memory.ACC, None, None) if reset else (Memory.ACC, Memory.INP, Memory.WGT)
    check_indices(config, loops, uops, memories)
    space = walk(config, loops, uops)
    if reset:
        touched = [np.unique(dst) for dst, _, _ in space]
        return GemmPlan((), np.unique(np.concatenate(touched)) if touched else np.zeros(0, np.int64))
    return GemmPlan(tuple(p for dst, src, wgt in space for p in _products(dst, src, wgt)), np.zeros(0, np.int64))


def _products(dst: Ints, src: Ints, wgt: Ints) -> Iterator[Product]:
    """Products that are together the iterations (dst, src, wgt), int64 [n] each."""
    rank = np.lexsort((wgt, dst))
    dst, src, wgt = dst[rank], src[rank], wgt[rank]
    accumulators, first, terms = np.unique(dst, return_index=True, return_counts=True)
    for count in np.unique(terms).tolist():
        chosen = terms == count
        window = first[chosen, None] + np.arange(count)
        yield from _same_length(accumulators[chosen], src[window], wgt[window])


def _same_length(dst: Ints, src: Ints, wgt: Ints) -> Iterator[Product]:
    """Products of accumulators dst [d] that gather k pairs each: src [d, k], wgt [d, k]."""
    # Rows of a product share their weights and columns their inputs: accumulators are grouped by weights first, and
    # groups that read the same inputs in the same order are joined.
    by_weights: dict[bytes, list[int]] = {}
    for d, row in enumerate(wgt):
        by_weights.setdefault(row.tobytes(), []).append(d)
    by_inputs: dict[bytes, list[list[int]]] = {}
    for members in by_weights.values():
        by_inputs.setdefault(src[members].tobytes(), []).append(members)
    for columns in by_inputs.values():
        table = np.array(columns)
        yield Product(dst[table.T], src[table[0]], wgt[table[:, 0]])


def _multiply(sram: Sram, p: Product) -> None:
    (m, n), k = p.dst.shape, p.src.shape[1]
    batch, block_in = sram.inp.shape[1:]
    block_out = sram.wgt.shape[1]
    terms = k * block_in
    left, right = sram.inp[p.src], sram.wgt[p.wgt]
    rows = (left if batch == 1 else left.transpose(0, 2, 1, 3)).reshape(m * batch, terms)
    cols = right.transpose(0, 2, 1, 3).reshape(n * block_out, terms)
    # float64 only where a sum of this many products may need more than the 24 bits of float32
    if terms > _FLOAT32_TERMS:
        sums = (rows.astype(np.float64) @ cols.T.astype(np.float64)).astype(np.int64).astype(np.int32)
    else:
        sums = (rows @ cols.T).astype(np.int32)
    sram.acc[p.dst] += sums.reshape(m, batch, n, block_out).transpose(0, 2, 1, 3)
