"""Convolutions and matrix products: expression, meaning and type agree for random windows, layouts and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relay_lite as relay
from relay_lite.ir.nodes import Call
from tests.amount import examples
from tests.relay_lite.op_case import check

LAYOUTS = {
    1: [("NCW", "OIW"), ("NWC", "WIO"), ("NWC", "OIW")],
    2: [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("HWCN", "HWIO"), ("NHWC", "OHWI"), ("NHWC", "HWOI"), ("NCHW", "HWIO")],
    3: [("NCDHW", "OIDHW"), ("NDHWC", "DHWIO"), ("NDHWC", "OIDHW")],
}
CONV = {1: relay.nn.conv1d, 2: relay.nn.conv2d, 3: relay.nn.conv3d}


def arranged(extents: dict[str, int], layout: str) -> tuple[int, ...]:
    return tuple(extents[letter] for letter in layout)


@st.composite
def convolutions(draw: st.DrawFn, n: int) -> Call:
    """A convolution of `n` dimensions that fits; small primes everywhere."""
    spatial = "DHW"[3 - n :]
    kernel = [draw(st.sampled_from([1, 2, 3])) for _ in spatial]
    strides = [draw(st.integers(1, 3)) for _ in spatial]
    dilation = [draw(st.integers(1, 2)) for _ in spatial]
    padding = [draw(st.integers(0, 2)) for _ in range(2 * n)]
    size = [draw(st.integers((k - 1) * d + 1, 7)) for k, d in zip(kernel, dilation, strict=True)]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = (groups * draw(st.sampled_from([1, 2])) for _ in range(2))
    data_layout, kernel_layout = draw(st.sampled_from(LAYOUTS[n]))
    data = arranged(dict(zip("NC" + spatial, (draw(st.integers(1, 2)), channels, *size), strict=True)), data_layout)
    weight = arranged(dict(zip("OI" + spatial, (filters, channels // groups, *kernel), strict=True)), kernel_layout)
    return CONV[n](relay.var("x", data), relay.var("w", weight), strides, padding, dilation, groups,
                   data_layout=data_layout, kernel_layout=kernel_layout)  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3])
@given(data=st.data())
@examples(25)
def test_convolution(n: int, data: st.DataObject) -> None:
    check(data.draw(convolutions(n)))


@pytest.mark.parametrize(("layout", "kernel_layout"), [("NCHW", "OIHW"), ("NHWC", "HWOI")])
@given(channels=st.integers(2, 5), multiplier=st.integers(1, 3), data=st.data())
@examples(15)
def test_depthwise(layout: str, kernel_layout: str, channels: int, multiplier: int, data: st.DataObject) -> None:
    kernel, stride, dilation = (data.draw(st.integers(1, n)) for n in (3, 2, 2))
    size = data.draw(st.integers((kernel - 1) * dilation + 1, 8))
    x = arranged({"N": 2, "C": channels, "H": size, "W": size + 1}, layout)
    w = arranged({"O": channels, "I": multiplier, "H": kernel, "W": kernel}, kernel_layout)
    padding = data.draw(st.integers(0, 2))
    call = relay.nn.conv2d(relay.var("x", x), relay.var("w", w), stride, padding, dilation, channels,
                           channels * multiplier, kernel, layout, kernel_layout)  # fmt: skip
    assert call.shape[layout.index("C")] == channels * multiplier
    check(call)


def test_depthwise_in_both_weight_forms() -> None:
    """[C * M, 1, ...] says the same as [C, M, ...]."""
    x, w = (np.random.default_rng(0).normal(size=s).astype("float32") for s in ((2, 3, 6, 5), (6, 1, 3, 3)))
    data = relay.var("x", x.shape)
    (a,) = check(relay.nn.conv2d(data, relay.var("w", w.shape), groups=3), {"x": x, "w": w})
    own = w.reshape(3, 2, 3, 3)
    (b,) = check(relay.nn.conv2d(data, relay.var("w", own.shape), groups=3), {"x": x, "w": own})
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_out_dtype_and_integers() -> None:
    x, w = relay.var("x", (1, 3, 5, 5), "int8"), relay.var("w", (4, 3, 3, 3), "int8")
    assert check(relay.nn.conv2d(x, w, out_dtype="int32"))[0].dtype == "int32"
    a, b = relay.var("a", (3, 5), "int8"), relay.var("b", (4, 5), "int8")
    assert check(relay.nn.dense(a, b, out_dtype="int32"))[0].dtype == "int32"
    half = relay.nn.dense(relay.var("a", (3, 5), "float16"), relay.var("b", (4, 5), "float16"), out_dtype="float32")
    assert check(half)[0].dtype == "float32"


# ---------------------------------------------------------------------------------------------- transposed

TRANSPOSED = {
    1: (relay.nn.conv1d_transpose, [("NCW", "IOW"), ("NWC", "WOI")]),
    2: (relay.nn.conv2d_transpose, [("NCHW", "IOHW"), ("NHWC", "HWOI"), ("NHWC", "HWIO"), ("NCHW", "OIHW")]),
    3: (relay.nn.conv3d_transpose, [("NCDHW", "IODHW"), ("NDHWC", "DHWOI")]),
}


@pytest.mark.parametrize("n", [1, 2, 3])
@given(data=st.data())
@examples(15)
def test_transposed_convolution(n: int, data: st.DataObject) -> None:
    spatial = "DHW"[3 - n :]
    function, layouts = TRANSPOSED[n]
    kernel = [data.draw(st.integers(1, 4)) for _ in spatial]
    strides = [data.draw(st.integers(1, 3)) for _ in spatial]
    extra = [data.draw(st.integers(0, s - 1)) for s in strides]
    padding = [data.draw(st.integers(0, (k - 1) // 2)) for _ in range(2) for k in kernel]
    size = [data.draw(st.integers(2, 4)) for _ in spatial]
    groups = data.draw(st.integers(1, 3))
    layout, kernel_layout = data.draw(st.sampled_from(layouts))
    x = arranged(dict(zip("NC" + spatial, (2, 2 * groups, *size), strict=True)), layout)
    w = arranged(dict(zip("IO" + spatial, (2 * groups, 3, *kernel), strict=True)), kernel_layout)
    more: dict[str, Any] = {"groups": groups, "data_layout": layout, "kernel_layout": kernel_layout}
    check(function(relay.var("x", x), relay.var("w", w), strides, padding, output_padding=extra, **more))


def test_transposed_is_the_adjoint_of_the_convolution() -> None:
    rng = np.random.default_rng(2)
    x, w, y = (rng.normal(size=s) for s in ((2, 3, 7, 6), (4, 3, 3, 3), (2, 4, 4, 3)))
    forward = relay.nn.conv2d(relay.var("x", x.shape, "float64"), relay.var("w", w.shape, "float64"), 2, 1)
    back = relay.nn.conv2d_transpose(relay.var("y", y.shape, "float64"), relay.var("w", w.shape, "float64"), 2, 1,
                                     kernel_size=3, output_padding=(0, 1))  # fmt: skip
    left = (forward.op.numpy([x, w], forward.attrs) * y).sum()
    right = (back.op.numpy([y, w], back.attrs) * x).sum()
    np.testing.assert_allclose(left, right, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ winograd


@pytest.mark.parametrize("tile", [2, 4, 6])
@given(size=st.tuples(st.integers(3, 9), st.integers(3, 9)), padding=st.integers(0, 2), batch=st.integers(1, 2),
       by_axis=st.booleans())  # fmt: skip
@examples(8)
@pytest.mark.one_in(2)
def test_winograd_is_the_convolution(tile: int, size: tuple[int, int], padding: int, batch: int, by_axis: bool) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(batch, *size, 3)).astype("float32"), rng.normal(size=(5, 3, 3, 3)).astype("float32")
    transform = relay.nn.contrib_conv2d_winograd_weight_transform(relay.var("w", w.shape), tile)
    (u,) = check(transform, {"w": w})
    call = relay.nn.contrib_conv2d_winograd_without_weight_transform(
        relay.var("x", x.shape), relay.var("u", u.shape), tile, 1, padding, channels=5, kernel_size=3, by_axis=by_axis
    )
    (got,) = check(call, {"x": x, "u": u}, own_rtol=1e-3)
    direct = relay.nn.conv2d(relay.var("x", x.shape), relay.var("w", w.shape), 1, padding, data_layout="NHWC")
    want = direct.op.numpy([x.astype("float64"), w.astype("float64")], direct.attrs)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


# ---------------------------------------------------------------------------------------------- products


@given(m=st.integers(1, 7), n=st.integers(1, 5), k=st.integers(1, 7), turned=st.tuples(st.booleans(), st.booleans()))
@examples(15)
def test_products(m: int, n: int, k: int, turned: tuple[bool, bool]) -> None:
    a = relay.var("a", (k, m) if turned[0] else (m, k))
    b = relay.var("b", (n, k) if turned[1] else (k, n))
    assert relay.nn.matmul(a, b, None, "", *turned).shape == (m, n)
    check(relay.nn.matmul(a, b, None, "", *turned))
    check(relay.nn.dense(relay.var("x", (m, k)), relay.var("w", (n, k)), units=n))
    for batches in ((3, 3), (1, 3), (3, 1), (1, 1)):
        x, y = (relay.var(v.name, (c, *v.shape)) for c, v in zip(batches, (a, b), strict=True))
        assert relay.nn.batch_matmul(x, y, "", *turned).shape == (max(batches), m, n)
        check(relay.nn.batch_matmul(x, y, "", *turned))
