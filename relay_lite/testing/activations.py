"""Activation functions that networks write as a few operators."""

from __future__ import annotations

from math import pi, sqrt

from ..ir.nodes import Expr, const
from ..op.binary import add, multiply
from ..op.elementwise import clip, erf, sigmoid, tanh

CUBIC = 0.044715
"""The weight of the cubic term in the approximation of gelu (Hendrycks and Gimpel, 2016, 1606.08415)."""


def relu6(data: Expr) -> Expr:
    """`min(max(x, 0), 6)`."""
    return clip(data, 0.0, 6.0)


def silu(data: Expr) -> Expr:
    """`x * sigmoid(x)`."""
    return multiply(data, sigmoid(data))


def gelu(data: Expr) -> Expr:
    """`x * (1 + erf(x / sqrt(2))) / 2`."""
    dtype = data.dtype
    inner = erf(multiply(data, const(sqrt(0.5), dtype)))
    half = multiply(data, const(0.5, dtype))
    return multiply(half, add(inner, const(1.0, dtype)))


def gelu_tanh(data: Expr) -> Expr:
    """`x * (1 + tanh(sqrt(2 / pi) * (x + CUBIC * x^3))) / 2`."""
    dtype = data.dtype
    cube = multiply(multiply(data, data), data)
    inner = multiply(add(data, multiply(cube, const(CUBIC, dtype))), const(sqrt(2 / pi), dtype))
    half = multiply(data, const(0.5, dtype))
    return multiply(half, add(tanh(inner), const(1.0, dtype)))
