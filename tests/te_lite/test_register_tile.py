"""What is held in registers: tiles fit, are the outermost that do, and are the same for ints and for lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from te_lite.loops.register_tile import (
    MAX_PIECES,
    RegisterTile,
    TileLoop,
    VectorUnit,
    largest_divisor,
    operand_units,
    register_tile,
    vector_pieces,
)

LANES = 64
ROOMS = (1, 3, 12, 28)


class Untrue(np.ndarray):
    """Lanes that refuse to be asked for their truth."""

    def __bool__(self) -> bool:
        raise AssertionError("a lane was asked for its truth")


def at(value: Any, lane: int) -> Any:
    return np.broadcast_to(value, (LANES,))[lane]


def random_loops(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Extents and whether sums move, of 5 loops in LANES programs."""
    extents = np.array([1, 1, 2, 3, 4, 5, 7, 8, 12, 30])
    return [(rng.choice(extents, LANES), rng.random(LANES) < 0.6) for _ in range(5)]


def holds(loops: list[tuple[int, bool]], vectors: int, room: int) -> bool:
    """Whether the sums of a nest can be held, as the docstring of `register_tile` says it."""
    long = [(n, sums) for n, sums in loops if n > 1]
    fits = vectors * int(np.prod([n for n, sums in long if sums])) <= room
    reduction_first = [sums for _, sums in long] == sorted([sums for _, sums in long])
    return any(not sums for _, sums in long) and (fits or (reduction_first and vectors <= room))


def check_tile(tile: RegisterTile, loops: list[tuple[int, bool]], vectors: int, room: int) -> None:
    first = next((d for d in range(len(loops)) if holds(loops[d:], vectors, room)), None)
    assert tile.kept == (first is not None)
    if first is None:
        return
    assert list(tile.inside) == [d >= first for d in range(len(loops))]
    assert tile.vectors == vectors * np.prod(tile.held) <= room
    assert tile.steps == np.prod([n for n, sums in loops[first:] if not sums])
    left = vectors * int(np.prod([n for n, sums in loops[first:] if sums]))
    assert tile.parts * tile.vectors == left
    for d, ((extent, sums), held) in enumerate(zip(loops, tile.held, strict=True)):
        whole = extent if sums and d >= first else 1
        assert whole % held == 0
        rest = left // whole
        if left <= room:
            assert held == whole
        else:
            assert held == max([p for p in range(1, whole + 1) if whole % p == 0 and (p == 1 or rest * p <= room)])
        left = rest * held


@pytest.mark.parametrize("seed", range(12))
def test_tiles_are_the_outermost_that_fit_and_equal_in_lanes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loops, room = random_loops(rng), ROOMS[seed % len(ROOMS)]
    vectors = rng.integers(1, 9, LANES)
    wrapped = [TileLoop(n.view(Untrue), sums.view(Untrue)) for n, sums in loops]
    many = register_tile(wrapped, vectors.view(Untrue), room)
    for lane in range(LANES):
        mine = [(int(n[lane]), bool(sums[lane])) for n, sums in loops]
        one = register_tile([TileLoop(n, sums) for n, sums in mine], int(vectors[lane]), room)
        check_tile(one, mine, int(vectors[lane]), room)
        assert at(many.kept, lane) == one.kept
        assert [at(x, lane) for x in (*many.inside, *many.held)] == [*one.inside, *one.held]
        assert [at(x, lane) for x in (many.vectors, many.parts, many.steps)] == [one.vectors, one.parts, one.steps]


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
def test_pieces_cover_a_loop(lanes: int, masks: bool) -> None:
    extents = np.arange(1, 12 * lanes + 2)
    many = vector_pieces(extents.view(Untrue), lanes, masks)
    for k, extent in enumerate(extents.tolist()):
        one = vector_pieces(extent, lanes, masks)
        whole = one.iterations * lanes if one.looped else 0
        assert whole + sum(one.lengths) == extent
        assert all(0 < n <= lanes for n in one.lengths)
        assert one.looped == (extent // lanes > MAX_PIECES)
        assert one.split == (one.looped and extent % lanes > 0)
        odd = [n for n in one.lengths if n & (n - 1)]
        assert one.masked == bool(odd) and len(odd) <= masks
        assert one.widths == len({1 << (n - 1).bit_length() for n in [*one.lengths, *[lanes] * one.looped]})
        if not one.split:
            assert one.together == (1 if one.looped else len(one.lengths))
        for name in (
            "whole",
            "rest",
            "tails",
            "looped",
            "masked",
            "count",
            "together",
            "iterations",
            "split",
            "widths",
        ):
            assert np.broadcast_to(getattr(many, name), extents.shape)[k] == getattr(one, name), name


def test_operands_that_are_read_again_wait_in_registers() -> None:
    """Of 6 rows by 2 vectors, the two vectors of B wait for the next row, and an element of A for the next vector."""
    assert (operand_units((6, 2), (True, False)).count, operand_units((6, 2), (True, False)).live) == (6, 1)
    assert (operand_units((6, 2), (False, True)).count, operand_units((6, 2), (False, True)).live) == (2, 2)
    assert (operand_units((6, 2), (True, True)).count, operand_units((6, 2), (True, True)).live) == (12, 0)
    assert (operand_units((1, 2), (False, True)).count, operand_units((1, 2), (False, True)).live) == (2, 0)
    assert (operand_units((2, 3), (False, False)).count, operand_units((2, 3), (False, False)).live) == (1, 1)


def test_divisors_and_units() -> None:
    for n in (1, 7, 12, 30):
        for limit in range(1, 13):
            assert largest_divisor(n, limit, 12) == max(d for d in range(1, limit + 1) if n % d == 0)
    assert [VectorUnit.of(size).sums for size in (16, 32, 64)] == [12, 12, 28]
