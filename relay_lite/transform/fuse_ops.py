"""Which operators become one kernel: groups that grow along the post-dominator tree.

A convolution takes the elementwise operators after it, elementwise operators take each other and join a reduction,
injective operators join each other.  A group holds at most one operator of kind `OUT_ELEMWISE_FUSABLE`, its anchor.
Casts back from 16 bits then join what reads them (`fuse_casts`).  Rows of a tensor (`fuse_rows`), what only moves
the operands of a product (`fuse_moves.py`), and the products of attention (`fuse_attention.py`) join afterwards.

Rows that an exporter spelled out (means, deviations, squares, ... as operators of their own) become one kernel:

    m = mean(x)   d = x - m   v = mean(d * d)   y = d / sqrt(v + e) * gamma + beta          8 operators, one group

Fusion along the tree ends a group at a reduction.  Where a reduction folds the last dimensions and keeps them as ones,
what it gives is a number of each row; a group in which everything is a whole row, or a number of one, is a row program
(ansor_ext/README.md, rule `rows`).  So a node joins its post-dominator with all that lies between, if that makes
such a group: every operator is elementwise, a broadcast, or one of these reductions, of one and the same shape of rows.
A reshape at the end of it, as after a group norm, stands alone again: it moves no data.

Every reduction doubles the sketches of a task, so a group has `MOST_FOLDS` at most: a norm, which may have three, and
one more.

Casts from 16 bits to float32 are done by the kernel that reads them, not by the one that computed what is cast:

    { half(conv(x, w)), float(...) }  ->  { add(...) }        { half(conv(x, w)) }  ->  { float(...), add(...) }

What lies between two kernels then takes half the bytes.  A group grows as far as it can, so that a cast which nothing
else keeps apart from a rounding is in the group of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from ..ir.extents import greatest
from ..ir.nodes import Call, Constant, Expr, Function, children, rebuild
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType
from ..ir.visit import is_op, post_order, rewrite
from .dominator import Dominator, FlowGraph, between, flow_graph, is_inlined, post_dominators
from .fuse_attention import DTYPES, fuse_attention
from .fuse_moves import fuse_moves
from .fused_function import call_groups
from .sequential import Pass, PassContext
from .simplify_expr import MOVES, RESHAPES, TRANSPOSITIONS

MAX_DEPTH, MOST_MOVES = 256, 96
"""The nodes of a group, and those of them that move elements, which become loops of their own in a concatenation: a C
compiler takes more than twice as long for twice as many.
"""
LONG, TIMES = 512, 8
"""Operations of an expression that are too many where each of its operators is written so often."""
MERE_MOVES = *RESHAPES, *TRANSPOSITIONS
Accepts = Callable[[OpPattern, bool], bool]


def FuseOps(
    fuse_opt_level: int = -1, rows: bool = False, moves: bool = False, dtypes: Collection[str] = DTYPES
) -> Pass:
    """`fuse_ops` as a pass: at optimisation level 0 every operator stays alone; -1 takes the level of the context."""

    def run(function: Function) -> Function:
        context = PassContext.current()
        level = context.opt_level if fuse_opt_level < 0 else fuse_opt_level
        depth = context.option("relay.FuseOps.max_depth", MAX_DEPTH)
        return fuse_ops(function, depth, level > 0, rows, moves, dtypes)

    return Pass("FuseOps", 0, (), run)


def fuse_ops(
    function: Function, max_depth: int = MAX_DEPTH, fuse: bool = True, rows: bool = False, moves: bool = False,
    dtypes: Collection[str] = DTYPES,
) -> Function:  # fmt: skip
    """Partition a graph into primitive functions, and call those.

    `max_depth` bounds the nodes of a group; without `fuse` every operator is a group of its own; with `rows` what folds
    rows and spreads the results over them again is one, and with `moves` a product and what only moves its operands,
    and attention, of the `dtypes` that tensor cores multiply.
    Groups of equal structure share one function, whose `attrs` are `primitive`, a unique `name`, and `reshape_only` for
    one that moves no data.
    """
    own = own_movements(own_scalars(function)) if fuse else own_scalars(function)
    graph = flow_graph(own)
    alone = list(range(len(graph.nodes)))
    return call_groups(own, graph, partition(graph, max_depth, rows, moves, dtypes) if fuse else alone)


def partition(
    graph: FlowGraph, max_depth: int = MAX_DEPTH, rows: bool = False, moves: bool = False,
    dtypes: Collection[str] = DTYPES,
) -> list[int]:  # fmt: skip
    """The number of the last node of its group, for every node; with `rows` groups of rows, with `moves` moves and
    attention of these `dtypes`, too."""
    tree = post_dominators(graph)
    groups = _Groups(graph, tree, max_depth)
    for phase in range(3):
        for k in range(len(graph.nodes)):
            groups.try_to_grow(k, phase)
    roots = fuse_casts(graph, [groups.root(k) for k in range(len(graph.nodes))], max_depth)
    roots = fuse_rows(graph, tree, roots, max_depth) if rows else roots
    return fuse_attention(graph, fuse_moves(graph, roots, max_depth), max_depth, dtypes) if moves else roots


def own_scalars(function: Function) -> Function:
    """Give every reader of a scalar constant its own copy, so that sharing one does not tie far kernels together."""
    read: set[Expr] = set()

    def change(node: Expr) -> Expr:
        args = [Constant(c.value) if is_inlined(c) and c in read else c for c in children(node)]
        read.update(args)
        return rebuild(node, args)

    return rewrite(function, change)


def own_movements(function: Function) -> Function:
    """Give every reader of a transposition its own copy, where all of them pick elements: they read what it reads.

    Exporters write so that queries, keys and values are slices of one product.  Reshapes on the way are copied as well.
    """
    readers: dict[Expr, set[Expr]] = {}
    for node in post_order(function.body):
        for child in children(node):
            readers.setdefault(child, set()).add(node)
    shared = {node for node, by in readers.items() if len(by) > 1 and _moves(node) and all(map(_picks, by))}
    if not shared:
        return function
    made = dict[Expr, Expr]()
    for node in post_order(function.body):
        args = [_copied(made[c]) if c in shared else made[c] for c in children(node)]
        made[node] = rebuild(node, args)
    return Function(function.params, made[function.body], function.attrs)


def _moves(node: Expr) -> bool:
    """Whether a node transposes, perhaps with reshapes behind."""
    while is_op(node, *RESHAPES):
        (node,) = node.args
    return is_op(node, *TRANSPOSITIONS)


def _picks(node: Expr) -> bool:
    """Whether a node begins a kernel that reads some elements of its arguments: it is injective, and no mere move."""
    return isinstance(node, Call) and node.op.pattern == OpPattern.INJECTIVE and node.op.name not in MERE_MOVES


def _copied(node: Expr) -> Expr:
    """A node and those before it that only move elements, anew."""
    return Call(node.op, tuple([_copied(a) for a in node.args]), node.attrs) if is_op(node, *MERE_MOVES) else node


def _injective(pattern: OpPattern, is_end: bool) -> bool:
    return pattern <= OpPattern.INJECTIVE


def _broadcast(pattern: OpPattern, is_end: bool) -> bool:
    return pattern <= OpPattern.BROADCAST


def _before_anchor(pattern: OpPattern, is_end: bool) -> bool:
    """Elementwise operators may end in a reduction or in a group that has its anchor."""
    return pattern <= (OpPattern.OUT_ELEMWISE_FUSABLE if is_end else OpPattern.INJECTIVE)


@dataclass
class _Group:
    """A set of nodes in a union-find forest, kept at the node that gave it its number."""

    parent: int
    pattern: OpPattern
    moves: int
    size: int = 1


class _Groups:
    """The partition while it grows."""

    def __init__(self, graph: FlowGraph, tree: list[Dominator], max_depth: int) -> None:
        self.graph, self.tree, self.max_depth = graph, tree, max_depth
        moves = [is_op(node, *MOVES) for node in graph.nodes]
        self.groups = [_Group(k, *facts) for k, facts in enumerate(zip(graph.patterns, moves, strict=True))]
        self.written: dict[int, int] = {}

    def root(self, k: int) -> int:
        """The last node of the group of `k`."""
        while self.groups[k].parent != k:
            self.groups[k].parent = self.groups[self.groups[k].parent].parent
            k = self.groups[k].parent
        return k

    def try_to_grow(self, k: int, phase: int) -> None:
        """Let the group of node `k` join that of its dominator, where the rules of a phase allow it."""
        end = self.tree[k].parent
        if self.groups[k].pattern == OpPattern.OPAQUE or end is None or self.root(k) == self.root(end):
            return
        accepts = self._into_tuple(k, end) if phase == 2 else self._into_operator(k, end, phase)
        if accepts is None:
            return
        path = between(self.graph, k, end)
        joined = [*[self.groups[n] for n in (k, *path[:-1])], self.groups[self.root(end)]]
        size = sum(group.size for group in joined)
        small = size <= self.max_depth and sum(group.moves for group in joined) <= MOST_MOVES
        fits = small and all(accepts(self.groups[self.root(n)].pattern, n == end) for n in path)
        written = self._written_out((k, *path)) if fits else {}
        if fits and max(written.values(), default=0) <= max(LONG, TIMES * size):
            self.written.update(written)
            for n in (k, *path[:-1]):
                self._merge(n, end)

    def _written_out(self, joined: Sequence[int]) -> dict[int, int]:
        """The operations of nodes that are to join the group of the last one, each argument written out at every use.

        Two functions in a row that read their arguments ten times, as softplus does, are a hundred.
        """
        root = self.root(joined[-1])
        roots = {self.root(n) for n in joined}
        behind = [n for n in range(joined[-1] + 1, root + 1) if self.root(n) == root]
        found: dict[int, int] = {}
        for n in (*sorted(joined), *behind):
            args = [self.graph.numbers[a] for a in children(self.graph.nodes[n])]
            inside = [found.get(a, self.written.get(a, 1)) for a in args if self.root(a) in roots]
            found[n] = 1 + (sum(inside) if self.graph.patterns[n] <= OpPattern.INJECTIVE else 0)
        return found

    def _into_operator(self, k: int, end: int, phase: int) -> Accepts | None:
        """Phases 0 and 1: what every node on the way must satisfy; None refuses."""
        if self.groups[end].pattern == OpPattern.TUPLE:
            return None
        match self.groups[k].pattern, self.tree[k].pattern:
            case OpPattern.OUT_ELEMWISE_FUSABLE, way:
                return _broadcast if phase == 0 and way == OpPattern.ELEMWISE else None
            case OpPattern.INJECTIVE | OpPattern.TUPLE, _:
                return _injective if phase == 1 else None
            case OpPattern.COMM_REDUCE, _:
                return None
            case _, way:
                return _before_anchor if way <= OpPattern.COMM_REDUCE else None

    def _into_tuple(self, k: int, end: int) -> Accepts | None:
        """Phase 2: the fields of a tuple join it, when it became part of an injective group such as a concat."""
        absorbed = (
            self.groups[end].pattern == OpPattern.TUPLE and self.groups[self.root(end)].pattern != OpPattern.TUPLE
        )
        injective = self.groups[self.root(end)].pattern <= OpPattern.INJECTIVE
        return _injective if self.groups[k].pattern <= OpPattern.INJECTIVE and absorbed and injective else None

    def _merge(self, child: int, end: int) -> None:
        child, root = self.root(child), self.root(end)
        if child != root:
            below, above = self.groups[child], self.groups[root]
            below.parent = root
            above.size += below.size
            above.moves += below.moves
            if below.pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
                above.pattern = OpPattern(max(above.pattern, below.pattern))


# ----------------------------------------------------------------------------------------------------------------- rows


Shape = tuple[int, ...]
MOST_FOLDS = 4


def fuse_rows(graph: FlowGraph, tree: Sequence[Dominator], roots: Sequence[int], max_depth: int) -> list[int]:
    """The partition `roots` (the number of the last node of its group, for every node) with groups of rows joined.

    `max_depth` bounds the nodes of a group.
    """
    root = list(roots)
    members: dict[int, list[int]] = {}
    for k, r in enumerate(root):
        members.setdefault(r, []).append(k)
    for k, dominator in enumerate(tree):
        end = dominator.parent
        if end is None or root[k] == root[end] or graph.patterns[k] > OpPattern.COMM_REDUCE:
            continue
        joined = {root[n] for n in (k, *between(graph, k, end))}
        after = _reshapes(graph, members[root[end]])
        nodes = sorted({n for r in joined for n in members[r]} - set(after))
        if end in nodes and len(nodes) <= max_depth and are_rows(graph, nodes):
            for group in (nodes, after):
                for n in group:
                    root[n] = group[-1]
                    members[group[-1]] = group
    return root


def _reshapes(graph: FlowGraph, group: Sequence[int]) -> list[int]:
    """The operators that move no data in which a group ends."""
    start = len(group)
    while start > 0 and is_op(graph.nodes[group[start - 1]], *RESHAPES):
        start -= 1
    return list(group[start:])


def are_rows(graph: FlowGraph, nodes: Iterable[int]) -> bool:
    """Whether all nodes are of the same rows, which are folded, but not too often."""
    calls = [(graph.nodes[n], graph.patterns[n]) for n in nodes if not is_inlined(graph.nodes[n])]
    folds = [node for node, pattern in calls if pattern == OpPattern.COMM_REDUCE]
    rows = _rows(folds[0]) if folds and isinstance(folds[0], Call) else None
    if rows is None or len(folds) > MOST_FOLDS:
        return False
    full, one = rows
    return all(
        isinstance(node, Call)
        and (_rows(node) == rows if pattern == OpPattern.COMM_REDUCE else pattern <= OpPattern.BROADCAST)
        and isinstance(node.type, TensorType)
        and node.shape in (full, one)
        for node, pattern in calls
    )


def _rows(fold: Call) -> tuple[Shape, Shape] | None:
    """The shape of the argument of a reduction, and of its result: the leading dimensions, then ones."""
    if len(fold.args) != 1 or not isinstance(fold.type, TensorType):
        return None
    full, one = fold.args[0].shape, fold.shape
    if len(full) != len(one):
        return None
    lead = next((d for d in range(len(full)) if full[d] != one[d]), len(full))
    row = full[lead:]
    return (full, one) if prod(greatest(row)) > 1 and one == (*full[:lead], *[1] * len(row)) else None


# ---------------------------------------------------------------------------------------------------------------- casts


HALVES = ("float16", "bfloat16")


def fuse_casts(graph: FlowGraph, roots: Sequence[int], max_depth: int) -> list[int]:
    """The partition `roots` (the number of the last node of its group, for every node) with such casts at the end of a
    group in the one that reads them.

    They stay where readers are in several groups, or cannot compute with what is not in memory; `max_depth` bounds the
    nodes of a group.
    """
    out, sizes = list(roots), Counter(roots)
    number = {id(node): k for k, node in enumerate(graph.nodes)}
    for k, node in enumerate(graph.nodes):
        rounded = _widened(node) if sizes[k] > 1 else None
        readers = {edge.reader for edge in graph.readers[k]}
        into = {out[r] for r in readers}
        fits = len(into) == 1 and all(graph.patterns[r] <= OpPattern.COMM_REDUCE for r in readers)
        if rounded is not None and fits and sizes[min(into)] < max_depth:
            last, end = number[id(rounded)], min(into)
            out = [last if root == k else root for root in out]
            out[k] = end
            sizes[last], sizes[end] = sizes[k] - 1, sizes[end] + 1
    return out


def _widened(node: Expr) -> Expr | None:
    """What a cast to float32 takes that is of 16 bits; None for other nodes."""
    taken = node.args[0] if is_op(node, "cast") and node.dtype == "float32" else None
    return taken if taken is not None and taken.dtype in HALVES else None
