"""Sorts, the largest of many, running sums and products: every length, tie and special value; n log n and n, proven."""

from __future__ import annotations

import math
import shutil
import time

import numpy as np
import pytest
from onnx import numpy_helper

import relay_lite as relay
from relay_lite.op.lower_group import lower_group
from tests.amount import some
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, compiled, node_model, of_graph, of_onnx, same_bits

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")

MORE = [pytest.param(k, marks=pytest.mark.long) for k in ("float32", "float64", "int8", "int64", "bool", "int32")]
KINDS = ["bfloat16", *MORE]


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Few different values, so that many are equal; of floats with NaN, infinities and zeros of both signs."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in ("int8", "uint8", "int32", "int64"):
        ends = np.iinfo(dtype)
        return rng.choice(np.array([ends.min, ends.max, 0, 1, 5], dtype), shape)
    x = rng.integers(-4, 5, shape).astype("float64")
    special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
    return np.where(rng.random(shape) < 0.3, special, x).astype(dtype)


def by_hand(line: Array, descending: bool) -> list[int]:
    """Positions by insertion: an element moves ahead of those that it surely belongs in front of."""
    values = [float(v) for v in line] if line.dtype.kind in "fV" else [int(v) for v in line]

    def before(a: float, b: float) -> bool:
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and not math.isnan(b) if descending else math.isnan(b) and not math.isnan(a)
        return a > b if descending else a < b

    order: list[int] = []
    for k, v in enumerate(values):
        at = len(order)
        while at and before(v, values[order[at - 1]]):
            at -= 1
        order.insert(at, k)
    return order


def order_of(x: Array, axis: int, descending: bool) -> Array:
    lines = np.moveaxis(x, axis, -1)
    out = np.empty(lines.shape, np.int64)
    for place in np.ndindex(lines.shape[:-1]):
        out[place] = by_hand(lines[place], descending)
    return np.moveaxis(out, -1, axis)


LONG = pytest.mark.long
LENGTHS = [1, pytest.param(2, marks=LONG), pytest.param(32, marks=LONG), 33, pytest.param(64, marks=LONG), 97,
           pytest.param(200, marks=LONG)]  # fmt: skip


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.one_in(2)
def test_sorts_of_every_length(count: int, descending: bool) -> None:
    x = drawn((2, count), "float32", count)
    v = relay.Var("x", relay.TensorType(x.shape, "float32"))
    want = order_of(x, 1, descending)
    values = np.take_along_axis(x, want, 1)
    for who, (ordered, order) in nonempty(
        of_graph(relay.Function([v], relay.sort_with_positions(v, 1, descending)), [x])
    ):
        np.testing.assert_array_equal(order, want, f"{who} {count}")
        same_bits(ordered, values, f"{who} {count}")


@pytest.mark.parametrize("dtype", KINDS)
def test_sorts_of_every_kind_along_every_axis(dtype: str) -> None:
    x = drawn((3, 35, 2), dtype, 7)
    for axis, descending in [(0, False), (-2, True)]:
        v = relay.Var("x", relay.TensorType(x.shape, dtype))
        want = order_of(x, axis, descending)
        function = relay.Function([v], relay.sort_with_positions(v, axis, descending))
        for who, (ordered, order) in nonempty(of_graph(function, [x])):
            np.testing.assert_array_equal(order, want, f"{who} {axis}")
            same_bits(ordered, np.take_along_axis(x, want, axis % 3), f"{who} {axis}")


def test_the_names_of_tvm() -> None:
    x = drawn((4, 9), "float32", 3)
    v = relay.Var("x", relay.TensorType(x.shape, "float32"))
    down, up = order_of(x, 1, True), order_of(x, 0, False)
    parts = [relay.topk(v, 3, -1, "values"), relay.topk(v, 2, 1, "indices", dtype="int64"), relay.argsort(v, 0),
             relay.sort(v, 1, False), relay.TupleGetItem(relay.topk(v, 0), 1)]  # fmt: skip
    wanted = [np.take_along_axis(x, down, 1)[:, :3], down[:, :2], up, np.take_along_axis(x, down, 1), down]
    got = compiled(relay.IRModule({"main": relay.Function([v], relay.Tuple(tuple(parts)))}), [x])
    for k, (a, b) in enumerate(nonempty(zip(got, wanted, strict=True))):
        np.testing.assert_array_equal(a, b, str(k))
    with pytest.raises(relay.GraphError, match="ret_type is one of 'values', 'indices', 'both', got"):
        relay.topk(v, 3, ret_type="value")
    with pytest.raises(relay.GraphError, match="axis"):
        relay.sort(v, 2)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_onnx(largest: int) -> None:
    x = drawn((3, 70), "float32", largest)
    for k in (0, 1, 40, 70):
        model = node_model("TopK", [x], 2, largest=largest, axis=1)
        model.graph.node[0].input.append("k")
        model.graph.initializer.append(numpy_helper.from_array(np.array([k], "int64"), "k"))
        want = order_of(x, 1, bool(largest))[:, :k]
        for who, (values, positions) in nonempty(of_onnx(model, [x])) if k else [("none", (x[:, :0], want))]:
            np.testing.assert_array_equal(positions, want, who)
            same_bits(values, np.take_along_axis(x, want, 1), who)


