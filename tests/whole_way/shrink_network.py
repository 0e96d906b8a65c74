"""Smaller networks: fewer outputs, nodes replaced by one of their operands or by an input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .network import Network, Node, given, needed
from .network_oracle import evaluate


def smaller(network: Network) -> Iterator[Network]:
    """Networks that are simpler by one node or output; some have no meaning."""
    for o in network.outputs:
        rest = tuple([x for x in network.outputs if x != o])
        if rest:
            yield needed(replace(network, outputs=rest))
    values = evaluate(network)
    for k, node in enumerate(network.nodes):
        if given(node):
            continue
        if not isinstance(values[k], list):
            yield needed(replace(network, outputs=(k,)))
            yield _with(network, k, ("input", tuple(values[k].v.shape)))
        for i in node[1]:
            alike = not isinstance(values[i], list) and not isinstance(values[k], list)
            if alike and values[i].v.shape == values[k].v.shape:
                yield _instead(network, k, i)


def _with(network: Network, k: int, node: Node) -> Network:
    return needed(replace(network, nodes=(*network.nodes[:k], node, *network.nodes[k + 1 :])))


def _instead(network: Network, k: int, other: int) -> Network:
    """Everybody reads `other` instead of `k`."""

    def moved(node: Node) -> Node:
        return node if given(node) else (node[0], tuple([other if i == k else i for i in node[1]]), node[2])

    outputs = tuple([other if o == k else o for o in network.outputs])
    return needed(Network(tuple(map(moved, network.nodes)), outputs, network.seed))


def text_of(network: Network) -> str:
    """One line a node."""
    values = evaluate(network)
    lines = []
    for k, node in enumerate(network.nodes):
        shape = "" if isinstance(values[k], list) else f" {list(values[k].v.shape)}"
        if given(node):
            lines.append(f"    %{k} = {node[0]}{shape}")
        else:
            attrs = ", ".join(f"{name}={value}" for name, value in node[2].items())
            lines.append(f"    %{k} = {node[0]}({', '.join(f'%{i}' for i in node[1])}) {attrs}{shape}")
    return "\n".join([*lines, f"    -> {', '.join(f'%{o}' for o in network.outputs)}"])
