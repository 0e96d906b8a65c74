"""Computations as JSON: how a worker process gets a workload without importing the code that declared it.

    {"nodes": [...], "ops": [...], "tensors": [[op, output], ...]}

`nodes` is the table of distinct expressions, variables and reducers, children before parents; a node names others by
their place in the table.  An infinity or NaN is `{"float": "-inf"}`, for JSON has no number for it.  `ops` are in stage
order.  The text, the stage order and the workload key survive the trip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..computation.tensor import ComputeOp, Operation, PlaceholderOp, Tensor, make_compute
from ..errors import ExprError
from ..expr.expr import (
    Binary,
    Call,
    Cast,
    Combiner,
    Compare,
    Const,
    Expr,
    IterVar,
    Load,
    Logical,
    Not,
    Reduce,
    Select,
    Var,
)
from ..schedule.dag import ComputeDAG

_fresh_key = itertools.count()


def dag_to_json(dag: ComputeDAG) -> dict[str, Any]:
    """The JSON object of a computation.  Raises ExprError for an attribute that JSON cannot hold."""
    writer = _Writer(dag)
    ops = [writer.op(op) for op in dag.ops]
    return {"nodes": writer.nodes, "ops": ops, "tensors": [writer.tensor(t) for t in dag.tensors]}


def dag_from_json(data: Mapping[str, Any]) -> ComputeDAG:
    """The computation that `dag_to_json` wrote; its operations are new ones."""
    reader = _Reader(data["nodes"])
    for item in data["ops"]:
        reader.ops.append(reader.op(item))
    return ComputeDAG([reader.tensor(t) for t in data["tensors"]])


def _number(value: Any) -> Any:
    return {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


class _Writer:
    def __init__(self, dag: ComputeDAG) -> None:
        self.nodes: list[list[Any]] = []
        self.place: dict[int, int] = {}
        self.number = {op.key: k for k, op in enumerate(dag.ops)}

    def tensor(self, t: Tensor) -> list[int]:
        return [self.number[t.op.key], t.value_index]

    def op(self, op: Operation) -> list[Any]:
        attrs = {str(k): self.attr(op.name, v) for k, v in op.attrs.items()}
        if isinstance(op, ComputeOp):
            return ["compute", op.name, self.many(op.axis), self.many(op.body), op.tag, attrs, op.scope]
        return ["placeholder", op.name, list(op.shape), op.dtype, attrs]

    def attr(self, subject: str, value: Any) -> Any:
        match value:
            case None | bool() | int() | float() | str():
                return _number(value)
            case Tensor():
                return {"tensor": self.tensor(value)}
            case list() | tuple():
                return [self.attr(subject, v) for v in value]
        raise ExprError(f"{subject}: an attribute must be made of numbers, texts and tensors, got {value!r}")

    def many(self, items: Sequence[Expr]) -> list[int]:
        return [self.node(e) for e in items]

    def node(self, e: Expr | Combiner) -> int:
        """The place of `e` in the table; it is added when it is new."""
        if id(e) not in self.place:
            data = self.data(e)
            self.place[id(e)] = len(self.nodes)
            self.nodes.append(data)
        return self.place[id(e)]

    def data(self, e: Expr | Combiner) -> list[Any]:
        match e:
            case IterVar():
                extent = {"expr": self.node(e.extent)} if isinstance(e.extent, Expr) else e.extent
                return ["axis", e.name, e.dtype, extent, e.kind]
            case Var():
                return ["var", e.name, e.dtype]
            case Const():
                return ["const", _number(e.value), e.dtype]
            case Binary() | Compare() | Logical():
                return [type(e).__name__.lower(), e.op, self.node(e.a), self.node(e.b)]
            case Not():
                return ["not", self.node(e.a)]
            case Select():
                return ["select", self.node(e.cond), self.node(e.a), self.node(e.b)]
            case Cast():
                return ["cast", e.dtype, self.node(e.a)]
            case Call():
                return ["call", e.func, self.many(e.args), e.dtype]
            case Load():
                return ["load", self.tensor(e.tensor), self.many(e.indices)]
            case Combiner():
                return ["combiner", e.name, *[self.many(x) for x in (e.lhs, e.rhs, e.result, e.identity)]]
            case Reduce():
                where = None if e.condition is None else self.node(e.condition)
                return ["reduce", self.node(e.combiner), self.many(e.sources), self.many(e.axes), where,
                        e.value_index, self.many(e.init)]  # fmt: skip
        raise ExprError(f"expression: {type(e).__name__} is no part of a workload")


_BINARY: dict[str, type[Binary] | type[Compare] | type[Logical]] = {
    "binary": Binary, "compare": Compare, "logical": Logical,
}  # fmt: skip


class _Reader:
    def __init__(self, table: Sequence[Any]) -> None:
        self.table = table
        self.made: dict[int, Any] = {}
        self.ops: list[Operation] = []

    def tensor(self, data: Sequence[int]) -> Tensor:
        return Tensor(self.ops[data[0]], data[1])

    def op(self, data: Sequence[Any]) -> Operation:
        key = ("json", next(_fresh_key))
        if data[0] == "placeholder":
            _, name, shape, dtype, attrs = data
            return PlaceholderOp(name, tuple(shape), dtype, key, self.attrs(attrs))
        _, name, axis, body, tag, attrs, scope = data
        return make_compute(name, self.many(axis), self.many(body), key, tag, self.attrs(attrs), scope)

    def attrs(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.attr(value) for name, value in data.items()}

    def attr(self, value: Any) -> Any:
        match value:
            case {"tensor": ref}:
                return self.tensor(ref)
            case {"float": text}:
                return float(text)
            case list():
                return tuple([self.attr(v) for v in value])
        return value

    def many(self, places: Sequence[int]) -> tuple[Any, ...]:
        return tuple([self.node(p) for p in places])

    def node(self, place: int) -> Any:
        if place not in self.made:
            self.made[place] = self.make(self.table[place])
        return self.made[place]

    def make(self, data: Sequence[Any]) -> Expr | Combiner:
        match data:
            case ["axis", name, dtype, extent, kind]:
                return IterVar(name, dtype, self.node(extent["expr"]) if isinstance(extent, dict) else extent, kind)
            case ["var", name, dtype]:
                return Var(name, dtype)
            case ["const", value, dtype]:
                return Const(self.attr(value), dtype)
            case ["binary" | "compare" | "logical" as kind, op, a, b]:
                return _BINARY[kind](op, self.node(a), self.node(b))
            case ["not", a]:
                return Not(self.node(a))
            case ["select", cond, a, b]:
                return Select(self.node(cond), self.node(a), self.node(b))
            case ["cast", dtype, a]:
                return Cast(dtype, self.node(a))
            case ["call", func, args, dtype]:
                return Call(func, self.many(args), dtype)
            case ["load", tensor, indices]:
                return Load(self.tensor(tensor), self.many(indices))
            case ["combiner", name, lhs, rhs, result, identity]:
                return Combiner(name, self.many(lhs), self.many(rhs), self.many(result), self.many(identity))
            case ["reduce", combiner, sources, axes, where, index, init]:
                condition = None if where is None else self.node(where)
                values = self.many(sources), self.many(axes)
                return Reduce(self.node(combiner), *values, condition, index, self.many(init))
        raise ExprError(f"expression table: {data!r} is no node")
