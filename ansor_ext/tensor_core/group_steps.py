"""Loops over steps, each around fragments and their products, as one product of a group of warps (`warpgroup.py`).

Where a tile lies in shared memory is read off its loads by `ldmatrix`: they must give the addresses of swizzled rows of
128 bytes, along the terms, or, of two bytes, across them.  A tile of longer rows is cut into boxes of such lines, all
at the same distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codegen_cuda.program.errors import EmitError
from codegen_cuda.program.indices import around_xor
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, BufferLoad, Call, Const, Expr, Var, as_expr, binary, index_xor, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute, transform
from te_lite.loops.perfect_nest import SEQUENTIAL, perfect_nest
from te_lite.loops.stmt import Buffer, For, Stmt, allocated, exprs_of, seq, stmts_of, stored_in

from ..pipeline.iterations_ahead import digits, points
from .copy_boxes import terms_of
from .float_parts import PARTS
from .fragment_double_buffer import FragmentMultiplies
from .instructions import WarpLoad, WarpMultiply
from .mma import F32, GROUP_ROW_BYTES, WARPS, MatrixLoad, Mma
from .swizzle import Swizzle
from .tf32_splitting import by_tiles_of_parts, in_parts

TILE_BYTES = 8 * GROUP_ROW_BYTES
"""After which a swizzled layout repeats: tiles begin at a multiple of it."""
MOST_COLUMNS = 256


@dataclass
class _Boxes:
    """Where the boxes of a tile begin, as far as that is known: all at the same distance, of `next` elements."""

    found: dict[int, BufferLoad] = field(default_factory=dict)
    next: int = 0

    def fits(self, number: int, begin: BufferLoad, ranges: Simplifier) -> bool:
        """Whether a box with this number may begin there."""
        first = self.found.setdefault(0, begin)
        known = self.found.get(number)
        if first.buffer is not begin.buffer or (number and 0 not in self.found):
            return False
        if known is not None:
            return same(known.index, begin.index)
        further = ranges.simplify(binary("-", begin.index, first.index))
        if not isinstance(further, Const) or int(further.value) % number:
            return False
        self.found[number], step = begin, int(further.value) // number
        self.next = self.next or step
        return self.next == step

    @property
    def first(self) -> BufferLoad | None:
        return self.found.get(0)


@dataclass(frozen=True)
class Steps:
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

    @property
    def line(self) -> int:
        """Elements of a row of 128 bytes."""
        return GROUP_ROW_BYTES // self.op.element.nbytes

    def stmt(self) -> Stmt:
        """One product with the tile of B: of the tile of A, or of what is loaded or computed of A in all steps."""
        a, b = self.product.a.buffer, self.product.b.buffer
        count = points(self.steps)
        alone = all(stored_in(s) in ({a}, {b}) for s in self.loads)
        is_sequential = all(x.kind in SEQUENTIAL for x in (*self.steps, *self.loops))
        self._require(
            alone and is_sequential, "a step must load the fragments of both factors, multiply, and nothing else"
        )
        across = any(isinstance(x, WarpLoad) and x.form.transposed for s in self._loads(b) for x in stmts_of(s))
        turns = PARTS if self.op.element.apart else 1
        fits = {a, b} == set(self.held) and (across or 2 * count * self.op.k > turns * self.line)
        self._require(
            fits,
            f"a turn must fill rows of {GROUP_ROW_BYTES} bytes, more than half of them, with fragments of their own",
        )
        rows, columns = self._tiles()
        count //= turns
        last = range(count * (turns - 1), count * turns)
        wide = replace(self.op, m=self.op.m * rows, n=self.op.n * columns, k=self.op.k * count)
        zero, (tile, next_b) = as_expr(0), self._tile(b, last, columns, across)
        whole = WarpMultiply(wide, BufferLoad(self.product.d.buffer, zero), tile, tile, False, across, next_b=next_b)
        for turned in (False, True):
            of_a = self._tile_of_rows(a, count, turned) if rows == 1 and turns == 1 else None
            if of_a is not None:
                return replace(whole, a=of_a[0], turned=turned, next_a=of_a[1])
        every = Buffer(f"{a.name}_steps", a.dtype, (count, *a.shape), a.scope)
        sums, sets = self.product.d.buffer, {a: every}
        work = FragmentMultiplies(self._loads(a), self.product, sets, sums, self.ranges, count=count)
        read = [work.read(self._env(step), as_expr(step)) for step in range(count)]
        whole = replace(whole, a=BufferLoad(every, zero))
        if turns > 1:
            of_terms = not any(self.steps[0].var in free_vars(e) for s in self._loads(a) for e in exprs_of(s))
            self._require(of_terms, "of floats by parts of others, the first loop must be that over parts")
            small, _ = self._tile(b, range(count), columns, across)
            return allocated([every], by_tiles_of_parts(seq(*read), replace(whole, rest=small)))
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

    def _tile(self, b: Buffer, steps: range, columns: int, across: bool) -> tuple[BufferLoad, int]:
        """Where the tile of B begins that some steps read, and how far it is from a box to the next.  Raises EmitError
        unless its rows, as the loads of B read them, follow each other in the layout that the tensor cores know."""
        covered, boxes = set[int](), _Boxes()
        for s in self._loads(b):
            loops, load = perfect_nest(s)
            forms = [MatrixLoad(n * self.op.registers("b"), across) for n in (1, 2)]
            fits = isinstance(load, WarpLoad) and load.form in forms
            self._require(fits, "fragments of B must be loaded by ldmatrix, one tile or two at a time, all alike")
            assert isinstance(load, WarpLoad)
            for env in iterations(loops, self.ranges):
                pair = self._number(substitute(load.to.index, env)) // self.op.b.values
                covered |= set(range(pair, pair + load.form.count // self.op.registers("b")))
                for step, of_all in enumerate(steps):
                    at = self._simple(substitute(load.row.index, {**env, **self._env(of_all)}))
                    first = self._first(at, load.form, step, pair, load.row.buffer)
                    number = pair * self.op.n // self.line if across else step * self.op.k // self.line
                    alike = boxes.fits(number, BufferLoad(load.row.buffer, first), self.ranges)
                    ok = alike and self._is_layout(at, load.form, step, pair, boxes, number * boxes.next)
                    self._require(ok, self._law(at))
        self._require(boxes.first is not None and covered == set(range(columns)), "all tiles of B must be loaded")
        assert boxes.first is not None
        return boxes.first, boxes.next

    def _tile_of_rows(self, a: Buffer, steps: int, turned: bool) -> tuple[BufferLoad, int] | None:
        """Where the tile of A of a group begins, if `ldmatrix` reads it in a layout that the tensor cores know, and how
        far it is from a box to the next: rows of memory are rows of A or, `turned`, terms.  None where it does not, and
        for floats that are multiplied on their way by what makes up for the bits that are cut off
        (`mma_meaning.py`)."""
        element = self.op.element
        if (element.dtype == F32.dtype and not element.nearest) or (turned and element.nbytes != 2):
            return None
        group, part = Var("group"), Var("warp")
        self.ranges.bind(group, 0, self.groups - 1)
        self.ranges.bind(part, 0, WARPS - 1)
        warp = part if self.groups == 1 else binary("+", binary("*", group, WARPS), part)
        form, boxes = MatrixLoad(self.op.registers("a"), turned), _Boxes()
        for s in self._loads(a):
            loops, load = perfect_nest(s)
            if not isinstance(load, WarpLoad) or load.form != form or load.row.buffer.storage != "shared":
                return None
            for env in iterations(loops, self.ranges):
                for step in range(steps):
                    at = substitute(load.row.index, {**env, **self._env(step)})
                    at = self._whole_lines(substitute(at, {self.warp: warp}))
                    within = self._row_of(form, part, step)
                    place = self._whole_lines(self._swizzled(within))
                    zero = {self.lane: as_expr(0), part: as_expr(0)}
                    first = self._simple(binary("-", substitute(at, zero), substitute(place, zero)))
                    number = 0 if turned else step * self.op.k // self.line
                    alike = boxes.fits(number, BufferLoad(load.row.buffer, first), self.ranges)
                    whole = self._simple(binary("%", first, TILE_BYTES // self.op.element.nbytes))
                    fits = isinstance(whole, Const) and whole.value == 0 and not self.threads & free_vars(first)
                    if not (alike and fits) or boxes.first is None:
                        return None
                    within = self._simple(binary("+", within, number * boxes.next))
                    place = self._whole_lines(self._swizzled(within))
                    if not same(self._simple(binary("+", boxes.first.index, place)), at):
                        return None
        if boxes.first is None:
            return None
        own = {group: binary("//", self.warp, WARPS)}
        return BufferLoad(boxes.first.buffer, self._simple(substitute(boxes.first.index, own))), boxes.next

    def _row_of(self, form: MatrixLoad, part: Var, step: int) -> Expr:
        """Where in its box of A, not swizzled, the row begins that a lane of warp `part` gives the address of."""
        row, term = form.place(self.op.a, self.op.element.nbytes, self.lane)
        row, term = binary("+", row, binary("*", part, self.op.m)), binary("+", term, step * self.op.k)
        outer, inner = (term, row) if form.transposed else (row, binary("%", term, self.line))
        return self._simple(binary("+", binary("*", outer, self.line), inner))

    def _whole_lines(self, e: Expr) -> Expr:
        """An index in which what a swizzle does not change stands outside of it."""

        def apart(x: Expr) -> Expr | None:
            match x:
                case Call(func="index_xor", args=(a, Binary(op="%", b=Const(value=value)) as b)):
                    lines = sum([n for e, n in terms_of(a) if isinstance(e, Const)]) // int(value) * int(value)
                    within = replace(x, args=(self._simple(binary("-", a, lines)), b))
                    return binary("+", around_xor(within), lines)
            return None

        return self._simple(transform(self._simple(e), apart))

    def _swizzled(self, index: Expr) -> Expr:
        swizzle = Swizzle.of_rows(self.op.name, self.line, self.op.element.nbytes)
        return self._simple(as_expr(swizzle.place(index, index_xor)))

    def _law(self, at: Expr) -> str:
        return (
            f"B must lie in swizzled rows of {GROUP_ROW_BYTES} bytes from a multiple of {TILE_BYTES} on, is at {at!r}"
        )

    def _first(self, at: Expr, form: MatrixLoad, step: int, pair: int, buffer: Buffer) -> Expr:
        """Where the box begins, if the first lane reads `at` in a step of a pair."""
        lane = as_expr(0)
        place = self._swizzled(self._unswizzled(lane, form, step, pair))
        first = self._whole_lines(binary("-", substitute(at, {self.lane: lane}), place))
        part = self._simple(binary("%", first, TILE_BYTES // BYTES[buffer.dtype]))
        whole = isinstance(part, Const) and part.value == 0 and not self.threads & free_vars(first)
        self._require(whole and buffer.storage == "shared", self._law(at))
        return first

    def _is_layout(self, at: Expr, form: MatrixLoad, step: int, pair: int, boxes: _Boxes, further: int) -> bool:
        """Whether each lane reads `at` what it must give the address of, swizzled, in the box that is `further`."""
        assert boxes.first is not None
        within = self._unswizzled(self.lane, form, step, pair)
        place = self._swizzled(self._simple(binary("+", within, further)))
        return same(self._whole_lines(binary("+", boxes.first.index, place)), self._whole_lines(at))

    def _unswizzled(self, lane: Expr, form: MatrixLoad, step: int, pair: int) -> Expr:
        """Where in its box the row begins that a lane gives the address of, for tiles `pair` and `pair` + 1."""
        rows = 8 * self.op.registers("b")
        load = replace(form, count=self.op.registers("b"))
        term, column = load.place(self.op.b, self.op.element.nbytes, binary("%", lane, rows))
        beside = binary("%", binary("//", lane, rows), form.count // load.count)
        column = binary("+", column, binary("*", binary("+", beside, pair), self.op.n))
        term = binary("+", term, step * self.op.k)
        outer, inner = (term, column) if form.transposed else (column, term)
        return self._simple(binary("+", binary("*", outer, self.line), binary("%", inner, self.line)))


def iterations(loops: Sequence[For], simplifier: Simplifier) -> Iterator[dict[Var, Expr]]:
    """The values of the variables in all iterations of nested loops."""
    for number in range(points(loops)):
        yield digits(loops, as_expr(number), simplifier)
