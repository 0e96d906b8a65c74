"""Numbers to other numbers: columns of categories, and a value for a key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.loops import loop
from ...ir.nodes import Array, Expr
from ..onnx.emit import add, binary, broadcast_to, call, cast, const
from ..onnx.model import NO_TEXT
from ..onnx.node import Converters, Node

FEW = 12
"""So many keys are compared one after the other; more are searched for by halves."""


def one_hot(node: Node) -> Expr:
    """OneHotEncoder: a new last axis of categories, 1 where the element is that category, in float32.

    Floats are cut to integers.  Where `zeros` is 0 and ONNX's operator fails for a category that is unknown, its row is
    of NaN here, for nothing else can fail while a network runs.
    """
    x, kept = node.input(0), node.integer("zeros", 1)
    node.require(not node.texts("cats_strings", ()), f"its categories are strings: {NO_TEXT}")
    categories = node.integers("cats_int64s")
    node.require(len(set(categories)) == len(categories) > 0, "cats_int64s must be different", categories=categories)
    x = call("expand_dims", cast(x, "int64"), axis=len(x.shape))
    same = binary("equal", x, const(categories, "int64"))
    out = cast(same, "float32")
    if kept:
        return out
    known = call("max", out, axis=(len(out.shape) - 1,), keepdims=True)
    return call("where", binary("greater", known, 0), out, const(np.nan, "float32"))


def label_encoder(node: Node) -> Expr:
    """LabelEncoder of numbers: the value of the last equal key (NaN is equal to NaN), or the default."""
    kinds = {"keys": ("floats", "int64s", "tensor"), "values": ("floats", "int64s", "tensor")}
    for what in ("keys_strings", "values_strings", "classes_strings"):
        node.require(not node.has(what), f"{what} are strings: {NO_TEXT}")
    node.has("default_string")
    found = {}
    for what, names in kinds.items():
        given = [name for name in names if node.has(f"{what}_{name}")]
        node.require(len(given) == 1, f"{what} must be given once, as floats, int64s or a tensor", got=given)
        found[what] = _listed(node, what, given[0])
    keys, values = found["keys"], found["values"]
    node.require(keys.shape == values.shape and len(keys), "keys and values must be equally many, and some",
                 keys=len(keys), values=len(values))  # fmt: skip
    x = node.input(0)
    law = "keys must have the dtype of the input"
    node.require(str(keys.dtype) == x.dtype, law, keys=str(keys.dtype), input=x.dtype)
    return _looked_up(x, keys, values, _default(node, values))


def _listed(node: Node, what: str, kind: str) -> Array:
    """Keys or values as a vector."""
    if kind == "tensor":
        node.require(node.attrs[f"{what}_tensor"] is not None, f"{what}_tensor holds strings: {NO_TEXT}")
        return node.tensor(f"{what}_tensor", np.zeros(0)).reshape(-1)
    if kind == "floats":
        return np.array(node.numbers(f"{what}_floats"), "float32")
    return np.array(node.integers(f"{what}_int64s"), "int64")


def _default(node: Node, values: Array) -> Array:
    """What a key that is not there gives: -1, or -0.0 for floats, unless the attribute of the values' kind says so."""
    whole = np.issubdtype(values.dtype, np.integer)
    number = node.integer("default_int64", -1), node.number("default_float", -0.0)
    if node.has("values_tensor"):
        return np.asarray(node.tensor("default_tensor", np.array(-1 if whole else -0.0, values.dtype)).reshape(-1)[0])
    return np.array(number[0] if whole else number[1], values.dtype)


def _looked_up(x: Expr, keys: Array, values: Array, default: Array) -> Expr:
    kind = str(values.dtype)
    missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), bool)
    real = {k: v for k, v in zip(keys[~missing].tolist(), values[~missing], strict=True)}
    ordered = np.array(sorted(real), keys.dtype)
    said = np.array([real[k] for k in ordered.tolist()], values.dtype)
    out: Expr = broadcast_to(const(default, kind), x.shape)
    if len(ordered) <= FEW:
        for key, value in zip(ordered, said, strict=True):
            out = call("where", binary("equal", x, const(key, x.dtype)), const(value, kind), out)
    else:
        at = _position(x, ordered)
        same = binary("equal", call("take", const(ordered, x.dtype), at, axis=0, mode="fast"), x)
        out = call("where", same, call("take", const(said, kind), at, axis=0, mode="fast"), out)
    if missing.any():
        out = call("where", call("isnan", x), const(values[missing][-1], kind), out)
    return out


def _position(x: Expr, ordered: Array) -> Expr:
    """Where the largest key that is not above the element is; 0 where all are above it, or for NaN."""
    widths = [1 << k for k in reversed(range((len(ordered) - 1).bit_length()))]

    def step(slices: Sequence[Expr], state: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        further = add(state[0], slices[0])
        inside = binary("less", further, len(ordered))
        safe = call("where", inside, further, const(0, "int32"))
        reached = binary("less_equal", call("take", const(ordered, x.dtype), safe, axis=0, mode="fast"), x)
        return [call("where", call("logical_and", inside, reached), further, state[0])], []

    start = broadcast_to(const(0, "int32"), x.shape)
    return loop(step, [const(widths, "int32")], [start], len(widths))[0][0]


CONVERTERS: Converters = {"LabelEncoder": {1: label_encoder}, "OneHotEncoder": {1: one_hot}}
