"""Print lowered programs: one line a statement, indentation for nesting, brackets only where they matter.

func conv(data: float32[1, 4, 7, 7], out: float32[1, 8, 7, 7]):
    blockIdx.x in 0..8:
        threadIdx.x in 0..49:
            alloc acc: float32[2] (local)
            for rc in 0..4:
                acc[0] = acc[0] + data[rc*49 + threadIdx.x]*0.5f
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..computation.text import expr_text
from ..expr.dtype import STORED
from ..expr.expr import (
    FLOATS,
    INDEX,
    Binary,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logical,
    Not,
    Reduce,
    Select,
    Var,
)
from .stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Instruction,
    LoweredFunc,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    bodies,
)

Name = Callable[[Any], str]

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(8)
_INDENT = "    "
_KIND = {
    ForKind.SERIAL: "for ",
    ForKind.PARALLEL: "parallel ",
    ForKind.VECTORIZED: "vectorized ",
    ForKind.UNROLLED: "unrolled ",
    ForKind.VTHREAD: "vthread ",
    ForKind.TENSORIZED: "tensorized ",
    ForKind.BLOCK: "",
    ForKind.THREAD: "",
}


def pretty(e: Expr) -> str:
    """The text of an expression with the fewest brackets that keep its structure."""
    return _text(e, _plain_name)


def head_text(s: Stmt) -> str:
    """The first line of a statement (`...` for a sequence)."""
    return _head(s, _plain_name)


def func_text(func: LoweredFunc) -> str:
    """The text of a program.  Different variables or buffers of one name are told apart by a suffix `_1`, `_2`."""
    name = _unique_names(func)
    args = ", ".join(f"{name(b)}: {_type_text(b)}" for b in func.args)
    return "\n".join([f"func {func.name}({args}):", *_lines(func.body, _INDENT, name)]) + "\n"


def _plain_name(x: Any) -> str:
    return str(x.name)


def _unique_names(func: LoweredFunc) -> Name:
    names: dict[int, str] = {}
    taken: set[str] = set()

    def name(x: Any) -> str:
        if id(x) not in names:
            text, k = str(x.name), 0
            while text in taken:
                k += 1
                text = f"{x.name}_{k}"
            taken.add(text)
            names[id(x)] = text
        return names[id(x)]

    return name


# ---------------------------------------------------------------------------------------------- statements


def _lines(s: Stmt, indent: str, name: Name) -> Iterator[str]:
    if not isinstance(s, Seq):
        yield indent + _head(s, name)
    inner = indent + _INDENT if isinstance(s, For | If) else indent
    for body in bodies(s):
        yield from _lines(body, inner, name)


def _head(s: Stmt, name: Name) -> str:
    match s:
        case For(var=var, extent=extent, kind=kind, tag=tag):
            label = f"{tag} = {name(var)}" if tag and tag != name(var) else name(var)
            return f"{_KIND[kind]}{label} in 0..{extent}:"
        case Store(buffer=buffer, index=index, value=value):
            return f"{name(buffer)}[{_text(index, name)}] = {_text(value, name)}"
        case Alloc(buffer=buffer):
            return f"alloc {name(buffer)}: {_type_text(buffer)} ({buffer.scope})"
        case If(cond=cond):
            return f"if {_text(cond, name)}:"
        case Barrier(publishes=publishes, left=groups):
            return f"barrier(publish{f' all but {groups}' if groups else ''})" if publishes else "barrier()"
        case ThreadReduce(combiner=combiner, dst=dst, src=src, thread=thread, extent=extent, lanes=lanes):
            left = ", ".join(f"{name(b)}[0]" for b in dst)
            right = ", ".join(_text(e, name) for e in src)
            by = f" by {lanes}" if lanes else ""
            return f"{left} = thread_{combiner.name}({right}; {name(thread)} in 0..{extent}{by})"
        case Instruction():
            return s.text(lambda e: _text(e, name))
        case Seq():
            return "..."


def _type_text(b: Buffer) -> str:
    dims = ", ".join(map(str, b.shape))
    strides = "" if b.strides is None else f" strides [{', '.join(map(str, b.strides))}]"
    return f"{b.dtype}[{dims}]{strides}"


# --------------------------------------------------------------------------------------------- expressions


def _text(e: Expr, name: Name) -> str:
    return _ranked(e, name)[0]


def _within(e: Expr, rank: int, name: Name) -> str:
    """The text of `e` where an operand of at least `rank` is needed."""
    text, own = _ranked(e, name)
    return text if own >= rank else f"({text})"


def _called(func: str, args: tuple[Expr, ...], name: Name) -> tuple[str, int]:
    return f"{func}({', '.join(_text(a, name) for a in args)})", _ATOM


def _ranked(e: Expr, name: Name) -> tuple[str, int]:
    """The text of `e` and how tightly its outermost operator binds."""
    match e:
        case Var():
            return name(e), _ATOM
        case Const():
            text = _const(e)
            return text, _UNARY if text.startswith("-") else _ATOM
        case BufferLoad(buffer=buffer, index=index):
            return f"{name(buffer)}[{_text(index, name)}]", _ATOM
        case Binary(op="min" | "max" as op, a=a, b=b):
            return _called(op, (a, b), name)
        case Binary(op="+" | "-" as op, a=a, b=Const(value=value, dtype=dtype)) if _negative(value):
            flipped = "-" if op == "+" else "+"
            return f"{_within(a, _SUM, name)} {flipped} {_const(Const(-value, dtype))}", _SUM
        case Binary(op="+" | "-" as op, a=a, b=b):
            return f"{_within(a, _SUM, name)} {op} {_within(b, _PRODUCT, name)}", _SUM
        case Binary(op=op, a=a, b=b):
            return f"{_within(a, _PRODUCT, name)}{op}{_within(b, _UNARY, name)}", _PRODUCT
        case Compare(op=op, a=a, b=b):
            return f"{_within(a, _SUM, name)} {op} {_within(b, _SUM, name)}", _COMPARE
        case Logical(op="&&", a=a, b=b):
            return f"{_within(a, _AND, name)} && {_within(b, _NOT, name)}", _AND
        case Logical(op=op, a=a, b=b):
            return f"{_within(a, _OR, name)} {op} {_within(b, _AND, name)}", _OR
        case Not(a=a):
            return f"!{_within(a, _UNARY, name)}", _UNARY
        case Select(cond=cond, a=a, b=b):
            return _called("select", (cond, a, b), name)
        case Cast(dtype=dtype, a=a):
            return _called(dtype, (a,), name)
        case Call(func=func, args=args):
            return _called(func, args, name)
        case Load() | Reduce():
            return expr_text(e), _ATOM
    raise TypeError(f"not an expression: {type(e).__name__}")


def _negative(value: int | float | bool) -> bool:
    return value < 0 and value != -(2**31)


def _const(e: Const) -> str:
    if e.dtype == "bool":
        return "true" if e.value else "false"
    if e.dtype in STORED:
        return f"{e.dtype}({e.value!r})"
    if e.dtype in FLOATS:
        return repr(float(e.value)) + {"float16": "h", "float32": "f", "float64": ""}[e.dtype]
    return str(e.value) if e.dtype == INDEX else f"{e.dtype}({e.value})"
