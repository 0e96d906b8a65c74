"""How far rounding may move each element of a computation: a second computation, whose tensors are those errors.

It is evaluated once a task, in float64, beside the reference.  `rounding_expr.py` has the errors of expressions; here
are those of reductions.  A sum of `n` terms, added up in any order, is off by what its terms are off by, and by

    u * min(n, 4 * sqrt(n)) * sum |terms|

`n * u` bounds every order of additions; beyond 16 terms rounding errors are taken to be independent (Higham and Mary, A
new approach to probabilistic rounding error analysis, SISC 2019; with the factor 2 of `check.py` the chance that one
is larger is 1e-13 a term).  Where the product is above 1/32 of the root of the sum of squares, as with float16, it
would let anything pass; there the terms are taken to come in no particular order of size and sign, so that partial sums
are no larger than the sum and that root: at most `max(1/32, 2 * u * sqrt(n)) * (|sum| + sqrt(sum terms^2))`.

Moments (counts, means, sums of squared distances, by Chan's formula, here of elements x of weight w): counts
are exact up to `1 / u`.  With `g = u * (min(n, 4 * sqrt(n)) + 16)`, 16 for the formula's roundings, a mean is off by
`e = (sum w * error(x) + g * sum w * |x|) / sum w`, and with `d = e + max error(x)` the squared distances are by their
own errors and `g * (sum distances + sum w * x^2) + 4 * d * sum w * |x| + d^2 * sum w`.

With the precision TF32 the float32 factors of a sum of products of two may be off by 0.65 * 2^-10 of each, too: the sum
by up to `1.3 * 2^-10 * sum |terms|` more, which is what tensor cores may be used for then.

Products of two floats of 8 bits are added up in float32 with `u = 2^-13`, whatever the precision: tensor cores of a
Hopper have some 14 bits there.

With FP32X3 such a factor is in two parts: off by 2^-23 of it, and where its small part is less than the least normal
number by that; the product of two small parts, 2^-22 of a term, is left out.  So the sum is off by up to
`2^-21 * sum |terms|` more; factors beyond `BIG` are cut to TF32.  Errors of additions are held to the second bound
there, however small: the first one would let a program pass that leaves out another product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce

from te_lite import ComputeDAG
from te_lite.computation.tensor import ComputeOp, Tensor, make_compute
from te_lite.expr.dtype import SMALL_FLOATS, STORED
from te_lite.expr.expr import FLOATS, Binary, Call, Cast, Combiner, Compare, Const, Expr, Load, Logical, Reduce, Var
from te_lite.expr.own_reducers import chooses
from te_lite.expr.reduction import max as max_reduce
from te_lite.expr.reduction import prod as prod_reduce
from te_lite.expr.reduction import sum as sum_reduce
from te_lite.schedule.state import root_extent

from ..core.target.target import BIG, FP32X3, STRICT, TF32
from .rounding_expr import (
    INFINITE,
    NOTHING,
    REAL,
    Errors,
    larger,
    least,
    magnitude,
    overflows,
    plus,
    product,
    rounding,
    shown,
    size_of,
    times,
    uncertain,
    unit,
    unless_nan,
    where,
)

SPREAD = 4.0
NOISE = 1 / 32
CUT = {TF32: 0.65 * 2.0**-10, FP32X3: 2.0**-22}
"""What a factor is off by (`ansor_ext/tensor_core/mma_meaning.py`); of two parts, by its last bit and half of what is
left out."""
CUT_BEYOND = 2.0**-10
"""Of a factor beyond `BIG`: the bits are cut off."""
FLOATS_OF_8_BITS, SHORT = ("float8_e4m3fn", "float8_e5m2"), 2.0**-13
"""Of products of which a tensor core keeps so many bits of a sum, cutting off what is below, at each instruction."""
MOMENTS = "moments"
"""The reducer's name (`relay_lite/op/moments.py`)."""
TOGETHER = 16.0
"""Units that Chan's formula, with an approximate reciprocal root, loses each time."""
PARTS_GROW = 1 + 2.0**-9
"""A product of the big parts may be larger than that of the factors by so much."""


