"""From the innermost part outwards, each takes what it can of the rest."""

from dataclasses import replace
from math import prod

from mini_ansor.program import FuseRel, SplitRel


def filled(stage, roots):
    extents = dict(enumerate(roots))
    for rel in stage.relations:
        if isinstance(rel, FuseRel):
            extents[rel.fused] = prod(extents[part] for part in rel.parts)
        elif isinstance(rel, SplitRel):
            rest = extents[rel.parent]
            for part, length in reversed(list(zip(rel.parts[1:], rel.lengths, strict=True))):
                extents[part] = min(length, rest)
                rest = -(-rest // length)
            extents[rel.parts[0]] = rest
    return replace(stage, iters=tuple(replace(it, extent=extents[it.id]) for it in stage.iters))
