"""The kernels of a program: how it is cut at its thread loops, and what a launch needs to know.

A program is a sequence of root nests.  A nest that begins with block and thread loops is a kernel of that shape;
statements outside all thread loops run, in order, in kernels of one block of one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, SizeVar, Var, as_expr
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import children
from te_lite.loops.names import identifier
from te_lite.loops.perfect_nest import perfect_nest
from te_lite.loops.stmt import (
    Alloc,
    Buffer,
    For,
    ForKind,
    Instruction,
    LoweredFunc,
    Stmt,
    exprs_of,
    flattened,
    seq,
    stmts_of,
)
from te_lite.loops.stmt_text import pretty

from .errors import EmitError

Shape = tuple[int, int, int]
BLOCK_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
MOST_BLOCKS: Shape = (2**31 - 1, 65535, 65535)
MOST_THREADS: Shape = (1024, 1024, 64)
"""Blocks and threads along each axis, at most, on every device (CUDA programming guide)."""
STATIC_SHARED_BYTES = 48 * 1024
REGISTER_BYTES = 4
VECTOR_BYTES = 16


TFLOAT32 = "tfloat32"
"""Of a map of float32: what it fetches is rounded to the nearest TF32 number."""
MAP_TYPES = {dtype: 0 for dtype, size in BYTES.items() if size == 1} | {
    "uint16": 1, "int16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9, TFLOAT32: 11,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
MAP_BYTES = BYTES | {TFLOAT32: 4}
"""`CUtensorMapDataType` by dtype, `CUtensorMapSwizzle` by bytes, and the bytes of an element by dtype."""


@dataclass(frozen=True)
class TensorMap:
    """What the copy engine (from sm_90 on) is told of an array of a program, and of the boxes that it copies.

    `argument` is the array's position in the program's `buffers`, `dtype` that of its elements, or `TFLOAT32`.  The
    rest is in the order of its axes, outermost first: its `extents` as it is addressed, row-major and contiguous, maybe
    otherwise than its shape; those of a `box`, at most 256, of which each `steps`th element is copied, at most 8.  The
    lines of a box in shared memory are swizzled over so many bytes, 32, 64 or 128, or 0: not at all.

    With `margins` it is of windows (im2col), which are counted through lines and images, as many at a time as the box
    has along the outermost axis: so far before the first pixel of an image the first window begins along each of the
    two inner axes, then so far before the last pixel the last one, at most 128.
    """

    argument: int
    dtype: str
    extents: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 128
    margins: tuple[int, ...] = ()


@dataclass(frozen=True)
class CudaKernel:
    """How to launch one kernel.

    `arguments` are positions in the program's `buffers`, `shared_bytes` all shared memory of a block, `dynamic_bytes`
    the part of it that the launch must ask for (0, or everything when it is more than 48 KiB).  A kernel takes its
    `maps`, by value, before the pointers of its arguments.  `ends` is the grid of all sizes where some
    are open, `grid` that of the greatest ones.
    """

    name: str
    grid: Shape
    block: Shape
    arguments: tuple[int, ...]
    shared_bytes: int
    dynamic_bytes: int
    maps: tuple[TensorMap, ...] = ()
    ends: tuple[Expr, ...] = ()

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)


@dataclass(frozen=True)
class CudaProgram:
    """CUDA C++ source and its kernels, to be launched one after the other.

    `units` are sources as well, of each kernel alone: programs that differ in one kernel share those of the others.
    `args` are the caller's arrays, `scratch` those that the program needs besides; all start at a multiple of 16 bytes.
    All kernels take the `sizes`, each an int, behind their pointers.
    """

    name: str
    source: str
    units: tuple[str, ...]
    kernels: tuple[CudaKernel, ...]
    args: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    sizes: tuple[SizeVar, ...] = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What the arguments of kernels count: `args`, then `scratch`."""
        return (*self.args, *self.scratch)


