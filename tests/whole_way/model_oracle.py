"""What an ONNX model means: NumPy in float64 with a bound of the error of every element, node by node.

Each node is read off ONNX's pages.  float16 and bfloat16 are computed in float32, and each node rounds once; float64
is computed in float64, norms with a `stash_type` of float32, too.  What ONNX leaves open (integers divided by 0, floats
beyond an integer) is as docs/arithmetic.md says.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .blocks import joined, moved
from .bounded import Value, exact
from .model import Body, Model, Node, array_of
from .onnx_elements import ELEMENTS
from .onnx_moves import MIXES, MOVES
from .onnx_recurrent import RECURRENT
from .onnx_rows import ROWS
from .operators import cast

HALVES = ("float16", "bfloat16")
COMPUTED = {**ELEMENTS, **ROWS, **MIXES, **RECURRENT}
KEEP_DTYPES = ("Cast", "DequantizeLinear")
Known = dict[int, Any]


def evaluate(model: Model) -> Known:
    """The value of every node; of one with several results a list."""
    known: Known = {}
    for k, node in enumerate(model.nodes):
        known[k] = meaning(node, k, known, model.seed)
    return known


def meaning(node: Node, k: int, known: Known, seed: int) -> Any:
    """The value of a node."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return _meaning(node, k, known, seed)


def _meaning(node: Node, k: int, known: Known, seed: int) -> Any:
    op, inputs, given = node
    attrs = {name: float(np.float32(x)) if isinstance(x, float) else x for name, x in given.items()}
    args = [known[i] if i >= 0 else None for i in inputs]
    match op:
        case "nothing" | "given":
            return known.get(k)
        case "input" | "const" | "list":
            array = array_of(node, k, seed)
            return exact(array, array.dtype.name)
        case "item":
            return args[0][attrs["index"]]
        case "If":
            body = attrs["then_branch" if bool(args[0].v.reshape(())) else "else_branch"]
            return _results(_of_body(body, [], known, seed), attrs)
        case "Loop":
            return _results(_loop(args, attrs["body"], known, seed), attrs)
        case "Scan":
            return _results(_scan(args, attrs, known, seed), attrs)
    if op in MOVES:
        return MOVES[op](args, attrs)
    found = COMPUTED[op]([_wide(x) for x in args], attrs)
    half = next((x.dtype for x in args if x is not None and x.dtype in HALVES), None)
    if half is None or op in KEEP_DTYPES:
        return found if op not in KEEP_DTYPES or half is None else _of_dtype(found, half, op)
    return [_narrow(x, half) for x in found] if isinstance(found, list) else _narrow(found, half)


def _of_dtype(found: Value, half: str, op: str) -> Value:
    return _narrow(found, half) if op == "DequantizeLinear" else found


def _wide(x: Any) -> Any:
    return cast(x, "float32") if x is not None and x.dtype in HALVES else x


def _narrow(x: Value, half: str) -> Value:
    return cast(x, half) if x.dtype == "float32" else x


def _results(found: list[Value], attrs: Any) -> Any:
    return found if attrs.get("results", 1) > 1 else found[0]


def _of_body(body: Body, given: Sequence[Value], around: Known, seed: int) -> list[Value]:
    first = body.nodes[0][2]["number"]
    known = {**around, **{first + k: x for k, x in enumerate(given)}}
    for k, node in enumerate(body.nodes, first):
        if node[0] != "given":
            known[k] = _meaning(node, k, known, seed)
    return [known[o] for o in body.outputs]


def _loop(args: list[Any], body: Body, known: Known, seed: int) -> list[Value]:
    """The carried values in the end, then what every trip gave, stacked."""
    trips, begin, *carried = args
    gathered: list[list[Value]] = []
    going = begin is None or bool(begin.v.reshape(()))
    for trip in range(int(trips.v.reshape(()))):
        if not going:
            break
        number, holds = exact(np.asarray(trip), "int64"), exact(np.asarray(True), "bool")
        results = _of_body(body, [number, holds, *carried], known, seed)
        gathered.append(results[1 + len(carried) :])
        going, carried = bool(results[0].v.reshape(())), results[1 : 1 + len(carried)]
    return [*carried, *_stacked(gathered)]


def _stacked(gathered: list[list[Value]]) -> list[Value]:
    return [joined(list(x), np.stack) for x in zip(*gathered, strict=True)]


def _scan(args: list[Any], attrs: Any, known: Known, seed: int) -> list[Value]:
    """The states in the end, then what every step gave, stacked."""
    count = attrs["num_scan_inputs"]
    states, rows = args[: len(args) - count], args[len(args) - count :]
    gathered: list[list[Value]] = []
    for t in range(rows[0].v.shape[0]):
        results = _of_body(attrs["body"], [*states, *[moved(x, lambda y, t=t: y[t]) for x in rows]], known, seed)
        gathered.append(results[len(states) :])
        states = results[: len(states)]
    return [*states, *_stacked(gathered)]


def known_share(x: Value) -> float:
    """How many of the elements are known."""
    return float(np.broadcast_to(x.known, x.v.shape).mean()) if x.v.size else 0.0


def as_given(x: Value) -> Value:
    """A value that holds for all shapes: what a body is drawn with."""
    return replace(x, e=np.broadcast_to(x.e, x.v.shape))
