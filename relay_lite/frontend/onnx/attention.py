"""Attention of opset 23, as the products, sums and softmax that it is made of."""

from __future__ import annotations

from functools import reduce
from math import copysign, sqrt

import numpy as np

from ...ir.nodes import Call, Expr
from ...ir.visit import is_op
from .emit import add, binary, call, cast, concatenate, const, div, mul, reshape, sub, transpose
from .model import dtype_name
from .node import Converters, Node
from .product import product, product_of_rows
from .select import narrow

AFTER_BIAS, AFTER_SOFTMAX = 2, 3
NOTHING = -0.0
"""What does not even change the sign of a zero where it is added, so that a mask that hides nothing can be left out."""
ROOMY = "float32", "float64"
"""Scores of these dtypes do not overflow before they are scaled, which costs less than to scale both operands."""


def attention(node: Node) -> list[Expr]:
    """Attention: softmax(scale Q K' + bias) V, heads of Q in groups that share one of K and V.

    Outputs are Y, the keys and values with those of the past in front, and the scores at a named stage.  A row of which
    every key is masked gives zeros.
    """
    heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    query = _by_heads(node, 0, heads[0])
    keys, values = (_with_past(node, _by_heads(node, i, heads[1]), i + 3) for i in (1, 2))
    _check_heads(node, query, keys, values)
    once = [_once(x) for x in (keys, values)]
    each = once if once[0].shape[1] == once[1].shape[1] else [keys, values]
    bias, shape = _bias(node, query, keys), query.shape
    if _joins(query, each[0], bias):
        groups = each[0].shape[1]
        query = reshape(query, (shape[0], groups, shape[1] // groups * shape[2], shape[3]))
    one, two = [_shared(x, query.shape[1]) for x in each]
    scores, shown = _scores(node, query, one, bias)
    out = _unless_hidden(product(scores, two), bias)
    out = reshape(out, (*shape[:3], values.shape[3]))
    shown = reshape(shown, (*shape[:3], keys.shape[2]))
    if len(node.input(0).shape) == 3:
        out = transpose(out, (0, 2, 1, 3))
        out = reshape(out, (*out.shape[:2], out.shape[2] * out.shape[3]))
    return [out, keys, values, shown]


def _by_heads(node: Node, index: int, heads: int) -> Expr:
    """An input as (batch, heads, sequence, size); of three axes the last holds the heads one after the other."""
    x = node.input(index)
    node.require(len(x.shape) in (3, 4), "Q, K and V must have 3 or 4 axes", shape=x.shape)
    if len(x.shape) == 4:
        return x
    fits = heads >= 1 and x.shape[2] % heads == 0
    node.require(fits, "q_num_heads and kv_num_heads must divide the last axis", shape=x.shape, heads=heads)
    return transpose(reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))


def _with_past(node: Node, x: Expr, index: int) -> Expr:
    past = node.optional(index)
    return x if past is None else concatenate([past, x], 2)


def _check_heads(node: Node, query: Expr, keys: Expr, values: Expr) -> None:
    shapes = {"Q": query.shape, "K": keys.shape, "V": values.shape}
    law = "Q, K and V must agree on batch, K and V on heads and positions, Q and K on the size of a head"
    agree = keys.shape[:3] == values.shape[:3] and query.shape[0] == keys.shape[0] and query.shape[3] == keys.shape[3]
    node.require(agree, law, **shapes)
    node.require(query.shape[1] % keys.shape[1] == 0, "the heads of K must divide those of Q", **shapes)


def _once(x: Expr) -> Expr:
    """Heads without those that are the same as the one before, where an operator has repeated all as often."""
    match x:
        case Call(op=op, args=(arg,), attrs=attrs) if op.name == "repeat" and attrs["axis"] in (1, -3):
            return arg
        case Call(op=op, args=(Call(args=(arg,)) as spread,)) if op.name == "reshape" and len(spread.shape) == 5:
            heads = (*spread.shape[:2], 1, *spread.shape[3:])
            repeats = is_op(spread, "broadcast_to") and arg.shape == heads and x.shape[2:] == heads[3:]
            return reshape(arg, (*heads[:2], *heads[3:])) if repeats and x.shape[0] == heads[0] else x
        case Call(op=op, args=(arg,)) if op.name == "copy":
            return _once(arg)
    return x


def _joins(query: Expr, keys: Expr, bias: Expr | None) -> bool:
    """Whether the queries of all heads of a group are rows of one product, which reads keys and values once: the bias
    is the same for them."""
    rows, heads = (1, 1) if bias is None else ((1, 1, *bias.shape)[-2], (1, 1, 1, *bias.shape)[-3])
    return query.shape[1] > keys.shape[1] and rows == heads == 1


def _shared(x: Expr, heads: int) -> Expr:
    """Every head of `x` for each of the heads of its group."""
    return x if x.shape[1] == heads else call("repeat", x, repeats=heads // x.shape[1], axis=1)


def _bias(node: Node, query: Expr, keys: Expr) -> Expr | None:
    """What is added to the scores: the mask, and minus infinity for keys that a query may not see; None for nothing."""
    bias, seen = _mask(node, query.dtype, keys.shape[2]), _seen(node, query.shape[2], keys.shape[2])
    if seen is None:
        return bias
    hidden = call("where", seen, const(NOTHING, query.dtype), const(-np.inf, query.dtype))
    return hidden if bias is None else add(bias, hidden)


def _seen(node: Node, rows: int, columns: int) -> Expr | None:
    """Which keys a query may see by its position: all that count, up to itself, or in a window; None for every one.

    The first query stands behind the past, or behind the keys that count but for those of the queries themselves.
    """
    past, count = node.optional(4), node.optional(6) if node.opset >= 24 else None
    first: Expr | int = 0 if past is None else past.shape[2]
    known = []
    if count is not None:
        node.require(past is None and len(count.shape) == 1, "nonpad_kv_seqlen is one number an item, without a past")
        count = reshape(narrow(count), (count.shape[0], 1, 1, 1))
        first = sub(count, rows)
        known.append(binary("less", const(np.arange(columns), "int32"), count))
    left, right = _window(node)
    distance = sub(const(np.arange(columns) - np.arange(rows)[:, None], "int32"), first)
    known += [binary("less_equal", distance, right)] if right >= 0 else []
    known += [binary("greater_equal", distance, -left)] if left >= 0 else []
    return reduce(lambda a, b: call("logical_and", a, b), known) if known else None


def _window(node: Node) -> tuple[int, int]:
    """How many keys in front of a query and behind it are seen; -1 for all."""
    left, right = -1, -1
    if node.opset >= 25:
        left, right = node.integer("left_window_size", -1), node.integer("right_window_size", -1)
        law = "left_window_size and right_window_size must be at least -1"
        node.require(min(left, right) >= -1, law, left=left, right=right)
    return left, 0 if node.integer("is_causal", 0) else right


def _mask(node: Node, dtype: str, columns: int) -> Expr | None:
    """The attention mask as numbers; keys that it does not mention are masked."""
    mask = node.optional(3)
    if mask is None:
        return None
    if mask.dtype == "bool":
        mask = call("where", mask, const(NOTHING, dtype), const(-np.inf, dtype))
    missing = columns - mask.shape[-1]
    if missing <= 0:
        return mask
    hidden = const(np.full((*mask.shape[:-1], missing), -np.inf), dtype)
    return concatenate([mask, hidden], len(mask.shape) - 1)


def _scores(node: Node, query: Expr, keys: Expr, bias: Expr | None) -> tuple[Expr, Expr]:
    """What the values are weighted with, and the scores at the stage that the last output shows."""
    scale = node.number("scale") if node.has("scale") else 1 / sqrt(query.shape[3])
    if query.dtype in ROOMY:
        stages = [mul(product_of_rows(query, keys), scale)]
    else:
        root = sqrt(abs(scale))
        stages = [product_of_rows(mul(query, copysign(root, scale)), mul(keys, root))]
    cap = node.number("softcap", 0.0)
    stages.append(mul(call("tanh", div(stages[0], const(cap, query.dtype))), cap) if cap > 0 else stages[0])
    stages.append(stages[1] if bias is None else add(stages[1], bias))
    stages.append(_softmax(node, stages[AFTER_BIAS]))
    shown = node.integer("qk_matmul_output_mode", 0)
    node.require(0 <= shown <= AFTER_SOFTMAX, "qk_matmul_output_mode must be 0 to 3", qk_matmul_output_mode=shown)
    return stages[-1], _unless_hidden(stages[-1], bias) if shown == AFTER_SOFTMAX else stages[shown]


def _softmax(node: Node, scores: Expr) -> Expr:
    code = node.integer("softmax_precision", 0)
    inside = cast(scores, dtype_name(code, str(node))) if code else scores
    return cast(call("nn.softmax", inside, axis=3), scores.dtype)


def _unless_hidden(x: Expr, bias: Expr | None) -> Expr:
    """Zeros where every key is masked, whose softmax is no number: that is asked of the result rather than of the
    shares, so that nothing stands between softmax and product."""
    if bias is None:
        return x
    best = call("max", bias, axis=(len(bias.shape) - 1,), keepdims=True)
    return call("where", binary("equal", best, -np.inf), const(0, x.dtype), x)


CONVERTERS: Converters = {"Attention": {23: attention}}
