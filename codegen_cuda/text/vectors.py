"""Vectorized loops as vector loads and stores.

A store of a vectorized loop is cut into chunks of the widest vector type that fits: lanes are neighbours in memory,
the first lane of a chunk is at a multiple of the chunk, a vector is at most 16 bytes.  Arrays start at multiples of
16 bytes.  The value of a chunk is

    a vector read              *(const float4 *)(A + i)
    the same in all lanes      make_float4(x, x, x, x)
    a choice between vectors   cond ? vector : vector, where the condition is the same in all lanes
    anything else              make_float4(lane 0, lane 1, lane 2, lane 3), its unconditional vector reads made once

Vectors move bytes: what is only copied may use a type of another name (8 halves are an `int4`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeGuard

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, BufferLoad, Call, Const, Expr, Select, Var
from te_lite.expr.visit import children, free_vars, walk
from te_lite.loops.c_text import ADD, POSTFIX, TERNARY
from te_lite.loops.stmt import Buffer, For, If, Seq, Stmt, Store

from ..passes.vector_writes import APART
from ..program.cuda_program import VECTOR_BYTES
from ..program.indices import vector_start
from .text import CudaText

_NATIVE = {
    "float32": {2: "float2", 4: "float4"}, "float64": {2: "double2"}, "float16": {2: "half2"},
    "int32": {2: "int2", 4: "int4"}, "int64": {2: "longlong2"}, "int16": {2: "short2", 4: "short4"},
    "int8": {2: "char2", 4: "char4"}, "uint8": {2: "uchar2", 4: "uchar4"}, "uint16": {2: "ushort2", 4: "ushort4"},
    "uint32": {2: "uint2", 4: "uint4"}, "uint64": {2: "ulonglong2"},
}  # fmt: skip
_RAW = {2: "short", 4: "int", 8: "int2", 16: "int4"}
_FIELDS = "xyzw"


class Writer(Protocol):
    """What the vector text needs of the emitter around it."""

    text: CudaText
    lane: dict[Var, str]
    lane_loads: dict[int, str]
    tiles: frozenset[Buffer]

    def line(self, text: str) -> None: ...
    def fresh(self, name: str) -> str: ...
    def buffer(self, buffer: Buffer) -> str: ...
    def place(self, buffer: Buffer, index: Expr) -> str: ...


def leaf_stores(s: Stmt, lane: Var, conds: tuple[Expr, ...] = ()) -> Iterator[tuple[Store, tuple[Expr, ...]] | None]:
    """The stores of a loop body with the conditions around them; None for what has no vector form."""
    match s:
        case Store():
            yield s, conds
        case If(cond=cond, then=then) if lane not in free_vars(cond):
            yield from leaf_stores(then, lane, (*conds, cond))
        case Seq(stmts=stmts):
            for x in stmts:
                yield from leaf_stores(x, lane, conds)
        case _:
            yield None


@dataclass
class VectorStore:
    """One store of the vectorized loop `loop`, written in chunks."""

    writer: Writer
    loop: For
    store: Store
    width: int = field(init=False, default=1)
    kind: str = field(init=False, default="")

    # ------------------------------------------------------------------------------------------ the width

    def __post_init__(self) -> None:
        """The widest chunk that the store allows; `width` stays 1 when there is none."""
        dtype = self.store.buffer.dtype
        for width in (16, 8, 4, 2):
            if self.loop.extent % width or width * BYTES[dtype] > VECTOR_BYTES:
                continue
            kind = self._local_kind(width) if self.store.buffer.storage == "local" else self._kind(width)
            if kind is not None:
                self.width, self.kind = width, kind
                return

    def _local_kind(self, width: int) -> str | None:
        """The vector type in which reads of a store to registers are done; None when no read is a vector."""
        native, value = _NATIVE.get(self.store.buffer.dtype, {}).get(width), self.store.value
        read = any(self._is_vector(e, width) for e in _unconditional(value))
        return native if read or (_is_choice(value) and self._copied(value, width)) else None

    def _kind(self, width: int) -> str | None:
        """The vector type of a store to memory; None when it is none of this width."""
        dtype = self.store.buffer.dtype
        if vector_start(self.store.index, self.loop.var, width) is None:
            return None
        native = _NATIVE.get(dtype, {}).get(width)
        return native or (_RAW.get(width * BYTES[dtype]) if self._copied(self.store.value, width) else None)

    def _is_vector(self, e: Expr, width: int) -> TypeGuard[BufferLoad]:
        return (
            isinstance(e, BufferLoad)
            and e.buffer.storage != "local"
            and e.dtype in _NATIVE
            and width in _NATIVE[e.dtype]
            and vector_start(e.index, self.loop.var, width) is not None
        )

    def _copied(self, e: Expr, width: int) -> bool:
        """The value is moved only: vector reads, zeros, and choices between them."""
        match e:
            case BufferLoad(buffer=buffer, index=index):
                return buffer.storage != "local" and vector_start(index, self.loop.var, width) is not None
            case Const(value=value):
                return value == 0 and math.copysign(1, value) > 0
            case Select(cond=cond, a=a, b=b) | Call(func="if_then_else", args=(cond, a, b)):
                same = self.loop.var not in free_vars(cond)
                return same and self._copied(a, width) and self._copied(b, width)
        return False

    # ------------------------------------------------------------------------------------------- the text

    def emit(self) -> None:
        """The store for all lanes; chunks after the first need the loop variable as their base."""
        whole, local = self._vector(self.store.value), self.store.buffer.storage == "local"
        if whole is not None and not local:
            self.writer.line(f"{self._place(self.store, self.kind)} = {whole[0]};")
            return
        if whole is not None and _is_choice(self.store.value):
            self._take_apart(whole[0])
            return
        loads = [e for e in _unconditional(self.store.value) if self._is_vector(e, self.width)]
        if not loads:
            self._store_lanes("")
            return
        self.writer.line("{")
        for e in loads:
            self._name(e)
        self._store_lanes("  ")
        self.writer.line("}")
        self.writer.lane_loads.clear()

    def _name(self, e: BufferLoad) -> None:
        """Read a vector once, under a name."""
        name, kind = self.writer.fresh("v"), _NATIVE[e.dtype][self.width]
        self.writer.line(f"  const {kind} {name} = {self._place(e, f'const {kind}')};")
        self.writer.lane_loads[id(e)] = name

    def _take_apart(self, whole: str) -> None:
        """A vector that is chosen as one, its lanes into registers."""
        name = self.writer.fresh("v")
        self.writer.line("{")
        self.writer.line(f"  const {self.kind} {name} = {whole};")
        for k in range(self.width):
            self.writer.line(f"  {self._lane(k)[0]} = {name}.{_FIELDS[k]};")
        self.writer.line("}")

    def _store_lanes(self, pad: str) -> None:
        """The lanes one by one into registers, or put together into memory."""
        lanes = [self._lane(k) for k in range(self.width)]
        if self.store.buffer.storage == "local":
            for target, value in lanes:
                self.writer.line(f"{pad}{target} = {value};")
        else:
            values = ", ".join([value for _, value in lanes])
            self.writer.line(f"{pad}{self._place(self.store, self.kind)} = make_{self.kind}({values});")

    @cached_property
    def _sums(self) -> list[BufferLoad]:
        """The sums of a tile that are written to memory from a register of their own.

        Not where a bias alone follows, nor where a division does, which branches: there it takes longer.
        """
        match self.store.value:
            case Binary(op="+", a=BufferLoad(), b=BufferLoad()):
                return []
            case _ if self.store.buffer.storage == "local" or any(map(_divides, walk(self.store.value))):
                return []
        reads = [e for e in walk(self.store.value) if isinstance(e, BufferLoad) and e.dtype == "float32"]
        return [e for e in reads if e.buffer in self.writer.tiles]

    def _offset(self, start: Expr) -> str:
        base = self.writer.lane.get(self.loop.var, "")
        parts = [] if isinstance(start, Const) and start.value == 0 else [self.writer.text.expr(start, ADD)]
        parts += [base] if base else []
        return f" + {' + '.join(parts)}" if parts else ""

    def _place(self, of: Store | BufferLoad, kind: str) -> str:
        """The vector of this type that a chunk stores or reads."""
        start = vector_start(of.index, self.loop.var, self.width)
        assert start is not None
        return f"*({kind} *)({self.writer.buffer(of.buffer)}{self._offset(start)})"

    def _vector(self, e: Expr) -> tuple[str, int] | None:
        """The text of all lanes as one vector, and how tightly it binds; None when lanes must be written singly."""
        text, var = self.writer.text, self.loop.var
        match e:
            case BufferLoad() if e.buffer.storage != "local" and vector_start(e.index, var, self.width) is not None:
                return self._place(e, f"const {self.kind}"), POSTFIX
            case Call(func="if_then_else", args=(cond, a, b)) | Select(cond=cond, a=a, b=b):
                x, y = self._vector(a), self._vector(b)
                if x is None or y is None or var in free_vars(cond):
                    return None
                then = f"({x[0]})" if x[1] <= TERNARY else x[0]
                return f"{text.expr(cond, TERNARY + 1)} ? {then} : {y[0]}", TERNARY
            case Const():
                return self._splat(e), POSTFIX
        return None

    def _splat(self, e: Const) -> str:
        if self.kind not in _NATIVE.get(e.dtype, {}).values():
            lanes = 4 if self.kind == "int4" else 2
            return f"make_{self.kind}({', '.join(['0'] * lanes)})" if "2" in self.kind or "4" in self.kind else "0"
        return f"make_{self.kind}({', '.join([self.writer.text.expr(e)] * self.width)})"

    def _lane(self, k: int) -> tuple[str, str]:
        """The place and the value of lane `k` of a chunk."""
        writer, var = self.writer, self.loop.var
        base = writer.lane.get(var, "")
        writer.lane[var] = f"({base} + {k})" if base and k else base or str(k)
        reads = dict(writer.lane_loads)
        writer.lane_loads.update({key: f"{name}.{_FIELDS[k]}" for key, name in reads.items()})
        if self._sums:
            writer.text.helpers["apart"] = APART
        writer.lane_loads.update({id(e): f"apart({writer.place(e.buffer, e.index)})" for e in self._sums})
        out = writer.place(self.store.buffer, self.store.index), writer.text.expr(self.store.value)
        writer.lane_loads.clear()
        writer.lane_loads.update(reads)
        writer.lane[var] = base
        return out


def _divides(e: Expr) -> bool:
    """Whether this is a division by what is not known."""
    quotient = isinstance(e, Binary) and e.op == "/" and not isinstance(e.b, Const)
    return quotient or (isinstance(e, Call) and e.func == "sigmoid")


def _is_choice(e: Expr) -> bool:
    return isinstance(e, Select) or (isinstance(e, Call) and e.func == "if_then_else")


def _unconditional(e: Expr) -> Iterator[Expr]:
    """The sub-expressions that are evaluated whatever conditions say; indices of reads are left out."""
    yield e
    for k in () if isinstance(e, BufferLoad) or _is_choice(e) else children(e):
        yield from _unconditional(k)
