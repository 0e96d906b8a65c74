"""Tiles that run over, and the conditions that keep them inside, against all points of small ones.

A `Tiling` is an array in memory that blocks, threads and serial loops cover by tiles, some of which run over.  What it
does at every point is computed from its numbers here, with no expression; the program is handed to the verifier, which
may look at no point: what it proves, it proves from the conditions.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from te_lite.expr.expr import Const, Expr, Var, as_expr, compare, const, logical_and
from te_lite.expr.simplify import Simplifier
from te_lite.loops.stmt import Buffer, For, ForKind, If, LoweredFunc, Stmt, Store, seq
from te_lite.verify import verify, verify_access
from te_lite.verify.verify import Proven, Refuted, Verdict, verdict

MANY = pytest.mark.parametrize("seeds", [30, pytest.param(1500, marks=pytest.mark.slow)])
Points = Any  # np.ndarray of int64


@dataclass(frozen=True)
class Axis:
    """`blocks * threads * iterations` points, of which those from `first` on and below `end` are written.

    None: no condition.  `end` is not more than the `size` that the array has there, unless something is wrong.
    """

    size: int
    blocks: int
    threads: int
    iterations: int
    first: int | None
    end: int | None

    def alive(self, at: Points) -> Points:
        return (at >= (0 if self.first is None else self.first)) & (at < (1 << 20 if self.end is None else self.end))


@dataclass(frozen=True)
class Tiling:
    """Axes, the step of each in memory, where the array begins, its length, and how far off it is read (None: not)."""

    axes: tuple[Axis, ...]
    steps: tuple[int, ...]
    start: int
    length: int
    read: int | None

    @property
    def fused(self) -> list[int]:
        """How many blocks and threads there are."""
        return [math.prod(x.blocks for x in self.axes), math.prod(x.threads for x in self.axes)]

    @property
    def blocks(self) -> list[int]:
        return [x.blocks for x in self.axes]

    @property
    def threads(self) -> list[int]:
        return [x.threads for x in self.axes]

    def points(self) -> Points:
        """Block, thread and element of each point that is written."""
        block, thread, *iterations = np.indices([*self.fused, *[x.iterations for x in self.axes]]).reshape(
            2 + len(self.axes), -1
        )
        parts = [digits(n, sizes) for n, sizes in ((block, self.blocks), (thread, self.threads))]
        at = [(b * x.threads + t) * x.iterations + i for x, b, t, i in zip(self.axes, *parts, iterations, strict=True)]
        alive = np.logical_and.reduce([x.alive(n) for x, n in zip(self.axes, at, strict=True)])
        element = self.start + sum(n * step for n, step in zip(at, self.steps, strict=True))
        return np.stack([block, thread, element])[:, alive]

    def faults(self) -> set[str]:
        """The laws that it breaks."""
        writes = self.points()
        reads = writes[:, :0] if self.read is None else writes + [[0], [0], [self.read]]
        touched = np.concatenate([writes[2], reads[2]])
        outside = touched.size and (touched.min() < 0 or touched.max() >= self.length)
        return laws(bool(outside), races(writes, reads))

    def program(self, peeled: bool = False) -> LoweredFunc:
        """With its index and conditions as lowering would simplify them.

        `peeled`: the first iteration of the innermost loop stands before it, with the conditions that it needs.
        """
        block, thread = Var("b"), Var("t")
        iterations = [Var(f"i{k}") for k in range(len(self.axes))]
        ranges = {block: self.fused[0], thread: self.fused[1]} | {
            v: x.iterations for v, x in zip(iterations, self.axes, strict=True)
        }
        simple = Simplifier({v: (0, n - 1) for v, n in ranges.items()}).simplify
        parts = [digits(v, sizes) for v, sizes in ((block, self.blocks), (thread, self.threads))]
        memory, lane = Buffer("x", "float32", (self.length,)), iterations[0]
        count = self.axes[0].iterations
        body: Stmt = For(lane, count, ForKind.SERIAL, self._store(memory, parts, iterations, simple))
        if peeled and count > 1:
            body = seq(*[
                self._store(memory, parts, [as_expr(0), *iterations[1:]], simple),
                For(lane, count - 1, ForKind.SERIAL, self._store(memory, parts, [lane + 1, *iterations[1:]], simple)),
            ])  # fmt: skip
        for v, x in zip(iterations[1:], self.axes[1:], strict=True):
            body = For(v, x.iterations, ForKind.SERIAL, body)
        inner = For(thread, self.fused[1], ForKind.THREAD, body, "threadIdx.x")
        return LoweredFunc("f", (memory,), For(block, self.fused[0], ForKind.BLOCK, inner, "blockIdx.x"))

    def _store(
        self, memory: Buffer, parts: Sequence[Any], iterations: Sequence[Expr], simple: Callable[[Expr], Expr]
    ) -> Stmt:  # fmt: skip
        """What is done in an iteration of each axis."""
        at = [(b * x.threads + t) * x.iterations + i for x, b, t, i in zip(self.axes, *parts, iterations, strict=True)]
        index = sum((n * step for n, step in zip(at, self.steps, strict=True)), as_expr(self.start))
        bounds = [compare(">=", n, x.first) for n, x in zip(at, self.axes, strict=True) if x.first is not None]
        bounds += [compare("<", n, x.end) for n, x in zip(at, self.axes, strict=True) if x.end is not None]
        value = const(0.0) if self.read is None else memory[simple(index + self.read)] + 1.0
        store, cond = Store(memory, simple(index), value), simple(logical_and(*bounds))
        return store if isinstance(cond, Const) and cond.value else If(cond, store)


def laws(outside: bool, race: bool) -> set[str]:
    return {law for law, broken in (("in_bounds", outside), ("races", race)) if broken}


def races(writes: Points, reads: Points) -> bool:
    """Whether threads of one block touch what another writes, or a block reads what another one writes."""
    block, thread, element = np.concatenate([writes, reads], axis=1)
    own = shared(block * (1 << 20) + element, thread)
    one, other = [set(some[2].tolist()) for some in (writes, reads)]
    return bool(own & set((writes[0] * (1 << 20) + writes[2]).tolist()) or shared(element, block) & one & other)


def shared(element: Points, users: Points) -> set[int]:
    """The elements that have several users."""
    elements, counts = np.unique(np.unique(np.stack([element, users]), axis=1)[0], return_counts=True)
    return set(elements[counts > 1].tolist())


def digits(e: Any, sizes: Sequence[int]) -> list[Any]:
    """The loops of `sizes` that are fused to one: of its variable, or of its values."""
    inner = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    return [e // n % size for n, size in zip(inner, sizes, strict=True)]


def drawn(rng: np.random.Generator) -> Tiling:
    """One that breaks no law."""
    axes = []
    for _ in range(int(rng.integers(1, 4))):
        blocks, threads, iterations = (int(n) for n in rng.integers(1, 5, 3))
        whole = blocks * threads * iterations
        size = int(rng.integers(max(1, whole - threads * iterations), whole + 1))
        first = int(rng.integers(1, size)) if size > 1 and rng.random() < 0.2 else None
        axes.append(Axis(size, blocks, threads, iterations, first, size if size < whole else None))
    steps = [math.prod(x.size for x in axes[k + 1 :]) for k in range(len(axes))]
    length = math.prod(x.size for x in axes)
    return Tiling(tuple(axes), tuple(steps), 0, length, 0 if rng.random() < 0.5 else None)


def spoilt(x: Tiling, rng: np.random.Generator) -> Iterator[tuple[str, Tiling]]:
    """With one thing wrong that may break a law: conditions, steps, the beginning, the length, what is read."""
    for k, axis in enumerate(x.axes):
        others = {"no end": None, "end": None if axis.end is None else axis.end + 1}
        for name, end in others.items():
            if axis.end is not None:
                yield name, replace(x, axes=(*x.axes[:k], replace(axis, end=end), *x.axes[k + 1 :]))
        if x.steps[k] > 1:
            yield "step", replace(x, steps=(*x.steps[:k], x.steps[k] - 1, *x.steps[k + 1 :]))
    yield "length", replace(x, length=max(1, x.length - 1))
    yield "start", replace(x, start=int(rng.choice([-1, 1])))
    if x.read is not None:
        yield "read", replace(x, read=int(rng.choice([-1, 1, *x.steps])))


NO_POINTS = ((verify_access, "FEW_POINTS"), (verify_access, "MOST_POINTS"), (verify, "MOST_POINTS"))


@pytest.fixture
def without_points(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in NO_POINTS:
        monkeypatch.setattr(module, name, 0)


@MANY
@pytest.mark.usefixtures("without_points")
def test_tiles_that_run_over_are_proven_from_their_conditions(seeds: int) -> None:
    """All of them; of those whose first iteration stands apart, with conditions of its own, all but one in fifty."""
    unproven = 0
    for seed in range(2 * seeds):
        x = drawn(np.random.default_rng(seed))
        assert not x.faults()
        assert isinstance(verdict(x.program()), Proven), f"{seed}: {x}\n{x.program()}"
        unproven += not isinstance(verdict(x.program(peeled=True)), Proven)
    assert unproven <= 2 * seeds // 50


def check(found: Verdict, faults: set[str], program: str) -> None:
    """What is proven has no fault, what is refuted has that one."""
    assert not (isinstance(found, Proven) and faults), f"proven, but {faults}: {program}"
    assert not isinstance(found, Refuted) or found.law in faults, f"{found}, but {faults}: {program}"


@MANY
@pytest.mark.usefixtures("without_points")
def test_no_tiling_with_a_fault_is_proven(seeds: int) -> None:
    """Conditions left out or off by one, steps too short, memory too small, neighbours read."""
    faulty: Counter[str] = Counter()
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        for name, x in spoilt(drawn(rng), rng):
            faults = x.faults()
            for peeled in (False, True):
                func = x.program(peeled)
                check(verdict(func), faults, f"{x}\n{func}")
            faulty[name] += bool(faults)
    assert min(faulty.values()) > 5 and len(faulty) == 6, faulty


# -------------------------------------------------------------------------------------------------- random indices

THREADS, TURNS = 12, 6
Number = Callable[[Any, Any], Any]
"""Of a thread and an iteration: of their variables, or of arrays of them."""
Terms = list[tuple[Number, int]]


def total(terms: Terms) -> Number:
    return lambda t, i: sum((f(t, i) * k for f, k in terms[1:]), terms[0][0](t, i) * terms[0][1])


def pool(rng: np.random.Generator) -> list[Number]:
    """Variables, and quotients and remainders of two sums of them, some of them shifted."""
    found: list[Number] = [lambda t, i: t, lambda t, i: i]
    for _ in range(2):
        inner = total([(f, int(rng.choice([1, 1, 2, 3, 4, 6]))) for f in found[:2]][: int(rng.integers(1, 3))])
        found += [divided(inner, rng) for _ in range(3)]
    return found


def divided(inner: Number, rng: np.random.Generator) -> Number:
    den, shift = int(rng.choice([2, 3, 4, 6, 8, 12])), int(rng.choice([0, 0, 1, 2, 5]))
    if rng.random() < 0.5:
        return lambda t, i: (inner(t, i) + shift) // den
    return lambda t, i: (inner(t, i) + shift) % den


def digits_of(parts: list[Number], rng: np.random.Generator) -> Terms:
    """A sum whose coefficients are such that some conditions make its terms digits, or almost."""
    terms, scale = [], 1
    for k in rng.permutation(len(parts))[: int(rng.integers(2, 5))]:
        terms.append((parts[k], scale))
        scale *= int(rng.integers(1, int(parts[k](*GRID).max()) + 2))
    return terms


@dataclass(frozen=True)
class Guard:
    """A comparison of a sum of some terms of an index, perhaps divided."""

    value: Number
    op: str
    bound: int

    def holds(self, t: Points, i: Points) -> Points:
        return COMPARED[self.op](self.value(t, i), self.bound)


COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
}  # fmt: skip
GRID = np.indices((THREADS, TURNS)).reshape(2, -1)


def guarded(terms: Terms, parts: list[Number], rng: np.random.Generator) -> Guard:
    """One that holds somewhere."""
    some = [x for x in terms if rng.random() < 0.5] or [terms[int(rng.integers(len(terms)))]]
    by = math.gcd(*[k for _, k in some])
    value = total([(f, k // by) for f, k in some])
    if rng.random() < 0.3:
        value = parts[int(rng.integers(len(parts)))] if rng.random() < 0.5 else divided(value, rng)
    op = str(rng.choice(["<", "<", *COMPARED]))
    return Guard(value, op, int(rng.choice(value(*GRID))) + {"<": 1, ">": -1}.get(op, 0))


def scattered(rng: np.random.Generator) -> tuple[LoweredFunc, set[str]]:
    """One or two stores under conditions on parts of their indices, and the laws that they break."""
    parts = pool(rng)
    terms = digits_of(parts, rng)
    steps = [0, 1, *[k for _, k in terms]]
    count = int(rng.integers(1, 3))
    stores = [
        (
            [guarded(terms, parts, rng) for _ in range(int(rng.integers(1, 5)))],
            total(terms if rng.random() < 0.8 else [*terms[1:], (parts[0], 1)]),
            n * int(rng.choice(steps)),
        )
        for n in range(count)
    ]
    written = np.concatenate([places(*store) for store in stores], axis=1)
    start = int(written[2].min(initial=1 << 20)) + int(rng.random() < 0.2)
    end = max(start, int(written[2].max(initial=start)) - int(rng.random() < 0.2)) + 1
    outside = bool(((written[2] < start) | (written[2] >= end)).any())
    memory, thread, iteration = Buffer("x", "float32", (end - start,)), Var("t"), Var("i")
    simple = Simplifier({thread: (0, THREADS - 1), iteration: (0, TURNS - 1)}).simplify
    body = seq(*[
        If(simple(logical_and(*[compare(g.op, g.value(thread, iteration), g.bound) for g in guards])),
           Store(memory, simple(index(thread, iteration) + (k - start)), const(0.0)))
        for guards, index, k in stores
    ])  # fmt: skip
    loops = For(thread, THREADS, ForKind.THREAD, For(iteration, TURNS, ForKind.SERIAL, body), "threadIdx.x")
    return LoweredFunc("f", (memory,), loops), laws(outside, races(written, written[:, :0]))


def places(guards: list[Guard], index: Number, k: int) -> Points:
    alive = np.logical_and.reduce([g.holds(*GRID) for g in guards])
    return np.stack([GRID[0] * 0, GRID[0], index(*GRID) + k])[:, alive]


@MANY
@pytest.mark.usefixtures("without_points")
def test_nothing_scattered_with_a_fault_is_proven(seeds: int) -> None:
    tally: Counter[tuple[str, bool]] = Counter()
    for seed in range(5 * seeds):
        func, faults = scattered(np.random.default_rng(seed))
        found = verdict(func)
        check(found, faults, str(func))
        tally[type(found).__name__, bool(faults)] += 1
    assert tally["Proven", False] > seeds // 4 < sum(tally[name, True] for name in ("Refuted", "Unproven")), tally


# ------------------------------------------------------------------------------------------------- single programs

T, TILE, J = Var("t"), Var("i"), Var("j")


def stores(size: int, *some: tuple[Expr, Expr]) -> LoweredFunc:
    """Stores of the threads, each under a condition."""
    memory = Buffer("x", "float32", (size,))
    body: Stmt = seq(*[If(cond, Store(memory, index, const(0.0))) for cond, index in some])
    for v, extent in ((J, 3), (TILE, 2)):
        body = For(v, extent, ForKind.SERIAL, body)
    return LoweredFunc("f", (memory,), For(T, THREADS, ForKind.THREAD, body, "threadIdx.x"))


def whole_part(size: int) -> LoweredFunc:
    """Images of 196 points each, number T + (T*15 + TILE*4 + J) // 49, in tiles of 256 of 392 * 16 points."""
    memory = Buffer("x", "float32", (size,))
    body: Stmt = If(T * 16 + TILE < 392, Store(memory, T + (T * 15 + TILE * 4 + J) // 49, const(0.0)))
    for v, extent in ((J, 4), (TILE, 16), (T, 25)):
        body = For(v, extent, ForKind.SERIAL, body)
    return LoweredFunc("f", (memory,), body)


WRONG: dict[str, Callable[[], LoweredFunc]] = {
    "a sum, and its quotient and remainder after a shift": lambda: stores(
        13, ((T + 1) // 3 < 9, T), ((T + 1) // 3 < 9, (T + 1) // 3 * 3 + (T + 1) % 3)),
    "a quotient, and one of a shifted sum": lambda: stores(2, (T // 4 < 1, (T + 1) // 2)),
    "a remainder with a part that no divisor divides": lambda: stores(5, (T % 2 < 1, (T * 6 + 5) % 12)),
    "two threads, of which each is told apart": lambda: stores(1, (T.equal(0), T), (T.equal(1), T - 1)),
    "two threads with tiles": lambda: stores(2, (T.equal(0), T * 2 + TILE), (T.equal(1), T * 2 + TILE - 2)),
    "one thread, and all of them": lambda: stores(12, (T.equal(0), T), (TILE < 9, 11 - T)),
    "a quotient, its whole part apart, of one too many": lambda: whole_part(31),
    "the next element of a part": lambda: stores(
        36, (T * 2 + TILE < 11, (T * 2 + TILE) * 3 + J), (T * 2 + TILE < 11, (T * 2 + TILE) * 3 + J + 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_one_place_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By points; from the conditions it is not proven."""
    func = WRONG[name]()
    assert isinstance(verdict(func), Refuted)
    for module, name in NO_POINTS:
        monkeypatch.setattr(module, name, 0)
    assert not isinstance(verdict(func), Proven)


RIGHT: dict[str, Callable[[], LoweredFunc]] = {
    "a quotient, and one of it": lambda: stores(4, (T // 8 < 1, T // 2)),
    "a shifted sum, and its quotient": lambda: stores(4, ((T + 1) // 5 < 1, T)),
    "a remainder, and the one that it ends in": lambda: stores(9, (T % 4 < 1, T % 12)),
    "a part of a row, not as long as it": lambda: stores(21, (T + TILE * 12 < 21, T + TILE * 12)),
    "a quotient, its whole part apart": lambda: whole_part(32),
}  # fmt: skip


@pytest.mark.usefixtures("without_points")
@pytest.mark.parametrize("name", RIGHT)
def test_what_conditions_say_in_other_words_is_proven(name: str) -> None:
    found = verdict(RIGHT[name]())
    assert isinstance(found, Proven) or found.law == "races"
