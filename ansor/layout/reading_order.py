"""In which order does a program read its weights?

The loops around the statement that reads a weight are looked at from the outside in: its own, and those of the stages
that it is computed in.  Each one that moves an index of the weight is one digit of the packed layout (see `packing`).
"""

from __future__ import annotations

from math import prod

from te_lite import Tensor
from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.expr import Const, IterVar, Load
from te_lite.expr.visit import walk
from te_lite.schedule.region import LoopAtom
from te_lite.schedule.state import FuseRel, SplitRel, Stage, State

from ..core.values.layout_option import FREE
from .packing import PackedLayout

Loop = tuple[int, int]


def packed_layouts(state: State) -> dict[Tensor, PackedLayout]:
    """For each layout-free input the order in which a program reads it, where that can be told and is a new one.

    Raises LowerError when the bounds of the program cannot be inferred.
    """
    found: dict[Tensor, PackedLayout] = {}
    if not state.steps or not any(FREE in op.attrs for op in state.dag.ops):
        return found
    bounds = infer_bounds(state)
    for k, stage in enumerate(bounds.state.stages):
        if not isinstance(stage.op, ComputeOp):
            continue
        for weight in stage.op.attrs.get(FREE, ()):
            layout = None if weight in found else order_of_reading(bounds, k, weight)
            if layout is not None and not layout.moves_nothing:
                found[weight] = layout
    return found


def order_of_reading(bounds: Bounds, k: int, weight: Tensor) -> PackedLayout | None:
    """The layout in which stage k reads `weight` from front to back.

    None when it does not read it, or not by one plain axis a dimension, or when a loop counts through something that
    is no axis of the weight, such as the parts of a fused loop that was split again.
    """
    op = bounds.state.stages[k].op
    index = plain_index(op, weight) if isinstance(op, ComputeOp) else None
    if index is None:
        return None
    axes = (*op.axis, *op.reduce_axis)
    dimension: dict[Loop, int] = {}
    for d, var in enumerate(index):
        loops = [] if var is None else _loops_of_axis(bounds, k, axes.index(var))
        if loops is None or any(loop in dimension for loop in loops):
            return None
        dimension.update(dict.fromkeys(loops, d))
    order = [loop for loop in _nest(bounds.state, k) if loop in dimension]
    if len(order) != len(dimension):
        return None
    extents = [(dimension[loop], bounds.state.stages[loop[0]].vars[loop[1]].extent) for loop in order]
    digits = tuple([(d, int(extent)) for d, extent in extents if extent != 1])  # type: ignore[arg-type]
    reach = [prod([extent for digit, extent in digits if digit == d]) for d in range(weight.ndim)]
    if any(r < extent for r, extent in zip(reach, weight.shape, strict=True)):
        return None
    names = tuple(["" if var is None else var.name.split(".")[0] for var in index])
    return PackedLayout(weight.shape, names, digits)


def plain_index(op: ComputeOp, weight: Tensor) -> list[IterVar | None] | None:
    """The axis that indexes each dimension of `weight`, None where it is the constant 0.

    None when it is not read, or by different indices, or by more than plain and different axes.
    """
    reads = {node.indices for node in walk(op.body[0]) if isinstance(node, Load) and node.tensor == weight}
    if len(reads) != 1:
        return None
    found: list[IterVar | None] = []
    for e in next(iter(reads)):
        match e:
            case IterVar() if e not in found:
                found.append(e)
            case Const(value=0):
                found.append(None)
            case _:
                return None
    return found


def _loops_of_axis(bounds: Bounds, k: int, axis: int) -> list[Loop] | None:
    """The loops that move an axis of stage k: those around the stage first, which tell where its region begins."""
    start = bounds.regions[k][axis].min
    atoms = [(atom, c) for atom, c in start.terms.items() if c != 0 and atom.extent != 1]
    simple = start.const == 0 and all(isinstance(atom, LoopAtom) and c > 0 for atom, c in atoms)
    if not simple:
        return None
    around = [(atom.stage, atom.uid) for atom, _ in atoms if isinstance(atom, LoopAtom)]
    return around + [(k, uid) for uid in _split_parts(bounds.state.stages[k], axis)]


def _split_parts(stage: Stage, uid: int) -> list[int]:
    """What an iterator was split into, at the end."""
    for rel in stage.relations:
        if isinstance(rel, SplitRel) and rel.parent == uid:
            return [part for child in rel.children for part in _split_parts(stage, child)]
    return [uid]


def _nest(state: State, k: int) -> list[Loop]:
    """The loops of stage k after those of the stages around it, fused ones as what they were fused from."""
    stage = state.stages[k]
    around = [] if stage.attach is None else _nest(state, stage.attach.stage)
    return around + [(k, part) for uid in stage.leaf for part in _fused_parts(stage, uid)]


def _fused_parts(stage: Stage, uid: int) -> list[int]:
    for rel in stage.relations:
        if isinstance(rel, FuseRel) and rel.fused == uid:
            return [part for p in rel.parts for part in _fused_parts(stage, p)]
    return [uid]
