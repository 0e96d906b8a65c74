"""Chapter 4, 25 minutes: where a point of the loops is on the axes.

A hole in mini_ansor: `axis_values` of mini_ansor/steps.py. The loops of a lowered program are those that splits and
fuses left; its statements are about the axes that they were made of. `loops` has the value of every loop, by the id of
the iterator, as an expression, with which you may calculate: `+`, `*`, `//` and `%` with numbers.
`stage.iters[p].length` is the extent of iterator p. The relations are undone from the last one to the first:

- FuseRel: `rel.fused` counts through `rel.parts`, the last one fastest.
- SplitRel: `rel.parent` became `rel.parts`, outermost first; `rel.lengths` are the lengths of all parts but the first.

The check puts your function into mini_ansor and lowers schedules and random programs.
"""

from math import prod

from mini_ansor.program import FuseRel, SplitRel


def axis_values(stage, loops):
    values = dict(loops)
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRel) and all(p in values for p in rel.parts):
            values[rel.parent] = ...
        elif isinstance(rel, FuseRel) and rel.fused in values:
            for p in rel.parts:
                values[p] = ...
    return values
