"""Copies between DRAM and the chip as loads and stores: evenly spaced rows of consecutive elements, framed by zeros.

A copy is a nest of loops with a step on both sides.  On the chip its elements must follow one another.  The innermost
steps make up one element; loops that continue each other in DRAM become one; at most two are left, rows and columns.
Where more are left, the outer ones may be loops of the host, an instruction an iteration, if the schedule says so by
unrolling them.
What lies outside the tensor is padding.  Padded copies keep their loops, since a row that was joined to the next one
could not be framed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from te_lite.errors import require
from te_lite.expr.expr import BufferLoad, Call, Cast, Compare, Const, Expr, Logical, Select, Var
from te_lite.loops.stmt import Buffer, ForKind, Store
from te_lite.loops.stmt_text import pretty

from ..core.config import Config
from ..core.errors import CompileError
from ..core.kinds import Memory
from .affine import Form, affine
from .host_nest import Part
from .places import Places
from .scopes import ACC, MEMORY_OF, lanes

MAX_PAD = 15
MAX_SIZE = (1 << 16) - 1


@dataclass(frozen=True)
class Limit:
    """Inside is where `step * index + rest >= 0`; index counts the rows or the columns of the copy."""

    step: int
    rest: Form


@dataclass(frozen=True)
class Side:
    """`extent` rows, or columns, `stride` elements apart in DRAM; `var` is the loop, None for a single one.

    `unrolled`: the schedule lets the host run it.
    """

    var: Var | None
    extent: int
    stride: int
    limits: tuple[Limit, ...] = ()
    unrolled: bool = False

    def clip(self, env: Mapping[Var, int]) -> tuple[int, int]:
        """`[first, last)`: the rows or columns that are inside."""
        first, last = 0, self.extent
        # `step * index + rest >= 0` bounds the index from below by a ceiling, or from above by a floor
        for limit in self.limits:
            rest = limit.rest.at(env)
            if limit.step > 0:
                first = max(first, -(rest // limit.step))
            else:
                last = min(last, rest // -limit.step + 1)
        first = min(first, self.extent)
        return first, max(first, last)


@dataclass(frozen=True)
class Transfer:
    """A load into `memory`, or a store when it is OUT.  `offset` and `sram` are elements, `sram` that of thread 0,
    `copy` the distance between the tiles of two threads; `inside` must be >= 0, or all is padding.  `repeats`
    are the distances (in DRAM, on the chip) of its instructions from the first."""

    name: str
    dram: Buffer
    memory: Memory
    offset: Form
    sram: Form
    copy: int
    rows: Side
    columns: Side
    inside: tuple[Form, ...] = ()
    repeats: tuple[tuple[int, int], ...] = ((0, 0),)

    def window(self, env: Mapping[Var, int]) -> tuple[int, tuple[int, int], tuple[int, int, int, int]]:
        """The first element in DRAM, its (rows, columns), and the zeros (above, below, left, right)."""
        top, bottom = self.rows.clip(env)
        left, right = self.columns.clip(env)
        if top == bottom or left == right or any(form.at(env) < 0 for form in self.inside):
            # no instruction says "all padding": it loads no rows and frames them, at most MAX_PAD on a side
            above = min(self.rows.extent, MAX_PAD)
            return 0, (0, self.columns.extent), (above, self.rows.extent - above, 0, 0)
        first = self.offset.at(env) + top * self.rows.stride + left * self.columns.stride
        frame = (top, self.rows.extent - bottom, left, self.columns.extent - right)
        return first, (bottom - top, right - left), frame


def is_transfer(part: Part) -> bool:
    """Whether a part copies to or from DRAM, and so whatever fills the memories of inputs and weights."""
    return part.store.buffer.scope != ACC or any(b.scope == "global" for b in part.read)


def transfer(part: Part, places: Places, config: Config, extents: Mapping[Var, int]) -> Transfer:
    """The load or store that a part is; `extents` are those of the loops around it.

    Raises CompileError for a copy that no single instruction does.
    """
    copied, conditions = _copied(part)
    chip, dram = _ends(part, copied)
    memory = _memory(part.name, chip.buffer, dram.buffer, part.store is dram)
    n = lanes(config, memory)
    near, far = affine(chip.index), affine(dram.index)
    loops = [(f.var, f.extent) for f in (*part.loops, *part.inner)]
    sides = _sides(part.name, loops, near, far, n)
    variables = [v for v, _ in loops]
    law = f"the copy must begin at a whole element of {n} numbers"
    offset, start = (form.without(variables).divided(n, part.name, law) for form in (far, near))
    sram, copy = start.plus(Form(places.base[chip.buffer])), places.size[chip.buffer]
    unrolled = [f.var for f in part.loops if f.kind is ForKind.UNROLLED]
    sides = [replace(side, unrolled=any(side.var is v for v in unrolled)) for side in sides]
    inside, sides = _framed(part.name, conditions, variables, sides)
    outer, (rows, columns) = _two(part.name, sides, bool(conditions))
    repeats = _repeats(outer, rows.extent * columns.extent)
    made = Transfer(part.name, dram.buffer, memory, offset, sram, copy, rows, columns, tuple(inside), repeats)
    _check_fields(made, extents)
    return made


def _ends(part: Part, copied: BufferLoad) -> tuple[Store | BufferLoad, Store | BufferLoad]:
    """What a copy touches on the chip, and in DRAM."""
    store = part.store
    ends = (store, copied) if store.buffer.scope != "global" else (copied, store)
    ok = ends[0].buffer.scope in MEMORY_OF and ends[1].buffer.scope == "global"
    require(ok, CompileError, part.name, "must copy between DRAM and the chip")
    return ends


def _copied(part: Part) -> tuple[BufferLoad, list[Expr]]:
    """What is copied, and the conditions under which it is not zero."""
    value, conditions = part.store.value, list[Expr]()
    if isinstance(value, Cast):
        value = value.a
    match value:
        case (
            Call(func="if_then_else", args=(cond, inner, Const(value=0))) | Select(cond=cond, a=inner, b=Const(value=0))
        ):
            conditions, value = list(_conjuncts(cond)), inner
    require(not isinstance(value, Const), CompileError, part.name, "all that is read lies outside of the tensor")
    law = "a copy between DRAM and the chip computes nothing: what it copies, or 0 where that is outside"
    require(isinstance(value, BufferLoad), CompileError, f"{part.name} = {pretty(part.store.value)}", law)
    assert isinstance(value, BufferLoad)
    return value, conditions


def _conjuncts(e: Expr) -> Sequence[Expr]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if isinstance(e, Logical) and e.op == "&&" else [e]


def _memory(name: str, chip: Buffer, dram: Buffer, stores: bool) -> Memory:
    """The kind of memory that an instruction names."""
    if stores:
        law = "only accumulators are stored, and only as int8"
        ok = chip.scope == ACC and dram.dtype == "int8"
        require(ok, CompileError, name, law, scope=chip.scope, dtype=dram.dtype)
        return Memory.OUT
    if chip.scope == ACC:
        ok = dram.dtype in ("int8", "int32")
        require(ok, CompileError, name, "accumulators are loaded from int8 or int32", dtype=dram.dtype)
        return Memory.ACC_8BIT if dram.dtype == "int8" else Memory.ACC
    same = dram.dtype == chip.dtype == "int8"
    require(same, CompileError, name, "inputs and weights must be int8", dtype=dram.dtype, tile=chip.dtype)
    return MEMORY_OF[chip.scope]


def _sides(name: str, loops: Sequence[tuple[Var, int]], near: Form, far: Form, n: int) -> list[Side]:
    """The loops over elements, outermost first, with their strides in DRAM."""
    order = sorted(loops, key=lambda loop: -near.of(loop[0]))
    sides: list[Side] = []
    step = 1
    for var, extent in reversed(order):
        law = "the elements of a tile must follow one another on the chip"
        require(near.of(var) == step, CompileError, name, law, loop=var.name, step=near.of(var))
        if step < n:
            _check_within(name, var, extent, step, far.of(var), n)
            if step * extent > n:
                sides.insert(0, Side(var, step * extent // n, 1))
        else:
            law = f"rows must begin at whole elements of {n} numbers"
            require(far.of(var) % n == 0, CompileError, name, law, loop=var.name, step=far.of(var))
            sides.insert(0, Side(var, extent, far.of(var) // n))
        step *= extent
    require(step >= n, CompileError, name, f"a copy must have at least one element of {n} numbers", numbers=step)
    return sides


def _check_within(name: str, var: Var, extent: int, step: int, far: int, n: int) -> None:
    """A loop inside an element moves alike in DRAM, and ends with the element or whole ones later."""
    law = f"an element of {n} numbers must be whole, and lie in DRAM as on the chip"
    ok = far == step and (n % (step * extent) == 0 or step * extent % n == 0)
    require(ok, CompileError, name, law, loop=var.name, extent=extent)


def _framed(
    name: str, conditions: Sequence[Expr], loops: Sequence[Var], sides: list[Side]
) -> tuple[list[Form], list[Side]]:
    """Conditions outer into limits of the sides that they speak of; those that speak of none come first."""
    inside: list[Form] = []
    for cond in conditions:
        form = _at_least_zero(name, cond)
        own = [(v, c) for v, c in form.terms if any(v is x for x in loops)]
        rest = form.without(loops)
        if not own:
            inside.append(rest)
            continue
        at = [k for k, side in enumerate(sides) if side.var is own[0][0]]
        law = "padding must fall on rows or columns, each by itself"
        require(len(own) == 1 and at, CompileError, f"{name} where {pretty(cond)}", law)
        side = sides[at[0]]
        sides[at[0]] = replace(side, limits=(*side.limits, Limit(own[0][1], rest)))
    return inside, sides


def _at_least_zero(name: str, cond: Expr) -> Form:
    """The form that is >= 0 where the condition holds."""
    law = "padding must be decided by comparisons of indices"
    ok = isinstance(cond, Compare) and cond.op in ("<", "<=", ">", ">=")
    require(ok, CompileError, f"{name} where {pretty(cond)}", law)
    assert isinstance(cond, Compare)
    a, b = affine(cond.a), affine(cond.b)
    distance = b.plus(a, -1) if cond.op in ("<", "<=") else a.plus(b, -1)
    return distance.plus(Form(-1)) if cond.op in ("<", ">") else distance


def _two(name: str, sides: list[Side], padded: bool) -> tuple[list[Side], list[Side]]:
    """The sides that the host runs, outermost first, and the rows and columns of one instruction."""
    sides = arranged(sides, padded)
    outer, kept = sides[:-2], sides[-2:]
    law = "the copy must be rows of consecutive elements, evenly spaced"
    law += "; with padding, rows and columns of one plane" if padded else ""
    ok = all(side.unrolled and not side.limits for side in outer)
    require(ok, CompileError, name, law, extents=[s.extent for s in sides])
    return outer, kept


def _repeats(outer: Sequence[Side], plane: int) -> tuple[tuple[int, int], ...]:
    """The distance of each instruction from the first, in DRAM and on the chip; each fills `plane` elements."""
    places = [0]
    for side in outer:
        places = [place + k * side.stride for place in places for k in range(side.extent)]
    return tuple([(place, k * plane) for k, place in enumerate(places)])


def arranged(sides: Sequence[Side], padded: bool) -> list[Side]:
    """The loops of a copy that no other loop continues, outermost first: two at least, and the last one columns."""
    out: list[Side] = []
    for side in sides:
        if out and not padded and out[-1].stride == side.extent * side.stride:
            outer = out.pop()
            side = Side(side.var, outer.extent * side.extent, side.stride, unrolled=outer.unrolled and side.unrolled)
        out.append(side)
    if not out or out[-1].stride != 1:
        out.append(Side(None, 1, 1))
    return out if len(out) > 1 else [Side(None, 1, out[0].extent), *out]


def _check_fields(t: Transfer, extents: Mapping[Var, int]) -> None:
    """The numbers of the instruction must fit its fields wherever the loops around it stand."""
    law = f"rows, columns and the distance of rows must be at most {MAX_SIZE}"
    sizes = (t.rows.extent, t.columns.extent, t.rows.stride)
    require(max(sizes) <= MAX_SIZE, CompileError, t.name, law, got=sizes)
    most = [max((_outside(side, limit, extents) for limit in side.limits), default=0) for side in (t.rows, t.columns)]
    law = f"padding must be at most {MAX_PAD} rows and columns a side"
    require(max(most) <= MAX_PAD, CompileError, t.name, law, got=most)
    law = f"a tile that may be all padding must have at most {2 * MAX_PAD} rows"
    ok = t.rows.extent <= 2 * MAX_PAD or not (t.inside or most[1] >= t.columns.extent)
    require(ok, CompileError, t.name, law, rows=t.rows.extent)


def _outside(side: Side, limit: Limit, extents: Mapping[Var, int]) -> int:
    """The most rows, or columns, that a limit keeps out at once."""
    rest = limit.rest.const + sum(min(0, c * (extents[v] - 1)) for v, c in limit.rest.terms)
    count = -(rest // limit.step) if limit.step > 0 else side.extent - 1 - rest // -limit.step
    return min(max(count, 0), side.extent)