def rounding_errors(dag: ComputeDAG, precision: str = STRICT) -> dict[Tensor, Tensor]:
    """A float64 tensor for each computed tensor that rounding can change: by how much, at most, element by element.

    They are computed from the inputs and tensors of `dag`.  See the modules for infinite and NaN errors.  `precision`
    is one of `Target.precision`.
    """
    found: dict[Tensor, Tensor] = {}
    for op in dag.ops:
        if isinstance(op, ComputeOp):
            writer = _Operation(op, Errors(dict(found)), precision)
            for k in range(op.num_outputs):
                error = writer.output(k)
                if error is not None:
                    found[op.output(k)] = writer.tensor(error)
    return found


def reduction_length(op: ComputeOp) -> int:
    """The number of terms that one element of a reduction adds up, at most."""
    return math.prod([root_extent(v, op.axis) for v in op.reduce_axis])


class _Operation:
    """Writes the errors of the outputs of one operation."""

    def __init__(self, op: ComputeOp, errors: Errors, precision: str) -> None:
        self.op = op
        self.errors = errors
        self.precision = precision

    def tensor(self, body: Expr) -> Tensor:
        """A tensor on the points of the operation."""
        return make_compute(f"{self.op.name}.error", self.op.axis, (body,), object()).output()

    def read(self, body: Expr) -> Expr:
        """An element of a tensor made of `body`, at the point at hand."""
        return self.tensor(body)[self.op.axis]

    def output(self, k: int) -> Expr | None:
        """The error of output `k`, or None when it is exact."""
        body = self.op.body[k]
        if self.op.scans:
            return self._scanned(k)
        return _Reduction(self, body, k).error() if isinstance(body, Reduce) else self.errors.of(body)

    def _scanned(self, k: int) -> Expr | None:
        """Of a scan: errors are carried beside the values."""
        n, tensors = self.op.num_outputs, self.errors.tensors
        if all(self.errors.of(body) is None for body in self.op.body):
            return None
        own: dict[Var, Var] = {
            e: replace(e, name=f"{e.name}.error", dtype=REAL, output=n + e.output) for e in self.op.carried
        }
        bodies = (*self.op.body, *[shown(Errors(tensors, own).of(body)) for body in self.op.body])
        return make_compute(f"{self.op.name}.error", self.op.axis, bodies, object()).output(n + k)[self.op.axis]


