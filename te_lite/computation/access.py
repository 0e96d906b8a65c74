"""How each operation reads each other one: the facts that scheduling decisions rest on.

Operations are named by their position in the order of the program, which is also their stage number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..expr.expr import Binary, Call, Const, Expr, IterVar, Load, Select, Var
from ..expr.visit import free_vars, walk
from .tensor import ComputeOp, Operation, PlaceholderOp

Indices = tuple[Expr, ...]

EXPENSIVE_CALLS = ("exp",)
CONST_INDICES = "auto_scheduler_simplify_const_tensor_indices"


def const_shift_of(e: Expr, axes: tuple[IterVar, ...]) -> int | None:
    """The number of the axis `v` when `e` is `v`, `v + c`, `v - c` or `c + v`; else None."""
    match e:
        case Binary(op="+", a=Var() as v, b=Const()) | Binary(op="-", a=Var() as v, b=Const()):
            target: Expr = v
        case Binary(op="+", a=Const(), b=Var() as v):
            target = v
        case _:
            target = e
    for k, axis in enumerate(axes):
        if axis is target:
            return k
    return None


@dataclass(frozen=True)
class SimpleRead:
    """What a simple read does with the reader's axes."""

    missing: bool
    duplicated: bool
    in_order: bool


def simple_read(op: ComputeOp, indices: Indices) -> SimpleRead | None:
    """Classify a read whose indices are constants or const-shifts of the reader's spatial axes; else None."""
    matched = []
    for e in indices:
        if isinstance(e, Const):
            continue
        k = const_shift_of(e, op.axis)
        if k is None:
            return None
        matched.append(k)
    return SimpleRead(
        missing=len(set(matched)) < len(op.axis),
        duplicated=len(set(matched)) < len(matched),
        in_order=matched == sorted(matched),
    )


def body_exprs(op: ComputeOp) -> Iterator[Expr]:
    """Every node of the bodies of `op` (a reduction's sources once)."""
    for body in op.body[:1] if op.reduction is not None else op.body:
        yield from walk(body)


class AccessInfo:
    """The reads between the operations `ops` of one program, in stage order."""

    def __init__(self, ops: tuple[Operation, ...]) -> None:
        self.ops = ops
        index = {op.key: k for k, op in enumerate(ops)}
        self.read_from: list[dict[int, list[Indices]]] = [{} for _ in ops]
        self.read_by: list[dict[int, list[Indices]]] = [{} for _ in ops]
        for k, op in enumerate(ops):
            if isinstance(op, ComputeOp):
                for node in body_exprs(op):
                    if isinstance(node, Load):
                        producer = index[node.tensor.op.key]
                        self.read_from[k].setdefault(producer, []).append(node.indices)
        for k, producers in enumerate(self.read_from):
            for producer, reads in producers.items():
                self.read_by[producer][k] = reads
        self._common_outer: dict[tuple[int, int], int] = {}

    def compute(self, k: int) -> ComputeOp:
        op = self.ops[k]
        assert isinstance(op, ComputeOp)
        return op

    def is_placeholder(self, k: int) -> bool:
        return isinstance(self.ops[k], PlaceholderOp)

    def is_output(self, k: int) -> bool:
        """Nobody reads it (and it computes something)."""
        return not self.is_placeholder(k) and not self.read_by[k]

    def _simple_reads(self, k: int) -> list[SimpleRead] | None:
        op = self.compute(k)
        reads = [simple_read(op, r) for accesses in self.read_from[k].values() for r in accesses]
        return None if any(r is None for r in reads) else [r for r in reads if r is not None]

    def has_branch(self, k: int) -> bool:
        return any(
            isinstance(e, Select) or (isinstance(e, Call) and e.func == "if_then_else")
            for e in body_exprs(self.compute(k))
        )

    def is_strictly_inlineable(self, k: int) -> bool:
        """Inlining never repeats work: broadcast-like reads, in order, no branch, no expensive call."""
        if self.is_placeholder(k) or self.ops[k].scans:
            return False
        if not self.read_from[k]:
            return True
        reads = self._simple_reads(k)
        if reads is None or any(r.duplicated or not r.in_order for r in reads) or self.has_branch(k):
            return False
        return not any(isinstance(e, Call) and e.func in EXPENSIVE_CALLS for e in body_exprs(self.compute(k)))

    @cached_property
    def _needs_tiling(self) -> list[bool]:
        return [self._needs_multi_level_tiling(k) for k in range(len(self.ops))]

    def needs_multi_level_tiling(self, k: int) -> bool:
        """Some input is reused: not every spatial axis takes part in reading it."""
        return self._needs_tiling[k]

    def _needs_multi_level_tiling(self, k: int) -> bool:
        op = self.ops[k]
        if isinstance(op, PlaceholderOp) or CONST_INDICES in op.attrs or op.scans:
            return False
        long = {v for v in op.axis if isinstance(v.extent, int) and v.extent > 1}
        missing = sum(not long <= used for producer in self.read_from[k] for used in self.places_read(k, producer))
        return missing >= 2 or (missing >= 1 and bool(op.reduce_axis))

    def places_read(self, k: int, producer: int) -> set[frozenset[Var]]:
        """The axes in the indices of each read; `x[i, r] * x[j, r]` reads `x` at two places, a window at one."""
        reads = self.read_from[k].get(producer, ())
        return {frozenset(v for e in indices for v in free_vars(e)) for indices in reads}

    def num_common_outer(self, k: int, producer: int) -> int:
        """How many leading axes of `k` and `producer` iterate the same space point by point."""
        key = (k, producer)
        if key not in self._common_outer:
            op, source = self.compute(k), self.ops[producer]
            count = 0
            for d in range(min(len(op.shape), len(source.shape))):
                shifted = any(const_shift_of(r[d], op.axis) != d for r in self.read_from[k][producer])
                if shifted or op.shape[d] != source.shape[d]:
                    break
                count += 1
            self._common_outer[key] = count
        return self._common_outer[key]

    def num_common_outer_path(self, a: int, b: int) -> int:
        """The minimum of `num_common_outer` along all consumer paths from `a` to `b`; 0 if there is none."""
        best: int | None = None

        def visit(k: int, current: int) -> None:
            nonlocal best
            if k == b:
                best = current if best is None else min(best, current)
                return
            for reader in self.read_by[k]:
                visit(reader, min(current, self.num_common_outer(reader, k)))

        visit(a, len(self.ops[a].shape))
        return best or 0

    def elementwise_match(self, a: int, b: int) -> bool:
        """All that reads `a` leads to `b`, point by point at equal shapes, along one path or several."""
        open_ends, seen = [a], {b}
        while open_ends:
            k = open_ends.pop()
            if k in seen:
                continue
            seen.add(k)
            readers = self.read_by[k]
            if self.is_placeholder(k) or not readers or not all(self._is_pointwise(r, k) for r in readers):
                return False
            open_ends += readers
        return True

    def _is_pointwise(self, reader: int, k: int) -> bool:
        """Every read of `k` in `reader`, which has its shape, is at the point that is computed."""
        reads = [simple_read(self.compute(reader), indices) for indices in self.read_by[k][reader]]
        plain = all(r is not None and not r.missing and not r.duplicated and r.in_order for r in reads)
        return plain and self.ops[reader].shape == self.ops[k].shape and not self.ops[reader].scans


@lru_cache(maxsize=4096)
def access_info(ops: tuple[Operation, ...]) -> AccessInfo:
    """The (shared, read-only) analysis of a program's operations."""
    return AccessInfo(ops)
