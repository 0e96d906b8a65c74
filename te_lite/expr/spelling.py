"""What was meant: the known name that is most like one, and what is written instead of Python and NumPy."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean resnet-18? ` for `resnet18`: the one of `known` that is most like it; empty when none is."""
    plain: dict[str, str] = {}
    for one in known:
        plain.setdefault(_plain(one), one)
    found = difflib.get_close_matches(_plain(name), plain, 1, 0.6)
    return f"did you mean {plain[found[0]]}? " if found else ""


def public_names(kind: type) -> list[str]:
    """The methods and properties of a class that people use."""
    return [name for name in dir(kind) if not name.startswith("_")]


class Primitives:
    """Base of the parts of a schedule: a misspelt primitive is told, and so is one of another part.

    A part says how it is written: `class StageHandle(Primitives, written="s[C]")`.
    """

    _parts: ClassVar[dict[str, type[Primitives]]] = {}
    _written: ClassVar[str] = ""

    def __init_subclass__(cls, written: str | None = None) -> None:
        super().__init_subclass__()
        if written is not None:
            cls._written = written
            Primitives._parts[written] = cls

    @classmethod
    def _known(cls) -> list[str]:
        """The primitives that it has."""
        return public_names(cls)

    def __getattr__(self, name: str) -> Any:
        known = self._known()
        places = [f"{written}.{name}" for written, part in Primitives._parts.items() if name in part._known()]
        instead = f"write {places[0]}(...)" if places else f"{did_you_mean(name, known)}it has {', '.join(known)}"
        raise AttributeError(f"{self._written} has no {name!r}; {instead}")


# ------------------------------------------------------------------------------------------ instead of Python and NumPy


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "negative": operator.neg, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq,
    "not_equal": operator.ne,
}  # fmt: skip
"""The functions of NumPy behind Python's operators: a number of NumPy's beside an expression calls them."""

SUM_OF_PRODUCTS = "te.sum(a[i, k] * b[k, j], axis=k)"
REDUCED = "te.sum, te.prod, te.max or te.min over a te.reduce_axis"
TIMES = "x * 2**n for a number n, x * te.power(2, n) for an expression"
OVER = "x // 2**n for a number n, x // te.power(2, n) for an expression"
POWER = "te.power(x, y), or x * x"
TENSOR_TIMES = "x * 2**n for a number n, x * topi.power(2, n) for a tensor"
TENSOR_OVER = "x // 2**n for a number n, x // topi.power(2, n) for a tensor"
MATMUL = f"topi.nn.matmul(x, y), or a te.compute of {SUM_OF_PRODUCTS} over a te.reduce_axis k"
QUOTIENT_AND_REST = "x // y and x % y"
_PRODUCTS = ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")

INSTEAD: Mapping[str, str] = {
    "absolute": "te.abs(x)", "fabs": "te.abs(x)", "power": "te.power(x, y)", "float_power": "te.power(x, y)",
    "square": "x * x", "maximum": "te.maximum(x, y)", "minimum": "te.minimum(x, y)", "fmax": "te.maximum(x, y)",
    "fmin": "te.minimum(x, y)", "logical_and": "te.all(x, y)", "logical_or": "te.any(x, y)",
    "logical_not": "te.logical_not(x)", "rint": "te.round(x)", "round": "te.round(x)", "around": "te.round(x)",
    "clip": "te.maximum(te.minimum(x, high), low)", "where": "te.if_then_else(c, x, y)", "positive": "x",
    "divmod": QUOTIENT_AND_REST, "outer": "a[i] * b[j]", "left_shift": TIMES, "right_shift": OVER,
    "arctan": "te.atan(x)",
    "bitwise_and": "te.call('bit_and', x, y)", "bitwise_or": "te.call('bit_or', x, y)",
    "bitwise_xor": "te.call('bit_xor', x, y)",
} | {
    name: f"te.{name}(x)"
    for name in ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil",
                 "trunc", "isnan")
} | {
    name: f"te.call('{name.replace('arc', 'a')}', x)" for name in ("arcsin", "arccos", "arcsinh", "arccosh", "arctanh")
} | dict.fromkeys(("sum", "prod", "max", "min", "any", "all", "mean", "argmax", "argmin"), REDUCED) | dict.fromkeys(
    _PRODUCTS, SUM_OF_PRODUCTS
)  # fmt: skip
"""What is written instead of a function of NumPy on an expression."""

OF_ARRAYS: Mapping[str, str] = {
    "T": "topi.transpose(x)", "transpose": "topi.transpose(x)", "reshape": "topi.reshape(x, shape)",
    "flatten": "topi.nn.flatten(x)", "ravel": "topi.nn.flatten(x)", "squeeze": "topi.squeeze(x)",
    "astype": "topi.cast(x, dtype)", "sum": "topi.sum(x, axis)", "prod": "topi.prod(x, axis)",
    "max": "topi.max(x, axis)", "min": "topi.min(x, axis)", "argmax": "topi.argmax(x, axis)",
    "argmin": "topi.argmin(x, axis)", "mean": "topi.sum(x, axis) / n", "clip": "topi.clip(x, low, high)",
    "dot": "topi.nn.matmul(x, y)", "repeat": "topi.repeat(x, n, axis)",
}  # fmt: skip
"""What is written instead of an attribute of an array."""

OF_TENSORS: Mapping[str, str] = {name: text for name, text in OF_ARRAYS.items() if name != "T"} | {
    "absolute": "topi.abs(x)", "fabs": "topi.abs(x)", "square": "x * x", "rint": "topi.round(x)",
    "around": "topi.round(x)", "fmax": "topi.maximum(x, y)", "fmin": "topi.minimum(x, y)", "positive": "x",
    "float_power": "topi.power(x, y)", "divmod": QUOTIENT_AND_REST, "left_shift": TENSOR_TIMES,
    "right_shift": TENSOR_OVER, "where": "topi.where(c, x, y)", "concatenate": "topi.concatenate((x, y), axis)",
    "stack": "topi.stack((x, y), axis)", "expand_dims": "topi.expand_dims(x, axis)", "flip": "topi.flip(x, axis)",
    "tile": "topi.tile(x, reps)", "split": "topi.split(x, sections, axis)", "take": "topi.take(x, indices, axis)",
    "pad": "topi.nn.pad(x, before, after)", "broadcast_to": "topi.broadcast_to(x, shape)", "shape": "x.shape",
    "ndim": "x.ndim", "full_like": "topi.full_like(x, value)", "zeros_like": "topi.full_like(x, 0)",
    "ones_like": "topi.full_like(x, 1)",
} | {
    name: f"topi.{name}(x)"
    for name in ("exp", "exp2", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor",
                 "ceil", "trunc", "isnan", "round", "sign", "logical_not")
} | {
    name: f"topi.{name.replace('arc', 'a')}(x)"
    for name in ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")
} | {
    name: f"topi.{name}(x, y)"
    for name in ("power", "maximum", "minimum", "logical_and", "logical_or", "logical_xor", "bitwise_and",
                 "bitwise_or", "bitwise_xor")
} | {name: f"topi.{name}(x, axis)" for name in ("any", "all")} | dict.fromkeys(_PRODUCTS, MATMUL)  # fmt: skip
"""What is written instead of a function of NumPy on a tensor."""
