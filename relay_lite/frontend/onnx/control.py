"""If, Loop and Scan.

What is known when the model is read is taken then: the branch of a known condition, the few trips of a loop.  All else
becomes nodes of the graph: branches, loops of as many steps as there are trips, and loops that go on until a bool says
that they end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...ir.control import UNBOUNDED
from ...ir.errors import GraphError
from ...ir.loops import branch as branch_of
from ...ir.loops import loop as loop_of
from ...ir.nodes import Array, Constant, Expr, Var, tensor_type
from ...ir.types import TensorType
from ...ir.visit import free_vars
from .emit import binary, call, concatenate, const, reshape, transpose, value_of
from .model import OnnxGraph
from .node import Node
from .select import pick

MOST_WRITTEN, FEW = 1024, 2
"""Trips that are written out at most, and those that always are."""
MOST_STEPS = 1 << 16
RUNS = "when the model runs"


@dataclass(frozen=True)
class Scope:
    """Where a node stands: `nodes` gives all that is there before it, `enter` the outputs of a graph for its inputs.

    What a node gives is used where `taken` is true, a bool (None: everywhere); so is what a graph gives that is
    entered.  Targets that compute both ways of a branch end loops by it in the other one.  `endless` are, by id, bodies
    of loops that turned out to have more trips than are written out: that is not tried in each trip of an outer loop.
    """

    enter: Callable[[OnnxGraph, Sequence[Expr], Expr | None], list[Expr]]
    nodes: Callable[[], set[Expr]]
    taken: Expr | None
    endless: dict[int, OnnxGraph]

    def where(self, condition: Expr) -> Expr:
        """Where the node's results are used, and a condition holds."""
        return condition if self.taken is None else binary("logical_and", self.taken, condition)


Control: TypeAlias = Callable[[Node, Scope], list[Expr]]


def _graph(node: Node, name: str) -> OnnxGraph:
    graph = node.attrs[name] if node.has(name) else None
    node.require(isinstance(graph, OnnxGraph), f"the graph {name} is needed", attributes=tuple(node.attrs))
    assert isinstance(graph, OnnxGraph)
    return graph


def _fixed(*found: Expr | None) -> str:
    """What to do about values that are not known."""
    names = [v.name for e in found if e is not None for v in free_vars(e)]
    return f"give an input that it follows from a fixed value, as in --fix {names[0] if names else 'INPUT'}=VALUE"


# ------------------------------------------------------------------------------------------------------------ branches


def branch(node: Node, scope: Scope) -> list[Expr]:
    """If: the results of the branch that a known condition takes; else of both, of which one is taken later."""
    both = [_graph(node, name) for name in ("then_branch", "else_branch")]
    condition = node.input(0)
    node.require(condition.dtype == "bool" and np.prod(condition.shape) == 1, "the condition must be one bool",
                 condition=str(condition.type))  # fmt: skip
    if node.known(0) is not None:
        made = scope.enter(both[0 if node.scalar(0) else 1], [], scope.taken)
    else:
        made = _either(node, scope, reshape(condition, ()), both)
    node.require(len(made) == len(node.outputs), "the branch needs one result an output", results=len(made))
    return made


def _either(node: Node, scope: Scope, condition: Expr, graphs: Sequence[OnnxGraph]) -> list[Expr]:
    before, law = scope.nodes(), f"its condition is known only {RUNS}, then both branches"
    before.add(condition)
    try:
        ways = zip(graphs, (condition, call("logical_not", condition)), strict=True)
        then, otherwise = (scope.enter(graph, [], scope.where(way)) for graph, way in ways)
    except GraphError as error:
        raise GraphError(
            f"{node}: {law} are compiled, of which one cannot be ({error}); {_fixed(condition)}"
        ) from error
    types = [[str(e.type) for e in way] for way in (then, otherwise)]
    tensors = all(isinstance(e.type, TensorType) for e in (*then, *otherwise))
    law = f"{law} must give tensors of equal dtypes and shapes; {_fixed(condition)}"
    node.require(types[0] == types[1] and tensors, law, then=types[0], otherwise=types[1])
    return branch_of(condition, then, otherwise, before)


# --------------------------------------------------------------------------------------------------------------- loops


class _Unknown(GraphError):
    """A loop whose end is not known."""


Run: TypeAlias = Callable[[Sequence[Expr], Sequence[Expr]], tuple[Sequence[Expr], Sequence[Expr]]]


