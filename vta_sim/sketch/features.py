"""Features of a program for learning models: one row of numbers, for which nothing is simulated.

    threads, turns        virtual threads; iterations of the loops of the host around sums
    INP.., WGT.., ACC..   bytes of the tiles of all threads in each scratchpad
    load.., store..       instructions, bytes and rows of all copies of a kind
    product.., alu..      instructions, iterations of one, micro-ops; iterations in all
    busy..                cycles that each module works in all, and what they are to each other

All columns are logarithms (base 2, of 1 + x) but the last, which are shares.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.cost_model.features import FeatureSource
from ansor.space.programs import Programs
from te_lite.bounds.bounds import infer_bounds
from te_lite.expr.lanes import product
from te_lite.schedule.state import State

from ..compiler.scopes import MEMORY_OF
from ..core.config import Config
from ..core.kinds import Memory, Module
from ..sim import PYNQ
from .lane_calls import call_of, module_of
from .lane_kernel import lane_kernel
from .lane_nest import Kind, LaneNest, Piece, lane_nest
from .lane_transfer import lane_transfer
from .limits import COPIES, tiles
from .whole_grid import of_rows

Array = np.ndarray[Any, np.dtype[Any]]
MACHINE = Config()
"""Limits are none of the columns, so any machine will do."""
COPIED = (Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT, Memory.OUT)
DONE = (Kind.CLEAR, Kind.MULTIPLY, Kind.ALU)
NAMES = (
    "threads", "turns",
    *[f"{m.name}.tiles" for m in MEMORY_OF.values()],
    *[f"{m.name}.{what}" for m in COPIED for what in ("instructions", "elements", "rows")],
    *[f"{k.value}.{what}" for k in DONE for what in ("instructions", "iterations", "uops", "total")],
    *[f"busy.{m.name}" for m in Module], "busy.most",
)  # fmt: skip
SHARES = ("share.load", "share.store")


def columns(nest: LaneNest, n: int) -> Array:
    """The columns of `n` programs: float32 [n, columns]."""
    found: dict[str, Any] = {"threads": nest.threads, "turns": 1}
    found.update({f"{m.name}.tiles": used * nest.threads for m, used in tiles(nest).items()})
    for piece in nest.pieces:
        _add(found, nest, piece)
    busy = [found.get(f"busy.{m.name}", 0.0) for m in Module]
    found["busy.most"] = np.maximum.reduce([np.broadcast_to(np.asarray(b, np.float64), (n,)) for b in busy])
    logs = [np.log2(1.0 + np.broadcast_to(np.asarray(found.get(name, 0.0), np.float64), (n,))) for name in NAMES]
    compute = np.maximum(np.asarray(found.get("busy.COMPUTE", 0.0), np.float64), 1.0)
    shares = [np.broadcast_to(found.get(f"busy.{m}", 0.0) / compute, (n,)) for m in ("LOAD", "STORE")]
    out: Array = np.stack([*logs, *shares], axis=1).astype(np.float32)
    return out


def _add(found: dict[str, Any], nest: LaneNest, piece: Piece) -> None:
    """Count a piece."""
    stages = nest.bounds.state.stages
    times = product([stages[stage].vars[uid].extent for stage, uid in piece.path])
    call, module = call_of(nest.bounds, piece, MACHINE, PYNQ), module_of(nest, piece)

    def count(name: str, value: Any) -> None:
        found[name] = found.get(name, 0.0) + np.asarray(value, np.float64)

    count(f"busy.{module.name}", times * call.cycles)
    if piece.kind in COPIES:
        t = lane_transfer(nest.bounds, piece)
        count(f"{t.memory.name}.instructions", times * t.instructions)
        count(f"{t.memory.name}.elements", times * t.instructions * t.elements)
        count(f"{t.memory.name}.rows", times * t.instructions * t.gaps)
        return
    kernel = lane_kernel(nest.bounds, piece, MACHINE)
    name = Kind.ALU.value if piece.kind is Kind.FOLD else piece.kind.value
    count(f"{name}.instructions", times * kernel.calls)
    count(f"{name}.iterations", kernel.iterations)
    count(f"{name}.uops", kernel.uops)
    count(f"{name}.total", times * kernel.calls * kernel.iterations)
    if piece.kind is Kind.MULTIPLY:
        found["turns"] = times


def population(programs: Programs, hardware: HardwareParams) -> Array:
    """The features of many programs: float32 [programs.n, 1, columns].  Those of a sketch are worked out once."""
    return of_rows(programs, _every)[:, None, :]


def _every(programs: Programs) -> Array:
    return columns(lane_nest(programs.bounds), programs.n)


def of_state(state: State, hardware: HardwareParams) -> Array:
    """The features of one program: float32 [1, columns].  Raises LowerError when its bounds cannot be inferred."""
    return columns(lane_nest(infer_bounds(state)), 1)


def _schema() -> str:
    return "vta-" + hashlib.sha256(repr((NAMES, SHARES)).encode()).hexdigest()[:16]


FEATURES = FeatureSource(_schema(), of_state, population=population)
