"""Everything about the rows of a program that depends on its structure only: worked out once, then remembered.

Two programs have the same structure when they differ in extents and pragma values alone, as all lanes of a
population do and most programs of one sketch.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.index_span import IndexTuples
from te_lite.bounds.loop_scope import shared_out
from te_lite.bounds.nest import Nest, nests_of
from te_lite.bounds.reads import Affine, Form, expanded_bodies, index_form
from te_lite.expr.expr import Expr, Load, Var
from te_lite.expr.visit import walk
from te_lite.schedule.state import ATTACHED, INLINED, Relation, SplitRel, State

from ..sketch.shared_memory import element_bytes
from .count import Counts, flops, op_counts
from .schema import BUFFERS

Reads = dict[int, list[tuple[Form, ...]]]

REMEMBERED = 256


@dataclass(frozen=True)
class Access:
    """How a row uses the storage of `producer` (its own, when it stores).

    `count` accesses are made in one point, at the index tuples `indices`.  The loops `fixed` of the row are around the
    storage; the virtual threads among them, `copies`, have one each side by side.  `serial` is the number of loops that
    the row has in common with the nearest one of `others` other stages that use it.  `scope` is the class of the
    storage; a `whole` one holds the complete tensor, any other one region.
    """

    producer: int
    kind: str
    indices: IndexTuples
    count: int
    element: int
    fixed: frozenset[int]
    copies: tuple[int, ...]
    serial: int
    others: int
    scope: str
    whole: bool


@dataclass(frozen=True)
class RowPlan:
    """The structure of one row: its nest, accesses (stored first), operations in a point.

    `shared_out` are the loops whose threads share the stage's private storage out, each keeping its part.
    """

    nest: Nest
    accesses: tuple[Access, ...]
    counts: Counts
    flops: int
    spatial: int
    element: int
    outputs: int
    scope: str
    argument: bool
    shared_out: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The rows of a program, and for each kernel (by root stage) whether it runs on a GPU."""

    rows: tuple[RowPlan, ...]
    gpu: dict[int, bool]


_plans: dict[Hashable, Plan] = {}
"""The plans used last, the latest at the end."""


def plan_of(bounds: Bounds) -> Plan:
    """The plan of a program, from memory when its structure was seen before."""
    key = structure(bounds.state), bounds.scopes
    plan = _plans.pop(key, None) or _make(bounds)
    _plans[key] = plan
    if len(_plans) > REMEMBERED:
        _plans.pop(next(iter(_plans)), None)
    return plan


def structure(state: State) -> Hashable:
    """What programs of one structure have in common; split lengths and unroll limits are left out."""
    stages = []
    for stage in state.stages:
        relations = tuple([_children(rel) for rel in stage.relations])
        tags = tuple([stage.vars[u].annotation for u in stage.leaf])
        place = None if stage.attach is None else (stage.attach.stage, stage.attach.iter)
        stages.append((stage.where, place, stage.leaf, tags, relations, stage.storage_order, stage.tiles))
    return state.ops, state.dag, tuple(stages)


def _children(rel: Relation) -> Hashable:
    if isinstance(rel, SplitRel):
        return rel.parent, rel.children, rel.inner_to_outer
    return rel.parts, rel.fused


def _make(bounds: Bounds) -> Plan:
    state = bounds.state
    nests = nests_of(bounds)
    inlined = frozenset(k for k, s in enumerate(state.stages) if s.where == INLINED)
    bodies = expanded_bodies(state.ops, inlined)
    index = {op.key: k for k, op in enumerate(state.ops)}
    reads = {k: _reads(state, k, bodies[k], index) for k in nests}
    users: dict[int, set[int]] = {k: {k} for k in nests}
    for k, found in reads.items():
        for producer in found:
            users.setdefault(producer, set()).add(k)
    rows = [_row(bounds, nest, nests, bodies[k], reads[k], users) for k, nest in nests.items()]
    gpu: dict[int, bool] = {}
    for nest in nests.values():
        threaded = any("Idx" in loop.tag or loop.tag == "vthread" for loop in nest.loops)
        gpu[nest.root] = gpu.get(nest.root, False) or threaded
    return Plan(tuple(rows), gpu)


def _reads(state: State, k: int, bodies: tuple[Expr, ...], index: dict[object, int]) -> Reads:
    """The index tuples with which stage k reads each producer, one entry per read."""
    op = state.ops[k]
    axes: dict[Var, int] = {v: n for n, v in enumerate((*op.axis, *op.reduce_axis))}
    found: Reads = {}
    for body in bodies[:1] if op.reduce_axis else bodies:
        for node in walk(body):
            if isinstance(node, Load):
                forms = tuple([index_form(i, axes) for i in node.indices])
                found.setdefault(index[node.tensor.op.key], []).append(forms)
    return found


def _row(
    bounds: Bounds,
    nest: Nest,
    nests: dict[int, Nest],
    bodies: tuple[Expr, ...],
    reads: Reads,
    users: dict[int, set[int]],
) -> RowPlan:
    state, k = bounds.state, nest.stage
    op = state.stages[k].compute
    identity = tuple([Affine(((d, 1),), 0) for d in range(len(op.axis))])
    kind = "read_write" if op.reduce_axis else "write"
    tags = shared_out(state.stages[k], bounds.scopes[k])
    accesses = [_access(bounds, nest, nests, k, kind, [identity] * op.num_outputs, users)]
    largest = sorted(reads, key=lambda p: -_elements(state.ops[p].shape))
    for producer in largest[: BUFFERS - 1]:
        accesses.append(_access(bounds, nest, nests, producer, "read", reads[producer], users))
    counts = op_counts(bodies)
    return RowPlan(
        nest,
        tuple(accesses),
        counts,
        flops(counts),
        len(op.axis),
        element_bytes(op.dtype),
        op.num_outputs,
        bounds.storage(k),
        _is_argument(state, k),
        tuple([it.uid for it in state.stages[k].iters if it.annotation in tags]),
    )


def _is_argument(state: State, k: int) -> bool:
    return any(t.op.key == state.ops[k].key for t in state.dag.tensors)


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _access(
    bounds: Bounds,
    nest: Nest,
    nests: dict[int, Nest],
    producer: int,
    kind: str,
    reads: list[tuple[Form, ...]],
    users: dict[int, set[int]],
) -> Access:
    state = bounds.state
    attached = state.stages[producer].where == ATTACHED
    whole = state.stages[producer].is_placeholder or _is_argument(state, producer)
    around = nests[producer].loops[: nests[producer].around] if attached and not whole else ()
    storage = {(loop.stage, loop.uid) for loop in around}
    fixed = frozenset(j for j, loop in enumerate(nest.loops) if (loop.stage, loop.uid) in storage)
    others = users[producer] - {nest.stage}
    common = [_common(nest, nests[other]) for other in others]
    return Access(
        producer,
        kind,
        IndexTuples(tuple(dict.fromkeys(map(state.stages[producer].stored, reads)))),
        len(reads),
        element_bytes(state.ops[producer].dtype),
        fixed,
        tuple([j for j in sorted(fixed, reverse=True) if nest.loops[j].tag == "vthread"]),
        max(common, default=0),
        len(others),
        bounds.storage(producer) if attached and not whole else "global",
        whole,
    )


def _common(nest: Nest, other: Nest) -> int:
    return nest.depth(frozenset((loop.stage, loop.uid) for loop in other.loops))