@dataclass(frozen=True)
class _Steps:
    """So many steps: `run` takes slices of `sliced` and states, and gives new states, then results of the step."""

    run: Run
    sliced: Sequence[Expr]
    states: Sequence[Expr]
    count: int
    backwards: bool = False

    def as_node(self) -> tuple[list[Expr], list[Expr]]:
        """The last states, and the results along a new first axis, in the order of the slices, of a loop.

        Raises GraphError for what is no loop, and for one whose results are known.
        """
        known = self._courses()
        free = [k for k in range(len(self.states)) if k not in known]
        moving = {k: v[:-1] for k, v in known.items() if any(not np.array_equal(x, v[0]) for x in v[1:-1])}

        def step(slices: Sequence[Expr], before: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
            rows, cut = [reshape(x, x.shape[1:]) for x in slices], len(self.sliced)
            now: dict[int, Expr] = {k: Constant(v[0]) for k, v in known.items()}
            now |= dict(zip([*moving, *free], [*rows[cut:], *before], strict=True))
            after, made = self.run(rows[:cut], [now[k] for k in range(len(self.states))])
            if not free and all(value_of(e) is not None for e in made):
                raise GraphError("loop: what is known is no loop")
            return [after[k] for k in free], [call("expand_dims", e, axis=0) for e in made]

        tables = [Constant(np.stack(v[:: -1 if self.backwards else 1])) for v in moving.values()]
        given = [self.states[k] for k in free]
        last, every = loop_of(step, [*self.sliced, *tables], given, self.count, self.backwards)
        end: dict[int, Expr] = {k: Constant(v[-1]) for k, v in known.items()} | dict(zip(free, last, strict=True))
        return [end[k] for k in range(len(self.states))], every

    def _courses(self) -> dict[int, list[Array]]:
        """The values, before every step and after the last one, of the states that do not depend on others."""
        first = {k: value for k, e in enumerate(self.states) if (value := value_of(e)) is not None}
        while first and self.count <= MOST_WRITTEN:
            found = {k: [value] for k, value in first.items()}
            for t in range(self.count):
                states = [Constant(found[k][-1]) if k in found else _variable(e) for k, e in enumerate(self.states)]
                after, _ = self.run(self.slices(t, _variable), states)
                lost = [k for k in found if value_of(after[k]) is None or after[k].type != self.states[k].type]
                if lost:
                    first = {k: value for k, value in first.items() if k not in lost}
                    break
                for k in found:
                    found[k].append(np.asarray(value_of(after[k])))
            else:
                return found
        return {}

    def slices(self, step: int, unknown: Callable[[Expr], Expr] | None = None) -> list[Expr]:
        """Those of a step, without their first axis; what `unknown` gives in the place of those that are not known."""
        at = self.count - 1 - step if self.backwards else step
        rows = [x if unknown is None or value_of(x) is not None else unknown(x) for x in self.sliced]
        return [_slice(x, 0, at) for x in rows]

    def written(self) -> tuple[list[Expr], list[Expr]]:
        """What `as_node` gives, of steps that are written out one after the other."""
        states, made = list(self.states), list[Sequence[Expr]]()
        for step in range(self.count):
            after, results = self.run(self.slices(step), states)
            states, made = list(after), [*made, results]
        ordered = made[:: -1 if self.backwards else 1]
        return states, [_stacked([row[k] for row in ordered], 0) for k in range(len(made[0]))]


def _variable(e: Expr) -> Expr:
    return Var("unknown", tensor_type(e))


def _stacked(parts: Sequence[Expr], axis: int) -> Expr:
    return concatenate([call("expand_dims", part, axis=axis) for part in parts], axis)


def _slice(x: Expr, axis: int, at: int) -> Expr:
    return reshape(pick(x, {axis: range(at, at + 1)}), (*x.shape[:axis], *x.shape[axis + 1 :]))


def loop(node: Node, scope: Scope) -> list[Expr]:
    """Loop: the body once a trip; last states, then stacked results."""
    body, states = _graph(node, "body"), [node.input(i) for i in range(2, len(node.inputs))]
    law = "the body needs trip, condition and states"
    node.require(len(body.inputs) == len(states) + 2, law, inputs=len(body.inputs))
    trips, going = node.optional(0), node.optional(1)
    if any(e is not None and node.known(k) is None for k, e in enumerate((trips, going))):
        return _ending(node, scope, body, states)
    count = node.scalar(0)
    if going is not None and not node.scalar(1):
        count = 0
    if count is not None and FEW < count <= MOST_STEPS:
        try:
            last, made = _trips(node, scope, body, states, int(count)).as_node()
            return [*last, *made]
        except GraphError as refused:
            _require_few(node, int(count), refused)  # it is written out, which says what is wrong
    try:
        return _written(node, scope, body, states, count)
    except _Unknown:
        return _ending(node, scope, body, states)


def _trips(node: Node, scope: Scope, body: OnnxGraph, states: Sequence[Expr], count: int) -> _Steps:
    """The trips of a loop whose condition stays true."""

    def run(slices: Sequence[Expr], before: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        going, after, made = _trip(node, scope, body, [*slices, const(True, "bool"), *before])
        if not value_of(going):
            raise _Unknown(f"{node}: the condition must stay true")
        return after, made

    return _Steps(run, [const(np.arange(count), "int64")], states, count)


def _trip(
    node: Node, scope: Scope, body: OnnxGraph, given: Sequence[Expr], taken: Expr | None = None
) -> tuple[Expr, list[Expr], list[Expr]]:
    """The condition, the new states and the results of one trip, in a loop without a bound where it is `taken`."""
    outputs, states = scope.enter(body, given, scope.taken if taken is None else taken), len(given) - 2
    node.require(len(outputs) > states, "the body needs a condition and states", outputs=len(outputs))
    return outputs[0], outputs[1 : 1 + states], outputs[1 + states :]


def _written(node: Node, scope: Scope, body: OnnxGraph, states: list[Expr], count: int | None) -> list[Expr]:
    """The trips one after the other, as long as a condition that is known holds."""
    going, rows = True, list[list[Expr]]()
    while going and (count is None or len(rows) < count):
        if len(node.outputs) == len(states) and (len(rows) == MOST_WRITTEN or id(body) in scope.endless):
            scope.endless[id(body)] = body
            raise _Unknown(f"{node}: so many trips are not written out")
        node.require(len(rows) < MOST_WRITTEN, f"at most {MOST_WRITTEN} trips are written out")
        begin = const(len(rows), "int64"), const(True, "bool")
        verdict, states, made = _trip(node, scope, body, [*begin, *states])
        known = value_of(verdict)
        if known is None or known.size != 1:
            raise _Unknown(f"{node}: the condition must be known in every trip")
        going, rows = bool(known), [*rows, made]
    scans = len(body.outputs) - 1 - len(states)
    node.require(rows or not scans, "a loop of no trip has no results to stack")
    return [*states, *(_stacked([row[k] for row in rows], 0) for k in range(scans))]


def _ending(node: Node, scope: Scope, body: OnnxGraph, states: Sequence[Expr]) -> list[Expr]:
    """A loop whose end is known only when the model runs: steps that do nothing once a bool is false."""
    trips, going = node.optional(0), node.optional(1)
    law = f"how many trips there are is known only {RUNS}, and so is the length of what they stack"
    node.require(
        len(node.outputs) <= len(states), f"{law}; {_fixed(trips, going)}", results=len(node.outputs) - len(states)
    )
    before = scope.nodes()

    def step(_: Sequence[Expr], held: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        now, trip, *old = held
        verdict, after, _ = _trip(node, scope, body, [trip, const(True, "bool"), *old], now)
        law = "the states of a loop that may end early must keep their types"
        types = [[str(e.type) for e in every] for every in (old, after)]
        node.require(types[0] == types[1], law, before=types[0], after=types[1])
        next_trip = binary("add", trip, 1)
        return branch_of(now, [going_on(verdict, next_trip), next_trip, *after], held, {*before, *held}), []

    def going_on(verdict: Expr, trip: Expr) -> Expr:
        on = reshape(verdict, ())
        return on if trips is None else binary("logical_and", on, binary("less", trip, reshape(trips, ())))

    first = const(0, "int64")
    begin = scope.where(going_on(const(True, "bool") if going is None else going, first))
    last, _ = loop_of(step, [], [begin, first, *states], UNBOUNDED, unbounded=True)
    return last[2:]


def scan(node: Node, scope: Scope) -> list[Expr]:
    """Scan: the body once a slice of the scanned inputs; last states, then stacked results."""
    count = node.integer("num_scan_inputs")
    node.require(1 <= count < len(node.inputs) + (node.opset >= 9), "num_scan_inputs must count inputs",
                 num_scan_inputs=count)  # fmt: skip
    if node.opset < 9:
        return _scan_batch(node, scope, count)
    given = [node.input(i) for i in range(len(node.inputs))]
    return _scanned(node, scope, given, count, node.integers("scan_input_directions", (0,) * count))


def _scan_batch(node: Node, scope: Scope, count: int) -> list[Expr]:
    """Scan of opset 8: every item of a batch (the first axis) for itself, scanned along the second."""
    node.require(node.optional(0) is None, "sequence_lens is not supported: every sequence must have all its steps")
    given = [node.input(i) for i in range(1, len(node.inputs))]
    batches = {x.shape[0] if x.shape else 0 for x in given}
    node.require(len(batches) == 1 and 0 not in batches, "the inputs must have one batch", batches=tuple(batches))
    directions = node.integers("directions", (0,) * count)
    items = [_scanned(node, scope, [_slice(x, 0, b) for x in given], count, directions) for b in range(*batches)]
    return [_stacked([item[k] for item in items], 0) for k in range(len(items[0]))]


def _scanned(node: Node, scope: Scope, given: Sequence[Expr], count: int, backwards: Sequence[int]) -> list[Expr]:
    """The steps of a scan: `count` inputs are scanned (a direction of 1: from the end), those before are states."""
    body = _graph(node, "body")
    states, scanned = list(given[: len(given) - count]), given[len(given) - count :]
    zeros = (0,) * count
    axes = [node.axis(a, len(x.shape)) for a, x in zip(node.integers("scan_input_axes", zeros), scanned, strict=True)]
    extents = {x.shape[a] for a, x in zip(axes, scanned, strict=True)}
    law = f"the scanned axes must agree and have 1 to {MOST_STEPS} elements"
    node.require(len(extents) == 1 and 1 <= min(extents) <= MOST_STEPS, law, extents=tuple(extents))
    node.require(len(backwards) == count, f"a direction is needed of each of the {count}", directions=tuple(backwards))

    def run(slices: Sequence[Expr], before: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        outputs = scope.enter(body, [*before, *slices], scope.taken)
        return outputs[: len(before)], outputs[len(before) :]

    back = all(backwards)
    rows = [_reversed(_first(x, a), 0, bool(b) != back) for x, a, b in zip(scanned, axes, backwards, strict=True)]
    steps = _Steps(run, rows, states, min(extents), back)
    last, made = _in_steps(node, steps)
    return [*last, *_placed(node, made, back)]


def _in_steps(node: Node, steps: _Steps) -> tuple[list[Expr], list[Expr]]:
    if steps.count > FEW:
        try:
            return steps.as_node()
        except GraphError as refused:
            _require_few(node, steps.count, refused)  # it is written out, which says what is wrong
    return steps.written()


def _require_few(node: Node, steps: int, refused: GraphError) -> None:
    """Refuse steps that are too many to be written out, where a loop of the graph was `refused`."""
    law = f"at most {MOST_WRITTEN} steps are written out, and as a loop of the graph it is refused: {refused}"
    node.require(steps <= MOST_WRITTEN, law, steps=steps)


def _placed(node: Node, made: Sequence[Expr], back: bool) -> list[Expr]:
    """What steps gave along the first axis, along the axis and in the direction that are asked for."""
    zeros = (0,) * len(made)
    axes, backwards = (node.integers(f"scan_output_{what}", zeros) for what in ("axes", "directions"))
    out = []
    for e, axis, b in zip(made, axes, backwards, strict=True):
        rank = len(e.shape)
        at = node.axis(axis, rank)
        order = [*range(1, at + 1), 0, *range(at + 1, rank)]
        out.append(transpose(_reversed(e, 0, bool(b) != back), order))
    return out


def _first(x: Expr, axis: int) -> Expr:
    """The tensor with an axis put first."""
    return transpose(x, [axis, *[d for d in range(len(x.shape)) if d != axis]])


def _reversed(x: Expr, axis: int, wanted: bool) -> Expr:
    return pick(x, {axis: range(x.shape[axis] - 1, -1, -1)}) if wanted else x


CONTROL: Mapping[str, Control] = {"If": branch, "Loop": loop, "Scan": scan}
