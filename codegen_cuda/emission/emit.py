"""A lowered GPU program as CUDA C++.

Every kernel is printed statement by statement by `KernelEmitter`: shared and local arrays are declared at its top,
loops that index registers are unrolled (`registers.py`), vectorized loops become vector accesses (`vectors.py`),
reductions across threads exchange registers or go through shared memory (`reduce.py`).  `emit` cuts the program into
kernels (`cuda_program.py`) and puts the file together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from te_lite.expr.expr import Binary, BufferLoad, Expr, SizeVar, Var, const
from te_lite.expr.interval import INDEX_DTYPES
from te_lite.expr.visit import substitute
from te_lite.loops.names import Names
from te_lite.loops.perfect_nest import iterations
from te_lite.loops.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Instruction,
    LoweredFunc,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    map_exprs,
    stored_in,
)
from te_lite.loops.width import Widths
from te_lite.verify.verify import verify

from ..overlap.dependent_launch import waiting
from ..overlap.prefetch import HELPER
from ..passes.guarded_reads import with_guarded_reads_first
from ..passes.lane_digits import with_lane_digits
from ..passes.outer_product import in_outer_product_order
from ..passes.reads_first import with_reads_first
from ..passes.registers import copied_loops, index_vars, register_loops, rolled_loops, useful_copies
from ..passes.runs import split_runs
from ..passes.vector_writes import with_vector_writes
from ..program.cuda_program import REGISTER_BYTES, STATIC_SHARED_BYTES, CudaKernel, CudaProgram, KernelNest, header_text
from ..text.reduce import ReduceText, group_of, phases, with_barriers, workspace_key
from ..text.text import TYPES, CudaText
from ..text.vectors import VectorStore, leaf_stores
from .kernel_parts import emitted_nests, pipelines_of, tensor_cores_of
from .launch_bounds import launch_bounds
from .shared import SharedArray, shared_layout

TENSOR_MAP = "struct alignas(64) TensorMap { unsigned long long opaque[16]; };"
"""`CUtensorMap`, whose header NVRTC need not have."""
_HALF = re.compile(r"\b(half2?|__half\w*|__h(min|max))\b")


@dataclass
class KernelEmitter:
    """Prints one kernel; `lines` is the text of its body so far."""

    nest: KernelNest
    names: Names
    tiles: frozenset[Buffer] = frozenset()
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    loops: int = 0
    lane: dict[Var, str] = field(default_factory=dict)
    lane_loads: dict[int, str] = field(default_factory=dict)
    bound: dict[Var, str] = field(default_factory=dict)
    held: dict[Buffer, str] = field(default_factory=dict)
    texts: dict[int, tuple[Expr, str]] = field(default_factory=dict)
    workspaces: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ranges, self.widths = self.nest.ranges(), Widths.of(self.nest.body)
        self.threads: dict[Var, str] = {}
        for tag, loop in self.nest.loops.items():
            self.widths.bind(loop.var, loop.extent)
            self.threads[loop.var] = "0" if loop.extent == 1 else f"(int){tag}"
        self.text = CudaText(self.var, self.load, self.nonnegative, self.widths)
        self.phases = phases(self.nest)
        self.pipelines, self.tensor_cores = pipelines_of(self.nest.body), tensor_cores_of(self.nest.body)
        moved = index_vars(self.nest.body)
        self.unrolled = register_loops(self.nest.body, moved)
        self.moved = set[Var]().union(*moved.values())
        self.rolled = rolled_loops(self.nest.body)
        self.copied = copied_loops(self.nest.body, self.moved)

    # ------------------------------------------------------------------------------------------- expressions

    def nonnegative(self, e: Expr) -> bool:
        low = self.ranges.bounds(e)[0]
        return low is not None and low >= 0

    def var(self, v: Var) -> str:
        return self.threads.get(v) or self.lane.get(v) or self.bound.get(v) or self.names.of(v, v.name)

    def load(self, e: BufferLoad) -> str:
        return self.lane_loads.get(id(e)) or self.place(e.buffer, e.index)

    def buffer(self, buffer: Buffer) -> str:
        return self.names.of(buffer, buffer.name)

    def place(self, buffer: Buffer, index: Expr) -> str:
        """One element of `buffer`, as something that can be read and assigned."""
        if buffer in self.held:
            return self.held[buffer]
        if buffer.storage == "local" and buffer.size == 1:
            return self.buffer(buffer)
        return f"{self.buffer(buffer)}[{self.index(index)}]"

    def index(self, e: Expr) -> str:
        """The text of an index, remembered while no lane stands for a variable (statements share their indices)."""
        if self.lane or self.lane_loads or self.held:
            return self.text.expr(e)
        if id(e) not in self.texts:
            self.texts[id(e)] = (e, self.text.expr(e))
        return self.texts[id(e)][1]

    def fresh(self, name: str) -> str:
        return self.names.fresh(name)

    def thread_id(self) -> str:
        return self.nest.thread_number()

    # -------------------------------------------------------------------------------------------- statements

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text)
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.line("}")

    def stmt(self, s: Stmt) -> None:
        match s:
            case Seq(stmts=stmts):
                self.sequence(stmts)
            case Alloc(body=body):
                self.stmt(body)
            case For():
                self.loop(s)
            case Store():
                self.store(s)
            case If(cond=cond, then=then):
                self.open(f"if ({self.text.expr(cond)}) {{")
                self.stmt(then)
                self.close()
            case Barrier():
                self.barrier(s)
            case ThreadReduce():
                ReduceText(self, s, group_of(s, self.nest), self.phases.get(id(s), 0)).emit()
            case Instruction() if s.waited_for:
                self.sequence((s,))
            case Instruction():
                self.line(self.tensor_cores.text(self, s))

    def sequence(self, stmts: Sequence[Stmt]) -> None:
        """Statements; a product of a group of warps goes on during those that may stand beside it."""
        product: Instruction | None = None
        for part in split_runs(stmts):
            if product is not None and (isinstance(part, tuple) or not self.tensor_cores.goes_beside(part, product)):
                self.line(self.tensor_cores.wait(self, product))
                product = None
            if isinstance(part, tuple):
                self.run(part)
            elif isinstance(part, Instruction) and part.waited_for:
                self.line(self.tensor_cores.text(self, part))
                product = None if part.goes_on else part
            else:
                self.stmt(part)
        if product is not None:
            self.line(self.tensor_cores.wait(self, product))

    def barrier(self, s: Barrier) -> None:
        """A barrier; one that publishes pipelined copies waits for those of this thread first."""
        if s.publishes:
            self.line(self.pipelines.wait(self.text.helpers, s.left))
        if self.tensor_cores.fence:
            self.line(self.tensor_cores.fenced(self.text.helpers))
        self.line("__syncwarp();" if s.warp else "__syncthreads();")

    def run(self, stores: tuple[Store, ...]) -> None:
        """Stores to one element, through a register."""
        buffer, target = stores[0].buffer, self.place(stores[0].buffer, stores[0].index)
        name = self.fresh(f"{buffer.name}_value")
        self.open("{")
        self.line(f"{TYPES[buffer.dtype]} {name} = {self.text.expr(stores[0].value)};")
        self.held[buffer] = name
        for s in stores[1:]:
            self.store(s)
        del self.held[buffer]
        self.line(f"{target} = {name};")
        self.close()

    def store(self, s: Store) -> None:
        """`place = value`, or `place += rest` for an accumulation."""
        if (copy := self.pipelines.scalar_copy(self, s)) is not None:
            self.line(copy)
            return
        target = self.place(s.buffer, s.index)
        match s.value:
            case Binary(op="+", a=BufferLoad(buffer=buffer, index=index), b=b) if (
                buffer is s.buffer and bool(index == s.index) and buffer.dtype not in ("bool", "float16", *INDEX_DTYPES)
            ):
                self.line(f"{target} += {self.text.expr(b)};")
            case value:
                self.line(f"{target} = {self.text.expr(value)};")

    def loop(self, s: For) -> None:
        if s.extent == 1:
            self.lane[s.var] = "0"
            self.stmt(s.body)
            del self.lane[s.var]
        elif s.kind is ForKind.VECTORIZED:
            self.vector_loop(s)
        elif s.var in self.copied:
            for k in range(s.extent):
                self.stmt(map_exprs(s.body, self.replacing({s.var: const(k, s.var.dtype)})))
        else:
            self.pragma(s)
            end, body = (None, s.body) if s.var in self.unrolled else iterations(s)
            self.counted(s, lambda: self.stmt(body), end=end)
        for part in s.body.stmts if isinstance(s.body, Seq) else ():
            if isinstance(part, Instruction) and part.goes_on:
                self.line(self.tensor_cores.wait(self, part))

    def replacing(self, env: dict[Var, Expr]) -> Callable[[Expr], Expr]:
        """What replaces variables by their values in an expression."""
        return lambda e: self.ranges.simplify(substitute(e, env))

    def pragma(self, s: For) -> None:
        """How far the compiler shall unroll a loop, where that is not left to it."""
        if s.var in self.rolled:
            self.line("#pragma unroll 1")
        elif s.var in self.unrolled or (s.kind is ForKind.UNROLLED and s.var in self.moved):
            self.line("#pragma unroll")
        elif s.kind is ForKind.UNROLLED:
            copies = useful_copies(s)
            self.line("#pragma unroll" if copies == s.extent else f"#pragma unroll {copies}")

    def counted(self, s: For, body: Callable[[], None], step: int = 1, end: Expr | None = None) -> None:
        v, kind = self.names.of(s.var, s.var.name), TYPES[self.widths.counter(s.var, step)]
        last = s.extent if end is None else self.text.expr(self.ranges.simplify(end))
        self.open(f"for ({kind} {v} = 0; {v} < {last}; {f'++{v}' if step == 1 else f'{v} += {step}'}) {{")
        self.loops += 1
        body()
        self.loops -= 1
        self.close()

    def vector_loop(self, s: For) -> None:
        """Lanes in vectors where all stores of the loop have some; an unrolled loop over the lanes otherwise."""
        leaves = list(leaf_stores(s.body, s.var))
        stores = [(self.pipelines.vector_store(self, s, leaf[0]), leaf[1]) for leaf in leaves if leaf is not None]
        if len(stores) < len(leaves) or any(v.width == 1 for v, _ in stores):
            self.line("#pragma unroll")
            self.counted(s, lambda: self.stmt(s.body))
            return
        for vector, conds in stores:
            for cond in conds:
                self.open(f"if ({self.text.expr(cond)}) {{")
            self.chunks(vector)
            for _ in conds:
                self.close()

    def chunks(self, vector: VectorStore) -> None:
        """A vector store for all lanes of its loop."""
        s = vector.loop
        if vector.width == s.extent:
            vector.emit()
        else:
            self.lane[s.var] = self.names.of(s.var, s.var.name)
            self.line("#pragma unroll")
            self.counted(s, vector.emit, vector.width)
        self.lane.pop(s.var, None)

    # ----------------------------------------------------------------------------------------------- storage

    def workspace(self, dtype: str, position: int, phase: int) -> str:
        """The shared array that reductions of `dtype` values use in their phase."""
        return self.workspaces[workspace_key(dtype, position, phase)]

    def barrier_before(self) -> None:
        """A barrier where threads may still read what the same reduction left there in the iteration before."""
        if self.loops:
            self.line("__syncthreads();")

    def declare(self) -> tuple[int, int]:
        """Declare the arrays of the kernel; gives the bytes of shared memory, all and dynamic."""
        layout = shared_layout(self.nest)
        total = layout[-1].end if layout else 0
        dynamic = total > STATIC_SHARED_BYTES
        if dynamic:
            self.line(f"extern __shared__ __align__({self.tensor_cores.alignment}) unsigned char shared_memory[];")
        for array in layout:
            self.declare_shared(array, dynamic)
        fragments = self.nest.fragments()
        for b in self.nest.allocated("local"):
            aligned = f"__align__({REGISTER_BYTES}) " if b in fragments else ""
            self.line(f"{aligned}{TYPES[b.dtype]} {self.buffer(b)}{'' if b.size == 1 else f'[{max(b.size, 1)}]'};")
        return total, total if dynamic else 0

    def declare_shared(self, array: SharedArray, dynamic: bool) -> None:
        if array.buffer is None:
            self.workspaces[array.key] = self.fresh("reduced")
        name = self.workspaces[array.key] if array.buffer is None else self.buffer(array.buffer)
        t = TYPES[array.dtype]
        if dynamic:
            self.line(f"{t} *const {name} = ({t} *)(shared_memory + {array.start});  // {array.size} elements")
        else:
            self.line(f"__shared__ __align__({self.tensor_cores.alignment}) {t} {name}[{array.size}];")


def _kernel(
    nest: KernelNest, name: str, buffers: tuple[Buffer, ...], waits: bool, sizes: Sequence[SizeVar]
) -> tuple[CudaKernel, str, dict[str, str]]:
    """One kernel, its text, and the helper functions it calls."""
    nest.check_launch()
    ranges = nest.ranges()
    # Barriers and digits come first: operands that are read ahead are put around them.  Stores become vectors once the
    # order of multiply-adds is known; what waits for an earlier kernel reads first; epilogues look at all of it.
    body = pipelines_of(nest.body).ahead(with_lane_digits(with_barriers(nest), ranges), ranges, prod(nest.block))
    body, tiles = in_outer_product_order(body)
    apart = tiles if nest.grid[2] == 1 else frozenset[Buffer]()
    written = stored_in(nest.body)
    body = with_reads_first(with_vector_writes(body), written) if waits else with_vector_writes(body)
    body = tensor_cores_of(body).epilogue(KernelNest(nest.loops, with_guarded_reads_first(body, written)))
    emitter = KernelEmitter(KernelNest(nest.loops, body), Names(), apart)
    maps, cluster = emitter.tensor_cores.maps(body, buffers), emitter.tensor_cores.cluster
    values = [emitter.fresh(f"map{k}") for k in range(len(maps))]
    used = (written | nest.read()) - emitter.tensor_cores.by_map(body)
    arguments = tuple([k for k, b in enumerate(buffers) if b in used])
    pointers = [emitter.buffer(buffers[k]) for k in arguments]
    types = [f"{'' if buffers[k] in written else 'const '}{TYPES[buffers[k].dtype]}" for k in arguments]
    params = [f"const __grid_constant__ TensorMap {x}" for x in values]
    params += [f"{t} *__restrict__ {x}" for t, x in zip(types, pointers, strict=True)]
    params += [f"int {emitter.var(v)}" for v in sizes]
    shared, dynamic = emitter.declare()
    emitter.stmt(body)
    kernel = CudaKernel(name, nest.grid, nest.block, arguments, shared, dynamic, maps, nest.ends)
    head = f'extern "C" __global__ void {cluster}__launch_bounds__({launch_bounds(nest, kernel.threads)}) '
    helpers = {**({"TensorMap": TENSOR_MAP} if maps else {}), **emitter.text.helpers}
    if waits:
        return kernel, waiting(head, name, params, pointers, emitter.lines, values), helpers | {"fetch_ahead": HELPER}
    return kernel, "\n".join([f"{head}{name}({', '.join(params)}) {{", *emitter.lines, "}"]), helpers


def emit(func: LoweredFunc, comment: str = "", waits: bool = False) -> CudaProgram:
    """The CUDA C++ of a lowered program; `comment` (a task, a schedule) goes into the header.

    With `waits` its kernels may be launched before what they read is there, and fetch weights of later ones
    (`dependent_launch.py`).

    Local temporaries of the program become scratch buffers.  Raises EmitError for programs that have no CUDA text:
    thread loops inside other statements, launches that no device has (a grid over 2**31 - 1 x 65535 x 65535 blocks, a
    block over 1024 x 1024 x 64 threads); UnsafeError for one that the verifier refuses.
    """
    verify(func)
    nests, scratch = emitted_nests(func)
    base, buffers = (names := Names()).fresh(func.name), (*func.args, *scratch)
    built = [
        _kernel(nest, names.fresh(f"{base}_kernel{k}"), buffers, waits, func.sizes) for k, nest in enumerate(nests)
    ]
    kernels = tuple([kernel for kernel, _, _ in built])
    helpers = {name: text for _, _, more in built for name, text in more.items()}
    source = f"{header_text(func, kernels, scratch, comment)}\n{_unit([text for _, text, _ in built], helpers)}"
    units = tuple([_unit([text], more) for _, text, more in built])
    return CudaProgram(func.name, source, units, kernels, func.args, tuple(scratch), func.sizes)


def _unit(kernels: Sequence[str], helpers: Mapping[str, str]) -> str:
    """A source of kernels and the helper functions that they call."""
    include = ["#include <cuda_fp16.h>\n"] if any(_HALF.search(text) for text in kernels) else []
    return "\n".join([*include, *helpers.values(), *([""] if helpers else []), "\n\n".join(kernels)]) + "\n"
