"""Loops made of what one step does, and branches of what both ways give, written in Python.

(last,), (all_sums,) = loop(lambda xs, states: ([add(*xs, *states)], [add(*xs, *states)]), [x], [zero], steps)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TypeAlias

from te_lite.errors import require

from .control import Branch, Loop
from .errors import GraphError
from .make import call
from .nodes import Constant, Expr, Function, Tuple, TupleGetItem, Var, children, rebuild, tensor_type
from .types import TensorType
from .visit import post_order

Exprs: TypeAlias = Sequence[Expr]
Step: TypeAlias = Callable[[Exprs, Exprs], tuple[Exprs, Exprs]]


def loop(
    step: Step, sliced: Exprs, states: Exprs, steps: int, backwards: bool = False,
    turns: Sequence[tuple[int, int]] = (), unbounded: bool = False,
) -> tuple[list[Expr], list[Expr]]:  # fmt: skip
    """The states after all steps, and what the steps gave, each along the first axis in the order of the slices.

    `step` gets the slices of a step, each the `steps`th part of a tensor of `sliced` along its first axis, and the
    states, and gives the new states, then what the step adds to the results.  What it uses that depends on neither is
    computed once, before the loop.  `turns` and `unbounded` are those of `Loop`.  Raises GraphError for no loop.
    """
    counts = [count for count, _ in turns] if len(turns) == len(sliced) else [steps] * len(sliced)
    slices = [Var(f"x{k}", _part(tensor_type(e), n)) for k, (e, n) in enumerate(zip(sliced, counts, strict=True))]
    before = [Var(f"s{k}", tensor_type(e)) for k, e in enumerate(states)]
    after, given = step(slices, before)
    body = Tuple((*after, *given))
    body, outside = _closed(body, _depending(body, {*slices, *before}))
    params = (*slices, *before, *outside.values())
    args = (*sliced, *states, *outside)
    made = Loop(Function(params, body), args, steps, len(sliced), len(states), backwards, tuple(turns), unbounded)
    found: list[Expr] = [TupleGetItem(made, k) for k in range(len(after) + len(given))]
    return found[: len(after)], found[len(after) :]


def branch(condition: Expr, then: Exprs, otherwise: Exprs, outside: Set[Expr]) -> list[Expr]:
    """What one of two ways gives, `then` where a bool of shape () holds.

    What stands in `outside` is computed before, all else only in the way that is taken.  Raises GraphError where both
    do not give tensors of the same types.
    """
    both = Tuple((*then, *otherwise))
    body, given = _closed(both, {node for node in post_order(both) if node not in outside})
    ways = body.fields[: len(then)], body.fields[len(then) :]
    one, other = [Function(tuple(given.values()), Tuple(fields)) for fields in ways]
    made = Branch(one, other, (condition, *given))
    return [TupleGetItem(made, k) for k in range(len(then))]


def loop_of_one(
    step: Step, sliced: Exprs, states: Exprs, steps: int, backwards: bool = False
) -> tuple[list[Expr], list[Expr]]:
    """As `loop`, for a step that gives what its new states are, all of one shape: they lie in one tensor.

    So one operator computes all of them, where each would be one of its own.
    """
    count, size = len(states), states[0].shape[0]

    def one(slices: Exprs, joined: Exprs) -> tuple[Exprs, Exprs]:
        new, given = step(slices, equal_parts(joined[0], count))
        require(list(new) == list(given), GraphError, "loop", "what a step gives must be its new states")
        both = call("concatenate", Tuple(tuple(new)), axis=0)
        return [both], [both]

    (last,), (every,) = loop(one, sliced, [call("concatenate", Tuple(tuple(states)), axis=0)], steps, backwards)
    rest = every.shape[1:]
    by_step = call("reshape", every, newshape=(steps, count * size, *rest))
    found: list[Expr] = []
    for k in range(count):
        begin, end = (0, k * size, *[0] * len(rest)), (steps, (k + 1) * size, *rest)
        part = call("strided_slice", by_step, begin=begin, end=end)
        found.append(call("reshape", part, newshape=(steps * size, *rest)))
    return equal_parts(last, count), found


def equal_parts(whole: Expr, count: int) -> list[Expr]:
    """So many equal parts along the first axis."""
    size = whole.shape[0] // count
    return [slice_of(whole, k, size) for k in range(count)] if count > 1 else [whole]


def slice_of(whole: Expr, k: int, size: int) -> Expr:
    """The slice `k` of `size` along the first axis."""
    rest = whole.shape[1:]
    return call("strided_slice", whole, begin=(k * size, *[0] * len(rest)), end=((k + 1) * size, *rest))


def _part(whole: TensorType, steps: int) -> TensorType:
    """The type of a slice; that of the whole where it cannot be cut, which the loop then refuses."""
    shape = whole.shape
    return TensorType((shape[0] // max(steps, 1), *shape[1:]), whole.dtype) if shape else whole


def _depending(body: Expr, own: set[Var]) -> set[Expr]:
    """The nodes that depend on variables."""
    inside: set[Expr] = set()
    for node in post_order(body):
        if node in own or any(c in inside for c in children(node)):
            inside.add(node)
    return inside


def _closed(body: Tuple, inside: Set[Expr]) -> tuple[Tuple, dict[Expr, Var]]:
    """The body with variables for all tensors that are not `inside`, and those tensors."""
    made: dict[Expr, Expr] = {}
    for node in post_order(body):
        scalar = isinstance(node, Constant) and node.value.ndim == 0
        if node in inside or scalar or not isinstance(node.type, TensorType):
            made[node] = rebuild(node, [made[c] for c in children(node)])
        else:
            made[node] = Var(f"w{len(made)}", node.type)
    closed = Tuple(tuple([made[f] for f in body.fields]))
    used = set(post_order(closed))
    variables = {node: found for node, found in made.items() if isinstance(found, Var) and found in used}
    return closed, {node: found for node, found in variables.items() if node not in inside}
