"""Random chains of stages that read each other backwards, in quotients and remainders, and their meaning in NumPy.

A chain is data: `computation` writes it in the language, `meaning` computes it with index arrays and shares no code
with the language.  All values are small integers, exact in every dtype used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import te_lite as te

LONGEST = 14
"""Elements of a dimension at most."""


@dataclass(frozen=True)
class Axis:
    """Axis `number` of the reader, its reduction axis last."""

    number: int


@dataclass(frozen=True)
class Op:
    """`a op b`, one of + - * // % min max; a number stands for itself."""

    op: str
    a: Index
    b: Index


@dataclass(frozen=True)
class Less:
    """`yes` where `a < b`, else `no`."""

    a: Index
    b: Index
    yes: Index
    no: Index


Index = Axis | Op | Less | int


@dataclass(frozen=True)
class Access:
    """`factor * source[indices]`; 0 instead of what lies outside, where `guarded`."""

    source: int
    indices: tuple[Index, ...]
    factor: int
    guarded: bool


@dataclass(frozen=True)
class Link:
    """A stage of `shape`: the sum of its reads and `const`, added up over `turns` of a reduction (0: none)."""

    shape: tuple[int, ...]
    turns: int
    reads: tuple[Access, ...]
    const: int


@dataclass(frozen=True)
class Chain:
    """Stages in program order; the first is the input, the last the output."""

    dtype: str
    links: tuple[Link, ...]


# ------------------------------------------------------------------------------------------------- meaning in NumPy

_NUMPY = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def index_values(index: Index, axes: Sequence[np.ndarray]) -> Any:
    """The values of an index where the axes have the values `axes`."""
    match index:
        case Axis(number=number):
            return axes[number]
        case Op(op=op, a=a, b=b):
            return _NUMPY[op](index_values(a, axes), index_values(b, axes))
        case Less(a=a, b=b, yes=yes, no=no):
            holds = index_values(a, axes) < index_values(b, axes)
            return np.where(holds, index_values(yes, axes), index_values(no, axes))
        case int():
            return np.int64(index)


def _read(access: Access, source: np.ndarray, axes: np.ndarray) -> np.ndarray:
    places = [np.broadcast_to(index_values(i, list(axes)), axes.shape[1:]) for i in access.indices]
    inside = np.ones(axes.shape[1:], bool)
    for place, size in zip(places, source.shape, strict=True):
        inside &= (place >= 0) & (place < size)
    assert access.guarded or inside.all(), "a read is in range by construction"
    held = [np.clip(place, 0, size - 1) for place, size in zip(places, source.shape, strict=True)]
    return access.factor * np.where(inside, source[tuple(held)], 0)


def meaning(chain: Chain, data: np.ndarray) -> np.ndarray:
    """The output, int64, for the int64 input `data`."""
    values = [data]
    for link in chain.links[1:]:
        axes = np.indices(link.shape + ((link.turns,) if link.turns else ()))
        total = np.full(axes.shape[1:], link.const, np.int64)
        for access in link.reads:
            total += _read(access, values[access.source], axes)
        values.append(total.sum(axis=-1) if link.turns else total)
    assert np.abs(values[-1]).max() < 1 << 24, "exact in float32"
    return values[-1]


# --------------------------------------------------------------------------------------------- in the language

_WRITTEN = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "min": te.minimum, "max": te.maximum,
}  # fmt: skip


def written(index: Index, axes: Sequence[te.Expr]) -> Any:
    """An index in the language."""
    match index:
        case Axis(number=number):
            return axes[number]
        case Op(op=op, a=a, b=b):
            return _WRITTEN[op](written(a, axes), written(b, axes))  # type: ignore[no-untyped-call]
        case Less(a=a, b=b, yes=yes, no=no):
            return te.select(written(a, axes) < written(b, axes), written(yes, axes), written(no, axes))
        case int():
            return te.const(index)


def _written_read(access: Access, source: te.Tensor, axes: Sequence[te.Expr]) -> te.Expr:
    places = [written(i, axes) for i in access.indices]
    value = source[tuple(places)]
    if access.guarded:
        inside = [c for place, size in zip(places, source.shape, strict=True) for c in (place >= 0, place < size)]
        value = te.if_then_else(te.all(*inside), value, te.const(0, source.dtype))
    return value * te.const(access.factor, source.dtype)


def computation(chain: Chain) -> te.ComputeDAG:
    """The chain in the language, over its input `x` and its output."""
    tensors = [te.placeholder(chain.links[0].shape, chain.dtype, "x")]
    for k, link in enumerate(chain.links[1:], 1):
        extra = (te.reduce_axis((0, link.turns), f"r{k}"),) if link.turns else ()

        def body(*axes: te.Expr, link: Link = link, extra: tuple[te.IterVar, ...] = extra) -> te.Expr:
            total: te.Expr = te.const(link.const, chain.dtype)
            for access in link.reads:
                total = total + _written_read(access, tensors[access.source], (*axes, *extra))
            return te.sum(total, axis=extra[0]) if extra else total

        tensors.append(te.compute(link.shape, body, name=f"t{k}"))
    return te.ComputeDAG([tensors[0], tensors[-1]])


# --------------------------------------------------------------------------------------------------- random chains


