"""Constants of int32 have no width: what leaves 32 bits, and how it meets other dtypes, by hand and by all who compute.

An operand of another dtype is cast, which converts the exact value; data of int32 is met modulo 2^32.
"""

from __future__ import annotations

import itertools
import math
import shutil
from typing import Any

import numpy as np
import pytest

from tests.nonempty import nonempty
from tests.reports.everywhere import WAYS, of_vectors

from .build import expression
from .description import Dag, Expr, Input, Stage
from .numpy_oracle import evaluate

LOWEST, HIGHEST = -(2**31), 2**31 - 1
PRODUCT: Expr = ("*", ("const", LOWEST, "int32"), ("const", HIGHEST, "int32"))
BELOW: Expr = ("+", ("const", -5, "int32"), ("const", LOWEST, "int32"))
X: Expr = ("load", "x", ("axis", "i"))
VALUE = LOWEST * HIGHEST


def const(value: float, dtype: str) -> Expr:
    return ("const", value, dtype)


CASES: list[tuple[Expr, str, Any]] = [
    (("min", BELOW, const(-3.0, "float16")), "float16", -math.inf),
    (("+", ("*", const(LOWEST, "int32"), const(4, "int32")), const(0.0, "float64")), "float64", -(2.0**33)),
    (("call", "bit_xor", const(0, "uint64"), PRODUCT), "uint64", VALUE % 2**64),
    (("+", const(7, "uint64"), PRODUCT), "uint64", (VALUE + 7) % 2**64),
    (("+", const(7, "int64"), PRODUCT), "int64", VALUE + 7),
    (("call", "pow", const(3, "int64"), ("-", PRODUCT, PRODUCT)), "int64", 1),
    (("+", const(7, "uint32"), PRODUCT), "uint32", (VALUE + 7) % 2**32),
    (("cast", "uint64", PRODUCT), "uint64", VALUE % 2**64),
    (("cast", "int16", BELOW), "int16", -5),
    (("select", ("<", X, const(1, "int32")), PRODUCT, const(0, "int32")), "int32", LOWEST),
    (("+", X, PRODUCT), "int32", LOWEST),
    (("//", PRODUCT, ("+", X, const(2, "int32"))), "int32", LOWEST // 2),
    (("<", PRODUCT, X), "bool", True),
]


def with_data(e: Any) -> Any:
    """`x[i]` as a name, for te_lite is given the element."""
    if e == X:
        return ("axis", "x")
    return tuple(map(with_data, e)) if isinstance(e, tuple) else e


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0][0]} {case[0][1]} {case[1]}")
def test_by_all(case: tuple[Expr, str, Any]) -> None:
    e, dtype, value = case
    x = np.zeros(8, "int32")
    want = np.full(8, value, dtype)
    dag = Dag((Input("x", (8,), "int32"),), (Stage(("t",), (("i", 8),), (e,)),), ("t",))
    with np.errstate(all="ignore"):
        found = evaluate(dag, {"x": x})["t"]
    assert (found.dtype, found.v.tolist()) == (dtype, want.tolist()) and (np.asarray(found.e) == 0).all()
    ways = of_vectors(lambda data: expression(with_data(e), {"x": data}, {}), [x])
    constant = e == with_data(e)  # else, with constants for data, it is another expression
    for who, got in nonempty(ways if constant else itertools.islice(ways, len(WAYS) + 1)):
        assert got.dtype.name == dtype, who
        np.testing.assert_array_equal(got, want, who)
