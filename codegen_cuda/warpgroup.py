"""Groups of four warps that multiply together (`wgmma`): the tensor cores read one factor from shared memory.

    for q in 0..4:                                    for q in 0..4: load a of step q
      load a, b of step q                  becomes    d += a * tile     four steps, all rows and columns of the warp
      for i, j: d[i, j] += a[i] * b[j]

What a program says of `b`, its fragments by `ldmatrix`, is where B lies: in rows of 128 bytes along the terms, one for
each column, swizzled (`te_lite/swizzle.py`), the first at a multiple of 1024 bytes.  That is a layout that descriptors
know; a program of any other is refused, and so is one whose warps do not all read the same B.

The kernel waits for its products at the end of a turn, while other warps of the multiprocessor go on.  By hand so, 128
x 128 a block in three tiles, 4096^3 took 272 microseconds on halves and 516 on TF32 on an H200; cuBLAS 198 and 371.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from te_lite.c_text import BYTES
from te_lite.errors import require
from te_lite.expr import BufferLoad, Const, Expr, Var, as_expr, binary, index_xor, same
from te_lite.fragment import LANES
from te_lite.mma import GROUP_ROW_BYTES, WARPS, MatrixLoad, Mma
from te_lite.perfect_nest import IN_TURN, perfect_nest
from te_lite.simplify import Simplifier
from te_lite.stmt import (
    Buffer,
    For,
    If,
    LoweredFunc,
    Stmt,
    WarpLoad,
    WarpMultiply,
    allocated,
    bodies,
    flattened,
    seq,
    stmts_of,
    stored_in,
    with_bodies,
)
from te_lite.swizzle import Swizzle
from te_lite.visit import free_vars, substitute

from .cuda_program import KernelNest, kernel_nests
from .errors import EmitError
from .fragments_ahead import FragmentMultiplies
from .turns_ahead import digits, points

TILE_BYTES = 8 * GROUP_ROW_BYTES
"""After which a swizzled layout repeats: tiles begin at a multiple of it."""
PAIR = MatrixLoad(4)
"""What loads the fragments of two tiles of B."""
MOST_COLUMNS = 256


def emitted_nests(func: LoweredFunc) -> tuple[list[KernelNest], list[Buffer]]:
    """The kernels of a program in the form that they are written in, and its scratch buffers (`kernel_nests`).

    Raises EmitError for groups of warps that do not read one factor from shared memory as tensor cores can.
    """
    nests, scratch = kernel_nests(func)
    return [_in_groups(nest) if multiplies_in_groups(nest.body) else nest for nest in nests], scratch


def multiplies_in_groups(body: Stmt) -> bool:
    """Whether a kernel has instructions of groups of warps."""
    return any(isinstance(s, WarpMultiply) and s.op.warps > 1 for s in stmts_of(body))


def tiles_of(body: Stmt) -> set[Buffer]:
    """The shared buffers that tensor cores read themselves."""
    found = {s.b.buffer for s in stmts_of(body) if isinstance(s, WarpMultiply) and s.op.warps > 1}
    return {b for b in found if b.storage == "shared"}


def _in_groups(nest: KernelNest) -> KernelNest:
    lanes, warps, others = nest.block
    law = f"a block must have {LANES} threads in x, and warps in y in groups of {WARPS}"
    require((lanes, warps % WARPS, others) == (LANES, 0, 1), EmitError, "wgmma", law, block=nest.block)
    threads = {loop.var for tag, loop in nest.loops.items() if tag.startswith("threadIdx")}
    made = replace(nest, body=_rewritten(nest.body, nest, threads, nest.ranges()))
    left = [s for s in stmts_of(made.body) if isinstance(s, WarpMultiply) and s.b.buffer.storage != "shared"]
    law = "a loop over steps must load the fragments of both factors and multiply all of them"
    require(not [s for s in left if s.op.warps > 1], EmitError, "wgmma", law)
    return made


def _rewritten(s: Stmt, nest: KernelNest, threads: set[Var], ranges: Simplifier) -> Stmt:
    """A body whose loops over steps, each around fragments and their products, are products of tiles."""
    if isinstance(s, If) and multiplies_in_groups(s):
        law = "all warps of a group must come to the instruction, which stands under a condition on threads"
        require(not threads & free_vars(s.cond), EmitError, "wgmma", law, condition=s.cond)
    if isinstance(s, For) and multiplies_in_groups(s):
        steps, body = perfect_nest(s)
        held: list[Buffer] = []
        *loads, multiply = flattened(body, held)
        loops, product = perfect_nest(multiply)
        if isinstance(product, WarpMultiply) and loads:
            lane = nest.loops["threadIdx.x"].var
            return _Steps(steps, tuple(loads), loops, product, tuple(held), lane, frozenset(threads), ranges).stmt()
    return with_bodies(s, tuple([_rewritten(b, nest, threads, ranges) for b in bodies(s)]))


@dataclass(frozen=True)
class _Steps:
    """Loops over `steps` of `loads` into `held` fragments and `product` in `loops`; `lane` is the thread of a warp."""

    steps: tuple[For, ...]
    loads: tuple[Stmt, ...]
    loops: tuple[For, ...]
    product: WarpMultiply
    held: tuple[Buffer, ...]
    lane: Var
    threads: frozenset[Var]
    ranges: Simplifier

    @property
    def op(self) -> Mma:
        return self.product.op

    def stmt(self) -> Stmt:
        """The loads of A in all steps, and one product of what they brought with the tile of B."""
        a, b = self.product.a.buffer, self.product.b.buffer
        count = points(self.steps)
        alone = all(stored_in(s) in ({a}, {b}) for s in self.loads)
        in_turn = all(x.kind in IN_TURN for x in (*self.steps, *self.loops))
        self._require(alone and in_turn, "a step must load the fragments of both factors, multiply, and nothing else")
        fits = {a, b} == set(self.held) and count * self.op.k * self.op.element.nbytes == GROUP_ROW_BYTES
        self._require(
            fits, f"the steps of a turn must cover {GROUP_ROW_BYTES} bytes of terms, with fragments of their own"
        )
        rows, columns = self._tiles()
        every = Buffer(f"{a.name}_steps", a.dtype, (count, *a.shape), a.scope)
        of_a = tuple([s for s in self.loads if stored_in(s) == {a}])
        work = FragmentMultiplies(of_a, self.product, {a: every}, self.product.d.buffer, self.ranges, count)
        read = [work.read(self._env(step), as_expr(step)) for step in range(count)]
        wide = replace(self.op, m=self.op.m * rows, n=self.op.n * columns, k=self.op.k * count)
        tile = self._tile(b, count, columns)
        zero = as_expr(0)
        whole = WarpMultiply(wide, BufferLoad(self.product.d.buffer, zero), BufferLoad(every, zero), tile)
        return allocated([every], seq(*read, whole))

    def _require(self, holds: bool, law: str) -> None:
        require(holds, EmitError, self.op.name, law)

    def _simple(self, e: Expr) -> Expr:
        return self.ranges.simplify(e)

    def _number(self, e: Expr) -> int:
        """The value of an index that must be a constant."""
        simple = self._simple(e)
        self._require(isinstance(simple, Const), f"fragments must be numbered by loops over them, got {simple!r}")
        assert isinstance(simple, Const)
        return int(simple.value)

    def _env(self, step: int) -> Mapping[Var, Expr]:
        return digits(self.steps, as_expr(step), self.ranges)

    def _tiles(self) -> tuple[int, int]:
        """The tiles of rows and of columns of a warp, which the loops of the product run over once each."""
        held = [(self.product.d, self.op.d), (self.product.a, self.op.a), (self.product.b, self.op.b)]
        found = set()
        for env in iterations(self.loops, self.ranges):
            found.add(tuple([self._number(substitute(e.index, env)) // f.values for e, f in held]))
        rows, columns = [1 + max(x[k] for x in found) for k in (1, 2)]
        all_tiles = {(i * columns + j, i, j) for i in range(rows) for j in range(columns)}
        sizes = self.product.d.buffer.size == rows * columns * self.op.d.values and columns * self.op.n <= MOST_COLUMNS
        self._require(found == all_tiles and sizes, "a turn must multiply all rows by all columns of a warp")
        return rows, columns

    def _tile(self, b: Buffer, steps: int, columns: int) -> BufferLoad:
        """Where the tile of B begins.  Raises EmitError unless its rows, as the loads of B read them, are columns that
        follow each other in the layout that the tensor cores know."""
        loads = [s for s in self.loads if stored_in(s) == {b}]
        covered: set[int] = set()
        start: BufferLoad | None = None
        for s in loads:
            loops, load = perfect_nest(s)
            fits = isinstance(load, WarpLoad) and load.form == PAIR
            self._require(fits, "fragments of B must be loaded by ldmatrix, two tiles at a time, not transposed")
            assert isinstance(load, WarpLoad)
            for env in iterations(loops, self.ranges):
                pair = self._number(substitute(load.to.index, env)) // self.op.b.values
                covered |= {pair, pair + 1}
                for step in range(steps):
                    at = self._simple(substitute(load.row.index, {**env, **self._env(step)}))
                    first = self._first(at, step, pair, load.row.buffer)
                    start = BufferLoad(load.row.buffer, first) if start is None else start
                    alike = load.row.buffer is start.buffer and same(start.index, first)
                    self._require(alike and self._is_layout(at, step, pair, first), self._law(at))
        self._require(start is not None and covered == set(range(columns)), "all tiles of B must be loaded")
        assert start is not None
        return start

    def _law(self, at: Expr) -> str:
        return (
            f"B must lie in swizzled rows of {GROUP_ROW_BYTES} bytes from a multiple of {TILE_BYTES} on, is at {at!r}"
        )

    def _first(self, at: Expr, step: int, pair: int, buffer: Buffer) -> Expr:
        """Where the tile begins, if the first lane, whose row is not swizzled, reads `at` in a step of a pair."""
        lane = as_expr(0)
        first = self._simple(binary("-", substitute(at, {self.lane: lane}), self._unswizzled(lane, step, pair)))
        part = self._simple(binary("%", first, TILE_BYTES // BYTES[buffer.dtype]))
        whole = isinstance(part, Const) and part.value == 0 and not self.threads & free_vars(first)
        self._require(whole and buffer.storage == "shared", self._law(at))
        return first

    def _is_layout(self, at: Expr, step: int, pair: int, first: Expr) -> bool:
        """Whether each lane reads `at`, from `first` on, what it must give the address of, swizzled."""
        element = self.op.element.nbytes
        swizzle = Swizzle.of_rows(self.op.name, GROUP_ROW_BYTES // element, element)
        place = swizzle.place(self._unswizzled(self.lane, step, pair), index_xor)
        return same(self._simple(binary("+", first, place)), at)

    def _unswizzled(self, lane: Expr, step: int, pair: int) -> Expr:
        """Where in the tile the row begins that a lane gives the address of, for tiles `pair` and `pair` + 1."""
        element, rows = self.op.element.nbytes, 8 * self.op.registers("b")
        load = MatrixLoad(self.op.registers("b"))
        term, column = load.place(self.op.b, element, binary("%", lane, rows))
        column = binary("+", column, binary("*", binary("+", binary("//", lane, rows), pair), self.op.n))
        term = binary("+", term, step * self.op.k)
        return self._simple(binary("+", binary("*", column, GROUP_ROW_BYTES // element), term))


def iterations(loops: Sequence[For], simplifier: Simplifier) -> Iterator[dict[Var, Expr]]:
    """The values of the variables in all iterations of nested loops."""
    for number in range(points(loops)):
        yield digits(loops, as_expr(number), simplifier)
