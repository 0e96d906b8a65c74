"""Groups of four warps that multiply together (`wgmma`): the tensor cores read factors from shared memory.

    for q in 0..4:                                    d += tile of A * tile of B    four steps, all of the group
      load a, b of step q                  becomes
      for i, j: d[i, j] += a[i] * b[j]                or: for q in 0..4: load a of step q;  d += a * tile of B

What a program says of `b`, its fragments by `ldmatrix`, is where B lies: in rows of 128 bytes along the terms, one for
each column, swizzled (`swizzle.py`), the first at a multiple of 1024 bytes.  That is a layout that
descriptors know; a program of any other is refused, and so is one whose warps do not all read the same B.  A is read
from there, too, where each warp of a group has the 16 rows behind those of the last one, and these lie in such a layout
or, of halves, in rows of 128 bytes along the rows, one for each term.  Elsewhere its fragments are loaded.  Floats in
parts are cut first, and their sums of an iteration added to others (`tf32_splitting.py`).

With four tiles and more of both factors a product goes on over the barrier of the next iteration (`_going_on`).  That
iteration begins its own product, waits for the last one, and fetches into the tile of the product before that.  All
warps waited for this one before the barrier; so a tile less is ahead.  Elsewhere a kernel waits for its products before
the barrier. Where that fetches a tile that is not the next one, it does so while the products of LEAST_WAITED columns
and more go on (`_fetched_behind`): the instructions that fetch take as long as such products.  On an H200,
microseconds, with A from registers and the fetch first; with the fetch behind; with A from shared memory, too; cuBLAS:

    1024^3, halves, 64 x 128 a block, 4 tiles                    7.84     6.61    5.40    5.35
    197 x 3072 x 768, TF32, 64 x 128, 4 tiles                   11.06     8.98            9.1
    128 x 3072 x 768, halves, 64 x 32, 3 tiles (4.14 with A from shared memory, but the fetch first)
                                                                 4.93     4.62    4.41    3.84
    4096^3, TF32, 128 x 256, 3 tiles                             535      434             396
    4096^3, halves, 128 x 256, 4 tiles                           259      226             206
    4096^3, halves, 128 x 256, 2 tiles, which cannot wait        256      282
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from codegen_cuda.program.cuda_program import KernelNest
from codegen_cuda.program.errors import EmitError
from codegen_cuda.program.indices import around_xor
from te_lite.bounds.loop_scope import LANES
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Call, Const, Expr, Var, as_expr, binary, compare, index_xor, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute, transform
from te_lite.loops.perfect_nest import SEQUENTIAL, perfect_nest
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Seq,
    Stmt,
    allocated,
    bodies,
    flattened,
    map_exprs,
    seq,
    stmts_of,
    stored_in,
    with_bodies,
)

from ..pipeline.emission import by_engine
from ..pipeline.iterations_ahead import digits, points
from .fragment_double_buffer import FragmentMultiplies
from .instructions import BoxStore, WarpLoad, WarpMultiply
from .mma import F32, GROUP_ROW_BYTES, WARPS, MatrixLoad, Mma
from .ring import in_ring
from .rows_ahead import LEAST_LEFT, is_fetch, with_rows_ahead
from .swizzle import Swizzle
from .tf32_splitting import in_parts, require_alone

TILE_BYTES = 8 * GROUP_ROW_BYTES
"""After which a swizzled layout repeats: tiles begin at a multiple of it."""
PAIR = MatrixLoad(4)
"""What loads the fragments of two tiles of B."""
MOST_COLUMNS = 256
LEAST_WAITED = 128
"""Columns of products that last as long as the instructions that fetch a tile."""


def multiplies_in_groups(body: Stmt) -> bool:
    """Whether a kernel has instructions of groups of warps."""
    return any(isinstance(s, WarpMultiply) and s.op.warps > 1 for s in stmts_of(body))


def tiles_of(body: Stmt) -> set[Buffer]:
    """The shared buffers that tensor cores, or the copy engine, read themselves."""
    found = [s for s in stmts_of(body) if isinstance(s, BoxStore) or (isinstance(s, WarpMultiply) and s.op.warps > 1)]
    read = [e for s in found for e in s.places if isinstance(e, BufferLoad)]
    return {e.buffer for e in read if e.buffer.storage == "shared"}


def in_groups(nest: KernelNest) -> KernelNest:
    """A kernel of groups of warps in the form that it is written in.  Raises EmitError where it has none."""
    lanes, warps, others = nest.block
    law = f"a block must have {LANES} threads in x, and warps in y in groups of {WARPS}"
    require((lanes, warps % WARPS, others) == (LANES, 0, 1), EmitError, "wgmma", law, block=nest.block)
    threads = {loop.var for tag, loop in nest.loops.items() if tag.startswith("threadIdx")}
    ranges = nest.ranges()
    rewritten = _rewritten(nest.body, nest, threads, ranges)
    if by_engine(rewritten):
        return in_ring(replace(nest, body=rewritten))
    rounded = [s for s in stmts_of(rewritten) if isinstance(s, WarpMultiply) and s.op.element.nearest]
    require(not rounded, EmitError, "wgmma", "only the copy engine rounds floats to the nearest on their way")
    made = replace(nest, body=_fetched_behind(_going_on(with_rows_ahead(rewritten, ranges), ranges)))
    left = [s for s in stmts_of(made.body) if isinstance(s, WarpMultiply) and s.b.buffer.storage != "shared"]
    law = "a loop over steps must load the fragments of both factors and multiply all of them"
    require(not [s for s in left if s.op.warps > 1], EmitError, "wgmma", law)
    require_alone(made.body)
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
            lane, warp = [nest.loops[tag].var for tag in ("threadIdx.x", "threadIdx.y")]
            groups = nest.block[1] // WARPS
            found = _Steps(
                steps, tuple(loads), loops, product, tuple(held), lane, warp, groups, frozenset(threads), ranges
            )
            return found.stmt()
    return with_bodies(s, tuple([_rewritten(b, nest, threads, ranges) for b in bodies(s)]))


def _going_on(s: Stmt, ranges: Simplifier) -> Stmt:
    """A body whose iterations, with four tiles or more and both factors in them, begin a product while the last one
    goes on.

    What an iteration would fetch is fetched by the next one.  With S tiles, iteration t fetches tile t + S - 2 into
    the place of tile t - 2: all warps waited for its product in iteration t - 1, before the barrier of iteration t.
    Iteration 0 closes an empty group of copies, so at the barrier of iteration t all groups but the last S - 3 must be
    complete.
    """
    match s:
        case For(body=Seq(stmts=(Barrier(publishes=True) as barrier, If() as fetch, WarpMultiply() as product))) if (
            barrier.left >= LEAST_LEFT and is_fetch(fetch) and product.a.buffer.storage == "shared"
        ):
            last = binary("-", s.var, 1)
            late = map_exprs(fetch, lambda e: ranges.simplify(substitute(e, {s.var: last})))
            work = replace(product, goes_on=True), If(compare(">", s.var, 0), late)
            ordered = work if product.op.n >= LEAST_WAITED else work[::-1]
            return replace(s, body=seq(replace(barrier, left=barrier.left - 1), *ordered))
    return with_bodies(s, tuple([_going_on(b, ranges) for b in bodies(s)]))


def _fetched_behind(s: Stmt) -> Stmt:
    """A body whose iterations with three tiles or more fetch the next one behind a product of many columns."""
    match s:
        case Seq(stmts=(Barrier(publishes=True) as barrier, If() as fetch, *work)) if barrier.left and is_fetch(fetch):
            held: list[Buffer] = []
            parts = [x for part in work for x in flattened(part, held)]
            before = _before_fetch(parts)
            if before:
                return allocated(held, seq(barrier, *parts[:before], fetch, *parts[before:]))
    return with_bodies(s, tuple([_fetched_behind(b) for b in bodies(s)]))


def _before_fetch(parts: list[Stmt]) -> int:
    """How many statements of an iteration stand before a fetch that goes behind its product; 0 where it comes first."""
    match parts:
        case [*loads, WarpMultiply(op=op)] if op.n >= LEAST_WAITED:
            return len(loads) + 1
        case [*loads, WarpMultiply(op=op), _] if op.element.parts > 1:
            return len(loads) + 1
    return 0


@dataclass(frozen=True)
class _Steps:
    """Loops over `steps` of `loads` into `held` fragments and `product` in `loops`; `lane` is the thread of a warp,
    `warp` that of a block, which has so many `groups`."""

    steps: tuple[For, ...]
    loads: tuple[Stmt, ...]
    loops: tuple[For, ...]
    product: WarpMultiply
    held: tuple[Buffer, ...]
    lane: Var
    warp: Var
    groups: int
    threads: frozenset[Var]
    ranges: Simplifier

    @property
    def op(self) -> Mma:
        return self.product.op

    def stmt(self) -> Stmt:
        """One product with the tile of B: of the tile of A, or of what is loaded of A in all steps."""
        a, b = self.product.a.buffer, self.product.b.buffer
        count = points(self.steps)
        alone = all(stored_in(s) in ({a}, {b}) for s in self.loads)
        is_sequential = all(x.kind in SEQUENTIAL for x in (*self.steps, *self.loops))
        self._require(
            alone and is_sequential, "a step must load the fragments of both factors, multiply, and nothing else"
        )
        fits = {a, b} == set(self.held) and count * self.op.k * self.op.element.nbytes == GROUP_ROW_BYTES
        self._require(
            fits, f"the steps of a turn must cover {GROUP_ROW_BYTES} bytes of terms, with fragments of their own"
        )
        rows, columns = self._tiles()
        wide = replace(self.op, m=self.op.m * rows, n=self.op.n * columns, k=self.op.k * count)
        zero, (tile, across) = as_expr(0), self._tile(b, count, columns)
        for turned in (False, True):
            of_a = self._tile_of_rows(a, count, turned) if rows == 1 else None
            if of_a is not None:
                return WarpMultiply(wide, BufferLoad(self.product.d.buffer, zero), of_a, tile, turned, across)
        self._require(not across, "B must lie in rows along the terms where A is not read from shared memory")
        every = Buffer(f"{a.name}_steps", a.dtype, (count, *a.shape), a.scope)
        sums, sets = self.product.d.buffer, {a: every}
        work = FragmentMultiplies(self._loads(a), self.product, sets, sums, self.ranges, count=count)
        read = [work.read(self._env(step), as_expr(step)) for step in range(count)]
        whole = WarpMultiply(wide, BufferLoad(self.product.d.buffer, zero), BufferLoad(every, zero), tile)
        return allocated([every], in_parts(seq(*read), whole) if self.op.element.parts > 1 else seq(*read, whole))

    def _loads(self, of: Buffer) -> tuple[Stmt, ...]:
        return tuple([s for s in self.loads if stored_in(s) == {of}])

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

    def _tile(self, b: Buffer, steps: int, columns: int) -> tuple[BufferLoad, bool]:
        """Where the tile of B begins, and whether its rows lie across the terms.  Raises EmitError unless these, as the
        loads of B read them, follow each other in the layout that the tensor cores know."""
        loads = self._loads(b)
        covered: set[int] = set()
        start: BufferLoad | None = None
        across = any(isinstance(x, WarpLoad) and x.form.transposed for s in loads for x in stmts_of(s))
        for s in loads:
            loops, load = perfect_nest(s)
            fits = isinstance(load, WarpLoad) and load.form == replace(PAIR, transposed=across)
            self._require(fits, "fragments of B must be loaded by ldmatrix, two tiles at a time, all alike")
            assert isinstance(load, WarpLoad)
            for env in iterations(loops, self.ranges):
                pair = self._number(substitute(load.to.index, env)) // self.op.b.values
                covered |= {pair, pair + 1}
                for step in range(steps):
                    at = self._simple(substitute(load.row.index, {**env, **self._env(step)}))
                    first = self._first(at, load.form, step, pair, load.row.buffer)
                    start = BufferLoad(load.row.buffer, first) if start is None else start
                    alike = load.row.buffer is start.buffer and same(start.index, first)
                    self._require(alike and self._is_layout(at, load.form, step, pair, first), self._law(at))
        self._require(start is not None and covered == set(range(columns)), "all tiles of B must be loaded")
        assert start is not None
        return start, across

    def _tile_of_rows(self, a: Buffer, steps: int, turned: bool) -> BufferLoad | None:
        """Where the tile of A of a group begins, if `ldmatrix` reads it in a layout that the tensor cores know: rows of
        memory are rows of A or, `turned`, terms.  None where it does not, and for floats that are multiplied on their
        way by what makes up for the bits that are cut off (`mma_meaning.py`)."""
        element = self.op.element
        if (element.dtype == F32.dtype and not element.nearest) or (turned and element.nbytes != 2):
            return None
        group, part = Var("group"), Var("warp")
        self.ranges.bind(group, 0, self.groups - 1)
        self.ranges.bind(part, 0, WARPS - 1)
        warp = part if self.groups == 1 else binary("+", binary("*", group, WARPS), part)
        form, start = MatrixLoad(self.op.registers("a"), turned), None
        for s in self._loads(a):
            loops, load = perfect_nest(s)
            if not isinstance(load, WarpLoad) or load.form != form or load.row.buffer.storage != "shared":
                return None
            for env in iterations(loops, self.ranges):
                for step in range(steps):
                    at = substitute(load.row.index, {**env, **self._env(step)})
                    at = self._whole_lines(substitute(at, {self.warp: warp}))
                    place = self._whole_lines(self._swizzled(self._row_of(form, part, step)))
                    zero = {self.lane: as_expr(0), part: as_expr(0)}
                    first = self._simple(binary("-", substitute(at, zero), substitute(place, zero)))
                    start = BufferLoad(load.row.buffer, first) if start is None else start
                    alike = load.row.buffer is start.buffer and same(start.index, first)
                    whole = self._simple(binary("%", first, TILE_BYTES // self.op.element.nbytes))
                    fits = isinstance(whole, Const) and whole.value == 0 and not self.threads & free_vars(first)
                    if not (alike and fits and same(self._simple(binary("+", first, place)), at)):
                        return None
        if start is None:
            return None
        own = {group: binary("//", self.warp, WARPS)}
        return BufferLoad(start.buffer, self._simple(substitute(start.index, own)))

    def _row_of(self, form: MatrixLoad, part: Var, step: int) -> Expr:
        """Where in the tile of A, not swizzled, the row begins that a lane of warp `part` gives the address of."""
        element = self.op.element.nbytes
        row, term = form.place(self.op.a, element, self.lane)
        row, term = binary("+", row, binary("*", part, self.op.m)), binary("+", term, step * self.op.k)
        outer, inner = (term, row) if form.transposed else (row, term)
        return self._simple(binary("+", binary("*", outer, GROUP_ROW_BYTES // element), inner))

    def _whole_lines(self, e: Expr) -> Expr:
        """An index in which what a swizzle does not change stands outside of it."""

        def apart(x: Expr) -> Expr | None:
            return around_xor(x) if isinstance(x, Call) and x.func == "index_xor" else None

        return self._simple(transform(self._simple(e), apart))

    def _swizzled(self, index: Expr) -> Expr:
        element = self.op.element.nbytes
        swizzle = Swizzle.of_rows(self.op.name, GROUP_ROW_BYTES // element, element)
        return self._simple(as_expr(swizzle.place(index, index_xor)))

    def _law(self, at: Expr) -> str:
        return (
            f"B must lie in swizzled rows of {GROUP_ROW_BYTES} bytes from a multiple of {TILE_BYTES} on, is at {at!r}"
        )

    def _first(self, at: Expr, form: MatrixLoad, step: int, pair: int, buffer: Buffer) -> Expr:
        """Where the tile begins, if the first lane reads `at` in a step of a pair."""
        lane = as_expr(0)
        place = self._swizzled(self._unswizzled(lane, form, step, pair))
        first = self._whole_lines(binary("-", substitute(at, {self.lane: lane}), place))
        part = self._simple(binary("%", first, TILE_BYTES // BYTES[buffer.dtype]))
        whole = isinstance(part, Const) and part.value == 0 and not self.threads & free_vars(first)
        self._require(whole and buffer.storage == "shared", self._law(at))
        return first

    def _is_layout(self, at: Expr, form: MatrixLoad, step: int, pair: int, first: Expr) -> bool:
        """Whether each lane reads `at`, from `first` on, what it must give the address of, swizzled."""
        place = self._swizzled(self._unswizzled(self.lane, form, step, pair))
        return same(self._whole_lines(binary("+", first, place)), self._whole_lines(at))

    def _unswizzled(self, lane: Expr, form: MatrixLoad, step: int, pair: int) -> Expr:
        """Where in the tile the row begins that a lane gives the address of, for tiles `pair` and `pair` + 1."""
        element, rows = self.op.element.nbytes, 8 * self.op.registers("b")
        load = replace(form, count=self.op.registers("b"))
        term, column = load.place(self.op.b, element, binary("%", lane, rows))
        column = binary("+", column, binary("*", binary("+", binary("//", lane, rows), pair), self.op.n))
        term, line = binary("+", term, step * self.op.k), GROUP_ROW_BYTES // element
        if form.transposed:  # boxes of one line of columns: a term has the line of its number in each
            box = binary("*", binary("//", column, line), line * line)
            return self._simple(binary("+", binary("+", box, binary("*", term, line)), binary("%", column, line)))
        return self._simple(binary("+", binary("*", column, line), term))


def iterations(loops: Sequence[For], simplifier: Simplifier) -> Iterator[dict[Var, Expr]]:
    """The values of the variables in all iterations of nested loops."""
    for number in range(points(loops)):
        yield digits(loops, as_expr(number), simplifier)
