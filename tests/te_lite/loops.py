"""Loop programs built by hand, and running them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from te_lite.errors import InterpError
from te_lite.expr.expr import Var
from te_lite.loops.stmt import Buffer, For, ForKind, LoweredFunc, Stmt
from te_lite.meaning import interp

SERIAL, PARALLEL, VECTORIZED = ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED
LANES = (PARALLEL, VECTORIZED)
ALL_KINDS = (SERIAL, PARALLEL, VECTORIZED, ForKind.UNROLLED, ForKind.VTHREAD)


def buf(name: str, *shape: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, dtype, shape, scope)


def loop(extent: int, body: Callable[[Var], Stmt], kind: ForKind = SERIAL, name: str = "i", tag: str = "") -> For:
    v = Var(name)
    return For(v, extent, kind, body(v), tag)


def blocks(extent: int, body: Callable[[Var], Stmt]) -> For:
    return loop(extent, body, ForKind.BLOCK, "bx", "blockIdx.x")


def threads(extent: int, body: Callable[[Var], Stmt]) -> For:
    return loop(extent, body, ForKind.THREAD, "tx", "threadIdx.x")


def poison(b: Buffer) -> np.ndarray:
    return np.full(b.shape, np.nan if b.dtype.startswith("float") else 77, b.dtype)


def execute(body: Stmt, args: list[Buffer], *inputs: np.ndarray) -> list[np.ndarray]:
    """Run with the given leading arguments; the others are poisoned outputs, which are returned."""
    outs = [poison(b) for b in args[len(inputs) :]]
    interp.run(LoweredFunc("f", tuple(args), body), [*inputs, *outs])
    return outs


def refuses(law: str, body: Stmt, args: list[Buffer], *inputs: np.ndarray) -> None:
    with pytest.raises(InterpError, match=law):
        execute(body, args, *inputs)


def rand(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)
