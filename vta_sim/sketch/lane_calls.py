"""The pieces of a nest as steps of the three modules, in order and with their tokens, and what each call costs.

The tokens are the compiler's (`compiler/tokens.py`); only the cycles of a call are lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.reads import Affine, reads_by_producer
from te_lite.computation.tensor import ComputeOp, Operation
from te_lite.expr.expr import Const, Reduce, Var
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.state import INLINED

from ..compiler.steps import Repeat, Step
from ..compiler.tokens import OrderedLoop, ordered
from ..core.config import Config
from ..core.kinds import Memory, Module
from ..sim import CycleModel
from .lane_kernel import lane_kernel
from .lane_nest import Kind, LaneLoop, LaneNest, LoopKey, Node, Piece, home
from .lane_transfer import lane_transfer
from .limits import COPIES


@dataclass(frozen=True, eq=False)
class LaneCall:
    """Calls of one module: `cycles` of all of them; a kernel is `loaded` for so many cycles when it is first run.

    A kernel has another place, and is loaded again, in each iteration of the loops `moves`; `path` are those around.
    """

    cycles: Any
    loaded: Any
    path: tuple[LoopKey, ...]
    moves: frozenset[LoopKey]


@dataclass(frozen=True, eq=False)
class LaneProgram:
    """`body` with its tokens, the calls of each step, and the loops (extents) behind each variable of the host."""

    body: OrderedLoop
    calls: dict[Step, tuple[LaneCall, ...]]
    loops: dict[Var, tuple[tuple[LoopKey, ...], Any]]
    threads: Any


def calls_of(nest: LaneNest, config: Config, model: CycleModel) -> dict[Piece, LaneCall]:
    """The calls that each piece of a nest is."""
    return {piece: call_of(nest.bounds, piece, config, model) for piece in nest.pieces}


def lane_program(nest: LaneNest, costs: Mapping[Piece, LaneCall]) -> LaneProgram:
    """The program of a nest whose pieces cost so much."""
    calls: dict[Step, tuple[LaneCall, ...]] = {}
    loops: dict[Var, tuple[tuple[LoopKey, ...], Any]] = {}

    def made(nodes: Sequence[Node]) -> list[Step | Repeat]:
        out: list[Step | Repeat] = []
        for module, group in groupby(nodes, key=lambda n: module_of(nest, n) if isinstance(n, Piece) else None):
            if module is None:
                out += [repeat(node) for node in group if isinstance(node, LaneLoop)]
            else:
                step = Step(module, ())
                calls[step] = tuple([costs[p] for p in group if isinstance(p, Piece)])
                out.append(step)
        return out

    def repeat(node: LaneLoop) -> Repeat:
        """A loop, with those right inside it that enclose the same."""
        keys, extent = [node.key], node.extent
        while len(node.body) == 1 and isinstance(inner := node.body[0], LaneLoop):
            node, extent = inner, extent * inner.extent
            keys.append(inner.key)
        var = Var(f"loop{len(loops)}", "int64")
        loops[var] = (tuple(keys), extent)
        return Repeat(var, 1, tuple(made(node.body)))

    return LaneProgram(ordered(made(nest.body)), calls, loops, nest.threads)


def module_of(nest: LaneNest, piece: Piece) -> Module:
    """The module that does a piece."""
    if piece.kind is Kind.STORE:
        return Module.STORE
    scope = nest.bounds.state.stages[piece.stage].op.scope
    return Module.LOAD if piece.kind is Kind.LOAD and not scope.startswith("local.acc") else Module.COMPUTE


def call_of(bounds: Bounds, piece: Piece, config: Config, model: CycleModel) -> LaneCall:
    """The calls that a piece is."""
    if piece.kind in COPIES:
        t = lane_transfer(bounds, piece)
        cycles = t.instructions * model.transfer(t.memory, t.elements * config.elem_bytes(t.memory), t.gaps)
        return LaneCall(cycles, 0.0, piece.path, frozenset())
    kernel = lane_kernel(bounds, piece, config)
    cycles = kernel.calls * model.compute(piece.kind in (Kind.ALU, Kind.FOLD), kernel.iterations)
    loaded = kernel.calls * model.transfer(Memory.UOP, kernel.uops * config.elem_bytes(Memory.UOP), 0)
    if piece.kind is Kind.CLEAR and begins_at(bounds.state.stages[piece.stage].op):
        cycles, loaded = cycles + model.compute(True, kernel.iterations), 2 * loaded
    return LaneCall(cycles, loaded, piece.path, _moves(bounds, piece))


def begins_at(op: Operation) -> int:
    """The number that a sum or comparison begins at."""
    body = op.body[0] if isinstance(op, ComputeOp) else None
    first = body.combiner.identity[0] if isinstance(body, Reduce) else None
    return int(first.value) if isinstance(first, Const) else 0


def _moves(bounds: Bounds, piece: Piece) -> frozenset[LoopKey]:
    """The loops of the host around a kernel that decide where in its tiles it works."""
    state, k = bounds.state, piece.stage
    inlined = frozenset(j for j, s in enumerate(state.stages) if s.where == INLINED)
    tiles = [(home(bounds, k), frozenset(range(len(state.stages[k].op.axis))))]
    reads = reads_by_producer(state.ops, inlined)
    for p in state.access.read_from[k] if piece.kind is not Kind.CLEAR else ():
        forms = [f for read in reads[p] if read.reader == k for f in read.forms]
        tiles.append((home(bounds, p), frozenset(a for f in forms if isinstance(f, Affine) for a, _ in f.terms)))
    return frozenset(
        (stage, uid)
        for stage, uid in piece.path
        for around, axes in tiles
        if (stage, uid) not in around and root_axes(state.stages[stage], uid) & axes
    )
