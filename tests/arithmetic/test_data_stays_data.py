"""Arithmetic on data wraps around, and index arithmetic does not, whatever is inlined and whatever conditions fold."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from te_lite.expr.expr import Expr, binary, const
from te_lite.meaning import interp, reference
from tests.amount import some
from tests.arithmetic.backends import USUAL, Arrays, results
from tests.arithmetic.test_integers import WANT, wrap
from tests.nonempty import nonempty

N = 16
CONSTANTS = (1, 3, 7, 100000, 65536, 2**31 - 1, 2147000000)
Steps = list[tuple[str, int]]


def drawn(rng: random.Random, ops: list[str], count: int) -> Steps:
    """Operations, each on what was there and a constant."""
    return [(rng.choice(ops), rng.choice(CONSTANTS)) for _ in range(count)]


def written(x: Expr, steps: Steps) -> Expr:
    """The steps on an expression."""
    for op, c in steps:
        x = te.abs(x) if op == "abs" else binary(op, x, const(c))
    return x


def meant(x: int, steps: Steps, wraps: bool) -> int:
    """The steps on a number, as data or as an index."""
    for op, c in steps:
        x = abs(x) if op == "abs" else WANT[op](x, c)
        x = wrap(x, "int32") if wraps else x
    return x


INDEX, DATA = ["+", "*", "-"], ["+", "*", "-", "//", "%", "abs", "max"]


@pytest.mark.parametrize("seed", range(2))
def test_inlined_stages_of_indices(seed: int) -> None:
    rng = random.Random(seed)
    forms = [(drawn(rng, INDEX, rng.choice([0, 1, 2])), drawn(rng, DATA, 3)) for _ in range(24)]
    hidden = [te.compute((N,), lambda i, a=a: written(i + 0, a), name=f"t{k}") for k, (a, _) in enumerate(forms)]
    outputs = [
        te.compute((N,), lambda i, t=t, b=b: written(t[i], b), name="u")
        for t, (_, b) in zip(hidden, forms, strict=True)
    ]
    want = [np.array([meant(wrap(meant(p, a, False), "int32"), b, True) for p in range(N)], "int32") for a, b in forms]
    evaluated = reference.evaluate(outputs, {})
    s = te.create_schedule([t.op for t in outputs])
    read = {t.name for u in outputs for t in u.op.input_tensors()}
    for t in hidden:
        if t.name in read:
            s[t].compute_inline()
    func = te.lower(s, outputs)
    for run in (interp.run, lambda f, a: codegen_c.build(f)(*a)):
        got = [np.zeros(N, "int32") for _ in outputs]
        run(func, got)
        for t, (a, b), found, right in zip(outputs, forms, got, want, strict=True):
            np.testing.assert_array_equal(found, right, err_msg=f"{a} inlined into {b}")
            np.testing.assert_array_equal(evaluated[t], right, err_msg=f"reference: {a} read by {b}")


def _choices(i: Any, x: te.Tensor, c: te.Tensor) -> list[Expr]:
    """Data that folds to a constant or an index for some or all i."""
    return [
        te.if_then_else(i < 1, x[i], 2**31 - 1),
        te.if_then_else(i < N, 2147000000, x[i]),
        te.select(i < 4, x[i], i + 2147000000),
        te.select(c[i] >= -128, i + 2147000000, 5),
        te.cast("int32", te.if_then_else(i < 3, c[i], te.const(100, "int8"))),
        te.cast("int32", te.select(i >= 0, te.const(True, "bool"), c[i] > 0)),
        te.trunc(i + 2147483640),
    ]


def _choices_meant(p: int, x: np.ndarray, c: np.ndarray) -> list[int]:
    near = p + 2147000000
    x_p = int(x[p])
    last = wrap(p + 2147483640, "int32")
    return [x_p if p < 1 else 2**31 - 1, 2147000000, x_p if p < 4 else near, near, int(c[p]) if p < 3 else 100, 1, last]


@pytest.mark.parametrize("seed", range(2))
def test_conditions_that_fold(seed: int) -> None:
    rng = random.Random(seed)
    x, c = te.placeholder((N,), "int32", name="x"), te.placeholder((N,), "int8", name="c")
    given: Arrays = {x: np.arange(N, dtype="int32") - 3, c: np.arange(N, dtype="int8") - 5}
    forms = [(k, [("+", 2**31 - 1), *drawn(rng, DATA, 2)]) for k in range(7)]
    forms += [(k, drawn(rng, DATA, 3)) for k in range(7)]
    body = lambda i: tuple([written(_choices(i, x, c)[k], b) for k, b in forms])  # noqa: E731
    outputs = te.compute((N,), body, name="t")
    want = [np.array([meant(_choices_meant(p, given[x], given[c])[k], b, True) for p in range(N)]) for k, b in forms]
    for backend, found in nonempty(results(outputs, given, (*USUAL, "C unrolled")).items()):
        for got, right, form in nonempty(zip(found, want, forms, strict=True)):
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, {form}")


def _forms(zero: Any) -> list[Expr]:
    """What is 0 whatever an integer is, by the laws that `docs/arithmetic.md` has."""
    none, one = const(0, zero.dtype), const(1, zero.dtype)
    return [zero * none, none * zero, zero % one, *(
        binary(op, *operands) for op in ("//", "%", "/") for operands in ((zero, none), (none, zero)))]  # fmt: skip


ZERO_DATA: dict[str, Any] = {
    "a read": lambda i, x, c: x[i],
    "a choice that reads": lambda i, x, c: te.select(x[i] < 3, i, i + 1),
    "a power": lambda i, x, c: te.power(i, const(2)),
    "a narrow read": lambda i, x, c: c[i],
    "a narrow index": lambda i, x, c: te.cast("int8", i),
}
ZERO_INDICES: dict[str, Any] = {
    "an axis": lambda i, x, c: i,
    "a sum": lambda i, x, c: binary("max", i * 3, const(5)) + i,
    "abs": lambda i, x, c: te.abs(i - 3),
    "a choice": lambda i, x, c: te.select(i < 3, i, i + 1),
    "a branch": lambda i, x, c: te.if_then_else(i < 3, i, i + 1),
    "a cast": lambda i, x, c: te.cast("int32", te.cast("int64", i)),
}


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.one_in(2)
def test_zeros_are_what_they_are_made_of(op: str) -> None:
    """The index that one meets leaves the dtype: data cuts it before they meet, another index does not."""
    x, c = te.placeholder((N,), "int32", name="x"), te.placeholder((N,), "int8", name="c")
    given: Arrays = {x: np.arange(N, dtype="int32") - 3, c: np.arange(N, dtype="int8") - 5}
    far = {2**31 - 1: lambda i: i + 7 + (2**31 - 1), -(2**31): lambda i: const(-(2**31)) - (i + 7)}
    cases = [
        (name, end, form) for name in (*ZERO_DATA, *ZERO_INDICES) for end in far for form in range(0, 9, some(1, 3))
    ]

    def body(i: Any) -> tuple[Expr, ...]:
        zeros = {name: _forms(of(i, x, c)) for name, of in (ZERO_DATA | ZERO_INDICES).items()}
        return tuple([binary(op, te.cast("int32", zeros[name][form]), far[end](i)) for name, end, form in cases])

    outputs = te.compute((N,), body, name="t")
    for backend, found in nonempty(results(outputs, given, (*USUAL, "C unrolled")).items()):
        for got, (name, end, form) in nonempty(zip(found, cases, strict=True)):
            met = [end + p + 7 if end > 0 else end - p - 7 for p in range(N)]
            met = [wrap(v, "int32") for v in met] if name in ZERO_DATA else met
            right = [wrap(WANT[op](0, v), "int32") for v in met]
            np.testing.assert_array_equal(got, right, err_msg=f"{backend}, {name}, form {form}, {end}")
