"""Fourier transforms as products with known matrices, and windows."""

from __future__ import annotations

import numpy as np

from ansor.core.values.checks import require_computed

from ...ir.nodes import Expr
from .emit import add, call, cast, concatenate, const, mul, reshape, sub, transpose
from .model import dtype_name
from .node import Converter, Converters, Node
from .product import product
from .select import pick


def dft_attrs(node: Node) -> Expr:
    """DFT before opset 20: the axis is an attribute, by default the first behind the batch."""
    return _dft(node, node.integer("axis", 1))


def dft_inputs(node: Node) -> Expr:
    """DFT from opset 20 on: the axis is an input, by default the last of the signal."""
    axis = node.scalar(2)
    return _dft(node, -2 if axis is None else int(axis))


def _dft(node: Node, axis: int) -> Expr:
    """The transform along an axis; the last axis holds real and imaginary part, or the real part alone."""
    x, inverse, onesided = node.input(0), bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    rank, given = len(x.shape), node.scalar(1)
    node.require(rank >= 2 and x.shape[-1] in (1, 2), "the last axis must hold 1 or 2 parts", shape=x.shape)
    halved = inverse and onesided
    node.require(not halved or x.shape[-1] == 2, "a one-sided spectrum must have 2 parts", shape=x.shape)
    axis = node.axis(axis, rank)
    node.require(axis != rank - 1, "the axis must not be that of the parts", axis=axis)
    length = int(given) if given is not None else 2 * (x.shape[axis] - 1) if halved else x.shape[axis]
    node.require(length >= 1, "dft_length must be at least 1", dft_length=length)
    x = _resized(x, axis, length // 2 + 1 if halved else length)
    order = [a for a in range(rank - 1) if a != axis] + [axis]
    parts = [transpose(reshape(pick(x, {rank - 1: range(k, k + 1)}), x.shape[:-1]), order) for k in range(x.shape[-1])]
    back = [order.index(a) for a in range(rank - 1)]
    return _real_signal(parts, length, back) if halved else _transformed(parts, length, inverse, onesided, back)


def _real_signal(parts: list[Expr], length: int, back: list[int]) -> Expr:
    """The real signal of the first half of a spectrum, whose other half is its mirror image conjugated."""
    k = np.arange(length // 2 + 1)[:, None]
    angle, count = 2 * np.pi * k * np.arange(length) / length, np.where((k == 0) | (2 * k == length), 1, 2)
    cos, sin = (const(f * count / length, parts[0].dtype) for f in (np.cos(angle), np.sin(angle)))
    signal = sub(product(parts[0], cos, weights=True), product(parts[1], sin, weights=True))
    return call("expand_dims", transpose(signal, back), axis=len(back))


def _transformed(parts: list[Expr], length: int, inverse: bool, onesided: bool, back: list[int]) -> Expr:
    """Real and imaginary parts (transformed axis last) times the matrices of cosines and sines."""
    kept = length // 2 + 1 if onesided else length
    angle = 2 * np.pi * np.outer(np.arange(length), np.arange(kept)) / length
    scale = 1 / length if inverse else 1.0
    cos, sin = (const(f * scale, parts[0].dtype) for f in (np.cos(angle), np.sin(angle) * (1 if inverse else -1)))
    real, imaginary = product(parts[0], cos, weights=True), product(parts[0], sin, weights=True)
    if len(parts) == 2:
        real = sub(real, product(parts[1], sin, weights=True))
        imaginary = add(imaginary, product(parts[1], cos, weights=True))
    return concatenate([call("expand_dims", transpose(p, back), axis=len(back)) for p in (real, imaginary)], len(back))


def _resized(x: Expr, axis: int, length: int) -> Expr:
    """The first `length` elements of an axis, with zeros behind them where there are fewer."""
    extent = x.shape[axis]
    if length <= extent:
        return pick(x, {axis: range(length)}) if length < extent else x
    return call("nn.pad", x, pad_width=tuple((0, length - extent if a == axis else 0) for a in range(len(x.shape))))


def stft(node: Node) -> Expr:
    """STFT: the transform of every frame of a signal (batch, length, parts), times a window.

    PyTorch's exporter leaves the axis of parts out, which onnxruntime takes for one part.
    """
    x, step, given = node.input(0), node.scalar(1), node.optional(2)
    x = reshape(x, (*x.shape, 1)) if len(x.shape) == 2 else x
    length = node.scalar(3) if node.optional(3) is not None else None if given is None else given.shape[0]
    law = "a signal of 3 axes, a frame_step and a frame length that fits are needed"
    fits = len(x.shape) == 3 and step and length and x.shape[1] >= length >= 1
    node.require(fits, law, signal=x.shape, frame_step=step, frame_length=length)
    assert step is not None and length is not None
    count, length = (x.shape[1] - int(length)) // int(step) + 1, int(length)
    at = np.arange(count)[:, None] * int(step) + np.arange(length)
    frames = call("take", x, const(at, "int32"), axis=1)
    parts = [reshape(pick(frames, {3: range(k, k + 1)}), frames.shape[:-1]) for k in range(x.shape[2])]
    parts = parts if given is None else [mul(p, given) for p in parts]
    return _transformed(parts, length, False, bool(node.integer("onesided", 1)), [0, 1, 2])


def mel_weights(node: Node) -> Expr:
    """MelWeightMatrix (spectrum, bins): triangles between frequencies that are equally far apart on the mel scale."""
    bins, length, rate, low, high = (node.scalar(i) for i in range(5))
    node.require(None not in (bins, length, rate, low, high), "five numbers are needed")
    first, last = (2595 * np.log10(1 + f / 700) for f in (low, high))
    mel = first + np.arange(int(bins) + 2) * (last - first) / (int(bins) + 2)
    at = np.floor((int(length) + 1) * (700 * (10 ** (mel / 2595) - 1)) / rate)
    left, centre, right = at[:-2], at[1:-1], at[2:]
    j = np.arange(int(length) // 2 + 1)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where(centre > left, (j - left) / (centre - left), 1.0)
        falling = np.where(right > centre, (right - j) / (right - centre), 1.0)
    up, down = (j >= left) & (j <= centre), (j > centre) & (j < right)
    out = np.where(up, rising, np.where(down, falling, 0.0))
    return const(out, dtype_name(node.integer("output_datatype", 1), str(node)))


def window(constant: float, once: float, twice: float = 0.0) -> Converter:
    """A window `constant - once cos(t) + twice cos(2 t)`, in float64 where ONNX's body is in float32.

    A period has `size` elements, or one less; of a symmetric window of one element that is nothing, and it is NaN.
    """

    def convert(node: Node) -> Expr:
        size, dtype = node.scalar(0), dtype_name(node.integer("output_datatype", 1), str(node))
        node.require(size is not None and size >= 0, "a size of at least 0 is needed", size=size)
        require_computed((int(size),), "float64", str(node))
        with np.errstate(all="ignore"):
            angle = np.arange(int(size)) * np.divide(2 * np.pi, size - (not node.integer("periodic", 1)))
            out = constant - once * np.cos(angle) + twice * np.cos(2 * angle)
        return cast(const(out, "float64"), dtype)

    return convert


CONVERTERS: Converters = {
    "BlackmanWindow": {17: window(0.42, 0.5, 0.08)},
    "HammingWindow": {17: window(25 / 46, 21 / 46)},
    "HannWindow": {17: window(0.5, 0.5)},
    "DFT": {17: dft_attrs, 20: dft_inputs},
    "STFT": {17: stft},
    "MelWeightMatrix": {17: mel_weights},
}
