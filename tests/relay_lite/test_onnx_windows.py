"""Convolutions, pools and matrix products of ONNX in all their forms, on random shapes against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from relay_lite.frontend import from_onnx
from relay_lite.ir.nodes import Call
from tests.relay_lite.onnx_models import Builder, compare, onnxruntime_run, operators

SEEDS = range(12)


def pads(rng: np.random.Generator, kernel: list[int], dilation: list[int]) -> dict[str, Any]:
    """Pads by one of the ways to say them; explicit ones are asymmetric."""
    mode = rng.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""])
    if mode == "":
        return {}
    if mode != "NOTSET":
        return {"auto_pad": str(mode)}
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    return {"pads": [int(rng.integers(0, r + 1)) for r in reach + reach]}


def window(rng: np.random.Generator, n: int, dilate: bool = True) -> dict[str, Any]:
    kernel = [int(k) for k in rng.integers(1, 4, n)]
    dilation = [int(d) for d in rng.integers(1, 3 if dilate else 2, n)]
    out = {"kernel_shape": kernel, "strides": [int(s) for s in rng.integers(1, 4, n)], **pads(rng, kernel, dilation)}
    same = str(out.get("auto_pad", "")).startswith("SAME")
    if same:
        out["strides"] = [min(s, k) for s, k in zip(out["strides"], kernel, strict=True)]
    if dilate:
        out["dilations"] = [1] * n if same else dilation
    return out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_conv(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(int(rng.integers(11, 22)), seed)
    group, ci, co = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    attrs = window(rng, n)
    weight = b.weight(co * group, ci, *attrs["kernel_shape"])
    x = b.input((2, ci * group, *(int(d) for d in rng.integers(7, 12, n))))
    inputs = [x, weight] + ([b.around(0, co * group)] if rng.integers(2) else [])
    if rng.integers(2):
        del attrs["kernel_shape"]
    ops = operators(compare(b.model(b.add("Conv", *inputs, group=group, **attrs)), b.feeds))
    assert ops[0] == f"nn.conv{n}d" and set(ops[1:]) <= {"nn.bias_add"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_conv_transpose(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(int(rng.integers(11, 22)), seed)
    group = int(rng.integers(1, 3)) if n == 2 else 1
    ci, co = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    kernel, strides = [int(k) for k in rng.integers(2, 5, n)], [int(s) for s in rng.integers(1, 4, n)]
    extents = [int(d) for d in rng.integers(3, 7, n)]
    dilation = [int(d) for d in rng.integers(1, 3, n)]
    attrs: dict[str, Any] = {"strides": strides, "kernel_shape": kernel, "dilations": dilation}
    match rng.integers(4):
        case 0:
            attrs["pads"] = [int(rng.integers(0, k)) for k in kernel + kernel]
            attrs["output_padding"] = [int(rng.integers(0, s)) for s in strides]
        case 1:
            cut = [int(rng.integers(0, k)) for k in kernel]
            reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
            rows = zip(extents, strides, reach, cut, strict=True)
            attrs["output_shape"] = [s * (e - 1) + r - c for e, s, r, c in rows]
        case 2:
            attrs["dilations"] = [1] * n
            attrs["kernel_shape"] = kernel = [max(k, s) for k, s in zip(kernel, strides, strict=True)]
            attrs["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
        case _:
            attrs["auto_pad"] = "VALID"
    x = b.input((2, ci * group, *extents))
    weight = b.weight(ci * group, co, *kernel)
    inputs = [x, weight] + ([b.around(0, co * group)] if rng.integers(2) else [])
    compare(b.model(b.add("ConvTranspose", *inputs, group=group, **attrs)), b.feeds)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pool(op: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    b = Builder(19 if op == "AveragePool" else int(rng.integers(11, 22)), seed)
    attrs = window(rng, n, dilate=op == "MaxPool")
    if "auto_pad" not in attrs:
        attrs["ceil_mode"] = int(rng.integers(2))
        attrs["pads"] = [min(p, k - 1) for p, k in zip(attrs.get("pads", [0] * 2 * n), attrs["kernel_shape"] * 2,
                                                       strict=True)]  # fmt: skip
    if op == "AveragePool":
        attrs["count_include_pad"] = int(rng.integers(2))
    x = b.input((2, 3, *(int(d) for d in rng.integers(6, 12, n))))
    compare(b.model(b.add(op, x, **attrs)), b.feeds)


@pytest.mark.parametrize("pads", [0, 1])
def test_the_tail_of_ceil_mode_never_counts(pads: int) -> None:
    b = Builder(19)
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [pads] * 4}
    x = b.input((2, 3, 8, 6))
    outs = [b.add("AveragePool", x, count_include_pad=include, **attrs) for include in (0, 1)]
    compare(b.model(*outs), b.feeds)


def test_a_last_window_in_the_pads_is_dropped() -> None:
    """Rows: ceil((8 + 1 - 2) / 5) + 1 = 3 windows, but the third would start at 10, behind the data."""
    b = Builder(19)
    x = b.input((2, 3, 8, 9))
    attrs = {"kernel_shape": [2, 2], "strides": [5, 3], "pads": [0, 1, 1, 1], "ceil_mode": 1}
    compare(b.model(b.add("MaxPool", x, **attrs), b.add("AveragePool", x, count_include_pad=1, **attrs)), b.feeds)


def test_same_pads_are_part_of_the_convolution() -> None:
    b = Builder(13)
    x = b.input((2, 3, 9, 8))
    y = b.add("Conv", x, b.weight(4, 3, 4, 4), auto_pad="SAME_UPPER", strides=[2, 2])
    z = b.add("Conv", b.pad(x, [0, 0, 1, 0, 0, 0, 2, 1]), b.weight(4, 3, 3, 3), pads=[0, 1, 0, 1])
    assert operators(compare(b.model(y, z), b.feeds)) == ["nn.conv2d", "nn.conv2d"]


def test_other_pads_stay_in_front_of_the_convolution() -> None:
    b = Builder(13)
    x = b.input((2, 3, 9, 8))
    filled = b.add("Pad", x, b.ints(0, 0, 1, 1, 0, 0, 1, 1), b.array(1.5, np.float32))
    wider = b.pad(x, [0, 0, 0, 0, 0, 1, 0, 0])
    outs = [b.conv(filled, 3, 4, 3, pads=[0] * 4), b.conv(wider, 4, 4, 3)]
    assert operators(compare(b.model(*outs), b.feeds)).count("nn.pad") == 2


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_pads_know_the_dilation(op: str, mode: str) -> None:
    """onnxruntime refuses this for Conv and forgets the dilation for MaxPool, so the formula is the oracle."""
    b = Builder(13)
    inputs = [b.input((1, 2, 9, 10))] + ([b.weight(2, 2, 3, 2)] if op == "Conv" else [])
    attrs = {"kernel_shape": [3, 2], "strides": [2, 3], "dilations": [2, 3]}
    body = from_onnx(b.model(b.add(op, *inputs, auto_pad=mode, **attrs)))[0]["main"].body
    assert isinstance(body, Call)
    assert body.shape == (1, 2, 5, 4)  # the extents divided by the strides, rounded up
    top, left, bottom, right = body.attrs["padding"]
    assert (top + bottom, left + right) == (4 * 2 + 5 - 9, 3 * 3 + 4 - 10)
    assert (right - left, bottom - top) == ((1, 0) if mode == "SAME_UPPER" else (-1, 0))


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 5, 7), (2, 3, 5, 2, 3)])
def test_global_pool(op: str, shape: tuple[int, ...]) -> None:
    b = Builder(13)
    compare(b.model(b.add(op, b.input(shape))), b.feeds)


@pytest.mark.parametrize("seed", range(16))
def test_gemm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(int(rng.integers(11, 22)), seed)
    m, k, n = (int(v) for v in rng.integers(2, 8, 3))
    ta, tb = (int(v) for v in rng.integers(0, 2, 2))
    a = b.input((k, m) if ta else (m, k))
    right = (n, k) if tb else (k, n)
    weight = b.weight(*right) if rng.integers(2) else b.input(right)
    c_shape = [None, (), (1,), (n,), (1, n), (m, n), (m, 1)][seed % 7]
    inputs = [a, weight] + ([] if c_shape is None else [b.around(1, *c_shape)])
    attrs = {"transA": ta, "transB": tb}
    if rng.integers(2):
        attrs |= {"alpha": 0.7, "beta": float(rng.choice([0.0, 1.5]))}
    compare(b.model(b.add("Gemm", *inputs, **attrs)), b.feeds)


MATMULS = [
    ((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((4, 5), (5, 3)), ((2, 4, 5), (5, 3)), ((2, 4, 5), (5,)),
    ((5,), (2, 5, 3)), ((4, 5), (2, 5, 3)), ((2, 3, 4, 5), (2, 3, 5, 7)), ((2, 1, 4, 5), (3, 5, 7)),
    ((1, 4, 5), (3, 5, 7)), ((2, 3, 4, 5), (1, 1, 5, 7)), ((3, 4, 5), (1, 2, 1, 5, 7)), ((1, 1, 4, 5), (5, 1)),
]  # fmt: skip


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shapes", MATMULS, ids=str)
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool) -> None:
    b = Builder(13)
    left = b.input(shapes[0])
    right = b.around(0.5, *shapes[1]) if constant else b.input(shapes[1])
    ops = operators(compare(b.model(b.add("MatMul", left, right)), b.feeds))
    assert "transpose" not in ops
    if constant and len(shapes[1]) == 2:
        assert "nn.dense" in ops


def test_the_oracle_would_see_a_wrong_pad() -> None:
    """A check of the check: pads on the other side change the result by more than the tolerance."""
    b = Builder(13)
    x = b.input((1, 2, 6, 6))
    weight = b.weight(2, 2, 3, 3)
    first = b.add("Conv", x, weight, pads=[0, 1, 2, 1])
    second = b.add("Conv", x, weight, pads=[2, 1, 0, 1])
    one, two = onnxruntime_run(b.model(first, second), b.feeds)
    assert np.abs(one - two).max() > 1e-2
