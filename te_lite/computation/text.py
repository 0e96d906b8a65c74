"""Print expressions and DAGs; nodes do not know how to print themselves."""

from __future__ import annotations

from ..expr.dtype import STORED, largest
from ..expr.expr import (
    FLOATS,
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
from .tensor import ComputeOp, Operation

_TIGHT = ("*", "/")
_CALLED = {"//": "floordiv", "%": "floormod", "min": "min", "max": "max"}
_ASSIGN = {"sum": " += ", "max": " max= ", "min": " min= "}
MAX_LINE = 256


def const_text(e: Const) -> str:
    """A constant as a workload prints it: `3`, `0.5f`, `(bool)1`.

    An infinity is printed as the largest number: TVM pads maximum pools with that, and the text is the workload's key.
    """
    if e.dtype == "bool":
        return f"(bool){int(e.value)}"
    if e.dtype in FLOATS:
        most = largest(e.dtype)
        text = f"{max(min(e.value, most), -most):g}"
        return f"({e.dtype}){text}" if e.dtype in STORED else text + {"float32": "f", "float16": "h"}.get(e.dtype, "")
    return str(e.value) if e.dtype == "int32" else f"({e.dtype}){e.value}"


def expr_text(e: Expr) -> str:
    """Fully bracketed text of an expression."""
    match e:
        case Var():
            return e.name
        case Const():
            return const_text(e)
        case Binary(op=op, a=a, b=b) if op in _CALLED:
            return f"{_CALLED[op]}({expr_text(a)}, {expr_text(b)})"
        case Binary(op=op, a=a, b=b):
            return f"({expr_text(a)}{op}{expr_text(b)})" if op in _TIGHT else f"({expr_text(a)} {op} {expr_text(b)})"
        case Compare(op=op, a=a, b=b) | Logical(op=op, a=a, b=b):
            return f"({expr_text(a)} {op} {expr_text(b)})"
        case Not(a=a):
            return f"!{expr_text(a)}"
        case Select(cond=c, a=a, b=b):
            return f"select({expr_text(c)}, {expr_text(a)}, {expr_text(b)})"
        case Cast(dtype=dtype, a=a):
            return f"{dtype}({expr_text(a)})"
        case Call(func=func, args=args):
            return f"tir.{func}({', '.join(map(expr_text, args))})"
        case Load(tensor=tensor, indices=indices):
            return f"{tensor.name}[{', '.join(map(expr_text, indices))}]"
        case BufferLoad(buffer=buffer, index=index):
            return f"{buffer.name}[{expr_text(index)}]"
        case Reduce():
            axes = ", ".join(v.name for v in e.axes)
            return f"{e.combiner.name}({', '.join(map(expr_text, e.sources))}, axis=[{axes}])"
    raise TypeError(f"not an expression: {type(e).__name__}")


def _reduce_assign(e: Reduce) -> str:
    name = e.combiner.name
    if name in _ASSIGN:
        return _ASSIGN[name]
    result = e.combiner.result
    if len(result) == 2 and all(isinstance(r, Select) for r in result):
        return f" {expr_text(result[0])}= "
    return " reduce " + ", ".join(map(expr_text, result)) + " "


def op_lines(op: Operation, simple: bool = False) -> list[str]:
    """The lines that define one operation; `simple` is the form that is hashed."""
    if not isinstance(op, ComputeOp):
        return [f"{op.name} = PLACEHOLDER " + ("" if simple else f"[{', '.join(map(str, op.extents))}]")]
    head = f"{op.name}({', '.join(v.name for v in op.axis)})"
    out = []
    for k, body in enumerate(op.body):
        left = head if op.num_outputs == 1 else f"{head}.v{k}"
        out.append(left + _body_text(body, simple))
    return out


def _body_text(body: Expr, simple: bool) -> str:
    if isinstance(body, Reduce):
        sources = [expr_text(s) for s in body.sources]
        return _reduce_assign(body) + (sources[0] if len(sources) == 1 else f"({','.join(sources)})")
    if simple and isinstance(body, Call):
        return f" = Op(tir.{body.func})"
    return f" = {expr_text(body)}"


def dag_text(ops: tuple[Operation, ...]) -> str:
    """The text of a workload, long lines cut in the middle."""
    return "\n".join([shortened(line) for op in ops for line in op_lines(op)]) + "\n"


def shortened(line: str) -> str:
    """A line without its middle, if it is a long one."""
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE // 2]} ..(OMITTED).. {line[-MAX_LINE // 2 :]}"


def hash_text(ops: tuple[Operation, ...]) -> str:
    """The text whose md5 is the identity of a workload."""
    return "".join(line + "\n" for op in ops for line in op_lines(op, simple=True))
