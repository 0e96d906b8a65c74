"""What looks like Python or NumPy and is no expression: one sentence each, which says what to write instead.

An expression is written once and stands for every point of a loop nest, so it has no value that Python or NumPy could
take.  `Unvalued` is the base of the expressions, `NoArray` that of tensors; they refuse what these are not for.  What
both have of Python's arithmetic is `Operators`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

import numpy as np

from ..errors import ExprError, require
from .dtype import python_number
from .spelling import (
    INSTEAD,
    MATMUL,
    OF_ARRAYS,
    OF_TENSORS,
    OPERATORS,
    OVER,
    POWER,
    QUOTIENT_AND_REST,
    REDUCED,
    SUM_OF_PRODUCTS,
    TENSOR_OVER,
    TENSOR_TIMES,
    TIMES,
    did_you_mean,
    public_names,
)


def operand_law(value: object) -> str:
    """What is said of a value that is no operand of an expression."""
    needed = "a number or an expression is needed"
    if isinstance(value, np.ndarray | list | tuple):
        return f"{needed}, and an array is neither; make it a te.placeholder and read an element of it, p[i]"
    return f"{needed} (of a tensor an element, a[i, j])"


def operands_law(value: object) -> str:
    """What is said of a value that is no operand of an operation on tensors."""
    many = isinstance(value, np.ndarray | list | tuple)
    return (
        f"the operands must be tensors, expressions or numbers{'; make a te.placeholder of an array' if many else ''}"
    )


def _refused(python: str, instead: str) -> Callable[..., Any]:
    """A method that refuses an operator of Python."""

    def refuse(self: _NoNumPy, *operands: object) -> NoReturn:
        raise ExprError(f"{python} is not for {self._many} such as {self!r}; write {instead}")

    return refuse


class _NoNumPy:
    """Base of what no function of NumPy's is for; what Python's operators mean, they mean beside its numbers too."""

    __slots__ = ()
    _one: ClassVar[str]
    _many: ClassVar[str]
    _instead: ClassVar[Mapping[str, str]]
    _otherwise: ClassVar[str]

    @staticmethod
    def _law(value: object) -> str:
        """What is said of a value that is no operand."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = str(ufunc.__name__)
        if method == "__call__" and name in OPERATORS and not options:
            return OPERATORS[name](*[self._beside(name, x) for x in inputs])
        whole = method == "__call__"
        instead = self._instead.get(name, self._otherwise) if whole else REDUCED
        self._no_numpy(f"np.{name}" if whole else f"np.{name}.{method}", instead)

    def _beside(self, name: str, value: Any) -> Any:
        """An operand that NumPy hands over: it must be none of NumPy's own, which would be handed over again."""
        number = python_number(value)
        own = isinstance(number, np.ndarray | np.generic)
        require(not own, ExprError, name, self._law(number), got=number)
        return number

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
        self._no_numpy(name, self._instead.get(func.__name__, self._otherwise))

    def _no_numpy(self, name: str, instead: str) -> NoReturn:
        raise ExprError(f"{name}: works on arrays, and {self!r} is {self._one}; write {instead}")


Value = TypeVar("Value")
Operand = TypeVar("Operand")


