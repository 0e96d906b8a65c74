"""Copies between global and shared memory that are boxes of an array, as the copy engine of a Hopper moves them.

    for i in 0..128: for j in 0..64:
        tile[place(i, j)] = A[(block * 128 + i) * 304 + t * 64 + j]  if block * 128 + i < 520, t * 64 + j < 304; else 0

is the box of 128 x 64 elements from (block * 128, t * 64) on, of an array of 520 x 304: the engine reads zeros beyond
the edges of an array, and stores nothing there.  An index is the sum of coordinates times strides; each of its terms
belongs to the outermost axis whose stride divides it, and a constant is shared out among axes in all ways.  Whether
that is right is then looked at: the conditions of the copy must be those that all coordinates lie inside.  Neighbouring
axes of an array may count as one, and an axis that the index goes through in parts as two.  So windows of images with
zeros around them are boxes, too, and the tokens of several texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, combinations, pairwise, product
from math import prod

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, Compare, Const, Expr, Var, as_expr, binary, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, free_vars, substitute
from te_lite.loops.stmt import Buffer

MOST_AXES, MOST_BOX, UNIT = 5, 256, 16
"""Axes of an array, and elements of a box along one; bytes, at multiples of which rows begin."""
FACTORS = (1, 2, 4, 8, 16, 32)
"""By which an index is larger than a number of tiles."""


@dataclass(frozen=True)
class Box:
    """`extents` elements of `buffer`, seen as an array of `view` extents, from `start` on, every `steps`-th of them.

    Floats may be rounded to the `nearest` TF32 number on their way.  With `pixels` it is one of windows
    (`pixel_boxes.py`).
    """

    buffer: Buffer
    view: tuple[int, ...]
    start: tuple[Expr, ...]
    extents: tuple[int, ...]
    steps: tuple[int, ...]
    nearest: bool = False
    pixels: Pixels | None = None


@dataclass(frozen=True)
class Pixels:
    """Of a box whose rows are windows of images: there are so many in an image, `lines` of `columns`, whose first one
    begins at `corner`, once that is known."""

    lines: int
    columns: int
    corner: tuple[int, int] = (0, 0)

    def margins(self, image: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
        """How far the first window begins before the first pixel of an `image`, and the last one before the last."""
        last = [(n - 1) * step + x for n, step, x in zip((self.lines, self.columns), steps, self.corner, strict=True)]
        return (*[-x for x in self.corner], *[n - 1 - x for n, x in zip(image, last, strict=True)])


@dataclass(frozen=True)
class Copy:
    """A copy whose loops of one iteration are left out: the `terms` of its index, under the conditions `given`.

    Conditions are judged in the `ranges` of iterations that copy, coordinates told in `wide` ones of all of them.
    """

    buffer: Buffer
    loops: dict[Var, int]
    terms: tuple[tuple[Expr, int], ...]
    given: tuple[Expr, ...]
    ranges: Simplifier
    wide: Simplifier

    @classmethod
    def of(
        cls, buffer: Buffer, index: Expr, inside: Sequence[Expr], loops: Mapping[Var, int], ranges: Simplifier,
        wide: Simplifier | None = None,
    ) -> Copy:  # fmt: skip
        """The copy by nested `loops`, of so many iterations each, outermost first, where `inside` holds."""
        wide = ranges if wide is None else wide
        alone = {v: as_expr(0) for v, n in loops.items() if n == 1}
        inside, index = [substitute(e, alone) for e in inside], substitute(index, alone)
        kept = {v: n for v, n in loops.items() if n > 1}
        terms = tuple(terms_of(wide.simplify(index)))
        return cls(buffer, kept, terms, tuple(asked(inside, ranges)), ranges, wide)


def asked(conditions: Sequence[Expr], ranges: Simplifier) -> list[Expr]:
    """The parts of conditions that are left to hold."""
    return [c for e in conditions for c in conjuncts(ranges.simplify(e)) if not (isinstance(c, Const) and c.value)]


def can_be_told(box: Box) -> bool:
    """Whether the engine can be told of such boxes of such an array, of neighbours along all axes."""
    nbytes = BYTES[box.buffer.dtype]
    strides = [prod(box.view[d + 1 :]) * nbytes for d in range(len(box.view) - 1)]
    plain = box.pixels is not None or max(box.steps) == 1
    return all(n % UNIT == 0 for n in strides) and max((1, *box.extents[:-1])) <= MOST_BOX and plain


def box_of(copy: Copy, around: Set[Var] = frozenset(), view: tuple[int, ...] | None = None) -> Box | None:
    """The box that a copy is of an array; None for none.

    All coordinates lie inside of the array where all its conditions hold, and nowhere else; those on variables
    `around` alone are looked at before, and may say more.  With a `view` the array is seen in no other one.
    """
    if any(not isinstance(e, Var) and free_vars(e) & copy.loops.keys() for e, _ in copy.terms):
        return None
    views = chain(_views(copy.buffer.shape), _cut_views(copy)) if view is None else [view]
    return next((box for seen in views for box in boxes_in(copy, seen, around)), None)


def boxes_in(
    copy: Copy, view: tuple[int, ...], around: Set[Var] = frozenset(), rows: Sequence[Expr] = ()
) -> Iterator[Box]:
    """The boxes that a copy may be in a view, whose coordinates are further by `rows`."""
    found = (_in_view(copy, view, way, around, rows) for way in product((0, 1), repeat=len(view)))
    return (box for box in found if box is not None)


def terms_of(e: Expr, factor: int = 1) -> Iterator[tuple[Expr, int]]:
    """The terms that `factor * e` is the sum of, with their factors; constants are factors of 1."""
    match e:
        case Binary(op="+" | "-" as op, a=a, b=b):
            yield from terms_of(a, factor)
            yield from terms_of(b, factor if op == "+" else -factor)
        case Binary(op="*", a=a, b=Const(value=value)):
            yield from terms_of(a, factor * int(value))
        case Const(value=value):
            yield as_expr(1), factor * int(value)
        case _:
            yield e, factor


def _views(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The extents of an array, and those with neighbours as one axis, most axes first; axes of one element are none."""
    extents = [n for n in shape if n > 1] or [1]
    for count in range(min(len(extents), MOST_AXES), 0, -1):
        for cuts in combinations(range(1, len(extents)), count - 1):
            ends = (0, *cuts, len(extents))
            yield tuple([prod(extents[a:b]) for a, b in pairwise(ends)])


