"""The roles of the axes of a packed product: read off its indices, not off a name.

    sums[.., c, i, j, b, o] = sum over k, d_i, d_j, r of x[.., k, i + d_i, j + d_j, b, r] * w[c, k, d_i, d_j, o, r]

The last two axes of the result and the last axis of the sum are one product of the machine.  Of the others, `channels`
choose weights, `rows` choose inputs alone; `blocks` are summed up and stand by themselves in an index of the inputs,
`taps` are summed up and shift an index.
"""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.computation.tensor import ComputeOp
from te_lite.expr.expr import Binary, Cast, IterVar, Load, Reduce, Var
from te_lite.expr.visit import free_vars
from te_lite.schedule.dag import ComputeDAG

from ..core.errors import CompileError
from ..top.fused import Fused, around


@dataclass(frozen=True)
class Product:
    """A product with what stands around it; axes by their numbers, those of the sum counted on from those of the
    result.  `own` are the axes that choose both operands (channels of a depthwise convolution)."""

    parts: Fused
    channels: tuple[int, ...]
    rows: tuple[int, ...]
    own: tuple[int, ...]
    blocks: tuple[int, ...]
    taps: tuple[int, ...]


def product_of(dag: ComputeDAG) -> Product | None:
    """The one product of a computation whose other operators are element-wise; None where there is no such product."""
    found = [(op, _operands(op)) for op in dag.ops if isinstance(op, ComputeOp)]
    products = [(op, operands) for op, operands in found if operands is not None]
    if len(products) != 1 or len(dag.outputs) != 1:
        return None
    ((core, (inputs, weights)),) = products
    try:
        parts = around(dag.ops, core)
    except CompileError:
        return None
    reads = [{v for e in load.indices for v in free_vars(e)} for load in (inputs, weights)]
    alone: set[Var] = {e for e in inputs.indices if isinstance(e, Var)}
    by_kind: dict[str, list[int]] = {name: [] for name in ("channels", "rows", "own", "blocks", "taps")}
    for k, axis in enumerate((*core.axis[:-2], *core.reduce_axis[:-1])):
        number = k if k < len(core.axis) - 2 else k + 2
        by_kind[_kind(axis, reads, alone)].append(number)
    return Product(parts, **{name: tuple(axes) for name, axes in by_kind.items()})


def _kind(axis: IterVar, reads: list[set[Var]], alone: set[Var]) -> str:
    if axis.kind == "reduce":
        return "blocks" if axis in alone else "taps"
    if axis in reads[1]:
        return "own" if axis in reads[0] else "channels"
    return "rows"


def _operands(op: ComputeOp) -> tuple[Load, Load] | None:
    """The inputs and the weights of a sum of products of int8 numbers, each block a product of the machine."""
    body = op.body[0]
    if not isinstance(body, Reduce) or len(body.sources) != 1 or len(op.axis) < 3 or body.condition is not None:
        return None
    times = body.sources[0]
    if not (isinstance(times, Binary) and times.op == "*"):
        return None
    loads = [e.a for e in (times.a, times.b) if isinstance(e, Cast) and isinstance(e.a, Load) and e.a.dtype == "int8"]
    last = [(row, op.reduce_axis[-1]) for row in op.axis[-2:]]
    found = [[x for x in loads if _ends_in(x, pair)] for pair in last]
    return (found[0][0], found[1][0]) if len(loads) == 2 and all(len(x) == 1 for x in found) else None


def _ends_in(load: Load, pair: tuple[IterVar, IterVar]) -> bool:
    return len(load.indices) > 2 and all(a is b for a, b in zip(load.indices[-2:], pair, strict=True))
