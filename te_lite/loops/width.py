"""How many bits index arithmetic needs: decided here, and read by every emitter and by the interpreter.

*Index arithmetic* is what is made of loop variables and integer constants only, without `floor`, `ceil`, `round` and
`trunc`, which are the identity on integers and make data of them (`te_lite/bounds/reads.py`).  It has the values of
Python's integers: whatever part of it does not fit 32 bits for some value of the loop variables is computed in 64 bits,
and what does not fit 64 bits is refused.  *Data arithmetic* reads memory, or has a dtype other than int32 and int64:
each operation wraps around to its dtype, operands that are index arithmetic are converted first (comparisons need not).

Passes over programs work on index arithmetic without regard to bits.  Widths are decided on the expression that is
printed or run, so no pass can move an intermediate value out of range afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import LowerError, require
from ..expr.constant_folding import wrapped
from ..expr.expr import FLOATS, INDEX, Binary, BufferLoad, Call, Cast, Compare, Const, Expr, Select, Var
from ..expr.interval import EVERYTHING, INDEX_DTYPES, Interval, binary_interval, dtype_interval, union, xor_interval
from ..expr.visit import children, is_data, rebuild
from .stmt import For, Stmt, stmts_of

WIDE = "int64"
MOST = 2**63 - 1
_SAME = ("floor", "ceil", "round", "trunc")


def fits(x: Interval, dtype: str) -> bool:
    """Whether `dtype` has all integers of an interval."""
    lo, hi = dtype_interval(dtype)
    return lo <= x[0] and x[1] <= hi


def counter_dtype(extent: int, step: int = 1) -> str:
    """The dtype of the variable of a loop: it reaches its extent, or stops less than a step behind it."""
    return INDEX if fits((0, extent + step - 1), INDEX) else WIDE


class Widths:
    """The widths of the expressions of one program, from the ranges of its loop variables.

    `wide_counters`: the emitter declares all loop variables with 64 bits.  Index arithmetic has the same values then,
    and is converted to its dtype where it becomes an operand of data arithmetic.
    Results are remembered by the identity of expressions, which are kept alive.
    """

    def __init__(self, ranges: Mapping[Var, Interval] | None = None, wide_counters: bool = False) -> None:
        self._ranges, self._wide_counters = dict(ranges or {}), wide_counters
        self._known: dict[int, tuple[Expr, Interval, bool]] = {}
        self._done: dict[int, tuple[Expr, Expr]] = {}

    @classmethod
    def of(cls, body: Stmt, wide_counters: bool = False) -> Widths:
        """Those of a program: every loop variable runs from 0 to its extent.  Raises LowerError over 63 bits."""
        out = cls(wide_counters=wide_counters)
        for s in stmts_of(body):
            if isinstance(s, For):
                out.bind(s.var, s.extent)
        return out

    def bind(self, var: Var, extent: int) -> None:
        """Learn of a loop `0 <= var < extent`; of several loops with one variable the longest counts."""
        require(extent <= MOST, LowerError, var.name, "a loop counts in 64 bits", extent=extent)
        last = max(extent - 1, 0)
        old = self._ranges.get(var)
        if old is None or old[1] < last:
            self._ranges[var] = (0, last)
            self._known.clear()
            self._done.clear()

    def counter(self, var: Var, step: int = 1) -> str:
        """The dtype of the loop variable `var`, which advances by `step`."""
        return counter_dtype(int(self._ranges[var][1]) + 1, step) if var in self._ranges else var.dtype

    def wide(self, e: Expr) -> Expr:
        """`e`, computed in 64 bits where it needs them; an int32 expression may become one of int64.

        Raises LowerError for index arithmetic that does not fit 64 bits.
        """
        hit = self._done.get(id(e))
        if hit is None:
            out = self._widened(e)
            self._done[id(e)] = hit = (e, out)
            self._done[id(out)] = (out, out)
        return hit[1]

    def value(self, e: Expr) -> Expr:
        """`wide(e)` in the dtype of `e`: as a value that is stored, or an operand of data arithmetic."""
        out = self.wide(e)  # what is a constant or a cast has its dtype as it is printed
        counts = self._wide_counters and e.dtype == INDEX and not isinstance(e, Const | Cast) and self.range(e)[1]
        return Cast(INDEX, out) if counts else _narrow(out, e.dtype)

    def needs_more(self, e: Expr) -> bool:
        """Whether `e`, or an operand of it, is index arithmetic of more than 32 bits."""
        kids = () if isinstance(e, BufferLoad) else children(e)
        return any(x.dtype == INDEX and self.wide(x).dtype != INDEX for x in (e, *kids))

    def may_wrap(self, e: Binary) -> bool:
        """Whether a sum, difference or product of integers may leave its dtype."""
        return not fits(binary_interval(e.op, self.range(e.a)[0], self.range(e.b)[0]), e.dtype)

    # ------------------------------------------------------------------------------------------------ ranges

    def range(self, e: Expr) -> tuple[Interval, bool]:
        """The values that an expression may have, and whether it is index arithmetic."""
        hit = self._known.get(id(e))
        if hit is None:
            values, exact = self._range(e)
            exact = exact and e.dtype in INDEX_DTYPES
            if exact and e.dtype == INDEX:
                require(fits(values, WIDE), LowerError, "index arithmetic", "must fit 64 bits", expression=e)
            elif not fits(values, e.dtype):
                values, exact = dtype_interval(e.dtype), False
            hit = self._known[id(e)] = (e, values, exact)
        return hit[1], hit[2]

    def _range(self, e: Expr) -> tuple[Interval, bool]:
        """As `range`, before what is not index arithmetic wraps."""
        if e.dtype in FLOATS:
            return EVERYTHING, False
        match e:
            case Const(value=value):
                return (int(value), int(value)), True
            case Var() if known := self._ranges.get(e, e.range):
                return known, True
            case Binary(op=op, a=a, b=b):
                (x, first), (y, second) = self.range(a), self.range(b)
                return _arithmetic(op, x, y), first and second
            case Select(cond=cond, a=a, b=b) | Call(func="if_then_else", args=(cond, a, b)):
                (x, first), (y, second) = self.range(a), self.range(b)
                return union(x, y), first and second and not is_data(cond)
            case Cast(a=a) if a.dtype not in FLOATS:
                values, exact = self.range(a)
                return values, exact and fits(values, e.dtype)
            case Call(func="index_xor", args=(a, b)):
                (x, first), (y, second) = self.range(a), self.range(b)
                return xor_interval(x, y), first and second
            case Call(func="abs", args=(a,)):
                (lo, hi), exact = self.range(a)
                return (max(lo, -hi, 0), max(-lo, hi)), exact
            case Call(func=func, args=(a,)) if func in _SAME:
                return self.range(a)[0], False
        return dtype_interval(e.dtype), False

    # ------------------------------------------------------------------------------------------------ widths

    def _widened(self, e: Expr) -> Expr:
        kids = children(e)
        if self._wide_counters and isinstance(e, Cast) and e.dtype in FLOATS and fits(self.range(e.a)[0], e.a.dtype):
            return rebuild(e, (self.value(e.a),))  # processors convert vectors of 32 bits faster, or those alone
        if isinstance(e, Cast) and isinstance(e.a, Var):
            return e
        if not kids:
            return _to_wide(e) if e.dtype == INDEX and not fits(self.range(e)[0], INDEX) else e
        new = tuple([self.wide(k) for k in kids])
        more = any(x.dtype != k.dtype for x, k in zip(new, kids, strict=True))
        if isinstance(e, BufferLoad | Cast):
            return rebuild(e, new)
        if isinstance(e, Compare):
            return rebuild(e, tuple(map(_to_wide, new)) if more else new)
        values, exact = self.range(e) if e.dtype == INDEX else (EVERYTHING, False)
        if exact:
            return _in_64_bits(e, new) if more or not fits(values, INDEX) else rebuild(e, new)
        return rebuild(e, tuple(map(self.value, kids)))


def _arithmetic(op: str, x: Interval, y: Interval) -> Interval:
    """The range of `x op y`, where a division by zero gives 0."""
    if op not in ("/", "//", "%") or (y[0] > 0 and (op != "/" or x[0] >= 0)):
        return binary_interval(op, x, y)
    if op == "%":
        return min(y[0] + 1, 0), max(y[1] - 1, 0)
    most = max(abs(x[0]), abs(x[1]))
    return -most, most


def _in_64_bits(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """The int32 node `e` over the operands `new` as one of int64; conditions stay what they are."""
    operands = tuple([x if x.dtype == "bool" else _to_wide(x) for x in new])
    return Call(e.func, operands, WIDE) if isinstance(e, Call) else rebuild(e, operands)


def _to_wide(e: Expr) -> Expr:
    if isinstance(e, Const):
        return Const(int(e.value), WIDE)
    return e if e.dtype == WIDE else Cast(WIDE, e)


def _narrow(e: Expr, dtype: str) -> Expr:
    if e.dtype == dtype:
        return e
    return Const(wrapped(int(e.value), dtype), dtype) if isinstance(e, Const) else Cast(dtype, e)
