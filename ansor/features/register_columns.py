"""Columns of the sums that a row keeps in registers on a processor, and of what it reads to add to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.loops.register_tile import VectorUnit

from ..core.target.hardware import HardwareParams
from ..space.programs import Programs
from ..space.trace import Symbol
from .held_sums import HeldSums, held_sums, reads_of
from .lanes import Lanes
from .matrix import Columns
from .row_plans import Plan, RowPlan


def register_columns(programs: Programs, plan: Plan, row: RowPlan, hardware: HardwareParams, lanes: Lanes) -> Columns:
    """The columns of the group "registers"; none for a row that does not reduce by itself."""
    nests = {other.nest.stage: other.nest for other in plan.rows}
    reads = reads_of(programs.bounds, row.nest.stage)
    held = held_sums(programs, row.nest, nests, reads, VectorUnit.of(hardware.vector_unit_bytes))
    if held is None:
        return {}
    return {name: _value(lanes, value) for name, value in _figures(held).items()}


def _figures(held: HeldSums) -> dict[str, Any]:
    pieces = held.pieces
    reads = held.loads + held.broadcasts + held.elements
    return {
        "sums_held": held.registers,
        "sums_steps": held.steps,
        "sums_parts": held.parts,
        "tile_vectors": held.vectors,
        "vector_lanes": pieces.width,
        "vector_fill": pieces.width / pieces.lanes,
        "vector_masked": 1 * pieces.masked,
        "step_vectors": held.loads,
        "step_broadcasts": held.broadcasts,
        "step_elements": held.elements,
        "step_reads": reads / held.vectors,
        "operands_live": held.live,
        "tile_spilled": held.spilled,
    }


def _value(lanes: Lanes, value: Any) -> Any:
    """Lanes as float64; a number as one."""
    if not isinstance(value, Symbol) and np.ndim(value) == 0:
        return float(value)
    return lanes.value(value)
