"""Chapter 8, 30 minutes: how near the next use of an element is.

A hole in mini_ansor: `_Program._reuse` of mini_ansor/features.py, which says of a tensor in a nest of loops when an
element that was touched is touched again, and how much else is touched in between. From this a model learns what stays
in a cache. Loops are numbers, 0 is the outermost one:

- `nest.extents[j]`: the turns of loop j.
- `moves`: a dict whose keys are the loops that move the address.
- `access.nest.fixed`: loops around the storage of the tensor. There is a new tensor in every turn, so none of them uses
  an element again.
- `access.others`: the other stages that use the tensor; `access.shared`: how many loops, from the outermost one on, the
  nest has in common with the nearest of them.
- `nest.inside[l]`, `total[l]`: the turns that the loops from l on make together, and the bytes of all tensors that they
  touch.

An element is used again by the innermost loop that is longer than 1 and neither moves the address nor is fixed
("loop"), or by another stage in the innermost loop in common ("serial"). The one further in is nearer; where both are
one loop, it is "loop". Then `reuse_ct` is the turns of that loop, or the number of other stages, and between two uses
lie the loops further in than it. Without either the reuse is "none", and its count 0.

The check puts your function into mini_ansor and computes features of random programs.
"""


def reuse(access, nest, moves, total):
    kind, count = "loop", ...  # or "serial"; where neither brings it back: {"reuse_none": 1.0, "reuse_ct": 0.0}
    return {f"reuse_{kind}": 1.0, "reuse_ct": count, "reuse_dis_iter": ..., "reuse_dis_bytes": ...}
