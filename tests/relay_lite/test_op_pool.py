"""Pooling: expression, meaning and type agree, and the meaning is that of plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import relay_lite as relay
from tests.amount import examples
from tests.nonempty import nonempty
from tests.relay_lite.op_case import check, random_array
from tests.topi_testing import poolnd_python

LAYOUTS = {1: ["NCW", "NWC"], 2: ["NCHW", "NHWC", "HWCN"], 3: ["NCDHW", "NDHWC"]}
few = examples(20)


def arranged(layout: str, size: list[int]) -> tuple[int, ...]:
    extents = dict(zip("NC" + "DHW"[3 - len(size) :], (2, 3, *size), strict=True))
    return tuple(extents[letter] for letter in layout)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("n", [1, 2, 3])
@given(data=st.data(), ceil_mode=st.booleans(), include=st.booleans())
@few
def test_windows(kind: str, n: int, data: st.DataObject, ceil_mode: bool, include: bool) -> None:
    kernel = [data.draw(st.integers(1, 3)) for _ in range(n)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(n)]
    dilation = [data.draw(st.integers(1, 2)) for _ in range(n)]
    padding = [data.draw(st.integers(0, (k - 1) * d // 2)) for k, d in zip(kernel * 2, dilation * 2, strict=True)]
    size = [data.draw(st.integers((k - 1) * d + 1, 7)) for k, d in zip(kernel, dilation, strict=True)]
    layout = data.draw(st.sampled_from(LAYOUTS[n]))
    x = relay.var("x", arranged(layout, size))
    more = {"count_include_pad": include} if kind == "avg" else {}
    pool = getattr(relay.nn, f"{kind}_pool{n}d")
    try:
        call = pool(x, kernel, strides, dilation, padding, layout, ceil_mode=ceil_mode, **more)
    except relay.GraphError as refused:
        assert ceil_mode and "last window" in str(refused)
        assume(False)
    if kind == "max":  # the maximum of nothing but padding is the lowest number of the dtype
        assume(call.op.numpy([np.ones(x.shape, "float32")], call.attrs).min() == 1)
    array = random_array(x.var_type, np.random.default_rng(1))
    (got,) = check(call, {"x": array})
    want = poolnd_python(array, kernel, strides, dilation, padding[:n], padding[n:], kind, include, ceil_mode, layout)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_pool_of_integers() -> None:
    check(relay.nn.max_pool2d(relay.var("x", (1, 2, 5, 5), "int32"), 3, 2, padding=1))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("n", [1, 2, 3])
@given(data=st.data())
@examples(10)
def test_adaptive(kind: str, n: int, data: st.DataObject) -> None:
    size = [data.draw(st.integers(1, 7)) for _ in range(n)]
    wanted = [data.draw(st.integers(1, 7)) for _ in range(n)]
    layout = data.draw(st.sampled_from(LAYOUTS[n]))
    x = relay.var("x", arranged(layout, size))
    pool = getattr(relay.nn, f"adaptive_{kind}_pool{n}d")
    assert pool(x, wanted, layout).shape == arranged(layout, wanted)
    check(pool(x, wanted, layout))
    same = pool(x, layout=layout)
    (got,) = check(same, {"x": (array := random_array(x.var_type, np.random.default_rng(1)))})
    np.testing.assert_allclose(got, array, rtol=1e-6)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_global(kind: str, n: int) -> None:
    for layout in nonempty(LAYOUTS[n]):
        x = relay.var("x", arranged(layout, [5, 3, 2][:n]))
        array = random_array(x.var_type, np.random.default_rng(1))
        (got,) = check(getattr(relay.nn, f"global_{kind}_pool{n}d")(x, layout), {"x": array})
        axes = tuple(d for d, letter in enumerate(layout) if letter not in "NC")
        want = array.max(axes, keepdims=True) if kind == "max" else array.mean(axes, keepdims=True)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
