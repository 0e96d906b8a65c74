"""A trial compilation: whether the machine has programs of a sketch at all."""

from __future__ import annotations

from functools import lru_cache

from ansor.core.target.target import Target
from ansor.space.decisions.loops import fill, holes
from te_lite.schedule.state import State

from ..compiler import compile_schedule
from ..core.errors import CompileError
from .machine import config_of
from .tiles import points

REMEMBERED = 256
"""Sketches: a kernel has some ten, which are generated for its task, for its draft and for its search."""


@lru_cache(maxsize=REMEMBERED)
def compiles(sketch: State, target: Target) -> bool:
    """Whether some lengths fit the machine, and the compiler knows the operations: it is asked for one program.

    What operations there are is the same for all lengths.
    """
    config = config_of(target)
    table = points(sketch, config)
    if table is None:
        return False
    row, lengths = table.points[0].tolist(), {}
    for position, step in holes(sketch).items():
        lengths[position], row = row[: len(step.lengths)], row[len(step.lengths) :]
    try:
        compile_schedule(fill(sketch, lengths), sketch.dag.tensors, config)
    except CompileError:
        return False
    return True
