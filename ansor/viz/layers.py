"""A graph in layers: every edge goes down, long ones through a point in each layer between, and few cross.

Sugiyama's scheme: layers by longest paths, waypoints on long edges, then orders by the mean place of neighbours, layer
by layer, down and up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 8
Edge = tuple[int, int]


@dataclass(frozen=True)
class Layered:
    """`layers` has nodes from left to right, and numbers from `nodes` on for waypoints; `paths` what edges meet."""

    nodes: int
    layers: tuple[tuple[int, ...], ...]
    paths: dict[Edge, tuple[int, ...]]


def layered(nodes: int, edges: Sequence[Edge]) -> Layered:
    """Layers of nodes 0 .. nodes - 1, which are so numbered that each edge goes from a smaller to a larger number."""
    depth = _depths(nodes, edges)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for node in range(nodes):
        layers[depth[node]].append(node)
    paths: dict[Edge, tuple[int, ...]] = {}
    last = nodes
    for a, b in edges:
        points = range(last, last + depth[b] - depth[a] - 1)
        for k, point in enumerate(points):
            layers[depth[a] + 1 + k].append(point)
        last += len(points)
        paths[a, b] = (a, *points, b)
    return Layered(nodes, _ordered(layers, list(paths.values())), paths)


def _depths(nodes: int, edges: Sequence[Edge]) -> list[int]:
    """The longest way to each node; what nobody leads to stands right above what it leads to first."""
    depth = [0] * nodes
    for node in range(nodes):
        depth[node] = max([depth[a] + 1 for a, b in edges if b == node], default=0)
    sources = {n for n in range(nodes)} - {b for _, b in edges}
    return [
        min([depth[b] - 1 for a, b in edges if a == n], default=0) if n in sources else d for n, d in enumerate(depth)
    ]


def _ordered(layers: Sequence[Sequence[int]], paths: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    pieces = [(a, b) for path in paths for a, b in pairwise(path)]
    orders = [list(layer) for layer in layers]
    for sweep in range(SWEEPS):
        turn = range(1, len(orders)) if sweep % 2 == 0 else range(len(orders) - 2, -1, -1)
        for k in turn:
            beside = orders[k - 1 if sweep % 2 == 0 else k + 1]
            place = {node: at / max(1, len(beside) - 1) for at, node in enumerate(beside)}
            mean = {node: _mean(node, pieces, place) for node in orders[k]}
            orders[k].sort(key=mean.__getitem__)
    return tuple(map(tuple, orders))


def _mean(node: int, pieces: Sequence[Edge], place: dict[int, float]) -> float:
    near = [place[a if b == node else b] for a, b in pieces if node in (a, b) and (a in place or b in place)]
    return sum(near) / len(near) if near else 0.5