def _cut_views(copy: Copy) -> Iterator[tuple[int, ...]]:
    """The extents of an array with axes cut in two where a term of the index goes so far, fewest cuts first: the tokens
    of several texts, or the columns of several heads, each with an edge of its own."""
    shape, ways = copy.buffer.shape, []
    blocks = [(e, factor) for e, factor in copy.terms if set() < free_vars(e) and not free_vars(e) & copy.loops.keys()]
    for d, n in enumerate(shape):
        stride = prod(shape[d + 1 :])
        parts = {factor // stride for e, factor in blocks if factor % stride == 0}
        ways.append([(n,), *[(n // part, part) for part in sorted(parts) if 1 < part < n and n % part == 0]])
    found = [tuple([n for axis in way for n in axis if n > 1]) for way in product(*ways)]
    yield from sorted([view for view in found if len(view) <= MOST_AXES], key=len)


def _in_view(
    copy: Copy, view: tuple[int, ...], way: Sequence[int], around: Set[Var], rows: Sequence[Expr]
) -> Box | None:
    """The box in a view.  Of a constant each axis but the last has its quotient, or one more; the last coordinate may
    count further than its axis, and is carried then: zeros and ones of a `way` say which."""
    strides, loops = [prod(view[d + 1 :]) for d in range(len(view))], copy.loops
    start: list[Expr] = [as_expr(0)] * len(view)
    fixed, order, box, steps = [0] * len(view), [], [1] * len(view), [1] * len(view)
    for e, factor in copy.terms:
        d = next(d for d, stride in enumerate(strides) if factor % stride == 0)
        if isinstance(e, Const):
            fixed = _shared_out(factor, strides, way[1:])
        elif isinstance(e, Var) and e in loops:
            order.append((list(loops).index(e), d))
            box[d], steps[d] = loops[e], factor // strides[d]
        else:
            start[d] = binary("+", start[d], binary("*", e, factor // strides[d]))
    start = [copy.wide.simplify(binary("+", x, n)) for x, n in zip(start, fixed, strict=True)]
    start = _carried(start, view, copy.wide) if way[0] and len(view) > 1 else start
    one_each = [d for _, d in sorted(order)] == sorted({d for _, d in order}) and len(order) == len(loops)
    if not one_each or min(steps) < 1 or steps[-1] != 1 or any(loops.keys() & free_vars(x) for x in start):
        return None
    moved = {d: binary("*", list(loops)[n], steps[d]) for n, d in order} | dict(enumerate(rows))
    at = [binary("+", x, moved.get(d, 0)) for d, x in enumerate(start)]
    bounds = [compare(">=", x, 0) for x in at] + [compare("<", x, n) for x, n in zip(at, view, strict=True)]
    wanted, ranges = asked(bounds, copy.ranges), copy.ranges
    alike = all(any(_means(x, y, ranges) for y in copy.given) for x in wanted)
    unasked = [y for y in copy.given if not set() < free_vars(y) <= around]
    alike = alike and all(any(_means(x, y, ranges) for x in wanted) for y in unasked)
    return Box(copy.buffer, view, tuple(start), tuple(box), tuple(steps)) if alike else None


def _shared_out(n: int, strides: Sequence[int], up: Sequence[int]) -> list[int]:
    """Numbers whose products with strides add up to `n`."""
    out = []
    for stride, more in zip(strides, (*up, 0), strict=True):
        out.append(n // stride + more)
        n -= out[-1] * stride
    return out


def _carried(start: Sequence[Expr], view: Sequence[int], ranges: Simplifier) -> list[Expr]:
    """The same coordinates, where the last one counts further than its axis and is carried over to the one before."""
    *rest, before, last = start
    over, left = binary("//", last, view[-1]), binary("%", last, view[-1])
    return [*rest, *[ranges.simplify(x) for x in (binary("+", before, over), left)]]


def _means(x: Expr, y: Expr, ranges: Simplifier) -> bool:
    """Whether two comparisons hold together: `q < 0` is `z < 0` where q = f * z + r, and r is one of 0 to f - 1."""
    if not isinstance(x, Compare) or not isinstance(y, Compare):
        return False
    q, z = negative(x), negative(y)
    for f in FACTORS:
        for a, b in ((q, z), (z, q)):
            low, high = ranges.bounds(ranges.simplify(binary("-", a, binary("*", b, f))))
            if low is not None and high is not None and low >= 0 and high < f:
                return True
    return False


def negative(e: Compare) -> Expr:
    """What is negative where a comparison of integers in order holds."""
    a, b = (e.a, e.b) if e.op in ("<", "<=") else (e.b, e.a)
    return binary("-", binary("-", a, b), int(e.op in ("<=", ">=")))
