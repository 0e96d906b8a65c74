"""The primitive that splits loops into the tiles, lanes and values of a fragment."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from te_lite.errors import ScheduleError, require
from te_lite.schedule.schedule import Axis, Loop, StageHandle, thread_axis

from .fragment import Digit
from .mma import OPERANDS, mma


def split_fragment(
    stage: StageHandle, rows: Axis, columns: Axis, operand: str
) -> tuple[Axis, Axis, Loop, tuple[Loop, ...]]:
    """Split two loops into tiles, lanes and values of `<instruction>.<operand>` (`mma.py`), and bind the lanes.

    Returns the loops over tiles, rows and columns; the loop over the 32 lanes, bound to threadIdx.x; and those over
    the values of a lane, the last one of neighbours in a register.  They are put into this order.
    """
    name, _, which = operand.partition(".")
    subject, law = f"split_fragment {stage.op.name}", "an operand of an instruction is needed"
    require(which in OPERANDS, ScheduleError, subject, law, got=operand)
    fragment = mma(name).fragment(which)
    digits, parts, tiles = (*fragment.lane, *fragment.value), dict[Digit, Loop](), list[Axis]()
    for axis, side in ((rows, attrgetter("row")), (columns, attrgetter("column"))):
        own = sorted([d for d in digits if side(d)], key=side)
        tile, pieces = _split_all(stage, axis, [d.extent for d in own])
        tiles.append(tile)
        parts.update(zip(own, pieces, strict=True))
    values = [parts[d] for d in reversed(fragment.value)]
    lanes = [parts[d] for d in reversed(fragment.lane)]
    stage.reorder(*tiles, *lanes, *values)
    lane = stage.fuse(*lanes)
    stage.bind(lane, thread_axis("threadIdx.x"))
    return tiles[0], tiles[1], lane, tuple(values)


def _split_all(stage: StageHandle, rest: Axis, factors: Sequence[int]) -> tuple[Axis, list[Loop]]:
    """What is left of a loop, and the loops of `factors`, split off one after the other from the inside."""
    loops = list[Loop]()
    for factor in factors:
        rest, inner = stage.split(rest, factor=factor)
        loops.append(inner)
    return rest, loops
