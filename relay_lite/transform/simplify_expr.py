"""Local patterns that have a shorter form, applied until none is left.

    cast(cast(x)), reshape(reshape(x)), transpose(transpose(x))  ->  one of them, or none
    transpose(x) of dimensions of 1, take(x, 2)  ->  reshape(x), a slice
    x + 0, x * 1, (x * c1) * c2, (x + c1) * c2, a / sqrt(b) ...  ->  less arithmetic on the large tensor

A rule looks at one call and gives its replacement or None; a replacement of another type is not taken.
Rules for movement make one of two operators that move or convert elements, and none of one that does nothing; those for
arithmetic bring constants together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from te_lite.expr.constant_folding import OTHER, folds_to
from te_lite.expr.dtype import INTEGER_BITS, python_number

from ..ir.extents import bounds
from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr, Function, const
from ..ir.visit import constant_value, is_op, rewrite
from .sequential import Pass

# ------------------------------------------------------------------------------ operators that move or convert elements


RESHAPES = "reshape", "expand_dims", "squeeze", "nn.batch_flatten"
"""Operators that leave every element where it lies."""
TRANSPOSITIONS = "transpose", "layout_transform"
MOVES = *RESHAPES, *TRANSPOSITIONS, "strided_slice"
"""Operators each of whose results is one element of the argument."""
PRODUCTS = "nn.batch_matmul", "nn.matmul", "nn.dense"


def merge_reshapes(node: Call) -> Expr | None:
    """reshape(reshape(x)) is one reshape to the final shape; one to the same shape is nothing."""
    (data,) = node.args
    if data.shape == node.shape:
        return data
    return call("reshape", data.args[0], newshape=node.shape) if is_op(data, *RESHAPES) else None


def as_reshape(node: Call) -> Expr | None:
    """A transposition that leaves the dimensions longer than 1 in their order is a reshape."""
    (data,) = node.args
    long = [axis for axis in permutation(node) if data.shape[axis] != 1]
    return call("reshape", data, newshape=node.shape) if long == sorted(long) else None


def take_one(node: Call) -> Expr | None:
    """take(x, i, axis) of one constant place is a slice."""
    data, where = node.args
    axis = node.attrs["axis"]
    if axis is None or not isinstance(where, Constant) or where.shape != ():
        return None
    axis, place = axis % len(data.shape), int(where.value)
    if not 0 <= place < bounds(data.shape[axis])[0]:
        return None
    slice_ = call("strided_slice", data, begin=(place,), end=(place + 1,), strides=(1,), axes=(axis,))
    return call("reshape", slice_, newshape=node.shape)


def merge_casts(node: Call) -> Expr | None:
    """A cast to the same dtype is nothing; a cast that loses nothing can be left out before another one.

    Not a cast of integers to floats before one to integers that do not hold them: of floats those take the ends.
    """
    (data,) = node.args
    if data.dtype == node.dtype:
        return data
    if not is_op(data, "cast") or not _loses_nothing(data.args[0].dtype, data.dtype):
        return None
    source = data.args[0].dtype
    ends = source in INTEGER_BITS and data.dtype not in INTEGER_BITS and node.dtype in INTEGER_BITS
    return None if ends and not _loses_nothing(source, node.dtype) else call("cast", data.args[0], dtype=node.dtype)


def _loses_nothing(source: str, target: str) -> bool:
    """NumPy calls the casts of 64 bits to float64 safe, which round."""
    return np.can_cast(source, target, "safe") and (source, target) not in (("int64", "float64"), ("uint64", "float64"))


def merge_permutations(node: Call) -> Expr | None:
    """Two transpositions (transpose or layout_transform) are one or cancel; one that keeps the order is nothing."""
    (data,) = node.args
    order = permutation(node)
    if order == tuple(range(len(order))):
        return data
    if not is_op(data, *TRANSPOSITIONS):
        return None
    (inner,) = data.args
    first = permutation(data)
    if is_op(data, "layout_transform") and is_op(node, "layout_transform"):
        source, middle, target = data.attrs["src_layout"], data.attrs["dst_layout"], node.attrs["dst_layout"]
        if middle == node.attrs["src_layout"] and source != target:
            return call("layout_transform", inner, src_layout=source, dst_layout=target)
    both = tuple(first[k] for k in order)
    return inner if both == tuple(range(len(both))) else call("transpose", inner, axes=both)


def permutation(node: Call) -> tuple[int, ...]:
    """Dimension k of what a transposition gives is dimension `permutation[k]` of its argument."""
    if node.op.name == "layout_transform":
        return tuple(node.attrs["src_layout"].index(letter) for letter in node.attrs["dst_layout"])
    rank, axes = len(node.shape), node.attrs["axes"]
    return tuple(range(rank))[::-1] if axes is None else tuple(a % rank for a in axes)


# ----------------------------------------------------------------------------------------------------------- arithmetic


_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


def identity(node: Call) -> Expr | None:
    """x - 0, x * 1, x / 1 and, for integers, x + 0 are x, for a constant of one element, as its dtype has it."""
    left, right = node.args
    for constant, side, other in ((right, "right", left), (left, "left", right)):
        number = _number(constant)
        if number is not None and folds_to(_OPERATORS[node.op.name], side, number, node.dtype) == OTHER:
            return other
    return None


def empty_mask(node: Call) -> Expr | None:
    """x + m is x for a constant of -0.0 everywhere, as a mask is that hides nothing."""
    x, mask = node.args
    value = constant_value(mask)
    nothing = value is not None and value.dtype.kind == "f" and np.all((value == 0) & np.signbit(value))
    return x if nothing else None


def known_choice(node: Call) -> Expr | None:
    """where(c, x, y) of a constant that is true everywhere, or nowhere."""
    condition, x, y = node.args
    value = constant_value(condition)
    if value is None or (np.any(value) and not np.all(value)):
        return None
    return x if np.any(value) else y


def fill_to_scalar(node: Call) -> Expr | None:
    """A tensor of one number as an operand is that number, if broadcasting gives the same shape without it."""
    for k, operand in enumerate(node.args):
        number = _fill(operand)
        other = node.args[1 - k]
        if number is not None and other.shape == node.shape:
            return Call(node.op, (other, number) if k else (number, other), node.attrs)
    return None


def fill_like(node: Call) -> Expr:
    """zeros_like, ones_like and full_like need the shape of their argument only."""
    data, *value = node.args
    return call(node.op.name.removesuffix("_like"), *value, shape=data.shape, dtype=data.dtype)


def add_twice(node: Call) -> Expr | None:
    """x + x is x * 2."""
    left, right = node.args
    return call("multiply", left, const(2, node.dtype)) if left is right else None


def merge_constants(node: Call) -> Expr | None:
    """(x * c1) * c2 is x * (c1 * c2), and so for sums."""
    inner, outer = _with_constant(node)
    if inner is None or outer is None or not is_op(inner, node.op.name):
        return None
    x, constant = _with_constant(inner)
    both = _combine(node.op.name, constant, outer) if constant is not None else None
    return call(node.op.name, x, both) if x is not None and both is not None else None


def multiply_first(node: Call) -> Expr | None:
    """(x + c1) * c2 is x * c2 + c1 * c2: the scale stands where it can be folded into what made x."""
    inner, factor = _with_constant(node)
    if inner is None or factor is None or not is_op(inner, "add"):
        return None
    x, addend = _with_constant(inner)
    finite = addend is not None and bool(np.all(np.isfinite(addend.value))) and bool(np.all(np.isfinite(factor.value)))
    shift = _combine("multiply", addend, factor) if addend is not None and finite else None
    return call("add", call("multiply", x, factor), shift) if x is not None and shift is not None else None


def reciprocal_root(node: Call) -> Expr | None:
    """a / sqrt(b) is a * rsqrt(b)."""
    left, right = node.args
    return call("multiply", left, call("rsqrt", right.args[0])) if is_op(right, "sqrt") else None


def merge_clips(node: Call) -> Expr | None:
    """clip(clip(x)) is a clip to what both ranges share, if they share anything."""
    (inner,) = node.args
    if not is_op(inner, "clip"):
        return None
    low = max(node.attrs["a_min"], inner.attrs["a_min"])
    high = min(node.attrs["a_max"], inner.attrs["a_max"])
    return call("clip", inner.args[0], a_min=low, a_max=high) if low <= high else None


def _number(node: Expr) -> int | float | bool | None:
    """The only element of a constant."""
    value = constant_value(node)
    return python_number(value) if value is not None and value.size == 1 else None


def _fill(node: Expr) -> Expr | None:
    """The number that fills a tensor, with rank 0."""
    if is_op(node, "zeros", "ones"):
        return const(0 if node.op.name == "zeros" else 1, node.dtype)
    if is_op(node, "full"):
        (value,) = node.args
        return value if value.dtype == node.dtype else call("cast", value, dtype=node.dtype)
    return None


def _with_constant(node: Call) -> tuple[Expr | None, Constant | None]:
    """The operands of a sum or product as (the other one, the constant one); None for what there is not."""
    left, right = node.args
    if isinstance(right, Constant):
        return (None if isinstance(left, Constant) else left), right
    return (right, left) if isinstance(left, Constant) else (None, None)


def _combine(name: str, a: Constant, b: Constant) -> Constant | None:
    """The sum or product of two constants; None where finite numbers overflow, or others than 0 give 0.

    There an x that is small, or infinite, would show the difference.
    """
    if a.dtype != b.dtype:
        return None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        value = np.add(a.value, b.value) if name == "add" else np.multiply(a.value, b.value)
        sound = np.isfinite(value) | ~(np.isfinite(a.value) & np.isfinite(b.value))
        if name == "multiply":
            sound = sound & ((value != 0) | (a.value == 0) | (b.value == 0))
    return Constant(value) if bool(np.all(sound)) else None


# ------------------------------------------------------------------------------------------------------------- the pass


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
