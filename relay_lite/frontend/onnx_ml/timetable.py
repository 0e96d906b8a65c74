"""Forests laid out for the operator `forest`: one comparison, children side by side, and which trees walk when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.nodes import Array, Expr
from ..onnx.emit import binary, call, const, reshape
from .walk import COMPARISONS, Forest

SIDE = 16
"""Most trees that walk side by side: fewer wait for one another's loads, more have no registers."""
GROUPS = 4
"""Groups of such trees that walk one after the other in one line of a scan: its nodes stay in a cache for all rows."""
FEWEST = 8
"""Fewer trees have too little to do while one waits for memory."""
MOST_TARGETS = 8
"""More targets are looked up and joined by operators of their own."""
LEQ, LT, GTE, GT = (COMPARISONS.index(n) for n in ("less_equal", "less", "greater_equal", "greater"))


def said_by(x: Expr, forest: Forest, said: Array, join: str, nothing: float) -> Expr | None:
    """What the leaves of every row say, `said` (nodes, targets), joined by `sum`, `min` or `max`: (rows, targets).

    `nothing` is what changes nothing when it is joined.  None where a forest has few trees or many targets, where trees
    share nodes, or a comparison is none of order.
    """
    if x.dtype not in ("float32", "float64") or said.shape[1] > MOST_TARGETS or not _fits(forest):
        return None
    forest = _by_one_comparison(forest)
    fronts = _fronts(forest)
    depths = np.zeros(len(forest.roots), "int64")
    for level, (_, trees) in enumerate(fronts):
        depths[trees] = level
    starts, walks = _timetable(depths)
    order, firsts, roots = _layout(forest, fronts, walks[walks >= 0])
    columns, features = _columns(x, forest)
    words = firsts * columns.shape[1] + np.append(0, features[order])
    if words.max() >= 2**32:
        return None
    nodes = const(_padded(words), "uint32")
    thresholds = const(_padded(np.append(np.nan, forest.thresholds[order])), x.dtype)
    values = const(_padded(np.append(np.full((1, said.shape[1]), nothing), said[order], 0)), x.dtype)
    started = const(np.where(walks < 0, 0, roots[walks]), "uint32")
    return call("forest", columns, nodes, thresholds, values, const(starts, "bool"), started, join=join)


def _fits(forest: Forest) -> bool:
    """Whether there are many trees, all of whose inner nodes have one way to them and compare order with a limit."""
    inner = ~forest.leaves
    ways = np.bincount([*forest.children[inner].reshape(-1), *forest.roots], minlength=len(inner))
    ordered = set(forest.modes[inner].tolist()) <= {LEQ, LT, GTE, GT}
    limited = bool((forest.thresholds[inner] > -np.inf).all())
    return len(forest.roots) >= FEWEST and ordered and limited and bool((ways[inner] <= 1).all())


def _columns(x: Expr, forest: Forest) -> tuple[Expr, Array]:
    """Rows of two parts: features, and features with -inf for NaN, which goes as what is small; which ones nodes have.

    Their number is a power of two: that of any word is in the columns without a look.
    """
    rows, count = x.shape
    width = 1 << (count - 1).bit_length()
    x = call("nn.pad", x, pad_width=((0, 0), (0, width - count))) if width > count else x
    if not forest.missing.any():
        return x, forest.features
    x = reshape(x, (rows, 1, width))
    both = call("where", binary("equal", x, x), x, const([[[np.nan], [-np.inf]]], x.dtype))
    return reshape(both, (rows, 2 * width)), forest.features + width * forest.missing


def _padded(values: Array) -> Array:
    """With zeros behind, up to a power of two."""
    count = len(values)
    return np.pad(values, [(0, (1 << (count - 1).bit_length()) - count), *[(0, 0)] * (values.ndim - 1)])


def _by_one_comparison(forest: Forest) -> Forest:
    """The same forest with `<=` only: where `>` or `>=` were, sides are exchanged; leaves compare with NaN."""
    exchanged, below = np.isin(forest.modes, (GTE, GT)), np.isin(forest.modes, (LT, GTE))
    limits, inner = forest.thresholds, ~forest.leaves
    with np.errstate(over="ignore"):
        limits = np.where(below, np.nextafter(limits, np.asarray(-np.inf, limits.dtype)), limits)
    return replace(
        forest,
        features=forest.features * inner,
        thresholds=np.where(inner, limits, np.nan),
        children=np.where(exchanged[:, None], forest.children[:, ::-1], forest.children),
        missing=(forest.missing != exchanged) & inner,
    )


def _timetable(depths: Array) -> tuple[Array, Array]:
    """At which steps of which part trees start (parts, steps), and which ones (parts, steps, trees), or -1.

    Trees of like depths walk together, and parts are about equally long.  All parts end with a start of none.
    """
    side = -(-len(depths) // -(-len(depths) // SIDE))
    deepest = np.argsort(-depths, kind="stable")
    groups = [deepest[k : k + side] for k in range(0, len(deepest), side)]
    parts = -(-len(groups) // GROUPS)
    # to and fro, so that no part has the deeper tree of every turn
    given = [groups[k :: 2 * parts] + groups[2 * parts - 1 - k :: 2 * parts] for k in range(parts)]
    lengths = [[max(1, int(depths[group[0]])) for group in part] for part in given]
    steps = max(map(sum, lengths)) + 1
    starts, trees = np.zeros((parts, steps), bool), np.full((parts, steps, side), -1)
    for p, (part, length) in enumerate(zip(given, lengths, strict=True)):
        at = np.cumsum([0, *length])
        starts[p, at] = True
        for t, group in zip(at, part, strict=False):
            trees[p, t, : len(group)] = group
    return starts, trees


def _fronts(forest: Forest) -> list[tuple[Array, Array]]:
    """Level by level the nodes, and their trees; both children of a node follow one another."""
    front, trees = forest.roots, np.arange(len(forest.roots))
    found = [(front, trees)]
    while (inner := ~forest.leaves[front]).any():
        front, trees = forest.children[front[inner]].reshape(-1), np.repeat(trees[inner], 2)
        found.append((front, trees))
    return found


def _layout(forest: Forest, fronts: list[tuple[Array, Array]], trees: Array) -> tuple[Array, Array, Array]:
    """Nodes tree by tree as `trees` has them, and in a tree level by level.

    Gives which nodes these are, then, counted with a leaf in front that nothing leads to, where the first child of
    each is (a leaf itself), and of every tree the root.
    """
    nodes, owners = (np.concatenate(column) for column in zip(*fronts, strict=True))
    rank = np.empty(len(trees), "int64")
    rank[trees] = np.arange(len(trees))
    levels = np.repeat(np.arange(len(fronts)), [len(front) for front, _ in fronts])
    order = np.lexsort((levels, rank[owners]))
    place = np.empty(len(order), "int64")
    place[order] = np.arange(1, len(order) + 1)
    inner = ~forest.leaves[nodes]
    firsts = place.copy()
    firsts[inner] = place[len(trees) :: 2]
    return nodes[order], np.append(0, firsts[order]), place[: len(trees)]
