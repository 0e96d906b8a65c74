"""Products and windows with something fused to them, or with the channels last; weights of a few bits in blocks."""

from __future__ import annotations

from math import prod

import numpy as np

from ...ir.nodes import Array, Constant, Expr
from ..onnx.conv import conv
from ..onnx.emit import add, call, mul, reshape, transpose
from ..onnx.matmul import gemm, matmul
from ..onnx.node import Converters, Node
from ..onnx.pool import max_pool
from .activation import activated
from .parts import attrs_but, made, other

BITS = (2, 4, 8)


def fused_matmul(node: Node) -> Expr:
    """FusedMatMul: alpha times the product of tensors of matrices, whose axes may be in another order."""
    a, b = (_turned(node, index, letter) for index, letter in ((0, "A"), (1, "B")))
    out = matmul(other(node, a, b))
    alpha = node.number("alpha", 1.0)
    return out if alpha == 1 else mul(out, alpha)


def _turned(node: Node, index: int, letter: str) -> Expr:
    """An operand with its rows behind the batch (`transBatch`), and then with rows and columns exchanged (`trans`)."""
    x = node.input(index)
    rank, order = len(x.shape), list(range(len(x.shape)))
    if node.integer(f"transBatch{letter}", 0) and rank > 2:
        order = [*order[1:-1], order[0], order[-1]]
    if node.integer(f"trans{letter}", 0) and rank > 1:
        order[-2:] = order[:-3:-1]
    return transpose(x, order)


def fused_gemm(node: Node) -> Expr:
    """FusedGemm: Gemm, then the activation."""
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    params = [node.number(name) for name in names if node.has(name)]
    attrs = attrs_but(node, "activation", *names)
    return activated(node, made(gemm, other(node, node.input(0), node.input(1), node.optional(2), **attrs)), params)


def fused_conv(node: Node) -> Expr:
    """FusedConv: Conv, plus Z where it is given, then the activation."""
    params = node.numbers("activation_params", ())
    attrs = attrs_but(node, "activation", "activation_params")
    out = made(conv, other(node, node.input(0), node.input(1), node.optional(2), **attrs))
    more = node.optional(3)
    if more is not None:
        node.require(more.shape == out.shape, "Z must have the shape of the output", Z=more.shape, output=out.shape)
        out = add(out, more)
    return activated(node, out, params)


def first(x: Expr) -> Expr:
    """Channels that are last in front of the spatial axes."""
    return transpose(x, (0, len(x.shape) - 1, *range(1, len(x.shape) - 1)))


def last(x: Expr) -> Expr:
    """Channels behind the spatial axes."""
    return transpose(x, (0, *range(2, len(x.shape)), 1))


def nhwc_max_pool(node: Node) -> Expr:
    """NhwcMaxPool: MaxPool with the channels last."""
    return last(made(max_pool, other(node, first(node.input(0)), **attrs_but(node))))


def nhwc_conv(node: Node) -> Expr:
    """NhwcConv and NhwcFusedConv: data and result with the channels last; the kernel as Conv has it."""
    more = node.optional(3)
    inputs = (first(node.input(0)), node.input(1), node.optional(2), None if more is None else first(more))
    return last(made(fused_conv, other(node, *inputs, **attrs_but(node))))


def n_bits(node: Node) -> Expr:
    """MatMulNBits: A (..., K) times (N, K)' of 2, 4 or 8 bits, with a scale and a zero point for every block of K.

    The weights must be known; they become floats when the model is read.
    """
    a, k, n, bits = node.input(0), node.integer("K"), node.integer("N"), node.integer("bits", 4)
    size = node.integer("block_size")
    node.integer("accuracy_level", 0)  # the least accuracy, which float32 has
    node.require(node.integer("weight_prepacked", 0) == 0, "weight_prepacked must be 0")
    law = f"bits are {', '.join(map(str, BITS))}, and block_size is a power of two of at least 16"
    node.require(bits in BITS and size >= 16 and size & (size - 1) == 0, law, bits=bits, block_size=size)
    node.require(a.shape and a.shape[-1] == k, f"A must have a last axis of {k}", shape=a.shape)
    weight = Constant(_weights(node, k, n, bits, size).astype(a.dtype))
    out = call("nn.dense", reshape(a, (prod(a.shape[:-1]), k)), weight)
    bias = node.optional(5)
    if bias is not None:
        node.require(bias.shape == (n,), f"the bias must have {n} values", shape=bias.shape)
        out = add(out, bias)
    return reshape(out, (*a.shape[:-1], n))


def _weights(node: Node, k: int, n: int, bits: int, size: int) -> Array:
    """The weights (N, K) as numbers, in float64."""
    blocks = -(-k // size)
    codes, scales, zeros, groups = (node.value(index) for index in (1, 2, 3, 4))
    law = f"B must be bytes ({n}, {blocks}, {size * bits // 8}), and scales ({n}, {blocks})"
    assert codes is not None and scales is not None
    fits = str(codes.dtype) == "uint8" and codes.size * 8 == n * blocks * size * bits and scales.size == n * blocks
    node.require(fits, law, B=codes.shape, scales=scales.shape)
    whole = unpacked(codes.reshape(n, -1), bits)
    shift: Array = np.full((n, blocks), 2.0 ** (bits - 1))
    if zeros is not None and str(zeros.dtype) == "uint8":
        packed = -(-blocks * bits // 8)
        law = f"zero points must be bytes ({n}, {packed}), or numbers ({n}, {blocks})"
        node.require(zeros.size == n * packed, law, shape=zeros.shape)
        shift = unpacked(zeros.reshape(n, packed), bits)[:, :blocks].astype("float64")
    elif zeros is not None:
        law = f"zero points must be numbers ({n}, {blocks}), or bytes"
        node.require(zeros.size == n * blocks, law, shape=zeros.shape)
        shift = zeros.reshape(n, blocks).astype("float64")
    at = np.arange(blocks * size) // size
    if groups is not None:
        node.require(groups.size >= k and groups.min() >= 0 and groups.max() < blocks, "g_idx must be blocks, one of K")
        at = np.concatenate([groups.reshape(-1)[:k], at[k:]])[: blocks * size]
    scaled = (whole - shift[:, at]) * scales.reshape(n, blocks).astype("float64")[:, at]
    return np.asarray(scaled[:, :k])


def unpacked(codes: Array, bits: int) -> Array:
    """Bytes as numbers of so many bits along the last axis, the low bits first."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    parts = (codes[..., None] >> shifts) & np.uint8(2**bits - 1)
    return np.asarray(parts.reshape(*codes.shape[:-1], -1))


CONVERTERS: Converters = {
    "FusedConv": {1: fused_conv},
    "FusedGemm": {1: fused_gemm},
    "FusedMatMul": {1: fused_matmul},
    "MatMulNBits": {1: n_bits},
    "NhwcConv": {1: nhwc_conv},
    "NhwcFusedConv": {1: nhwc_conv},
    "NhwcMaxPool": {1: nhwc_max_pool},
    "TransposeMatMul": {1: fused_matmul},
}
