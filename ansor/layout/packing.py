"""Packed layouts: a constant tensor stored in the order in which a loop nest reads it.

The loops around the statement that reads a weight are looked at from the outside in: its own, and those of the stages
that it is computed in.  Each one that moves an index of the weight is one digit of the packed layout (see
`PackedLayout`).

Every dimension is written as digits of a mixed radix, and the digits of all dimensions are the dimensions of the
packed tensor, in the order of the loops that count them.  A 512 x 512 weight read by loops j0 j1 j2 j3 k of extents
4, 8, 4, 4, 512 (k is the first dimension, j the second) becomes `4j8j4j4j512k`:

    packed[j0, j1, j2, j3, k] = weight[k, ((j0 * 8 + j1) * 4 + j2) * 4 + j3]

Where the digits count further than the dimension does, the packed tensor has zeros that no program reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from te_lite import Tensor
from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.computation.tensor import ComputeOp
from te_lite.errors import require
from te_lite.expr.expr import INDEX, Const, Expr, IterVar, Load, as_expr, binary
from te_lite.expr.visit import walk
from te_lite.schedule.region import LoopAtom
from te_lite.schedule.state import FuseRel, SplitRel, Stage, State

from ..core.errors import TaskError
from ..core.values.options import FREE

# ------------------------------------------------------------------------------------------------- the order of reading


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


# -------------------------------------------------------------------------------------------------------------- packing


Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class PackedLayout:
    """How a tensor of `shape` is packed: `digits` are `(dimension, extent)`, outermost first.

    `names` are what the dimensions are called in text.  Raises TaskError when the digits of a dimension cannot count
    through it.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    digits: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for d, extent in enumerate(self.shape):
            reach = prod(self.extents(d))
            law = f"dimension {d} of extent {extent} must be counted through"
            require(reach >= extent, TaskError, "packed layout", law, digits=self.digits)

    def extents(self, d: int) -> list[int]:
        """The digits of dimension `d`, the most significant first."""
        return [extent for dimension, extent in self.digits if dimension == d]

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape of the packed tensor."""
        return tuple([extent for _, extent in self.digits])

    @property
    def moves_nothing(self) -> bool:
        """Whether the packed tensor is the tensor, byte for byte."""
        order = [d for d, _ in self.digits]
        return order == sorted(order) and all(prod(self.extents(d)) == e for d, e in enumerate(self.shape))

    @property
    def before(self) -> str:
        """The declared layout as text, `512k512j`."""
        return "".join(f"{extent}{name}" for extent, name in zip(self.shape, self.names, strict=True))

    def __str__(self) -> str:
        return "".join(f"{extent}{self.names[d]}" for d, extent in self.digits)

    def index(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the element at `indices` of the declared tensor stands in the packed one."""
        out = []
        for k, (d, extent) in enumerate(self.digits):
            later = prod([e for dimension, e in self.digits[k + 1 :] if dimension == d])
            first = all(dimension != d for dimension, _ in self.digits[:k])
            digit = binary("//", as_expr(indices[d], INDEX), later) if later > 1 else as_expr(indices[d], INDEX)
            out.append(digit if first else binary("%", digit, extent))
        return tuple(out)

    def pack(self, array: Array) -> Array:
        """The packed form of an array of `shape`; same dtype."""
        require(array.shape == self.shape, TaskError, "pack", f"the shape {self.shape} is needed", got=array.shape)
        reach = tuple([prod(self.extents(d)) for d in range(len(self.shape))])
        whole = array
        if reach != self.shape:
            whole = np.zeros(reach, array.dtype)
            whole[tuple([slice(0, extent) for extent in self.shape])] = array
        order = self._by_dimension()
        split = whole.reshape([self.digits[k][1] for k in order])
        return np.ascontiguousarray(split.transpose(np.argsort(order)))

    def unpack(self, packed: Array) -> Array:
        """The array of `shape` that `pack` gave `packed` for."""
        require(
            packed.shape == self.packed_shape, TaskError, "unpack", f"{self.packed_shape} is needed", got=packed.shape
        )
        whole = packed.transpose(self._by_dimension()).reshape([prod(self.extents(d)) for d in range(len(self.shape))])
        return np.ascontiguousarray(whole[tuple([slice(0, extent) for extent in self.shape])])

    def _by_dimension(self) -> list[int]:
        """The places of the digits, sorted by the dimension that they are of."""
        return sorted(range(len(self.digits)), key=lambda k: self.digits[k][0])


class PackedView(Tensor):
    """A packed tensor that is read as if it were not: what reads it gets reads of the packed one."""

    __slots__ = ("layout",)

    def __init__(self, packed: Tensor, layout: PackedLayout) -> None:
        same = packed.shape == layout.packed_shape
        require(same, TaskError, packed.name, f"the shape {layout.packed_shape} is needed", got=packed.shape)
        super().__init__(packed.op, packed.value_index)
        self.layout = layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def ndim(self) -> int:
        return len(self.layout.shape)

    def __getitem__(self, indices: Any) -> Expr:
        items = indices if isinstance(indices, tuple | list) else (indices,)
        require(len(items) == self.ndim, TaskError, self.name, f"{self.ndim} indices are needed", indices=len(items))
        return Load(Tensor(self.op, self.value_index), self.layout.index([as_expr(i, INDEX) for i in items]))
