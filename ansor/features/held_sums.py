"""The sums that a stage of a program keeps in registers on a processor, as the C target will write it; in lanes.

What is held and in what parts is said by `te_lite.loops.register_tile`, which the emitter executes on the loops of a
lowered program.  Here the same loops are found in the bounds of programs that nobody lowers: those of a reduction from
its outermost reduction loop on, before which the sums are set to zero, inside all that others are computed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.footprint import BufferAccess, Footprint
from te_lite.bounds.loop_scope import LoopKey
from te_lite.bounds.nest import Loop, Nest
from te_lite.bounds.overrun import reach_beyond, runs_over
from te_lite.bounds.reads import Affine, Form, reads_by
from te_lite.expr.lanes import larger, product, smaller
from te_lite.loops.register_tile import (
    MASKED_DTYPES,
    VECTOR_DTYPES,
    Pieces,
    RegisterTile,
    TileLoop,
    VectorUnit,
    largest_divisor,
    operand_units,
    register_tile,
    vector_pieces,
)
from te_lite.schedule.state import ATTACHED, INLINED, SplitRel

from ..sketch.shared_memory import element_bytes
from ..space.programs import Programs
from ..space.trace import recorded

Value = Any
"""An int, a bool, or lanes of them."""


@dataclass(frozen=True)
class Operand:
    """What one step of the reduction reads of an operand, for all sums that are held, or for one vector of sums.

    It is `count` different values: `vectors`; `broadcasts`, elements that all lanes read, once for each size of
    vectors; or made of `elements` that are read one by one, as they lie apart or may lie behind the edge.  `live`
    registers hold some for sums that come later.
    """

    count: Value
    vectors: Value
    broadcasts: Value
    elements: Value
    live: Value


@dataclass(frozen=True)
class HeldSums:
    """The register tile of a stage.

    `kept`: sums are held; else they are in memory, and a tile is one vector of sums.  `vectorized`: they are vectors,
    cut into `pieces`.  `runs`: how many iterations of each loop a tile takes side by side, elements of vectors
    included.
    """

    kept: Value
    vectorized: Value
    pieces: Pieces
    tile: RegisterTile
    runs: Mapping[LoopKey, Value]
    operands: tuple[Operand, ...]
    unit: VectorUnit

    @property
    def vectors(self) -> Value:
        """The vectors (or single elements) of sums of a tile."""
        return np.where(self.kept, self.tile.vectors, self.pieces.together)

    @property
    def registers(self) -> Value:
        """The registers that hold sums."""
        return np.where(self.kept, self.tile.vectors, 0)

    @property
    def steps(self) -> Value:
        """For how many steps of the reduction sums stay there; 1 where they are in memory."""
        return np.where(self.kept, self.tile.steps, 1)

    @property
    def parts(self) -> Value:
        """In how many parts the sums are done, one after the other; 1 where all fit, and where none are held."""
        return np.where(self.kept, self.tile.parts, 1)

    @property
    def loads(self) -> Value:
        """Vectors that a step reads for a tile."""
        return sum([x.vectors for x in self.operands])

    @property
    def broadcasts(self) -> Value:
        """Elements for all lanes that a step reads for a tile."""
        return sum([x.broadcasts for x in self.operands])

    @property
    def elements(self) -> Value:
        """Elements that a step reads one by one for a tile."""
        return sum([x.elements for x in self.operands])

    @property
    def live(self) -> Value:
        """The registers that hold operands; at least one, for what is read last."""
        return larger(sum([x.live for x in self.operands]), 1)

    @property
    def spilled(self) -> Value:
        """How many values there is no register for, of the sums and operands of a tile."""
        return larger(self.registers + self.live - self.unit.registers, 0)


def held_sums(
    programs: Programs, nest: Nest, nests: Mapping[int, Nest], reads: Sequence[BufferAccess], unit: VectorUnit
) -> HeldSums | None:
    """What the stage of `nest` holds; None for one that does not reduce, or has something else inside its reduction.

    `nests` are those of all stages; `reads` is what the stage reads.  All arithmetic is that of ints or lanes.
    """
    bounds, k = programs.bounds, nest.stage
    op = bounds.state.stages[k].compute
    inner = _inside_reduction(nest, nests)
    if op.num_outputs > 1 or not inner:
        return None
    footprint = Footprint(bounds, k, {_key(x): _extent(bounds, x) for x in nest.loops})
    write = buffer_access(bounds, k, None)
    loops = _lanes_joined([_loop(programs, x, footprint.stride(write, _key(x))) for x in inner])
    elements = product([np.where(x.lane, x.extent, 1) for x in loops])
    pieces = vector_pieces(elements, *_vectors_of((op.dtype, *[bounds.state.ops[x.buffer].dtype for x in reads]), unit))
    around = [TileLoop(np.where(x.lane, 1, x.extent), x.stride != 0) for x in loops]
    tile = register_tile([*around, TileLoop(pieces.iterations, np.True_)], pieces.together, unit.sums, _tabled_divisor)
    kept = tile.kept & ~_lanes_of(guarded(bounds, k)) & ~pieces.split
    held = [np.where(kept, iterations, 1) for iterations in tile.held]
    runs = {x.key: np.where(x.lane, x.extent, iterations) for x, iterations in zip(loops, held[:-1], strict=True)}
    beyond = _pieces_beyond(bounds, k, footprint, loops, held, pieces)
    operands = [_operand(footprint, x, loops, (*held, pieces.together), pieces, beyond) for x in reads]
    return HeldSums(kept, elements > 1, pieces, tile, runs, tuple(operands), unit)


TABLED = 2048
"""Extents whose divisors are looked up."""


@lru_cache
def _divisors(most: int) -> Value:
    """The largest divisor up to `limit` of n, by n and `limit`: int64 [TABLED + 1, most + 1]."""
    n = np.arange(TABLED + 1)
    columns = [np.ones(TABLED + 1, np.int64)]
    for d in range(1, most + 1):
        columns.append(np.where(n % d == 0, d, columns[-1]))
    return np.stack(columns, axis=1)


@recorded
def _tabled_divisor(n: Value, limit: Value, most: int) -> Value:
    """`largest_divisor`, in one operation of a trace."""
    return largest_divisor(n, limit, most) if np.any(n > TABLED) else _divisors(max(most, 1))[n, limit]


# --------------------------------------------------------------------------------------------------------- loops


@dataclass(frozen=True)
class _Loop:
    """A loop inside a reduction: by how much the sums move with it (0: they stay), and whether it is vector lanes."""

    key: LoopKey
    extent: Value
    stride: Value
    lane: Value


def _key(loop: Loop) -> LoopKey:
    return loop.stage, loop.uid


def _extent(bounds: Bounds, loop: Loop) -> Value:
    return bounds.state.stages[loop.stage].vars[loop.uid].extent


def _inside_reduction(nest: Nest, nests: Mapping[int, Nest]) -> tuple[Loop, ...]:
    """The own loops from the outermost one of the reduction on, around nothing but the stage."""
    own = nest.loops[nest.around :]
    shared = {_key(x) for other in nests.values() if other.stage != nest.stage for x in other.loops}
    first = min([x.place for x in own if x.reduce], default=len(own))
    taken = [n for n, x in enumerate(own) if x.place < first or _key(x) in shared]
    inside = own[max(taken, default=-1) + 1 :]
    return inside if any(x.reduce for x in inside) else ()


def _loop(programs: Programs, loop: Loop, stride: Value) -> _Loop:
    count = programs.vectorize.get(loop.stage)
    lane = loop.tag == "vectorize" if count is None else loop.place >= loop.count - count
    return _Loop(_key(loop), _extent(programs.bounds, loop), stride, _lanes_of(lane))


def _lanes_joined(loops: Sequence[_Loop]) -> list[_Loop]:
    """The loops, those that are to be lanes as lanes only where the sums of all of them lie side by side."""
    elements: Value = 1
    joined: Value = np.True_
    for x in reversed(loops):
        joined = joined & (~x.lane | np.equal(x.extent, 1) | np.equal(x.stride, elements))
        elements = elements * np.where(x.lane, x.extent, 1)
    return [replace(x, lane=x.lane & joined) for x in loops]


def _vectors_of(dtypes: Sequence[str], unit: VectorUnit) -> tuple[int, bool]:
    """The elements of a vector of values of these types, and whether it can be used in part."""
    computed = {"float32" if d == "float16" else d for d in dtypes}
    found = unit.bytes // max(map(element_bytes, computed)), unit.masks and set(dtypes) <= set(MASKED_DTYPES)
    return found if computed <= set(VECTOR_DTYPES) else (1, False)


def _lanes_of(value: Any) -> Value:
    """A truth value as one that `~` turns round."""
    return np.bool_(value) if isinstance(value, bool) else value


def guarded(bounds: Bounds, k: int) -> Value:
    """Some split of stage `k` runs over the end of what it splits, and the stage stores where others see it."""
    state = bounds.state
    stage, arguments = state.stages[k], [t.op.key for t in state.dag.tensors]
    over: Any = np.False_
    for rel in stage.relations if not runs_over(state, k, arguments) else ():
        if isinstance(rel, SplitRel):
            covered = product([stage.vars[child].extent for child in rel.children])
            whole: Any = stage.vars[rel.parent].extent
            over = over | np.greater(covered, whole)
    return over


# ------------------------------------------------------------------------------------------------------ operands


def reads_of(bounds: Bounds, k: int) -> list[BufferAccess]:
    """What stage k reads, in stage order."""
    hidden = frozenset([n for n, s in enumerate(bounds.state.stages) if s.where == INLINED])
    return [buffer_access(bounds, p, read.forms) for p, read in reads_by(k, bounds.state.ops, hidden)]


def buffer_access(bounds: Bounds, buffer: int, forms: tuple[Form, ...] | None) -> BufferAccess:
    """How a stage reads a buffer by `forms`, or writes its own (None).

    A buffer that is computed inside a loop has the shape of the region that is computed there.
    """
    stage = bounds.state.stages[buffer]
    attached = stage.where == ATTACHED and not stage.is_placeholder
    rank = len(stage.op.shape)
    shape = tuple([r.extent for r in bounds.regions[buffer][:rank]]) if attached else stage.op.shape
    scope = "global" if stage.is_placeholder else bounds.storage(buffer)
    if forms is None and stage.storage_order is not None:
        forms = tuple([Affine(((d, 1),), 0) for d in range(rank)])
    stored = None if forms is None else stage.stored(forms)
    return BufferAccess(buffer, stored, stage.stored(shape), scope, element_bytes(stage.op.dtype))


def _pieces_beyond(
    bounds: Bounds, k: int, footprint: Footprint, loops: Sequence[_Loop], held: Sequence[Value], pieces: Pieces
) -> Value:
    """The share of the pieces of a tile that may lie behind the edge, where a stage may compute beyond it."""
    state, arguments = bounds.state, [t.op.key for t in bounds.state.dag.tensors]
    share: Value = 0
    for axis, size in enumerate(state.ops[k].shape) if runs_over(state, k, arguments) else ():
        steps = [(x, n, footprint.steps(x.key)[axis]) for x, n in zip(loops, held, strict=False)]
        moving = [(x, n, np.not_equal(step, 0)) for x, n, step in steps if not (isinstance(step, int) and step == 0)]
        lanes = sum([moves & x.lane for x, _, moves in moving]) > 0
        iterations = product([np.where(moves, n, 1) for _, n, moves in moving]) * pieces.together
        over = np.ceil(reach_beyond(bounds.regions[k][axis], size) / pieces.width)
        share = larger(share, np.where(lanes, smaller(over, iterations) / iterations, 0))
    return share


def _operand(
    footprint: Footprint,
    access: BufferAccess,
    loops: Sequence[_Loop],
    held: Sequence[Value],
    pieces: Pieces,
    beyond: Value,
) -> Operand:
    """What a tile of `held` iterations of the loops, and the pieces of vectors last, reads.

    The share `beyond` of vectors of memory, which may lie behind the edge, is read element by element, none behind it.
    """
    vectorized: Value = np.False_
    side_by_side: Value = np.True_
    stays: Value = np.True_
    for x in loops:
        along, stride = x.lane & np.greater(x.extent, 1), footprint.stride(access, x.key)
        vectorized = vectorized | along
        side_by_side = side_by_side & (~along | np.equal(stride, x.stride))
        stays = stays & (~along | np.equal(stride, 0))
    moves = [np.not_equal(footprint.stride(access, x.key), 0) & ~x.lane for x in loops]
    # the pieces, one after the other in the innermost place, and a loop over whole vectors before them
    units = operand_units(held, [*moves, *[~vectorized | ~stays] * 2])
    vectors, broadcasts = vectorized & side_by_side, vectorized & stays
    clamped = np.where(vectors, units.count * beyond, 0) if access.scope == "global" else 0
    return Operand(
        units.count,
        np.where(vectors, units.count, 0) - clamped,
        np.where(broadcasts, units.count * pieces.widths, 0),
        np.where(vectors | broadcasts, clamped, units.count) * pieces.width,
        units.live * np.where(broadcasts, pieces.widths, 1),
    )
