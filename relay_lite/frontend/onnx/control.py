"""If, Loop and Scan, whose course must be known when the model is read: a branch is taken, a body is written out.

`Inline` enters a graph with expressions for its inputs and gives those of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ...ir.nodes import Expr
from .emit import call, concatenate, const, reshape, value_of
from .model import OnnxGraph
from .node import Node
from .select import pick

Inline: TypeAlias = Callable[[OnnxGraph, Sequence[Expr]], list[Expr]]
MOST_STEPS = 1024


def branch(node: Node, inline: Inline) -> list[Expr]:
    """If: the results of the branch that a known condition takes."""
    both = {name: _graph(node, name) for name in ("then_branch", "else_branch")}
    made = inline(both["then_branch" if node.scalar(0) else "else_branch"], [])
    node.require(len(made) == len(node.outputs), "the branch needs one result an output", results=len(made))
    return made


def _graph(node: Node, name: str) -> OnnxGraph:
    graph = node.attrs[name] if node.has(name) else None
    node.require(isinstance(graph, OnnxGraph), f"the graph {name} is needed", attributes=tuple(node.attrs))
    assert isinstance(graph, OnnxGraph)
    return graph


def loop(node: Node, inline: Inline) -> list[Expr]:
    """Loop: the body once a trip, whose conditions must all be known; last states, then stacked results."""
    body = _graph(node, "body")
    trips, state = node.scalar(0), [node.input(i) for i in range(2, len(node.inputs))]
    going = True if node.optional(1) is None else bool(node.scalar(1))
    node.require(
        len(body.inputs) == len(state) + 2, "the body needs trip, condition and states", inputs=len(body.inputs)
    )
    rows: list[list[Expr]] = []
    while going and (trips is None or len(rows) < trips):
        node.require(len(rows) < MOST_STEPS, f"at most {MOST_STEPS} trips are written out")
        step = const(len(rows), "int64"), const(True, "bool")
        outputs = inline(body, [*step, *state])
        node.require(len(outputs) > len(state), "the body needs a condition and states", outputs=len(outputs))
        verdict = value_of(outputs[0])
        node.require(verdict is not None and verdict.size == 1, "the condition must be known in every trip")
        assert verdict is not None
        going, state, rows = bool(verdict), outputs[1 : 1 + len(state)], [*rows, outputs[1 + len(state) :]]
    scans = len(body.outputs) - 1 - len(state)
    node.require(rows or not scans, "a loop of no trip has no results to stack")
    return [*state, *(_stacked([row[k] for row in rows], 0) for k in range(scans))]


def _stacked(parts: Sequence[Expr], axis: int) -> Expr:
    return concatenate([call("expand_dims", part, axis=axis) for part in parts], axis)


def scan(node: Node, inline: Inline) -> list[Expr]:
    """Scan: the body once a slice of the scanned inputs; last states, then stacked results."""
    count = node.integer("num_scan_inputs")
    node.require(1 <= count < len(node.inputs) + (node.opset >= 9), "num_scan_inputs must count inputs",
                 num_scan_inputs=count)  # fmt: skip
    if node.opset < 9:
        return _scan_batch(node, inline, count)
    given = [node.input(i) for i in range(len(node.inputs))]
    return _steps(node, inline, given, count, node.integers("scan_input_directions", (0,) * count))


def _scan_batch(node: Node, inline: Inline, count: int) -> list[Expr]:
    """Scan of opset 8: every item of a batch (the first axis) for itself, scanned along the second."""
    node.require(node.optional(0) is None, "sequence_lens is not supported: every sequence must have all its steps")
    given = [node.input(i) for i in range(1, len(node.inputs))]
    batches = {x.shape[0] if x.shape else 0 for x in given}
    node.require(len(batches) == 1 and 0 not in batches, "the inputs must have one batch", batches=tuple(batches))
    directions = node.integers("directions", (0,) * count)
    items = [_steps(node, inline, [_slice(x, 0, b) for x in given], count, directions) for b in range(*batches)]
    return [_stacked([item[k] for item in items], 0) for k in range(len(items[0]))]


def _steps(node: Node, inline: Inline, given: Sequence[Expr], count: int, backwards: Sequence[int]) -> list[Expr]:
    """The steps of a scan: `count` inputs are scanned (a direction of 1: from the end), those before are states."""
    body = _graph(node, "body")
    state, scanned = list(given[: len(given) - count]), given[len(given) - count :]
    zeros = (0,) * count
    axes = [node.axis(a, len(x.shape)) for a, x in zip(node.integers("scan_input_axes", zeros), scanned, strict=True)]
    extents = {x.shape[a] for a, x in zip(axes, scanned, strict=True)}
    law = f"the scanned axes must agree and have 1 to {MOST_STEPS} elements"
    node.require(len(extents) == 1 and 1 <= min(extents) <= MOST_STEPS, law, extents=tuple(extents))
    rows = list[list[Expr]]()
    for t in range(min(extents)):
        slices = [
            _slice(x, a, x.shape[a] - 1 - t if b else t) for x, a, b in zip(scanned, axes, backwards, strict=True)
        ]
        outputs = inline(body, [*state, *slices])
        state, rows = outputs[: len(state)], [*rows, outputs[len(state) :]]
    return [*state, *_scanned(node, rows)]


def _scanned(node: Node, rows: Sequence[Sequence[Expr]]) -> list[Expr]:
    """What every step gives, stacked along the axis and in the direction that are asked for."""
    zeros = (0,) * len(rows[0])
    axes, backwards = (node.integers(f"scan_output_{what}", zeros) for what in ("axes", "directions"))
    out = []
    for k, (axis, back) in enumerate(zip(axes, backwards, strict=True)):
        parts = [row[k] for row in (rows[::-1] if back else rows)]
        out.append(_stacked(parts, node.axis(axis, len(parts[0].shape) + 1)))
    return out


def _slice(x: Expr, axis: int, at: int) -> Expr:
    return reshape(pick(x, {axis: range(at, at + 1)}), (*x.shape[:axis], *x.shape[axis + 1 :]))


CONTROL: Mapping[str, Callable[[Node, Inline], list[Expr]]] = {
    "If": branch,
    "Loop": loop,
    "Scan": scan,
}
