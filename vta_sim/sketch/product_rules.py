"""Sketches of a product: what stays in a scratchpad while the rest goes by.

    stationary   loops outside                     around the product        loads
    outputs      threads, tiles                    blocks                    x, w at blocks
    inputs       threads, tiles                    blocks, parts of channels x at blocks, w at parts of channels
    weights      threads, tiles                    blocks, parts of rows     w at blocks, x at parts of rows
    all weights  threads, channels | others        blocks                    w at channels, x at blocks
    all inputs   threads, rows | others            blocks                    x at rows, w at blocks

Tiles of all five are cut from the axes of the result; channels and rows are shared out among virtual threads.  Sums
stay in accumulators until their tile is stored.  The order of the loops inside a tile, of which the two outermost that
are there become loops of the instruction, makes sketches of its own: one for each axis of rows that may come first.
All lengths are open, one decision for all (`tiles.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ansor.sketch.rule import Condition, Outcome, SketchContext
from te_lite import Schedule, thread_axis
from te_lite.schedule.schedule import Loop, StageHandle
from te_lite.schedule.state import State

from ..top.fused import in_memories
from .compiled import compiles
from .lane_nest import is_load
from .loops import split, tile_axes, unroll_for_host
from .roles import Product, product_of

OUTPUTS, INPUTS, WEIGHTS = "outputs", "inputs", "weights"
ALL_WEIGHTS, ALL_INPUTS = "all weights", "all inputs"


@dataclass(frozen=True)
class StationaryProduct:
    """The sketches in which `kept` is stationary."""

    kept: str
    paper: ClassVar[str] = "Multi-level tiling with cache stages (section 4.1), for a machine with scratchpads."
    departs: ClassVar[str] = "TVM has no sketches of VTA programs; a template gives their structure."

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        """The whole program is made at its output."""
        product = product_of(ctx.dag) if state.access.is_output(k) else None
        return Condition.APPLY if product is not None and self._applies(product) else Condition.SKIP

    def _applies(self, p: Product) -> bool:
        """Whether there is something to go by."""
        channels, rows = bool(_long(p, p.channels)), bool(_long(p, p.rows))
        needs = {INPUTS: channels, WEIGHTS: rows, ALL_WEIGHTS: channels and rows, ALL_INPUTS: channels and rows}
        return needs.get(self.kept, True)

    def apply(self, ctx: SketchContext, state: State, k: int) -> Sequence[Outcome]:
        product = product_of(ctx.dag)
        assert product is not None
        made = [sketch(state, product, self.kept, first) for first in _firsts(product)]
        return [(s, -1) for s in made if compiles(s, ctx.target)]


PRODUCT_RULES = tuple([StationaryProduct(kept) for kept in (OUTPUTS, INPUTS, WEIGHTS, ALL_WEIGHTS, ALL_INPUTS)])


def _long(p: Product, axes: Sequence[int]) -> list[int]:
    """The axes that are longer than 1."""
    core = p.parts.core
    every = (*core.axis, *core.reduce_axis)
    return [a for a in axes if every[a].length > 1]


def _firsts(p: Product) -> list[int | None]:
    """The axes of rows that may come first in a tile."""
    return list(reversed(_long(p, p.rows)[-2:])) or [None]


def sketch(start: State, p: Product, kept: str, first: int | None) -> State:
    """One sketch: `kept` is stationary, and `first` the axis of rows that comes first in a tile."""
    s, operands, inner = in_memories(p.parts, Schedule(start))
    output = s[(p.parts.stages or (p.parts.core,))[-1]]
    outer = _tiled(s, output, p, kept)
    tile = list(outer.values())[-1]
    for t in inner:
        s[t].compute_at(output, tile)
    places = _multiplied(s, s[p.parts.core], p, kept, first)
    held = {"all inputs": (p.rows, 0), "all weights": (p.channels, 1)}.get(kept)
    for k, t in enumerate(operands):
        if held is not None and held[1] == k:
            s[t].compute_at(output, outer[[a for a in outer if a in held[0]][-1]])
        elif (place := places[k]) is not None:
            s[t].compute_at(s[p.parts.core], place)
        else:
            s[t].compute_at(output, tile)
    for t in (*operands, *inner):
        if is_load(s.state, s[t].id):
            unroll_for_host(s[t])
    return s.state


def _tiled(s: Schedule, output: StageHandle, p: Product, kept: str) -> dict[int, Loop]:
    """Tiles of the result; gives the loops over tiles by their axes, outermost first."""
    spatial = range(len(p.parts.core.axis) - 2)
    long = _long(p, spatial) or [spatial[-1]]
    threaded = [*_long(p, (*p.channels, *p.own))[:1], *_long(p, p.rows)[:1]]
    made = tile_axes(s, output, long, threaded)
    early = {"all weights": p.channels, "all inputs": p.rows}.get(kept, p.rows)
    order = sorted(long, key=lambda a: a not in early)
    threads = [made[a][1] for a in threaded]
    inner = [made[a][-1] for a in long]
    output.reorder(*threads, *[made[a][0] for a in order], *inner)
    for thread in threads:
        output.bind(thread, thread_axis("cthread"))
    return {a: made[a][0] for a in order}


def _multiplied(
    s: Schedule, core: StageHandle, p: Product, kept: str, first: int | None
) -> tuple[Loop | None, Loop | None]:
    """The loops of the sums; gives those at which inputs and weights are loaded, None where it is the tile's loop."""
    loops, rank = dict(enumerate(core.leaf_iter_vars)), len(p.parts.core.axis)
    blocks = _long(p, p.blocks)
    outer, inside = [], []
    for a in blocks:
        whole, part = split(s, core, loops[a], (None,))
        outer.append(whole)
        inside.append(part)
    parts = []
    for a in _long(p, {INPUTS: p.channels, WEIGHTS: p.rows}.get(kept, ()))[:1]:
        whole, loops[a] = split(s, core, loops[a], (None,))
        parts.append(whole)
    ahead = [] if first is None else [loops[first]]
    taps = [loops[a] for a in sorted(p.taps, key=lambda a: -a)]
    others = [loops[a] for a in (*p.channels, *p.own, *p.rows) if a != first]
    fused = [loops[a] for a in p.blocks if a not in blocks]
    block = [loops[rank - 2], loops[rank - 1], loops[rank + len(p.parts.core.reduce_axis) - 1]]
    core.reorder(*fused, *outer, *parts, *inside, *ahead, *taps, *others, *block)
    core.tensorize(block[0])
    at_blocks = outer[-1] if outer else None
    at_parts = parts[-1] if parts else at_blocks
    return (at_parts if kept == WEIGHTS else at_blocks), (at_parts if kept == INPUTS else at_blocks)
