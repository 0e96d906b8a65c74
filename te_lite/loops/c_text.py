"""Expressions as text of the C family, for every backend that emits C or a dialect of it.

A `Dialect` says what differs between C and its relatives (type names, how a helper function is declared).  `CText`
prints expressions with the fewest brackets that C's precedence allows.  Floor division and modulo become `/` and
`%` where the operands cannot be negative; everything C lacks (floor division, minimum, integer power ...) goes
through small typed helper functions, and `CText.helpers` collects the text of those that were used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ExprError, require
from ..expr.dtype import BYTES, STORED, is_unsigned
from ..expr.expr import FLOATS, Binary, BufferLoad, Call, Cast, Compare, Const, Expr, Logical, Not, Select, Var
from ..expr.interval import INDEX_DTYPES, dtype_interval
from ..expr.intrinsics import CALLS
from .stored_text import bits_of, helper_body
from .width import Widths

TYPES = {
    "bool": "bool", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t", "uint64": "uint64_t",
    "float16": "_Float16", "float32": "float", "float64": "double",
} | {dtype: f"uint{8 * BYTES[dtype]}_t" for dtype in STORED}  # fmt: skip
SHORT = {
    "bool": "b8", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
} | {dtype: dtype for dtype in STORED if dtype != "bfloat16"}  # fmt: skip
NARROW_INTS = ("int8", "uint8", "int16", "uint16")

TERNARY, OR, AND, EQUAL, LESS, ADD, MUL, UNARY, POSTFIX = 3, 4, 5, 9, 10, 12, 13, 14, 15
_LEVEL = {"+": ADD, "-": ADD, "*": MUL, "/": MUL, "//": MUL, "%": MUL, "&&": AND, "||": OR}

_DIVISIONS = {"/": "truncdiv", "//": "floordiv", "%": "floormod"}


@dataclass(frozen=True)
class Dialect:
    """One member of the C family: type names by dtype, unsigned types of the same bits, words before a helper."""

    name: str
    types: Mapping[str, str]
    unsigned: Mapping[str, str]
    helper: str


C = Dialect("C", TYPES, {d: f"u{t}" for d, t in TYPES.items() if d.startswith("int")}, "static inline")


def literal(value: int | float | bool, dtype: str, dialect: Dialect = C) -> str:
    """A constant of `dtype` as C text; infinities and NaN by their macros of math.h."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in STORED:
        return str(bits_of(value, dtype))
    if dtype not in FLOATS:
        number = int(value)
        if dtype == "int64":
            return f"(-INT64_C({2**63 - 1}) - 1)" if number == -(2**63) else f"INT64_C({number})"
        if dtype in ("uint32", "uint64"):
            return f"UINT{dtype[4:]}_C({number})"
        return "(-2147483647 - 1)" if number == -(2**31) else str(number)
    number_f = float(value)
    if math.isnan(number_f):
        text = "NAN"
    elif math.isinf(number_f):
        text = "INFINITY" if number_f > 0 else "-INFINITY"
    else:
        text = repr(number_f) + ("" if dtype == "float64" else "f")
    return f"({dialect.types[dtype]}){text}" if dtype == "float16" else text


def _subtracted(c: Const) -> bool:
    """Whether adding the constant is written as a subtraction: it is negative, and its opposite is a number of C."""
    lowest = -math.inf if c.dtype in FLOATS else -(1 << (8 * BYTES[c.dtype] - 1))
    return lowest < c.value < 0 and c.dtype not in NARROW_INTS


