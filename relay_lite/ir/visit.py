"""Walks over graphs that passes share; all are loops over the post-order, so that depth is no matter.

def halve_relu(node):                                    # `node` has its new arguments already
    return call("nn.relu6", *node.args) if is_op(node, "nn.relu") else node

new = rewrite(function, halve_relu)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

from te_lite.expr.expr import SizeVar

from .control import Branch, Loop
from .extents import declared
from .make import call
from .nodes import Array, Call, Constant, Control, Expr, Function, FunctionCall, Var, children, rebuild


def post_order(body: Expr, is_leaf: Callable[[Expr], bool] = lambda node: False) -> list[Expr]:
    """Every node once, arguments before their readers and left to right; deep graphs need no deep stack.

    What only a node with `is_leaf` reads is left out.
    """
    done: set[int] = set()
    out: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(body, False)]
    while stack:
        node, finished = stack.pop()
        if id(node) in done:
            continue
        if finished:
            done.add(id(node))
            out.append(node)
        else:
            stack.append((node, True))
            below = () if is_leaf(node) else children(node)
            stack.extend((child, False) for child in reversed(below) if id(child) not in done)
    return out


def sizes_in(function: Function) -> tuple[SizeVar, ...]:
    """The sizes that the types of a function's parameters are made of, in the order of their use."""
    opened = [d for v in function.params for d in v.shape if isinstance(d, SizeVar)]
    return declared(opened) if opened else ()


def free_vars(body: Expr) -> tuple[Var, ...]:
    """The variables of an expression in order of first use."""
    return tuple(node for node in post_order(body) if isinstance(node, Var))


def substitute(body: Expr, values: Mapping[int, Expr]) -> Expr:
    """Replace nodes by id; everything that does not change stays the same node."""
    made: dict[int, Expr] = {}
    for node in post_order(body):
        made[id(node)] = (
            values[id(node)] if id(node) in values else rebuild(node, [made[id(c)] for c in children(node)])
        )
    return made[id(body)]


def rewrite(function: Function, change: Callable[[Expr], Expr]) -> Function:
    """Replace every node by `change(node with its new arguments)`, arguments first; linear in the size of the graph.

    What `change` returns unchanged stays the same node, so a function in which nothing changes is returned itself.
    """
    made: dict[Expr, Expr] = {}
    for node in post_order(function.body):
        made[node] = change(rebuild(node, [made[c] for c in children(node)]))
    return with_body(function, made[function.body])


def with_body(function: Function, body: Expr) -> Function:
    """The function with another body; the function itself when it is the same."""
    return function if body is function.body else Function(function.params, body, function.attrs)


def in_loops(function: Function, change: Callable[[Function], Function]) -> Function:
    """The function with those that its loops and branches run replaced by what `change` gives, of the same types."""

    def changed(node: Expr) -> Expr:
        return node.with_functions([change(f) for f in node.functions]) if isinstance(node, Control) else node

    return rewrite(function, changed)


def rewrite_all(function: Function, change: Callable[[Expr], Expr]) -> Function:
    """As `rewrite`, also in the functions that loops and branches run, and in those of these."""
    return rewrite(in_loops(function, lambda inside: rewrite_all(inside, change)), change)


def operators_of(function: Function) -> set[str]:
    """The names of the operators that a function calls, also in loops and branches."""
    nodes = post_order(function.body)
    inside = [operators_of(f) for node in nodes if isinstance(node, Control) for f in node.functions]
    return {node.op.name for node in nodes if isinstance(node, Call)}.union(*inside)


def function_calls(body: Expr) -> Iterator[FunctionCall]:
    """The calls of functions in the order in which they run; those of a loop come once a step.

    Both ways of a branch come, as if both were taken.
    """
    for node in post_order(body):
        match node:
            case FunctionCall():
                yield node
            case Loop(function=function, steps=steps):
                inside = list(function_calls(function.body))
                for _ in range(steps):
                    yield from inside
            case Branch():
                for function in node.functions:
                    yield from function_calls(function.body)


def readers(body: Expr) -> dict[Expr, list[Expr]]:
    """For every node, who reads it: one entry a reference, so a node that reads another twice is there twice.

    The body has no reader; what the function returns is read from outside.
    """
    found: dict[Expr, list[Expr]] = {}
    for node in post_order(body):
        found.setdefault(node, [])
        for child in children(node):
            found[child].append(node)
    return found


def reference_counts(body: Expr) -> dict[Expr, int]:
    """How often every node is read; being the result of the function counts as one reading."""
    counts = {node: len(users) for node, users in readers(body).items()}
    counts[body] += 1
    return counts


def is_op(node: Expr, *names: str) -> TypeGuard[Call]:
    """Whether the node calls one of the named operators."""
    return isinstance(node, Call) and node.op.name in names


def expand_to(vector: Expr, rank: int, axis: int) -> Expr:
    """A vector as something that lies along `axis` of a tensor of `rank`: size-1 axes are appended, none put before.

    For (N, C, H, W) and axis 1 this is (C, 1, 1); for the last axis it is the vector itself.
    """
    behind = rank - 1 - axis % rank
    return call("expand_dims", vector, axis=1, num_newaxis=behind) if behind else vector


def constant_value(node: Expr) -> Array | None:
    """The array of a constant, None for any other node."""
    return node.value if isinstance(node, Constant) else None
