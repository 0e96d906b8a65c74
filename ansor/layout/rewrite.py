"""Layouts of constant weights made to fit a program.

An operation may say that an input is free to be stored in any order (`layout_free_placeholders`).  Given a tuned
program, the order in which its loops read that input is known, and the input can be stored in that order: either the
caller packs it beforehand, so that it costs nothing at run time, or a stage of the program packs it.
The steps of the program are replayed on the computation that reads the packed input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from te_lite import ComputeDAG, Tensor, compute, placeholder
from te_lite.computation.computation import Computation
from te_lite.computation.tensor import ComputeOp, make_compute
from te_lite.expr.expr import Expr, Load, Reduce, as_expr, binary, compare, if_then_else, logical_and
from te_lite.expr.visit import transform
from te_lite.schedule.loop_steps import Annotate, Fuse
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.state import State

from ..core.values.options import LayoutRewriteOption
from .packing import PackedLayout, PackedView, packed_layouts

TRANSFORM = "auto_scheduler_layout_transform"


@dataclass(frozen=True)
class Rewritten:
    """A program whose weights are packed: `layouts` says how, by the input of the computation it came from."""

    state: State
    layouts: Mapping[Tensor, PackedLayout]

    @property
    def dag(self) -> Computation:
        """The computation on packed weights; its tensors are in the order of those it came from."""
        return self.state.dag


def rewrite_layout_from_state(state: State, option: LayoutRewriteOption) -> Rewritten:
    """The program `state` with its layout-free inputs in the order in which it reads them.

    With `REWRITE_FOR_PRE_TRANSFORMED` the inputs themselves have packed shapes, with `INSERT_TRANSFORM_STAGE` a first
    stage packs them.  Where nothing is to be gained (no such input, no steps, an order that cannot be told or is the
    declared one) the program is what it was.  Raises LowerError when its bounds cannot be inferred.
    """
    layouts = {} if option == LayoutRewriteOption.NO_REWRITE else packed_layouts(state)
    if not layouts:
        return Rewritten(state, {})
    if option == LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
        packed = {t: placeholder(layout.packed_shape, t.dtype, t.name) for t, layout in layouts.items()}
        dag = _reading(state.dag, {t: PackedView(p, layouts[t]) for t, p in packed.items()}, packed)
        return Rewritten(replay(dag, state.steps), layouts)
    packed = {t: _packing_stage(t, layout) for t, layout in layouts.items()}
    dag = _reading(state.dag, {t: PackedView(p, layouts[t]) for t, p in packed.items()}, {})
    return Rewritten(_replayed_around(state, dag, {p.op.key for p in packed.values()}), layouts)


def _packing_stage(weight: Tensor, layout: PackedLayout) -> Tensor:
    """A stage that packs `weight`."""

    def element(*digits: Expr) -> Expr:
        index, inside = [], []
        for d, extent in enumerate(weight.shape):
            value = as_expr(0)
            for k, (digit, count) in enumerate(layout.digits):
                if digit == d:
                    value = binary("+", binary("*", value, count), digits[k])
            index.append(value)
            if prod(layout.extents(d)) > extent:
                inside.append(compare("<", value, extent))
        read = weight[index]
        return if_then_else(logical_and(*inside), read, as_expr(0, weight.dtype)) if inside else read

    return compute(layout.packed_shape, element, TRANSFORM)


def _reading(dag: Computation, views: Mapping[Tensor, PackedView], inputs: Mapping[Tensor, Tensor]) -> ComputeDAG:
    """The computation with reads of some inputs turned into reads of packed ones, and `inputs` in place of inputs."""
    new: dict[Tensor, Tensor] = dict(views)

    def swap(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.tensor in new:
            return new[e.tensor][[transform(i, swap) for i in e.indices]]
        return None

    for op in dag.ops:
        if isinstance(op, ComputeOp) and any(t in new for t in op.input_tensors()):
            body = _bodies(op, swap)
            attrs = {name: _attribute(value, inputs) for name, value in op.attrs.items()}
            made = make_compute(
                op.name, op.axis, body, ("packed", next(iter(views.values())).op.key, op.key), op.tag, attrs
            )
            new.update({op.output(k): made.output(k) for k in range(op.num_outputs)})
    return ComputeDAG([inputs.get(t) or (t if t in views else new.get(t, t)) for t in dag.tensors])


def _attribute(value: Any, inputs: Mapping[Tensor, Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_attribute(v, inputs) for v in value)
    return inputs.get(value, value) if isinstance(value, Tensor) else value


def _bodies(op: ComputeOp, swap: Any) -> tuple[Expr, ...]:
    """The rewritten bodies; the outputs of one reduction share their sources."""
    if op.reduction is None:
        return tuple([transform(e, swap) for e in op.body])
    first = transform(op.reduction, swap)
    assert isinstance(first, Reduce)
    return tuple([replace(first, value_index=k) for k in range(op.num_outputs)])


def _replayed_around(state: State, dag: ComputeDAG, added: Collection[object]) -> State:
    """The steps of `state` on a computation with stages in between (by key), which are then made parallel."""
    new = dag.init_state
    for step in state.steps:
        kept = [k for k, stage in enumerate(new.stages) if stage.op.key not in added]
        new = apply(new, step.renumbered(kept.__getitem__))
    for k, stage in enumerate(new.stages):
        if stage.op.key in added:
            rank = len(stage.op.axis)
            together = 3 if rank >= 5 else 2 if rank >= 3 else 1
            new = apply(new, Fuse(k, tuple(range(together)))) if together > 1 else new
            new = apply(new, Annotate(k, 0, "parallel"))
    return new
