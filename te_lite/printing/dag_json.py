"""Computations as JSON: how a worker process gets a workload without importing the code that declared it.

    {"nodes": [...], "ops": [...], "tensors": [[op, output], ...]}

`nodes` is the table of distinct expressions, variables and reducers, children before parents; a node names others by
their place in the table.  An infinity or NaN is `{"float": "-inf"}`, for JSON has no number for it.  `ops` are in stage
order.  The text, the stage order and the workload key survive the trip.

What is read ends up as the text of a program, so every name, operator, function, dtype and number is looked at before
a node is made of it.  The sizes of tensors are the business of those who allocate them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..computation.tensor import ComputeOp, Operation, PlaceholderOp, Tensor, make_compute
from ..errors import ExprError, TeError, require
from ..expr.dtype import DTYPES, FLOATS
from ..expr.element import Before, Carried
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
    SizeVar,
    Var,
)
from ..expr.intrinsics import CALLS
from ..schedule.dag import ComputeDAG

# ---------------------------------------------------------------------------------- checks of what comes from elsewhere


MOST_NODES = 100_000
MOST_EXTENT = 2**31 - 1
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,199}")
SCOPE = re.compile(r"|global|shared|local(\.[a-z_]+)?")
OPERATORS = {
    "binary": ("+", "-", "*", "/", "//", "%", "min", "max"),
    "compare": ("<", "<=", ">", ">=", "==", "!="),
    "logical": ("&&", "||"),
}


def dag_from_foreign_json(data: Any) -> ComputeDAG:
    """The computation of a JSON value from anywhere.  Raises ExprError, in one sentence, for whatever is none."""
    law = "is no computation as it is written here"
    try:
        _Check(data).all()
        return dag_from_json(data)
    except TeError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError, RecursionError) as error:
        raise ExprError(f"computation in JSON: {law}: {type(error).__name__}") from error


class _Check:
    """Looks at the table of nodes in order: a node names earlier ones only."""

    def __init__(self, data: Any) -> None:
        self.need(
            isinstance(data, dict) and set(data) == {"nodes", "ops", "tensors"},
            "a value of these parts",
            list(data)[:8],
        )
        self.nodes, self.ops, self.tensors = data["nodes"], data["ops"], data["tensors"]
        for part in (self.nodes, self.ops, self.tensors):
            self.need(isinstance(part, list) and len(part) <= MOST_NODES, "a table", type(part).__name__)

    def need(self, ok: object, what: str, got: object) -> None:
        require(ok, ExprError, "computation in JSON", f"{what} is not one", got=got)

    def all(self) -> None:
        for k, node in enumerate(self.nodes):
            self.need(isinstance(node, list) and node and self.node(k, node), "a node", node)
        for k, op in enumerate(self.ops):
            self.need(isinstance(op, list) and op and self.op(k, op), "an operation", op)
        self.need(self.tensors and all(map(self.tensor, self.tensors)), "a list of tensors", self.tensors)

    def node(self, k: int, node: Sequence[Any]) -> bool:
        match node:
            case ["axis", name, dtype, dict(extent), kind]:
                return self.named(name, dtype) and set(extent) == {"expr"} and self.is_expr(k, extent["expr"]) and (
                    kind == "reduce"
                )  # fmt: skip
            case ["axis", name, dtype, extent, kind]:
                return self.named(name, dtype) and _is_extent(extent) and kind in ("spatial", "reduce")
            case ["var", name, dtype]:
                return self.named(name, dtype)
            case ["carried", name, dtype, output]:
                return self.named(name, dtype) and _is_count(output)
            case ["before", name, dtype, output, now]:
                known = self.is_node(k, now) and self.nodes[now][0] == "carried"
                return self.named(name, dtype) and _is_count(output) and known
            case ["const", value, dtype]:
                return _is_constant(value, dtype)
            case ["binary" | "compare" | "logical" as kind, op, a, b]:
                return op in OPERATORS[kind] and self.exprs(k, [a, b])
            case ["not", a]:
                return self.is_expr(k, a)
            case ["select", cond, a, b]:
                return self.exprs(k, [cond, a, b])
            case ["cast", dtype, a]:
                return dtype in DTYPES and self.is_expr(k, a)
            case ["call", func, args, dtype]:
                return func in CALLS and dtype in DTYPES and self.exprs(k, args)
            case ["load", tensor, indices]:
                return self.tensor(tensor) and self.exprs(k, indices)
            case ["combiner", name, lhs, rhs, result, identity]:
                parts = (lhs, rhs, result, identity)
                variables = self.kinds([*lhs, *rhs]) <= {"var"}
                return _is_name(name) and all(self.exprs(k, x) for x in parts) and variables
            case ["reduce", combiner, sources, axes, where, index, init]:
                whole = self.is_node(k, combiner) and self.nodes[combiner][0] == "combiner" and _is_count(index)
                values = self.exprs(k, sources) and self.exprs(k, axes) and self.exprs(k, init)
                condition = where is None or self.is_expr(k, where)
                return whole and values and condition and self.kinds(axes) == {"axis"} and index < len(sources)
        return False

    def op(self, k: int, op: Sequence[Any]) -> bool:
        most = len(self.nodes)
        match op:
            case ["placeholder", name, list(shape), dtype, dict(attrs)]:
                return self.named(name, dtype) and all(map(_is_extent, shape)) and self.attrs(attrs)
            case ["compute", name, list(axis), list(body), str(tag), dict(attrs), str(scope)]:
                parts = self.exprs(most, axis) and self.exprs(most, body) and len(body) > 0
                named = _is_name(name) and SCOPE.fullmatch(scope) is not None and len(tag) <= 200
                return parts and named and self.kinds(axis) <= {"axis"} and self.attrs(attrs)
        return False

    def attrs(self, attrs: Mapping[str, Any]) -> bool:
        return all(_is_name(name) and self.attr(value) for name, value in attrs.items())

    def attr(self, value: Any) -> bool:
        match value:
            case None | bool() | int() | float() | str():
                return True
            case {"tensor": ref}:
                return len(value) == 1 and self.tensor(ref)
            case {"float": text}:
                return len(value) == 1 and text in ("inf", "-inf", "nan")
            case list():
                return all(map(self.attr, value))
        return False

    def tensor(self, ref: Any) -> bool:
        pair = isinstance(ref, list) and len(ref) == 2 and all(map(_is_count, ref))
        return pair and ref[0] < len(self.ops) and ref[1] < max(1, self.outputs(ref[0]))

    def outputs(self, op: int) -> int:
        return len(self.ops[op][3]) if self.ops[op][0] == "compute" else 1

    def named(self, name: Any, dtype: Any) -> bool:
        return _is_name(name) and dtype in DTYPES

    def kinds(self, places: Sequence[int]) -> set[str]:
        return {self.nodes[p][0] for p in places}

    def is_node(self, k: int, place: Any) -> bool:
        return _is_count(place) and place < k

    def is_expr(self, k: int, place: Any) -> bool:
        return self.is_node(k, place) and self.nodes[place][0] != "combiner"

    def exprs(self, k: int, places: Any) -> bool:
        return isinstance(places, list) and all([self.is_expr(k, p) for p in places])


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_EXTENT


def _is_extent(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _is_constant(value: Any, dtype: Any) -> bool:
    match value:
        case bool():
            return bool(dtype == "bool")
        case int():
            return dtype in DTYPES and dtype != "bool" and abs(value) < 2**64
        case float():
            return dtype in FLOATS
        case {"float": "inf" | "-inf" | "nan"}:
            return len(value) == 1 and dtype in FLOATS
    return False


_fresh_key = itertools.count()


def dag_to_json(dag: ComputeDAG) -> dict[str, Any]:
    """The JSON object of a computation.  Raises ExprError for open extents and attributes that JSON cannot hold."""
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
        return ["placeholder", op.name, list(map(self.extent, op.extents)), op.dtype, attrs]

    def extent(self, extent: Any) -> Any:
        return {"expr": self.node(extent)} if isinstance(extent, Expr) else extent

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
                return ["axis", e.name, e.dtype, self.extent(e.extent), e.kind]
            case Before():
                return ["before", e.name, e.dtype, e.output, self.node(e.now)]
            case Carried():
                return ["carried", e.name, e.dtype, e.output]
            case SizeVar():
                raise ExprError(f"{e.name}: JSON has no open extents, give a number in place of te.size_var")
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
            case ["carried", name, dtype, output]:
                return Carried(name, dtype, output)
            case ["before", name, dtype, output, now]:
                return Before(name, dtype, output, self.node(now))
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
