"""Attention as onnxruntime fuses it: projections in one product, heads, masks of several forms, keys of the past."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import sqrt

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import add, binary, call, concatenate, const, mul, reshape, transpose
from ..onnx.matmul import matmul
from ..onnx.node import Converters, Node
from ..onnx.product import product
from ..onnx.select import narrow, pick
from .parts import other
from .quantized import projected

FILTER = -10000.0
"""What is added to the scores of masked keys unless a node says otherwise."""


@dataclass(frozen=True, eq=False)
class Heads:
    """Queries (batch, heads, rows, size), keys (batch, heads, columns, size) and values, those of the past in front."""

    query: Expr
    keys: Expr
    values: Expr


def attention(node: Node) -> list[Expr]:
    """Attention: projections of one input, then attention; the second output holds keys and values."""
    _refuse(node)
    x, weight, bias = node.input(0), node.input(1), node.optional(2)
    node.require(len(x.shape) == 3, "the input must be (batch, sequence, hidden)", shape=x.shape)
    joined = matmul(other(node, x, weight))
    joined = joined if bias is None else add(joined, bias)
    law = "past_sequence_length is for a buffer that is shared, which is not supported"
    node.require(node.optional(6) is None, law)
    heads = _with_past(node, _split(node, joined), node.optional(4))
    return _answered(node, heads, _mask(node, heads, node.optional(3)), node.optional(5))


def quantized_attention(node: Node) -> list[Expr]:
    """QAttention: the projections are a product of integers, all else is as in Attention."""
    _refuse(node)
    scale = mul(reshape(node.input(3), ()), reshape(node.input(4), (int(np.prod(node.input(4).shape)),)))
    joined = projected(node, node.input(0), node.input(1), scale, (node.optional(6), node.optional(7)))
    heads = _with_past(node, _split(node, add(joined, node.input(2))), node.optional(8))
    return _answered(node, heads, _mask(node, heads, node.optional(5)), None)


def _refuse(node: Node) -> None:
    """Refuse what changes where keys stand."""
    for name in ("do_rotary", "past_present_share_buffer"):
        node.require(node.integer(name, 0) == 0, f"{name} must be 0", **{name: node.integer(name, 0)})
    node.has("rotary_embedding_dim")


def _split(node: Node, joined: Expr) -> Heads:
    """The three projections, which lie one after the other in the last axis, by heads."""
    whole = joined.shape[-1]
    sizes = node.integers("qkv_hidden_sizes", ()) or (whole // 3,) * 3
    node.require(len(sizes) == 3 and sum(sizes) == whole, "qkv_hidden_sizes must be three that fill the projection",
                 qkv_hidden_sizes=sizes, projection=whole)  # fmt: skip
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [pick(joined, {2: range(a, b)}) for a, b in pairwise(ends)]
    return Heads(*(_by_heads(node, part) for part in parts))


def _by_heads(node: Node, x: Expr) -> Expr:
    """(batch, sequence, hidden) as (batch, heads, sequence, size); four axes have been split before."""
    if len(x.shape) == 4:
        return x
    count = node.integer("num_heads")
    fits = len(x.shape) == 3 and count >= 1 and x.shape[2] % count == 0
    node.require(fits, "num_heads must divide the hidden size", shape=x.shape, num_heads=count)
    return transpose(reshape(x, (*x.shape[:2], count, x.shape[2] // count)), (0, 2, 1, 3))


def _with_past(node: Node, heads: Heads, past: Expr | None) -> Heads:
    """Keys and values of the past, (2, batch, heads, positions, size), in front of the new ones."""
    if past is None:
        return heads
    node.require(len(past.shape) == 5 and past.shape[0] == 2, "past must be (2, batch, heads, positions, size)",
                 shape=past.shape)  # fmt: skip
    old = [reshape(pick(past, {0: range(k, k + 1)}), past.shape[1:]) for k in range(2)]
    old = [part for part in old if part.shape[2]]
    if not old:
        return heads
    return Heads(heads.query, concatenate([old[0], heads.keys], 2), concatenate([old[1], heads.values], 2))


def _mask(node: Node, heads: Heads, mask: Expr | None) -> Expr | None:
    """What is added to the scores: the filter where a key does not count; it broadcasts to (batch, heads, rows, keys).

    A mask is a number an item (its length), two (ends, then starts), a row of flags an item, or a matrix of flags.
    """
    if mask is None:
        return None
    batch, (rows, columns) = heads.query.shape[0], (heads.query.shape[2], heads.keys.shape[2])
    places = const(np.arange(columns)[None], "int32")
    match mask.shape:
        case (count,) if count == batch:
            counts = binary("less", places, reshape(narrow(mask), (batch, 1)))
            seen = reshape(counts, (batch, 1, 1, columns))
        case (count,) if count == 2 * batch:
            ends, starts = (reshape(pick(mask, {0: range(k * batch, (k + 1) * batch)}), (batch, 1)) for k in range(2))
            inside = binary("less", places, narrow(ends)), binary("greater_equal", places, narrow(starts))
            seen = reshape(call("logical_and", *inside), (batch, 1, 1, columns))
        case (count, width) if (count, width) == (batch, columns):
            seen = reshape(_flags(mask), (batch, 1, 1, columns))
        case (count, height, width) if (count, height, width) == (batch, rows, columns):
            seen = reshape(_flags(mask), (batch, 1, rows, columns))
        case (count, 1, height, width) if count == batch and min(height, width) >= columns:
            inner = pick(mask, {2: range(columns - rows, columns), 3: range(columns)})
            seen = _flags(inner)
        case _:
            flat = f"({batch},), ({2 * batch},), ({batch}, {columns})"
            law = f"masks are {flat}, ({batch}, {rows}, {columns}) or ({batch}, 1, M, M)"
            node.require(False, law, shape=mask.shape)
    filtered = node.number("mask_filter_value", FILTER)
    return call("where", seen, const(0, heads.query.dtype), const(filtered, heads.query.dtype))


def _flags(mask: Expr) -> Expr:
    return mask if mask.dtype == "bool" else binary("greater", mask, 0)


def _answered(node: Node, heads: Heads, mask: Expr | None, bias: Expr | None) -> list[Expr]:
    """The output (batch, rows, hidden), and keys and values on top of each other."""
    out = _attended(node, heads, mask, bias)
    if len(node.outputs) < 2:
        return [out]
    law = "keys and values in one tensor must have one size of a head"
    node.require(heads.keys.shape == heads.values.shape, law, keys=heads.keys.shape, values=heads.values.shape)
    both = concatenate([call("expand_dims", part, axis=0) for part in (heads.keys, heads.values)], 0)
    return [out, both]


def _attended(node: Node, heads: Heads, mask: Expr | None, bias: Expr | None) -> Expr:
    """softmax(scale Q K' + mask + bias) V, the heads side by side; a causal row sees no key behind its own."""
    query, keys, values = heads.query, heads.keys, heads.values
    shapes = {"Q": query.shape, "K": keys.shape, "V": values.shape}
    agree = query.shape[:2] == keys.shape[:2] and keys.shape[:3] == values.shape[:3] and query.shape[3] == keys.shape[3]
    node.require(agree, "Q, K and V must agree on batch, heads and positions, Q and K on the size of a head", **shapes)
    scale = node.number("scale", 0.0) or 1 / sqrt(query.shape[3])
    rows, columns = query.shape[2], keys.shape[2]
    scores = mul(product(query, transpose(keys, (0, 1, 3, 2))), scale)
    scores = reduce(add, [e for e in (mask, bias) if e is not None], scores)
    if node.integer("unidirectional", 0):
        ahead = np.arange(columns) > np.arange(rows)[:, None] + (columns - rows)
        scores = call("where", const(ahead, "bool"), const(-np.inf, scores.dtype), scores)
    out = transpose(product(call("nn.softmax", scores, axis=3), values), (0, 2, 1, 3))
    return reshape(out, (*out.shape[:2], out.shape[2] * out.shape[3]))


def multi_head(node: Node) -> list[Expr]:
    """MultiHeadAttention: attention of projections that are made before; outputs are the result, keys and values.

    Keys and values may lie in one tensor, queries with them, or be split by heads already.
    """
    for index, what in ((8, "past_sequence_length"), (9, "cache_indirection")):
        node.require(node.optional(index) is None, f"{what} is for a buffer that is shared, which is not supported")
    heads = _given(node)
    old = [node.optional(6), node.optional(7)]
    node.require((old[0] is None) == (old[1] is None), "past_key and past_value belong together")
    if old[0] is not None and old[1] is not None and old[0].shape[2]:
        heads = Heads(heads.query, concatenate([old[0], heads.keys], 2), concatenate([old[1], heads.values], 2))
    out = _attended(node, heads, _mask(node, heads, node.optional(4)), node.optional(5))
    return [out, heads.keys, heads.values]


def _given(node: Node) -> Heads:
    """Queries, keys and values by heads, with their part of the bias."""
    query, key, value, bias = node.input(0), node.optional(1), node.optional(2), node.optional(3)
    if key is None:
        law = "without keys, queries must be (batch, sequence, heads, 3, size)"
        node.require(len(query.shape) == 5 and query.shape[3] == 3 and bias is None, law, shape=query.shape)
        return Heads(*(_slot(node, query, k) for k in range(3)))
    if value is None:
        law = "without values, keys must be (batch, sequence, heads, 2, size)"
        node.require(len(key.shape) == 5 and key.shape[3] == 2 and bias is None, law, shape=key.shape)
        return Heads(_by_heads(node, query), _slot(node, key, 0), _slot(node, key, 1))
    parts = [query, key, value]
    if bias is not None:
        node.require(all(len(p.shape) == 3 for p in parts), "a bias needs projections of three axes")
        widths = [p.shape[2] for p in parts]
        node.require(bias.shape == (sum(widths),), "the bias must have one value a column of Q, K and V",
                     bias=bias.shape, columns=widths)  # fmt: skip
        ends = np.cumsum([0, *widths]).tolist()
        parts = [add(p, pick(bias, {0: range(a, b)})) for p, a, b in zip(parts, ends[:-1], ends[1:], strict=True)]
    return Heads(*(_by_heads(node, part) for part in parts))


def _slot(node: Node, packed: Expr, k: int) -> Expr:
    """One of what lies side by side in every head: (batch, sequence, heads, parts, size)."""
    batch, rows, heads, _, size = packed.shape
    count = node.integer("num_heads")
    node.require(heads == count, "num_heads must be that of the tensor", shape=packed.shape, num_heads=count)
    return transpose(reshape(pick(packed, {3: range(k, k + 1)}), (batch, rows, heads, size)), (0, 2, 1, 3))


CONVERTERS: Converters = {
    "Attention": {1: attention},
    "MultiHeadAttention": {1: multi_head},
    "QAttention": {1: quantized_attention},
}
