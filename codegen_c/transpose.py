"""Copies that read along one loop and write along another, in square tiles that are turned in registers.

    for j in 32: for k in 768:   P[32 * k + j] = B[768 * j + k]

Whatever loop is inside, one side of it jumps from line to line.  So the nest is cut into squares of as many lanes as a
vector has: that many vectors are read along `k`, turned by shuffles, and written along `j`.  What is left at the ends
of the loops is cut into smaller squares, and into single elements last.  As the iterations of a copy that writes no
element twice may run in any order, the other loops stay around the squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Call, Compare, Const, Expr, Var, binary, const, logical_and, logical_not
from te_lite.expr.visit import conjuncts, free_vars
from te_lite.loops.perfect_nest import OF_ONE_THREAD, nested, perfect_nest
from te_lite.loops.register_tile import VECTOR_DTYPES
from te_lite.loops.stmt import For, ForKind, If, Stmt, Store, bodies, seq, with_bodies

from .indices import Indices, Linear
from .processor import Options
from .vectorize import normal_stmt

LEAST_LANES, MOST_LANES = 4, 16


@dataclass(frozen=True)
class Square:
    """`lanes` vectors of `source`, `step` elements apart, become the columns of as many vectors of `target`."""

    lanes: int
    target: BufferLoad
    target_step: int
    source: BufferLoad
    source_step: int


@dataclass(frozen=True)
class _Part:
    """`length` iterations of a loop from `start` on."""

    loop: For
    start: Expr
    length: int

    def cut(self, lanes: int) -> tuple[_Part, _Part]:
        """As many whole squares as there are, and the rest."""
        whole = self.length // lanes * lanes
        rest = replace(self, start=binary("+", self.start, const(whole)), length=self.length - whole)
        return replace(self, length=whole), rest


@dataclass
class Turner:
    """Rewrites one function; `squares` are those of the stores that stand for a whole square."""

    options: Options
    lanes: set[Var]
    indices: Indices
    squares: dict[Store, Square] = field(default_factory=dict)

    def stmt(self, s: Stmt) -> Stmt:
        """`s` with its turning copies in squares."""
        done = self._copy(s) if isinstance(s, For) else None
        return with_bodies(s, tuple([self.stmt(b) for b in bodies(s)])) if done is None else done

    def _copy(self, s: For) -> Stmt | None:
        loops, leaf = perfect_nest(s, lambda loop: loop.kind in OF_ONE_THREAD and loop.var not in self.lanes)
        if not isinstance(leaf, Store):
            return None
        conditions, load = _guarded(leaf.value)
        if not isinstance(load, BufferLoad) or load.buffer is leaf.buffer:
            return None
        if load.dtype != leaf.buffer.dtype or load.dtype not in VECTOR_DTYPES:
            return None
        written, read = self.indices.linear(leaf.index), self.indices.linear(load.index)
        forms = [written, read, *[self.indices.linear(side) for c in conditions for side in (c.a, c.b)]]
        if not all(_is_plain(form, loops) for form in forms) or not _writes_once(written, loops):
            return None
        along_target = _contiguous(written, read, loops)
        along_source = _contiguous(read, written, loops)
        if along_target is None or along_source is None:
            return None
        parts = [_Part(loop, const(0), loop.extent) for loop in (along_target, along_source)]
        if self._lanes_of(leaf, *parts) is None:
            return None
        others = [loop for loop in loops if loop not in (along_target, along_source)]
        return nested(others, self._squares(leaf, *parts), ForKind.SERIAL)

    def _lanes_of(self, leaf: Store, *parts: _Part) -> int | None:
        """The side of the largest square; None where there is no room for one."""
        lanes = min(self.options.vector_bytes // BYTES[leaf.buffer.dtype], MOST_LANES)
        most = min(lanes, *[part.length for part in parts])
        return 1 << (most.bit_length() - 1) if most >= LEAST_LANES else None

    def _squares(self, leaf: Store, target: _Part, source: _Part) -> Stmt:
        """The copy of a rectangle: whole squares, then what is beside and below them."""
        lanes = self._lanes_of(leaf, target, source)
        if lanes is None:
            return self._loops(leaf, (source, 1), (target, 1))
        target_whole, target_rest = target.cut(lanes)
        source_whole, source_rest = source.cut(lanes)
        out = [self._loops(leaf, (source_whole, lanes), (target_whole, lanes))]
        if target_rest.length:
            out.append(self._squares(leaf, target_rest, source_whole))
        if source_rest.length:
            out.append(self._squares(leaf, target, source_rest))
        return seq(*out)

    def _loops(self, leaf: Store, *parts: tuple[_Part, int]) -> Stmt:
        """Loops over a rectangle in steps of `lanes`: squares, or elements with steps of 1."""
        env: dict[Var, Expr] = {}
        loops = []
        for part, lanes in parts:
            var = Var(part.loop.var.name, part.loop.var.dtype)
            self.indices.bind(var, part.length // lanes)
            env[part.loop.var] = binary("+", binary("*", var, const(lanes)), part.start)
            loops.append(For(var, part.length // lanes, ForKind.SERIAL, leaf))
        (source, lanes), (target, _) = parts
        body = normal_stmt(leaf, self.indices, env)
        if lanes > 1:
            body = self._square(leaf, source, target, lanes, env)
        return nested(loops, body)

    def _square(self, leaf: Store, source: _Part, target: _Part, lanes: int, env: Mapping[Var, Expr]) -> Stmt:
        """One square at `env`; element by element where a guard holds for a part of it only."""
        conditions, load = _guarded(leaf.value)
        assert isinstance(load, BufferLoad)
        square = normal_stmt(Store(leaf.buffer, leaf.index, load), self.indices, env)
        assert isinstance(square, Store) and isinstance(square.value, BufferLoad)
        down = self.indices.linear(leaf.index).terms[source.loop.var]
        across = self.indices.linear(load.index).terms[target.loop.var]
        self.squares[square] = Square(lanes, BufferLoad(square.buffer, square.index), down, square.value, across)
        ends = [self._at_worst(c, (source.loop.var, target.loop.var), lanes, env) for c in conditions]
        inside = self.indices.simplifier.simplify(logical_and(*ends))
        if isinstance(inside, Const) and inside.value:
            return square
        moved = [replace(part, start=env[part.loop.var], length=lanes) for part in (source, target)]
        one_by_one = self._loops(leaf, (moved[0], 1), (moved[1], 1))
        return seq(If(inside, square), If(logical_not(inside), one_by_one))

    def _at_worst(self, c: Compare, moving: tuple[Var, Var], lanes: int, env: Mapping[Var, Expr]) -> Expr:
        """The comparison where it is hardest to meet in a square: at the greatest value of what must be less."""
        low = c.a if c.op == "<" else c.b
        grows = self.indices.linear(low).plus(self.indices.linear(c.b if c.op == "<" else c.a), -1)
        worst = dict(env)
        for var in moving:
            if grows.terms.get(var, 0) > 0:
                worst[var] = binary("+", env[var], const(lanes - 1))
        return self.indices.normal(c, worst)


def _guarded(value: Expr) -> tuple[tuple[Compare, ...], Expr | None]:
    """The comparisons (`<`, `>=`) under which a stored value is the element that it copies; no element for others."""
    if not (isinstance(value, Call) and value.func == "if_then_else"):
        return (), value
    cond, inner, other = value.args
    parts = tuple(conjuncts(cond))
    plain = [c for c in parts if isinstance(c, Compare) and c.op in ("<", ">=") and c.a.dtype in ("int32", "int64")]
    more, element = _guarded(inner)
    return ((*plain, *more), element) if len(plain) == len(parts) and isinstance(other, Const) else ((), None)


def _is_plain(form: Linear, loops: Sequence[For]) -> bool:
    """The loops move the index by constant steps."""
    inside = {f.var for f in loops}
    return all(atom in inside or inside.isdisjoint(free_vars(atom)) for atom in form.terms)


def _writes_once(written: Linear, loops: Sequence[For]) -> bool:
    """Every iteration writes an element of its own: each loop steps over all that those of smaller steps reach."""
    steps = sorted((abs(written.terms.get(f.var, 0)), f.extent) for f in loops if f.extent > 1)
    reach = 0
    for step, extent in steps:
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _contiguous(form: Linear, other: Linear, loops: Sequence[For]) -> For | None:
    """The loop along which `form` moves by single elements and `other` in larger steps."""
    return next((f for f in loops if form.terms.get(f.var) == 1 and abs(other.terms.get(f.var, 0)) > 1), None)


def turned(s: Stmt, options: Options, lanes: set[Var], indices: Indices) -> tuple[Stmt, dict[Store, Square]]:
    """Cut the turning copies of `s` into squares; gives the statement, and the squares that some stores stand for."""
    turner = Turner(options, lanes, indices)
    return turner.stmt(s), turner.squares


def turning_rounds(lanes: int) -> Iterator[list[tuple[int, int, list[int], list[int]]]]:
    """The shuffles that transpose a square of vectors: pairs (i, j) a round, and which lanes of both make the new ones.

    Round `s` = 1, 2, 4, ... swaps the blocks of s x s elements beside the diagonal of each block of 2s x 2s.
    """
    s = 1
    while s < lanes:
        upper = [lanes + lane - s if lane & s else lane for lane in range(lanes)]
        lower = [lanes + lane if lane & s else lane + s for lane in range(lanes)]
        yield [(i, i + s, upper, lower) for i in range(lanes) if not i & s]
        s *= 2
