"""`BatchSlices`: what needs much memory besides its result, over a large batch, as a loop over slices of the batch.

    layout_transform, winograd, relu, layout_transform       all four for 2 of 16 images, 8 times

So transformed tiles, images in another layout, channels before they are put side by side, and scores of attention are
held for one slice at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ..ir.loops import loop
from ..ir.nodes import Call, Expr, Function, children, rebuild
from ..ir.visit import is_op, with_body
from .batchwise import CONVOLUTIONS, PRODUCT, SOFTMAX, WINOGRAD, common_batch, on_slice, sliced_args
from .dominator import Dominator, FlowGraph, between, flow_graph, post_dominators
from .fuse_attention import DTYPES, LEAST
from .loop import ALIGNMENT, with_constants_inside
from .sequential import Pass
from .simplify_movement import MOVES, RESHAPES, TRANSPOSITIONS

WINOGRAD_TAPS = 9


@dataclass(frozen=True)
class Limits:
    """How small slices are.

    They are cut until what is held besides takes at most `share` of the bytes of the result, as long as every product
    of a slice has so many multiply-adds and results.  Fewer multiply-adds take a GPU no longer than the launches of a
    slice's kernels, and fewer results do not occupy all its threads a few times: so small graphs stay as they are.
    """

    share: float = 0.05
    multiply_adds: int = 1 << 29
    results: int = 1 << 19


def BatchSlices(limits: Limits = Limits(), dtypes: Collection[str] = DTYPES) -> Pass:
    """The pass; attention of `dtypes` is left to `fuse_attention`, which stores no scores.

    A batch that no number divides into slices that are large enough, and begin where kernels may, stays whole.
    """

    def run(function: Function) -> Function:
        return _sliced(function, limits, dtypes)

    return Pass("BatchSlices", 1, (), run, of_passes=True)  # no loop in the functions of loops


@dataclass(frozen=True)
class _Region:
    """Operators by number; only the result of the last one is read elsewhere.

    `batch` is what the number of slices must divide, `extra` the bytes that are held besides arguments and result.
    """

    members: tuple[int, ...]
    end: int
    batch: int
    extra: int = 0


def _sliced(function: Function, limits: Limits, dtypes: Collection[str]) -> Function:
    graph = flow_graph(function)
    tree, taken, ends = post_dominators(graph), set[int](), dict[int, tuple[_Region, int]]()
    for k, node in enumerate(graph.nodes):
        if k in taken or not _multiply_adds(node) or sliced_args(node) is None:
            continue
        region = _region(graph, tree, k, taken, dtypes)
        steps = _steps(graph, region, limits)
        if steps > 1:
            ends[region.end] = region, steps
            taken |= set(region.members)
    made = dict[Expr, Expr]()
    for k, node in enumerate(graph.nodes):
        made[node] = _loop(graph, *ends[k], made) if k in ends else rebuild(node, [made[c] for c in children(node)])
    return with_constants_inside(with_body(function, made[function.body])) if ends else function


def _loop(graph: FlowGraph, region: _Region, steps: int, made: dict[Expr, Expr]) -> Expr:
    """The result of a region, computed slice by slice."""
    whole = _inputs(graph, region)

    def step(slices: Sequence[Expr], states: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        values = {**made, **dict(zip(whole, slices, strict=True))}
        for node in _calls(graph, region):
            flags = zip(node.args, sliced_args(node) or (), strict=True)
            values[node] = on_slice(node, [values[a] if cut else made[a] for a, cut in flags], steps)
        return [], [values[graph.nodes[region.end]]]

    _, (every,) = loop(step, [made[e] for e in whole], [], steps)
    return every


def _calls(graph: FlowGraph, region: _Region) -> Iterator[Call]:
    return (node for k in sorted(region.members) for node in [graph.nodes[k]] if isinstance(node, Call))


def _inputs(graph: FlowGraph, region: _Region) -> list[Expr]:
    """What a region takes slices of."""
    inside = set(_calls(graph, region))
    cut = [a for n in _calls(graph, region) for a, c in zip(n.args, sliced_args(n) or (), strict=True) if c]
    return list(dict.fromkeys([a for a in cut if a not in inside]))


def _steps(graph: FlowGraph, region: _Region, limits: Limits) -> int:
    """Into how many slices a region is cut, 1 where it is not."""
    products = [node for node in _calls(graph, region) if _multiply_adds(node)]
    ends = [graph.nodes[region.end], *_inputs(graph, region)]

    def fits(steps: int) -> bool:
        large = all(_multiply_adds(p) >= steps * limits.multiply_adds for p in products)
        wide = all(prod(p.shape) >= steps * limits.results for p in products)
        return large and wide and all(_bytes(e) // steps % ALIGNMENT == 0 for e in ends)

    budget = limits.share * _bytes(ends[0])
    counts = [n for n in range(2, region.batch + 1) if region.batch % n == 0 and fits(n)]
    if region.extra <= budget or not counts:
        return 1
    return next((n for n in counts if region.extra <= n * budget), counts[-1])


# ----------------------------------------------------------------------------------------------------- regions


def _region(
    graph: FlowGraph, tree: Sequence[Dominator], first: int, taken: Collection[int], dtypes: Collection[str]
) -> _Region:
    """A product with what follows it up to the last operator that needs more memory, and on as long as the batch stays.

    What only moves its operands is inside, too.
    """
    node = graph.nodes[first]
    assert isinstance(node, Call)
    found = [_Region((first,), first, common_batch(node), _scratch(node))]
    while (end := tree[found[-1].end].parent) is not None:
        grown = _grown(graph, found[-1], end, taken, dtypes)
        if grown is None:
            break
        found.append(grown)
    core = next(k for k, r in enumerate(found) if r.extra == found[-1].extra)
    kept = next(r for r in reversed(found[core:]) if r.batch == found[core].batch)
    return _with_moves(graph, kept, taken)


def _grown(
    graph: FlowGraph, region: _Region, end: int, taken: Collection[int], dtypes: Collection[str]
) -> _Region | None:
    """A region with all up to the dominator `end` of its result; None where that cannot be sliced."""
    path = sorted(between(graph, region.end, end))
    inside = {graph.nodes[k] for k in (*region.members, *path)}
    batch, extra = region.batch, region.extra
    for k in path:
        node, flags = graph.nodes[k], sliced_args(graph.nodes[k])
        if flags is None or not isinstance(node, Call) or k in taken:
            return None
        if any(a in inside and not cut for a, cut in zip(node.args, flags, strict=True)):
            return None
        if _multiply_adds(node):
            scores = _scores(graph, region, node, dtypes)
            if scores is None or len(path) > 1:
                return None
            extra += 2 * _bytes(scores)  # before and after the softmax
        batch = gcd(batch, common_batch(node))
        extra += _bytes(node) if is_op(node, *TRANSPOSITIONS) and _of_convolution(graph, region) else 0
    return _Region((*region.members, *path), end, batch, extra) if batch > 1 else None


def _scores(graph: FlowGraph, region: _Region, node: Call, dtypes: Collection[str]) -> Expr | None:
    """The scores of attention that end in a product; None where it is none, or becomes one kernel."""
    softmax = any(is_op(n, SOFTMAX) for n in _calls(graph, region))
    given, fused = node.args[0], node.dtype in dtypes and min(node.args[0].shape[-2:]) >= LEAST
    reads = given is graph.nodes[region.end] and is_op(node, PRODUCT)
    return given if softmax and reads and not fused and not _of_convolution(graph, region) else None


def _of_convolution(graph: FlowGraph, region: _Region) -> bool:
    return is_op(graph.nodes[region.members[0]], *CONVOLUTIONS)


def _with_moves(graph: FlowGraph, region: _Region, taken: Collection[int]) -> _Region:
    """A region with what only moves its operands and is read nowhere else; operands of a convolution are then copies.

    Reshapes alone, which cost nothing, stay outside.
    """
    numbers, members = {node: k for k, node in enumerate(graph.nodes)}, list(region.members)
    batch, extra = region.batch, region.extra
    for data in _inputs(graph, region):
        node, way = data, list[int]()
        while is_op(node, *MOVES, "nn.pad") and len(graph.readers[numbers[node]]) == 1 and numbers[node] not in taken:
            way.append(numbers[node])
            if sliced_args(node) is None or gcd(batch, common_batch(node)) == 1:
                break
            if not is_op(node, *RESHAPES):
                batch, members = gcd(batch, common_batch(node)), list(dict.fromkeys([*members, *way]))
                extra += _bytes(node) if _of_convolution(graph, region) else 0
            (node,) = node.args
    return _Region(tuple(members), region.end, batch, extra)


# ------------------------------------------------------------------------------------------------------- sizes


def _bytes(e: Expr) -> int:
    return prod(e.shape) * np.dtype(e.dtype).itemsize


def _multiply_adds(node: Expr) -> int:
    """Those of a convolution, as if it were computed directly, or of a product in batches; 0 for another operator."""
    if is_op(node, WINOGRAD):
        return prod(node.shape) * WINOGRAD_TAPS * node.args[1].shape[3]
    if is_op(node, *CONVOLUTIONS):
        weight = node.args[1]
        return prod(node.shape) * prod(weight.shape) // weight.shape[node.attrs["kernel_layout"].index("O")]
    if is_op(node, PRODUCT):
        return prod(node.shape) * node.args[0].shape[-2 if node.attrs["transpose_a"] else -1]
    return 0


def _scratch(node: Call) -> int:
    """The bytes of Winograd's transformed data, products and results; 0 for another operator."""
    if not is_op(node, WINOGRAD):
        return 0
    m, (batch, height, width, filters) = node.attrs["tile_size"], node.shape
    tiles = batch * -(-height // m) * -(-width // m)
    elements = (m + 2) ** 2 * (node.args[0].shape[3] + filters) + m**2 * filters
    return tiles * elements * np.dtype(node.dtype).itemsize
