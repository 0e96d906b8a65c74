"""A split is a sum of its parts times what lies inside of each; a fuse is taken apart digit by digit."""

from math import prod

from mini_ansor.program import FuseRel, SplitRel


def axis_values(stage, loops):
    values = dict(loops)
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRel) and all(p in values for p in rel.parts):
            values[rel.parent] = sum(values[p] * prod(rel.lengths[n:]) for n, p in enumerate(rel.parts))
        elif isinstance(rel, FuseRel) and rel.fused in values:
            rest = values[rel.fused]
            for p in reversed(rel.parts):
                extent = stage.iters[p].length
                values[p], rest = rest % extent, rest // extent
    return values
