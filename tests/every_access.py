"""Every access of a small program, by running its loops in plain Python: an oracle that shares no code with `te_lite`.

The program is written as Python source, whose loads give 0 and whose indices are Python's own integers.
"""

from __future__ import annotations

from typing import Any

from te_lite.expr.expr import Binary, BufferLoad, Call, Cast, Compare, Const, Expr, Logical, Not, Select, Var
from te_lite.loops.stmt import Alloc, For, If, LoweredFunc, Seq, Stmt, Store, ThreadReduce

_OPERATORS = {"&&": "and", "||": "or", "/": "//"}


class OutOfRange(Exception):
    """An access outside of its buffer."""


def first_fault(func: LoweredFunc) -> str | None:
    """The first access that is outside of its buffer, or None."""
    source = _Source()
    lines = source.stmt(func.body, "    ")
    scope: dict[str, Any] = {"at": _at, "div": _div, "mod": _mod}
    exec("\n".join(["def program():", *lines, "    return None"]), scope)
    try:
        scope["program"]()
    except OutOfRange as fault:
        return str(fault)
    return None


def _at(name: str, size: int, index: int) -> int:
    if not 0 <= index < size:
        raise OutOfRange(f"{name}[{index}] of {size}")
    return 0


def _div(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


class _Source:
    def __init__(self) -> None:
        self.names: dict[int, str] = {}

    def name(self, v: Var) -> str:
        return self.names.setdefault(id(v), f"v{len(self.names)}")

    def stmt(self, s: Stmt, indent: str) -> list[str]:
        match s:
            case Seq(stmts=stmts):
                return [line for x in stmts for line in self.stmt(x, indent)]
            case For(var=var, extent=extent, body=body):
                return [f"{indent}for {self.name(var)} in range({extent}):", *self.stmt(body, indent + " ")]
            case If(cond=cond, then=then):
                return [f"{indent}if {self.expr(cond)}:", *self.stmt(then, indent + " ")]
            case Alloc(body=body):
                return self.stmt(body, indent)
            case Store(buffer=b, index=index, value=value):
                return [f"{indent}{self.expr(value)}", f"{indent}at({b.name!r}, {b.size}, {self.expr(index)})"]
            case ThreadReduce(src=src):
                return [f"{indent}{self.expr(e)}" for e in src]
        return [f"{indent}pass"]

    def expr(self, e: Expr) -> str:
        match e:
            case Var():
                return self.name(e)
            case Const(value=value):
                return repr(int(value)) if value == value and abs(value) < 1e300 else "0"
            case BufferLoad(buffer=b, index=index):
                return f"at({b.name!r}, {b.size}, {self.expr(index)})"
            case Binary(op="min" | "max" as op, a=a, b=b):
                return f"{op}({self.expr(a)}, {self.expr(b)})"
            case Binary(op="//" | "%" | "/" as op, a=a, b=b):
                return f"{'mod' if op == '%' else 'div'}({self.expr(a)}, {self.expr(b)})"
            case Binary(op=op, a=a, b=b) | Compare(op=op, a=a, b=b) | Logical(op=op, a=a, b=b):
                return f"({self.expr(a)} {_OPERATORS.get(op, op)} {self.expr(b)})"
            case Not(a=a):
                return f"(not {self.expr(a)})"
            case Select(cond=c, a=a, b=b):
                return f"({self.expr(c)}, {self.expr(a)}, {self.expr(b)})[1]"
            case Call(func="if_then_else", args=(c, a, b)):
                return f"({self.expr(a)} if {self.expr(c)} else {self.expr(b)})"
            case Cast(a=a):
                return self.expr(a)
            case Call(args=args):
                return "(" + ", ".join(map(self.expr, args)) + ",)[0]"
        raise TypeError(type(e).__name__)
