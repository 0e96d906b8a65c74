"""Computations with open extents, each with what NumPy says of it; nothing here is shared with the product."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import te_lite as te

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """`shapes` of all arguments at some sizes, the last one computed; `expected` gives it from the others."""

    sizes: tuple[Any, ...]
    tensors: tuple[te.Tensor, ...]
    shapes: Callable[..., list[tuple[int, ...]]]
    expected: Callable[..., Array]


def _size(name: str, least: int, most: int) -> Any:
    """An open extent; a number where its bounds are one."""
    return te.size_var(name, least, most) if least < most else most


def rows_by_matrix(least: int, most: int) -> Case:
    """max(A B, 0) + 1 with open rows."""
    n = _size("n", least, most)
    a, b = te.placeholder((n, 12), name="A"), te.placeholder((12, 10), name="B")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute((n, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 10), lambda i, j: te.max(c[i, j], 0.0) + 1.0, name="D")
    return Case((n,), (a, b, d), lambda n: [(n, 12), (12, 10), (n, 10)], lambda a, b: np.maximum(a @ b, 0) + 1)


def open_terms(least: int, most: int) -> Case:
    """A product of which the number of terms is open."""
    n = _size("n", least, most)
    a, b = te.placeholder((6, n), name="A"), te.placeholder((n, 10), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((6, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return Case((n,), (a, b, c), lambda n: [(6, n), (n, 10), (6, 10)], lambda a, b: a @ b)


def open_columns(least: int, most: int) -> Case:
    """Rows less their means, where rows are as long as they are."""
    n = _size("n", least, most)
    a = te.placeholder((5, n), name="A")
    k = te.reduce_axis((0, n), "k")
    s = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="S")
    d = te.compute((5, n), lambda i, j: a[i, j] - s[i] / te.cast("float32", n), name="D")
    return Case((n,), (a, d), lambda n: [(5, n), (5, n)], lambda a: a - a.mean(1, keepdims=True))


def turned_around(least: int, most: int) -> Case:
    """The transpose of a matrix, from its last row and column to the first, both extents open."""
    n, m = _size("n", least, most), _size("m", least, most)
    a = te.placeholder((n, m), name="A")
    b = te.compute((m, n), lambda i, j: a[n - 1 - j, m - 1 - i] * 2.0, name="B")
    return Case((n, m), (a, b), lambda n, m: [(n, m), (m, n)], lambda a: a[::-1, ::-1].T * 2)


def softmax(least: int, most: int) -> Case:
    """Softmax of rows, the number and length of which are open."""
    n, m = _size("n", least, most), _size("m", least, most)
    x = te.placeholder((n, m), name="X")
    k, r = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    s = te.compute((n,), lambda i: te.sum(e[i, r], axis=r), name="s")
    y = te.compute((n, m), lambda i, j: e[i, j] / s[i], name="Y")

    def expected(x: Array) -> Array:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Case((n, m), (x, y), lambda n, m: [(n, m), (n, m)], expected)


def padded_windows(least: int, most: int) -> Case:
    """Sums of three neighbours along an open extent, zero beyond its ends."""
    n = _size("n", least, most)
    x = te.placeholder((n, 4), name="X")
    p = te.compute((n, 4), lambda i, j: te.if_then_else(i > 0, x[i - 1, j], 0.0), name="P")
    y = te.compute((n, 4), lambda i, j: x[i, j] + p[i, j] + te.if_then_else(i < n - 1, x[i + 1, j], 0.0), name="Y")

    def expected(x: Array) -> Array:
        z = np.pad(x, ((1, 1), (0, 0)))
        return z[:-2] + z[1:-1] + z[2:]

    return Case((n,), (x, y), lambda n: [(n, 4), (n, 4)], expected)


def batches(least: int, most: int) -> Case:
    """Products of matrices, as many as are asked for, whose rows are open, too."""
    b, n = _size("b", least, most), _size("n", least, most)
    x, w = te.placeholder((b, n, 6), name="X"), te.placeholder((b, 6, 8), name="W")
    k = te.reduce_axis((0, 6), "k")
    y = te.compute((b, n, 8), lambda h, i, j: te.sum(x[h, i, k] * w[h, k, j], axis=k), name="Y")
    return Case((b, n), (x, w, y), lambda b, n: [(b, n, 6), (b, 6, 8), (b, n, 8)], lambda x, w: x @ w)


CASES: Mapping[str, Callable[[int, int], Case]] = {
    f.__name__: f for f in (rows_by_matrix, open_terms, open_columns, turned_around, softmax, padded_windows, batches)
}


def arrays(case: Case, sizes: tuple[int, ...], rng: np.random.Generator) -> list[Array]:
    """Arguments at some sizes, and a result that holds NaN."""
    found = [rng.standard_normal(shape).astype("float32") for shape in case.shapes(*sizes)]
    found[-1][...] = np.nan
    return found


def points(case: Case, least: int, most: int) -> list[tuple[int, ...]]:
    """All sizes of a small range; of several extents, some."""
    rank = len(case.sizes)
    every = list(itertools.product(range(least, most + 1), repeat=rank))
    return every if rank == 1 else every[:: max(1, len(every) // 12)] + every[-1:]
