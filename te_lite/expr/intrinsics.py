"""Functions of scalars that expressions may call, in one table with all that is said of each.

    expr                     its name; whether it takes integers             name, of_integers
    interpreter, reference   its meaning                                     value, of_integers
    C text                   of C, and of other dialects                     c, dialects
    checks of results        what it makes of an error of its argument       whole, steepest, from_zero
    checks of results        how long the host takes for a point             slow

Everybody looks it up by its name, so one of your own is an entry (`register`) and a test.  Apart stand `if_then_else`,
which evaluates one branch, `pow`, `isnan` and the operations on bits, which have rules of their own for their text;
what a backend computes faster than a library is in the backend (`codegen_c/functions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ExprError, require
from ..later import when_called


@dataclass(frozen=True)
class Intrinsic:
    """A function of floats.

    value        its meaning, by NumPy, of arrays and of numbers, in their dtype
    of_integers  the same for integers; None where a float is needed
    c            its C text: a call, or 1.0{f} divided by one; {x} is the argument, {f} the suffix of float functions
    dialects     its text in a dialect that has another one
    whole        it gives whole numbers, exactly
    steepest     its largest slope, where it is not monotone
    from_zero    its argument is not negative
    slow         so many points of others take as long as one of it on the host
    arguments    how many it has; those of several have rules of their own for their text
    """

    name: str
    value: Callable[..., Any]
    of_integers: Callable[..., Any] | None = None
    c: str = ""
    dialects: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    steepest: float | None = None
    from_zero: bool = False
    slow: int = 1
    arguments: int = 1

    def text(self, x: str, f: str, dialect: str) -> str:
        """Its text in a dialect of C, of the text of its argument."""
        return self.dialects.get(dialect, self.c or f"{self.name}{{f}}({{x}})").format(x=x, f=f)


def _same(x: Any) -> Any:
    return x


_erf_of = np.frompyfunc(math.erf, 1, 1)
_power: Callable[..., Any] = when_called("te_lite.expr.arithmetic", "power")

BITS = ("bit_and", "bit_or", "bit_xor")
_TABLE = (
    Intrinsic("if_then_else", np.where, arguments=3),
    Intrinsic("exp", np.exp),
    Intrinsic("exp2", np.exp2),
    Intrinsic("log", np.log, from_zero=True),
    Intrinsic("log2", np.log2, from_zero=True),
    Intrinsic("sqrt", np.sqrt, from_zero=True),
    Intrinsic("rsqrt", lambda x: 1 / np.sqrt(x), c="1.0{f} / sqrt{f}({x})", dialects={"CUDA": "rsqrt{f}({x})"},
              from_zero=True),
    Intrinsic("tanh", np.tanh),
    Intrinsic("erf", lambda x: np.asarray(_erf_of(x), x.dtype)[()], slow=32),
    Intrinsic("sigmoid", lambda x: 1 / (1 + np.exp(-x)), c="1.0{f} / (1.0{f} + exp{f}(-({x})))"),
    Intrinsic("pow", _power, _power, arguments=2),
    Intrinsic("abs", np.abs, np.abs, c="fabs{f}({x})"),
    Intrinsic("floor", np.floor, _same, whole=True),
    Intrinsic("ceil", np.ceil, _same, whole=True),
    Intrinsic("round", np.rint, _same, c="rint{f}({x})", whole=True),
    Intrinsic("trunc", np.trunc, _same, whole=True),
    Intrinsic("sin", np.sin, steepest=1.0),
    Intrinsic("cos", np.cos, steepest=1.0),
    Intrinsic("tan", np.tan),
    Intrinsic("sinh", np.sinh),
    Intrinsic("cosh", np.cosh, from_zero=True),
    Intrinsic("asin", np.arcsin),
    Intrinsic("acos", np.arccos),
    Intrinsic("atan", np.arctan),
    Intrinsic("asinh", np.arcsinh),
    Intrinsic("acosh", np.arccosh),
    Intrinsic("atanh", np.arctanh),
    Intrinsic("isnan", np.isnan, lambda x: np.zeros(np.shape(x), bool)[()]),
    Intrinsic("bit_and", np.bitwise_and, np.bitwise_and, arguments=2),
    Intrinsic("bit_or", np.bitwise_or, np.bitwise_or, arguments=2),
    Intrinsic("bit_xor", np.bitwise_xor, np.bitwise_xor, arguments=2),
)  # fmt: skip
CALLS = {known.name: known for known in _TABLE}
"""The functions by their names."""


def register(intrinsic: Intrinsic) -> Intrinsic:
    """Enter a function of one argument of your own, which `te.call(name, x)` and `call` take from then on.

    Raises ExprError for one of several arguments, and for a name that another one has.
    """
    law = "a function of your own has one argument"
    require(intrinsic.arguments == 1, ExprError, f"intrinsic {intrinsic.name}", law, arguments=intrinsic.arguments)
    taken = CALLS.setdefault(intrinsic.name, intrinsic) is not intrinsic
    require(not taken, ExprError, f"intrinsic {intrinsic.name}", "another function has this name")
    return intrinsic
