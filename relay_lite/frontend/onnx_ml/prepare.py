"""What is done to features before a model: scaled, normalised, filled in, compared, put together, picked."""

from __future__ import annotations

from math import prod

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import binary, call, cast, concatenate, const, mul, reshape, sub
from ..onnx.node import Converters, Node
from ..onnx.select import narrow, pick
from .scores import floats_of

NORMS = ("MAX", "L1", "L2")


def scaler(node: Node) -> Expr:
    """Scaler: (x - offset) * scale in float32; both are one value, or one a feature of the last axis."""
    x = node.input(0)
    wide = floats_of(x)
    for name, join, nothing in (("offset", sub, 0.0), ("scale", mul, 1.0)):
        values = node.numbers(name, (nothing,))
        fits = len(x.shape) and len(values) in (1, x.shape[-1])
        node.require(fits, f"{name} must be one value, or one a feature", shape=x.shape, values=len(values))
        wide = join(wide, const(values, wide.dtype))
    return cast(wide, "float32")


def normalizer(node: Node) -> Expr:
    """Normalizer: every row divided by its largest element, by its sum of sizes, or by its length, in float32.

    A row for which that is 0 stays as it is.
    """
    x, norm = floats_of(node.input(0)), node.text("norm", "MAX")
    node.require(norm in NORMS, f"norm must be one of {', '.join(NORMS)}", norm=norm)
    node.require(1 <= len(x.shape) <= 2, "the input must be rows of features", shape=x.shape)
    axis = (len(x.shape) - 1,)
    if norm == "MAX":
        size = call("max", x, axis=axis, keepdims=True)
    elif norm == "L1":
        size = call("sum", call("abs", x), axis=axis, keepdims=True)
    else:
        size = call("sqrt", call("sum", mul(x, x), axis=axis, keepdims=True))
    size = call("where", binary("equal", size, 0), const(1, x.dtype), size)
    return cast(binary("divide", x, size), "float32")


def imputer(node: Node) -> Expr:
    """Imputer: elements equal to one value (NaN is equal to NaN) become others, one for all or one a feature."""
    x = node.input(0)
    whole = not x.dtype.startswith("float")
    values = node.integers("imputed_value_int64s", ()) if whole else node.numbers("imputed_value_floats", ())
    law = f"imputed_value_{'int64s' if whole else 'floats'} must be one value, or one a feature"
    node.require(len(x.shape) and len(values) in (1, x.shape[-1]), law, shape=x.shape, values=len(values))
    if whole:
        replaced: float = node.integer("replaced_value_int64", 0)
        least, most = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
        held = [v for v in (replaced, *values) if not least <= v <= most]
        node.require(not held, f"values must be in the input's {x.dtype}", got=held)
    else:
        replaced = node.number("replaced_value_float", 0.0)
    gone = call("isnan", x) if replaced != replaced else binary("equal", x, const(replaced, x.dtype))
    return call("where", gone, const(values, x.dtype), x)


def binarizer(node: Node) -> Expr:
    """Binarizer: 1 where x is above the threshold, else 0, in the dtype of x."""
    x, threshold = node.input(0), node.number("threshold", 0.0)
    compared = x if x.dtype.startswith("float") else cast(x, "float64")
    return cast(binary("greater", compared, const(threshold, compared.dtype)), x.dtype)


def vectorizer(node: Node) -> Expr:
    """FeatureVectorizer: matrices side by side in float32, each cut or filled up with zeros to its width."""
    widths = node.integers("inputdimensions", ())
    node.require(len(widths) == len(node.inputs) > 0, "inputdimensions must be one an input", inputdimensions=widths)
    parts = []
    for index, width in enumerate(widths):
        x = node.input(index)
        node.require(1 <= len(x.shape) <= 2, "inputs must be rows of features", shape=x.shape)
        x = cast(x if len(x.shape) == 2 else reshape(x, (1, *x.shape)), "float32")
        if width < x.shape[1]:
            x = pick(x, {1: range(width)})
        elif width > x.shape[1]:
            x = concatenate([x, const(np.zeros((x.shape[0], width - x.shape[1])), "float32")], 1)
        parts.append(x)
    node.require(len({p.shape[0] for p in parts}) == 1, "inputs must have equally many rows",
                 shapes=[p.shape for p in parts])  # fmt: skip
    return concatenate([p for p in parts if p.shape[1]] or parts[:1], 1)


def extractor(node: Node) -> Expr:
    """ArrayFeatureExtractor: elements of the last axis at indices; of a vector one row."""
    x, indices = node.input(0), node.input(1)
    known = node.known(1)
    node.require(len(x.shape) >= 1, "the data must have an axis", shape=x.shape)
    inside = known is None or bool(((known >= 0) & (known < x.shape[-1])).all())
    node.require(inside, f"indices must be in 0 to {x.shape[-1] - 1}", indices=[] if known is None else known.tolist())
    flat = narrow(reshape(indices, (prod(indices.shape),)))
    found = call("take", x, flat, axis=len(x.shape) - 1)
    return reshape(found, (1, *found.shape)) if len(x.shape) == 1 else found


CONVERTERS: Converters = {
    "ArrayFeatureExtractor": {1: extractor},
    "Binarizer": {1: binarizer},
    "FeatureVectorizer": {1: vectorizer},
    "Imputer": {1: imputer},
    "Normalizer": {1: normalizer},
    "Scaler": {1: scaler},
}
