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

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from te_lite.c_text import BYTES, POSTFIX, TERNARY
from te_lite.expr import BufferLoad, Call, Const, Expr, Select, Var
from te_lite.stmt import Buffer, For, If, Seq, Stmt, Store
from te_lite.visit import children, free_vars

from .indices import vector_start
from .kernel import VECTOR_BYTES
from .text import CudaText

_NATIVE = {
    "float32": {2: "float2", 4: "float4"}, "float64": {2: "double2"}, "float16": {2: "half2"},
    "int32": {2: "int2", 4: "int4"}, "int64": {2: "longlong2"}, "int16": {2: "short2", 4: "short4"},
    "int8": {2: "char2", 4: "char4"}, "uint8": {2: "uchar2", 4: "uchar4"},
}  # fmt: skip
_RAW = {2: "short", 4: "int", 8: "int2", 16: "int4"}
_FIELDS = "xyzw"


class Writer(Protocol):
    """What the vector text needs of the emitter around it."""

    text: CudaText
    lane: dict[Var, str]
    lane_loads: dict[int, str]

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

    def __post_init__(self) -> None:
        self._choose()

    # ------------------------------------------------------------------------------------------ the width

    def _choose(self) -> None:
        """The widest chunk that the store allows; `width` stays 1 when there is none."""
        dtype, lane = self.store.buffer.dtype, self.loop.var
        for width in (16, 8, 4, 2):
            if self.loop.extent % width or width * BYTES[dtype] > VECTOR_BYTES:
                continue
            local = self.store.buffer.storage == "local"
            if not local and vector_start(self.store.index, lane, width) is None:
                continue
            native = _NATIVE.get(dtype, {}).get(width)
            raw = native or _RAW.get(width * BYTES[dtype])
            if local:
                if native and any(self._is_vector(e, width) for e in _unconditional(self.store.value)):
                    self.width, self.kind = width, native
                    return
            elif native or (raw and self._copied(self.store.value, width)):
                self.width, self.kind = width, native or str(raw)
                return

    def _is_vector(self, e: Expr, width: int) -> bool:
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
                return value == 0
            case Select(cond=cond, a=a, b=b) | Call(func="if_then_else", args=(cond, a, b)):
                same = self.loop.var not in free_vars(cond)
                return same and self._copied(a, width) and self._copied(b, width)
        return False

    # ------------------------------------------------------------------------------------------- the text

    def emit(self) -> None:
        """The store for all lanes; chunks after the first need the loop variable as their base."""
        w, store, writer = self.width, self.store, self.writer
        whole = self._vector(store.value)
        if store.buffer.storage != "local" and whole is not None:
            writer.line(f"{self._target()} = {whole[0]};")
            return
        with_block = bool(loads := list(self._lane_reads()))
        if with_block:
            writer.line("{")
        for e in loads:
            name = writer.fresh("v")
            kind = _NATIVE[e.dtype][w]
            writer.line(f"{'  ' if with_block else ''}const {kind} {name} = {self._read(e, kind)};")
            writer.lane_loads[id(e)] = name
        pad = "  " if with_block else ""
        lanes = [self._lane(k) for k in range(w)]
        if store.buffer.storage == "local":
            for target, value in lanes:
                writer.line(f"{pad}{target} = {value};")
        else:
            writer.line(f"{pad}{self._target()} = make_{self.kind}({', '.join(v for _, v in lanes)});")
        if with_block:
            writer.line("}")
        writer.lane_loads.clear()

    def _target(self) -> str:
        start = vector_start(self.store.index, self.loop.var, self.width)
        assert start is not None
        return f"*({self.kind} *)({self.writer.buffer(self.store.buffer)}{self._offset(start)})"

    def _offset(self, start: Expr) -> str:
        base = self.writer.lane.get(self.loop.var, "")
        parts = [] if isinstance(start, Const) and start.value == 0 else [self.writer.text.expr(start)]
        parts += [base] if base else []
        return f" + {' + '.join(parts)}" if parts else ""

    def _read(self, e: BufferLoad, kind: str) -> str:
        start = vector_start(e.index, self.loop.var, self.width)
        assert start is not None
        return f"*(const {kind} *)({self.writer.buffer(e.buffer)}{self._offset(start)})"

    def _vector(self, e: Expr) -> tuple[str, int] | None:
        """The text of all lanes as one vector, and how tightly it binds; None when lanes must be written singly."""
        text, var = self.writer.text, self.loop.var
        match e:
            case BufferLoad() if e.buffer.storage != "local" and vector_start(e.index, var, self.width) is not None:
                return self._read(e, self.kind), POSTFIX
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

    def _lane_reads(self) -> Iterator[BufferLoad]:
        for e in _unconditional(self.store.value):
            if isinstance(e, BufferLoad) and self._is_vector(e, self.width):
                yield e

    def _lane(self, k: int) -> tuple[str, str]:
        """The place and the value of lane `k` of a chunk."""
        writer, var = self.writer, self.loop.var
        base = writer.lane.get(var, "")
        writer.lane[var] = f"({base} + {k})" if base and k else base or str(k)
        reads = dict(writer.lane_loads)
        writer.lane_loads.update({key: f"{name}.{_FIELDS[k]}" for key, name in reads.items()})
        out = writer.place(self.store.buffer, self.store.index), writer.text.expr(self.store.value)
        writer.lane_loads.update(reads)
        writer.lane[var] = base
        return out


def _unconditional(e: Expr) -> Iterator[Expr]:
    """The sub-expressions that are evaluated whatever conditions say; indices of reads are left out."""
    yield e
    match e:
        case BufferLoad():
            return
        case Call(func="if_then_else") | Select():
            return
    for k in children(e):
        yield from _unconditional(k)
