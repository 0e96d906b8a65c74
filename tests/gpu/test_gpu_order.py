"""Sorts and running values on a GPU: the right order, of a few elements and of many."""

from __future__ import annotations

import numpy as np
import pytest

import ansor
import relay_lite as relay

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)


@pytest.mark.parametrize("shape", [(1,), (33,), (3, 100), (5, 2049), (100_000,)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_order_on_the_device(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(shape))
    x = (rng.standard_normal(shape) * 20).astype(dtype)
    if dtype != "int8":
        x.reshape(-1)[::7] = np.inf
        x.reshape(-1)[::11] = np.nan
    v = relay.Var("x", relay.TensorType(shape, dtype))
    whole = call_of(x)
    parts = (relay.sort(v), relay.argsort(v), relay.topk(v, 1, ret_type="indices"), relay.cumsum(v, -1, whole))
    lib = relay.build(relay.IRModule({"main": relay.Function([v], relay.Tuple(parts))}), "cuda")
    runner = relay.graph_executor.GraphModule(lib["default"](ansor.device("cuda")))
    runner.run(x=x)
    values, order, first, total = [runner.get_output(k).numpy() for k in range(4)]
    keys = x.astype("float64")
    want = np.argsort(keys, -1, kind="stable")
    np.testing.assert_array_equal(order, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, -1))
    nan = np.isnan(keys)
    best = np.where(nan.any(-1), nan.argmax(-1), np.where(nan, -np.inf, keys).argmax(-1))
    np.testing.assert_array_equal(first[..., 0], best)
    with np.errstate(invalid="ignore"):
        sums = np.cumsum(keys, -1)
    np.testing.assert_allclose(total, sums, rtol=1e-4, atol=1e-2 * np.abs(keys[np.isfinite(keys)]).max(initial=1))


def call_of(x: np.ndarray) -> str:
    return "int32" if x.dtype == np.int8 else "float32"
