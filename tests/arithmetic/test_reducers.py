"""Every reducer over every dtype of every unary and binary operator compiles and is NumPy's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from te_lite.expr.expr import Expr, binary, call, cast, compare, const
from te_lite.expr.reduction import all_reduce, any_reduce
from te_lite.meaning import interp
from tests.arithmetic.test_integers import WANT, wrap
from tests.nonempty import nonempty

INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
DTYPES = ("bool", *INTEGERS, "float32", "float64")
SHAPE = (4, 3, 16)
REDUCERS: dict[str, tuple[Callable[..., Expr], Any]] = {
    "sum": (te.sum, np.add), "prod": (te.prod, np.multiply), "max": (te.max, np.maximum), "min": (te.min, np.minimum),
    "any": (any_reduce, np.logical_or), "all": (all_reduce, np.logical_and),
}  # fmt: skip


def operators(dtype: str) -> dict[str, tuple[Callable[[Expr], Expr], Callable[[np.ndarray], np.ndarray]]]:
    """What is done to the elements before they are reduced: in te, and in NumPy by Python's integers."""
    if dtype == "bool":
        return {"as it is": (lambda e: e, lambda x: x), "not": (te.logical_not, np.logical_not)}
    if dtype.startswith("f"):
        two = np.dtype(dtype).type(2.5)
        return {
            "/": (lambda e: e / 2.5, lambda x: x / two), "abs": (lambda e: call("abs", e), np.abs),
            "floor": (lambda e: call("floor", e), np.floor), "isnan": (lambda e: call("isnan", e), np.isnan),
        }  # fmt: skip
    out: dict[str, Any] = {
        "isnan": (lambda e: call("isnan", e), lambda x: np.zeros(x.shape, bool)),
        "<": (lambda e: compare("<", e, const(3, dtype)), lambda x: x < 3),
        "cast": (lambda e: cast("int64", e), lambda x: x.astype("int64")),
        "abs": (lambda e: call("abs", e), lambda x: x if dtype[0] == "u" else np.abs(x)),
    }
    divisor = 3 if dtype[0] == "u" else -3
    for op in ("+", "-", "*", "/", "//", "%", "min", "max"):
        python = lambda x, op=op: np.vectorize(  # noqa: E731
            lambda v: wrap(WANT[op](int(v), divisor), dtype), otypes=[dtype]
        )(x)
        out[op] = (lambda e, op=op: binary(op, e, const(divisor, dtype)), python)
    return out


def case(dtype: str, reducer: str, operator: str) -> bool:
    """Whether a reducer applies to what an operator gives: logical ones to bools, the others to any."""
    gives_bool = operator in ("isnan", "<", "not", "as it is")
    return gives_bool if reducer in ("any", "all") else not gives_bool or reducer in ("max", "min")


CASES = [
    (d, r, o) for d, r in itertools.product(DTYPES, REDUCERS) for o in operators(d) if case(d, r, o)
]  # fmt: skip


def usual(dtype: str, reducer: str, operator: str) -> bool:
    """The cases of `make test`."""
    few = reducer in ("max", "sum", "any") and operator in ("/", "%", "isnan", "not", "as it is")
    return few and dtype in ("bool", "int16", "float32")


def reduced(x: te.Tensor, reducer: Callable[..., Expr], apply: Callable[[Expr], Expr]) -> tuple[te.Tensor, te.Tensor]:
    """A copy of `x` as a stage of its own, and what the reducer makes of its two outer axes."""
    copy = te.compute(SHAPE, lambda i, j, k: te.select(k < 99, x[i, j, k], x[0, 0, 0]), name="copy")
    a, b = te.reduce_axis((0, SHAPE[0]), "a"), te.reduce_axis((0, SHAPE[1]), "b")
    return copy, te.compute((SHAPE[2],), lambda k: reducer(apply(copy[a, b, k]), axis=[a, b]), name="r")


def built(dtype: str, kind: int, every: bool) -> tuple[te.LoweredFunc, list[np.ndarray], list[np.ndarray], list[str]]:
    """All cases of a dtype in one program: a stage before in registers or in memory, vectors inside or outside."""
    rng = np.random.default_rng(5)
    x = te.placeholder(SHAPE, dtype, name="x")
    low, high = (-9, 9) if dtype.startswith("f") else (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, 127)
    given = (rng.uniform(low, high, SHAPE) if dtype.startswith("f") else rng.integers(low, high, SHAPE)).astype(dtype)
    outputs, want, names, before = [], [], [], []
    for _, reducer, name in [c for c in CASES if c[0] == dtype and (every or usual(*c))]:
        te_reducer, ufunc = REDUCERS[reducer]
        apply, numpy = operators(dtype)[name]
        copy, out = reduced(x, te_reducer, apply)
        value = numpy(given)
        want.append(ufunc.reduce(value, axis=(0, 1), dtype=value.dtype))
        outputs.append(out)
        before.append(copy)
        names.append(f"{dtype} {reducer} {name}")
    s = te.create_schedule([t.op for t in outputs])
    for out, copy in zip(outputs, before, strict=True):
        outer, inner = s[out].split(s[out].op.axis[0], 8)
        a, b = s[out].op.reduce_axis
        s[out].reorder(outer, a, b, inner)
        s[out].vectorize(inner)
        if kind == 0:
            s[copy].compute_at(s[out], b)
            s[copy].vectorize(s[copy].op.axis[2])
        else:
            s[copy].compute_inline()
    return te.lower(s, [x, *outputs]), [given], want, names


USUAL = [(d, 0, False) for d in DTYPES if any(usual(*c) for c in CASES if c[0] == d)]
SLOW = [pytest.param(d, k, True, marks=pytest.mark.slow) for d in DTYPES for k in (0, 1)]


@pytest.mark.parametrize(("dtype", "kind", "every"), [*USUAL, *SLOW])
def test_reducers(dtype: str, kind: int, every: bool) -> None:
    func, given, want, names = built(dtype, kind, every)
    for run in (interp.run, lambda f, args: codegen_c.build(f)(*args)):
        got = [np.full(b.shape, 1, b.dtype) for b in func.args[1:]]
        run(func, [*given, *got])
        for x, y, name in nonempty(zip(got, want, names, strict=True)):
            if x.dtype.kind == "f":
                np.testing.assert_allclose(x, y, rtol=1e-5, err_msg=name)
            else:
                np.testing.assert_array_equal(x, y, err_msg=name)
