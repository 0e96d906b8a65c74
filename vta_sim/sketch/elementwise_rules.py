"""Sketches of chains of element-wise operators: tiles of all inputs side by side in accumulators, worked on in place.

threads, tiles     loads of all inputs     operations, one after the other     store
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ansor.sketch.rule import Condition, Outcome, SketchContext
from te_lite import ComputeDAG, Schedule, thread_axis
from te_lite.state import State
from te_lite.tensor import ComputeOp, PlaceholderOp

from ..compiler.scopes import ACC
from ..top.fused import copies
from .compiled import compiles
from .lane_nest import is_load
from .loops import tile_axes, turned_by_host


class ElementwiseChain:
    """One sketch: its axes are cut into tiles, the first two that are longer than 1 shared out among threads."""

    paper: ClassVar[str] = "Multi-level tiling with cache stages (section 4.1), for a machine with scratchpads."
    departs: ClassVar[str] = "TVM has no sketches of VTA programs; a template gives their structure."

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        """The whole program is made at its output."""
        return Condition.APPLY if state.access.is_output(k) and _is_chain(ctx.dag) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> Sequence[Outcome]:
        made = sketch(state, ctx.dag)
        return [(made, -1)] if compiles(made, ctx.target) else []


ELEMENTWISE_RULES = (ElementwiseChain(),)


def _is_chain(dag: ComputeDAG) -> bool:
    """Whether all operators of a computation are element-wise, on packed tensors."""
    ops = [op for op in dag.ops if isinstance(op, ComputeOp)]
    alike = all(not op.reduce_axis and op.shape == ops[-1].shape for op in ops if op.axis)
    return len(dag.outputs) == 1 and bool(ops) and alike and len(ops[-1].shape) > 2


def sketch(start: State, dag: ComputeDAG) -> State:
    """The sketch of a chain."""
    s = Schedule(start)
    ops = [op for op in dag.ops if isinstance(op, ComputeOp)]
    for op in ops:
        if not op.axis:
            s[op].compute_inline()
    stages = [op for op in ops if op.axis]
    output = stages[-1]
    inner = [op.output() for op in stages[:-1]]
    if not copies(output):
        inner.append(s.cache_write(output.output(), "local"))
    for t in inner:
        s[t].set_scope(ACC)
    inputs = [op.output() for op in dag.ops if isinstance(op, PlaceholderOp)]
    readers = {t: [o for o in s.state.ops if isinstance(o, ComputeOp) and t in o.input_tensors()] for t in inputs}
    loads = [s.cache_read(t, ACC, readers[t]) for t in inputs if readers[t]]
    out = s[output]
    long = [a for a, axis in enumerate(output.axis[:-2]) if axis.length > 1] or [len(output.axis) - 3]
    made = tile_axes(s, out, long, long[:2])
    threads = [made[a][1] for a in long[:2]]
    out.reorder(*threads, *[made[a][0] for a in long], *[made[a][-1] for a in long])
    for thread in threads:
        out.bind(thread, thread_axis("cthread"))
    for t in (*loads, *inner):
        s[t].compute_at(out, made[long[-1]][0])
        if is_load(s.state, s[t].id):
            turned_by_host(s[t])
    return s.state