class _Reduction:
    """Writes the error of one value of a reduction."""

    def __init__(self, of: _Operation, body: Reduce, k: int) -> None:
        self.of = of
        self.body = body
        self.k = k
        self.source = body.sources[k]
        self.value = of.op.output(k)[of.op.axis]

    def error(self) -> Expr | None:
        """See `rounding_errors`."""
        carried = [self.of.errors.of(s) for s in (*self.body.sources, *self.body.init)]
        exact = all(e is None for e in carried)
        if self.body.combiner.name == MOMENTS and not self.body.init:
            return self._moment()
        x, y = self.body.combiner.lhs[self.k], self.body.combiner.rhs[self.k]
        match _unconverted(self.body.combiner.result[self.k]):
            case Binary(op=op, a=a, b=b) | Logical(op=op, a=a, b=b) if (a is x and b is y) or (a is y and b is x):
                return self._folded(op)
        if self.body.combiner.name in ("argmax", "argmin") and len(self.body.sources) == 2:
            return self._first(exact)
        return None if exact and chooses(self.body.combiner) else self._step_by_step(carried)

    def _folded(self, op: str) -> Expr | None:
        """The value is folded by itself with an operator."""
        error = self.of.errors.of(self.source)
        if self.body.init:
            error = larger(error, self.of.errors.of(self.body.init[self.k]))
        if op == "+" and self.source.dtype in FLOATS:
            return self._sum()
        if op == "*" and self.source.dtype in FLOATS:
            return self._product(error)
        if op in ("+", "*"):
            return uncertain(self._largest(error))
        return self._largest(unless_nan(error, self.source))

    def reduced(self, source: Expr) -> Expr:
        """The sum of `source` over the points that are reduced."""
        return self.of.read(sum_reduce(source, self.body.axes, self.body.condition))

    def _largest(self, error: Expr | None) -> Expr | None:
        if error is None:
            return None
        return larger(NOTHING, self.of.read(max_reduce(error, self.body.axes, self.body.condition)))

    def _sum(self) -> Expr | None:
        factors = [(magnitude(f), plus(self.of.errors.of(f), self._cut(f))) for f in _factors(self.source)]
        size, carried = product(factors)
        if len(factors) > 1:
            size = math_product([size_of(f) for f in _factors(self.source)])
        elif carried:
            carried = [shown(self.of.errors.of(self.source))]
        n = reduction_length(self.of.op) + len(factors)
        total = self.reduced(size)
        starts = [x for x in self.body.init[self.k : self.k + 1]]
        total = shown(plus(total, *[magnitude(x) for x in starts]))
        most = Binary("*", total, Const(PARTS_GROW, REAL)) if self._in_parts else total
        own = where(overflows(most, self.source.dtype), INFINITE, self._added(n, total))
        lost = Const(2 * n * least(self.source.dtype), REAL)
        return plus(*[self.reduced(e) for e in carried], *[self.of.errors.of(x) for x in starts], own, lost)

    @property
    def _cuts(self) -> bool:
        """Whether it sums up products of two floats, which the precision may be about."""
        return self.of.precision in CUT and self.source.dtype == "float32" and len(_factors(self.source)) == 2

    @property
    def _in_parts(self) -> bool:
        return self._cuts and self.of.precision == FP32X3

    def _cut(self, factor: Expr) -> Expr | None:
        """What a factor of a sum of products loses where it may be read as TF32, or in two parts.

        Shares of a whole in bfloat16 may be rounded before they are divided.
        """
        if isinstance(factor, Cast) and factor.a.dtype == "bfloat16" and _is_quotient(factor):
            return Binary("*", magnitude(factor), Const(unit(factor.a.dtype), REAL))
        exact = isinstance(factor, Cast) and factor.a.dtype in (*SMALL_FLOATS, "float16")
        if not self._cuts or exact:  # all factors are float32
            return None
        size, cut = magnitude(factor), Const(CUT[self.of.precision], REAL)
        cut_there = where(Compare(">", size, Const(BIG, REAL)), Const(CUT_BEYOND, REAL), cut)
        in_parts = plus(Binary("*", size, cut_there), Const(least("float32"), REAL))
        return in_parts if self._in_parts else Binary("*", size, cut)

    def _added(self, n: int, total: Expr) -> Expr:
        """What `n` additions of terms of the magnitude `total` in all may be off by."""
        kinds = [f.a.dtype if isinstance(f, Cast) else f.dtype for f in _factors(self.source)]
        short = self.source.dtype == "float32" and len(kinds) == 2 and {*kinds} <= {*FLOATS_OF_8_BITS}
        u, noise = SHORT if short else unit(self.source.dtype), 0.0 if self._in_parts else NOISE
        worst = Binary("*", magnitude(total), Const(u * min(float(n), SPREAD * math.sqrt(n)), REAL))
        if SPREAD * u * n <= noise:  # sum |terms| is at most sqrt(n) times the root of the sum of squares
            return worst
        squares = self.reduced(math_product([f for g in _factors(self.source) for f in (size_of(g), size_of(g))]))
        level = Binary("+", magnitude(self.value), Call("sqrt", (magnitude(squares),), REAL))
        return Binary("min", worst, Binary("*", level, Const(max(noise, SPREAD / 2 * u * math.sqrt(n)), REAL)))

    def _product(self, error: Expr | None) -> Expr | None:
        """Each factor widened by its error and two roundings, less the factors as they are."""
        size = magnitude(self.source)
        grown = Binary("*", shown(plus(size, error)), Const(1 + 2 * unit(self.source.dtype), REAL))
        widened, plain = [self.of.read(prod_reduce(x, self.body.axes, self.body.condition)) for x in (grown, size)]
        highest = self.of.read(prod_reduce(Binary("max", grown, Const(1.0, REAL)), self.body.axes, self.body.condition))
        error = plus(Binary("-", widened, plain), rounding(self.value, size_of(self.value)))
        return where(overflows(highest, self.source.dtype), INFINITE, error)

    def _first(self, exact: bool) -> Expr | None:
        """The index (0) or value (1) of an argmax or argmin; the index is open where another value is near the best."""
        value, best = self.body.sources[1], self.of.op.output(1)[self.of.op.axis]
        error = self.of.errors.of(value)
        widest = self._largest(unless_nan(error, value))
        if self.k == 1 or exact or error is None or widest is None:
            return widest if self.k == 1 else uncertain(widest)
        near = Compare("<=", size_of(Binary("-", value, best)), Binary("+", error, widest))
        count = self.reduced(Cast(REAL, near))
        return where(Compare(">", count, Const(1.0, REAL)), uncertain(widest), None)

    def _moment(self) -> Expr | None:
        """Of counts, means or squared distances; see the module."""
        (count, mean, far), u = self.body.sources, unit(self.source.dtype)
        n = reduction_length(self.of.op)
        grown = Const(u * (min(float(n), SPREAD * math.sqrt(n)) + TOGETHER), REAL)
        whole, middle, _ = [self.of.op.output(k)[self.of.op.axis] for k in range(3)]
        miscounted = self._carried(self.of.errors.of(count))
        if self.k == 0:
            own = where(Compare("<=", whole, Const(1 / u, REAL)), None, Binary("*", magnitude(whole), grown))
            return plus(miscounted, own)
        weight = magnitude(count)
        moved = self.of.errors.of(mean)
        sizes, squares = [self.reduced(math_product([weight, *[size_of(mean)] * k])) for k in (1, 2)]
        off = plus(self._carried(times(weight, moved)), Binary("*", sizes, grown))
        off = Binary("/", shown(plus(off, times(miscounted, size_of(middle)))), magnitude(whole))
        if self.k == 1:
            return off
        apart = shown(plus(off, self._largest(moved)))
        own = Binary("*", shown(plus(self.reduced(size_of(far)), squares)), grown)
        crossed = Binary("*", Binary("*", Const(4.0, REAL), apart), sizes)
        return plus(self._carried(self.of.errors.of(far)), own, crossed, math_product([magnitude(whole), apart, apart]))

    def _carried(self, error: Expr | None) -> Expr | None:
        return None if error is None else self.reduced(error)

    def _step_by_step(self, carried: Sequence[Expr | None]) -> Expr:
        """Of a reducer that nothing is known of: values are folded together with their errors.

        The reference folds by halves, in `log2(n)` rounds; other orders add up the errors of more steps, as above.
        """
        body, known, n = self.body, self.body.combiner, reduction_length(self.of.op)
        x, y = ([Var(f"{v.name}.error", REAL) for v in side] for side in (known.lhs, known.rhs))
        errors = Errors(self.of.errors.tensors, dict(zip((*known.lhs, *known.rhs), (*x, *y), strict=True)))
        result = (*known.result, *[shown(errors.of(e)) for e in known.result])
        identity = (*known.identity, *[NOTHING for _ in x])
        both = Combiner(f"{known.name}.error", (*known.lhs, *x), (*known.rhs, *y), result, identity)
        sources, starts = (*body.sources, *map(shown, carried[: len(x)])), (*body.init, *map(shown, carried[len(x) :]))
        outputs = [Reduce(both, sources, body.axes, body.condition, k, starts) for k in range(2 * len(x))]
        folded = make_compute(f"{self.of.op.name}.error", self.of.op.axis, tuple(outputs), object())
        steps = max(1.0, min(float(n), SPREAD * math.sqrt(n)) / max(1.0, math.log2(n)))
        return Binary("*", folded.output(len(x) + self.k)[self.of.op.axis], Const(steps, REAL))


def _unconverted(e: Expr) -> Expr:
    """An operation on a stored dtype without its conversions, which the same operands follow."""
    if isinstance(e, Cast) and isinstance(e.a, Binary) and e.dtype in STORED:
        return Binary(e.a.op, *[x.a if isinstance(x, Cast) and x.a.dtype == e.dtype else x for x in (e.a.a, e.a.b)])
    return e


def _is_quotient(e: Expr) -> bool:
    if isinstance(e, Load) and isinstance(e.tensor.op, ComputeOp):
        return _is_quotient(e.tensor.op.body[e.tensor.value_index])
    return _is_quotient(e.a) if isinstance(e, Cast) else isinstance(e, Binary) and e.op == "/"


def math_product(factors: Sequence[Expr]) -> Expr:
    """The product of expressions, as one expression."""
    return reduce(partial(Binary, "*"), factors)


def _factors(e: Expr) -> list[Expr]:
    return [*_factors(e.a), *_factors(e.b)] if isinstance(e, Binary) and e.op == "*" else [e]
