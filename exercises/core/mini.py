"""`mini_ansor` with a function of the learner in it: computations to try it on, their programs, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

from mini_ansor.__main__ import compute, conv2d, matmul
from mini_ansor.expr import Axis, Op, Reduce, binary
from mini_ansor.population import program, random_genes
from mini_ansor.program import Machine, State, Step
from mini_ansor.sketch import generate_sketches


@contextmanager
def put_in(holder: Any, name: str, value: object) -> Iterator[None]:
    """A module or class with another value for a name, which is what it was afterwards, whatever happens."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def split(k: int, position: int, extent: int, lengths: tuple[int, ...]) -> Step:
    """A split of stage k, as a value."""
    return Step("SP", (k, position, extent, lengths, 1))


def fuse(k: int, positions: tuple[int, ...]) -> Step:
    """A fuse of loops of stage k, as a value."""
    return Step("FU", (k, positions))


def product_and_relu(n: int, m: int, k: int) -> list[Op]:
    """A product whose every element is read once."""
    a, b, c = matmul(n, m, k)
    return [a, b, compute((n, m), lambda i, j: binary("max", c[i, j], 0), "D")]


def shares(n: int, m: int) -> list[Op]:
    """Each row of an input over its sum, which is read for a whole row."""
    x, k = Op("x", (Axis("i0", n), Axis("i1", m)), None, "float32", "x"), Axis("k", m)
    total = compute((n,), lambda i: Reduce("sum", x[i, k] * x[i, k], (k,)), "total")
    return [x, compute((n, m), lambda i, j: x[i, j] / total[i], "share")]


WORKLOADS: dict[str, Callable[[], list[Op]]] = {
    "a product of 64 x 32 and 32 x 48": lambda: matmul(64, 48, 32),
    "a product and a relu": lambda: product_and_relu(64, 48, 32),
    "the convolution layer": lambda: conv2d(1, 8, 8, 32, 8, 3, 1, 1),
    "rows over their sums": lambda: shares(12, 400),
}


def drawn(args: Sequence[Op], machine: Machine, count: int, seed: int = 0) -> list[State]:
    """At most `count` programs of a computation, drawn at random from all its sketches in turn."""
    rng, sketches = np.random.default_rng(seed), generate_sketches(args, machine)
    made = (program(random_genes(sketches[n % len(sketches)], rng), machine) for n in range(20 * count))
    return list(islice((state for state in made if state is not None), count))