class Operators(Generic[Value, Operand]):
    """Python's operators on what arithmetic is written with: expressions and tensors."""

    __slots__ = ()

    def _operator(self, op: str, a: Any, b: Any) -> Value:
        raise NotImplementedError

    def __add__(self, other: Operand) -> Value:
        return self._operator("+", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self._operator("+", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self._operator("-", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._operator("-", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self._operator("*", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self._operator("*", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self._operator("/", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._operator("/", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self._operator("//", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self._operator("//", other, self)

    def __mod__(self, other: Operand) -> Value:
        return self._operator("%", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return self._operator("%", other, self)


class NoArray(_NoNumPy):
    """Base of tensors: what they lack of NumPy's arrays is refused in a sentence."""

    __slots__ = ()
    _one = "a tensor"
    _many = "tensors"
    _instead = OF_TENSORS
    _otherwise = "te.compute, with the expression of an element, or a function of topi"
    _law = staticmethod(operands_law)

    def __getattr__(self, name: str) -> Any:
        if name in OF_ARRAYS:
            raise AttributeError(f"{self!r} is no array and has no .{name}; write {OF_ARRAYS[name]}")
        hint = "" if name.startswith("_") else did_you_mean(name, public_names(type(self)))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint and '; ' + hint.strip()}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc.__name__ in ("equal", "not_equal"):
            return ufunc.__name__ == "not_equal"  # as for everything else that is no tensor
        return super().__array_ufunc__(ufunc, method, *inputs, **options)

    def __array__(self, *options: object, **named: object) -> NoReturn:
        law = "is no array, and has values only while its program runs"
        raise ExprError(f"{self!r} {law}; write {self._otherwise}")

    __matmul__ = __rmatmul__ = _refused("x @ y", MATMUL)
    __pow__ = __rpow__ = _refused("x ** y", "topi.power(x, y), or x * x")
    __abs__ = _refused("abs(x)", "topi.abs(x)")
    __round__ = _refused("round(x)", "topi.round(x)")
    __floor__ = _refused("math.floor(x)", "topi.floor(x)")
    __ceil__ = _refused("math.ceil(x)", "topi.ceil(x)")
    __trunc__ = _refused("math.trunc(x)", "topi.trunc(x)")
    __float__ = _refused("float(x), or a function of math,", "topi.cast(x, 'float32'), topi.exp(x) and the like")
    __int__ = _refused("int(x)", "topi.cast(x, 'int32')")
    __pos__ = _refused("+x", "x")
    __divmod__ = __rdivmod__ = _refused("divmod(x, y)", QUOTIENT_AND_REST)
    __lshift__ = __rlshift__ = _refused("x << n", TENSOR_TIMES)
    __rshift__ = __rrshift__ = _refused("x >> n", TENSOR_OVER)
    __and__ = __rand__ = _refused("x & y", "topi.logical_and(x, y) of bools, topi.bitwise_and(x, y) of integers")
    __or__ = __ror__ = _refused("x | y", "topi.logical_or(x, y) of bools, topi.bitwise_or(x, y) of integers")
    __xor__ = __rxor__ = _refused("x ^ y", "topi.bitwise_xor(x, y), or topi.power(x, y) for a power")
    __invert__ = _refused("~x", "topi.logical_not(x) of a bool, -1 - x of a signed integer")
    __lt__ = _refused("x < y", "topi.less(x, y)")
    __le__ = _refused("x <= y", "topi.less_equal(x, y)")
    __gt__ = _refused("x > y", "topi.greater(x, y)")
    __ge__ = _refused("x >= y", "topi.greater_equal(x, y)")


class Unvalued(_NoNumPy):
    """Base of the expressions: what asks one for its value, or writes it as NumPy would, is refused with ExprError."""

    __slots__ = ()
    _one = "an expression"
    _many = "expressions"
    _instead = INSTEAD
    _otherwise = "a function of te"
    _law = staticmethod(operand_law)

    def _no_value(self, instead: str) -> NoReturn:
        raise ExprError(f"the expression {self!r} has no value in Python, it stands for a whole loop; {instead}")

    def __array__(self, *options: object, **named: object) -> NoReturn:
        self._no_value("index a te.placeholder instead of an array, and make a list of expressions instead of an array")

    def __float__(self) -> float:
        self._no_value("write te.exp(x) and the like instead of math.exp(x), and x.astype('float32') for a conversion")

    def __int__(self) -> int:
        self._no_value("write x.astype('int32') for a conversion")

    def __index__(self) -> int:
        self._no_value("index tensors with it (a list of constants becomes a te.placeholder), and loop with te.compute")

    def __iter__(self) -> Iterator[Any]:
        self._no_value("one index and one element at a time are written; loop with te.compute or te.reduce_axis")

    def __len__(self) -> int:
        self._no_value("an expression is one number; of a tensor x, x.shape has the extents")

    def __getitem__(self, index: object) -> NoReturn:
        self._no_value("an expression is one number and has no elements; all indices of a tensor are written at once, "
                       "a[i, j]")  # fmt: skip

    __matmul__ = __rmatmul__ = _refused("x @ y", SUM_OF_PRODUCTS)
    __pow__ = __rpow__ = _refused("x ** y", POWER)
    __abs__ = _refused("abs(x)", "te.abs(x)")
    __round__ = _refused("round(x)", "te.round(x)")
    __floor__ = _refused("math.floor(x)", "te.floor(x)")
    __ceil__ = _refused("math.ceil(x)", "te.ceil(x)")
    __trunc__ = _refused("math.trunc(x)", "te.trunc(x)")
    __pos__ = _refused("+x", "x")
    __divmod__ = __rdivmod__ = _refused("divmod(x, y)", QUOTIENT_AND_REST)
    __lshift__ = __rlshift__ = _refused("x << n", TIMES)
    __rshift__ = __rrshift__ = _refused("x >> n", OVER)
    __and__ = __rand__ = _refused("x & y", "te.all(x, y) of bools, te.call('bit_and', x, y) of integers")
    __or__ = __ror__ = _refused("x | y", "te.any(x, y) of bools, te.call('bit_or', x, y) of integers")
    __xor__ = __rxor__ = _refused("x ^ y", "te.call('bit_xor', x, y) of integers, or te.power(x, y) for a power")
    __invert__ = _refused("~x", "te.logical_not(x) of a bool, -1 - x of a signed integer")


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
