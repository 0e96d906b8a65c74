"""Inputs that are given a value when the model is read: from then on they are constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import FLOATS

from ...ir.errors import GraphError
from ...ir.nodes import Array, Constant
from .model import OnnxInput


def fixed_input(given: Any, value: OnnxInput, shape: Sequence[Any] | None, dtype: str) -> Constant:
    """The constant of an input from a number, a list or an array; a number fills an input of one element.

    Raises GraphError for what an input of its dtype and shape cannot be.
    """
    what, found = f"ONNX input {value.name!r}", np.asarray(given)
    tensor = not value.sequence and found.dtype.kind in "biuf"
    require(tensor, GraphError, what, "the value of a tensor of numbers can be fixed", value=given)
    extents = value.shape if shape is None else tuple(shape)
    if found.ndim == 0 and extents is not None and all(not isinstance(d, int) or d == 1 for d in extents):
        found = found.reshape((1,) * len(extents))
    fits = extents is None or len(extents) == found.ndim
    fits = fits and all(not isinstance(d, int) or d == n for d, n in zip(extents or (), found.shape, strict=False))
    require(fits, GraphError, what, "the fixed value must have its shape", value=found.shape, declared=extents)
    return Constant(_converted(what, found, dtype))


def _converted(what: str, found: Array, dtype: str) -> Array:
    """The numbers in a dtype, which must hold them: floats are rounded, all others must be the same afterwards."""
    with np.errstate(all="ignore"):
        made = found.astype(dtype)
    rounded = dtype in FLOATS and bool(np.all(np.isfinite(made.astype("float64")) == np.isfinite(found)))
    same = rounded or np.array_equal(made.astype(found.dtype), found)
    law = f"the fixed value must be one of {dtype}"
    require(same, GraphError, what, law, value=found.tolist())
    return made


def fixed_from_text(texts: Sequence[str]) -> Mapping[str, Any]:
    """Values by input from texts such as `sr=16000`, `flags=1,0` and `on=true`.  Raises GraphError for others."""
    found: dict[str, Any] = {}
    for text in texts:
        name, _, values = text.rpartition("=")
        numbers = [_number(part.strip()) for part in values.split(",")]
        ok = name and name not in found and None not in numbers
        law = "an input and its value are needed, once each, as in sr=16000 or flags=1,0"
        require(ok, GraphError, "--fix", law, got=text)
        found[name] = numbers[0] if len(numbers) == 1 else numbers
    return found


def _number(text: str) -> bool | int | float | None:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