def _pick(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def _affine(rng: np.random.Generator, axes: int) -> Index:
    total: Index = int(rng.integers(-5, 6))
    for _ in range(int(rng.integers(1, 3))):
        total = Op("+", total, Op("*", Axis(int(rng.integers(axes))), int(_pick(rng, (-3, -2, -1, -1, -1, 1, 1, 2)))))
    return total


def _divided(rng: np.random.Generator, axes: int) -> Index:
    return Op(_pick(rng, ("//", "%")), _affine(rng, axes), int(rng.integers(2, 6)))


def random_index(rng: np.random.Generator, axes: int) -> Index:
    """An index over so many axes: affine, quotients and remainders, mixtures of them, products, choices."""
    match int(rng.integers(10)):
        case 0 | 1 | 2:
            return _affine(rng, axes)
        case 3 | 4:
            return _divided(rng, axes)
        case 5:
            scaled = Op("*", _divided(rng, axes), int(_pick(rng, (-3, -2, -1, 1, 2, 3))))
            return Op(_pick(rng, ("+", "-")), scaled, _divided(rng, axes))
        case 6:
            return Op("-", _affine(rng, axes), _divided(rng, axes))
        case 7:
            return Op(_pick(rng, ("//", "%")), _divided(rng, axes), int(rng.integers(2, 5)))
        case 8:
            x, y = _affine(rng, axes), _divided(rng, axes)
            return _pick(rng, (Op("min", x, y), Op("max", x, y), Less(y, 2, x, y)))  # type: ignore[no-any-return]
        case _:
            return Op("*", Axis(int(rng.integers(axes))), _pick(rng, (Axis(int(rng.integers(axes))), -2)))


def _placed(rng: np.random.Generator, extents: Sequence[int]) -> tuple[Index, int]:
    """An index from 0 on, or a little more, and how long a dimension it needs."""
    points = np.indices(extents)
    index = random_index(rng, len(extents))
    values = index_values(index, list(points))
    if int(np.max(values) - np.min(values)) >= LONGEST:
        index = Op(_pick(rng, ("%", "min")), Op("-", index, int(np.min(values))), int(rng.integers(5, LONGEST)))
        values = index_values(index, list(points))
    index = Op("+", index, int(rng.integers(2)) - int(np.min(values)))
    return index, int(np.max(index_values(index, list(points)))) + 1


def _random_reads(rng: np.random.Generator, source: int, extents: Sequence[int], sizes: list[int]) -> list[Access]:
    """Reads of one source; `sizes` grows to what they need."""
    reads = []
    for _ in range(int(_pick(rng, (1, 1, 2, 3)))):
        placed = [_placed(rng, extents) for _ in sizes]
        guarded = bool(rng.random() < 0.2)
        if guarded:
            placed = [(Op("-", i, int(rng.integers(3))), max(1, need - 2)) for i, need in placed]
        sizes[:] = [max(size, need) for size, (_, need) in zip(sizes, placed, strict=True)]
        reads.append(Access(source, tuple([i for i, _ in placed]), int(_pick(rng, (1, 1, 2))), guarded))
    return reads


def random_chain(rng: np.random.Generator) -> Chain:
    """2 to 4 stages, each of which reads the one before, and at times an earlier one."""
    count = int(rng.integers(2, 5))
    sizes = [[1] * int(rng.integers(1, 3)) for _ in range(count + 1)]
    sizes[-1] = [int(rng.integers(3, 11)) for _ in sizes[-1]]
    links = []
    for k in range(count, 0, -1):
        turns = int(rng.integers(2, 5)) if rng.random() < 0.3 else 0
        extents = [*sizes[k], *([turns] if turns else [])]
        reads = _random_reads(rng, k - 1, extents, sizes[k - 1])
        if k > 1 and rng.random() < 0.25:
            other = int(rng.integers(k - 1))
            reads += _random_reads(rng, other, extents, sizes[other])
        links.append(Link(tuple(sizes[k]), turns, tuple(reads), int(rng.integers(-2, 3))))
    links.append(Link(tuple(sizes[0]), 0, (), 0))
    return Chain(_pick(rng, ("float32", "int32")), tuple(links[::-1]))


@dataclass(frozen=True)
class Case:
    """A chain with an input and what it gives."""

    chain: Chain
    dag: te.ComputeDAG
    data: np.ndarray
    wanted: np.ndarray

    def mismatch(self, func: te.LoweredFunc, run: Any) -> str | None:
        """What is wrong with the output of `func` as executed by `run(func, arrays)`, or None."""
        poison = np.full(self.wanted.shape, -(1 << 30)).astype(self.chain.dtype)
        args = [self.data.astype(self.chain.dtype), poison]
        run(func, args)
        wrong = int((args[1] != self.wanted).sum())
        return f"{wrong} of {self.wanted.size} outputs are wrong" if wrong else None


def case_of(chain: Chain, rng: np.random.Generator) -> Case:
    """A case of a chain on random data."""
    data = rng.integers(1, 8, size=chain.links[0].shape)
    return Case(chain, computation(chain), data, meaning(chain, data))


def random_case(seed: Sequence[int]) -> Case:
    """A random chain on random data."""
    rng = np.random.default_rng(seed)
    return case_of(random_chain(rng), rng)