def running(x: Array, axis: int, product: bool) -> Array:
    """One operation after the other, in float64 or whole numbers."""
    lines = np.moveaxis(x, axis, -1).astype("float64" if x.dtype.kind in "fV" else "object")
    for t in range(1, lines.shape[-1]):
        lines[..., t] = lines[..., t - 1] * lines[..., t] if product else lines[..., t - 1] + lines[..., t]
    return np.moveaxis(lines, -1, axis)


@pytest.mark.parametrize("count", [1, 128, 129, 5000])
@pytest.mark.parametrize("product", [False, True])
def test_running_values_of_every_length(count: int, product: bool) -> None:
    rng = np.random.default_rng(count)
    x = (rng.choice([-1.0, 1.0, 2.0, 0.5], (2, count), p=[0.3, 0.66, 0.02, 0.02]) if product
         else rng.integers(-4, 5, (2, count)).astype(float)).astype("float32")  # fmt: skip
    v = relay.Var("x", relay.TensorType(x.shape, "float32"))
    function = relay.Function([v], (relay.cumprod if product else relay.cumsum)(v, 1))
    want = running(x, 1, product)
    alone = [("C", compiled(relay.IRModule({"main": function}), [x]))]
    for who, (got,) in nonempty(of_graph(function, [x]) if count < 5000 else alone):
        np.testing.assert_array_equal(got, want, f"{who} {count}")


def test_running_values_of_integers_halves_and_other_axes() -> None:
    for dtype in some(("int8", "uint64", "float16"), ("uint64", "float16")):
        rng = np.random.default_rng(5)
        whole = dtype != "float16"
        x = rng.integers(0, 100, (3, 5, 4)).astype(dtype) if whole else rng.integers(-8, 9, (3, 5, 4)).astype(dtype)
        for axis, exclusive, reverse in [(0, False, False), (1, True, True)]:
            v = relay.Var("x", relay.TensorType(x.shape, dtype))
            flipped = np.flip(x, axis) if reverse else x
            want = running(flipped, axis, False)
            if exclusive:
                want = np.concatenate(
                    [np.take(want, [0], axis) * 0, np.take(want, range(x.shape[axis] - 1), axis)], axis
                )
            want = np.flip(want, axis) if reverse else want
            if whole:
                bits = np.iinfo(dtype).bits
                want = np.vectorize(lambda n, bits=bits: n % 2**bits, otypes=["uint64"])(want)
            function = relay.Function([v], relay.cumsum(v, axis, None, exclusive, reverse))
            for who, (got,) in nonempty(of_graph(function, [x])):
                np.testing.assert_array_equal(got, want.astype(dtype), f"{who} {dtype} {axis} {exclusive} {reverse}")


def test_time_and_memory_grow_with_the_elements() -> None:
    """The elements of all stages, of 16 times the elements: 16 times as many, a sort's for each of log n passes."""
    costs = []
    for count in (1 << 9, 1 << 13):
        v = relay.Var("x", relay.TensorType((1, count), "float32"))
        for made, passes in ((relay.sort(v), math.log2(count)), (relay.cumsum(v, 1), 1)):
            ops = lower_group(relay.Function([v], made), "c").dag.ops
            sizes = [math.prod(op.shape) for op in ops]
            costs.append((max(sizes) / count, sum(sizes) / count / passes))
    (small, running_small, large, running_large) = costs
    assert large[0] <= small[0] * 1.01 and running_large[0] <= running_small[0] * 1.01
    assert large[1] <= small[1] * 1.5 and running_large[1] <= running_small[1] * 1.1


def test_many_elements_are_ordered_soon() -> None:
    """All pairs of 200,000 elements took minutes and gigabytes."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(200_000).astype("float32")
    v = relay.Var("x", relay.TensorType(x.shape, "float32"))
    begin = time.monotonic()
    order, total = compiled(
        relay.IRModule({"main": relay.Function([v], relay.Tuple((relay.argsort(v), relay.cumsum(v, 0))))}), [x]
    )
    assert time.monotonic() - begin < 120
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    np.testing.assert_allclose(total, np.cumsum(x.astype("float64")), rtol=0, atol=2e-2)