def _helper_body(name: str, dtype: str, dialect: Dialect) -> str:
    t, u = dialect.types[dtype], dialect.unsigned.get(dtype, dialect.types[dtype])
    head, signed = f"{t} {name}_{SHORT[dtype]}({t} a, {t} b) ", not is_unsigned(dtype)
    suffix = "" if dtype == "float64" else "f"
    special = "b == 0 ? 0 : " + (f"b == -1 ? ({t})(0 - ({u})a) : " if signed else "")
    match name:
        case "min" | "max":
            sign = "<" if name == "min" else ">"
            test = f"(a {sign} b) | (a != a)" if dtype in FLOATS else f"a {sign} b"
            return f"{head}{{ return {test} ? a : b; }}"
        case "floordiv" | "floormod" if dtype in FLOATS:
            return f"{head}{{ {_float_floor(name, t, suffix)} }}"
        case "floordiv":
            return f"{head}{{ return a / b - (a % b != 0 && (a < 0) != (b < 0)); }}"
        case "floormod":
            return f"{head}{{ return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); }}"
        case "floordiv0":
            return f"{head}{{ return {special}a / b - (a % b != 0 && (a < 0) != (b < 0)); }}"
        case "floormod0":
            special = f"b == 0{' || b == -1' if signed else ''} ? 0 : "
            return f"{head}{{ return {special}a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); }}"
        case "truncdiv0":
            return f"{head}{{ return {special}a / b; }}"
        case "abs":
            return f"{t} abs_{SHORT[dtype]}({t} a) {{ return a < 0 ? ({t})(0 - ({u})a) : a; }}"
        case "pow":
            hidden = "__attribute__((noinline)) " if dialect is C else ""
            return f"{hidden}{head}{{ return pow{suffix}(a, b); }}"
        case "root" | "square":
            power = "a * a" if name == "square" else f"a == -INFINITY ? INFINITY : sqrt{suffix}(a + 0.0{suffix})"
            return f"{t} {name}_{SHORT[dtype]}({t} a) {{ return {power}; }}"
        case "ipow":
            negative = "if (b < 0) return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? a : 0; " if signed else ""
            square = f"for (; b > 0; b /= 2, x = ({u})(1u * x * x)) if (b % 2) out = ({u})(1u * out * x);"
            return f"{head}{{ {negative}{u} out = 1, x = ({u})a; {square} return ({t})out; }}"
        case "decode" | "encode":
            return helper_body(name, f"{name}_{SHORT[dtype]}", dtype, dialect.types[STORED[dtype]], t)
        case "f32_to" | "f64_to":
            return f"{t} {name}_{SHORT[dtype]}({dialect.types[FLOAT_OF[name]]} x) {{ {_saturated(name, dtype, t)} }}"
    raise ExprError(f"helper: no helper function is called {name!r}")


def _float_floor(name: str, t: str, f: str) -> str:
    """The quotient of floats rounded down, or what is left of it, as Python has them; `fmod` is exact."""
    left, other = f"{t} m = fmod{f}(a, b); ", "m != 0 && (b < 0) != (m < 0)"
    if name == "floormod":
        return f"{left}return {other} ? m + b : m == 0 ? copysign{f}(m, b) : m;"
    quotient = f"{t} q = (a - m) / b - ({other}), n = floor{f}(q); "
    return f"{left}{quotient}return b == 0 ? a / b : q == 0 ? copysign{f}(q, a / b) : n + (q - n > 0.5{f});"


FLOAT_OF = {"f32_to": "float32", "f64_to": "float64"}


def ends(dtype: str, source: str) -> tuple[str, str, str, str]:
    """The lowest and the highest value of an integer dtype as C text; then the lowest one, and the first one above
    all, as text of the float dtype `source`."""
    low, high = (int(end) for end in dtype_interval(dtype))
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
    least = f"(-{high}{suffix} - 1)" if low else "0"
    return least, f"{high}{suffix}", literal(low, source), literal(high + 1, source)


def _saturated(name: str, dtype: str, t: str) -> str:
    """The integer nearest to `x` without its fraction; 0 for NaN.

    Between -1 and 1 nothing is converted: gcc 12 makes `truncf(x)` of `(float)(int)x`, which is -0.0 for -0.5.
    """
    least, most, low, above = ends(dtype, FLOAT_OF[name])
    return f"return x >= {above} ? {most} : x <= {low} ? {least} : x * x >= 1 ? ({t})x : 0;"


_BIT_CALLS = {"bit_and": "&", "bit_or": "|", "bit_xor": "^", "index_xor": "^"}

NonNegative = Callable[[Expr], bool]


