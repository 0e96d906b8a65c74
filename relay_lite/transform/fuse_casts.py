"""Casts from 16 bits to float32 are done by the kernel that reads them, not by the one that computed what they cast.

    { half(conv(x, w)), float(...) }  ->  { add(...) }        { half(conv(x, w)) }  ->  { float(...), add(...) }

What lies between two kernels then takes half the bytes.  A group grows as far as it can, so that a cast which nothing
else keeps apart from a rounding is in the group of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..ir.nodes import Expr
from ..ir.op_registry import OpPattern
from ..ir.visit import is_op
from .dominator import FlowGraph

HALVES = ("float16", "bfloat16")


def fuse_casts(graph: FlowGraph, roots: Sequence[int], max_depth: int) -> list[int]:
    """The partition `roots` (the number of the last node of its group, for every node) with such casts at the end of a
    group in the one that reads them.

    They stay where readers are in several groups, or cannot compute with what is not in memory; `max_depth` bounds the
    nodes of a group.
    """
    out, sizes = list(roots), Counter(roots)
    number = {id(node): k for k, node in enumerate(graph.nodes)}
    for k, node in enumerate(graph.nodes):
        rounded = _widened(node) if sizes[k] > 1 else None
        readers = {edge.reader for edge in graph.readers[k]}
        into = {out[r] for r in readers}
        fits = len(into) == 1 and all(graph.patterns[r] <= OpPattern.COMM_REDUCE for r in readers)
        if rounded is not None and fits and sizes[min(into)] < max_depth:
            last, end = number[id(rounded)], min(into)
            out = [last if root == k else root for root in out]
            out[k] = end
            sizes[last], sizes[end] = sizes[k] - 1, sizes[end] + 1
    return out


def _widened(node: Expr) -> Expr | None:
    """What a cast to float32 takes that is of 16 bits; None for other nodes."""
    taken = node.args[0] if is_op(node, "cast") and node.dtype == "float32" else None
    return taken if taken is not None and taken.dtype in HALVES else None
