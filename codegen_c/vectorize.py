"""Loops rewritten before they are text: strip-mining of vectorized ones, unrolling of small ones.

A loop of 24 floats becomes a piece of 16 lanes and one of 8 (longer ones a serial loop over full vectors).  A piece
has a power of two as its extent, or any number where vectors can be read and written in part (7 floats are a vector
of 8, of which one lane is not used).  Its stores are contiguous in the lane, and its values can be written as vector
arithmetic (functions of float32 are, see functions.py): operands are contiguous, equal in all lanes, or - in
accumulations, where registers matter more than anything else, and with functions, which take longer - gathered lane by
lane.  Loops that do not fit stay as they are, for the compiler's own vectorizer.  Arrays that an iteration has for
itself (the values of a reduction of several, until all of them are known) become arrays of all iterations.  Arithmetic
on float16 is that on float32, rounded (halves.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, BufferLoad, Call, Cast, Const, Expr, Select, Var, binary, cast, const
from te_lite.expr.visit import children, free_vars, substitute, transform, walk
from te_lite.loops.register_tile import MASKED_DTYPES, VECTOR_DTYPES, vector_pieces
from te_lite.loops.stmt import (
    Alloc,
    Buffer,
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Store,
    allocated,
    bodies,
    exprs_of,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)

from .functions import in_vectors, nodes
from .indices import NOTHING, Env, Indices
from .masks import holds_between, is_masked, is_short, operands
from .processor import Options


def is_accumulation(s: Store) -> bool:
    """The stored value reads the very element that is stored."""
    return any(isinstance(e, BufferLoad) and e.buffer is s.buffer for e in walk(s.value))


@dataclass
class Vectorizer:
    """Rewrites one function; `lanes` collects the loop variables of the pieces that it made."""

    options: Options
    lanes: set[Var]
    indices: Indices

    def stmt(self, s: Stmt) -> Stmt:
        """`s` with every vectorized loop cut into pieces; loops of extent 1 vanish."""
        if not isinstance(s, For):
            return with_bodies(s, tuple([self.stmt(b) for b in bodies(s)]))
        if s.extent == 1:
            zero = {s.var: const(0, s.var.dtype)}
            return self.stmt(map_exprs(s.body, lambda e: substitute(e, zero)))
        if s.kind is ForKind.VECTORIZED:
            arrays, loop = self._with_arrays_outside(replace(s, body=map_exprs(s.body, in_float32)))
            if dtypes := self._dtypes(loop):
                in_part = self.options.masks and dtypes <= set(MASKED_DTYPES)
                lanes = self.options.vector_bytes // max(BYTES[d] for d in dtypes)
                return allocated(arrays, self._pieces(loop, lanes, in_part))
        return with_bodies(s, (self.stmt(s.body),))

    def _with_arrays_outside(self, loop: For) -> tuple[list[Buffer], For]:
        """The arrays that an iteration allocates, if they have an element a lane, and the loop without them.

        Where the stores of the loop are contiguous, that element is a lane's own.
        """
        arrays, body = [], loop.body
        while isinstance(body, Alloc):
            arrays.append(body.buffer)
            body = body.body
        own = all(b.size == loop.extent for b in arrays)
        return (arrays, replace(loop, body=body)) if own else ([], loop)

    def _dtypes(self, loop: For) -> set[str]:
        """The types of the elements that the loop computes with; none when it cannot be a vector."""
        stores = [s for s in stmts_of(loop.body) if isinstance(s, Store)]
        if not (stores and _is_straight(loop.body, loop.var) and all(self._fits(s, loop) for s in stores)):
            return set()
        values = [e for s in stores for e in _values(s.value) if loop.var in free_vars(e) and not _is_rounded(e)]
        dtypes = {e.dtype for e in values} | {s.buffer.dtype for s in stores}
        return dtypes if dtypes <= {*VECTOR_DTYPES, "float16"} else set()

    def _fits(self, s: Store, loop: For) -> bool:
        added = is_accumulation(s)
        apart = added or any(nodes(e) > 1 for e in _values(s.value))
        whole = self.indices.contiguous(s.index, loop.var, loop.extent)
        return whole and self._vector_value(s.value, loop, added, apart)

    def _vector_value(self, e: Expr, loop: For, anything: bool, apart: bool) -> bool:
        if (apart and isinstance(e, BufferLoad)) or loop.var not in free_vars(e):
            return True
        match e:
            case BufferLoad(index=index):
                offsets = self.indices.lane_offsets(index, loop.var, loop.extent)
                return offsets is not None and (offsets == list(range(loop.extent)) or _gathered_well(offsets))
            case Call(func="if_then_else") if is_short(e, loop, self.options.vector_bytes):
                return anything
            case _ if not has_vector_form(e, loop.var):
                return anything
        return all(self._vector_value(k, loop, anything, apart) for k in _operands(e))

    def _pieces(self, loop: For, most: int, in_part: bool) -> Stmt:
        cut = vector_pieces(loop.extent, most, in_part)
        out: list[Stmt] = [self._full_vectors(loop, cut.whole, most)] if cut.looped else []
        start = cut.whole * most if cut.looped else 0
        for lanes in cut.lengths:
            out.append(self._piece(loop, const(start), lanes))
            start += lanes
        return seq(*out)

    def _full_vectors(self, loop: For, count: int, lanes: int) -> For:
        """The first `count` vectors in a serial loop."""
        outer = Var(f"{loop.var.name}.v", loop.var.dtype)
        self.indices.bind(outer, count)
        return For(outer, count, ForKind.SERIAL, self._piece(loop, binary("*", outer, const(lanes)), lanes))

    def _piece(self, loop: For, start: Expr, lanes: int) -> Stmt:
        lane = Var(f"{loop.var.name}.l", loop.var.dtype)
        env = {loop.var: start if lanes == 1 else binary("+", start, lane)}
        self.indices.bind(lane, lanes)
        body = normal_stmt(loop.body, self.indices, env)
        if lanes == 1:
            return body
        self.lanes.add(lane)
        return For(lane, lanes, ForKind.VECTORIZED, body)


def leaf_of(s: Stmt) -> Store:
    """The store that a part of a straight run is, in a loop over lanes perhaps."""
    store = s.body if isinstance(s, For) else s
    assert isinstance(store, Store)
    return store


def in_float32(e: Expr) -> Expr:
    """`e` with its arithmetic on float16 done in float32 and rounded, which is what it means."""

    def rounded(e: Expr) -> Expr | None:
        if e.dtype != "float16" or not isinstance(e, Binary | Call) or _chooses(e):
            return None
        wide = tuple([cast("float32", in_float32(k)) for k in children(e)])
        return Cast("float16", Call(e.func, wide, "float32") if isinstance(e, Call) else binary(e.op, *wide))

    return transform(e, rounded)


def _chooses(e: Expr) -> bool:
    """`e` is one of two values, by a condition that comes first."""
    return isinstance(e, Select) or (isinstance(e, Call) and e.func == "if_then_else")


def has_vector_form(e: Expr, var: Var) -> bool:
    """The operation of `e`, which varies with the lane `var`, exists on vectors (its operands are not looked at)."""
    match e:
        case Binary(op="+" | "-" | "*" | "min" | "max", a=a):
            return a.dtype in VECTOR_DTYPES
        case Binary(op="/", a=a):
            return a.dtype in ("float32", "float64")
        case Cast(dtype=dtype, a=a):
            plain = dtype in VECTOR_DTYPES and a.dtype in VECTOR_DTYPES and not isinstance(a, Const)
            return plain or {dtype, a.dtype} == {"float16", "float32"}
        case Select(cond=cond) | Call(func="if_then_else", args=(cond, _, _)):
            return var not in free_vars(cond) or (is_masked(e) if isinstance(e, Select) else holds_between(cond, var))
        case Call():
            return in_vectors(e)
    return False


def _is_rounded(e: Expr) -> bool:
    """A value of float16 that need not lie in memory."""
    return isinstance(e, Cast) and e.dtype == "float16"


def _gathered_well(offsets: list[int]) -> bool:
    """A copy gains from shuffles when a third of what they load is used."""
    return max(offsets) - min(offsets) < 3 * len(offsets) and len(set(offsets)) > len(offsets) // 2


def _values(e: Expr) -> Iterator[Expr]:
    """The sub-expressions that are values: indices of loads are left out, and conditions that are no masks."""
    yield e
    for k in () if isinstance(e, BufferLoad) else _operands(e):
        yield from _values(k)


def _operands(e: Expr) -> Sequence[Expr]:
    return operands(e) if isinstance(e, Select) and is_masked(e) else children(e)[_chooses(e) :]


def _is_straight(s: Stmt, var: Var) -> bool:
    """Nothing but stores, under conditions that are the same in all lanes."""
    own = isinstance(s, Store | Seq) or (isinstance(s, If) and var not in free_vars(s.cond))
    return own and all(_is_straight(b, var) for b in bodies(s))


def legalise(s: Stmt, options: Options, indices: Indices) -> tuple[Stmt, set[Var]]:
    """Cut the vectorized loops of `s`; gives the statement and the lane variables."""
    pass_ = Vectorizer(options, set(), indices)
    return pass_.stmt(s), pass_.lanes


# ------------------------------------------------------------------------------------------------------------ unrolling


Chosen = Callable[[For], bool]


def unrolled_size(s: Stmt, chosen: Chosen) -> int:
    """How many stores there are after the chosen loops are written out."""
    if isinstance(s, Store):
        return 1
    inner = sum(unrolled_size(b, chosen) for b in bodies(s))
    return inner * s.extent if isinstance(s, For) and chosen(s) else inner


def unrolled_nodes(s: Stmt) -> int:
    """How many expression nodes there are after UNROLLED loops are written out; at least 1.

    It is what a compiler has to chew on: one store may hold a padded read with a hundred nodes, or a function of ours.
    """
    own = sum(nodes(x) for e in exprs_of(s) for x in walk(e))
    inner = own + sum(unrolled_nodes(b) for b in bodies(s))
    return inner * s.extent if isinstance(s, For) and s.kind is ForKind.UNROLLED else max(inner, 1)


def unroll(s: Stmt, chosen: Chosen, indices: Indices, env: Env = NOTHING) -> Stmt:
    """`s` with the chosen loops written out and the variables in `env` replaced; false branches vanish.

    Where anything is replaced, the indices of loads and stores are in normal form.
    """
    match s:
        case For() if chosen(s):
            steps = [unroll(s.body, chosen, indices, {**env, s.var: const(k, s.var.dtype)}) for k in range(s.extent)]
            return seq(*steps)
        case Store(buffer=buffer, index=index, value=value):
            return Store(buffer, indices.linear(index, env).expr(), indices.normal(value, env)) if env else s
        case If(cond=cond, then=then):
            test = indices.normal(cond, env)
            if isinstance(test, Const):
                return unroll(then, chosen, indices, env) if test.value else seq()
            return If(test, unroll(then, chosen, indices, env))
        case _:
            return with_bodies(s, tuple([unroll(b, chosen, indices, env) for b in bodies(s)]))


def normal_stmt(s: Stmt, indices: Indices, env: Env) -> Stmt:
    """`s` with the variables in `env` replaced and every index of a load or a store in normal form."""
    return unroll(s, lambda loop: False, indices, env)
