"""Registers: small local buffers as named variables, and straight runs of arithmetic on them.

A buffer is a set of registers when every access is at a constant index (a scalar), or at a constant plus the lane
of a vector loop, and no two vectors overlap.  `scalarise` writes out the small loops that index a local buffer when
that makes it one; `register_slots` tells the emitter the vectors of such a buffer.

A straight run stores to registers only, so memory does not change under it and loads may be shared.  What may be
evaluated conditionally (a guarded load) is shared as a whole, never its parts.

gcc takes the loads apart again: a vector with up to four uses becomes an operand in memory of each of them, and a tile
of 4 x 2 vectors has 12 loads a step instead of 6.  So vectors that have room in registers are held there, by a
statement that gcc cannot look into (`Prelude.held`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Call, Const, Expr, Select, Var
from te_lite.expr.visit import children, free_vars, transform, walk
from te_lite.loops.c_text import TYPES
from te_lite.loops.perfect_nest import SEQUENTIAL
from te_lite.loops.stmt import (
    Alloc,
    Buffer,
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Store,
    bodies,
    exprs_of,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)

from .function_text import FunctionText, assignment
from .indices import Indices, Linear
from .processor import Options
from .vector_text import VectorText
from .vectorize import has_vector_form, leaf_of, unroll, unrolled_size

MAX_EXTENT = 64


def accesses(s: Stmt, buffer: Buffer, lane: For | None = None) -> Iterator[tuple[Expr, For | None]]:
    """The indices at which `buffer` is read and written, each with the vector loop around it."""
    if isinstance(s, Store) and s.buffer is buffer:
        yield s.index, lane
    for e in exprs_of(s):
        yield from [(x.index, lane) for x in walk(e) if isinstance(x, BufferLoad) and x.buffer is buffer]
    around = s if isinstance(s, For) and s.kind is ForKind.VECTORIZED else lane
    for b in bodies(s):
        yield from accesses(b, buffer, around)


def register_slots(s: Alloc, lanes: set[Var], indices: Indices) -> dict[int, int] | None:
    """The vectors of the buffer as `{first element: lanes}`, or None when it must live in memory."""
    slots: dict[int, int] = {}
    for index, loop in accesses(s.body, s.buffer):
        form = indices.linear(index)
        width = 1
        if loop is not None and loop.var in form.terms:
            if loop.var not in lanes or form.terms[loop.var] != 1:
                return None
            width = loop.extent
        if len(form.terms) != (width > 1) or slots.setdefault(form.const, width) != width:
            return None
    spans = sorted(slots.items())
    apart = all(a + n <= b for (a, n), (b, _) in pairwise(spans))
    return slots if apart else None


def merge_copies(s: Stmt, buffer: Buffer, indices: Indices) -> Stmt:
    """Use the registers of `buffer` directly where the accumulators of a nest are copies of them.

    A nest of promote.py copies each of its registers from `buffer` and back; when the places in `buffer` are constant,
    both copies go and the nest works on `buffer` itself.
    """
    if isinstance(s, Alloc) and isinstance(s.body, Seq):
        places = _copied_from(s, buffer, indices)
        if places is not None:
            rest = [x for x in s.body.stmts if not _is_copy(x, s.buffer, buffer)]
            return redirected(seq(*rest), s.buffer, buffer, places, indices)
    return with_bodies(s, tuple([merge_copies(b, buffer, indices) for b in bodies(s)]))


def _store_of(s: Stmt) -> Store | None:
    inner = s.body if isinstance(s, For) and s.kind is ForKind.VECTORIZED else s
    return inner if isinstance(inner, Store) else None


def _is_copy(s: Stmt, a: Buffer, b: Buffer) -> bool:
    """`a[..] = b[..]` or `b[..] = a[..]`, a whole vector perhaps."""
    store = _store_of(s)
    if store is None or not isinstance(store.value, BufferLoad):
        return False
    return (store.buffer is a and store.value.buffer is b) or (store.buffer is b and store.value.buffer is a)


def _copied_from(s: Alloc, buffer: Buffer, indices: Indices) -> dict[int, int] | None:
    """The place in `buffer` of each register of `s`; None when they are not plain copies at constant places.

    In between nothing looks at `buffer`, and registers that change are copied back, last of all.
    """
    places: dict[int, int] = {}
    back: set[int] = set()
    parts = bodies(s.body)
    rest = [k for k, part in enumerate(parts) if not _is_copy(part, s.buffer, buffer)]
    for k, part in enumerate(parts):
        store = _store_of(part)
        if store is None or k in rest:
            continue
        assert isinstance(store.value, BufferLoad)
        inner, outer = indices.linear(store.index), indices.linear(store.value.index)
        if store.buffer is buffer:
            inner, outer = outer, inner
            back.add(inner.const)
        if rest and (k < rest[-1] if store.buffer is buffer else k > rest[0]):
            return None
        if not inner.same_terms(outer) or places.setdefault(inner.const, outer.const) != outer.const:
            return None
    work = [parts[k] for k in rest]
    apart = not any(True for part in work for _ in accesses(part, buffer))
    kept = back == {*places} or not any(x.buffer is s.buffer for p in work for x in stmts_of(p) if isinstance(x, Store))
    return places if places and apart and kept and _all_at(s, places, indices) else None


def _all_at(s: Alloc, places: dict[int, int], indices: Indices) -> bool:
    """Whether every access of the buffer is at one of the constant `places`, plus the lane of a vector perhaps."""
    for index, loop in accesses(s.body, s.buffer):
        form = indices.linear(index)
        lane: dict[Expr, int] = {} if loop is None or loop.var not in form.terms else {loop.var: 1}
        if form.const not in places or not form.same_terms(Linear(lane, form.const)):
            return False
    return True


def redirected(s: Stmt, old: Buffer, new: Buffer, places: dict[int, int], indices: Indices) -> Stmt:
    """`s` with the elements of `old` replaced by those of `new` at `places`."""

    def moved(index: Expr) -> Expr:
        form = indices.linear(index)
        return Linear(form.terms, places[form.const]).expr()

    def load(e: Expr) -> Expr | None:
        return BufferLoad(new, moved(e.index)) if isinstance(e, BufferLoad) and e.buffer is old else None

    def stores(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return Store(new, moved(s.index), s.value) if s.buffer is old else s
        return with_bodies(s, tuple(map(stores, bodies(s))))

    return stores(map_exprs(s, lambda e: transform(e, load)))


def scalarise(s: Stmt, options: Options, lanes: set[Var], indices: Indices) -> Stmt:
    """`s` with the loops over small local buffers written out where that frees the buffer from memory."""
    s = with_bodies(s, tuple([scalarise(b, options, lanes, indices) for b in bodies(s)]))
    if not isinstance(s, Alloc) or s.buffer.size * BYTES[s.buffer.dtype] > options.registers * options.vector_bytes:
        return s
    loops = None if register_slots(s, lanes, indices) else _indexing_loops(s, lanes, options.registers)
    if not loops or unrolled_size(s.body, lambda f: f.var in loops) > options.max_unrolled:
        return s
    body = unroll(s.body, lambda f: f.var in loops, indices)
    done = Alloc(s.buffer, merge_copies(body, s.buffer, indices))
    slots = register_slots(done, lanes, indices)
    return done if slots is not None and len(slots) <= options.registers else s


def _indexing_loops(s: Alloc, lanes: set[Var], registers: int) -> set[Var] | None:
    """The loops under the allocation that move an index of the buffer.

    None when one cannot be written out, and when more elements than there are registers would each need one.
    """
    moved = {v for index, _ in accesses(s.body, s.buffer) for v in free_vars(index)}
    if moved.isdisjoint(lanes) and s.buffer.size > registers:
        return None
    moving, found = moved - lanes, set[Var]()
    for node in stmts_of(s.body):
        if isinstance(node, For) and node.var in moving:
            if node.kind not in SEQUENTIAL or node.extent > MAX_EXTENT:
                return None
            found.add(node.var)
        if isinstance(node, If) and moving & free_vars(node.cond):
            return None
    return found if moving <= found else None


# -------------------------------------------------------------------------------------------------------- straight runs


Key = tuple[str, int, str]

BROADCASTS = 1
"""Registers for elements that all lanes read, which come and go."""
SHORTEST_REGISTER = 16
"""Bytes; shorter vectors are parts of a register."""


@dataclass
class RegisterBlock:
    """Writes one run into `out`, for `room` vector registers; `uses` counts the loads, `named` are those that have a
    name by now, of which the vectors are `held` in registers where all of them have room."""

    out: FunctionText
    room: int
    uses: Counter[Key] = field(default_factory=Counter)
    named: dict[Key, Var] = field(default_factory=dict)
    keys: dict[int, Key] = field(default_factory=dict)
    held: bool = False

    def emit(self, run: list[Stmt]) -> None:
        """Print the stores `run`, all to registers, the shared loads right before their first use."""
        leaves = [(leaf_of(s), self.out.vector(s) if isinstance(s, For) else None) for s in run]
        for store, text in leaves:
            for unit in self._units(store.value, text):
                self.uses[self._key(unit, text)] += 1
        shared = sum([count > 1 and key[1] > 1 for key, count in self.uses.items()])
        self.held = len(leaves) + shared + BROADCASTS <= self.room
        for store, text in leaves:
            self._store(store, text)

    def _is_unit(self, e: Expr, text: VectorText | None) -> bool:
        """`e` is a load from memory, or something whose parts must not be taken out of it."""
        match e:
            case BufferLoad(buffer=buffer):
                return buffer not in self.out.slots
            case Select() | Call(func="if_then_else"):
                return True
            case Var() | Const():
                return False
        return text is not None and text.varies(e) and not has_vector_form(e, text.lane)

    def _units(self, e: Expr, text: VectorText | None) -> list[Expr]:
        if self._is_unit(e, text):
            held = any(isinstance(x, BufferLoad) and x.buffer in self.out.slots for x in walk(e))
            return [] if held else [e]
        if isinstance(e, BufferLoad):
            return []
        return [u for k in children(e) for u in self._units(k, text)]

    def _key(self, unit: Expr, text: VectorText | None) -> Key:
        if id(unit) not in self.keys:
            if text is not None and text.varies(unit):
                self.keys[id(unit)] = (unit.dtype, text.lanes, text.expr(unit))
            else:
                self.keys[id(unit)] = (unit.dtype, 1, self.out.text.expr(unit))
        return self.keys[id(unit)]

    def _store(self, s: Store, text: VectorText | None) -> None:
        shared = {id(u) for u in self._units(s.value, text)}

        def share(e: Expr) -> Expr | None:
            if id(e) in shared:
                key = self._key(e, text)
                return self._name(e, key) if self.uses[key] > 1 else e
            return e if self._is_unit(e, text) or isinstance(e, BufferLoad) else None

        stored = Store(s.buffer, s.index, transform(s.value, share))
        if text is None:
            self.out.assign(self.out.place(s.buffer, s.index), stored)
        else:
            self._vector_store(stored, text)

    def _vector_store(self, s: Store, text: VectorText) -> None:
        text.held |= {v for key, v in self.named.items() if key[1] > 1}
        target = text.element(s.buffer, "", s.buffer.dtype, s.index)
        operator, value = assignment(s)
        self.out.line(f"{target} {operator} {(text.vector if operator == '=' else text.expr)(value)};")

    def _name(self, unit: Expr, key: Key) -> Var:
        if key not in self.named:
            buffer = next((x.buffer.name for x in walk(unit) if isinstance(x, BufferLoad)), "t")
            var = Var(f"{buffer}_v", unit.dtype)
            kind = TYPES[unit.dtype] if key[1] == 1 else self.out.prelude.type(unit.dtype, key[1])
            held = self.held and isinstance(unit, BufferLoad) and BYTES[unit.dtype] * key[1] >= SHORTEST_REGISTER
            value = f"{self.out.prelude.held(unit.dtype, key[1])}({key[2]})" if held else key[2]
            self.out.line(f"const {kind} {self.out.var(var)} = {value};")
            self.named[key] = var
        return self.named[key]
