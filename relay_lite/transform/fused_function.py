"""Groups of nodes as functions: one function for all groups of the same structure, and calls in place of the groups."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Set
from typing import Any, TypeAlias

from ..ir.control import Branch, Loop
from ..ir.nodes import (
    Call,
    Constant,
    Expr,
    Function,
    FunctionCall,
    Tuple,
    TupleGetItem,
    Var,
    children,
    rebuild,
    tensor_type,
)
from ..ir.types import TupleType
from ..ir.visit import post_order
from .dominator import FlowGraph
from .simplify_expr import MOVES, PRODUCTS, RESHAPES

LONGEST_NAME = 80
Key: TypeAlias = tuple[Any, ...]


class Library:
    """The primitive functions of a graph: one for each structure, each with a name of its own."""

    def __init__(self) -> None:
        self._by_structure: dict[Key, Function] = {}
        self._names: set[str] = set()

    def share(self, function: Function) -> Function:
        """The function of this structure that is already there, or this one, which is now named."""
        key = structure(function)
        if key not in self._by_structure:
            ops = [node.op.name for node in post_order(function.body) if isinstance(node, Call)]
            attrs = {
                **function.attrs, "primitive": True, "name": self._fresh(_telling(ops) or ["loop"]),
                "reshape_only": bool(ops) and set(RESHAPES).issuperset(ops),
            }  # fmt: skip
            self._by_structure[key] = Function(function.params, function.body, attrs)
        return self._by_structure[key]

    def _fresh(self, ops: Sequence[str]) -> str:
        base = fused_name(ops)
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name


def _telling(ops: Sequence[str]) -> list[str]:
    """The operators that a group is named after: without the moves before a product."""
    first = next((k for k, name in enumerate(ops) if name in PRODUCTS), 0)
    return [*[name for name in ops[:first] if name not in MOVES], *ops[first:]]


def fused_name(ops: Sequence[str]) -> str:
    """`fused_nn_conv2d_add_nn_relu`; a name of more than 80 characters is cut and ends in a hash of the whole."""
    dotted = "_".join(["fused", *ops])
    if len(dotted) > LONGEST_NAME:
        digest = hashlib.md5(dotted.encode(), usedforsecurity=False).hexdigest()[:16]
        dotted = f"{dotted[:LONGEST_NAME]}_{digest}_"
    return dotted.replace(".", "_")


def structure(function: Function) -> Key:
    """What two functions have in common when they compute the same: types, operators, attributes, who reads whom."""
    nodes = list(dict.fromkeys([*function.params, *post_order(function.body)]))
    index = {id(node): k for k, node in enumerate(nodes)}
    return tuple([(_own(node), *(index[id(c)] for c in children(node))) for node in nodes])


def _own(node: Expr) -> Key:
    match node:
        case Call(op=op, attrs=attrs):
            return op.name, *attrs.items()
        case Constant(value=value):
            return "constant", value.shape, str(value.dtype), value.tobytes()
        case TupleGetItem(index=index):
            return "item", index
        case FunctionCall(function=function):
            return "call", structure(function)
        case Loop(function=function, steps=steps, sliced=sliced, states=states, backwards=backwards, turns=turns):
            return "loop", structure(function), steps, sliced, states, backwards, turns, node.unbounded
        case Branch():
            return "branch", *map(structure, node.functions)
        case Tuple():
            return ("tuple",)
        case _:
            return "input", node.type


def call_groups(function: Function, graph: FlowGraph, roots: Sequence[int]) -> Function:
    """The function with every group that holds an operator turned into a call of a primitive function.

    `roots` names the last node of its group for every node of `graph`.
    """
    members: dict[int, set[int]] = {}
    for node, root in zip(graph.nodes, roots, strict=True):
        members.setdefault(root, set()).add(id(node))
    kernels = {root for node, root in zip(graph.nodes, roots, strict=True) if isinstance(node, Call)}
    library = Library()
    made: dict[int, Expr] = {}
    for k, node in enumerate(graph.nodes):
        if roots[k] != k:
            continue
        if k in kernels:
            made[id(node)] = _call_group(node, members[k], made, library)
        elif isinstance(node, FunctionCall):
            made[id(node)] = FunctionCall(library.share(node.function), tuple([made[id(a)] for a in node.args]))
        else:
            made[id(node)] = rebuild(node, [made[id(c)] for c in children(node)])
    return Function(function.params, made[id(function.body)], function.attrs)


def _call_group(root: Expr, members: Set[int], made: dict[int, Expr], library: Library) -> FunctionCall:
    """The call of one group, whose `members` are given by id.

    Its parameters p0, p1, ... are numbered as a walk from `root` meets them.
    """
    params: dict[int, tuple[Var, Expr]] = {}

    def is_leaf(node: Expr) -> bool:
        return id(node) not in members or (isinstance(node, TupleGetItem) and id(node.tuple_value) not in members)

    def param(value: Expr) -> Var:
        if id(value) not in params:
            params[id(value)] = Var(f"p{len(params)}", tensor_type(value)), value
        return params[id(value)][0]

    local: dict[int, Expr] = {}
    for node in post_order(root, is_leaf):
        if is_leaf(node):
            outer = made[id(node)] if id(node) not in members else rebuild(node, [made[id(c)] for c in children(node)])
            fields = _fields(outer)
            local[id(node)] = param(outer) if fields is None else Tuple(tuple([param(f) for f in fields]))
        else:
            local[id(node)] = rebuild(node, [local[id(c)] for c in children(node)])
    shared = library.share(Function(tuple([v for v, _ in params.values()]), local[id(root)]))
    return FunctionCall(shared, tuple([value for _, value in params.values()]))


def _fields(value: Expr) -> tuple[Expr, ...] | None:
    """The tensors of a tuple, None for a tensor."""
    if isinstance(value, Tuple):
        return value.fields
    if isinstance(value.type, TupleType):
        return tuple([TupleGetItem(value, k) for k in range(len(value.type.fields))])
    return None
