"""What looks like Python or NumPy and is no expression: one sentence each, which says what to write instead.

An expression is written once and stands for every point of a loop nest, so it has no value that Python or NumPy could
take.  `Unvalued` is the base of the expressions; it refuses what they are not for.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .dtype import python_number
from .errors import ExprError

OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "negative": operator.neg, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq,
    "not_equal": operator.ne,
}  # fmt: skip
"""The functions of NumPy behind Python's operators: a number of NumPy's beside an expression calls them."""

INSTEAD = {
    "absolute": "te.abs(x)", "fabs": "te.abs(x)", "power": "te.power(x, y)", "float_power": "te.power(x, y)",
    "square": "x * x", "maximum": "te.maximum(x, y)", "minimum": "te.minimum(x, y)", "fmax": "te.maximum(x, y)",
    "fmin": "te.minimum(x, y)", "logical_and": "te.all(x, y)", "logical_or": "te.any(x, y)",
    "logical_not": "te.logical_not(x)", "rint": "te.round(x)", "matmul": "te.sum(a[i, k] * b[k, j], axis=k)",
    "clip": "te.maximum(te.minimum(x, high), low)",
} | {
    name: f"te.{name}(x)"
    for name in ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil",
                 "trunc", "isnan")
}  # fmt: skip
"""What is written instead of a function of NumPy."""


OF_ARRAYS = {
    "T": "topi.transpose(x)", "transpose": "topi.transpose(x)", "reshape": "topi.reshape(x, shape)",
    "flatten": "topi.nn.flatten(x)", "ravel": "topi.nn.flatten(x)", "squeeze": "topi.squeeze(x)",
    "astype": "topi.cast(x, dtype)", "sum": "topi.sum(x, axis)", "prod": "topi.prod(x, axis)",
    "max": "topi.max(x, axis)", "min": "topi.min(x, axis)", "argmax": "topi.argmax(x, axis)",
    "argmin": "topi.argmin(x, axis)", "mean": "topi.sum(x, axis) / n", "clip": "topi.clip(x, low, high)",
    "dot": "topi.nn.matmul(x, y)", "repeat": "topi.repeat(x, n, axis)",
}  # fmt: skip
"""What is written instead of an attribute of an array."""


class NoArray:
    """Base of tensors: what they lack of NumPy's arrays is refused in a sentence."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name not in OF_ARRAYS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(f"{self!r} is no array and has no .{name}; write {OF_ARRAYS[name]}")

    def _written(self, python: str, instead: str) -> NoReturn:
        raise ExprError(f"{python} is not for tensors such as {self!r}; write {instead}")

    def __matmul__(self, other: object) -> Any:
        self._written("x @ y", "topi.nn.matmul(x, y)")

    def __rmatmul__(self, other: object) -> Any:
        self._written("x @ y", "topi.nn.matmul(x, y)")

    def __pow__(self, other: object) -> Any:
        self._written("x ** y", "topi.power(x, y), or x * x")

    def __abs__(self) -> Any:
        self._written("abs(x)", "topi.abs(x)")


class Unvalued:
    """Base of the expressions: what asks one for its value, or writes it as NumPy would, is refused with ExprError."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and ufunc.__name__ in OPERATORS and not options:
            return OPERATORS[ufunc.__name__](*map(python_number, inputs))
        reduced = "te.sum, te.prod, te.max or te.min over a te.reduce_axis"
        instead = reduced if method == "reduce" else INSTEAD.get(ufunc.__name__, "a function of te")
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise ExprError(f"np.{name}: works on arrays, and {self!r} is an expression; write {instead}")

    def _no_value(self, instead: str) -> NoReturn:
        raise ExprError(f"the expression {self!r} has no value in Python, it stands for a whole loop; {instead}")

    def __float__(self) -> float:
        self._no_value("write te.exp(x) and the like instead of math.exp(x), and x.astype('float32') for a conversion")

    def __int__(self) -> int:
        self._no_value("write x.astype('int32') for a conversion")

    def __index__(self) -> int:
        self._no_value("index tensors with it (a list of constants becomes a te.placeholder), and loop with te.compute")

    def __iter__(self) -> Iterator[Any]:
        self._no_value("one index and one element at a time are written; loop with te.compute or te.reduce_axis")

    def _written(self, python: str, instead: str) -> NoReturn:
        raise ExprError(f"{python} is not for expressions such as {self!r}; write {instead}")

    def __abs__(self) -> Any:
        self._written("abs(x)", "te.abs(x)")

    def __pow__(self, other: object) -> Any:
        self._written("x ** y", "te.power(x, y), or x * x")

    def __round__(self, digits: int | None = None) -> Any:
        self._written("round(x)", "te.round(x)")

    def __rpow__(self, other: object) -> Any:
        self._written("x ** y", "te.power(x, y)")

    def __matmul__(self, other: object) -> Any:
        self._written("x @ y", "te.sum(a[i, k] * b[k, j], axis=k)")

    def __and__(self, other: object) -> Any:
        self._written("x & y", "te.all(x, y)")

    def __or__(self, other: object) -> Any:
        self._written("x | y", "te.any(x, y)")

    def __invert__(self) -> Any:
        self._written("~x", "te.logical_not(x)")


class _Writing(threading.local):
    depth = 0


_WRITING = _Writing()


@contextmanager
def writing() -> Iterator[None]:
    """While a user's function writes the element of a tensor: `==` of two different expressions is no question then."""
    _WRITING.depth += 1
    try:
        yield
    finally:
        _WRITING.depth -= 1


def no_truth(e: object) -> ExprError:
    """The error of an expression in a Python `if`, `and`, `or` or `not`."""
    law = "has no truth value in Python; use te.if_then_else, te.all or te.any"
    return ExprError(f"the expression {e!r} {law}")


def truth_of_equality(e: object, alike: bool, wanted: bool) -> bool:
    """Whether `a == b` (or `!=`) holds of two expressions as texts, which dictionaries ask.

    Raises ExprError while an element is written: an `if a[i] == 0` there means the values.
    """
    if not alike and _WRITING.depth:
        raise no_truth(e)
    return alike == wanted
