"""What a graph holds at the same time when its operators run one after the other, as in a framework without a compiler.

It is a lower bound: what is computed element by element is written over its argument, what only moves elements is a
view, and attention stores no scores.  Inputs and constants are not counted, since they are there before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ..ir.nodes import Call, Expr, Tuple, TupleGetItem, children
from ..ir.types import TensorType
from ..ir.visit import is_op
from .dominator import FlowGraph
from .row_shapes import is_elementwise
from .simplify_expr import MOVES


def bytes_of(e: Expr) -> int:
    """The bytes of a tensor, or of all tensors of a tuple."""
    fields = [e.type] if isinstance(e.type, TensorType) else e.type.fields
    return sum([prod(t.shape) * np.dtype(t.dtype).itemsize for t in fields])


@dataclass(frozen=True)
class LiveBytes:
    """The memory of the nodes of a graph, without that of the nodes in `unstored`."""

    graph: FlowGraph
    unstored: Collection[int] = ()

    @cached_property
    def place(self) -> tuple[int, ...]:
        """For every node the first one whose memory it has."""
        found: list[int] = []
        for k, node in enumerate(self.graph.nodes):
            given = [found[self.graph.numbers[a]] for a in children(node)]
            over = [p for p in given if isinstance(self.graph.nodes[p], Call) and p not in self.unstored]
            if is_op(node, *MOVES) or isinstance(node, TupleGetItem):
                found.append(given[0])
            elif is_elementwise(node) and over:
                found.append(max(over, key=lambda p: bytes_of(self.graph.nodes[p])))
            else:
                found.append(k)
        return tuple(found)

    @cached_property
    def last(self) -> dict[int, int]:
        """The last reader of each memory; the number of nodes for what the graph returns."""
        count, ends, found = len(self.place), list[int](range(len(self.place))), dict[int, int]()
        for k in reversed(range(count)):
            through = isinstance(self.graph.nodes[k], Tuple)
            readers = [ends[e.reader] if isinstance(self.graph.nodes[e.reader], Tuple) else e.reader
                       for e in self.graph.readers[k]]  # fmt: skip
            ends[k] = count if k == self.graph.result else max(readers, default=k)
            found[self.place[k]] = max(found.get(self.place[k], k), k if through else ends[k])
        return found

    @cached_property
    def size(self) -> dict[int, int]:
        """The bytes of each memory."""
        found: dict[int, int] = {}
        for k, (node, p) in enumerate(zip(self.graph.nodes, self.place, strict=True)):
            stored = isinstance(self.graph.nodes[p], Call) and p not in self.unstored and k not in self.unstored
            found[p] = max(found.get(p, 0), bytes_of(node) if stored else 0)
        return found

    @cached_property
    def most(self) -> int:
        """The most bytes that are held at once."""
        change = [0] * (len(self.place) + 2)
        for p, end in self.last.items():
            change[p] += self.size[p]
            change[end + 1] -= self.size[p]
        return int(np.cumsum(change).max())

    def around(self, end: int, inputs: Iterable[int], inside: Collection[int]) -> int:
        """The bytes that are held while all that is `inside` runs at the place of `end`, its last node."""
        there = {p for p, last in self.last.items() if p <= end <= last} | {self.place[k] for k in inputs}
        return sum([self.size[p] for p in (there - self.of(inside)) | {self.place[end]}])

    def of(self, nodes: Iterable[int]) -> set[int]:
        """The memory of some nodes."""
        return {self.place[k] for k in nodes}
