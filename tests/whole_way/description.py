"""A random computation as plain data: what the oracle and te_lite are both given, and nothing else.

An expression is a nested tuple whose first entry says what it is:

    ("axis", name)   ("const", value, dtype)   ("load", tensor, index ...)      an axis is an int32
    ("+" | "-" | "*" | "/" | "//" | "%" | "fmod" | "min" | "max", a, b)          "/" of integers rounds towards zero
    ("<" | "<=" | ">" | ">=" | "==" | "!=", a, b)   ("and" | "or", a, b)   ("not", a)
    ("select", condition, a, b)   ("if", condition, a, b)                        "if" evaluates one branch only
    ("cast", dtype, a)   ("call", function, a ...)

Operands of two dtypes meet in the wider one (docs/arithmetic.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

Expr = tuple[Any, ...]
Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Input:
    """A tensor that is given.

    `values` says how it is filled: "small" (integers of a few units, multiples of 1/8), "wide" (the whole range of an
    integer dtype, several magnitudes of a float), "special" (zeros, extremes, infinities and NaN among them), "zero".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: str = "small"


@dataclass(frozen=True)
class Stage:
    """An operation: `body[k]` is the element of the tensor `names[k]`; `fold` folds it over the axes `reduce`.

    `fold` is "" or sum, prod, max, min (one body), argmax, argmin (two: index and value); `where` leaves out points.
    Where there is an `extent`, an expression of the axes, the first axis of `reduce` runs so far only.
    """

    names: tuple[str, ...]
    axes: Axes
    body: tuple[Expr, ...]
    fold: str = ""
    reduce: Axes = ()
    where: Expr | None = None
    extent: Expr | None = None


@dataclass(frozen=True)
class Dag:
    """A computation, and the seed of its inputs."""

    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    seed: int = 0


def to_json(dag: Dag) -> str:
    """One line."""
    return json.dumps(asdict(dag))


def from_json(text: str) -> Dag:
    """The description in `to_json`'s text."""
    data = json.loads(text)
    inputs = tuple([Input(i["name"], tuple(i["shape"]), i["dtype"], i["values"]) for i in data["inputs"]])
    stages = tuple([Stage(**{k: _tuples(v) for k, v in s.items()}) for s in data["stages"]])
    return Dag(inputs, stages, tuple(data["outputs"]), data["seed"])


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def operands(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly under `e`."""
    return tuple([x for x in e[1:] if isinstance(x, tuple)])


def parts(e: Expr) -> Iterator[Expr]:
    """`e` and all expressions under it."""
    yield e
    for x in operands(e):
        yield from parts(x)


def reads(stage: Stage) -> set[str]:
    """The tensors that a stage reads."""
    more = [e for e in (stage.where, stage.extent) if e is not None]
    return {x[1] for e in (*stage.body, *more) for x in parts(e) if x[0] == "load"}


def needed(dag: Dag) -> Dag:
    """`dag` without what no output needs."""
    wanted = set(dag.outputs)
    stages: list[Stage] = []
    for stage in reversed(dag.stages):
        if wanted & set(stage.names):
            stages.append(stage)
            wanted |= reads(stage)
    inputs = tuple([i for i in dag.inputs if i.name in wanted])
    return Dag(inputs, tuple(reversed(stages)), dag.outputs, dag.seed)
