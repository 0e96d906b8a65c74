"""Random computations: one to six operations of every kind, of odd extents, over all dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .description import Axes, Dag, Expr, Input, Stage, needed, reads
from .indices import Indices
from .values import FLOATS, USUAL, WIDE, Values

EXTENTS = (1, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 23, 32)
MOST_POINTS = 3000
MOST_ELEMENTS = 2000
NAMES = ("linux", "unix", "NULL", "expf", "min_f32", "float", "threadIdx", "y", "i0", "default_function", "int32_t")
AXES = tuple("ijklmn")
Tensors = dict[str, tuple[tuple[int, ...], str]]


def draw(seed: int, special: bool = False) -> Dag:
    """The computation of a seed; `special` adds inputs and divisors at the edges of their dtype."""
    return _Drawing(np.random.default_rng([seed, int(special)]), special).dag(seed)


def draw_wide(seed: int) -> Dag:
    """The computation of a seed over all dtypes, operands of two of them, results of rank 0 and running folds.

    Every second one has special values.
    """
    return _Wide(np.random.default_rng([seed, 2]), seed % 2 == 1).dag(seed)


class _Drawing:
    palette = USUAL

    def __init__(self, rng: np.random.Generator, special: bool) -> None:
        self.rng, self.special = rng, special
        self.inputs: list[Input] = []
        self.stages: list[Stage] = []
        self.tensors: Tensors = {}
        self.main = str(rng.choice(self.palette.dtypes, p=self.palette.weights))
        self.hard_names = rng.random() < 0.03

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def dtype(self) -> str:
        if self.chance(0.65):
            return self.main
        return str(self.rng.choice(self.palette.dtypes, p=self.palette.weights))

    def name(self, stem: str) -> str:
        fresh = [n for n in NAMES if n not in self.tensors]
        if self.hard_names and fresh and self.chance(0.6):
            return str(self.rng.choice(fresh))
        return f"{stem}{len(self.tensors)}"

    # ------------------------------------------------------------------------------------------ the whole

    def dag(self, seed: int) -> Dag:
        for _ in range(int(self.rng.integers(1, 3))):
            self.add_input(self.shape(MOST_ELEMENTS), self.dtype())
        for _ in range(int(self.rng.choice([1, 2, 3, 4, 5, 6], p=[0.15, 0.27, 0.24, 0.16, 0.1, 0.08]))):
            self.add_stage()
        read = {name for s in self.stages for name in reads(s)}
        unread = [s.names[0] for s in self.stages if not set(s.names) & read]
        outputs = unread[-1:] if len(unread) < 2 or self.chance(0.5) else unread[-2:]
        if len(outputs) == 1 and len(self.stages) > 1 and self.chance(0.15):
            outputs = [self.stages[int(self.rng.integers(len(self.stages) - 1))].names[0], *outputs]
        whole = {s.names[0]: s.names for s in self.stages}
        return needed(Dag(tuple(self.inputs), tuple(self.stages), tuple([n for o in outputs for n in whole[o]]), seed))

    def shape(self, most: int) -> tuple[int, ...]:
        out: list[int] = []
        for _ in range(int(self.rng.choice([1, 2, 3, 4], p=[0.2, 0.45, 0.25, 0.1]))):
            n = int(self.rng.choice(EXTENTS))
            out.append(n if math.prod(out) * n <= most else 1)
        return tuple(out)

    def add_input(self, shape: tuple[int, ...], dtype: str) -> str:
        name = self.name("x")
        values = "wide" if self.chance(0.15) else "special" if self.special and self.chance(0.9) else "small"
        self.inputs.append(Input(name, shape, dtype, values))
        self.tensors[name] = (shape, dtype)
        return name

    def add_stage(self) -> None:
        kinds = self.kinds()
        stage, dtypes = kinds[int(self.rng.integers(len(kinds)))]()
        self.stages.append(stage)
        shape = tuple([n for _, n in stage.axes])
        for name, dtype in zip(stage.names, dtypes, strict=True):
            self.tensors[name] = (shape, dtype)

    def kinds(self) -> tuple[Callable[[], tuple[Stage, list[str]]], ...]:
        return (self.elementwise, self.elementwise, self.anywhere, self.reduction, self.reduction, self.product,
                self.window, self.first_best, self.pair, self.concatenation)  # fmt: skip

    def values(self, axes: Axes) -> Values:
        return Values(self.rng, axes, self.tensors, self.special, self.palette)

    def axes(self, shape: tuple[int, ...]) -> Axes:
        return tuple(zip(AXES, shape, strict=False))

    def like(self, most: int) -> tuple[int, ...]:
        """The shape of the last tensor (or of another one), or a new one."""
        shapes = [s for s, _ in self.tensors.values() if math.prod(s) <= most]
        if shapes and self.chance(0.65):
            return shapes[-1] if self.chance(0.7) else shapes[int(self.rng.integers(len(shapes)))]
        return self.shape(most)

    def folded(self, points: int) -> Axes:
        """One or two axes to fold, such that not too many points come out."""
        out: list[tuple[str, int]] = []
        for name in ("r", "s")[: 1 + int(self.chance(0.35))]:
            n = int(self.rng.choice(EXTENTS))
            points *= n
            out.append((name, n if points <= MOST_POINTS else 1))
        return tuple(out)

    # ------------------------------------------------------------------------------------- kinds of stages

    def elementwise(self) -> tuple[Stage, list[str]]:
        axes, dtype = self.axes(self.like(MOST_ELEMENTS)), self.dtype()
        body = self.values(axes).value(dtype, int(self.rng.integers(1, 4)))
        return Stage((self.name("t"),), axes, (body,)), [dtype]

    def anywhere(self) -> tuple[Stage, list[str]]:
        """Reshapes, flips, transposes, slices, pads: a read with free indices."""
        axes = self.axes(self.shape(MOST_ELEMENTS))
        values = self.values(axes)
        source = list(self.tensors)[-1] if self.chance(0.6) else str(self.rng.choice(list(self.tensors)))
        shape, dtype = self.tensors[source]
        body: Expr = ("load", source, *[values.index(n) for n in shape])
        if self.chance(0.3) and dtype != "bool":
            body = (str(self.rng.choice(["+", "*", "max"])), body, values.leaf(dtype))
        return Stage((self.name("t"),), axes, (body,)), [dtype]

    def reduction(self) -> tuple[Stage, list[str]]:
        axes = self.axes(self.like(300))
        folded = self.folded(math.prod([n for _, n in axes]))
        values, dtype = self.values((*axes, *folded)), self.dtype()
        fold = str(self.rng.choice(["sum", "sum", "max", "min", "prod"] if dtype != "bool" else ["max", "min"]))
        body = values.value(dtype, int(self.rng.integers(0, 3)))
        where = values.value("bool", 1) if self.chance(0.1) else None
        return Stage((self.name("t"),), axes, (body,), fold, folded, where), [dtype]

    def product(self) -> tuple[Stage, list[str]]:
        """A matrix product, perhaps batched, of tensors that fit or of new inputs."""
        n, m, k = (int(self.rng.choice(EXTENTS)) for _ in range(3))
        while n * m * k > MOST_POINTS:
            n, m, k = max(n // 2, 1), m, max(k // 2, 1)
        accumulated = self.dtype() if self.main != "bool" else "int32"
        accumulated = "float32" if accumulated == "bool" else accumulated
        given = "int8" if accumulated == "int32" and self.chance(0.5) else accumulated
        axes: Axes = (("i", n), ("j", m))
        left = self._operand((("i", n), ("r", k)), given)
        right = self._operand((("r", k), ("j", m)) if self.chance(0.6) else (("j", m), ("r", k)), given)
        body: Expr = ("*", self._in(left, given, accumulated), self._in(right, given, accumulated))
        return Stage((self.name("t"),), axes, (body,), "sum", (("r", k),)), [accumulated]

    def _in(self, e: Expr, given: str, wanted: str) -> Expr:
        return e if given == wanted else ("cast", wanted, e)

    def _operand(self, axes: Axes, dtype: str) -> Expr:
        """A read at `axes` of a tensor of that shape, which is made where there is none."""
        shape = tuple([n for _, n in axes])
        fitting = [t for t, (s, d) in self.tensors.items() if s == shape and d == dtype]
        name = fitting[-1] if fitting and self.chance(0.7) else self.add_input(shape, dtype)
        return ("load", name, *[("axis", v) for v, _ in axes])

    def window(self) -> tuple[Stage, list[str]]:
        """A convolution or pooling: stride, dilation, padding, forwards or backwards."""
        n, c, k = int(self.rng.choice([1, 2, 4, 7, 8, 13])), int(self.rng.choice([1, 2, 3, 4])), 3
        stride, dilation, pad = (int(self.rng.choice(x)) for x in ([1, 1, 2, 3], [1, 1, 2], [0, 0, 1, 2]))
        dtype = self.main if self.main != "bool" else "float32"
        inside = Indices(self.rng, (("i", n), ("r", k)))
        at = inside.axis(0).times(stride).plus_index(inside.axis(1).times(dilation))
        at = at.from_constant(at.high) if self.chance(0.15) else at
        data = self.add_input((c, at.high + 1 - 2 * pad if at.high + 1 > 2 * pad else 1), dtype)
        extent = self.tensors[data][0][1]
        at = at.plus(-pad)
        load: Expr = ("load", data, ("axis", "s"), at.expr)
        if at.low < 0 or at.high >= extent:
            inbounds: Expr = ("and", (">=", at.expr, ("const", 0, "int32")), ("<", at.expr, ("const", extent, "int32")))
            load = ("if", inbounds, load, ("const", 0.0 if dtype in FLOATS else 0, dtype))
        if self.chance(0.3):
            return Stage((self.name("t"),), (("s", c), ("i", n)), (load,), "max", (("r", k),)), [dtype]
        weights = self._operand((("j", int(self.rng.choice([1, 3, 4, 8]))), ("s", c), ("r", k)), dtype)
        filters = self.tensors[weights[1]][0][0]
        body: Expr = ("*", load, weights)
        return Stage((self.name("t"),), (("j", filters), ("i", n)), (body,), "sum", (("s", c), ("r", k))), [dtype]

    def first_best(self) -> tuple[Stage, list[str]]:
        """Index and value of the best element."""
        axes = self.axes(self.like(200))
        folded = self.folded(math.prod([n for _, n in axes]))
        values, dtype = self.values((*axes, *folded)), self.dtype()
        dtype = "float32" if dtype == "bool" else dtype
        index: Expr = ("axis", folded[0][0])
        for name, n in folded[1:]:
            index = ("+", ("*", index, ("const", n, "int32")), ("axis", name))
        given = "int64" if self.chance(0.2) else "int32"
        stem = self.name("t")
        body = (self._in(index, "int32", given), values.value(dtype, 1))
        fold = "argmax" if self.chance(0.5) else "argmin"
        return Stage((stem, f"{stem}_v1"), axes, body, fold, folded), [given, dtype]

    def pair(self) -> tuple[Stage, list[str]]:
        """Two outputs of one operation."""
        axes = self.axes(self.like(MOST_ELEMENTS))
        values, dtypes, stem = self.values(axes), [self.dtype(), self.dtype()], self.name("t")
        body = tuple([values.value(d, 2) for d in dtypes])
        if not self.chance(0.4):
            return Stage((stem,), axes, body[:1]), dtypes[:1]
        return Stage((stem, f"{stem}_v1"), axes, body), dtypes

    def concatenation(self) -> tuple[Stage, list[str]]:
        """Two tensors behind one another along the first axis."""
        dtype, cut, rest = self.dtype(), int(self.rng.integers(1, 8)), int(self.rng.integers(1, 8))
        n = int(self.rng.choice(EXTENTS))
        first, second = (self._operand((("i", k), ("j", n)), dtype) for k in (cut, rest))
        bound: Expr = ("const", cut, "int32")
        second = ("load", second[1], ("-", ("axis", "i"), bound), second[3])
        body: Expr = ("if", ("<", ("axis", "i"), bound), first, second)
        return Stage((self.name("t"),), (("i", cut + rest), ("j", n)), (body,)), [dtype]


class _Wide(_Drawing):
    """Draws over all dtypes."""

    palette = WIDE

    def kinds(self) -> tuple[Callable[[], tuple[Stage, list[str]]], ...]:
        return (*super().kinds(), self.reduction, self.running, self.to_a_scalar)

    def shape(self, most: int) -> tuple[int, ...]:
        return () if self.chance(0.04) else super().shape(most)

    def running(self) -> tuple[Stage, list[str]]:
        """Running sums and their kin: a fold over what lies before, or behind, each place."""
        stage, dtypes = self.reduction()
        axes = stage.axes or (("i", int(self.rng.choice(EXTENTS))),)
        name, n = axes[-1]
        axes = (*axes[:-1], (name, min(n, 17)))
        extent: Expr = ("+", ("axis", name), ("const", 1, "int32"))
        if self.chance(0.3):
            extent = ("-", ("const", min(n, 17), "int32"), ("axis", name))
        folded: Axes = (("r", min(n, 17)), *[(v, min(m, 3)) for v, m in stage.reduce[1:]])
        body = self.values((*axes, *folded)).value(dtypes[0], int(self.rng.integers(0, 2)))
        if self.chance(0.5):
            body = self._operand((*axes[:-1], ("r", min(n, 17))), dtypes[0])
        return Stage(stage.names, axes, (body,), stage.fold, folded, None, extent), dtypes

    def to_a_scalar(self) -> tuple[Stage, list[str]]:
        """A fold of a whole tensor."""
        source = str(self.rng.choice(list(self.tensors)))
        shape, dtype = self.tensors[source]
        folded = tuple(zip(("r", "s", "u", "v"), shape, strict=False)) or (("r", 1),)
        body: Expr = ("load", source, *[("axis", v) for v, _ in folded[: len(shape)]])
        if self.chance(0.5):
            body = self.values(folded).value(dtype, 1)
        fold = str(self.rng.choice(["sum", "max", "min", "prod"] if dtype != "bool" else ["max", "min"]))
        return Stage((self.name("t"),), (), (body,), fold, folded), [dtype]
