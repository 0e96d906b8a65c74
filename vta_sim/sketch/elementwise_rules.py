"""Sketches of chains of element-wise operators: tiles of all inputs side by side in accumulators, worked on in place.

threads, tiles     loads of all inputs     operations, one after the other     store

A chain may begin with windows of an image, which are summed up or compared in accumulators of their own: tap by tap,
so that no operation waits for the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ansor.sketch.rule import Condition, Outcome, SketchContext
from te_lite import ComputeDAG, Schedule, thread_axis
from te_lite.computation.tensor import ComputeOp, PlaceholderOp
from te_lite.schedule.state import State

from ..compiler.scopes import ACC
from ..top.fused import copies
from .compiled import compiles
from .lane_nest import is_load
from .loops import tile_axes, unroll_for_host
from .roles import product_of


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
    """Whether all operators of a computation are element-wise, on packed tensors, but one of windows at its head."""
    ops = [op for op in dag.ops if isinstance(op, ComputeOp) and op.axis]
    windows = [op for op in ops if op.reduce_axis]
    ops = [op for op in ops if op not in _padded(windows)]
    alike = all(op.shape == ops[-1].shape for op in ops)
    heads = all(
        isinstance(t.op, PlaceholderOp) or t.op in _padded(windows) for op in windows for t in op.input_tensors()
    )
    one = len(windows) <= 1 and heads and product_of(dag) is None
    return len(dag.outputs) == 1 and bool(ops) and alike and one and len(ops[-1].shape) > 2


def _padded(windows: Sequence[ComputeOp]) -> list[ComputeOp]:
    """The operators that windows read: an image in a frame of zeros."""
    return [t.op for op in windows for t in op.input_tensors() if isinstance(t.op, ComputeOp)]


def sketch(start: State, dag: ComputeDAG) -> State:
    """The sketch of a chain."""
    s = Schedule(start)
    ops = [op for op in dag.ops if isinstance(op, ComputeOp)]
    for op in ops:
        if not op.axis:
            s[op].compute_inline()
    windows = [op for op in ops if op.reduce_axis]
    frames = _padded(windows)
    stages = [op for op in ops if op.axis and op not in frames]
    output = stages[-1]
    inner = [op.output() for op in stages[:-1]]
    if not copies(output):
        inner.append(s.cache_write(output.output(), "local"))
    framed = [op.output() for op in frames]
    for t in (*framed, *inner):
        s[t].set_scope(ACC)
    inputs = [op.output() for op in dag.ops if isinstance(op, PlaceholderOp)]
    readers = {t: [o for o in s.state.ops if isinstance(o, ComputeOp) and t in o.input_tensors()] for t in inputs}
    unread = [t for op in frames for t in op.input_tensors()]
    loads = [s.cache_read(t, ACC, readers[t]) for t in inputs if readers[t] and t not in unread]
    out = s[output]
    long = [a for a, axis in enumerate(output.axis[:-2]) if axis.length > 1] or [len(output.axis) - 3]
    made = tile_axes(s, out, long, long[:2])
    threads = [made[a][1] for a in long[:2]]
    out.reorder(*threads, *[made[a][0] for a in long], *[made[a][-1] for a in long])
    for thread in threads:
        out.bind(thread, thread_axis("cthread"))
    for window in windows:
        core = s[window]
        taps = core.leaf_iter_vars[len(window.axis) :]
        core.reorder(*taps, *core.leaf_iter_vars[: len(window.axis)])
    for t in (*framed, *loads, *inner):
        s[t].compute_at(out, made[long[-1]][0])
        if is_load(s.state, s[t].id):
            unroll_for_host(s[t])
    return s.state
