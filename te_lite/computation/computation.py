"""The computation of a workload: operations in stage order, FLOP count, text and identity."""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from ..errors import ExprError, TeError, require
from ..expr.expr import Binary, Call, Cast, Compare, Const, Expr, Load, Logical, Not, Reduce, Select, SizeVar, Var
from ..expr.visit import walk
from .access import AccessInfo, access_info
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from .text import dag_text, hash_text


class Computation:
    """An immutable, analysed computation.

    `tensors` are the inputs and outputs of the workload; their order is the order of kernel arguments.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        require_tensors("ComputeDAG", tensors, ExprError)
        self.tensors = tuple(tensors)
        self.ops = _stage_order(self.tensors)

    @property
    def access(self) -> AccessInfo:
        return access_info(self.ops)

    @cached_property
    def graph(self) -> Any:
        """A `networkx.DiGraph`: nodes are stage numbers (attribute `op`), an edge leads from producer to consumer."""
        graph = import_module("networkx").DiGraph()
        graph.add_nodes_from((k, {"op": op}) for k, op in enumerate(self.ops))
        graph.add_edges_from((p, k) for k, reads in enumerate(self.access.read_from) for p in reads)
        return graph

    @cached_property
    def flop_ct(self) -> float:
        """Floating-point operations of one run; -1 when they cannot be counted."""
        ops = [op for op in self.ops if isinstance(op, ComputeOp)]
        counts = [float(op.attrs["FLOP"]) if "FLOP" in op.attrs else _op_flops(op) for op in ops]
        return -1.0 if min(counts, default=0.0) < 0 else sum(counts, 0.0)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors of `tensors` that are computed."""
        return tuple(t for t in self.tensors if isinstance(t.op, ComputeOp))

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors of `tensors` that are given."""
        return tuple(t for t in self.tensors if isinstance(t.op, PlaceholderOp))

    @cached_property
    def sizes(self) -> tuple[SizeVar, ...]:
        """The sizes that are extents or are read, each once, those of arguments first."""
        found: list[Any] = [d for t in self.tensors for d in t.shape]
        found += [d for op in self.ops for d in (*op.extents, *[v.extent for v in op.reduce_axis])]
        found += [e for op in self.ops if isinstance(op, ComputeOp) for body in op.body for e in walk(body)]
        return tuple(dict.fromkeys([d for d in found if isinstance(d, SizeVar)]))

    def workload_key(self) -> str:
        """`[md5 of the hash text, shape of each tensor ...]` as JSON.  Raises ExprError where extents are open."""
        law = "the extents of a task are numbers; sizes={...} says which values of open ones count"
        require(not self.sizes, ExprError, "workload", law, sizes=self.sizes)
        digest = hashlib.md5(hash_text(self.ops).encode("utf-8"), usedforsecurity=False).hexdigest()
        return json.dumps([digest, *(list(t.shape) for t in self.tensors)])

    def __str__(self) -> str:
        return dag_text(self.ops)

    def __repr__(self) -> str:
        return f"ComputeDAG({', '.join(op.name for op in self.ops)})"


def require_tensors(subject: str, tensors: Sequence[Tensor], error: type[TeError]) -> None:
    """Raise `error` for what is no list of tensors."""
    law = "a list of tensors is needed, the inputs and outputs of the workload"
    require(isinstance(tensors, list | tuple), error, subject, law, got=tensors)
    require(len(tensors) > 0, error, subject, "at least one tensor is needed")
    for t in tensors:
        require(isinstance(t, Tensor), error, subject, "is made of tensors", got=t)


def require_workload(subject: str, tensors: Sequence[Tensor], error: type[TeError]) -> None:
    """Raise `error` for what is no list of inputs and outputs, each of them once and one of them computed."""
    require_tensors(subject, tensors, error)
    names = ", ".join([t.name for t in tensors])
    law = "computes nothing, its list has inputs only; add the tensor that is computed"
    require(any(isinstance(t.op, ComputeOp) for t in tensors), error, subject, law, got=names)
    twice = [t.name for t, count in Counter(tensors).items() if count > 1]
    law = f"each tensor is listed once, and its list has a tensor twice: {', '.join(twice)}"
    require(not twice, error, subject, law, got=names)


class _Reads:
    """Who reads whom among the operations that lead to `tensors`, in the order of their discovery (`place`)."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.ops: dict[object, Operation] = {}
        self.place: dict[object, int] = {}
        self.inputs: dict[object, int] = {}
        self.readers: dict[object, list[Operation]] = {}
        stack = [t.op for t in tensors]
        while stack:
            op = stack.pop()
            if op.key not in self.ops:
                stack += self._discover(op)

    def _discover(self, op: Operation) -> list[Operation]:
        """Enter an operation; returns what it reads."""
        self.place[op.key] = len(self.ops)
        self.ops[op.key] = op
        read = [t.op for t in op.input_tensors()]
        self.inputs[op.key] = len(read)
        for producer in read:
            self.readers.setdefault(producer.key, []).append(op)
        return read


def _analysis_order(tensors: tuple[Tensor, ...]) -> list[Operation]:
    """Producers first; among ready operations the one discovered last goes first."""
    reads = _Reads(tensors)
    missing = dict(reads.inputs)
    ready = [(-reads.place[key], key) for key, count in missing.items() if count == 0]
    heapq.heapify(ready)
    out = []
    while ready:
        op = reads.ops[heapq.heappop(ready)[1]]
        out.append(op)
        for reader in reads.readers.get(op.key, ()):
            missing[reader.key] -= 1
            if missing[reader.key] == 0:
                heapq.heappush(ready, (-reads.place[reader.key], reader.key))
    return out


def _stage_order(tensors: tuple[Tensor, ...]) -> tuple[Operation, ...]:
    """Post-order depth-first search from each operation that nobody reads."""
    found = _analysis_order(tensors)
    read = {t.op.key for op in found for t in op.input_tensors()}
    order: dict[object, Operation] = {}

    def visit(op: Operation) -> None:
        if op.key not in order:
            for t in op.input_tensors():
                visit(t.op)
            order[op.key] = op

    for op in found:
        if op.key not in read:
            visit(op)
    return tuple(order.values())


def _type_code(dtype: str) -> str:
    return dtype.rstrip("0123456789")


class _Uncountable(Exception):
    pass


def _op_flops(op: ComputeOp) -> float:
    try:
        per_point = sum(_cost(body, _type_code(body.dtype)) for body in op.body)
    except _Uncountable:
        return -1.0
    return float(math.prod(op.shape)) * per_point


def _cost(e: Expr, code: str) -> float:
    match e:
        case Reduce(combiner=combiner, sources=sources, axes=axes):
            extents = [v.extent for v in axes if isinstance(v.extent, int)]
            if len(extents) < len(axes):
                raise _Uncountable
            points = math.prod(extents)
            return points * sum(_cost(r, code) + _cost(s, code) for r, s in zip(combiner.result, sources, strict=True))
        case Binary(a=a, b=b) | Compare(a=a, b=b) | Logical(a=a, b=b):
            counts = _type_code(a.dtype) == code or _type_code(b.dtype) == code
            return counts + _cost(a, code) + _cost(b, code)
        case Not(a=a):
            return (_type_code(e.dtype) == code) + _cost(a, code)
        case Select(cond=cond, a=a, b=b):
            return _cost(cond, code) + max(_cost(a, code), _cost(b, code))
        case Call(args=args):
            return sum(_cost(a, code) for a in args)
        case Cast(a=a):
            return _cost(a, code)
        case Load() | Const() | Var():
            return 0
    raise _Uncountable
