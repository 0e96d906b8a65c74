"""Scatters whose places are known when the model is read (`swift-f0`): right, without comparing all with all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper, numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.module import main_function
from relay_lite.ir.nodes import Constant
from relay_lite.ir.reference import run
from relay_lite.ir.visit import post_order
from tests.reports.everywhere import compiled

Array = np.ndarray[Any, np.dtype[Any]]
JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new, "add": lambda old, new: old + new, "mul": lambda old, new: old * new,
    "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def model(op: str, x: Array, where: Array, updates: Array, **attrs: Any) -> Any:
    """One scatter of two inputs, its places an initializer."""
    ends = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in (("x", x), ("updates", updates), ("y", x))
    ]
    node = helper.make_node(op, ["x", "where", "updates"], ["y"], **attrs)
    graph = helper.make_graph([node], "g", ends[:2], ends[2:], [numpy_helper.from_array(where, "where")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def by_hand(op: str, x: Array, where: Array, updates: Array, reduction: str, axis: int) -> Array:
    """One update after the other, in the order of memory, as ONNX describes both operators."""
    out = x.copy()
    if op == "ScatterND":
        for k in np.ndindex(where.shape[:-1]):
            place = tuple(where[k])
            out[place] = JOINED[reduction](out[place], updates[k])
        return out
    for k in np.ndindex(where.shape):
        place = (*k[:axis], where[k], *k[axis + 1 :])
        out[place] = JOINED[reduction](out[place], updates[k])
    return out


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "int32":
        return rng.integers(-9, 9, shape).astype(dtype)
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.1] = np.inf
    values[rng.random(shape) < 0.05] = np.nan
    return values.astype(dtype)


def case(seed: int) -> tuple[Any, Array, Array, Array]:
    """A random scatter, its inputs and its result by hand; places are negative and come again."""
    rng = np.random.default_rng(seed)
    op, reduction = str(rng.choice(["ScatterND", "ScatterElements"])), str(rng.choice(list(JOINED)))
    dtype = str(rng.choice(["float32", "int32"]))
    x = drawn(rng, tuple(rng.integers(1, 7, rng.integers(1, 4))), dtype)
    axis = int(rng.integers(x.ndim))
    if op == "ScatterND":
        depth = int(rng.integers(1, x.ndim + 1))
        lead = tuple(rng.integers(1, 5, rng.integers(1, 3)))
        where = np.stack([rng.integers(-n, n, lead) for n in x.shape[:depth]], -1)
        updates = drawn(rng, (*lead, *x.shape[depth:]), dtype)
    else:
        shape = [int(rng.integers(1, 9)) if a == axis else int(rng.integers(1, n + 1)) for a, n in enumerate(x.shape)]
        where, updates = rng.integers(-x.shape[axis], x.shape[axis], shape), drawn(rng, tuple(shape), dtype)
    attrs = {"axis": axis - x.ndim * int(rng.integers(2))} if op == "ScatterElements" else {}
    want = by_hand(op, x, where, updates, reduction, axis)
    return model(op, x, where, updates, reduction=reduction, **attrs), x, updates, want


@pytest.mark.parametrize("seed", range(60))
def test_graph_is_as_by_hand(seed: int) -> None:
    with np.errstate(invalid="ignore"):
        scatter, x, updates, want = case(seed)
        got = run(from_onnx(scatter)[0], {"x": x, "updates": updates})
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert got.dtype == want.dtype


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("seed", range(60, 68))
def test_compiled_is_as_by_hand(seed: int) -> None:
    with np.errstate(invalid="ignore"):
        scatter, x, updates, want = case(seed)
    np.testing.assert_allclose(compiled(from_onnx(scatter)[0], [x, updates])[0], want, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_nothing_is_compared_with_everything(op: str, reduction: str) -> None:
    """100,000 elements and 5,000 updates: half a billion comparisons, or as much memory as both."""
    rng = np.random.default_rng(0)
    x, updates = rng.standard_normal(100_000).astype("float32"), rng.standard_normal(5_000).astype("float32")
    where = np.sort(rng.choice(len(x), len(updates), replace=False)) - len(x)
    where = where[:, None] if op == "ScatterND" else where
    module, _ = from_onnx(model(op, x, where, updates, reduction=reduction))
    sizes = [node.value.size for node in post_order(main_function(module).body) if isinstance(node, Constant)]
    assert sizes and max(sizes) <= len(x)
    got = run(module, {"x": x, "updates": updates})
    np.testing.assert_allclose(got, by_hand(op, x, where, updates, reduction, 0), rtol=1e-6)
