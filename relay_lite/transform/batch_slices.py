"""`BatchSlices`: what needs much memory besides its result, over a large batch, as a loop over slices of the batch.

    layout_transform, winograd, relu, layout_transform       all four for 2 of 16 images, 8 times

So transformed tiles, images in another layout, channels before they are put side by side, and scores of attention are
held for one slice at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from ..ir.loops import loop
from ..ir.make import call
from ..ir.nodes import Call, Expr, Function, children, rebuild
from ..ir.visit import with_body
from .batch_regions import Region, multiply_adds, region_of
from .batchwise import on_slice, sliced_axes
from .dominator import FlowGraph, flow_graph, post_dominators
from .fuse_attention import DTYPES
from .live_bytes import LiveBytes, bytes_of
from .loop import ALIGNMENT, with_constants_inside
from .sequential import Pass, PassContext, register_config

HELD = "relay.BatchSlices.held"
"""The bytes that a graph may hold besides its inputs, where more is known than what `LiveBytes` says."""
register_config(HELD, int)
BYTE = 6
"""Multiply-adds of a GPU in the time in which it moves a byte of memory."""


@dataclass(frozen=True)
class Limits:
    """How small slices are.

    They are cut until a graph holds at most `share` more bytes than its operators one after the other would
    (`LiveBytes`), as long as a slice takes the time of `work` multiply-adds, and its largest product has so many
    `results`.  Less work takes a GPU no longer than the launches of a slice's kernels, and fewer results do not occupy
    all its threads: so small graphs stay as they are.
    """

    share: float = 0.05
    work: int = 1 << 29
    results: int = 1 << 19


def BatchSlices(limits: Limits = Limits(), dtypes: Collection[str] = DTYPES) -> Pass:
    """The pass; attention of `dtypes` is left to `fuse_attention`, which stores no scores.

    A batch that no number divides into slices that are large enough, and begin where kernels may, stays whole.
    """

    def run(function: Function) -> Function:
        return _sliced(function, limits, dtypes)

    return Pass("BatchSlices", 1, (), run, of_passes=True)  # no loop in the functions of loops


def _sliced(function: Function, limits: Limits, dtypes: Collection[str]) -> Function:
    graph = flow_graph(function)
    regions = _regions(graph, dtypes)
    live = LiveBytes(graph, frozenset([k for region in regions for k in (*region.scores, *region.apart)]))
    counts = {region.end: (region, _counts(region, live, limits)) for region in regions if region.extra}
    made = dict[Expr, Expr]()
    for k, node in enumerate(graph.nodes):
        cut = k in counts and prod(counts[k][1]) > 1
        made[node] = _loop(*counts[k], made) if cut else rebuild(node, [made[c] for c in children(node)])
    body = made[function.body]
    return function if body is function.body else with_constants_inside(with_body(function, body))


def _regions(graph: FlowGraph, dtypes: Collection[str]) -> list[Region]:
    """Those of a graph; none that hold more share an operator."""
    tree, taken, found = post_dominators(graph), set[int](), list[Region]()
    for k in range(len(graph.nodes)):
        region = region_of(graph, tree, k, taken, dtypes)
        if region is not None:
            found.append(region)
            taken |= set(region.members if region.extra else ())
    return found


def _loop(region: Region, counts: tuple[int, int], made: dict[Expr, Expr]) -> Expr:
    """The result of a region, computed slice by slice; `made` has what is outside.

    The batch is cut into `counts[0]` slices, each of these along the second axis into `counts[1]`, which come first.
    """
    first, second = counts
    whole, inside = list[_Cut](), set(region.calls)
    for node in region.calls:
        whole += [_cut(node, k, second) for k, a in enumerate(node.args) if a not in inside]
    taken = [cut for cut in dict.fromkeys(whole) if cut.axes]

    def step(slices: Sequence[Expr], states: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        given, values = dict(zip(taken, slices, strict=True)), dict[Expr, Expr]()
        for node in region.calls:
            cuts = [_cut(node, k, second) for k in range(len(node.args))]
            args = [values[c.whole] if c.whole in values else given[c] if c.axes else made[c.whole] for c in cuts]
            values[node] = on_slice(node, args, counts if second > 1 else counts[:1])
        return [], [values[end]]

    end = region.graph.nodes[region.end]
    sliced, turns = [c.in_rows(made[c.whole], second) for c in taken], [c.turn(first, second) for c in taken]
    _, (every,) = loop(step, sliced, [], first * second, turns=turns if second > 1 else ())
    return every if second == 1 else call("reshape", every, newshape=end.shape)


@dataclass(frozen=True)
class _Cut:
    """An argument and the axes along which it is cut: with the batch, and with the second axis of results."""

    whole: Expr
    batch: int | None
    second: int | None

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple([axis for axis in (self.batch, self.second) if axis is not None])

    def turn(self, first: int, second: int) -> tuple[int, int]:
        """As in `Loop.turns`."""
        slices = (1 if self.batch is None else first) * (1 if self.second is None else second)
        return slices, second if self.second is None else 1

    def in_rows(self, made: Expr, second: int) -> Expr:
        """The argument with slices along its first axis."""
        if self.second != 1 or second == 1:
            return made
        shape = made.shape
        return call("reshape", made, newshape=(shape[0] * second, shape[1] // second, *shape[2:]))


def _cut(node: Call, k: int, second: int) -> _Cut:
    """How argument `k` of an operator is cut."""
    batch = sliced_axes(node) or ()
    rows = (sliced_axes(node, 1) or ()) if second > 1 else (None,) * len(batch)
    return _Cut(node.args[k], batch[k], rows[k])


def _counts(region: Region, live: LiveBytes, limits: Limits) -> tuple[int, int]:
    """Into how many slices a region is cut along its batch, and each of these along the second axis."""
    graph = region.graph
    products = [node for node in region.calls if multiply_adds(node)]
    ends = [graph.nodes[region.end], *region.inputs]
    work = sum(map(multiply_adds, products)) + BYTE * (2 * region.extra + sum(map(bytes_of, ends)))

    def fits(counts: tuple[int, int]) -> bool:
        steps, (first, second) = prod(counts), counts
        large = work >= steps * limits.work and max([prod(p.shape) for p in products]) >= steps * limits.results
        cuts = [_cut(node, k, second) for node in region.calls for k in range(len(node.args))]
        parts = [bytes_of(c.whole) // c.turn(first, second)[0] for c in cuts if c.axes]
        return large and all(n % ALIGNMENT == 0 for n in (*parts, bytes_of(ends[0]) // steps))

    counts = [(n, 1) for n in _divisors(region.batch)]
    counts += [(region.batch, n) for n in _divisors(region.second) if region.batch == ends[0].shape[0]]
    able = [(1, 1), *[c for c in counts if prod(c) > 1 and fits(c)]]
    if len(able) == 1:
        return able[0]
    inputs = [graph.numbers[e] for e in region.inputs]
    inside = live.of(region.members) - live.of([region.end, *inputs])
    held = region.extra + sum([live.size[p] for p in inside])
    most = max(live.most, PassContext.current().option(HELD, 0))
    budget = (1 + limits.share) * most - live.around(region.end, inputs, region.members)
    return next((c for c in able if held <= prod(c) * budget), able[-1])


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]
