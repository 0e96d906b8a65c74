"""Operators that are nothing but a pattern, and random graphs of them, for tests of what looks at patterns only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relay_lite.ir.nodes import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from relay_lite.ir.op_registry import Attrs, Op, OpPattern
from relay_lite.ir.types import TensorType, TupleType, Type

SHAPE = (4, 6)


def _widest(types: Sequence[Type], attrs: Attrs) -> Type:
    flat = [f for t in types for f in (t.fields if isinstance(t, TupleType) else (t,))]
    return max(flat, key=lambda t: t.size)


def _pair(types: Sequence[Type], attrs: Attrs) -> Type:
    found = _widest(types, attrs)
    assert isinstance(found, TensorType)
    return TupleType((found, found))


def _no_meaning(args: Sequence[Any], attrs: Attrs) -> Any:
    raise NotImplementedError


def toy(name: str, pattern: OpPattern, infer: Any = _widest) -> Op:
    return Op(name, pattern, infer, _no_meaning, None, {"tag": 0})


RELU = toy("nn.relu", OpPattern.ELEMWISE)
ADD = toy("add", OpPattern.BROADCAST)
RESHAPE = toy("reshape", OpPattern.INJECTIVE)
CONCAT = toy("concatenate", OpPattern.INJECTIVE)
SPLIT = toy("split", OpPattern.INJECTIVE, _pair)
SUM = toy("sum", OpPattern.COMM_REDUCE)
CONV = toy("nn.conv2d", OpPattern.OUT_ELEMWISE_FUSABLE)
SORT = toy("sort", OpPattern.OPAQUE)


def call(op: Op, *args: Expr, **attrs: Any) -> Call:
    return Call(op, args, attrs)


def var(name: str, shape: tuple[int, ...] = SHAPE) -> Var:
    return Var(name, TensorType(shape))


def scalar(value: float) -> Constant:
    return Constant(np.float32(value))


def random_graph(rng: np.random.Generator, size: int) -> Function:
    """A graph of `size` operators, most of them reading what was made last, some far back, some shared scalars."""
    params = [var("x"), var("y"), var("row", (6,)), var("one", (1, 1))]
    shared = scalar(0.5)
    values: list[Expr] = list(params)

    def pick() -> Expr:
        return values[-1 - int(min(rng.geometric(0.45), len(values)) - 1)]

    for k in range(size):
        kind = rng.choice(["unary", "binary", "scalar", "anchor", "reshape", "sum", "concat", "split", "sort"],
                          p=[0.2, 0.25, 0.08, 0.15, 0.1, 0.04, 0.09, 0.05, 0.04])  # fmt: skip
        match str(kind):
            case "unary":
                value: Expr = call(RELU, pick(), tag=k % 3)
            case "binary":
                value = call(ADD, pick(), pick())
            case "scalar":
                value = call(ADD, pick(), shared if rng.random() < 0.5 else scalar(float(k)))
            case "anchor":
                value = call(CONV, pick(), var(f"w{k}", (3, 3)) if rng.random() < 0.7 else pick())
            case "reshape":
                value = call(RESHAPE, pick())
            case "sum":
                value = call(SUM, pick())
            case "concat":
                value = call(CONCAT, Tuple((pick(), pick(), pick())))
            case "split":
                pair = call(SPLIT, pick())
                values.append(TupleGetItem(pair, 0))
                value = TupleGetItem(pair, 1)
            case _:
                value = call(SORT, pick())
        values.append(value)
    body = values[-1] if rng.random() < 0.6 else Tuple((values[-1], pick()))
    weights = [v for v in _variables(body) if v not in params]
    return Function((*params, *weights), body)


def _variables(body: Expr) -> list[Var]:
    from relay_lite.ir.visit import free_vars

    return list(free_vars(body))
