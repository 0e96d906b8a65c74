"""The environment of a product: the operators between it and the output of a program, and what they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from te_lite import ComputeDAG, Schedule, Tensor, create_schedule
from te_lite.computation.tensor import ComputeOp, Operation, PlaceholderOp
from te_lite.errors import require
from te_lite.expr.expr import Cast, Load

from ..compiler.scopes import ACC, INP, WGT
from ..core.errors import CompileError


@dataclass(frozen=True)
class Fused:
    """`core` is the product; `stages` are the element-wise operators after it, the output last; `constants` have no
    axes; `extra` are the tensors from DRAM that stages read."""

    core: ComputeOp
    stages: tuple[ComputeOp, ...]
    constants: tuple[ComputeOp, ...]
    extra: tuple[Tensor, ...]

    @property
    def inputs(self) -> Tensor:
        """The first operand of the product; a padded one is computed."""
        return self.core.input_tensors()[0]

    @property
    def weights(self) -> Tensor:
        """The second operand of the product."""
        return self.core.input_tensors()[1]


def fused(output: Tensor, tag: str) -> Fused:
    """The operators of a program whose one product is tagged `tag`.

    Raises CompileError when there is no such product or several, or an operator after it is not element-wise.
    """
    ops = ComputeDAG([output]).ops
    cores = [op for op in ops if isinstance(op, ComputeOp) and op.tag == tag]
    law = f"exactly one operator must be tagged {tag}"
    require(len(cores) == 1, CompileError, output.name, law, found=[op.name for op in cores])
    return around(ops, cores[0])


def around(ops: Sequence[Operation], core: ComputeOp) -> Fused:
    """What stands around the product `core` in a program.  Raises CompileError as `fused`."""
    before = {t.op.key for t in core.input_tensors()}
    computed = [op for op in ops if isinstance(op, ComputeOp) and op is not core and op.key not in before]
    constants = tuple([op for op in computed if not op.axis])
    stages = tuple([op for op in computed if op.axis])
    _check_elementwise(stages, core)
    read = dict.fromkeys(t for op in stages for t in op.input_tensors() if isinstance(t.op, PlaceholderOp))
    return Fused(core, stages, constants, tuple(read))


def _check_elementwise(stages: Sequence[ComputeOp], core: ComputeOp) -> None:
    for op in stages:
        ok = not op.reduce_axis and op.shape == core.shape
        law = f"an operator after the product must be element-wise, of the shape {core.shape}"
        require(ok, CompileError, op.name, law, shape=op.shape)


def in_memories(f: Fused, start: Schedule | None = None) -> tuple[Schedule, list[Tensor], list[Tensor]]:
    """A schedule with everything in its memory: the schedule; inputs and weights on the chip; and what is computed
    in accumulators, the loads of other tensors included.

    The output is a copy out of the accumulators.  `start` is the schedule to go on from, a new one if it is None.
    """
    output = (f.stages or (f.core,))[-1]
    s = create_schedule(output) if start is None else start
    for op in f.constants:
        s[op].compute_inline()
    inputs = _inputs(s, f)
    weights = s.cache_read(f.weights, WGT, [f.core])
    kept = [s.cache_read(t, ACC, [op for op in f.stages if t in op.input_tensors()]) for t in f.extra]
    inner = [op.output() for op in (f.core, *f.stages) if op is not output]
    if not copies(output):
        inner.append(s.cache_write(output.output(), "local"))
    for t in inner:
        s[t].set_scope(ACC)
    return s, [inputs, weights], [*kept, *inner]


def _inputs(s: Schedule, f: Fused) -> Tensor:
    """The inputs on the chip: computed there, which is padding, or a copy."""
    if not isinstance(f.inputs.op, ComputeOp):
        return s.cache_read(f.inputs, INP, [f.core])
    s[f.inputs].set_scope(INP)
    return f.inputs


def copies(op: ComputeOp) -> bool:
    """Whether an operator does nothing but copy and narrow."""
    body = op.body[0]
    return isinstance(body.a if isinstance(body, Cast) else body, Load)
