"""A lowered program as C source.

The program is prepared by four passes (vectorize, promote, registers, and the refusal of what C has no words for) and
then printed statement by statement.  `Emitter` prints one function; `emit` puts the file together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from te_lite.c_text import BYTES, KEYWORDS, TYPES, CText, Names
from te_lite.errors import require
from te_lite.expr import Binary, BufferLoad, Expr, Var
from te_lite.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    LoweredFunc,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    bodies,
    stmts_of,
)

from .block import RegisterBlock
from .errors import EmitError
from .host import Options, host_options
from .indices import Indices
from .promote import promote
from .registers import register_slots, scalarise
from .unroll import unrolled_nodes
from .vector_text import Prelude, VectorText
from .vectorize import legalise

_GPU_LOOPS = (ForKind.BLOCK, ForKind.THREAD, ForKind.VTHREAD)
_HEADERS = ("math.h", "stdbool.h", "stdint.h", "stdio.h", "stdlib.h", "time.h")
_SCRATCH = """static void *scratch(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!p) { fprintf(stderr, "out of memory: %zu bytes of scratch space\\n", bytes); abort(); }
  return p;
}"""
_SHUFFLE = (
    "#if defined(__clang__) || __GNUC__ >= 12",
    "#define SHUFFLE(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)",
    "#else",
    "#define SHUFFLE(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})",
    "#endif",
)
_WRAP = 8
_LIBRARY = (
    "VEC SHUFFLE scratch number start stop call time clock div ldiv random rand free malloc calloc realloc exit abort "
    "atoi qsort system remove rename puts printf fprintf stderr stdin stdout fma fmod hypot nan trunc rint erfc cbrt"
)
_TAKEN = KEYWORDS | frozenset(_LIBRARY.split())

# what `Options.max_unrolled` statements weigh in expression nodes
NODES_A_STATEMENT = 16


def refuse_threads(func: LoweredFunc) -> None:
    """Raise EmitError for a program that needs the threads of a GPU block."""
    for s in stmts_of(func.body):
        what = ""
        match s:
            case For(kind=kind, tag=tag) if kind in _GPU_LOOPS:
                what = f"a loop over {tag or kind.value}"
            case Alloc(buffer=buffer) if buffer.storage == "shared":
                what = f"the shared buffer {buffer.name}"
            case Barrier():
                what = "a barrier"
            case ThreadReduce():
                what = "a reduction across threads"
        require(not what, EmitError, func.name, "the C target has no thread blocks, schedule it for a CPU", found=what)


@dataclass
class Emitter:
    """Prints the body of one function; `lines` is the text so far."""

    options: Options
    lanes: set[Var]
    indices: Indices
    text: CText = field(init=False)
    names: Names = field(default_factory=lambda: Names(_TAKEN))
    prelude: Prelude = field(default_factory=Prelude)
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    parallel: bool = False
    needs_scratch: bool = False
    slots: dict[object, dict[int, str]] = field(default_factory=dict)
    index_type: str = "int"

    def __post_init__(self) -> None:
        self.text = CText(self.var, self.load, self.indices.nonnegative)

    # ------------------------------------------------------------------------------------------- expressions

    def var(self, v: Var) -> str:
        return self.names.of(v, v.name)

    def load(self, e: BufferLoad) -> str:
        return self.place(e.buffer, e.index)

    def place(self, buffer: Buffer, index: Expr) -> str:
        """One element of `buffer`, as something that can be read and assigned."""
        slots = self.slots.get(buffer)
        if slots is not None:
            return slots[self.indices.linear(index).const]
        return f"{self.names.of(buffer, buffer.name)}[{self.text.expr(index)}]"

    def vector(self, loop: For) -> VectorText:
        return VectorText(self.text, self.prelude, loop.var, loop.extent, self.indices, self.slots)

    # -------------------------------------------------------------------------------------------- statements

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def stmt(self, s: Stmt) -> None:
        match s:
            case Seq(stmts=stmts):
                self.sequence(stmts)
            case Store() | For() if self.is_register_leaf(s):
                self.block([s])
            case For(kind=ForKind.VECTORIZED, var=var) if var in self.lanes:
                self.vector_loop(s)
            case For():
                self.loop(s)
            case Store(buffer=buffer, index=index):
                self.assign(self.place(buffer, index), s)
            case If(cond=cond, then=then):
                self.line(f"if ({self.text.expr(cond)}) {{")
                self.inner(then)
                self.line("}")
            case Alloc():
                self.alloc(s)
            case _:
                raise EmitError(f"C text: a {type(s).__name__} statement cannot be printed")

    def inner(self, s: Stmt) -> None:
        self.depth += 1
        self.stmt(s)
        self.depth -= 1

    def sequence(self, stmts: Sequence[Stmt]) -> None:
        """Statements in order; straight runs of register arithmetic share their loads."""
        run: list[Stmt] = []
        for s in stmts:
            if self.is_register_leaf(s):
                run.append(s)
                continue
            self.block(run)
            run = []
            if isinstance(s, Alloc):
                self.line("{")
                self.inner(s)
                self.line("}")
            else:
                self.stmt(s)
        self.block(run)

    def is_register_leaf(self, s: Stmt) -> bool:
        inner = s.body if isinstance(s, For) and s.var in self.lanes else s
        return isinstance(inner, Store) and inner.buffer in self.slots

    def block(self, run: list[Stmt]) -> None:
        if run:
            RegisterBlock(self).emit(run)

    def assign(self, target: str, s: Store) -> None:
        """`target = value`, or `target += rest` for an accumulation."""
        match s.value:
            case Binary(op="+", a=BufferLoad(buffer=buffer, index=index), b=b) if (
                buffer is s.buffer and bool(index == s.index) and buffer.dtype != "bool"
            ):
                self.line(f"{target} += {self.text.expr(b)};")
            case value:
                self.line(f"{target} = {self.text.expr(value)};")

    def vector_loop(self, s: For) -> None:
        text = self.vector(s)
        for store, conds in _stores(s.body):
            guard = "".join(f"if ({self.text.expr(c)}) " for c in conds)
            name = self.names.of(store.buffer, store.buffer.name)
            value = text.vector(store.value)
            self.line(guard + text.store(store.buffer, name, store.buffer.dtype, store.index, value))

    def loop(self, s: For) -> None:
        if s.kind is ForKind.PARALLEL and not self.parallel:
            self.parallel_loop(s)
            return
        if s.kind is ForKind.UNROLLED:
            limit = self.options.max_unrolled
            copies = min(s.extent, limit, NODES_A_STATEMENT * limit // unrolled_nodes(s.body))
            if copies > 1:
                self.line(f"#pragma GCC unroll {copies}")
        elif s.kind is ForKind.VECTORIZED and self.lanes_are_apart(s):
            self.line("#pragma omp simd")
        self.loop_text(s)

    def loop_text(self, s: For) -> None:
        v = self.var(s.var)
        self.line(f"for ({self.index_type} {v} = 0; {v} < {s.extent}; ++{v}) {{")
        self.inner(s.body)
        self.line("}")

    def lanes_are_apart(self, s: For) -> bool:
        """Every store of a vectorized loop goes to a place of its own in each iteration, with no loop inside."""
        for inner in stmts_of(s.body):
            if isinstance(inner, For | Alloc):
                return False
            if isinstance(inner, Store):
                offsets = self.indices.lane_offsets(inner.index, s.var, s.extent)
                if offsets is None or len(set(offsets)) < len(offsets):
                    return False
        return True

    def parallel_loop(self, s: For) -> None:
        threads = "" if self.options.num_threads is None else f" num_threads({self.options.num_threads})"
        self.parallel = True
        heap = [b for b in dict.fromkeys(heap_allocs(s.body)) if self.in_heap(b)]
        if not heap:
            self.line(f"#pragma omp parallel for{threads}")
            self.loop_text(s)
        else:
            self.line(f"#pragma omp parallel{threads}")
            self.line("{")
            self.depth += 1
            self.with_heap(heap, lambda: self.shared_loop(s))
            self.depth -= 1
            self.line("}")
        self.parallel = False

    def shared_loop(self, s: For) -> None:
        self.line("#pragma omp for")
        self.loop_text(s)

    # ----------------------------------------------------------------------------------------------- storage

    def in_heap(self, buffer: Buffer) -> bool:
        return buffer not in self.slots and buffer.size * BYTES[buffer.dtype] > self.options.stack_bytes

    def with_heap(self, heap: Sequence[Buffer], body: Callable[[], None]) -> None:
        """`body()` between the allocation and the release of the buffers `heap`."""
        for b in heap:
            t, name = TYPES[b.dtype], self.names.of(b, b.name)
            self.needs_scratch = True
            self.line(f"{t} *restrict {name} = scratch(sizeof({t}) * {b.size});")
        body()
        for b in heap:
            self.line(f"free({self.names.of(b, b.name)});")

    def alloc(self, s: Alloc) -> None:
        slots = register_slots(s, self.lanes, self.indices)
        if slots is not None and len(slots) <= 2 * self.options.registers + 8:
            self.registers(s.buffer, slots)
            self.stmt(s.body)
            return
        self.slots.pop(s.buffer, None)  # another copy of the statement may have had registers
        if not self.in_heap(s.buffer):
            b = s.buffer
            name = self.names.of(b, b.name)
            self.line(f"{TYPES[b.dtype]} {name}[{max(b.size, 1)}] __attribute__((aligned(64)));")
        self.stmt(s.body)

    def registers(self, buffer: Buffer, slots: dict[int, int]) -> None:
        """Declare one variable per vector or scalar of the buffer."""
        names = self.slots.setdefault(buffer, {})
        by_type: dict[str, list[str]] = {}
        for k, (start, lanes) in enumerate(sorted(slots.items())):
            kind = TYPES[buffer.dtype] if lanes == 1 else self.prelude.type(buffer.dtype, lanes)
            if start not in names:
                names[start] = self.names.fresh(f"{buffer.name}{k}")
            by_type.setdefault(kind, []).append(names[start])
        for kind, group in by_type.items():
            for k in range(0, len(group), _WRAP):
                self.line(f"{kind} {', '.join(group[k : k + _WRAP])};")


def heap_allocs(s: Stmt, into_parallel: bool = True) -> Iterator[Buffer]:
    """The buffers that are allocated under `s`, one that was written out several times as often.

    Parallel loops are left out when `into_parallel` is false.
    """
    if isinstance(s, Alloc):
        yield s.buffer
    if not into_parallel and isinstance(s, For) and s.kind is ForKind.PARALLEL:
        return
    for b in bodies(s):
        yield from heap_allocs(b, into_parallel)


def _stores(s: Stmt, conds: tuple[Expr, ...] = ()) -> Iterator[tuple[Store, tuple[Expr, ...]]]:
    match s:
        case Store():
            yield s, conds
        case If(cond=cond, then=then):
            yield from _stores(then, (*conds, cond))
        case _:
            for b in bodies(s):
                yield from _stores(b, conds)


def written_buffers(s: Stmt) -> set[Buffer]:
    return {x.buffer for x in stmts_of(s) if isinstance(x, Store)}


def _signature(func: LoweredFunc, emitter: Emitter, written: set[Buffer]) -> str:
    args = []
    for b in func.args:
        const = "" if b in written else "const "
        args.append(f"{const}{TYPES[b.dtype]} *restrict {emitter.names.of(b, b.name)}")
    return ", ".join(args)


def entry_name(func: LoweredFunc, name: str | None = None) -> str:
    """The C name of the function."""
    return Names(_TAKEN).fresh(name or func.name)


def emit(func: LoweredFunc, name: str | None = None, options: Options | None = None) -> str:
    """The C source of `func`.

    It defines `void NAME(args)`, pointers to the first elements in the order of `func.args`, and
    `double NAME_seconds(int64_t number, args)`, the time in seconds of `number` calls.  Raises EmitError for
    programs with thread blocks.
    """
    refuse_threads(func)
    options = options or host_options()
    indices = Indices(func.body)
    body, lanes = legalise(func.body, options, indices)
    body = scalarise(promote(body, options, lanes, indices), options, lanes, indices)
    emitter = Emitter(options, lanes, indices)
    entry = emitter.names.fresh(entry_name(func, name))
    timer = emitter.names.fresh(f"{entry}_seconds")
    if any(s.buffer.size >= 2**31 for s in stmts_of(body) if isinstance(s, Store)) or any(
        b.size >= 2**31 for b in func.args
    ):
        emitter.text.wide, emitter.index_type = True, "int64_t"
    signature = _signature(func, emitter, written_buffers(body))
    heap = [b for b in dict.fromkeys(heap_allocs(body, into_parallel=False)) if emitter.in_heap(b)]
    emitter.with_heap(heap, lambda: emitter.stmt(body))
    return _file(func, emitter, entry, timer, signature)


def _file(func: LoweredFunc, emitter: Emitter, entry: str, timer: str, signature: str) -> str:
    shapes = ", ".join(f"{b.name}[{', '.join(map(str, b.shape))}] {b.dtype}" for b in func.args)
    parts = [f"/* {entry}: {shapes} */"]
    parts += [f"#include <{h}>" for h in _HEADERS]
    parts += ["#include <immintrin.h>"] if emitter.prelude.masks else []
    parts += ["", *emitter.prelude.types.values()]
    if any("VEC(" in line for line in emitter.lines):
        parts.append("#define VEC(type, element) (*(type *)&(element))")
    if any("SHUFFLE(" in line for line in emitter.lines):
        parts += _SHUFFLE
    parts += [*emitter.text.helpers.values(), *emitter.prelude.helpers.values()]
    if emitter.needs_scratch:
        parts.append(_SCRATCH)
    parts += ["", f"__attribute__((noinline)) void {entry}({signature}) {{", *emitter.lines, "}", ""]
    names = ", ".join(emitter.names.of(b, b.name) for b in func.args)
    parts += [
        f"double {timer}(int64_t number, {signature}) {{",
        "  struct timespec start, stop;",
        "  clock_gettime(CLOCK_MONOTONIC, &start);",
        f"  for (int64_t call = 0; call < number; ++call) {entry}({names});",
        "  clock_gettime(CLOCK_MONOTONIC, &stop);",
        "  return (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);",
        "}",
    ]
    return "\n".join(parts) + "\n"
