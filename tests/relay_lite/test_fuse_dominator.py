"""The post-dominator tree equals that of networkx, and its patterns are the widest edge on any way to the parent."""

from __future__ import annotations

import numpy as np
import pytest

from relay_lite.ir.nodes import Function
from relay_lite.ir.op_registry import OpPattern
from relay_lite.transform.dominator import between, flow_graph, post_dominators
from tests.nonempty import nonempty

from .toy_graphs import ADD, CONV, RELU, call, random_graph, var


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.one_in(9)
def test_random_graphs(seed: int) -> None:
    import networkx as nx

    rng = np.random.default_rng(seed)
    graph = flow_graph(random_graph(rng, int(rng.integers(1, 60))))
    tree = post_dominators(graph)
    outside = len(graph.nodes)
    backwards: nx.DiGraph[int] = nx.DiGraph()
    backwards.add_node(outside)
    for k, edges in enumerate(graph.readers):
        backwards.add_edges_from((edge.reader, k) for edge in edges)
        if k == graph.result or not edges:
            backwards.add_edge(outside, k)
    oracle = nx.immediate_dominators(backwards, outside)
    for k, node in nonempty(enumerate(tree)):
        assert node.parent == (None if oracle[k] == outside else oracle[k])
        if node.parent is None:
            assert node.depth == 1
            continue
        assert node.depth == tree[node.parent].depth + 1
        path = between(graph, k, node.parent)
        inner = {
            n for n in nx.descendants(backwards.reverse(), k) if n in nx.ancestors(backwards.reverse(), node.parent)
        }
        assert set(path) == inner | {node.parent} and path[-1] == node.parent
        assert node.pattern == max(e.pattern for n in (k, *inner) for e in graph.readers[n])


def test_broadcast_that_keeps_the_shape_is_elementwise() -> None:
    x, row = var("x"), var("row", (6,))
    conv = call(CONV, x, x)
    graph = flow_graph(Function((x, row), call(RELU, call(ADD, conv, row))))
    index = {repr(node): k for k, node in enumerate(graph.nodes)}
    assert graph.readers[index[repr(conv)]][0].pattern == OpPattern.ELEMWISE
    assert graph.readers[index[repr(row)]][0].pattern == OpPattern.BROADCAST
