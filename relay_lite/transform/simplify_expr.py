"""Local patterns that have a shorter form, applied until none is left.

    cast(cast(x)), reshape(reshape(x)), transpose(transpose(x))  ->  one of them, or none
    transpose(x) of dimensions of 1, take(x, 2)  ->  reshape(x), a slice
    x + 0, x * 1, (x * c1) * c2, (x + c1) * c2, a / sqrt(b) ...  ->  less arithmetic on the large tensor

A rule looks at one call and gives its replacement or None; a replacement of another type is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..ir.nodes import Call, Expr, Function
from ..ir.visit import rewrite
from .sequential import Pass
from .simplify_arithmetic import (
    add_twice,
    empty_mask,
    fill_like,
    fill_to_scalar,
    identity,
    known_choice,
    merge_clips,
    merge_constants,
    multiply_first,
    reciprocal_root,
)
from .simplify_movement import RESHAPES, as_reshape, merge_casts, merge_permutations, merge_reshapes, take_one

Rule: TypeAlias = Callable[[Call], Expr | None]
Rules: TypeAlias = Mapping[str, Sequence[Rule]]

_BINARY = ("floor_divide", "mod", "floor_mod", "power", "maximum", "minimum")
_COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

POST_ALTER: Rules = {
    "add": (identity,),
    "subtract": (identity,),
    "multiply": (identity,),
    "divide": (identity,),
    **dict.fromkeys(RESHAPES, (merge_reshapes,)),
    "cast": (merge_casts,),
    "clip": (merge_clips,),
}

ALL: Rules = {
    **POST_ALTER,
    **{name: (fill_to_scalar,) for name in (*_BINARY, *_COMPARE)},
    **{name: (fill_like,) for name in ("zeros_like", "ones_like", "full_like")},
    "transpose": (merge_permutations, as_reshape),
    "layout_transform": (merge_permutations, as_reshape),
    "take": (take_one,),
    "where": (known_choice,),
    "add": (fill_to_scalar, identity, empty_mask, add_twice, merge_constants),
    "subtract": (fill_to_scalar, identity),
    "multiply": (fill_to_scalar, identity, merge_constants, multiply_first),
    "divide": (fill_to_scalar, identity, reciprocal_root),
}


def SimplifyExpr() -> Pass:
    """Apply all rules."""
    return Pass("SimplifyExpr", 0, (), lambda function: _fixed_point(function, ALL))


def SimplifyExprPostAlterOp() -> Pass:
    """Apply the rules for what layout changes leave behind: identities, reshapes, casts and clips."""
    return Pass("SimplifyExprPostAlterOp", 0, (), lambda function: _fixed_point(function, POST_ALTER))


def _fixed_point(function: Function, rules: Rules) -> Function:
    """Sweep until nothing changes.

    Every rule shortens the graph, names a simpler operator, or moves a multiply below an add, so this ends.
    """

    def change(node: Expr) -> Expr:
        while isinstance(node, Call) and (better := _first(node, rules.get(node.op.name, ()))) is not None:
            node = better
        return node

    while (new := rewrite(function, change)) is not function:
        function = new
    return function


def _first(node: Call, rules: Sequence[Rule]) -> Expr | None:
    """What the first rule that fits makes of `node`."""
    made = (rule(node) for rule in rules)
    return next((m for m in made if m is not None and m.type == node.type), None)
