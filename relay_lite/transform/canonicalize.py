"""Canonical graphs: what may be said in two ways is said in one, and once.

    bias_add(x, b, axis)  ->  add(x, expand(b))

Layout passes and fusion then know one operator less.  A cast that several readers share would be a kernel of its
own; each elementwise reader gets a copy, which fuses into it and moves fewer bytes.

What is computed twice from the same nodes is computed once.  Walking arguments first, every node gets a key that says
how it was computed; a node whose key was seen before is replaced by the first one.  Calls and tuple items merge;
constants and tuples only count as equal arguments: rank-0 constants by their value, tuples by their fields.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr, Function, Tuple, TupleGetItem, children, rebuild
from ..ir.op_registry import OpPattern
from ..ir.visit import expand_to, is_op, post_order, rewrite, with_body
from .sequential import Pass, acts_on


@acts_on("nn.bias_add")
def CanonicalizeOps() -> Pass:
    """Turn nn.bias_add into add; the bias gets size-1 axes behind it, none before."""
    return Pass("CanonicalizeOps", 3, (), lambda function: rewrite(function, _bias_add))


def _bias_add(node: Expr) -> Expr:
    if not is_op(node, "nn.bias_add"):
        return node
    data, bias = node.args
    return call("add", data, expand_to(bias, len(data.shape), node.attrs["axis"]))


@acts_on("cast")
def CanonicalizeCast() -> Pass:
    """Give every elementwise or broadcast reader of a cast to a wider dtype a cast of its own."""
    return Pass("CanonicalizeCast", 3, (), _own_casts)


def _own_casts(function: Function) -> Function:
    made: dict[Expr, Expr] = {}
    taken: set[Expr] = set()
    for node in post_order(function.body):
        args = [made[c] for c in children(node)]
        if isinstance(node, Call) and node.op.pattern <= OpPattern.BROADCAST:
            args = [_own(a, taken) for a in args]
        made[node] = rebuild(node, args)
    return with_body(function, made[function.body])


def _own(argument: Expr, taken: set[Expr]) -> Expr:
    """The cast itself for its first reader, a copy for a later one."""
    if not is_op(argument, "cast") or _bits(argument.args[0].dtype) >= _bits(argument.dtype):
        return argument
    if argument in taken:
        return Call(argument.op, argument.args, argument.attrs)
    taken.add(argument)
    return argument


def _bits(dtype: str) -> int:
    return 1 if dtype == "bool" else int("".join(filter(str.isdigit, dtype)))


# ------------------------------------------------------------------------------------------------ common subexpressions


def EliminateCommonSubexpr() -> Pass:
    """Merge calls of one operator with the same attributes and arguments; calls without arguments are left alone."""
    return Pass("EliminateCommonSubexpr", 3, (), _run)


def _run(function: Function) -> Function:
    first: dict[Hashable, Expr] = {}

    def change(node: Expr) -> Expr:
        match node:
            case Call(op=op, args=args, attrs=attrs) if args:
                return first.setdefault((op, tuple(attrs.items()), tuple(map(_argument, args))), node)
            case TupleGetItem(tuple_value=value, index=index):
                return first.setdefault((value, index), node)
        return node

    return rewrite(function, change)


def _argument(node: Expr) -> Hashable:
    """Two arguments with equal keys have the same value."""
    match node:
        case Constant(value=value) if value.ndim == 0:
            return str(value.dtype), value.tobytes()
        case Tuple(fields=fields):
            return tuple(map(_argument, fields))
    return node
