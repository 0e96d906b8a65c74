"""Expressions inside a vector loop as text in the vector extension of gcc and clang."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from te_lite.expr.dtype import BYTES, INTEGER_BITS
from te_lite.expr.expr import FLOATS, Binary, BufferLoad, Call, Cast, Const, Expr, Select, Var, const
from te_lite.expr.visit import children, substitute
from te_lite.loops.c_text import ADD, AND, MUL, NARROW_INTS, POSTFIX, SHORT, TERNARY, TYPES, UNARY, CText, ends

from .functions import function_name
from .gather import plan_gather
from .halves import conversion
from .indices import Indices, Linear
from .masks import mask_text, numbers
from .transpose import turning_rounds
from .vectorize import has_vector_form

MOST_INLINED = 8
"""Calls of a long function that a program writes out: compilers take time for each, a call saves some registers."""
_LONG = frozenset(("exp", "exp2", "log", "log2", "tanh", "erf", "sigmoid", "pow"))


def room(lanes: int) -> int:
    """The lanes of the vector type that holds so many: the next power of two."""
    return 1 << (lanes - 1).bit_length()


def in_part(lanes: int) -> bool:
    """Some lanes of the vector are not used: it must be read and written under a mask."""
    return room(lanes) != lanes


def vector_type(dtype: str, lanes: int) -> str:
    return f"{SHORT[dtype]}x{lanes}"


def _pick(name: str, dtype: str, lanes: int) -> str:
    """Minimum, maximum or a choice, lane by lane: comparisons give masks of ones and zeros, and a NaN wins."""
    v, sign = vector_type(dtype, lanes), "<" if name == "min" else ">"
    mask = f"i{8 * BYTES[dtype]}x{lanes}"
    nan = f" | ({mask})(a != a)" if dtype in FLOATS else ""
    given, m = (f"{mask} m, ", "") if name == "pick" else ("", f"{mask} m = ({mask})(a {sign} b){nan}; ")
    return (
        f"static inline {v} {name}_{v}({given}{v} a, {v} b) {{ {m}return ({v})((m & ({mask})a) | (~m & ({mask})b)); }}"
    )


def _masked(name: str, dtype: str, lanes: int) -> str:
    """Read or write the first lanes of a vector; the others are zero, or left alone, and no byte of them is touched.

    An instruction is written, since to read the header of intrinsics takes longer than to compile most kernels.
    """
    v = vector_type(dtype, room(lanes))
    move = {"float32": "vmovups", "float64": "vmovupd"}.get(dtype, f"vmovdqu{8 * BYTES[dtype]}")
    mask = f'"Yk"((uint{max(room(lanes), 8)}_t)0x{(1 << lanes) - 1:x})'
    key = f"{name}{lanes}_{v}"
    if name == "load":
        body = f'{v} x; __asm__("{move} %1, %0%{{%2%}}%{{z%}}" : "=v"(x) : "m"(*(const {v} *)p), {mask}); return x;'
        return f"static inline {v} {key}(const {TYPES[dtype]} *p) {{ {body} }}"
    body = f'__asm__("{move} %1, %0%{{%2%}}" : "+m"(*({v} *)p) : "v"(x), {mask});'
    return f"static inline void {key}({TYPES[dtype]} *p, {v} x) {{ {body} }}"


def _between(source: str, dtype: str) -> list[str]:
    """The integers by way of which one of few bits is widened, or one is narrowed, by a factor of two at a time.

    A machine has instructions for that; gcc takes vectors apart for a larger factor.  Wider ones hold every value of a
    narrower one with or without a sign.
    """
    if source not in INTEGER_BITS or dtype in ("bool", "float16"):
        return []
    first, last = BYTES[source], BYTES[dtype] + (dtype in FLOATS)
    steps = [f"int{8 * size}" for size in (2, 4) if min(first, last) < size < max(first, last)]
    return steps if first < last else steps[::-1]


def _to_integers(key: str, source: str, dtype: str, given: str, by: Sequence[str], mask: str) -> str:
    """What is beyond an end of the dtype stops there, NaN becomes 0: masks of ones choose what each lane gets.

    The integers are of the types `by`, one after the other.
    """
    least, most, low, above = ends(dtype, source)
    text = f"__builtin_convertvector(({given})(({mask})x & ({mask})(x > {low}) & ({mask})(x < {above})), {by[0]})"
    for test, end in ((f"x >= {above}", most), (f"x <= {low}", least)):
        text += f" | (__builtin_convertvector(({mask})({test}), {by[0]}) & ({TYPES[dtype]}){end})"
    for made in by[1:]:
        text = f"__builtin_convertvector({text}, {made})"
    return f"static inline {by[-1]} {key}({given} x) {{ return {text}; }}"


def _lanes(key: str, dtype: str, lanes: int, args: Sequence[str], value: str, inline: str) -> str:
    """A function of vectors as a loop over the lanes, of which compilers make vector instructions."""
    v, union = vector_type(dtype, lanes), f"union {{ {vector_type(dtype, lanes)} v; {TYPES[dtype]} e[{lanes}]; }}"
    return f"""static {inline} __attribute__((flatten)) {v} {key}({", ".join(f"{v} {x}" for x in args)}) {{
  {union} {", ".join(f"{x}_ = {{{x}}}" for x in args)};
  for (int k = 0; k < {lanes}; ++k) {args[0]}_.e[k] = {value};
  return {args[0]}_.v;
}}"""


def _iteration(key: str, dtype: str, lanes: int) -> str:
    """Copy a square of `lanes` vectors `step` elements apart, its rows and columns exchanged."""
    t, v, mask = TYPES[dtype], vector_type(dtype, lanes), f"i{8 * BYTES[dtype]}x{lanes}"
    names = [f"x{k}" for k in range(lanes)]
    lines = [f"  {v} {x} = VEC({v}, from[{k} * from_step]);" for k, x in enumerate(names)]
    for count, pairs in enumerate(turning_rounds(lanes)):
        made = list(names)
        for i, j, *picks in pairs:
            for k, pick in zip((i, j), picks, strict=True):
                made[k] = f"y{count}_{k}"
                shuffled = f"SHUFFLE({mask}, {names[i]}, {names[j]}, {', '.join(map(str, pick))})"
                lines.append(f"  const {v} {made[k]} = {shuffled};")
        names = made
    lines += [f"  VEC({v}, to[{k} * to_step]) = {x};" for k, x in enumerate(names)]
    head = f"static inline void {key}({t} *to, int64_t to_step, const {t} *from, int64_t from_step) {{"
    return "\n".join([head, *lines, "}"])


@dataclass
class Prelude:
    """The vector types and vector helpers that one source file needs."""

    types: dict[str, str] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def type(self, dtype: str, lanes: int) -> str:
        """The type of a vector with room for `lanes`."""
        lanes = room(lanes)
        name = vector_type(dtype, lanes)
        attributes = f"vector_size({BYTES[dtype] * lanes}), aligned({BYTES[dtype]}), may_alias"
        self.types[name] = f"typedef {TYPES[dtype]} {name} __attribute__(({attributes}));"
        return name

    def helper(self, name: str, dtype: str, lanes: int) -> str:
        key = f"{name}_{self.type(dtype, lanes)}"
        self.type(f"int{8 * BYTES[dtype]}", lanes)
        return self._known(key, _pick(name, dtype, room(lanes)))

    def _known(self, key: str, text: str) -> str:
        """The name of a helper function whose text is this."""
        self.helpers[key] = text
        return key

    def lanes_of(self, name: str, dtype: str, lanes: int, args: Sequence[str], value: str) -> str:
        """The function `name` of vectors, whose lanes are `value`, text in `x_.e[k]` for every argument `x`."""
        key = f"{name}_{self.type(dtype, lanes)}"
        self.calls[key] += name in _LONG
        inline = "inline" if self.calls[key] <= MOST_INLINED else "__attribute__((noinline))"
        return self._known(key, _lanes(key, dtype, room(lanes), args, value, inline))

    def transpose(self, dtype: str, lanes: int) -> str:
        """The function that copies a square with its rows and columns exchanged."""
        key = f"turn_{self.type(dtype, lanes)}"
        self.type(f"int{8 * BYTES[dtype]}", lanes)
        return self._known(key, _iteration(key, dtype, lanes))

    def held(self, dtype: str, lanes: int) -> str:
        """The function that gives a vector back from a register, where vectors of its size have registers.

        Clang has none for float16.
        """
        kind, by = self.type(dtype, lanes), " && !defined(__clang__)" if dtype == "float16" else ""
        key = f"held_{kind}"
        head = f"static inline {kind} {key}({kind} x) {{\n#if REGISTER_BYTES >= {BYTES[dtype] * room(lanes)}{by}\n"
        return self._known(key, head + '  __asm__("" : IN_REGISTER(x));\n#endif\n  return x;\n}')

    def to_integers(self, source: str, dtype: str, lanes: int) -> str:
        """The function that makes vectors of integers of vectors of floats, as the scalar conversion does."""
        given, made = self.type(source, lanes), self.type(dtype, lanes)
        key = f"{given}_to_{made}"
        through = ("int32", *_between("int32", dtype)) if BYTES[dtype] < BYTES["int32"] else ()
        by, mask = [self.type(t, lanes) for t in (*through, dtype)], self.type(f"int{8 * BYTES[source]}", lanes)
        return self._known(key, _to_integers(key, source, dtype, given, by, mask))

    def half(self, source: str, dtype: str, lanes: int) -> str:
        """The function that makes vectors of float32 of vectors of float16, or the other way round."""
        given, made, *_ = [self.type(t, lanes) for t in (source, dtype, "int16", "int32")]
        key = f"{given}_to_{made}"
        return self._known(key, conversion(key, dtype, room(lanes)))

    def masked(self, name: str, dtype: str, lanes: int) -> str:
        """The function that loads ("load") or stores ("store") part of a vector."""
        key = f"{name}{lanes}_{self.type(dtype, lanes)}"
        return self._known(key, _masked(name, dtype, lanes))


@dataclass
class VectorText:
    """Prints the expressions under one vector loop over `lane`.

    `held` holds the variables that name a whole vector.  Expressions that do not vary with the lane are printed as
    scalars: the vector extension broadcasts them.
    """

    scalar: CText
    prelude: Prelude
    lane: Var
    lanes: int
    indices: Indices
    slot: Mapping[object, Mapping[int, str]]
    held: set[Var] = field(default_factory=set)
    known: dict[int, tuple[Expr, bool]] = field(default_factory=dict)
    loads: dict[int, tuple[Expr, str]] = field(default_factory=dict)

    def varies(self, e: Expr) -> bool:
        if isinstance(e, Var):
            return e is self.lane or e in self.held
        hit = self.known.get(id(e))
        if hit is None:
            hit = self.known[id(e)] = (e, any([self.varies(k) for k in children(e)]))
        return hit[1]

    def vector(self, e: Expr) -> str:
        """`e` as a vector: a scalar is spread over the lanes."""
        if self.varies(e):
            return self.expr(e)
        kind = self.prelude.type(e.dtype, self.lanes)
        if isinstance(e, Const) and e.value == 0 and math.copysign(1, e.value) > 0:
            return f"({kind}){{0}}"
        return f"{self._text(e)[0]} - ({kind}){{0}}"

    def element(self, buffer: object, name: str, dtype: str, index: Expr) -> str:
        """The vector that starts at `buffer[index]` (lane 0), as something that can be read.

        It can be assigned, too, unless it is a part of a vector in memory.
        """
        first = substitute(index, {self.lane: const(0)})
        slots = self.slot.get(buffer)
        if slots is not None:
            assert isinstance(first, Const)
            return slots[int(first.value)]
        if in_part(self.lanes):
            return f"{self.prelude.masked('load', dtype, self.lanes)}({self._address(name, first)})"
        return f"VEC({self.prelude.type(dtype, self.lanes)}, {name}[{self.scalar.expr(first)}])"

    def _address(self, name: str, first: Expr) -> str:
        return f"&{name}[{self.scalar.expr(first)}]"

    def store(self, buffer: object, name: str, dtype: str, index: Expr, value: str) -> str:
        """The statement that stores a vector at `buffer[index]`."""
        if in_part(self.lanes) and buffer not in self.slot:
            first = substitute(index, {self.lane: const(0)})
            return f"{self.prelude.masked('store', dtype, self.lanes)}({self._address(name, first)}, {value});"
        return f"{self.element(buffer, name, dtype, index)} = {value};"

    def expr(self, e: Expr, level: int = 0) -> str:
        """The text of `e`, bracketed when it binds weaker than `level`."""
        text, own = self._text(e)
        return f"({text})" if own < level else text

    def _text(self, e: Expr) -> tuple[str, int]:
        if not self.varies(e):
            return self._same_in_all_lanes(e), UNARY
        match e:
            case Var() if e in self.held:
                return self.scalar.var(e), POSTFIX
            case BufferLoad():
                return self._load(e), POSTFIX
            case _ if not has_vector_form(e, self.lane) or self.scalar.widths.needs_more(e):
                return self._lane_by_lane(e), POSTFIX
            case Binary(op="min" | "max"):
                return self._extreme(e), POSTFIX
            case Binary(op="*", a=a, b=Const(value=-1)):
                return f"-{self.expr(a, POSTFIX)}", UNARY
            case Binary(op=op, a=a, b=b):
                own = ADD if op in "+-" else MUL
                return f"{self.expr(a, own)} {op} {self.expr(b, own + 1)}", own
            case Cast(dtype=dtype, a=a) if a.dtype in FLOATS and dtype not in FLOATS:
                return f"{self.prelude.to_integers(a.dtype, dtype, self.lanes)}({self.vector(a)})", POSTFIX
            case Cast(dtype=dtype, a=a):
                return self._converted(self.vector(a), a.dtype, dtype), POSTFIX
            case Select(cond=cond) if self.varies(cond):
                return self._picked(e), POSTFIX
            case Call(func="if_then_else", args=(cond, a, _)) if self.varies(cond):
                ends = [self.indices.normal(cond, {self.lane: const(k)}) for k in (0, self.lanes - 1)]
                test = " && ".join([self.scalar.expr(end, AND) for end in ends])
                return f"{test} ? {self._branch(a)} : {self._lane_by_lane(e)}", TERNARY
            case Select(cond=cond, a=a, b=b) | Call(func="if_then_else", args=(cond, a, b)):
                test = self.scalar.expr(cond, TERNARY + 1)
                return f"{test} ? {self._branch(a)} : {self._branch(b)}", TERNARY
            case Call():
                return self._function(e), POSTFIX
        raise AssertionError(type(e).__name__)

    def _converted(self, text: str, source: str, dtype: str) -> str:
        """The text of a vector in another dtype."""
        if "float16" in (source, dtype):
            return f"{self.prelude.half(source, dtype, self.lanes)}({text})"
        for step in (*_between(source, dtype), dtype):
            text = f"__builtin_convertvector({text}, {self.prelude.type(step, self.lanes)})"
        return text

    def _same_in_all_lanes(self, e: Expr) -> str:
        text = self.scalar.expr(self.scalar.widths.value(e), UNARY)
        return f"({TYPES[e.dtype]}){text}" if e.dtype in NARROW_INTS else text

    def _load(self, e: BufferLoad) -> str:
        if id(e) not in self.loads:
            self.loads[id(e)] = (e, self._loaded(e))
        return self.loads[id(e)][1]

    def _loaded(self, e: BufferLoad) -> str:
        if not self.indices.contiguous(e.index, self.lane, self.lanes):
            return self._gather(e)
        name = "" if e.buffer in self.slot else self.scalar.load(BufferLoad(e.buffer, const(0))).partition("[")[0]
        return self.element(e.buffer, name, e.buffer.dtype, e.index)

    def _extreme(self, e: Binary) -> str:
        name = self.prelude.helper(e.op, e.dtype, self.lanes)
        a, b = (e.b, e.a) if isinstance(e.b, Const) and e.dtype in FLOATS else (e.a, e.b)
        return f"{name}({self.vector(a)}, {self.vector(b)})"

    def _picked(self, e: Select) -> str:
        if any(map(self.scalar.widths.needs_more, numbers(e.cond))):
            return self._lane_by_lane(e)
        name = self.prelude.helper("pick", e.dtype, self.lanes)
        mask = f"({self.prelude.type(f'int{8 * BYTES[e.dtype]}', self.lanes)}){mask_text(e.cond, self.vector)}"
        return f"{name}({mask}, {self.vector(e.a)}, {self.vector(e.b)})"

    def _function(self, e: Call) -> str:
        name = function_name(e)
        args = ("x", "y") if name == "pow" else ("x",)
        value, _ = self.scalar.function(e, [f"{x}_.e[k]" for x in args])
        key = self.prelude.lanes_of(name, e.dtype, self.lanes, args, value)
        return f"{key}({', '.join([self.vector(a) for a in e.args[: len(args)]])})"

    def _branch(self, e: Expr) -> str:
        return f"({self.prelude.type(e.dtype, self.lanes)})({self.vector(e)})"

    def _gather(self, e: BufferLoad) -> str:
        offsets = self.indices.lane_offsets(e.index, self.lane, self.lanes)
        usual = offsets is not None and e.buffer not in self.slot and not in_part(self.lanes)
        found = plan_gather(offsets) if usual and offsets is not None else None
        if found is None:
            return self._lane_by_lane(e)
        windows = [self._window(e, start) for start in found.starts]
        mask = self.prelude.type(f"int{8 * BYTES[e.dtype]}", self.lanes)
        text = windows[0]
        for k, pick in enumerate(found.picks):
            other = windows[k + 1] if len(windows) > 1 else windows[0]
            text = f"SHUFFLE({mask}, {text}, {other}, {', '.join(map(str, pick))})"
        return text

    def _window(self, e: BufferLoad, start: int) -> str:
        """The vector that begins `start` elements behind that of lane 0."""
        kind = self.prelude.type(e.dtype, self.lanes)
        first = self.indices.linear(e.index, {self.lane: const(0)})
        place = Linear(first.terms, first.const + start).expr()
        return f"VEC({kind}, {self.scalar.load(BufferLoad(e.buffer, place))})"

    def _lane_by_lane(self, e: Expr) -> str:
        kind = self.prelude.type(e.dtype, self.lanes)
        parts = [self.scalar.expr(self.indices.normal(e, {self.lane: const(k)})) for k in range(self.lanes)]
        return f"({kind}){{{', '.join(parts)}}}"