@dataclass(frozen=True, eq=False)
class KernelNest:
    """One kernel before it is text: its block and thread loops by tag, what a thread runs, `ends` of a `CudaKernel`."""

    loops: dict[str, For]
    body: Stmt
    ends: tuple[Expr, ...] = ()

    def extents(self, tags: tuple[str, ...]) -> Shape:
        x, y, z = [self.loops[tag].extent if tag in self.loops else 1 for tag in tags]
        return x, y, z

    @property
    def grid(self) -> Shape:
        return self.extents(BLOCK_TAGS)

    @property
    def block(self) -> Shape:
        return self.extents(THREAD_TAGS)

    def check_launch(self) -> None:
        """Raises EmitError for a grid or block that no device has."""
        for tags, shape, most in ((BLOCK_TAGS, self.grid, MOST_BLOCKS), (THREAD_TAGS, self.block, MOST_THREADS)):
            for tag, extent, limit in zip(tags, shape, most, strict=True):
                require(extent <= limit, EmitError, tag, f"no device has more than {limit} along it", extent=extent)

    def ranges(self) -> Simplifier:
        """What is known of the loops' variables."""
        known = Simplifier()
        for loop in (*self.loops.values(), *[s for s in stmts_of(self.body) if isinstance(s, For)]):
            known.bind(loop.var, 0, loop.extent - 1)
        return known

    def tag_of(self, var: Var) -> str:
        """The axis of a thread variable.  Raises EmitError for a variable that is none."""
        tags = [tag for tag, loop in self.loops.items() if loop.var is var]
        require(bool(tags), EmitError, "reduction across threads", f"{var.name} is no thread axis of the kernel")
        return tags[0]

    def allocated(self, storage: str) -> list[Buffer]:
        """The buffers of this class of storage that are allocated inside, each once, in order."""
        found = [s.buffer for s in stmts_of(self.body) if isinstance(s, Alloc) and s.buffer.storage == storage]
        return list(dict.fromkeys(found))

    def thread_number(self) -> str:
        """The text of the number of the thread in its block, x fastest."""
        terms = []
        for axis, tag in enumerate(THREAD_TAGS):
            stride = prod(self.block[:axis])
            if self.block[axis] > 1:
                terms.append(f"(int){tag}" + (f" * {stride}" if stride > 1 else ""))
        return terms[0] if len(terms) == 1 and "*" not in terms[0] else f"({' + '.join(terms) or '0'})"

    def fragments(self) -> set[Buffer]:
        """The buffers whose elements instructions of a warp take in registers of several."""
        together = [s for s in stmts_of(self.body) if isinstance(s, Instruction)]
        return {e.buffer for s in together for e in exprs_of(s) if isinstance(e, BufferLoad)}

    def read(self) -> set[Buffer]:
        return {x.buffer for x in loads_in(self.body)}


def loads_in(body: Stmt) -> Iterator[BufferLoad]:
    """Every read under `body`; a node that several expressions share comes once."""
    seen: set[int] = set()
    for s in stmts_of(body):
        stack = list(exprs_of(s))
        while stack:
            e = stack.pop()
            if id(e) in seen:
                continue
            seen.add(id(e))
            if isinstance(e, BufferLoad):
                yield e
            stack.extend(children(e))


def _is_launch(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind in (ForKind.BLOCK, ForKind.THREAD)


def _nest(s: Stmt) -> KernelNest:
    loops: dict[str, For] = {}
    outer, body = perfect_nest(s, lambda loop: loop.kind in (ForKind.BLOCK, ForKind.THREAD))
    for loop in outer:
        kind = BLOCK_TAGS if loop.kind is ForKind.BLOCK else THREAD_TAGS
        is_new = loop.tag in kind and loop.tag not in loops
        require(is_new, EmitError, loop.var.name, "one loop per launch axis", axis=loop.tag)
        loops[loop.tag] = loop
    for x in stmts_of(body):
        inner = isinstance(x, For) and x.kind in (ForKind.BLOCK, ForKind.THREAD, ForKind.VTHREAD)
        require(not inner, EmitError, "kernel", "block, thread and virtual thread loops stand outermost")
    return KernelNest(loops, body)


def _groups(stmts: Iterable[Stmt]) -> list[list[Stmt]]:
    """What becomes a kernel each: a launch by itself, neighbours that are none together."""
    groups: list[list[Stmt]] = []
    for s in stmts:
        if not _is_launch(s) and groups and not _is_launch(groups[-1][-1]):
            groups[-1].append(s)
        else:
            groups.append([s])
    return groups


def kernel_nests(func: LoweredFunc) -> tuple[list[KernelNest], list[Buffer]]:
    """The kernels of a program in order, and the global buffers besides its arguments, each once.

    Raises EmitError when a thread loop stands inside other statements, or threads share a global allocation.
    """
    scratch: list[Buffer] = []
    groups = _groups(flattened(func.body, scratch, lambda buffer: buffer.scope == "global"))
    nests = [_nest(seq(*group)) for group in groups]
    for nest in nests:
        for buffer in nest.allocated("global"):
            alone = prod(nest.grid) * prod(nest.block) == 1
            require(alone, EmitError, buffer.name, "threads cannot allocate global memory", kernel=nest.block)
            scratch.append(buffer)
    return nests, list(dict.fromkeys(scratch))


def header_text(func: LoweredFunc, kernels: tuple[CudaKernel, ...], scratch: list[Buffer], comment: str) -> str:
    """The comment at the head of a source: arguments, scratch buffers, kernels, and what else there is to say."""
    lines = [f"{func.name}: " + ", ".join([_shape(b) for b in func.args])]
    lines += [f"scratch: {', '.join([_shape(b) for b in scratch])}"] if scratch else []
    for k in kernels:
        grid, block = " x ".join(map(pretty, k.ends or map(as_expr, k.grid))), " x ".join(map(str, k.block))
        lines.append(f"{k.name}: grid {grid}, block {block}, {k.shared_bytes} bytes of shared memory")
    lines += comment.replace("*/", "* /").splitlines()
    return "\n".join(["/*", *[f" * {line}".rstrip() for line in lines], " */"])


def _shape(b: Buffer) -> str:
    return f"{identifier(b.name)}[{', '.join(map(str, b.shape))}] {b.dtype}"
