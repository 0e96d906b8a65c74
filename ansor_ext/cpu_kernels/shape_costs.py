"""What a product costs on a CPU in tiles of so many rows and columns, estimated from their numbers alone.

    time = what is over the edge x (FMAs, latency or loads, whichever lasts longest + lines from beyond the first cache)
           + edges that are copied by themselves, tiles that are turned

The unit is the time of the multiply-adds.  A panel is read once for each tile of rows, the rows once for each tile of
columns: rows of a matrix lie apart, and wide tiles read them less often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from ansor.core.target.hardware import HardwareParams
from ansor.features.count import op_counts
from ansor.sketch.predicates import NO_SPLIT, fusion_target, named_axes
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import expanded_bodies, reads_by
from te_lite.computation.tensor import PlaceholderOp
from te_lite.loops.register_tile import VectorUnit, vector_pieces
from te_lite.schedule.state import INLINED, State

from ..analysis.own_stages import axes_of, axes_read, extents_of
from .reuse import LINE_BYTES, lines

MOST_VECTORS, MOST_ROWS = 4, 14
LATENCY = 8
PANEL_LINE, ROW_LINE = 0.5, 4
"""A line of a panel, which is read in order, and one of rows, which lie apart, takes as long as so many FMAs."""
ITERATION_STEPS = 64
"""To write an element of a tile that is turned takes as long as so many terms of its sum, roughly."""
EDGE_STEPS = 6
"""Times the lanes of a vector: the same of an element that may be over the edge, copied or written by itself."""
FUNCTION_STEPS = 400
"""The same of a function (exp, erf, ...) that is computed for it, where elements are over the edge one by one."""


@dataclass(frozen=True)
class Sides:
    """Space axis `lane` as columns, `row` as rows; `free` are all axes that do not move an operand along its lanes.

    `copied`: what is side by side along `lane` is so in an operand, which is copied, not turned, where it is packed.
    """

    lane: int
    row: int
    free: tuple[int, ...]
    copied: bool


def sides(state: State, k: int) -> Iterator[Sides]:
    """The ways to take the axes of stage `k`: the last one as columns, and others with an operand that can be packed.

    Rows are the longest free axis, the last one among equals.
    """
    op = state.stages[k].op
    extents, last = extents_of(op), len(op.axis) - 1
    reads = [
        (source, axes_read(read, extents), [axes_of(form, extents) for form in read.forms])
        for source, read in reads_by(k, state.ops)
    ]
    for lane in reversed(range(last + 1)):
        moved = [read for read in reads if lane in read[1]]
        free = tuple([d for d in range(last + 1) if d != lane and all(d not in axes for _, axes, _ in moved)])
        packable = len(moved) == 1 and _is_packable(state, *moved[0][::2], lane, last + 1)
        row = max(free, key=lambda d: (extents[d], d), default=-1)
        if moved and free and (lane == last or (packable and extents[row] > 1)):
            yield Sides(lane, row, free, any(lane in forms[-1] for _, _, forms in moved))


def _is_packable(state: State, source: int, forms: Sequence[frozenset[int]], lane: int, space: int) -> bool:
    """An input, one dimension of which is axis `lane` alone, and whose rows run with the reduction."""
    folds = bool(forms) and max(forms[-1], default=-1) >= space
    return isinstance(state.stages[source].op, PlaceholderOp) and folds and frozenset((lane,)) in forms


def shape_costs(
    state: State, k: int, hardware: HardwareParams, row: int | None = None, whole: int | None = None
) -> dict[tuple[Sides, int, int], float]:
    """Time of stage `k` in tiles of so many rows and columns, relative to busy multipliers; the fastest one first.

    `row`: the space axis that the rows are of.  `whole`: that of the columns, none of which is over the edge.
    """
    op = state.stages[k].op
    if not has_fixed_axes(state, k):
        return {}
    size, unit = element_bytes(op.dtype), VectorUnit.of(hardware.vector_unit_bytes)
    extents = extents_of(op)
    reduction = prod(extents[len(op.axis) :])
    costs: dict[tuple[Sides, int, int], tuple[float, int]] = {}
    for way in [way for way in sides(state, k) if row in (None, way.row) and whole in (None, way.lane)]:
        rows, columns = prod([extents[d] for d in way.free]), extents[way.lane]
        turned = ITERATION_STEPS / reduction if way.lane != len(op.axis) - 1 else 0.0
        alone = FUNCTION_STEPS * functions_behind(state, k) / reduction
        edge = EDGE_STEPS * unit.bytes / size * ((1 / rows if way.copied else 0.0) + 1 / reduction)
        tiles = tile_costs(extents[way.row], columns, size, unit, _row_lines(state, k, way), whole is not None)
        for (r, width), (cost, sums) in tiles.items():
            over = extents[way.row] % r if turned else columns % width
            behind = turned + (edge if columns % width else 0.0) + (alone if over else 0.0)
            costs[way, r, width] = round(cost * (1 + behind), 2), -sums
    return {found: costs[found][0] for found in sorted(costs, key=lambda found: costs[found])}


def functions_behind(state: State, k: int) -> int:
    """How many functions are computed for an element of what takes up stage `k` element by element."""
    target, inlined = fusion_target(state, k), [n for n, stage in enumerate(state.stages) if stage.where == INLINED]
    if target is None:
        return 0
    return op_counts(expanded_bodies(state.ops, frozenset(inlined))[target]).get("float_mathfunc", 0)


def _row_lines(state: State, k: int, way: Sides) -> Callable[[int], float]:
    """How many lines of the rows, of so many, each term of stage `k` reads that no other term reads."""
    op = state.stages[k].op
    extents, space = extents_of(op), len(op.axis)
    terms = extents[space:]
    rows = [
        (read, state.stages[source].op)
        for source, read in reads_by(k, state.ops)
        if way.row in axes_read(read, extents) and way.lane not in axes_read(read, extents)
    ]

    def count(r: int) -> float:
        within = (*[r if d == way.row else 1 for d in range(space)], *terms)
        found = [lines(read, source.shape, within, element_bytes(source.dtype)) for read, source in rows]
        return sum(found) / prod(terms)

    return count


def tile_costs(
    rows: int,
    columns: int,
    size: int,
    unit: VectorUnit,
    row_lines: Callable[[int], float] | None = None,
    whole: bool = False,
) -> dict[tuple[int, int], tuple[float, int]]:
    """By rows and columns of a tile: time relative to busy multipliers without edges, and how many sums are held.

    Vectors of the panel that find no register beside the sums are read again for each row.  `row_lines`: how many lines
    of so many rows come from beyond the first cache for each term; without it all is in there.  `whole`: as many
    columns as leave none over, else whole vectors of them.
    """
    lanes = max(1, unit.bytes // size)
    far = {r: ROW_LINE * row_lines(r) for r in range(1, min(rows, MOST_ROWS) + 1)} if row_lines else {}
    found = {}
    for width in _divisors(columns, lanes) if whole else _widths(columns, lanes):
        vectors = int(vector_pieces(width, lanes, unit.masks).count)
        for r in range(1, min(rows, MOST_ROWS, unit.sums // vectors) + 1):
            waste = -(-rows // r) * r / rows * (-(-columns // width) * vectors * lanes / columns)
            sums = r * vectors
            loads = r + (vectors if sums + vectors < unit.registers else sums)
            beyond = PANEL_LINE * vectors * unit.bytes / LINE_BYTES + far[r] if far else 0.0
            found[r, width] = waste * (max(1.0, LATENCY / sums, loads / sums) + beyond / sums), sums
    return found


def has_fixed_axes(state: State, k: int) -> bool:
    """The axes have fixed extents and may be split."""
    stage = state.stages[k]
    known = all(isinstance(it.extent, int) for it in stage.iters)
    return known and not named_axes(stage, NO_SPLIT) and len(stage.leaf) == stage.num_roots


def _widths(columns: int, lanes: int) -> Iterator[int]:
    """Whole vectors, and all columns where they are few."""
    yield from [n * lanes for n in range(1, MOST_VECTORS + 1) if n * lanes < columns]
    if columns <= MOST_VECTORS * lanes:
        yield columns


def _divisors(columns: int, lanes: int) -> Iterator[int]:
    """Those of a vector or more."""
    yield from [n for n in range(lanes, min(columns, MOST_VECTORS * lanes) + 1) if columns % n == 0]
