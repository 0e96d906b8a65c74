"""Register promotion: the loops that must be unrolled so that local arrays become registers.

An array is registers only if all its indices are constants after unrolling; one index that is not sends the whole
array to memory.  So every loop that moves an index of a local array is unrolled, as far as the array fits the
registers of a thread and the program does not grow beyond `MAX_STATEMENTS`, or grows by little: what stores a tile is
never too long when what computes it is unrolled already.

Short innermost loops over virtual threads are copied out in the text instead: below a pragma of its own, nvcc keeps
the loops around such a loop from being unrolled well.
"""

from __future__ import annotations

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Call, Var
from te_lite.expr.visit import free_vars, walk
from te_lite.loops.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Instruction,
    Stmt,
    Store,
    ThreadReduce,
    bodies,
    exprs_of,
    stmts_of,
)

from ..program.cuda_program import loads_in

MAX_ARRAY_BYTES = 1024
MAX_STATEMENTS = 1024
MAX_GROWTH = 256
MAX_COPIES = 15
MAX_COPY_NODES = 1024
MAX_UNROLL = 128
MAX_MEMORY_STATEMENTS = 128
_UNROLLED = (ForKind.UNROLLED, ForKind.VECTORIZED)


def unrolled_size(s: Stmt, forced: set[Var]) -> int:
    """How many stores there are when unrolled loops, and those of `forced`, are written out."""
    own = isinstance(s, Store) or (isinstance(s, Instruction) and not s.by_emitters)
    inner = own + sum([unrolled_size(b, forced) for b in bodies(s)])
    return inner * s.extent if isinstance(s, For) and (s.kind in _UNROLLED or s.var in forced) else inner


def index_vars(body: Stmt) -> dict[Buffer, set[Var]]:
    """The variables in the indices of each local array."""
    out: dict[Buffer, set[Var]] = {}
    places = [(s.buffer, s.index) for s in stmts_of(body) if isinstance(s, Store)]
    for buffer, index in places + [(e.buffer, e.index) for e in loads_in(body)]:
        if buffer.storage == "local":
            out.setdefault(buffer, set()).update(free_vars(index))
    return out


def register_loops(body: Stmt, moved: dict[Buffer, set[Var]]) -> set[Var]:
    """The variables of the serial loops of a kernel that must be unrolled, by `index_vars` of it."""
    arrays = [s.buffer for s in stmts_of(body) if isinstance(s, Alloc) and s.buffer.storage == "local"]
    forced: set[Var] = set()
    for buffer in sorted(dict.fromkeys(arrays), key=lambda b: b.size * BYTES[b.dtype]):
        if buffer.size * BYTES[buffer.dtype] > MAX_ARRAY_BYTES:
            break
        more = forced | moved.get(buffer, set())
        if unrolled_size(body, more) <= max(MAX_STATEMENTS, unrolled_size(body, forced) + MAX_GROWTH):
            forced = more
    return forced


def useful_copies(loop: For) -> int:
    """How often to unroll a loop that moves no register: `MAX_UNROLL` times at most, and without rest if possible.

    A copy to shared memory with a guard or padding has at most `MAX_COPY_NODES` nodes: such copies take the compiler
    seconds when they are written out 80 times, and spill the registers.  Plain copies want their loads in flight.
    """
    inside = list(stmts_of(loop.body))
    copies = all(x.buffer.storage == "shared" for x in inside if isinstance(x, Store))
    nodes = [e for x in inside for root in exprs_of(x) for e in walk(root)]
    guarded = any(isinstance(x, If) for x in inside) or any(isinstance(e, Call) for e in nodes)
    if copies and guarded:
        return _divisor_up_to(min(MAX_UNROLL, MAX_COPY_NODES // len(nodes)), loop.extent)
    found = _divisor_up_to(MAX_UNROLL, loop.extent)
    return found if found in (loop.extent, *range(MAX_UNROLL // 4, MAX_UNROLL + 1)) else MAX_UNROLL


def _divisor_up_to(most: int, extent: int) -> int:
    return max(d for d in range(1, max(min(most, extent), 1) + 1) if extent % d == 0)


def rolled_loops(body: Stmt) -> set[Var]:
    """The variables of unrolled loops to leave rolled: around large arrays.

    Unrolling pays where it turns arrays into registers.  Around an array of more than `MAX_ARRAY_BYTES`, which stays in
    memory, it keeps the compiler busy for seconds: what is unrolled there stops at `MAX_MEMORY_STATEMENTS`.  No program
    of a log that has such an array was fast (the best of 1,600 took 13 times what its task needs).
    """
    found: set[Var] = set()

    def size(s: Stmt) -> int:
        """Stores to large local arrays after unrolling."""
        array = s.buffer if isinstance(s, Store) and s.buffer.storage == "local" else None
        is_large = array is not None and array.size * BYTES[array.dtype] > MAX_ARRAY_BYTES
        inner = sum([size(b) for b in bodies(s)]) + is_large
        if not isinstance(s, For) or s.kind is not ForKind.UNROLLED:
            return inner
        if inner * s.extent > MAX_MEMORY_STATEMENTS:
            found.add(s.var)
            return inner
        return inner * s.extent

    size(body)
    return found


def copied_loops(body: Stmt, moving: set[Var]) -> set[Var]:
    """The variables, of those `moving` an index of registers, of unrolled innermost loops in a loop left rolled."""
    found: set[Var] = set()
    stack: list[tuple[Stmt, bool]] = [(body, True)]
    while stack:
        s, rolled = stack.pop()
        if isinstance(s, For):
            plain = not any(isinstance(x, For | Alloc | Barrier | ThreadReduce) for x in stmts_of(s.body))
            if plain and rolled and s.kind is ForKind.UNROLLED and s.extent <= MAX_COPIES and s.var in moving:
                found.add(s.var)
            rolled = s.kind is not ForKind.UNROLLED
        stack.extend((b, rolled) for b in bodies(s))
    return found


def local_bytes(body: Stmt) -> int:
    """Bytes of the local arrays of a thread."""
    arrays = dict.fromkeys(s.buffer for s in stmts_of(body) if isinstance(s, Alloc) and s.buffer.storage == "local")
    return sum(b.size * BYTES[b.dtype] for b in arrays)
