"""What the loops of a stage say about its axes: which they are, values, guards and names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Any

from ..expr.expr import Expr, as_expr, binary, compare
from ..expr.lanes import ceildiv, product
from .state import MAX_NAME, FuseRel, Relation, SplitRel, Stage


def root_axes(stage: Stage, uid: int) -> set[int]:
    """The numbers of the axes that iterator `uid` was made from."""
    roots = {uid}
    for rel in reversed(stage.relations):
        match rel:
            case SplitRel(parent=parent, children=children):
                if roots & set(children):
                    roots = (roots - set(children)) | {parent}
            case FuseRel(parts=parts, fused=fused):
                if fused in roots:
                    roots = (roots - {fused}) | set(parts)
    return roots


def split_strides(stage: Stage, rel: SplitRel) -> list[Any]:
    """How much one step of each child advances the parent (ints or lanes)."""
    if rel.inner_to_outer:
        return [product(rel.lengths[j:]) for j in range(len(rel.lengths))] + [1]
    strides = []
    rest: Any = stage.vars[rel.parent].extent
    for length in rel.lengths:
        rest = ceildiv(rest, length)
        strides.append(rest)
    return [*strides, 1]


def fused_strides(stage: Stage, rel: FuseRel) -> dict[int, Any]:
    """How much one step of each part advances the fused iterator (ints or lanes), by uid."""
    extents = [stage.vars[p].extent for p in rel.parts]
    return {part: product(extents[j + 1 :]) for j, part in enumerate(rel.parts)}


def tiled_extent(stage: Stage, uid: int) -> Any:
    """How far the tiles reach that iterator `uid` is split into, the last one whole (an int or lanes)."""
    for rel in stage.relations:
        if isinstance(rel, SplitRel) and rel.parent == uid:
            iterations: list[Any] = [tiled_extent(stage, child) for child in rel.children]
            reach: Any = 1
            for count, stride in zip(iterations, split_strides(stage, rel), strict=True):
                reach = reach + (count - 1) * stride
            return reach
    return stage.vars[uid].extent


def all_values(stage: Stage, variables: Mapping[int, Expr]) -> dict[int, Expr]:
    """The value of every iterator (by uid) that the loops in `variables` (by uid) determine."""
    values = dict(variables)
    for rel in reversed(stage.relations):
        match rel:
            case SplitRel(parent=parent, children=children):
                if all(c in values for c in children):
                    values[parent] = _partial_value(stage, rel, values, 0)
            case FuseRel(parts=parts, fused=fused):
                if fused in values:
                    values.update(_unfuse(stage, parts, values[fused]))
    return values


def _unfuse(stage: Stage, parts: tuple[int, ...], fused: Expr) -> dict[int, Expr]:
    out = {}
    inner = 1
    for uid in reversed(parts):
        extent = stage.vars[uid].length
        value = binary("//", fused, inner)
        out[uid] = value if uid == parts[0] else binary("%", value, extent)
        inner = inner * extent
    return out


def root_values(stage: Stage, variables: Mapping[int, Expr], roots: Iterable[int]) -> dict[int, Expr]:
    """The values of the root axes `roots` in terms of the loop variables."""
    values = all_values(stage, variables)
    return {r: values[r] for r in roots}


def split_guards(stage: Stage, variables: Mapping[int, Expr], free: Collection[int] = ()) -> list[Expr]:
    """What keeps the loops of splits that do not divide inside their parents; those in `free` (uids) are not kept.

    Splitting from the inside out, only the whole can run over; from the outside in, every remainder can.  A loop
    that runs over and is the outermost part of another split needs no guard of its own: the whole has one.
    """
    values = all_values(stage, variables)
    splits = [rel for rel in stage.relations if isinstance(rel, SplitRel) and all(c in values for c in rel.children)]
    guarded_by_whole = {rel.children[0] for rel in splits if rel.inner_to_outer}
    reach: dict[int, int] = {}
    guards: list[Expr] = []
    for rel in reversed(splits):
        far = [reach.get(c, stage.vars[c].length) for c in rel.children]
        reach[rel.parent], limits = _overruns(stage, rel, far, rel.parent in guarded_by_whole)
        if rel.parent not in free:
            guards += [compare("<", _partial_value(stage, rel, values, start), limit) for start, limit in limits]
    return guards[::-1]


def _overruns(stage: Stage, rel: SplitRel, far: list[int], whole_is_guarded: bool) -> tuple[int, list[tuple[int, int]]]:
    """How far the parent of a split reaches, and where it must be held: `(first child, limit)` each.

    `far` is how far each child reaches.
    """
    strides = split_strides(stage, rel)
    covered, last = 1, len(far)
    limits = []
    for start in [0] if rel.inner_to_outer else range(len(rel.lengths) - 1, -1, -1):
        covered += sum((far[j] - 1) * strides[j] for j in range(start, last))
        last = start
        limit = stage.vars[rel.parent].length if start == 0 else strides[start - 1]
        if covered > limit and not (start == 0 and whole_is_guarded):
            limits.append((start, limit))
            covered = limit
    return covered, limits


def _partial_value(stage: Stage, rel: SplitRel, values: Mapping[int, Expr], start: int) -> Expr:
    """The value of the children of a split from number `start` on."""
    total = as_expr(0)
    for child, stride in list(zip(rel.children, split_strides(stage, rel), strict=True))[start:]:
        total = binary("+", total, binary("*", values[child], stride))
    return total


UNIT = "unit"


def loop_names(stage: Stage) -> dict[int, str]:
    """The name TE would give each iterator: `k.outer.inner`, `i.j.fused` (what derived axes are called).

    A loop that was fused out of nothing is the `unit` loop.
    """
    axes = (*stage.op.axis, *stage.op.reduce_axis)
    names = {it.uid: UNIT for it in stage.vars} | {k: v.name for k, v in enumerate(axes)}
    for rel in stage.relations:
        names.update(names_after(names, rel))
    return names


def names_after(names: Mapping[int, str], rel: Relation) -> dict[int, str]:
    """The names of the iterators that a relation makes of others, which have `names`."""
    match rel:
        case SplitRel(parent=parent, children=children, inner_to_outer=inner_to_outer):
            made = _split_names(names[parent], children, inner_to_outer)
        case FuseRel(parts=parts, fused=fused):
            made = {fused: reduce(lambda name, uid: f"{name}.{names[uid]}.fused", parts[1:], names[parts[0]])}
    return {uid: name[:MAX_NAME] for uid, name in made.items()}


def _split_names(parent: str, children: tuple[int, ...], inner_to_outer: bool) -> dict[int, str]:
    n = len(children) - 1
    if inner_to_outer:
        return {c: parent + ".outer" * (n - j) + (".inner" if j else "") for j, c in enumerate(children)}
    return {c: parent + ".inner" * j + (".outer" if j < n else "") for j, c in enumerate(children)}
