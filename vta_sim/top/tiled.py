"""Tiles of an output, shared out among virtual threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from te_lite import thread_axis
from te_lite.schedule.schedule import Loop, StageHandle


def tiled(out: StageHandle, lengths: Mapping[int, int], order: Sequence[int], threads: Mapping[int, int]) -> Loop:
    """Cut axes of an output into tiles of `lengths`, by their numbers; gives the innermost loop over tiles.

    `order` are the axes of the loops over tiles, outermost first; `threads` cut these once more, and stand around all
    others, since the compiler wants virtual threads outermost.
    """
    axes = list(out.leaf_iter_vars)
    outer = {a: axes[a] for a in order}
    inner = {a: axes[a] for a in range(len(axes)) if a not in order}
    for a, length in lengths.items():
        outer[a], inner[a] = out.split(axes[a], factor=length)
    out.reorder(*[outer[a] for a in order], *[inner[a] for a in sorted(inner)])
    bound = []
    for a, count in threads.items():
        if count > 1:
            outer[a], thread = out.split(outer[a], factor=count)
            bound.append(thread)
    out.reorder(*bound, *[outer[a] for a in order])
    for thread in bound:
        out.bind(thread, thread_axis("cthread"))
    return outer[order[-1]]
