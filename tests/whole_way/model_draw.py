"""Random ONNX models of five to fifteen nodes: single elements, control flow, and what the other files here draw.

A node is evaluated as it is drawn, so shapes and dtypes are those of its value; one that the oracle says too little of,
or that is too large, is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bounded import Value
from .draw_rows import Rows
from .drawing import NUMBERS_OF_A_BODY
from .model import Body, Model
from .model_oracle import evaluate, known_share

UNARY = (
    "Abs", "Neg", "Sign", "Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Erf", "Sigmoid", "Asin",
    "Acos", "Asinh", "Acosh", "Atan", "Atanh", "Floor", "Ceil", "Round", "Reciprocal", "Relu", "Softplus", "Softsign",
    "HardSwish", "Mish", "Selu", "Gelu", "Identity",
)  # fmt: skip
WITH_ALPHA = ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")
COMPARED = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
CAST = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
        "uint64", "bool")  # fmt: skip
INPUTS = ("float32", "float32", "float16", "float16", "bfloat16", "float64", "int32", "int64", "int8", "uint8", "int16",
          "uint16", "uint32", "uint64", "bool")  # fmt: skip


def draw(seed: int) -> Model:
    """The model of a seed."""
    return Models(np.random.default_rng([seed, 99]), seed).model()


class Models(Rows):
    """Draws whole models."""

    def model(self) -> Model:
        dtype = self.pick(INPUTS)
        for k in range(self.pick([1, 1, 2])):
            values = self.pick(["small", "small", "wide", "special"])
            self.put("input", shape=self.a_shape(), dtype=dtype if k == 0 else self.pick(INPUTS), values=values)
        first, wanted = len(self.nodes), self.pick(range(5, 16))
        for _ in range(4 * wanted):
            if self.count >= wanted:
                break
            self.layer(self.recent())
        results = [k for k in self.tensors() if k >= first]
        if not results:
            results = [self.put("Identity", self.tensors()[0]) or 0]
        read = {i for node in self.nodes for i in node[1]}
        last = [k for k in results if k not in read][-3:] or results[-1:]
        outputs = last[-1:] if self.chance(0.5) else last
        return Model(tuple(self.nodes), tuple(outputs), self.seed, self.pick([0, 1, 2, 3, 3, 3]))

    def layer(self, x: int) -> int | None:
        """One more node that reads x, as its dtype allows."""
        value = self.known[x]
        if value.dtype == "bool":
            sorts: list[Any] = [self.logic, self.logic, self.where, self.where, self.to_dtype, self.move]
        elif value.is_float:
            sorts = [*[self.unary] * 6, *[self.activation] * 3, self.binary, self.binary, self.compare, self.where,
                     self.to_dtype, self.clip, self.remainder, self.move, self.move, self.move, self.quantized,
                     self.control, *self.rows_of_floats(value)]  # fmt: skip
        else:
            sorts = [self.whole_unary, self.binary, self.binary, self.compare, self.where, self.to_dtype, self.clip,
                     self.remainder, self.bits, self.bits, self.move, self.move, self.control,
                     *self.rows_of_integers(value)]  # fmt: skip
        made: Callable[[int], int | None] = self.pick(sorts)
        return made(x)

    # -------------------------------------------------------------------------------------- single elements

    def unary(self, x: int) -> int | None:
        return self.put(self.pick(UNARY), x)

    def whole_unary(self, x: int) -> int | None:
        signed = not self.known[x].dtype.startswith("u")
        return self.put(self.pick(["Abs", "Sign", "Neg", "Relu"] if signed else ["Sign", "Identity"]), x)

    def activation(self, x: int) -> int | None:
        op = self.pick([*WITH_ALPHA, "HardSigmoid", "Gelu", "Shrink", "PRelu", "IsNaN", "IsInf"])
        match op:
            case "HardSigmoid":
                return self.put(op, x, alpha=self.pick([0.25, 0.5]), beta=self.pick([0.5, 0.25]))
            case "Gelu":
                return self.put(op, x, approximate="tanh")
            case "Shrink":
                return self.put(op, x, lambd=self.pick([0.5, 1.0]), bias=self.pick([0.0, 0.25]))
            case "PRelu":
                return self.put(op, x, self.like(x, self.broadcast_to(x), "const"))
            case "IsNaN" | "IsInf":
                return self.put(op, x)
        return self.put(op, x, alpha=self.pick([0.25, 0.5, 1.5]))

    def binary(self, x: int) -> int | None:
        op = self.pick(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Mean"])
        value = self.known[x]
        if op in ("Mean", "Sum") and not value.is_float:
            op = "Add"
        if op == "Pow":
            return self.power(x)
        y = self.partner(x)
        if op == "Div" and not value.is_float and not self.chance(0.2):
            y = self.put("Max", y, self.list_of([1], value.dtype)) or y
        if op in ("Sum", "Mean", "Max", "Min") and self.chance(0.3):
            return self.put(op, x, y, self.partner(x))
        return self.put(op, *((x, y) if self.chance(0.7) else (y, x)))

    def power(self, x: int) -> int | None:
        value = self.known[x]
        if value.is_float:
            exponent = self.pick([0.5, 2.0, 3.0, -1.0, 1.5, 1.0, 0.0])
            return self.put("Pow", x, self.list_of(exponent, self.pick([value.dtype, "float32"])))
        if value.dtype not in ("int32", "int64"):
            return None
        return self.put("Pow", x, self.list_of(self.pick([0, 1, 2, 3, 5]), value.dtype))

    def compare(self, x: int) -> int | None:
        return self.put(self.pick(COMPARED), x, self.partner(x))

    def logic(self, x: int) -> int | None:
        if self.chance(0.25):
            return self.put("Not", x)
        return self.put(self.pick(["And", "Or", "Xor", "Equal"]), x, self.partner(x))

    def where(self, x: int) -> int | None:
        value = self.known[x]
        if value.dtype == "bool" and self.chance(0.6):
            y = self.recent()
            return self.put("Where", x, y, self.like(y, self.broadcast_to(x), "const"))
        y = self.partner(x)
        condition = self.put(self.pick(COMPARED[1:]), x, y) if value.dtype != "bool" else self.partner(x)
        return None if condition is None else self.put("Where", condition, x, y)

    def clip(self, x: int) -> int | None:
        value = self.known[x]
        low = self.list_of(self.pick([0, 1] if value.dtype.startswith("u") else [-1, 0]), value.dtype)
        high = self.list_of(self.pick([2, 6]), value.dtype)
        return self.put("Clip", x, *self.pick([(low, high), (low,), (-1, high)]))

    def remainder(self, x: int) -> int | None:
        """Mod; integers are divided by anything now and then."""
        value, y = self.known[x], self.partner(x)
        if not value.is_float:
            if not self.chance(0.25):
                y = self.list_of(self.pick([2, 3, 7] if value.dtype.startswith("u") else [2, 3, 7, -3]), value.dtype)
            return self.put("Mod", x, y, fmod=self.pick([0, 1]))
        if self.chance(0.5):
            y = self.list_of(self.pick([0.1, 1.5, 7.0, -3.0, 1e-3]), value.dtype)
        return self.put("Mod", x, y, fmod=1)

    def bits(self, x: int) -> int | None:
        value = self.known[x]
        if value.dtype.startswith("u") and self.chance(0.5):
            amount = self.list_of(self.pick([0, 1, 3, 7]), value.dtype)
            return self.put("BitShift", x, amount, direction=self.pick(["LEFT", "RIGHT"]))
        if self.chance(0.2):
            return self.put("BitwiseNot", x)
        return self.put(self.pick(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), x, self.partner(x))

    def to_dtype(self, x: int) -> int | None:
        return self.put("Cast", x, to=self.pick(CAST))

    def quantized(self, x: int) -> int | None:
        """To 8 bits and perhaps back."""
        value = self.known[x]
        if value.dtype != "float32" or not value.v.ndim:
            return None
        kind = self.pick(["int8", "uint8"])
        scale = self.list_of(self.pick([0.125, 0.1, 0.5]), "float32")
        zero = self.list_of(self.pick([0, 3, 100]), kind)
        q = self.put("QuantizeLinear", x, scale, zero)
        return q if q is None or self.chance(0.4) else self.put("DequantizeLinear", q, scale, zero)

    # ----------------------------------------------------------------------------------------- control flow

    def control(self, x: int) -> int | None:
        """If, Loop, Scan; what decides their course is known, or an input."""
        match self.pick(["If", "If", "Loop", "Loop", "Loop", "Scan"]):
            case "If":
                condition = self.said(self.chance(0.5), "bool")
                branches = [self.branch(x, k) for k in range(2)]
                return self.put("If", condition, then_branch=branches[0], else_branch=branches[1])
            case "Loop":
                return self.loop(x)
            case "Scan":
                return self.scan(x)
        return None

    def inner(self, which: int) -> Models:
        """A drawing of a body, whose nodes are numbered apart and read what is here."""
        first = NUMBERS_OF_A_BODY * (2 * len(self.nodes) + which + 1)
        other = Models(self.rng, self.seed)
        other.first, other.around, other.most = first, dict(self.known), 600
        other.known = dict(self.known)
        return other

    def branch(self, x: int, which: int) -> Body:
        inner = self.inner(which)
        inner.given(number=inner.first)
        result = x
        for _ in range(self.pick([1, 2, 3])):
            made = inner.unary(result) if self.known[x].is_float else inner.whole_unary(result)
            result = result if made is None else made
        return Body(tuple(inner.nodes), (result,))

    def carried(self, inner: Models, state: int) -> int:
        """What a trip makes of a state: of its shape and dtype."""
        value = inner.known[state]
        for _ in range(4):
            made = inner.step(state)
            same = made is not None and (inner.known[made].v.shape, inner.known[made].dtype) == (
                value.v.shape, value.dtype)  # fmt: skip
            if same and made is not None:
                return made
        return state

    def step(self, x: int) -> int | None:
        value = self.known[x]
        if value.is_float:
            return self.pick([self.unary, self.activation, self.clip, self.remainder])(x)
        return self.pick([self.whole_unary, self.clip, self.remainder])(x)

    def loop(self, x: int) -> int | None:
        """As many trips as an input says or is known, or until the condition that a trip gives is false."""
        stacked, value = self.chance(0.3), self.known[x]
        count = self.list_of(self.pick([1, 2, 4]), "int64") if stacked else self.said(self.pick(range(7)), "int64")
        begin = self.list_of(True, "bool") if stacked else self.pick([-1, self.said(self.chance(0.9), "bool")])
        most = None if stacked or self.chance(0.5) else self.said(self.pick(range(5)), "int64")
        inner = self.inner(0)
        first = Value(np.asarray(0), np.zeros(()), "int64")
        trip = inner.given(number=inner.first, shape=(), dtype="int64", value=first)
        holds = inner.given(shape=(), dtype="bool", value=Value(np.asarray(True), np.zeros(()), "bool"))
        state = inner.given(shape=value.v.shape, dtype=value.dtype, value=value)
        new = self.carried(inner, state)
        on = inner.put("Identity", holds) if most is None else inner.put("Less", trip, most)
        body = Body(tuple(inner.nodes), (on or 0, new, *([new] if stacked else [])))
        return self.several("Loop", count, begin, x, body=body, results=2 if stacked else 1)

    def scan(self, x: int) -> int | None:
        value = self.known[x]
        if not value.v.ndim or value.v.shape[0] > 8:
            return None
        inner = self.inner(0)
        row = Value(value.v[0], np.broadcast_to(value.e, value.v.shape)[0], value.dtype)
        initial = self.like(x, value.v.shape[1:], "const")
        state = inner.given(number=inner.first, shape=row.v.shape, dtype=row.dtype, value=self.known[initial])
        element = inner.given(shape=row.v.shape, dtype=row.dtype, value=row)
        both = inner.put(self.pick(["Add", "Max", "Min"]), state, element)
        new = self.carried(inner, element if both is None else both)
        body = Body(tuple(inner.nodes), (new, new))
        return self.several("Scan", initial, x, body=body, num_scan_inputs=1, results=2)


def means(model: Model) -> None:
    """Raises for a model that has no meaning."""
    known = evaluate(model)
    if any(known_share(known[o]) == 0 for o in model.outputs):
        raise ValueError("nothing is known of an output")
