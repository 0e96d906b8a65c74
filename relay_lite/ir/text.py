"""A graph as text: one line for each operator.

fn (%data: Tensor[(1, 8), float32], %w: Tensor[(4, 8), float32]) {
  %0 = nn.dense(%data, %w)   // Tensor[(1, 4), float32]
  %1 = nn.relu(%0)   // Tensor[(1, 4), float32]
  %1
}
"""

from __future__ import annotations

from collections.abc import Mapping

from .control import Branch, Loop
from .module import IRModule
from .nodes import Call, Constant, Control, Expr, Function, FunctionCall, Tuple, TupleGetItem, Var
from .types import TensorType, Type
from .visit import post_order


def as_text(graph: IRModule | Function | Expr) -> str:
    """The text of a module, a function or an expression; attributes that have their defaults are left out.

    Fused functions stand above the function that calls them, and constants are named by type, scalars by value.
    """
    match graph:
        case IRModule(functions=functions):
            return "\n\n".join(_with_callees(f, f"def @{name}") for name, f in functions.items())
        case Function():
            return _with_callees(graph, "fn ")
    return _with_callees(Function(tuple(v for v in post_order(graph) if isinstance(v, Var)), graph), "fn ")


def _with_callees(function: Function, head: str) -> str:
    names: dict[int, str] = {}
    return "\n\n".join([*_callees(function, names), _one(function, head, names)])


def _callees(function: Function, names: dict[int, str]) -> list[str]:
    """The texts of the functions that a function calls, or runs otherwise, and those that they call; they get names."""
    texts: list[str] = []
    for node in post_order(function.body):
        run = (
            node.functions if isinstance(node, Control) else (node.function,) if isinstance(node, FunctionCall) else ()
        )
        for callee in run:
            if id(callee) not in names:
                texts += _callees(callee, names)
                names[id(callee)] = f"@{callee.attrs.get('name', f'f{len(names)}')}"
                texts.append(_one(callee, f"def {names[id(callee)]}", names))
    return texts


def _one(function: Function, head: str, callees: Mapping[int, str]) -> str:
    params = ", ".join(f"%{v.name}: {v.type}" for v in function.params)
    named: dict[int, str] = {}
    lines: list[str] = []
    for node in post_order(function.body):
        text = _node(node, named, callees)
        if isinstance(node, Call | FunctionCall | Control):
            name = f"%{len(lines)}"
            lines.append(f"  {name} = {text}   // {_type(node.type)}")
            text = name
        named[id(node)] = text
    return "\n".join([f"{head}({params}) {{", *lines, f"  {named[id(function.body)]}", "}"])


def _node(node: Expr, named: Mapping[int, str], callees: Mapping[int, str]) -> str:
    match node:
        case Var(name=name):
            return f"%{name}"
        case Constant(value=value):
            return f"{value}{_suffix(str(value.dtype))}" if value.ndim == 0 else f"const({_type(node.type)})"
        case Call(op=op, args=args, attrs=attrs):
            shown = [f"{k}={v!r}" for k, v in attrs.items() if v != op.defaults[k]]
            return f"{op.name}({', '.join([named[id(a)] for a in args] + shown)})"
        case FunctionCall(function=function, args=args):
            return f"{callees.get(id(function), '@fn')}({', '.join(named[id(a)] for a in args)})"
        case Loop(function=function, args=args, steps=steps, sliced=sliced, states=states):
            shown = [f"steps={steps}", f"sliced={sliced}", f"states={states}", *["backwards=True"] * node.backwards]
            shown += [f"turns={node.turns}"] * bool(node.turns) + ["unbounded=True"] * node.unbounded
            return f"loop {callees[id(function)]}({', '.join([named[id(a)] for a in args] + shown)})"
        case Branch(args=(condition, *others)):
            ways = ", ".join([callees[id(f)] for f in node.functions])
            return f"branch {named[id(condition)]} of {ways} ({', '.join([named[id(a)] for a in others])})"
        case Tuple(fields=fields):
            return f"({', '.join(named[id(f)] for f in fields)})"
        case TupleGetItem(tuple_value=value, index=index):
            return f"{named[id(value)]}.{index}"
    return repr(node)


def _suffix(dtype: str) -> str:
    return {"float32": "f", "float16": "h", "int64": "i64", "int32": "", "float64": "f64"}.get(dtype, f" as {dtype}")


def _type(found: Type) -> str:
    if isinstance(found, TensorType):
        return str(found)
    return f"({', '.join(map(str, found.fields))})"
