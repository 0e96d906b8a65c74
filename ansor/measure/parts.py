"""Long reductions in two: parts along an axis of their own, of few terms each, and what they give together.

What is right for the mean of 10^9 numbers would take the host minutes, and a plain program, whose threads each add up
all terms of an element, longer.  The parts are many elements of few terms each: a plain program computes them in no
time, the definition says of some of them what is right, and what follows from them is evaluated as it is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from te_lite import ComputeDAG, Tensor
from te_lite.computation.derive import redirect_reads, rfactor_ops
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.dtype import FLOATS
from te_lite.expr.expr import Expr, IterVar, Reduce, Var

from .rounding import rounding_errors
from .rounding_expr import Errors

LONG = 1 << 17
"""Terms of an element from which on its reduction is cut."""
FEW = 1 << 12
"""Elements: a reduction to more of them is not cut."""
TERMS, LEAST_TERMS = 1 << 15, 1 << 10
"""Terms of a part, at most; and where a whole axis is left to the parts, at least."""


@dataclass(frozen=True)
class Parts:
    """A computation whose long reductions are in two: its tensors are those of the one given, then `found`.

    `count` says how many parts an element of a tensor of `found` is one of.
    """

    dag: ComputeDAG
    found: tuple[Tensor, ...]
    count: tuple[int, ...]


def in_parts(dag: ComputeDAG) -> Parts | None:
    """The same with parts; None where no reduction is long.

    Those that give integers beside values that rounding can change, as the place of the largest is, stay whole: which
    part has it may be certain, and the place in the part not.
    """
    if not any(isinstance(op, ComputeOp) and is_long(op) for op in dag.ops):
        return None
    errors = Errors(rounding_errors(dag))
    new: dict[Tensor, Tensor] = {}  # what reads parts, or what follows from them, in place of what was there
    found: list[tuple[Tensor, int]] = []
    for op in dag.ops:
        made = op
        for old in [t for t in op.input_tensors() if t in new]:
            made = redirect_reads(made, old, new[old])
        if isinstance(op, ComputeOp) and isinstance(made, ComputeOp) and is_long(op) and _is_certain(op, errors):
            part, made = _halves(made)
            found += [(part.output(k), part.axis[-1].length) for k in range(part.num_outputs)]
        elif isinstance(made, ComputeOp) and made is not op:
            made = replace(made, key=("of parts", op.key))
        if made is not op:
            new |= {op.output(k): made.output(k) for k in range(made.num_outputs)}
    if not found:
        return None
    tensors, counts = zip(*found, strict=True)
    return Parts(ComputeDAG([*[new.get(t, t) for t in dag.tensors], *tensors]), tensors, counts)


def is_long(op: ComputeOp) -> bool:
    """Whether a reduction of known extents, to few elements, has many terms."""
    extents = [v.extent for v in op.reduce_axis]
    whole = all(isinstance(n, int) for n in extents) and not any(isinstance(b, Reduce) and b.init for b in op.body)
    return whole and bool(extents) and math.prod(op.shape) <= FEW and math.prod(map(int, extents)) >= LONG


def _is_certain(op: ComputeOp, errors: Errors) -> bool:
    """Whether a reduction gives floats only, or is of what rounding cannot change."""
    sources = op.reduction.sources if op.reduction is not None else ()
    return all(body.dtype in FLOATS for body in op.body) or all(errors.of(s) is None for s in sources)


def _halves(op: ComputeOp) -> tuple[ComputeOp, ComputeOp]:
    """The parts of a long reduction, and their reduction.

    Neighbouring parts have neighbouring terms, which a GPU reads together: the last axes, and the remainders of an
    axis that is cut, tell the parts apart.
    """
    extents = [v.length for v in op.reduce_axis]
    whole = len(extents)  # from which axis on none is reduced in a part
    while math.prod(extents[:whole]) > TERMS and math.prod(extents[: whole - 1]) >= LEAST_TERMS:
        whole -= 1
    cut = min(extents[whole - 1], -(-math.prod(extents[:whole]) // TERMS))
    inner = math.prod(extents[whole:])
    last, of_part = op.reduce_axis[whole - 1], Var("part")
    kept = {v: Var(v.name) for v in op.reduce_axis[:whole]}
    lengths = [*extents[: whole - 1], -(-extents[whole - 1] // cut)]
    loops = [(v.name, n, loop) for (v, loop), n in zip(kept.items(), lengths, strict=True)]
    values: dict[IterVar, Expr] = {**kept}
    for k in range(whole, len(extents)):
        values[op.reduce_axis[k]] = of_part // math.prod(extents[k + 1 :]) % extents[k]
    if cut > 1:
        values[last] = kept[last] * cut + of_part // inner
    condition = values[last] < last.length if last.length % cut else None
    loops.append(("part", cut * inner, of_part))
    part, total = rfactor_ops(op, values, tuple(loops), whole, len(op.axis), condition)
    return part, replace(total, key=("of parts", op.key))
