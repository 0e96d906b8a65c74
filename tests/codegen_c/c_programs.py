"""Hand-written loop nests, and the one way to check them: NumPy, the interpreter, and compiled C must agree."""

from __future__ import annotations

from typing import Any

import numpy as np

import codegen_c
from te_lite.expr.expr import Expr, Var, cast, const, if_then_else, logical_and, maximum
from te_lite.expr.visit import substitute
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, LoweredFunc, Stmt, Store, map_exprs, seq
from te_lite.meaning.interp import run
from tests.nonempty import nonempty

S, P, V, U = ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED
TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-11}


def v(*names: str) -> list[Var]:
    return [Var(n) for n in names]


def nest(*spec: Any) -> Stmt:
    """`nest((var, extent, kind), ..., body)`: loops outside in."""
    *loops, body = spec
    for var, extent, kind in reversed(loops):
        body = For(var, extent, kind, body)
    return body


def func(args: list[Buffer], body: Stmt, name: str = "program") -> LoweredFunc:
    return LoweredFunc(name, tuple(args), body)


def random_array(rng: np.random.Generator, b: Buffer) -> np.ndarray[Any, Any]:
    if b.dtype.startswith("float"):
        return rng.standard_normal(b.shape).astype(b.dtype)
    if b.dtype == "bool":
        return rng.integers(0, 2, b.shape).astype("bool")
    return rng.integers(-100 if not b.dtype.startswith("u") else 0, 100, b.shape).astype(b.dtype)


def poisoned(b: Buffer) -> np.ndarray[Any, Any]:
    """An array that no correct program leaves as it is."""
    return np.full(b.shape, np.nan if b.dtype.startswith("float") else 113, dtype=b.dtype)


def assert_close(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: str) -> None:
    if not dtype.startswith("float"):
        np.testing.assert_array_equal(got, want)
        return
    scale = max(1.0, float(np.max(np.abs(want)))) if want.size else 1.0
    np.testing.assert_allclose(got.astype("float64"), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


def check(
    f: LoweredFunc,
    inputs: list[np.ndarray[Any, Any]],
    wanted: list[np.ndarray[Any, Any]],
    options: codegen_c.Options | None = None,
) -> codegen_c.Module:
    """Compile and run `f(*inputs, *outputs)`; the outputs must equal `wanted` and what the interpreter gives."""
    outputs = [poisoned(b) for b in f.args[len(inputs) :]]
    module = codegen_c.build(f, options=options)
    copies = [a.copy() for a in inputs]
    module(*copies, *outputs)
    for a, b in zip(inputs, copies, strict=True):  # a program may have no inputs
        np.testing.assert_array_equal(a, b)
    for got, want, b in nonempty(zip(outputs, wanted, f.args[len(inputs) :], strict=True)):
        assert_close(got, want, b.dtype)
    again = [poisoned(b) for b in f.args[len(inputs) :]]
    run(f, [*inputs, *again])
    for got, want, b in nonempty(zip(outputs, again, f.args[len(inputs) :], strict=True)):
        assert_close(got, want.astype("float64") if b.dtype.startswith("float") else want, b.dtype)
    return module


def matmul(
    m: int, n: int, k: int, tile: tuple[int, int], dtype: str = "float32", acc: str = "float32", local: bool = True
) -> LoweredFunc:
    """C = A @ B: parallel over rows of tiles, k split by 4, a local accumulator, the innermost axis vectorized."""
    a, b, c = Buffer("A", dtype, (m, k)), Buffer("B", dtype, (k, n)), Buffer("C", acc, (m, n))
    ti, tj = tile
    io, jo, k0, k1, ii, ji, iz, jz, ic, jc = v(
        "i.0", "j.0", "k.0", "k.1", "i.1", "j.1", "i.init", "j.init", "i.c", "j.c"
    )
    acc_buf = Buffer("C.local", acc, (ti, tj), "local") if local else c

    def place(i: Expr, j: Expr) -> Expr:
        return i * tj + j if local else (io * ti + i) * n + jo * tj + j

    kk = k0 * 4 + k1
    product = cast(acc, a[(io * ti + ii) * k + kk]) * cast(acc, b[kk * n + jo * tj + ji])
    init = nest((iz, ti, S), (jz, tj, V), Store(acc_buf, place(iz, jz), const(0, acc)))
    work = nest(
        (k0, k // 4, S),
        (ii, ti, S),
        (k1, 4, U),
        (ji, tj, V),
        Store(acc_buf, place(ii, ji), acc_buf[place(ii, ji)] + product),
    )
    body = seq(init, work)
    if local:
        out = Store(c, (io * ti + ic) * n + jo * tj + jc, acc_buf[ic * tj + jc])
        body = Alloc(acc_buf, seq(body, nest((ic, ti, S), (jc, tj, V), out)))
    return func([a, b, c], nest((io, m // ti, P), (jo, n // tj, S), body), "matmul")


def conv2d(
    batch: int, ci: int, co: int, size: int, kernel: int, stride: int, pad: int, fuse: bool = False
) -> LoweredFunc:
    """NCHW convolution with inlined padding and relu; the output row (or, `fuse`, both spatial axes) vectorized."""
    out = (size + 2 * pad - kernel) // stride + 1
    d = Buffer("data", "float32", (batch, ci, size, size))
    w = Buffer("weight", "float32", (co, ci, kernel, kernel))
    o = Buffer("out", "float32", (batch, co, out, out))
    n, c, y, x, rc, ry, rx, xi, xr, f = v("n", "c", "y", "x", "rc", "ry", "rx", "x.i", "x.r", "yx.fused")
    h, u = y * stride + ry - pad, x * stride + rx - pad
    inside = logical_and(h >= 0, h < size, u >= 0, u < size)
    read = if_then_else(inside, d[((n * ci + rc) * size + h) * size + u], const(0.0, "float32"))
    place = ((n * co + c) * out + y) * out
    update = Store(o, place + x, o[place + x] + read * w[((c * ci + rc) * kernel + ry) * kernel + rx])
    sum_loops = ((rc, ci, S), (ry, kernel, S), (rx, kernel, U))
    zero = nest((xi, out, V), Store(o, place + xi, const(0.0, "float32")))
    relu = nest((xr, out, V), Store(o, place + xr, _max0(o[place + xr])))
    if not fuse:
        body = nest((n, batch, P), (c, co, S), (y, out, S), seq(zero, nest(*sum_loops, (x, out, V), update), relu))
        return func([d, w, o], body, "conv2d")
    fused = map_exprs(update, lambda e: substitute(e, {y: f // out, x: f % out}))
    body = nest((n, batch, P), (c, co, S), seq(
        nest((y, out, S), zero), nest(*sum_loops, (f, out * out, V), fused), nest((y, out, S), relu)))  # fmt: skip
    return func([d, w, o], body, "conv2d_fused")


def _max0(e: Expr) -> Expr:
    return maximum(e, const(0.0, "float32"))


def conv2d_numpy(d: Any, w: Any, stride: int, pad: int) -> np.ndarray[Any, Any]:
    """The convolution in float64."""
    d = np.pad(d.astype("float64"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    k = w.shape[2]
    windows = np.lib.stride_tricks.sliding_window_view(d, (k, k), (2, 3))[:, :, ::stride, ::stride]
    return np.asarray(np.maximum(np.einsum("nchwij,ocij->nohw", windows, w.astype("float64")), 0))
