"""Instructions that threads execute together: products and loads of a warp, and what emitters write for tensor cores.

Each is one class: its operands, its text, and, unless only emitters write it, what it touches and computes.  Statements
without these are a program of the paper's kind; whoever meets an `Instruction` asks it (`stmt.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from te_lite.expr.dtype import BYTES
from te_lite.expr.element import BufferLoad
from te_lite.expr.expr import Expr, as_expr, binary
from te_lite.loops.stmt import Instruction, Operation, Stmt, Touch, bodies, seq, with_bodies
from te_lite.verify.verify_scope import Finding, Scope

from .copy_boxes import Box
from .mma import OPERANDS, ROW_BYTES, MatrixLoad, Mma
from .mma_meaning import execute, scattered
from .verify_warp import breaches


class WarpInstruction(Instruction):
    """One by all 32 threads of a warp along threadIdx.x."""

    __slots__ = ()

    def breaches(self, scope: Scope) -> Iterable[Finding]:
        return breaches(self, scope)


@dataclass(frozen=True, slots=True, eq=False)
class WarpMultiply(WarpInstruction):
    """One instruction of a tensor core, by all 32 threads of a warp along threadIdx.x: d := d + a * b.

    Each operand is the first of the elements that the thread holds of a tile, which are neighbours in a local buffer,
    in the order of the fragment; `d` is added to.  Emitters also write products of groups of warps that read tiles in
    shared memory, whose first elements `b`, and perhaps `a`, then are; `a` may be `turned`, and `b` lie `across`: with
    a row of memory for each term.  Of floats in parts `b` is the tile of big ones, `rest` that of small ones, and `d`
    is stored to.  One that `goes_on` is waited for in the next iteration of the loop around it, the last one behind it;
    for one `apart` a statement of its own waits (`GroupWait`).  The `first` one stores its sums instead of adding them.
    Tiles with rows of several lines are so many elements, `next_a` and `next_b`, from a box of lines to the next.
    """

    operands: ClassVar[tuple[str, ...]] = ("d", "a", "b", "rest")
    results: ClassVar[tuple[str, ...]] = ("d",)
    op: Mma
    d: BufferLoad
    a: BufferLoad
    b: BufferLoad
    turned: bool = False
    across: bool = False
    rest: BufferLoad | None = None
    goes_on: bool = False
    apart: bool = False
    first: bool = False
    next_a: int = 0
    next_b: int = 0

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"mma.{self.op.name}({', '.join(map(shown, self.places))})"

    @property
    def waited_for(self) -> bool:
        return self.op.warps > 1 and not self.apart

    def touches(self) -> list[Touch]:
        places = {"a": self.a, "b": self.b, "d": self.d}
        return [Touch(places[x], self.op.fragment(x).values, self.op.held(x).dtype) for x in OPERANDS]

    def operation(self) -> Operation:
        a, b, d = [elements(e, self.op.fragment(x).values) for e, x in ((self.a, "a"), (self.b, "b"), (self.d, "d"))]
        return Operation((a, b, d), d, lambda x, y, z: execute(self.op, x, y, z))


@dataclass(frozen=True, slots=True, eq=False)
class WarpLoad(WarpInstruction):
    """`ldmatrix`, by all 32 threads of a warp along threadIdx.x: registers of the warp := matrices in shared memory.

    `row` is the first element of the 16 bytes that the thread gives the address of, `to` the first of the neighbours in
    a local buffer that it gets.
    """

    operands: ClassVar[tuple[str, ...]] = ("to", "row")
    results: ClassVar[tuple[str, ...]] = ("to",)
    form: MatrixLoad
    to: BufferLoad
    row: BufferLoad

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"{self.form.name}({shown(self.to)}, {shown(self.row)})"

    @property
    def rows(self) -> int:
        return 8 * self.form.count

    def touches(self) -> list[Touch]:
        dtype = self.row.buffer.dtype
        own = self.form.fragment(BYTES[dtype]).values
        row = Touch(self.row, ROW_BYTES // BYTES[dtype], dtype, storage="shared")
        return [row, Touch(self.to, own, dtype, writes=True)]

    def operation(self) -> Operation:
        nbytes, given = BYTES[self.row.buffer.dtype], self.rows
        fragment = self.form.fragment(nbytes)
        rows, to = elements(self.row, ROW_BYTES // nbytes), elements(self.to, fragment.values)
        return Operation((rows,), to, lambda x: scattered(fragment, x[..., :given, :]))


def elements(first: BufferLoad, count: int) -> tuple[BufferLoad, ...]:
    """An element and those behind it."""
    return tuple([BufferLoad(first.buffer, binary("+", first.index, k)) for k in range(count)])


@dataclass(frozen=True, slots=True, eq=False)
class GroupWait(Instruction):
    """A group of warps waits for all `product`s that it has begun but the last `left` ones; only emitters write it."""

    operands: ClassVar[tuple[str, ...]] = ("d",)
    results: ClassVar[tuple[str, ...]] = ("d",)
    by_emitters: ClassVar[bool] = True
    product: WarpMultiply
    left: int = 0

    @property
    def d(self) -> BufferLoad:
        return self.product.d

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"wait({shown(self.d)}, {self.left})"

    def moved(self, f: Callable[[Expr], Expr]) -> GroupWait:
        product = self.product.moved(f)
        assert isinstance(product, WarpMultiply)
        return replace(self, product=product)


@dataclass(frozen=True, slots=True, eq=False)
class Power(Instruction):
    """`to` = exp(`value` * `factor` - `top`), by one multiply-add and a power of two; only emitters write it."""

    operands: ClassVar[tuple[str, ...]] = ("to", "value", "top")
    results: ClassVar[tuple[str, ...]] = ("to",)
    by_emitters: ClassVar[bool] = True
    to: BufferLoad
    value: Any
    top: Any
    factor: float = 1.0

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"{shown(self.to)} = exp({shown(self.value)}*{self.factor} - {shown(self.top)})"


@dataclass(frozen=True, slots=True, eq=False)
class NearOne(Instruction):
    """`to` = 1 + `function`(`value` * `factor`), or `half` of it, to more bits than 16 bits have; only emitters write
    it."""

    operands: ClassVar[tuple[str, ...]] = ("to", "value")
    results: ClassVar[tuple[str, ...]] = ("to",)
    by_emitters: ClassVar[bool] = True
    to: BufferLoad
    value: Any
    factor: float
    function: str
    half: bool

    def text(self, shown: Callable[[Expr], str]) -> str:
        part = "0.5 * " if self.half else ""
        return f"{shown(self.to)} = {part}(1 + {self.function}({shown(self.value)} * {self.factor}))"


@dataclass(frozen=True, slots=True, eq=False)
class Rounded(Instruction):
    """Two floats, rounded to 16 bits, in neighbours from `to` on; only emitters write it."""

    operands: ClassVar[tuple[str, ...]] = ("to", "one", "two")
    results: ClassVar[tuple[str, ...]] = ("to",)
    by_emitters: ClassVar[bool] = True
    to: BufferLoad
    one: Any
    two: Any

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"{shown(self.to)} = rounded({shown(self.one)}, {shown(self.two)})"


@dataclass(frozen=True, slots=True, eq=False)
class Cut(Instruction):
    """All threads of a block cut `count` floats in shared memory, from `tile` on, into parts for the instruction `op`.

    The small parts go to `rest`; the big ones replace the floats.  Only emitters write it.
    """

    operands: ClassVar[tuple[str, ...]] = ("tile", "rest")
    results: ClassVar[tuple[str, ...]] = ("tile", "rest")
    by_emitters: ClassVar[bool] = True
    op: Mma
    tile: BufferLoad
    rest: BufferLoad
    count: int

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"cut.{self.op.element.name}({shown(self.tile)}, {shown(self.rest)}, {self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class QuadStore(Instruction):
    """So many `lanes`, 4 or 2, that are neighbours along threadIdx.x store 16 bytes each, from `to` on.

    From `groups` on each has its part of as many groups; the q-th of the lanes stores group q, put together in their
    order.  `whole`: all threads of a warp come, and not only some fours of neighbours.  Only emitters write it.
    """

    operands: ClassVar[tuple[str, ...]] = ("to", "groups")
    results: ClassVar[tuple[str, ...]] = ("to",)
    by_emitters: ClassVar[bool] = True
    to: BufferLoad
    groups: BufferLoad
    lanes: int
    whole: bool

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"{shown(self.to)} = quad({shown(self.groups)})"


@dataclass(frozen=True, slots=True, eq=False)
class RingCall(Instruction):
    """A call of a `function` of rings (`ring_text.py`), with places in memory and numbers; only emitters write it.

    `number` is a constant, or several, that the function is compiled for; `box` says which boxes it moves of the array
    of the `map`-th tensor map.
    """

    operands: ClassVar[tuple[str, ...]] = ()
    results: ClassVar[tuple[str, ...]] = ()
    by_emitters: ClassVar[bool] = True
    function: str
    arguments: tuple[Expr, ...]
    number: int | str | None = None
    box: Box | None = None
    map: int = 0

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"{self.function}({', '.join(map(shown, self.arguments))})"

    @property
    def places(self) -> tuple[Any, ...]:
        return self.arguments

    def moved(self, f: Callable[[Expr], Expr]) -> RingCall:
        return replace(self, arguments=tuple([f(e) for e in self.arguments]))


@dataclass(frozen=True, slots=True, eq=False)
class BoxStore(RingCall):
    """One that stores a box, the first of whose arguments is there; `result` is what it stores to.  A `turned` one has
    columns of the product as its rows."""

    results: ClassVar[tuple[str, ...]] = ("result",)
    turned: bool = False

    @property
    def result(self) -> BufferLoad:
        assert self.box is not None
        return BufferLoad(self.box.buffer, as_expr(0))


def numbered(body: Stmt) -> Stmt:
    """A body whose calls know the numbers of their tensor maps, which are brought first: one for all boxes of an array
    that are alike."""
    known: list[Box] = []

    def with_number(s: Stmt) -> Stmt:
        if isinstance(s, RingCall) and s.box is not None:
            if s.box not in known:
                known.append(s.box)
            return replace(s, map=known.index(s.box))
        return with_bodies(s, tuple([with_number(b) for b in bodies(s)]))

    made = with_number(body)
    return seq(*[RingCall("map_ahead", (), box=box, map=k) for k, box in enumerate(known)], made)
