"""Tiled inputs: an operand of a product copied in the order in which register tiles read it."""

from __future__ import annotations

from dataclasses import dataclass

from ansor.core.values.schedule_primitives import annotate, reorder
from te_lite.computation.derive import axes_in_order, plain_read
from te_lite.computation.tensor import PlaceholderOp, Tensor
from te_lite.expr.expr import IterVar
from te_lite.schedule.axis_steps import Reindex
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from te_lite.schedule.storage_steps import StorageOrder


@dataclass(frozen=True)
class TiledInput:
    """An input in tiles along axis `axis` of its read, the last axis of which is `along`.

    `space` says of each of its axes whether it is one of space, not of the reduction.
    """

    source: Tensor
    axis: int
    along: int
    space: tuple[bool, ...]


def tiled_input(state: State, k: int, moves: int, stays: int) -> TiledInput | None:
    """The input of stage `k` that moves with space axis `moves` and not with `stays`, and is read at an axis a
    dimension."""
    op = state.stages[k].compute
    with_it, without = op.axis[moves], op.axis[stays]
    for source in op.input_tensors():
        read = plain_read(op, source)
        if read is None or not isinstance(source.op, PlaceholderOp):
            continue
        axes = axes_in_order(read)
        plain = all(isinstance(index, IterVar) for index in read.indices) and len(axes) == len(read.indices)
        if plain and with_it in axes and without not in axes:
            space = tuple([axis in op.axis for axis in axes])
            return TiledInput(source, axes.index(with_it), len(axes) - 1, space)
    return None


def in_tiles(state: State, tiled: TiledInput, k: int, length: int, scope: str) -> tuple[State, int]:
    """`state` with a copy of the input for stage `k`, `length` points side by side for each term, and its stage.

    Tiles lie one behind the other, so the axes of space go before those of the reduction.  It is filled tile by tile,
    in vectors along what lies side by side in the input.
    """
    source = next(n for n, s in enumerate(state.stages) if s.op.key == tiled.source.op.key)
    state, copy = apply(state, Reindex(source, scope, k, (tiled.axis, length))), source + 1
    order = sorted(range(len(tiled.space)), key=lambda d: not tiled.space[d])
    if order != list(range(len(order))):
        state = apply(state, StorageOrder(copy, (*order, len(order))))
    *axes, inside = state.stages[copy].leaf
    loops = [axes[d] for d in order]
    if tiled.along == tiled.axis:
        state = reorder(state, copy, [*loops, inside])
    else:
        loops.remove(axes[tiled.along])
        state = reorder(state, copy, [*loops, inside, axes[tiled.along]])
    return annotate(state, copy, state.stages[copy].leaf[-1], "vectorize"), copy
