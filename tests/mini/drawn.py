"""Random computations in what `mini_ansor` can say: chains of products, windows, folds, reshapes and broadcasts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import te_lite as te
from te_lite import ComputeDAG, Tensor

EXTENTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 36)


def drawn_dag(seed: int) -> ComputeDAG:
    """The computation of a seed: one to four operations, of which each reads the one before."""
    return ComputeDAG(_Drawing(np.random.default_rng(seed)).tensors())


class _Drawing:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.inputs: list[Tensor] = []
        self.names = 0

    def extent(self) -> int:
        return int(self.rng.choice(EXTENTS))

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def input(self, *shape: int) -> Tensor:
        self.inputs.append(te.placeholder(shape, name=self.name("in")))
        return self.inputs[-1]

    def tensors(self) -> list[Tensor]:
        kinds: list[Callable[[Tensor], Tensor]] = [
            self.product, self.product, self.window, self.row_fold, self.pointwise, self.pointwise, self.reshaped,
            self.turned, self.padded, self.divided_by_sum,
        ]  # fmt: skip
        x = self.input(*[self.extent() for _ in range(int(self.rng.integers(2, 4)))])
        for _ in range(int(self.rng.integers(1, 5))):
            x = kinds[self.rng.integers(len(kinds))](x)
        return [*self.inputs, x]

    def product(self, x: Tensor) -> Tensor:
        """All axes but the last kept, the last folded with one of a second factor."""
        *outer, depth = x.shape
        w, k = self.input(depth, self.extent()), te.reduce_axis((0, depth), self.name("k"))
        return te.compute(
            (*outer, w.shape[1]), lambda *i: te.sum(x[(*i[:-1], k)] * w[k, i[-1]], axis=k), self.name("mm")
        )

    def window(self, x: Tensor) -> Tensor:
        """A convolution, or a pool, along the first axis."""
        size = int(self.rng.integers(1, min(4, x.shape[0] + 1)))
        stride = int(self.rng.integers(1, 3))
        length = (x.shape[0] - size) // stride + 1
        r = te.reduce_axis((0, size), self.name("r"))
        if len(x.shape) == 1 or self.rng.random() < 0.5:
            return te.compute(
                (length, *x.shape[1:]), lambda i, *j: te.max(x[(i * stride + r, *j)], axis=r), self.name("pool")
            )
        w, c = self.input(size, x.shape[-1], self.extent()), te.reduce_axis((0, x.shape[-1]), self.name("c"))
        return te.compute(
            (length, *x.shape[1:-1], w.shape[2]),
            lambda i, *j: te.sum(x[(i * stride + r, *j[:-1], c)] * w[r, c, j[-1]], axis=[r, c]),
            self.name("conv"),
        )

    def row_fold(self, x: Tensor) -> Tensor:
        k = te.reduce_axis((0, x.shape[-1]), self.name("k"))
        fold = [te.sum, te.max, te.min][self.rng.integers(3)]
        if len(x.shape) == 1:
            return self.pointwise(x)
        return te.compute(x.shape[:-1], lambda *i: fold(x[(*i, k)], axis=k), self.name("fold"))

    def pointwise(self, x: Tensor) -> Tensor:
        """A function of each point, and of a broadcast vector."""
        b = self.input(x.shape[-1])
        body = [
            lambda *i: te.maximum(x[i] + b[i[-1]], 0.0),
            lambda *i: te.exp(x[i] * 0.125) * b[i[-1]],
            lambda *i: x[i] * x[i] - b[i[-1]],
            lambda *i: te.if_then_else(b[i[-1]] > 0.0, x[i], 0.0),
        ][self.rng.integers(4)]
        return te.compute(x.shape, body, self.name("point"))

    def reshaped(self, x: Tensor) -> Tensor:
        """The first two axes as one."""
        if len(x.shape) < 2:
            return self.pointwise(x)
        n, m = x.shape[:2]
        return te.compute((n * m, *x.shape[2:]), lambda i, *j: x[(i // m, i % m, *j)], self.name("flat"))

    def turned(self, x: Tensor) -> Tensor:
        return te.compute(x.shape[::-1], lambda *i: x[i[::-1]] * 2.0, self.name("turned"))

    def padded(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        return te.compute(
            (n + 2, *x.shape[1:]),
            lambda i, *j: te.if_then_else(te.all(i >= 1, i < n + 1), x[(i - 1, *j)], 0.0),
            self.name("pad"),
        )

    def divided_by_sum(self, x: Tensor) -> Tensor:
        """Each row over its sum, which is a reduction between two readers of `x`."""
        k = te.reduce_axis((0, x.shape[-1]), self.name("k"))
        if len(x.shape) == 1:
            return self.pointwise(x)
        total = te.compute(x.shape[:-1], lambda *i: te.sum(x[(*i, k)] * x[(*i, k)], axis=k), self.name("sum"))
        return te.compute(x.shape, lambda *i: x[i] / (total[i[:-1]] + 1.0), self.name("share"))
