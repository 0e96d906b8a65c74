"""Random programs and expressions for property tests, and their meaning in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from te_lite.expr.expr import (
    Binary,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Logical,
    Not,
    Select,
    Var,
    binary,
    cast,
    compare,
    const,
    if_then_else,
    logical_and,
    logical_not,
    logical_or,
    select,
)

FACTORS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 28, 49)


def _pick(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def random_index_expr(rng: np.random.Generator, variables: Sequence[Var], depth: int) -> Expr:
    """A random int32 expression over `variables`, at most about `depth` operations deep; it never divides by 0."""
    if depth <= 0:
        return const(int(rng.integers(-20, 21))) if rng.random() < 0.2 else _pick(rng, variables)
    kind = int(rng.integers(100))
    a = random_index_expr(rng, variables, depth - 1)
    if kind < 20:
        return binary(_pick(rng, ("//", "%")), a, _pick(rng, FACTORS))
    if kind < 24:
        return binary(_pick(rng, ("//", "%", "/")), a, _pick(rng, (-8, -3, -1, 1, 2, 4)))
    if kind < 36:
        return a * _pick(rng, (-1, *FACTORS)) + int(rng.integers(-9, 10))
    if kind < 52:
        return _split_and_fused(rng, a)
    b = random_index_expr(rng, variables, depth - 1 - int(rng.integers(2)))
    if kind < 72:
        return binary(_pick(rng, ("+", "-")), a * _pick(rng, (1, 1, *FACTORS)), b)
    if kind < 80:
        return binary(_pick(rng, ("min", "max")), a, b)
    if kind < 88:
        return _pick(rng, (select, if_then_else))(random_condition(rng, variables, depth - 2), a, b)
    if kind < 92:
        return binary(_pick(rng, ("//", "%")), a, binary("max", b, 1) if kind < 91 else binary("min", b, -1))
    if kind < 95:
        return cast("int32", random_condition(rng, variables, depth - 2))
    return binary("*", a % 5, b % 3) if kind < 98 else cast("int32", cast("int64", a) - cast("int64", b))


def _split_and_fused(rng: np.random.Generator, x: Expr) -> Expr:
    """Quotients and remainders of `x` as splitting and fusing loops make them, at times slightly wrong."""
    a, b, k = (int(_pick(rng, FACTORS)) for _ in range(3))
    wrong = int(rng.random() < 0.1)
    form = int(rng.integers(5))
    if form == 0:
        return (x // a) * (k * a + wrong) + (x % a) * k
    if form == 1:
        return (x // a * (1 + wrong) % b) * a + (x + int(rng.random() < 0.1)) % a
    if form == 2:
        return x * k - x // a * (a * k + wrong)
    if form == 3:
        return ((x * a + x % a) // (a + wrong)) % b
    return x - (x + wrong) % a


def random_condition(rng: np.random.Generator, variables: Sequence[Var], depth: int) -> Expr:
    """A random boolean expression of comparisons of index expressions."""
    kind = int(rng.integers(10))
    if depth > 0 and kind < 4:
        a, b = random_condition(rng, variables, depth - 1), random_condition(rng, variables, depth - 1)
        return logical_not(a) if kind == 0 else (logical_and if kind < 3 else logical_or)(a, b)
    a = random_index_expr(rng, variables, depth)
    if kind == 9:
        return _two_comparisons(rng, a)
    b = a // 4 * 4 if kind == 4 else const(int(rng.integers(-8, 40))) if kind < 8 else _pick(rng, variables)
    return compare(_pick(rng, ("<", "<=", ">", ">=", "==", "!=")), a, b)


def _two_comparisons(rng: np.random.Generator, a: Expr) -> Expr:
    """Two comparisons of one expression with constants that are close to each other."""
    c = int(rng.integers(-3, 12))
    order = ("<", "<=", ">", ">=")
    x, y = (compare(_pick(rng, order), a, c + int(rng.integers(3))) for _ in range(2))
    return _pick(rng, (logical_and, logical_or))(x, y)


def index_exprs(variables: Sequence[Var], depth: int = 4) -> st.SearchStrategy[Expr]:
    """Hypothesis strategy of `random_index_expr`; it shrinks towards shallow expressions."""
    return st.builds(
        lambda seed, d: random_index_expr(np.random.default_rng(seed), variables, d),
        st.integers(0, 2**32 - 1),
        st.integers(0, depth),
    )


def grid(ranges: Mapping[Var, tuple[int, int]]) -> dict[Var, np.ndarray]:
    """All combinations of values in `ranges` (inclusive), each variable as a flat int64 array."""
    axes = np.meshgrid(*(np.arange(lo, hi + 1) for lo, hi in ranges.values()), indexing="ij")
    return {var: axis.reshape(-1) for var, axis in zip(ranges, axes, strict=True)}


_NUMPY = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod,
    "min": np.minimum, "max": np.maximum, "<": np.less, "<=": np.less_equal, ">": np.greater,
    ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal, "&&": np.logical_and, "||": np.logical_or,
}  # fmt: skip


def evaluate(e: Expr, env: Mapping[Any, np.ndarray]) -> np.ndarray:
    """The values of `e` over the points of `env` (variables to arrays, buffers to their contents).

    Integers are int64 whatever their dtype.  A float operand makes the operation a float64 one.
    """
    match e:
        case Var():
            return env[e]
        case Const(value=value):
            return np.asarray(value)
        case Binary(op="/", a=a, b=b):
            x, y = evaluate(a, env), evaluate(b, env)
            if x.dtype.kind == "f":
                return x / y
            return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))
        case Binary(op=op, a=a, b=b) | Compare(op=op, a=a, b=b) | Logical(op=op, a=a, b=b):
            return _NUMPY[op](evaluate(a, env), evaluate(b, env))
        case Not(a=a):
            return np.logical_not(evaluate(a, env))
        case Cast(dtype=dtype, a=a):
            return evaluate(a, env).astype(np.float64 if dtype.startswith("float") else np.int64)
        case Select(cond=c, a=a, b=b) | Call(func="if_then_else", args=(c, a, b)):
            return np.where(evaluate(c, env), evaluate(a, env), evaluate(b, env))
        case BufferLoad(buffer=buffer, index=index):
            return env[buffer][evaluate(index, env)]
    raise TypeError(f"no meaning in NumPy: {e!r}")
