"""Random expressions of a wanted dtype, which stay within what every backend must agree on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from .bounded import promoted
from .description import Axes, Expr, Input
from .indices import Indices

FLOATS = ("bfloat16", "float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True)
class Palette:
    """What expressions are drawn from: dtypes with their weights, and those that a `bool` is made of.

    `mixed`: also operands of two dtypes, operations on bits, `fmod` and integer powers.
    """

    dtypes: tuple[str, ...]
    weights: tuple[float, ...]
    compared: tuple[str, ...]
    mixed: bool = False

    @property
    def floats(self) -> tuple[str, ...]:
        return tuple([d for d in FLOATS if d in self.dtypes])


USUAL = Palette(
    ("float32", "int32", "float64", "int8", "uint8", "int16", "int64", "float16", "bool"),
    (0.4, 0.12, 0.09, 0.08, 0.06, 0.06, 0.07, 0.06, 0.06),
    ("float32", "int32", "int8", "uint8", "float64", "int64"),
)
WIDE = Palette(
    ("float32", "bfloat16", "float16", "float64", *INTEGERS, "bool"),
    (0.18, 0.13, 0.13, 0.08, *[0.055] * 8, 0.04),
    (*FLOATS, *INTEGERS),
    True,
)
ZERO_TO_ONE = ("sin", "cos", "tanh", "erf", "sigmoid", "atan")


class Values:
    """Draws expressions over some axes that read `tensors`; new inputs are appended to `inputs`."""

    def __init__(
        self,
        rng: np.random.Generator,
        axes: Axes,
        tensors: dict[str, tuple[tuple[int, ...], str]],
        special: bool,
        palette: Palette = USUAL,
    ) -> None:
        self.rng, self.axes, self.tensors, self.special, self.palette = rng, axes, tensors, special, palette
        self.indices = Indices(rng, axes)
        self.inputs: list[Input] = []

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def free(self) -> bool:
        """Whether to leave an operand as it is where others are kept inside of what is defined and finite."""
        return self.special and self.chance(0.4)

    def pick(self, items: tuple[str, ...]) -> str:
        return items[int(self.rng.integers(len(items)))]

    # --------------------------------------------------------------------------------------------- leaves

    def cast(self, e: Expr, given: str, wanted: str) -> Expr:
        """`e` in another dtype; floats are clamped first, so that they fit an integer; with `special` not all."""
        if given == wanted:
            return e
        if given in FLOATS and wanted in INTEGERS and not self.free():
            low, high = (0.0, 200.0) if wanted.startswith("u") else (-100.0, 100.0)
            e = ("min", ("max", e, ("const", low, given)), ("const", high, given))
        return ("cast", wanted, e)

    def leaf(self, dtype: str) -> Expr:
        """A read, a constant or an axis."""
        draw = self.rng.random()
        if draw < 0.12:
            return self.constant(dtype)
        if draw < 0.2 and self.axes and dtype != "bool":
            return self.cast(self.indices.axis().expr, "int32", dtype)
        return self.read(dtype)

    def constant(self, dtype: str) -> Expr:
        if dtype == "bool":
            return ("const", self.chance(0.5), dtype)
        if dtype in FLOATS:
            return ("const", float(self.rng.choice([0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 0.125])), dtype)
        choices = [0, 1, 2, 3, 7, 100] + ([] if dtype.startswith("u") else [-1, -5])
        if self.chance(0.1):
            info = np.iinfo(dtype)
            choices = [int(info.min), int(info.max)]
        return ("const", int(choices[int(self.rng.integers(len(choices)))]), dtype)

    def read(self, dtype: str) -> Expr:
        """An element of some tensor: in the same place, anywhere, guarded, or where data says."""
        alike = [t for t, (_, d) in self.tensors.items() if d == dtype]
        names = alike if alike and self.chance(0.8) else list(self.tensors)
        name = names[int(self.rng.integers(len(names)))]
        shape, given = self.tensors[name]
        return self.cast(self._element(name, shape, given), given, dtype)

    def _element(self, name: str, shape: tuple[int, ...], dtype: str) -> Expr:
        own = tuple([n for _, n in self.axes])
        if shape == own[: len(shape)] and self.chance(0.6):
            return ("load", name, *[("axis", v) for v, _ in self.axes[: len(shape)]])
        if self.chance(0.12):
            return self._guarded(name, shape, dtype)
        return ("load", name, *[self.index(n) for n in shape])

    def index(self, n: int) -> Expr:
        """An index in `range(n)`: of the axes, or clamped data."""
        sources = [t for t, (_, d) in self.tensors.items() if d in ("int32", "int8", "int64")]
        if sources and self.chance(0.06):
            name = sources[int(self.rng.integers(len(sources)))]
            shape, dtype = self.tensors[name]
            found = ("load", name, *[self.indices.within(m) for m in shape])
            found = found if dtype == "int32" else ("cast", "int32", found)
            return ("max", ("min", found, ("const", n - 1, "int32")), ("const", 0, "int32"))
        return self.indices.within(n)

    def _guarded(self, name: str, shape: tuple[int, ...], dtype: str) -> Expr:
        """An element, or a constant outside of the tensor: padding."""
        conditions: list[Expr] = []
        places: list[Expr] = []
        for n in shape:
            x = self.indices.any()
            x = x.plus(int(self.rng.integers(-2, 3)) - x.low)
            places.append(x.expr)
            conditions += [(">=", x.expr, ("const", 0, "int32"))] if x.low < 0 else []
            conditions += [("<", x.expr, ("const", n, "int32"))] if x.high >= n else []
        load: Expr = ("load", name, *places)
        if not conditions:
            return load
        condition = conditions[0]
        for c in conditions[1:]:
            condition = ("and", condition, c)
        return ("if", condition, load, self.constant(dtype))

    # ---------------------------------------------------------------------------------------- expressions

    def value(self, dtype: str, depth: int) -> Expr:
        """An expression of `dtype` with at most `depth` operators one in another."""
        if depth == 0 or self.chance(0.25):
            return self.leaf(dtype)
        if self.chance(0.08):
            other = str(self.rng.choice(self.palette.dtypes))
            return self.cast(self.value(other, depth - 1), other, dtype)
        if self.chance(0.1):
            kind = "if" if self.chance(0.5) else "select"
            return (kind, self.value("bool", depth - 1), self.value(dtype, depth - 1), self.value(dtype, depth - 1))
        if dtype == "bool":
            return self._truth(depth)
        if self.palette.mixed and self.chance(0.25):
            return self._mixed(dtype, depth)
        return self._float(dtype, depth) if dtype in FLOATS else self._integer(dtype, depth)

    def _truth(self, depth: int) -> Expr:
        draw = self.rng.random()
        if draw < 0.15:
            return ("not", self.value("bool", depth - 1))
        if draw < 0.4:
            return (self.pick(("and", "or")), self.value("bool", depth - 1), self.value("bool", depth - 1))
        if draw < 0.45:
            return ("call", "isnan", self.value(self.pick(self.palette.floats), depth - 1))
        dtype = other = self.pick(self.palette.compared)
        op = self.pick(("<", "<=", ">", ">=", "==", "!="))
        if self.palette.mixed and self.chance(0.3):
            other = self.pick(self.palette.compared)
        return (op, self.value(dtype, depth - 1), self.value(other, depth - 1))

    def _mixed(self, dtype: str, depth: int) -> Expr:
        """Operands of two dtypes that meet in `dtype`, bits, C's remainder, a power of integers."""
        narrower = [d for d in self.palette.dtypes if promoted(d, dtype) == dtype]
        other = dtype if self.chance(0.3) else self.pick(tuple(narrower))
        a, b = self.value(dtype, depth - 1), self.value(other, depth - 1)
        if dtype in INTEGERS and other not in FLOATS and self.chance(0.4):
            if other != "bool" and self.chance(0.7):
                return ("call", self.pick(("bit_and", "bit_or", "bit_xor")), a, b)
            return ("call", "pow", a, b if other != "bool" else ("const", 3, dtype))
        if self.chance(0.3):
            b = self.value(dtype, depth - 1)
            if dtype in FLOATS and not self.free():
                b = ("+", ("call", "abs", b), ("const", 0.5, dtype))
            return ("fmod", a, b if dtype in FLOATS else self._divisor(dtype, depth))
        op = self.pick(("+", "-", "*", "min", "max"))
        return (op, a, b) if self.chance(0.5) else (op, b, a)

    def _at_the_edge(self, a: Expr, dtype: str) -> Expr:
        """`a` with a constant that some law is about."""
        info = ml_dtypes.finfo(dtype) if dtype in FLOATS else np.iinfo(dtype)
        edges = [
            0,
            0,
            1,
            float(info.max) if dtype in FLOATS else info.max,
            float(info.min) if dtype in FLOATS else info.min,
        ] + ([-0.0, math.inf, -math.inf] if dtype in FLOATS else [])
        edge = edges[int(self.rng.integers(len(edges)))]
        constant: Expr = ("const", float(edge) if dtype in FLOATS else int(edge), dtype)
        op = self.pick(("+", "-", "*", "*", "/", "//", "%", "min", "max"))
        return (op, a, constant) if self.chance(0.6) else (op, constant, a)

    def _integer(self, dtype: str, depth: int) -> Expr:
        a = self.value(dtype, depth - 1)
        if self.special and self.chance(0.45):
            return self._at_the_edge(a, dtype)
        draw = self.rng.random()
        if draw < 0.25:
            return (self.pick(("//", "%", "/")), a, self._divisor(dtype, depth))
        if draw < 0.3:
            return ("call", self.pick(("abs", "abs", "floor", "round")), a)
        return (self.pick(("+", "-", "*", "min", "max")), a, self.value(dtype, depth - 1))

    def _divisor(self, dtype: str, depth: int) -> Expr:
        """What is not zero, and not -1; with `special` anything."""
        if self.free():
            return self.value(dtype, depth - 1)
        if self.chance(0.3):
            return ("max", ("call", "abs", self.value(dtype, depth - 1)), ("const", 1, dtype))
        choices = [2, 3, 5, 7] + ([] if dtype.startswith("u") else [-2, -3])
        return ("const", int(self.rng.choice(choices)), dtype)

    def _float(self, dtype: str, depth: int) -> Expr:
        a = self.value(dtype, depth - 1)
        if self.special and self.chance(0.45):
            return self._at_the_edge(a, dtype)
        draw = self.rng.random()
        if draw < 0.2:
            return self._call(a, dtype)
        if draw < 0.35:
            divisor: Expr = ("const", float(self.rng.choice([1.0, 2.0, -0.5, 3.0])), dtype)
            if self.free():
                divisor = self.value(dtype, depth - 1)
            elif self.chance(0.5):
                divisor = ("+", ("call", "abs", self.value(dtype, depth - 1)), ("const", 0.5, dtype))
            return (self.pick(("/", "/", "//", "%")), a, divisor)
        return (self.pick(("+", "-", "*", "min", "max")), a, self.value(dtype, depth - 1))

    def _call(self, a: Expr, dtype: str) -> Expr:
        """A function where it is defined and does not overflow; with `special` anywhere."""
        positive: Expr = ("+", ("call", "abs", a), ("const", 0.5, dtype))
        small: Expr = ("min", ("max", a, ("const", -4.0, dtype)), ("const", 4.0, dtype))
        if self.free():
            positive = small = a
        match int(self.rng.integers(6)):
            case 0:
                return ("call", self.pick(("log", "log2", "sqrt", "rsqrt")), positive)
            case 1:
                return ("call", self.pick(("exp", "exp2", "sinh", "cosh")), small)
            case 2:
                return ("call", "pow", positive, ("const", float(self.rng.choice([0.5, 1.5, 2.0, -1.0])), dtype))
            case 3:
                return ("call", self.pick(("floor", "ceil", "round", "trunc", "abs")), a)
            case 4:
                return ("call", "tan", ("*", small, ("const", 0.25, dtype)))
            case _:
                return ("call", self.pick(ZERO_TO_ONE), a)
