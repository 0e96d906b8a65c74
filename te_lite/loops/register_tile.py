"""Which tile of sums an emitter for processors keeps in registers, and what the tile reads; ints and lanes alike.

    vector loop     cut into pieces of one machine vector each: whole vectors, then what is left, masked or by halves
    register tile   the loops of the sums inside some point of a nest, with all iterations side by side in registers
                    while the reduction runs; in parts that fit where all of it does not
    operands        what one step of the reduction reads for the whole tile: vectors, elements for all lanes, gathers

`codegen_c` executes the first two on the loops of a lowered program, with ints.  Features and the analytical model of
processors read all of it from the bounds of thousands of programs, in lanes (`ansor.features.held_sums`).  So nothing
here asks for the truth of an extent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..expr.lanes import both, larger, product, smaller, where

Value = Any
"""An int, a bool, or lanes of them."""

MAX_PIECES = 8
"""Whole vectors that are written out; more of them become a loop."""
MASKED_DTYPES = ("int32", "int64", "float32", "float64")
VECTOR_DTYPES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
)  # fmt: skip
"""What vectors may consist of, and what they can be read and written in part of."""


@dataclass(frozen=True)
class VectorUnit:
    """`registers` vectors of `bytes` bytes, of which `spare` hold operands; `masks`: vectors can be used in part."""

    bytes: int
    registers: int
    masks: bool = False
    spare: int = 4

    @property
    def sums(self) -> int:
        """How many vectors of sums may be held."""
        return self.registers - self.spare

    @staticmethod
    def of(vector_bytes: int) -> VectorUnit:
        """The usual one with vectors of this size: AVX-512VL for 64 bytes, else AVX2 or SSE."""
        return VectorUnit(vector_bytes, 32, masks=True) if vector_bytes >= 64 else VectorUnit(vector_bytes, 16)


# ------------------------------------------------------------------------------------------------------- vectors


@dataclass(frozen=True)
class Pieces:
    """A vector loop in pieces: `whole` vectors of `lanes` elements, then `rest` elements in `tails` vectors.

    `looped`: the whole vectors are the iterations of a loop.  `masked`: the rest is one vector that is used in part.
    """

    lanes: int
    whole: Value
    rest: Value
    tails: Value
    looped: Value
    masked: Value

    @property
    def lengths(self) -> list[int]:
        """The elements of each piece behind a loop over whole vectors, in order; asked of ints only."""
        whole = 0 if self.looped else self.whole
        left = powers_of_two(self.lanes // 2)
        tails = [self.rest] if self.masked else [bit for bit in left if self.rest // bit % 2]
        return [self.lanes] * whole + tails

    @property
    def count(self) -> Value:
        """How many vectors there are."""
        return self.whole + self.tails

    @property
    def width(self) -> Value:
        """The elements of a piece, on average."""
        return (self.whole * self.lanes + self.rest) / self.count

    @property
    def together(self) -> Value:
        """The pieces that stand side by side: all of them, or one where they are the iterations of a loop."""
        return where(self.looped, 1, self.count)

    @property
    def widths(self) -> Value:
        """How many sizes of vectors there are: each has a register of its own for an element that all lanes read."""
        as_whole = both(both(self.masked, self.whole > 0), self.rest > self.lanes // 2)
        return smaller(self.whole, 1) + where(as_whole, 0, self.tails)

    @property
    def iterations(self) -> Value:
        """The iterations of the loop over whole vectors; 1 without one."""
        return where(self.looped, self.whole, 1)

    @property
    def split(self) -> Value:
        """A loop over whole vectors, and something behind it: no perfect nest."""
        return both(self.looped, self.rest != 0)


def vector_pieces(extent: Value, lanes: int, masks: bool) -> Pieces:
    """How a vector loop of `extent` elements is cut for vectors of `lanes`, a power of two; `masks`: they may be used
    in part."""
    whole, rest = extent // lanes, extent % lanes
    halves = sum([rest // bit % 2 for bit in powers_of_two(lanes // 2)], rest * 0)
    masked = both(halves > 1, masks)
    return Pieces(lanes, whole, rest, smaller(halves, 1) if masks else halves, whole > MAX_PIECES, masked)


def powers_of_two(most: int) -> list[int]:
    """Those up to `most`, the greatest first."""
    return [1 << k for k in reversed(range(most.bit_length()))]


# --------------------------------------------------------------------------------------------------------- tiles


@dataclass(frozen=True)
class TileLoop:
    """A loop of a perfect nest around an accumulation; `sums`: the sum that is added to moves with it, else it is one
    of the reduction."""

    extent: Value
    sums: Value


@dataclass(frozen=True)
class RegisterTile:
    """What the nest keeps in registers; loops are numbered from the outside in.

    `kept`: anything is; all else tells nothing where it is not.  `inside[j]`: loop j runs while the sums are held.
    `held[j]`: how many of its iterations are side by side, 1 for those of the reduction and outside; where that is less
    than the extent, the loop is done in parts, in a loop around the reduction: `parts` in all.  `vectors` sums are
    held, for `steps` steps of the reduction.
    """

    kept: Value
    inside: tuple[Value, ...]
    held: tuple[Value, ...]
    vectors: Value
    parts: Value
    steps: Value


def register_tile(
    loops: Sequence[TileLoop], vectors: Value, room: int, divisor: Callable[[Value, Value, int], Value] | None = None
) -> RegisterTile:
    """The tile of a perfect nest, `vectors` sums at the bottom of which are side by side, in `room` registers.

    `divisor` stands for `largest_divisor` where it is asked often.
    The sums are those of the outermost loop inside which all of them fit.  Where not even those inside the innermost
    reduction loops do, they are done in parts that fit, the outer loops in the smallest ones.
    """
    inside: list[Value] = []
    begun: Value = False
    for holds in _holds(loops, vectors, room):
        begun = _either(begun, holds)
        inside.append(begun)
    moved = [both(i, x.sums) for i, x in zip(inside, loops, strict=True)]
    size = product([vectors, *[where(m, x.extent, 1) for m, x in zip(moved, loops, strict=True)]])
    held = _held(loops, moved, size, room, divisor or largest_divisor)
    sums = vectors * product(held)
    steps = product([where(both(i, _not(x.sums)), x.extent, 1) for i, x in zip(inside, loops, strict=True)])
    return RegisterTile(begun, tuple(inside), held, sums, size // sums, steps)


def _holds(loops: Sequence[TileLoop], vectors: Value, room: int) -> list[Value]:
    """For each loop, whether the sums can be held while it and those inside run: they fit, or in parts they do."""
    found: list[Value] = []
    size: Value = vectors
    reduces: Value = False
    ordered: Value = True
    for loop in reversed(loops):
        runs = loop.extent > 1
        ordered = both(ordered, _not(both(both(loop.sums, runs), reduces)))
        reduces = _either(reduces, both(_not(loop.sums), runs))
        size = size * where(loop.sums, loop.extent, 1)
        found.append(both(reduces, _either(size <= room, both(ordered, vectors <= room))))
    return found[::-1]


def _held(
    loops: Sequence[TileLoop], moved: Sequence[Value], size: Value, room: int, divisor: Callable[..., Value]
) -> tuple[Value, ...]:
    """How much of each loop is held, from the outside in, of `size` sums: all of it once the rest fits."""
    held = []
    for m, loop in zip(moved, loops, strict=True):
        extent = where(m, loop.extent, 1)
        rest = size // extent
        held.append(where(size <= room, extent, divisor(extent, larger(room // rest, 1), room)))
        size = rest * held[-1]
    return tuple(held)


def largest_divisor(n: Value, limit: Value, most: int) -> Value:
    """The largest divisor of `n` that is at most `limit`, which itself is at most `most`."""
    found: Value = 1
    for d in range(2, most + 1):
        found = where(both(n % d == 0, d <= limit), d, found)
    return found


def _not(value: Value) -> Value:
    return not value if isinstance(value, bool) else ~value


def _either(a: Value, b: Value) -> Value:
    return (a or b) if isinstance(a, bool) and isinstance(b, bool) else a | b


# ------------------------------------------------------------------------------------------------------ operands


@dataclass(frozen=True)
class Units:
    """What one step of the reduction reads of an operand for a whole tile: `count` different vectors or elements, of
    which `live` wait in registers for the sums that read them later."""

    count: Value
    live: Value


def operand_units(held: Sequence[Value], moves: Sequence[Value]) -> Units:
    """What a tile reads of an operand; `held` are the iterations of its loops, `moves` whether each moves the operand.

    The sums are written out in the order of the loops, the first one outermost, and a value that several of them read
    is loaded before the first.  So what the loops inside one that leaves the operand in place read stays in registers
    while that one runs.
    """
    count: Value = 1
    live: Value = 1
    again: Value = False
    for iterations, moved in zip(held, moves, strict=True):
        again = _either(again, both(_not(moved), iterations > 1))
        count = count * where(moved, iterations, 1)
        live = live * where(both(moved, again), iterations, 1)
    return Units(count, where(again, live, 0))
