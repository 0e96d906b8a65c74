"""What the verifier knows of an integer expression: the least and the greatest value that it takes.

Variables run over the boxes of the loops around them.  An index is a number of Z here: `int32` and `int64` do not wrap
(the emitters choose a width that holds every value), narrower types take their whole range where they may wrap.  What
is read from memory or computed from floats takes the range of its dtype.  Nothing here is shared with the code that
infers bounds or simplifies indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..expr.expr import Binary, Call, Cast, Compare, Const, Expr, Logical, Not, Select, Var

Span = tuple[int, int]
"""The least and the greatest value."""

Boxes = Mapping[Var, Span]

INDICES = ("int32", "int64")
_RANGES: dict[str, Span] = (
    {"bool": (0, 1)}
    | {f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (4, 8, 16, 32, 64)}
    | {f"uint{bits}": (0, (1 << bits) - 1) for bits in (4, 8, 16, 32, 64)}
)
_WIDEST: Span = _RANGES["int64"]


def range_of(dtype: str) -> Span:
    """All values of an integer dtype, those of int64 for a float."""
    return _RANGES.get(dtype, _WIDEST)


def _product(a: Span, b: Span) -> Span:
    if a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], a[1] * b[1]
    ends = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(ends), max(ends)


def quotient_span(a: Span, b: Span) -> Span | None:
    if b[0] <= 0 <= b[1]:
        return None
    ends = (a[0] // b[0], a[0] // b[1], a[1] // b[0], a[1] // b[1])
    return min(ends), max(ends)


def remainder_span(a: Span, b: Span) -> Span | None:
    if b[0] <= 0 <= b[1]:
        return None
    if b[0] < 0:
        return b[0] + 1, 0
    same_period = b[0] == b[1] and a[0] // b[0] == a[1] // b[0]
    if same_period:
        return a[0] % b[0], a[1] % b[0]
    return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1


def _truncated(a: Span, b: Span) -> Span | None:
    return quotient_span(a, b) if a[0] >= 0 and b[0] > 0 else None


_LAWS: dict[str, Callable[[Span, Span], Span | None]] = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": _product,
    "//": quotient_span,
    "%": remainder_span,
    "/": _truncated,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
"""The range of an operation from those of its operands; None where they tell nothing."""


class Spans:
    """The spans of expressions over `boxes`, each looked at once and kept, so that it stays what it is."""

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes
        self._known: dict[int, tuple[Expr, Span]] = {}

    def of(self, e: Expr) -> Span:
        """The range of an expression of integers or bools."""
        if isinstance(e, Const):
            return int(e.value), int(e.value)
        if isinstance(e, Var):
            return self.boxes.get(e) or e.range or range_of(e.dtype)
        found = self._known.get(id(e))
        if found is None:
            found = self._known[id(e)] = (e, self._fitting(e))
        return found[1]

    def _fitting(self, e: Expr) -> Span:
        """What the operation gives; all values of its dtype where that is unknown, or wraps."""
        out = self._raw(e)
        if out is None:
            return range_of(e.dtype)
        if e.dtype in INDICES:
            return out
        low, high = range_of(e.dtype)
        return out if low <= out[0] and out[1] <= high else (low, high)

    def _raw(self, e: Expr) -> Span | None:
        match e:
            case Binary(op=op, a=a, b=b):
                law = _LAWS.get(op)
                return None if law is None or a.dtype not in _RANGES else law(self.of(a), self.of(b))
            case Select(a=a, b=b) | Call(func="if_then_else", args=(_, a, b)):
                return self._either(a, b)
            case Call(func="index_xor", args=(a, b)):
                most = max(self.of(a)[1], self.of(b)[1])
                return (0, (1 << most.bit_length()) - 1) if min(self.of(a)[0], self.of(b)[0]) >= 0 else None
            case Cast(a=a):
                return self.of(a) if a.dtype in _RANGES and self._casts(e.dtype, a) else None
            case Compare() | Logical() | Not():
                return 0, 1
        return None

    def _either(self, a: Expr, b: Expr) -> Span | None:
        if a.dtype not in _RANGES:
            return None
        x, y = self.of(a), self.of(b)
        return min(x[0], y[0]), max(x[1], y[1])

    def _casts(self, dtype: str, a: Expr) -> bool:
        """Whether every value of `a` stays as it is."""
        (low, high), (least, most) = range_of(dtype), self.of(a)
        return low <= least and most <= high
