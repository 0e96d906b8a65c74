"""Reductions across the threads of a block.

    warp     the threads of a group lie next to each other inside a warp: every step exchanges registers
    warps    a group is made of whole warps: each warp reduces, one value a warp goes through shared memory
    tree     anything else: all values go through shared memory and are halved between barriers

Every thread gets the result.  One-value sums, products, minima and maxima exchange both ways (`__shfl_xor_sync`);
other combiners go down to the first thread and are broadcast, so that all threads get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, Combiner, Expr, Logical, Var, as_expr
from te_lite.loops.stmt import Buffer, For, ForKind, Stmt, Store, ThreadReduce, bodies, seq, stmts_of, with_bodies
from te_lite.lowering.sync import insert_barriers

from ..program.cuda_program import THREAD_TAGS, KernelNest
from .text import TYPES, CudaText

_ZERO = as_expr(0)
WARP, WARP_BITS = 32, 5
SERIAL_WARPS = 4


@dataclass(frozen=True)
class Group:
    """Threads that reduce together: `extent` of them, `stride` apart in the block; the first `active` contribute."""

    extent: int
    stride: int
    active: int
    threads: int

    @property
    def method(self) -> str:
        if self.extent == 1:
            return "one"
        if self.stride == 1 and self.extent <= WARP and WARP % self.extent == 0:
            return "warp"
        return "warps" if self.stride == 1 and self.extent % WARP == 0 else "tree"

    @property
    def slots(self) -> int:
        """Elements of shared memory for each value."""
        return {"one": 0, "warp": 0, "warps": self.threads // WARP, "tree": self.threads}[self.method]


def group_of(s: ThreadReduce, nest: KernelNest) -> Group:
    axis = THREAD_TAGS.index(nest.tag_of(s.thread))
    block = nest.block
    if s.lanes:
        return Group(s.lanes, 1, s.lanes, prod(block))
    return Group(block[axis], prod(block[:axis]), s.extent, prod(block))


def workspace_key(dtype: str, position: int, phase: int) -> str:
    """What tells the shared arrays of reductions apart."""
    return f"{dtype} {position} {phase}"


def phases(nest: KernelNest) -> dict[int, int]:
    """Which of two sets of shared arrays each reduction through shared memory uses, by the id of its statement.

    They alternate: when a set is used again, the barrier of the reduction in between has shown
    that all threads have read what was in it.
    """
    through = [s for s in stmts_of(nest.body) if isinstance(s, ThreadReduce) and group_of(s, nest).slots]
    return {id(s): n % 2 for n, s in enumerate(through)}


def workspace_slots(nest: KernelNest) -> dict[str, int]:
    """Elements of each shared array that the reductions of a kernel need, by its `workspace_key`."""
    need: dict[str, int] = {}
    using = phases(nest)
    for s in stmts_of(nest.body):
        if isinstance(s, ThreadReduce) and id(s) in using:
            for k, buffer in enumerate(s.dst):
                key = workspace_key(buffer.dtype, k, using[id(s)])
                need[key] = max(need.get(key, 0), group_of(s, nest).slots)
    return need


def with_barriers(nest: KernelNest) -> Stmt:
    """The body of a kernel with barriers where what threads share relied on those of reductions that have none.

    A reduction inside a warp does not meet other warps, so `sync.py` is asked again with it as a plain statement.
    """
    inside = [s for s in stmts_of(nest.body) if isinstance(s, ThreadReduce) and group_of(s, nest).slots == 0]
    threads = [loop for loop in nest.loops.values() if loop.kind is ForKind.THREAD]
    return _asked_again(nest.body, inside, threads) if inside else nest.body


def _asked_again(body: Stmt, inside: list[ThreadReduce], threads: Sequence[For]) -> Stmt:
    """Barriers for a body whose reductions `inside` bring none; each is shown to `sync.py` as stores."""
    markers: dict[int, Stmt] = {}

    def hide(s: Stmt) -> Stmt:
        if any(s is x for x in inside):
            assert isinstance(s, ThreadReduce)
            stores = [Store(b, _ZERO, e) for b, e in zip(s.dst, s.src, strict=True)]
            markers.update({id(stores[0]): s} | {id(x): seq() for x in stores[1:]})
            kept.extend(stores)
            return seq(*stores)
        return with_bodies(s, tuple([hide(b) for b in bodies(s)]))

    def show(s: Stmt) -> Stmt:
        return markers[id(s)] if id(s) in markers else with_bodies(s, tuple([show(b) for b in bodies(s)]))

    kept: list[Stmt] = []
    return show(insert_barriers(hide(body), threads))


def _exchangeable(c: Combiner) -> bool:
    """One value, and `f(x, y)` has the same bits as `f(y, x)`."""
    if len(c.result) != 1 or not isinstance(c.result[0], Binary | Logical):
        return False
    e = c.result[0]
    return e.op in ("+", "*", "min", "max", "&&", "||") and {e.a, e.b} == {c.lhs[0], c.rhs[0]}


class Writer(Protocol):
    """What the reduction text needs of the emitter around it."""

    text: CudaText
    bound: dict[Var, str]
    threads: dict[Var, str]

    def line(self, text: str) -> None: ...
    def open(self, text: str) -> None: ...
    def close(self) -> None: ...
    def fresh(self, name: str) -> str: ...
    def place(self, buffer: Buffer, index: Expr) -> str: ...
    def thread_id(self) -> str: ...
    def workspace(self, dtype: str, position: int, phase: int) -> str: ...
    def barrier_before(self) -> None: ...


@dataclass
class ReduceText:
    """Writes one reduction; `phase` says which shared arrays it uses."""

    writer: Writer
    s: ThreadReduce
    group: Group
    phase: int

    def emit(self) -> None:
        w, s = self.writer, self.s
        w.open(f"{{  // {s.combiner.name} over {s.thread.name} in 0..{s.extent}")
        self.values = [w.fresh("x") for _ in s.dst]
        self.types = [TYPES[b.dtype] for b in s.dst]
        for name, kind, e, zero in zip(self.values, self.types, s.src, s.combiner.identity, strict=True):
            w.line(f"{kind} {name} = {self._contribution(e, zero)};")
        match self.group.method:
            case "warp":
                self._shuffle(self.group.extent)
            case "warps":
                self._warps()
            case "tree":
                self._tree()
        for buffer, name in zip(s.dst, self.values, strict=True):
            w.line(f"{w.place(buffer, _ZERO)} = {name};")
        w.close()

    def _contribution(self, e: Expr, zero: Expr) -> str:
        """What a thread brings in: its value, or nothing where the thread takes no part."""
        text, g = self.writer.text, self.group
        if g.active < g.extent and g.method != "tree":
            axis = self.writer.threads[self.s.thread]
            return f"{axis} < {g.active} ? {text.expr(e, 4)} : {text.expr(zero, 4)}"
        return text.expr(e)

    # --------------------------------------------------------------------------------------------- registers

    def _mask(self) -> str:
        """The lanes of the warp that exist."""
        threads = self.group.threads
        if threads % WARP == 0:
            return "0xffffffffu"
        last = f"0x{(1 << threads % WARP) - 1:x}u"
        if threads < WARP:
            return last
        return f"({self.writer.thread_id()} < {threads - threads % WARP} ? 0xffffffffu : {last})"

    def _shuffle(self, width: int) -> None:
        """Reduce over `width` neighbouring lanes, all of which get the result."""
        w, mask = self.writer, self._mask()
        offset = w.fresh("offset")
        both = _exchangeable(self.s.combiner)
        falling, rising = f"{width // 2}; {offset} > 0; {offset} >>= 1", f"1; {offset} < {width}; {offset} <<= 1"
        w.line("#pragma unroll")
        w.open(f"for (int {offset} = {falling if both else rising}) {{")
        how = "__shfl_xor_sync" if both else "__shfl_down_sync"
        self._combine([self._exchange(how, mask, x, b.dtype, offset, width) for x, b in self._pairs()])
        w.close()
        if not both:
            for x, b in self._pairs():
                w.line(f"{x} = {self._exchange('__shfl_sync', mask, x, b.dtype, '0', width)};")

    def _pairs(self) -> list[tuple[str, Buffer]]:
        return list(zip(self.values, self.s.dst, strict=True))

    def _exchange(self, how: str, mask: str, x: str, dtype: str, lane: str, width: int) -> str:
        wide = x if BYTES[dtype] > 2 else f"(float){x}" if dtype == "float16" else f"(int){x}"
        text = f"{how}({mask}, {wide}, {lane}{'' if width == WARP else f', {width}'})"
        return text if BYTES[dtype] > 2 else f"({TYPES[dtype]}){text}"

    def _combine(self, others: list[str]) -> None:
        """`x = f(x, other)` for all values at once."""
        w, c = self.writer, self.s.combiner
        rhs = self._named("y", others)
        w.bound.update(dict(zip((*c.lhs, *c.rhs), (*self.values, *rhs), strict=True)))
        results = [w.text.expr(r) for r in c.result]
        if len(results) > 1:
            results = self._named("z", results)
        for x, text in zip(self.values, results, strict=True):
            w.line(f"{x} = {text};")
        w.bound.clear()

    def _named(self, letter: str, texts: list[str]) -> list[str]:
        """Give a name to each of the texts."""
        names = [self.writer.fresh(letter) for _ in texts]
        for name, kind, text in zip(names, self.types, texts, strict=True):
            self.writer.line(f"const {kind} {name} = {text};")
        return names

    # ----------------------------------------------------------------------------------------- shared memory

    def _spaces(self) -> list[str]:
        return [self.writer.workspace(b.dtype, k, self.phase) for k, b in enumerate(self.s.dst)]

    def _put(self, at: str) -> None:
        """The values into shared memory."""
        for x, space in zip(self.values, self._spaces(), strict=True):
            self.writer.line(f"{space}[{at}] = {x};")

    def _get(self, at: str) -> None:
        """The values from shared memory."""
        for x, space in zip(self.values, self._spaces(), strict=True):
            self.writer.line(f"{x} = {space}[{at}];")

    def _warps(self) -> None:
        w, g = self.writer, self.group
        count, tid = g.extent // WARP, w.thread_id()
        self._shuffle(WARP)
        w.barrier_before()
        w.open(f"if (({tid} & {WARP - 1}) == 0) {{")
        self._put(f"{tid} >> {WARP_BITS}")
        w.close()
        w.line("__syncthreads();")
        base = "" if g.extent == g.threads else f"{tid} / {g.extent} * {count} + "
        if count > SERIAL_WARPS and WARP % count == 0:
            self._get(f"{base}{tid} % {count}")
            self._shuffle(count)
        else:
            self._one_by_one(base, count)

    def _one_by_one(self, base: str, count: int) -> None:
        """Every thread combines the values of all warps of its group."""
        w = self.writer
        self._get(f"{base}0")
        k = w.fresh("k")
        w.line("#pragma unroll")
        w.open(f"for (int {k} = 1; {k} < {count}; ++{k}) {{")
        self._combine([f"{space}[{base}{k}]" for space in self._spaces()])
        w.close()

    def _tree(self) -> None:
        w, g = self.writer, self.group
        tid, axis, spaces = w.thread_id(), w.threads[self.s.thread], self._spaces()
        w.barrier_before()
        self._put(tid)
        w.line("__syncthreads();")
        half = 1 << (g.active - 1).bit_length() - 1 if g.active > 1 else 0
        step = w.fresh("step")
        w.open(f"for (int {step} = {half}; {step} > 0; {step} >>= 1) {{")
        w.open(f"if ({axis} < {step} && {axis} + {step} < {g.active}) {{")
        at = step if g.stride == 1 else f"{step} * {g.stride}"
        self._combine([f"{space}[{tid} + {at}]" for space in spaces])
        self._put(tid)
        w.close()
        w.line("__syncthreads();")
        w.close()
        first = axis if g.stride == 1 else f"{axis} * {g.stride}"
        self._get(f"{tid} - {first}")
