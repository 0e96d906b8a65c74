"""Straight runs of register arithmetic: every value that is used twice is loaded once and named.

Such a run stores to registers only, so memory does not change under it and loads may be shared.  What may be
evaluated conditionally (a guarded load) is shared as a whole, never its parts.

gcc takes the loads apart again: a vector with up to four uses becomes an operand in memory of each of them, and a tile
of 4 x 2 vectors has 12 loads a step instead of 6.  So vectors that have room in registers are held there, by a
statement that gcc cannot look into (`Prelude.held`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, BufferLoad, Call, Const, Expr, Select, Var
from te_lite.expr.visit import children, transform, walk
from te_lite.loops.c_text import TYPES
from te_lite.loops.stmt import For, Stmt, Store

from .function_text import FunctionText
from .vector_text import VectorText
from .vectorize import has_vector_form

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
        leaves = [self._leaf(s) for s in run]
        for store, text in leaves:
            for unit in self._units(store.value, text):
                self.uses[self._key(unit, text)] += 1
        shared = sum([count > 1 and key[1] > 1 for key, count in self.uses.items()])
        self.held = len(leaves) + shared + BROADCASTS <= self.room
        for store, text in leaves:
            self._store(store, text)

    def _leaf(self, s: Stmt) -> tuple[Store, VectorText | None]:
        if isinstance(s, For):
            assert isinstance(s.body, Store)
            return s.body, self.out.vector(s)
        assert isinstance(s, Store)
        return s, None

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
        match s.value:
            case Binary(op="+", a=BufferLoad(buffer=buffer, index=index), b=b) if buffer is s.buffer and bool(
                index == s.index
            ):
                self.out.line(f"{target} += {text.expr(b)};")
            case value:
                self.out.line(f"{target} = {text.vector(value)};")

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
