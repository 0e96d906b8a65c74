"""Statements as C text: loops with their pragmas, storage on the stack and the heap, registers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import INDEX, BufferLoad, Var, binary, const
from te_lite.loops.c_text import TYPES
from te_lite.loops.perfect_nest import iterations
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, Seq, Stmt, Store, bodies, stmts_of

from .errors import EmitError
from .function_text import FunctionText
from .indices import Indices
from .prefetch import fetched_ahead, next_panels
from .processor import Options
from .registers import RegisterBlock, register_slots
from .transpose import Square
from .vector_text import VectorText
from .vectorize import unrolled_nodes, unrolled_size

_WRAP = 8
# what `Options.max_unrolled` statements weigh in expression nodes
NODES_A_STATEMENT = 16
LONG_ITERATION = 1 << 17
"""Elements stored in an iteration of a parallel loop from which on dynamic scheduling pays."""


@dataclass
class Emitter:
    """Prints the statements of one function."""

    options: Options
    lanes: set[Var]
    indices: Indices
    squares: dict[Store, Square]
    out: FunctionText = field(init=False)
    parallel: bool = False
    needs_scratch: bool = False
    around: list[For] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out = FunctionText(self.indices)

    def stmt(self, s: Stmt) -> None:
        match s:
            case Seq(stmts=stmts):
                self.sequence(stmts)
            case Store() | For() if self.is_register_leaf(s):
                self.block([s])
            case For(kind=ForKind.VECTORIZED, var=var) if var in self.lanes:
                self.vector_stmt(s.body, self.out.vector(s))
            case For():
                self.loop(s)
            case Store() if s in self.squares:
                self.square(self.squares[s])
            case Store(buffer=buffer, index=index):
                self.out.assign(self.out.place(buffer, index), s)
            case If(cond=cond, then=then):
                self.in_braces(then, f"if ({self.out.text.expr(cond)}) ")
            case Alloc():
                self.alloc(s)
            case _:
                raise EmitError(f"C text: a {type(s).__name__} statement cannot be printed")

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
                self.in_braces(s)
            else:
                self.stmt(s)
        self.block(run)

    def in_braces(self, s: Stmt, head: str = "") -> None:
        with self.out.braces(head):
            self.stmt(s)

    def is_register_leaf(self, s: Stmt) -> bool:
        inner = s.body if isinstance(s, For) and s.var in self.lanes else s
        return isinstance(inner, Store) and inner.buffer in self.out.slots

    def block(self, run: list[Stmt]) -> None:
        if run:
            RegisterBlock(self.out, self.options.registers + self.options.operands).emit(run)

    def vector_stmt(self, s: Stmt, text: VectorText, guard: str = "") -> None:
        """What a loop over lanes encloses, each store behind the `guard` of the conditions around it."""
        match s:
            case Store(buffer=buffer, index=index, value=value):
                name = self.out.buffer(buffer)
                self.out.line(guard + text.store(buffer, name, buffer.dtype, index, text.vector(value)))
            case If(cond=cond, then=then):
                self.vector_stmt(then, text, f"{guard}if ({self.out.text.expr(cond)}) ")
            case _:
                for b in bodies(s):
                    self.vector_stmt(b, text, guard)

    def square(self, s: Square) -> None:
        """A call of the function that transposes a square."""
        name = self.out.prelude.transpose(s.target.dtype, s.lanes)
        self.out.line(
            f"{name}(&{self.out.load(s.target)}, {s.target_step}, &{self.out.load(s.source)}, {s.source_step});"
        )

    def loop(self, s: For) -> None:
        if s.kind is ForKind.PARALLEL and not self.parallel:
            self.parallel_loop(s)
            return
        asked = self.ask_for_panels(s)
        if s.kind is ForKind.UNROLLED:
            limit = self.options.max_unrolled
            copies = min(s.extent, limit, NODES_A_STATEMENT * limit // unrolled_nodes(s.body))
            if copies > 1:
                self.out.line(f"#pragma GCC unroll {copies}")
        elif s.kind is ForKind.VECTORIZED and self.lanes_are_apart(s):
            self.out.line("#pragma omp simd")
        self.loop_text(s, asked)

    def loop_text(self, s: For, asked: Collection[Buffer] = ()) -> None:
        """The loop; of arrays that are `asked` for already nothing is asked for in its iterations."""
        v, (end, body) = self.out.var(s.var), iterations(s)
        last = self.out.text.expr(self.indices.simplifier.simplify(end))
        with self.out.braces(f"for (int64_t {v} = 0; {v} < {last}; ++{v}) "):
            for load in [load for load in self.ahead(s) if load.buffer not in asked]:
                self.out.line(f"__builtin_prefetch(&{self.out.load(load)});")
            self.around.append(s)
            self.stmt(body)
            self.around.pop()

    def ask_for_panels(self, s: For) -> set[Buffer]:
        """Ask for parts of panels that are read later, in front of a loop that computes on registers; their arrays."""
        found = next_panels(s, self.around, self.out.slots, self.indices) if self.is_straight(s) else []
        for panel in found:
            line = Var("line", INDEX)
            self.indices.bind(line, panel.lines)
            index = binary("+", panel.first.index, binary("*", line, const(panel.step)))
            name, place = self.out.var(line), self.out.load(BufferLoad(panel.first.buffer, index))
            with self.out.braces(f"for (int64_t {name} = 0; {name} < {panel.lines}; ++{name}) "):
                self.out.line(f"__builtin_prefetch(&{place}, 0, 2);")
        return {panel.first.buffer for panel in found}

    def ahead(self, s: For) -> list[BufferLoad]:
        """What to ask for in each iteration of a loop."""
        return fetched_ahead(s, self.around, self.out.slots, self.indices) if self.is_straight(s) else []

    def is_straight(self, s: For) -> bool:
        """A loop over nothing but arithmetic on registers."""
        parts = s.body.stmts if isinstance(s.body, Seq) else (s.body,)
        return all(self.is_register_leaf(part) for part in parts)

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
        """Each thread does a part of the iterations or, where they are long, the next one that nobody has begun.

        Threads are never equally fast, and the last one to end decides.
        """
        threads = "" if self.options.num_threads is None else f" num_threads({self.options.num_threads})"
        shared = " schedule(dynamic)" if unrolled_size(s.body, lambda loop: True) >= LONG_ITERATION else ""
        self.parallel = True
        heap = [b for b in dict.fromkeys(heap_allocs(s.body)) if self.in_heap(b)]
        if not heap:
            self.out.line(f"#pragma omp parallel for{threads}{shared}")
            self.loop_text(s)
        else:
            self.out.line(f"#pragma omp parallel{threads}")
            with self.out.braces():
                self.with_heap(heap, lambda: self.shared_loop(s, shared))
        self.parallel = False

    def shared_loop(self, s: For, shared: str) -> None:
        self.out.line(f"#pragma omp for{shared} nowait")
        self.loop_text(s)

    # ----------------------------------------------------------------------------------------------- storage

    def in_heap(self, buffer: Buffer) -> bool:
        return buffer not in self.out.slots and buffer.size * BYTES[buffer.dtype] > self.options.stack_bytes

    def with_heap(self, heap: Sequence[Buffer], body: Callable[[], None]) -> None:
        """`body()` between the allocation and the release of the buffers `heap`."""
        for b in heap:
            t, name = TYPES[b.dtype], self.out.buffer(b)
            self.needs_scratch = True
            self.out.line(f"{t} *restrict {name} = scratch(sizeof({t}) * {b.size});")
        body()
        for b in heap:
            self.out.line(f"free({self.out.buffer(b)});")

    def alloc(self, s: Alloc) -> None:
        slots = register_slots(s, self.lanes, self.indices)
        if slots is not None and len(slots) <= 2 * self.options.registers + 8:
            self.registers(s.buffer, slots)
            self.stmt(s.body)
            return
        self.out.slots.pop(s.buffer, None)  # another copy of the statement may have had registers
        if not self.in_heap(s.buffer):
            b = s.buffer
            name = self.out.buffer(b)
            self.out.line(f"{TYPES[b.dtype]} {name}[{max(b.size, 1)}] __attribute__((aligned(64)));")
        self.stmt(s.body)

    def registers(self, buffer: Buffer, slots: dict[int, int]) -> None:
        """Declare one variable per vector or scalar of the buffer."""
        names, self.out.lanes[buffer] = self.out.slots.setdefault(buffer, {}), slots
        by_type: dict[str, list[str]] = {}
        for k, (start, lanes) in enumerate(sorted(slots.items())):
            kind = TYPES[buffer.dtype] if lanes == 1 else self.out.prelude.type(buffer.dtype, lanes)
            if start not in names:
                names[start] = self.out.names.fresh(f"{buffer.name}{k}")
            by_type.setdefault(kind, []).append(names[start])
        for kind, group in by_type.items():
            for k in range(0, len(group), _WRAP):
                self.out.line(f"{kind} {', '.join(group[k : k + _WRAP])};")


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
