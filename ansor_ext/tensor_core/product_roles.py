"""Stages that tensor cores can compute: sums of products of two reads, and what their axes are in the product.

    sum over ..., k of  a[..., m + ..., ..., k] * b[..., k, ..., n]

    outer   both factors, or the first ones of several of the others: loops around the product
    m, n    the last axis that only the first, or only the second, factor has: rows and columns
    k       the last axis that is summed over: terms; the others are loops around it

Columns lie side by side in memory where there are enough rows for the instruction; else the factors change places,
where that gives enough.

Each of m, n and k is a dimension of its factors, in steps of 1; along it the other loops may add what stands still
while the product of a tile is computed (a row of a window).  A factor that is read otherwise, such as every second
column, is copied with the axes of its read first (`Reindex`).

Groups of warps (`Mma.warps`) read one factor from shared memory, where its terms must be neighbours: that is B then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ansor.core.target.target import ELEMENTS, Target
from te_lite.bounds.reads import Affine, Read
from te_lite.expr.expr import Call, Const, Expr, Load, Reduce, same
from te_lite.expr.lanes import ceildiv
from te_lite.expr.visit import walk
from te_lite.schedule.state import INLINED, State

from ..analysis.nominal import NOMINAL_SMS
from ..analysis.own_stages import axes_read, extents_of, is_untouched
from ..analysis.product_roles import Factor, factor_of, factors_read, sides_of
from ..axes.derive import axes_in_order, plain_read
from .float_parts import by_parts, has_parts
from .mma import GROUP_ROW_BYTES, MMA, ROW_BYTES, Mma, mma
from .mma_meaning import product
from .pixel_boxes import MOST_STEP

FEWEST_ROWS = 5
"""Of an axis that is rows where neither order of the factors fills a tile; most of it is empty then, and still fast."""
FEWEST_COLUMNS_OF_GROUPS, FEWEST_ROWS_OF_GROUPS = 24, 49
"""Of axes worth a group of warps, whose 64 rows read the same columns: of fewer columns it reads as much as single
warps do."""
HOPPER = ("H100", "H200")
"""The models that multiply in groups of warps."""
FEWEST_TERMS_OF_PARTS = 32
"""Of a sum of floats in parts (`Element.parts`): what they leave out is then little beside what float32 rounds.  Groups
of warps add up all terms of a turn in the tensor core, so of them there must be two turns."""
MOST = (128, 256)
"""Rows and columns of the largest block."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The axes m, n and k of a stage by their numbers, spatial first, and its factors: `a` has m, and `b` has n.

    `beside` is another axis that only one factor has, whose m or n is `line`: the rows of an image, of which several
    are multiplied by the same tile of the other factor.
    """

    op: Mma
    m: int
    n: int
    k: int
    a: Factor
    b: Factor
    beside: int | None = None
    line: int = 0


def roles_of(
    target: Target, state: State, k: int, groups: bool = False, full: bool = False, ring: bool = False, few: int = 0
) -> Roles | None:
    """How stage `k` is a product for tensor cores of the target, of groups of warps if asked; None when it is none.

    With `full` its rows and columns are those that fill tiles best, not the last ones: the images of a batch instead of
    the columns of an image.  The axis `few`, counted from the last one of space, is worth a tile however short it is.
    """
    stage = state.stages[k]
    if stage.is_placeholder or not is_untouched(stage) or stage.op.num_outputs != 1:
        return None
    op = instruction_of(target, state, k, groups, ring)
    if op is None:
        return None
    reads = factors_read(state, k)
    if reads is None:
        return None
    extents, space = extents_of(stage.op), len(stage.op.axis)
    if op.element.apart:  # the sum over parts is none over terms
        extents[space] = 1
    if few:
        extents[space - few] = max(extents[space - few], op.m)
    last = max([d for d in range(space) if extents[d] > 1], default=-1)
    ordered = sorted(reads, key=lambda pair: last in axes_read(pair[1], extents))
    enough = (FEWEST_ROWS_OF_GROUPS,) if groups else (op.m, FEWEST_ROWS)
    tried = [(rows, order) for rows in enough for order in (ordered, ordered[::-1])]
    found = [_roles(state, op, rows, first, second, extents, space, full, ring) for rows, (first, second) in tried]
    suits = [roles for roles in found if roles is not None and (not ring or _suits_ring(state, roles, extents, space))]
    return next(iter(suits), None)


def _suits_ring(state: State, roles: Roles, extents: Sequence[int], space: int) -> bool:
    """Whether the copy engine can fetch both factors as tensor cores read them: from rows of memory that begin at
    multiples of 16 bytes, along the terms, or, of two bytes, in whole lines along the other side; in two turns and
    more, or in one for each of several parts of the result."""
    line = terms_of_groups(roles.op)
    nbytes, factors = roles.op.element.nbytes, (roles.a, roles.b)
    if _turns(roles, extents, space) < 2 and (nbytes != 2 or not _goes_on(roles, extents)):
        return False
    if roles.b.last == roles.b.side and extents[roles.n] < line:
        return False
    rows = [state.stages[f.stage].op.output().shape[-1] * nbytes for f in factors]
    if has_parts(state, roles.a.stage):
        return False
    along = all(f.last == f.terms or (f.last == f.side and nbytes == 2) for f in factors)
    plain = all(is_stored(state, f.stage) for f in factors)
    return along and plain and all(n % ROW_BYTES == 0 for n in rows)


def _goes_on(roles: Roles, extents: Sequence[int]) -> bool:
    """Whether blocks have several parts of the result, however large these are."""
    blocks: int = ceildiv(extents[roles.m], MOST[0]) * ceildiv(extents[roles.n], MOST[1])
    return blocks > NOMINAL_SMS


def _roles(
    state: State, op: Mma, rows: int, first: tuple[int, Read], second: tuple[int, Read], extents: Sequence[int],
    space: int, full: bool, ring: bool,
) -> Roles | None:  # fmt: skip
    """The roles with `first` as A, of `rows` or more, and `second` as B; None where they do not suit."""
    dtypes = tuple([state.stages[p].op.output_dtype(0) for p, _ in (first, second)])
    if op.dtypes != dtypes:  # of two kinds of floats, found in the other order
        assert op.other is not None
        op = mma(replace(op, element=op.other, other=op.element).name)
    sides = sides_of(first[1], second[1], extents, space)
    if sides is None:
        return None
    m, n = [_line(of, extents, op.m if full else 1) for of in (sides.rows, sides.columns)]
    terms = sides.terms[-1]
    if extents[m] < rows or extents[n] <= op.n or extents[terms] < op.k:
        return None
    if op.warps > 1 and (extents[n] < FEWEST_COLUMNS_OF_GROUPS or extents[terms] < terms_of_groups(op)):
        return None
    fewest = FEWEST_TERMS_OF_PARTS if op.warps == 1 else 2 * terms_of_groups(op)
    if op.element.parts > 1 and prod([extents[x] for x in sides.terms]) < fewest:
        return None
    a, b = [
        factor_of(p, read, side, terms, extents) or _reindexed(state, p, read.reader, side, terms)
        for (p, read), side in ((first, m), (second, n))
    ]
    if a is None or b is None or (op.warps > 1 and not ring and b.terms != b.last):
        return None
    found = [(axis, line) for of, line in ((sides.rows, m), (sides.columns, n)) for axis in of if extents[axis] > 1]
    return Roles(op, m, n, terms, a, b, *max([x for x in found if x[0] != x[1]], default=(None, m)))


def turns_of(state: State, k: int, roles: Roles) -> int:
    """The iterations of groups of warps over the sums of stage `k`."""
    op = state.stages[k].op
    return _turns(roles, extents_of(op), len(op.axis))


def _turns(roles: Roles, extents: Sequence[int], space: int) -> int:
    lines: int = ceildiv(extents[roles.k], terms_of_groups(roles.op))
    return prod(extents[space:]) // extents[roles.k] * lines


def are_windows(state: State, k: int, stage: int, run: tuple[int, int]) -> bool:
    """Whether stage `k` reads windows of the images in `stage`, NHWC, along the axes of a `run`, which begin inside of
    their image: what the copy engine counts through (`pixel_boxes.py`)."""
    read, own = dict(factors_read(state, k) or ())[stage], range(run[0], run[0] + run[1])
    extents, space = extents_of(state.stages[k].op), len(state.stages[k].op.axis)
    image = next((x.tensor.shape for b in _bodies(state, stage) for x in walk(b) if isinstance(x, Load)), None)
    shape, order = image or state.stages[stage].op.output().shape, []
    if len(read.forms) != 4 or len(shape) != 4:
        return False
    for d, (form, size) in enumerate(zip(read.forms, shape, strict=True)):
        if not isinstance(form, Affine) or not isinstance(size, int):
            return False
        counted = [(axis, step) for axis, step in form.terms if axis in own]
        order += [axis for axis, _ in counted]
        most = (1, MOST_STEP, MOST_STEP, 0)[d]
        near = all(0 < step <= most and (extents[axis] - 1) * step < size for axis, step in counted)
        others = [axis for axis, _ in form.terms if axis not in own and extents[axis] > 1]
        alone = len(counted) < 2 and (d == 3 or all(axis >= space for axis in others))
        if not near or not alone:
            return False
    return order == list(own)


def _bodies(state: State, stage: int) -> Sequence[Expr]:
    inlined = state.stages[stage].where == INLINED
    return state.stages[stage].compute.body if inlined else ()


def is_stored(state: State, k: int) -> bool:
    """Whether stage `k` is in memory, maybe with zeros around it."""
    stage = state.stages[k]
    if stage.where != INLINED:
        return True
    match stage.compute.body[0]:
        case Load() | Call(func="if_then_else", args=(_, Load(), Const(value=0))):
            return True
    return False


def _line(axes: Sequence[int], extents: Sequence[int], size: int) -> int:
    """The one of the axes that fills tiles of `size` best, the last one of several."""
    return max(axes, key=lambda axis: (extents[axis] / (ceildiv(extents[axis], size) * size), axis))


def terms_of_groups(op: Mma) -> int:
    """The terms of a turn of a group of warps: as many as a row of its tile has."""
    return GROUP_ROW_BYTES // op.element.nbytes


def _reindexed(state: State, stage: int, reader: int, side: int, terms: int) -> Factor | None:
    """`factor_of` for a copy of `stage` with the axes of its read; None where there is no such copy."""
    op = state.stages[reader].compute
    read = plain_read(op, state.stages[stage].op.output())
    axes = [*op.axis, *op.reduce_axis]
    found = [] if read is None else [axes.index(v) for v in axes_in_order(read)]
    whole = {side, terms} <= set(found)
    return Factor(stage, found.index(side), found.index(terms), len(found) - 1, True) if whole else None


def instruction_of(target: Target, state: State, k: int, groups: bool, ring: bool) -> Mma | None:
    """The instruction, of groups of warps or of single ones, that sums up the products of stage `k`; floats are
    rounded to the nearest in a ring, and nowhere else."""
    body, parts = state.stages[k].compute.body[0], by_parts(state, k)
    if (
        not isinstance(body, Reduce)
        or body.combiner.name != "sum"
        or len(body.sources) != 1
        or body.condition is not None
    ):
        return None
    loads = [x for x in walk(body.sources[0]) if isinstance(x, Load)]
    for op in MMA.values():
        fits = len(loads) == 2 and {x.dtype for x in loads} == {*op.dtypes} and body.dtype == op.sum.dtype
        asked = op.element.name == ELEMENTS.get(target.precision)
        asked = asked and (op.element.nearest or op.element.apart) == ring and op.element.apart == parts
        fits = fits and (op.element.dtype != "float32" or asked)
        fits = fits and (op.warps > 1) == groups and has_instruction(target, op) and not body.init
        if fits and any(same(body.sources[0], product(op, x, y)) for x, y in (loads, loads[::-1])):
            return op
    return None


def has_instruction(target: Target, op: Mma) -> bool:
    """Whether the architecture of a target, where it says one, has an instruction; one of few must be said."""
    digits = "".join([c for c in target.attrs.get("arch", "") if c.isdigit()])
    if op.warps > 1:
        return int(digits) == op.least if digits else target.model in HOPPER
    least = min(x.least for x in MMA.values())
    return int(digits) >= op.least if digits else op.least == least or target.model in HOPPER
