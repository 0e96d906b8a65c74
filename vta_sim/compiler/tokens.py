"""Tokens: within a virtual thread everything happens in the order of the program.

Where the module changes, the one that was at work gives a token to the next one, which waits for it.  So each thread
by itself is in order, whatever it reads and writes; threads overlap, since each has tiles of its own.

A loop whose body ends in one module and begins in another passes a token along its back edge.  The first one is given
before the loop and the last one taken after it, by the neighbours of the loop where these would exchange the same
token anyway.  The whole program counts as such a loop.

No tokens pass between load and store: a compute step without calls stands between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from te_lite.expr.expr import Var

from ..core.kinds import Module
from .steps import Node, Repeat, Step

Edge = tuple[Module, Module]


@dataclass(frozen=True, eq=False)
class Ordered:
    """A step or loop with what every thread waits for before it and gives after it."""

    pops: tuple[Edge, ...]
    node: Step | OrderedLoop
    pushes: tuple[Edge, ...]


@dataclass(frozen=True, eq=False)
class OrderedLoop:
    """A loop of the host (`var` is None for the whole program) whose body is in order.

    The tokens `carried` must be there when it begins, and are there when it ends.
    """

    var: Var | None
    extent: int
    body: tuple[Ordered, ...]
    carried: tuple[Edge, ...]


def ordered(body: Sequence[Node]) -> OrderedLoop:
    """The program with its tokens."""
    return _loop(None, 1, body)


def _loop(var: Var | None, extent: int, body: Sequence[Node]) -> OrderedLoop:
    nodes = [_loop(n.var, n.extent, n.body) if isinstance(n, Repeat) else n for n in _relayed(body)]
    # the last joint is that of the back edge, where the end of the body meets its beginning
    joints = [_joint(a, b) for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True)]
    made = []
    for k, node in enumerate(nodes):
        there = node.carried if isinstance(node, OrderedLoop) else ()
        pops = tuple([e for e in joints[k - 1] if e not in there])
        pushes = tuple([e for e in joints[k] if e not in there])
        made.append(Ordered(pops, node, pushes))
    return OrderedLoop(var, extent, tuple(made), joints[-1])


def _relayed(body: Sequence[Node]) -> list[Node]:
    """The body with a compute step wherever load and store would meet, around the back edge too."""
    out: list[Node] = []
    for a, b in zip(body, [*body[1:], body[0]], strict=True):
        out.append(a)
        if {_end(a, -1), _end(b, 0)} == {Module.LOAD, Module.STORE}:
            out.append(Step(Module.COMPUTE, ()))
    return out


def _joint(a: Step | OrderedLoop, b: Step | OrderedLoop) -> tuple[Edge, ...]:
    """The tokens that pass between neighbours: their own, and those that they carry if they are loops."""
    source, target = _end(a, -1), _end(b, 0)
    own = [] if source is target else [(source, target)]
    carried = [e for node in (a, b) if isinstance(node, OrderedLoop) for e in node.carried]
    return tuple(dict.fromkeys([*own, *carried]))


def _end(node: Node | OrderedLoop, at: int) -> Module:
    """The module that begins (`at` 0) or ends (`at` -1) a node."""
    while not isinstance(node, Step):
        inner = node.body[at]
        node = inner.node if isinstance(inner, Ordered) else inner
    return node.module
