"""Random expressions of all dtypes, written as they are (nothing folded), and their meaning in NumPy.

The meaning is written here once more, from docs/arithmetic.md: it shares no code with te_lite but the classes of the
nodes.  It says, too, where a value is left open: a cast of a float that the integer has no room for, the sign of the
zero that min and max make of two zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from te_lite.expr.element import Buffer, BufferLoad, Load
from te_lite.expr.node import Binary, Call, Cast, Compare, Const, Expr, Logical, Not, Select, Var, binary, cast, compare
from te_lite.expr.visit import children, rebuild
from te_lite.expr.visit import with_children as copy
from tests.exact_division import each, quotient, remainder

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
Array = np.ndarray[Any, np.dtype[Any]]
Valued = tuple[Array, Array]  # values, and where they are defined


def special_values(dtype: str) -> Array:
    """The values at which laws break: zeros, ones, the ends of the range, infinities, NaN, denormals, some others."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in FLOATS:
        info = np.finfo(dtype)
        numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.min, 1, -1, info.smallest_subnormal, -info.tiny,
                   2.5, -2.5, 0.5, 3, -100.25, 7, 1000.5]  # fmt: skip
        return np.array(numbers, dtype)
    ends = np.iinfo(dtype)
    return np.array(
        [x for x in (0, 1, -1, ends.min, ends.max, ends.min + 1, 2, 3, -7, 100, 64) if x >= ends.min], dtype
    )


def lanes(seed: int, count: int) -> dict[str, Array]:
    """Special values of each dtype in random order, `count` of them."""
    rng = np.random.default_rng(seed)
    return {d: rng.choice(special_values(d), count) for d in DTYPES}


class Draw:
    """Draws expressions over one variable or load of each dtype, `leaves`.

    `separate` keeps float sums away from products: compilers contract those into one rounding, which is no folding.
    """

    def __init__(self, rng: np.random.Generator, leaves: Mapping[str, Expr], separate: bool = False) -> None:
        self.rng = rng
        self.leaves = leaves
        self.separate = separate

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def const(self, dtype: str) -> Const:
        value = self.pick([*special_values(dtype).tolist(), 0, 1])
        return Const(bool(value) if dtype == "bool" else float(value) if dtype in FLOATS else int(value), dtype)

    def expr(self, dtype: str, depth: int) -> Expr:
        if depth <= 0:
            return self.leaves[dtype] if self.rng.random() < 0.6 else self.const(dtype)
        kind = self.rng.random()
        if kind < 0.1:
            return Cast(dtype, self.expr(self.pick(DTYPES), depth - 1))
        if kind < 0.2:
            return Select(self.condition(depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))
        if kind < 0.25:
            args = self.condition(depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
            return Call("if_then_else", args, dtype)
        if dtype == "bool":
            return self.condition(depth)
        if kind < 0.35:
            return Call(self.pick(("abs", "floor", "ceil", "round", "trunc")), (self.expr(dtype, depth - 1),), dtype)
        return self.binary(dtype, depth)

    def binary(self, dtype: str, depth: int) -> Expr:
        op = self.pick(("+", "-", "*", "/", "//", "%", "min", "max"))
        a, b = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        if op in ("/", "//", "%") and dtype in INTEGERS and not isinstance(b, Const):
            b = Select(Compare(">", b, Const(0, dtype)), b, Const(3, dtype))
        if op in ("/", "//", "%") and isinstance(b, Const) and dtype in INTEGERS and b.value in (0, -1):
            b = Const(1, dtype)
        if self.separate and dtype in FLOATS and op in "+-" and any(_product(x) for x in (a, b)):
            op = "min"
        return Binary(op, a, b)

    def condition(self, depth: int) -> Expr:
        kind = self.rng.random()
        if depth <= 0:
            return self.leaves["bool"] if kind < 0.7 else self.const("bool")
        if kind < 0.2:
            return Not(self.condition(depth - 1))
        if kind < 0.45:
            return Logical(self.pick(("&&", "||")), self.condition(depth - 1), self.condition(depth - 1))
        dtype = self.pick(DTYPES)
        if kind < 0.5:
            return Call("isnan", (self.expr(self.pick(FLOATS), depth - 1),), "bool")
        a = self.expr(dtype, depth - 1)
        b = a if kind < 0.6 else self.expr(dtype, depth - 1)
        return Compare(self.pick(("<", "<=", ">", ">=", "==", "!=")), a, b)


def _product(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("*", "%")


_ROUND = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}
_TRUTH = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal,
          "!=": np.not_equal}  # fmt: skip


def meaning(e: Expr, env: Mapping[Any, Array]) -> Valued:
    """The values of `e` and where they are defined; `env` has arrays for variables, tensors and buffers."""
    with np.errstate(all="ignore"):
        return _meaning(e, env)


