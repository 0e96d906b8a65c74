"""Row programs as users write them, with what they mean in plain NumPy: softmax, norms, and what goes with them.

A program is a function of (m, n) that gives its tensors, and a function of float64 inputs that gives the output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import te_lite as te
from te_lite import Tensor, topi
from te_lite.expr.expr import const

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class RowCase:
    """`tensors(m, n)`: the inputs, then the output; `meaning(*inputs)` in float64."""

    tensors: Callable[[int, int], list[Tensor]]
    meaning: Callable[..., Array]


def _number(value: float) -> te.Expr:
    return const(value, "float32")


def _mean(x: Tensor, axes: tuple[int, ...], n: int) -> Tensor:
    return topi.divide(topi.sum(x, axes, True), _number(float(n)))


def _centred_te(x: Tensor, axes: tuple[int, ...], n: int) -> Tensor:
    return topi.subtract(x, _mean(x, axes, n))


def _normal_te(x: Tensor, axes: tuple[int, ...], n: int) -> Tensor:
    """As `relay_lite` writes it: centred twice."""
    d = _centred_te(_centred_te(x, axes, n), axes, n)
    return topi.divide(d, topi.sqrt(topi.add(_mean(topi.multiply(d, d), axes, n), _number(1e-5))))


def _normal(x: Array, axes: tuple[int, ...]) -> Array:
    d = x - x.mean(axes, keepdims=True)
    return np.asarray(d / np.sqrt(np.square(d).mean(axes, keepdims=True) + 1e-5))


def _soft(x: Array) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(e / e.sum(-1, keepdims=True))


def softmax(m: int, n: int) -> list[Tensor]:
    a = te.placeholder((m, n), name="A")
    return [a, topi.nn.softmax(a)]


def one_softmax(m: int, n: int) -> list[Tensor]:
    a = te.placeholder((n,), name="A")
    return [a, topi.nn.softmax(a)]


def log_softmax(m: int, n: int) -> list[Tensor]:
    a = te.placeholder((m, n), name="A")
    return [a, topi.nn.log_softmax(a)]


def masked_softmax(m: int, n: int) -> list[Tensor]:
    """Attention's: scores of two batches, m heads and three queries, scaled and masked."""
    a, mask = te.placeholder((2, m, 3, n), name="A"), te.placeholder((2, 1, 1, n), name="M")
    return [a, mask, topi.nn.softmax(topi.add(topi.multiply(a, _number(0.125)), mask))]


def layer_norm(m: int, n: int) -> list[Tensor]:
    a, g, b = te.placeholder((m, n), name="A"), te.placeholder((n,), name="G"), te.placeholder((n,), name="B")
    return [a, g, b, topi.add(topi.multiply(_normal_te(a, (1,), n), g), b)]


def sum_and_norm(m: int, n: int) -> list[Tensor]:
    """The norm of a sum, which several stages read."""
    a, b = te.placeholder((m, n), name="A"), te.placeholder((m, n), name="B")
    return [a, b, _normal_te(topi.add(a, b), (1,), n)]


def instance_norm(m: int, n: int) -> list[Tensor]:
    a, g = te.placeholder((2, m, 3, n), name="A"), te.placeholder((m, 1, 1), name="G")
    return [a, g, topi.multiply(_normal_te(a, (2, 3), 3 * n), g)]


def rms_norm(m: int, n: int) -> list[Tensor]:
    a, g = te.placeholder((m, n), name="A"), te.placeholder((n,), name="G")
    scale = topi.rsqrt(topi.add(_mean(topi.multiply(a, a), (1,), n), _number(1e-6)))
    return [a, g, topi.multiply(topi.multiply(a, scale), g)]


def l2_norm(m: int, n: int) -> list[Tensor]:
    a = te.placeholder((m, n), name="A")
    return [a, topi.divide(a, topi.sqrt(topi.maximum(topi.sum(topi.multiply(a, a), (1,), True), _number(1e-5))))]


def variance(m: int, n: int) -> list[Tensor]:
    a = te.placeholder((m, n), name="A")
    d = _centred_te(a, (1,), n)
    return [a, topi.divide(topi.sum(topi.multiply(d, d), (1,)), _number(float(n)))]


def squares(m: int, n: int) -> list[Tensor]:
    """The last stage is a reduction."""
    a = te.placeholder((m, n), name="A")
    d = _centred_te(a, (1,), n)
    return [a, topi.sum(topi.multiply(d, d), (1,), True)]


def log_sum_exp(m: int, n: int) -> list[Tensor]:
    a = te.placeholder((m, n), name="A")
    k, r = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="r")
    most = te.compute((m,), lambda i: te.max(a[i, k], axis=k), name="most")
    total = te.compute((m,), lambda i: te.sum(te.exp(a[i, r] - most[i]), axis=r), name="total")
    return [a, te.compute((m,), lambda i: te.log(total[i]) + most[i], name="lse")]


def arg_max(m: int, n: int) -> list[Tensor]:
    """The place of the greatest element, found with its value."""
    a = te.placeholder((m, n), name="A")
    return [a, topi.argmax(a, 1)]


ROW_CASES: dict[str, RowCase] = {
    "softmax": RowCase(softmax, _soft),
    "one_softmax": RowCase(one_softmax, _soft),
    "log_softmax": RowCase(log_softmax, lambda x: np.log(_soft(x))),
    "masked_softmax": RowCase(masked_softmax, lambda x, mask: _soft(x * 0.125 + mask)),
    "layer_norm": RowCase(layer_norm, lambda x, g, b: _normal(x, (1,)) * g + b),
    "sum_and_norm": RowCase(sum_and_norm, lambda x, y: _normal(x + y, (1,))),
    "instance_norm": RowCase(instance_norm, lambda x, g: _normal(x, (2, 3)) * g),
    "rms_norm": RowCase(rms_norm, lambda x, g: x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-6) * g),
    "l2_norm": RowCase(l2_norm, lambda x: x / np.sqrt(np.maximum(np.square(x).sum(1, keepdims=True), 1e-5))),
    "variance": RowCase(variance, lambda x: x.var(1)),
    "squares": RowCase(squares, lambda x: x.var(1, keepdims=True) * x.shape[1]),
    "log_sum_exp": RowCase(log_sum_exp, lambda x: np.log(np.exp(x).sum(1))),
    "arg_max": RowCase(arg_max, lambda x: x.argmax(1)),
}
