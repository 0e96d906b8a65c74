"""Chapter 3, 20 minutes: how far every loop runs.

A hole in mini_ansor: `filled` of mini_ansor/bounds.py gives the iterators of a stage their extents. `roots` are those
of its axes, which are iterators 0, 1, ...; in a tile of a consumer they are shorter than the tensor. Then the relations
tell, in the order in which they were made, what became of iterators:

- FuseRel: `rel.fused` counts through all of `rel.parts`.
- SplitRel: `rel.parent` became `rel.parts`, outermost first. `rel.lengths` are the lengths of all parts but the first,
  which takes the rest. A part is no longer than what there is to split, and lengths need not divide.

The check puts your function into mini_ansor and infers the bounds of schedules and of random programs. (Threads of a
GPU are an exception in mini_ansor, and not asked for here.)
"""

from dataclasses import replace
from math import prod

from mini_ansor.program import FuseRel, SplitRel


def filled(stage, roots):
    extents = dict(enumerate(roots))
    for rel in stage.relations:
        if isinstance(rel, FuseRel):
            extents[rel.fused] = ...
        elif isinstance(rel, SplitRel):
            for part in rel.parts:
                extents[part] = ...
    return replace(stage, iters=tuple(replace(it, extent=extents[it.id]) for it in stage.iters))
