"""Whether two computations are the same one, whatever their names are, and where they differ first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from ..computation.tensor import Operation
from ..computation.text import op_lines, shortened
from ..schedule.dag import ComputeDAG
from .dag_json import dag_to_json


def first_difference(one: ComputeDAG, other: ComputeDAG) -> tuple[str, str] | None:
    """How each computation says the first thing that is not the same in both; None when nothing differs.

    Names, tags and attributes do not count: steps of a schedule refer to stages and iterators by their places.
    """
    nothing = None, ""
    for (a, of_a), (b, of_b) in zip_longest(_ops(one), _ops(other), fillvalue=nothing):
        if of_a != of_b:
            return _told(a, b)
    if _places(one) != _places(other):
        return _tensors_text(one), _tensors_text(other)
    return None


def _places(dag: ComputeDAG) -> list[tuple[int, int]]:
    numbers = {op.key: k for k, op in enumerate(dag.ops)}
    return [(numbers[t.op.key], t.value_index) for t in dag.tensors]


def _tensors_text(dag: ComputeDAG) -> str:
    return "the tensors " + ", ".join([t.name for t in dag.tensors])


def _ops(dag: ComputeDAG) -> Iterator[tuple[Operation | None, str]]:
    """The operations, each with a digest of what it computes."""
    data = dag_to_json(dag)
    for op, item in zip(dag.ops, data["ops"], strict=True):
        yield op, _Digests(data["nodes"]).op(item)


class _Digests:
    """Digests of the nodes of one operation: variables are known by when they are met first."""

    def __init__(self, nodes: list[list[Any]]) -> None:
        self.nodes = nodes
        self.known: dict[int, str] = {}
        self.variables = 0

    def op(self, item: list[Any]) -> str:
        match item:
            case ["compute", _, axis, body, _, _, scope]:
                return _digest(["compute", self.many(axis), self.many(body), scope])
            case [kind, _, shape, dtype, _]:
                return _digest([kind, shape, dtype])
        raise AssertionError(item[0])

    def variable(self) -> int:
        self.variables += 1
        return self.variables

    def many(self, places: list[int]) -> list[str]:
        return [self.node(p) for p in places]

    def node(self, place: int) -> str:
        if place not in self.known:
            self.known[place] = _digest(self.content(self.nodes[place]))
        return self.known[place]

    def content(self, data: list[Any]) -> list[Any]:
        """A node with digests for its children, and a number for its name."""
        match data:
            case ["axis", _, dtype, extent, kind]:
                size = self.node(extent["expr"]) if isinstance(extent, dict) else extent
                return ["axis", self.variable(), dtype, size, kind]
            case ["var", _, dtype]:
                return ["var", self.variable(), dtype]
            case ["const", *_]:
                return data
            case ["cast", dtype, a]:
                return ["cast", dtype, self.node(a)]
            case ["call", func, args, dtype]:
                return ["call", func, self.many(args), dtype]
            case ["load", tensor, indices]:
                return ["load", tensor, self.many(indices)]
            case ["combiner", _, *parts]:
                return ["combiner", *[self.many(p) for p in parts]]
            case ["reduce", combiner, sources, axes, where, index, init]:
                bound = self.many(axes)
                condition = None if where is None else self.node(where)
                return ["reduce", self.node(combiner), self.many(sources), bound, condition, index, self.many(init)]
            case ["binary" | "compare" | "logical" as kind, op, a, b]:
                return [kind, op, self.node(a), self.node(b)]
            case [kind, *children]:
                return [kind, *self.many(children)]
        raise AssertionError(data)


def _digest(content: list[Any]) -> str:
    return hashlib.md5(json.dumps(content).encode(), usedforsecurity=False).hexdigest()


def _told(a: Operation | None, b: Operation | None) -> tuple[str, str]:
    """The first description of two operations that tells them apart."""
    pairs = list(zip_longest(_descriptions(a), _descriptions(b), fillvalue="nothing"))
    last, _ = pairs[-1]
    return next(((one, other) for one, other in pairs if one != other), (last, f"another {last}"))


def _descriptions(op: Operation | None) -> Iterator[str]:
    """An operation as people see it first, in ever more detail."""
    if op is not None:
        yield " ".join([shortened(line) for line in op_lines(op)])
        yield f"{op.name} of {op.output_dtype(0)}, " + " x ".join(map(str, op.shape))
        yield f"{op.name}, a reduction over " + " x ".join([str(v.extent) for v in op.reduce_axis])