@dataclass
class CText:
    """Prints expressions of one function.

    `var` and `load` name variables and memory reads, `nonnegative(e)` says whether an integer expression is proven
    to be >= 0, `widths` which of them need 64 bits.
    """

    var: Callable[[Var], str]
    load: Callable[[BufferLoad], str]
    nonnegative: NonNegative
    widths: Widths
    dialect: Dialect = C
    helpers: dict[str, str] = field(default_factory=dict)

    def expr(self, e: Expr, level: int = 0) -> str:
        """The text of `e`, bracketed when it binds weaker than `level`; index arithmetic may be one of 64 bits."""
        text, own = self._text(self.widths.wide(e))
        return f"({text})" if own < level else text

    def call_helper(self, name: str, dtype: str, *args: str) -> str:
        """A call of the helper `name` for `dtype`, whose definition is recorded in `helpers`."""
        key = f"{name}_{SHORT[dtype]}"
        if key not in self.helpers:
            self.helpers[key] = f"{self.dialect.helper} {_helper_body(name, dtype, self.dialect)}"
        return f"{key}({', '.join(args)})"

    def _text(self, e: Expr) -> tuple[str, int]:
        match e:
            case Var():
                return self.var(e), POSTFIX
            case Const(value=value, dtype=dtype):
                text = literal(value, dtype, self.dialect)
                return text, UNARY if text[0] == "-" or dtype == "float16" else POSTFIX
            case BufferLoad():
                return self.load(e), POSTFIX
            case Binary():
                return self._binary(e)
            case Compare(op=op, a=a, b=b):
                own = EQUAL if op in ("==", "!=") else LESS
                return f"{self.expr(a, own + 1)} {op} {self.expr(b, own + 1)}", own
            case Logical(op=op, a=a, b=b):
                own = _LEVEL[op]
                inner = own if op == "&&" else AND + 1
                return f"{self.expr(a, own)} {op} {self.expr(b, inner)}", own
            case Not(a=a):
                return f"!{self.expr(a, UNARY)}", UNARY
            case Select(cond=cond, a=a, b=b) | Call(func="if_then_else", args=(cond, a, b)):
                test, then = self.expr(cond, TERNARY + 1), self.expr(a, TERNARY + 1)
                return f"{test} ? {then} : {self.expr(b, TERNARY)}", TERNARY
            case Cast(dtype="bool", a=a):
                return f"{self.expr(a, EQUAL + 1)} != 0", EQUAL
            case Cast(dtype=dtype, a=a) if a.dtype in STORED:
                return self.call_helper("decode", a.dtype, self.expr(a)), POSTFIX
            case Cast(dtype=dtype, a=a) if dtype in STORED:
                return self.call_helper("encode", dtype, self.expr(a)), POSTFIX
            case Cast(dtype=dtype, a=Var() as a) if {dtype, a.dtype} <= {*INDEX_DTYPES}:
                return f"({self.dialect.types[dtype]}){self.var(a)}", UNARY
            case Cast(dtype=dtype, a=a) if a.dtype in FLOATS and dtype not in FLOATS:
                return self.call_helper(f"f{64 if a.dtype == 'float64' else 32}_to", dtype, self._as_float(a)), POSTFIX
            case Cast(dtype=dtype, a=a):  # gcc takes no conversion of an integer for infinite
                by = "(float)" if dtype == "float16" and a.dtype not in FLOATS else ""
                return f"({self.dialect.types[dtype]}){by}{self.expr(a, UNARY)}", UNARY
            case Call():
                return self._call(e)
        raise ExprError(f"C text: a {type(e).__name__} node cannot be printed, it must be lowered first")

    def _binary(self, e: Binary) -> tuple[str, int]:
        op, a, b, dtype = e.op, e.a, e.b, e.dtype
        if op in ("min", "max"):
            if isinstance(b, Const) and dtype in FLOATS:
                a, b = b, a  # a NaN in the second place costs no test of its own
            return self.call_helper(op, dtype, self.expr(a), self.expr(b)), POSTFIX
        if op in ("//", "%") and dtype in FLOATS:
            return self._float_floor(op, a, b, dtype)
        if op in _DIVISIONS and dtype not in FLOATS and (name := self._division(op, a, b)):
            return self.call_helper(name, dtype, self.expr(a), self.expr(b)), POSTFIX
        if op == "*" and isinstance(b, Const) and b.value == -1:
            text, own = f"-{self.expr(a, POSTFIX)}", UNARY
        elif op == "+" and isinstance(b, Const) and _subtracted(b):
            text, own = f"{self.expr(a, ADD)} - {literal(-b.value, dtype, self.dialect)}", ADD
        else:
            own = _LEVEL[op]
            text = f"{self.expr(a, own)} {'/' if op == '//' else op} {self.expr(b, own + 1)}"
        if dtype in NARROW_INTS:
            return f"({self.dialect.types[dtype]})({text})", UNARY
        return text, own

    def _division(self, op: str, a: Expr, b: Expr) -> str:
        """The helper for a division of integers; none where C's operator gives the same."""
        lo, hi = self.widths.range(b)[0]
        if lo <= 0 <= hi or (lo <= -1 <= hi and a.dtype not in NARROW_INTS):
            return f"{_DIVISIONS[op]}0"
        plain = op == "/" or is_unsigned(a.dtype) or (self.nonnegative(a) and self.nonnegative(b))
        return "" if plain else _DIVISIONS[op]

    def _float_floor(self, op: str, a: Expr, b: Expr, dtype: str) -> tuple[str, int]:
        wide = "float32" if dtype == "float16" else dtype
        text = self.call_helper(_DIVISIONS[op], wide, self._as_float(a), self._as_float(b))
        return (f"({self.dialect.types[dtype]}){text}", UNARY) if wide != dtype else (text, POSTFIX)

    def _call(self, e: Call) -> tuple[str, int]:
        dtype = e.args[0].dtype
        if e.func == "isnan":
            return f"isnan({self._as_float(e.args[0])})" if dtype in FLOATS else literal(False, "bool"), POSTFIX
        if e.func == "pow" and dtype not in FLOATS:
            return self.call_helper("ipow", dtype, *map(self.expr, e.args)), POSTFIX
        if dtype not in FLOATS:
            return self._int_call(e)
        text, own = self.function(e, [self._as_float(a) for a in e.args])
        if dtype == "float16":
            text, own = f"({self.dialect.types[dtype]})({text})", UNARY
        return text, own

    def function(self, e: Call, args: Sequence[str]) -> tuple[str, int]:
        """The text of a function of floats and how tightly it binds; `args` are float32 where those of `e` are float16.

        Raises ExprError for a function that C has not.
        """
        f = "" if e.args[0].dtype == "float64" else "f"
        if e.func == "pow":
            return self._power(e, args, f), POSTFIX
        require(e.func in CALLS, ExprError, "C text", "the function has no C text", func=e.func)
        text = CALLS[e.func].text(args[0], f, self.dialect.name)
        return text, MUL if text.startswith("1.0") else POSTFIX

    def _power(self, e: Call, args: Sequence[str], f: str) -> str:
        """A power of floats.

        In vectors gcc takes `pow(x, 0.5)` for the square root, which departs at -inf and -0.0 (its
        `vect_recog_pow_pattern`), so it must not see that exponent, nor one that it may come to know.
        """
        dtype = "float32" if f else "float64"
        match e.args[1]:
            case Const(value=0.5):
                return self.call_helper("root", dtype, args[0])
            case Const(value=2.0) if self.dialect is not C:  # compilers of C see it themselves
                return self.call_helper("square", dtype, args[0])
            case Const():
                return f"pow{f}({', '.join(args)})"
        return self.call_helper("pow", dtype, *args)

    def _as_float(self, e: Expr) -> str:
        return f"(float)({self.expr(e)})" if e.dtype == "float16" else self.expr(e)

    def _int_call(self, e: Call) -> tuple[str, int]:
        a = e.args[0]
        if e.func in _BIT_CALLS:
            text = f"({self.expr(a)}) {_BIT_CALLS[e.func]} ({self.expr(e.args[1])})"
            return f"({self.dialect.types[a.dtype]})({text})", UNARY
        if CALLS[e.func].whole:
            return self._text(a)
        require(e.func == "abs", ExprError, "C text", "the function has no text for integers", func=e.func)
        if is_unsigned(a.dtype):
            return self._text(a)
        if a.dtype not in NARROW_INTS:  # not C's abs: gcc makes abs(x * c) of abs(x) * c, which wraps otherwise
            return self.call_helper("abs", a.dtype, self.expr(a)), POSTFIX
        return f"({self.dialect.types[a.dtype]})abs({self.expr(a)})", UNARY