def _meaning(e: Expr, env: Mapping[Any, Array]) -> Valued:
    size = len(next(iter(env.values())))
    match e:
        case Var():
            return env[e], np.ones(size, bool)
        case Load(tensor=source) | BufferLoad(buffer=source):
            return env[source], np.ones(size, bool)
        case Const(value=value, dtype=dtype):
            return np.full(size, value).astype(dtype), np.ones(size, bool)
        case Binary(op=op, a=a, b=b):
            return _binary(op, e.dtype, _meaning(a, env), _meaning(b, env))
        case Compare(op=op, a=a, b=b):
            (x, p), (y, q) = _meaning(a, env), _meaning(b, env)
            return _TRUTH[op](x, y), p & q
        case Logical(op=op, a=a, b=b):
            (x, p), (y, q) = _meaning(a, env), _meaning(b, env)
            return (x & y, p & q) if op == "&&" else (x | y, p & q)
        case Not(a=a):
            x, p = _meaning(a, env)
            return ~x, p
        case Select(cond=c, a=a, b=b) | Call(func="if_then_else", args=(c, a, b)):
            (z, o), (x, p), (y, q) = _meaning(c, env), _meaning(a, env), _meaning(b, env)
            return np.where(z, x, y), o & p & q
        case Cast(dtype=dtype, a=a):
            return _cast(dtype, *_meaning(a, env))
        case Call(func=func, args=(a,)):
            x, p = _meaning(a, env)
            if func == "isnan":
                return np.isnan(x), p
            if func == "abs":
                return np.abs(x), p
            return (_ROUND[func](x) if x.dtype.kind == "f" else x), p
    raise TypeError(repr(e))


def _binary(op: str, dtype: str, a: Valued, b: Valued) -> Valued:
    (x, p), (y, q) = a, b
    ok = p & q
    if op in ("min", "max"):
        one, other = (x, y) if op == "max" else (y, x)
        if dtype not in FLOATS:
            return np.where(one > other, x, y), ok
        zeros = (x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))
        return np.where(np.isnan(x) | (one > other), x, y), ok & ~zeros
    if dtype in FLOATS:
        if op in ("//", "%"):
            return each(quotient if op == "//" else remainder, x, y), ok & (_whole(x / y) if op == "//" else True)
        return {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[op], ok
    exact = _exact(op, x.astype(object), y.astype(object))
    if dtype == "bool":
        return exact != 0, ok
    return np.array([int(v) & (2**64 - 1) for v in exact], np.uint64).astype(dtype), ok


def _whole(x: Array) -> Array:
    """Where a quotient rounded down has room in its dtype, and so is rounded once."""
    return np.asarray(~(np.abs(x) > 2.0 ** np.finfo(x.dtype).nmant) | np.isinf(x))


def _exact(op: str, x: Array, y: Array) -> Array:
    """Integers of any size; division by zero gives 0."""
    if op in ("+", "-", "*"):
        x, y = np.array([int(v) for v in x], object), np.array([int(v) for v in y], object)
        return {"+": x + y, "-": x - y, "*": x * y}[op]
    out = []
    for m, n in zip(map(int, x), map(int, y), strict=True):
        floor = m // n if n else 0
        whole = floor + 1 if n and floor < 0 and floor * n != m else floor
        out.append({"//": floor, "%": m - floor * n if n else 0, "/": whole}[op])
    return np.array(out, object)


def _cast(dtype: str, x: Array, ok: Array) -> Valued:
    if x.dtype.kind == "f" and dtype in INTEGERS:
        ends = np.iinfo(dtype)
        whole = [int(v) if np.isfinite(v) else ends.max + 1 for v in x]
        fits = np.array([ends.min <= v <= ends.max for v in whole])
        return np.where(fits, [v if f else 0 for v, f in zip(whole, fits, strict=True)], 0).astype(dtype), ok & fits
    return (x != 0 if dtype == "bool" else x.astype(dtype)), ok


def folded(e: Expr) -> Expr:
    """`e` built by the folding constructors from its leaves up."""
    match e:
        case Var() | Const() | BufferLoad():
            return e
        case Binary(op=op, a=a, b=b):
            return binary(op, folded(a), folded(b))
        case Compare(op=op, a=a, b=b):
            return compare(op, folded(a), folded(b))
        case Cast(dtype=dtype, a=a):
            return cast(dtype, folded(a))
    return rebuild(copy(e, children(e)), tuple([folded(k) for k in children(e)]))


def equal_where_defined(got: Array, want: Array, ok: Array, strict_zeros: bool = True) -> bool:
    """Equality of the defined lanes: NaN equals NaN, and zeros of different sign differ (if `strict_zeros`)."""
    got, want = got[ok], want[ok]
    same = (got == want) | ((got != got) & (want != want))
    if got.dtype.kind == "f" and strict_zeros:
        same &= (got != 0) | (np.signbit(got) == np.signbit(want))
    return bool(got.dtype == want.dtype and same.all())


def loads(count: int) -> tuple[list[Buffer], Any]:
    """A buffer of each dtype, and the leaves that read them at an index."""
    buffers = [Buffer(f"in_{d}", d, (count,)) for d in DTYPES]
    return buffers, lambda index: {b.dtype: BufferLoad(b, index) for b in buffers}
