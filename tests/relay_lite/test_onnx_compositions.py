"""ONNX operators that are compositions of the graph's, drawn at random, against onnxruntime or NumPy's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run
from tests.amount import examples
from tests.relay_lite.onnx_models import Array, Builder, compare, operators

EXTENTS = {"a": 2, "b": 3, "c": 4, "d": 1, "e": 5}
terms = st.lists(st.sampled_from("abcde"), min_size=0, max_size=4).map("".join)


def result(b: Builder, name: str) -> Any:
    module, _ = from_onnx(b.model(name))
    return run(module, b.feeds)


@examples(60)
@given(st.data())
def test_einsum_is_numpys(data: st.DataObject) -> None:
    """Any labels: repeated, summed over, of one operand, of three."""
    operands = data.draw(st.lists(terms, min_size=1, max_size=3))
    labels = sorted({c for t in operands for c in t})
    out = "".join(data.draw(st.permutations(labels))[: data.draw(st.integers(0, len(labels)))])
    b = Builder(13)
    names = [b.input([EXTENTS[c] for c in t]) for t in operands]
    equation = ",".join(operands) + data.draw(st.sampled_from(["->" + out, ""]))
    want = np.einsum(equation, *b.feeds.values())
    np.testing.assert_allclose(result(b, b.add("Einsum", *names, equation=equation)), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("equation", ["...ij,...jk->...ik", "i...,i...", "...ii->...i", "b...,...c->...cb"])
def test_einsum_with_an_ellipsis(equation: str) -> None:
    shapes = {"...ij,...jk->...ik": [(2, 1, 3, 4), (5, 4, 2)], "i...,i...": [(2, 3, 4), (2, 1, 4)],
              "...ii->...i": [(2, 3, 3)], "b...,...c->...cb": [(2, 3, 4), (3, 4, 5)]}  # fmt: skip
    b = Builder(13)
    names = [b.input(s) for s in shapes[equation]]
    want = np.einsum(equation, *b.feeds.values())
    np.testing.assert_allclose(result(b, b.add("Einsum", *names, equation=equation)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->il", "ij->ii", "ij,jk,k->i", "i,->", "ij->1"])
def test_an_equation_that_does_not_fit_is_refused(equation: str) -> None:
    b = Builder(13)
    with pytest.raises(GraphError, match="ONNX Einsum"):
        result(b, b.add("Einsum", b.input((2, 3)), b.input((3, 4)), equation=equation))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_scatters(reduction: str, constant: bool, dtype: type) -> None:
    """Negative indices; repeated ones where a reduction makes their order matter not."""
    rng = np.random.default_rng(3)
    b = Builder(18)
    x = b.input((4, 3, 5), dtype, 9 if dtype is np.int32 else 0)
    rows = rng.permutation(12)[:6] if reduction == "none" else rng.integers(0, 12, 6)
    where = np.stack([rows // 3 - 4, rows % 3], -1).reshape(2, 3, 2)
    at = b.array(where, np.int64) if constant else fed(b, where)
    updates = b.input((2, 3, 5), dtype, 9 if dtype is np.int32 else 0)
    y = b.add("ScatterND", x, at, updates, reduction=reduction)
    along = np.argsort(rng.random((3, 2, 4)), 0) - 2
    z = b.add("ScatterElements", y, b.array(along, np.int64) if constant else fed(b, along),
              b.input((3, 2, 4), dtype, 9 if dtype is np.int32 else 0), axis=0, reduction=reduction)  # fmt: skip
    compare(b.model(z, declared={z: helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}), b.feeds)


def fed(b: Builder, value: Array) -> str:
    """A graph input of int64 with these values."""
    name = b.input(value.shape, np.int64, 1)
    b.feeds[name] = value.astype(np.int64)
    return name


@pytest.mark.parametrize("batch", [0, 1])
def test_gather_nd(batch: int) -> None:
    rng = np.random.default_rng(batch)
    b = Builder(13)
    where = rng.integers(-2, 2, (2, 4, 2))
    compare(b.model(b.add("GatherND", b.input((2, 3, 2, 5)), fed(b, where), batch_dims=batch)), b.feeds)


@examples(25)
@given(st.data())
def test_top_k(data: st.DataObject) -> None:
    """Drawn from few values, so that most are equal to another."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    b = Builder(13)
    x = b.input(shape)
    values = data.draw(st.lists(st.integers(-2, 2), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    b.feeds[x] = np.array(values, np.float32).reshape(shape)
    k = data.draw(st.integers(1, shape[axis]))
    best, at = b.add("TopK", x, b.ints(k), outputs=2, axis=axis, largest=data.draw(st.integers(0, 1)))
    compare(b.model(best, at, declared={at: TensorProto.INT64}), b.feeds)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lengths", [None, (5, 3, 1)])
def test_recurrent(op: str, direction: str, lengths: Sequence[int] | None) -> None:
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[op]
    d, hidden, b = 1 + (direction == "bidirectional"), 4, Builder(14)
    x = b.input((5, 3, 2))
    weights = [b.weight(d, gates * hidden, 2), b.weight(d, gates * hidden, hidden), b.weight(d, 2 * gates * hidden)]
    known = "" if lengths is None else b.array(lengths, np.int32)
    state = [b.input((d, 3, hidden)) for _ in range(states)]
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    outs = b.add(op, x, *weights, known, *state, outputs=1 + states, hidden_size=hidden, direction=direction, **more)
    compare(b.model(*outs), b.feeds)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(mode: str, padding: str, corners: int) -> None:
    b = Builder(20)
    grid = b.input((2, 4, 3, 2))
    y = b.add("GridSample", b.input((2, 3, 5, 6)), grid, mode=mode, padding_mode=padding, align_corners=corners)
    compare(b.model(y), b.feeds, tol=1e-4)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(heads: tuple[int, int], mask: str | None, causal: int) -> None:
    """Three axes, heads that share keys, a past, and masks."""
    b, (q, kv) = Builder(23), heads
    inputs = [b.input((2, 3, q * 8)), b.input((2, 5, kv * 8)), b.input((2, 5, kv * 6))]
    if mask is not None:
        name = b.input((3, 5))
        b.feeds[name] = b.feeds[name] > -1 if mask == "bool" else b.feeds[name]
        kind = TensorProto.BOOL if mask == "bool" else TensorProto.FLOAT
        b.inputs[-1] = helper.make_tensor_value_info(name, kind, [3, 5])
        inputs.append(name)
    y = b.add("Attention", *inputs, q_num_heads=q, kv_num_heads=kv, is_causal=causal, softcap=2.0)
    compare(b.model(y), b.feeds)


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("mask", [None, (2, 1, 1, 5), (1, 5), (1, 4, 1, 5)])
def test_heads_of_a_group_are_rows_of_one_product(queries: int, mask: tuple[int, ...] | None) -> None:
    """Where they have the same mask: keys and values are then not repeated.  The scores are shown by heads."""
    b = Builder(23)
    inputs = [b.input((2, 4, queries, 8)), b.input((2, 2, 5, 8)), b.input((2, 2, 5, 6))]
    if mask is not None:
        inputs.append(b.input((*mask[:-2], queries, 5)))
    y, _, _, scores = b.add("Attention", *inputs, outputs=4, qk_matmul_output_mode=3)
    module = compare(b.model(y, scores), b.feeds)
    assert ("repeat" in operators(module)) == (mask is not None and (queries > 1 or mask[1:2] == (4,)))


def test_heads_that_the_graph_repeats_are_read_once() -> None:
    b = Builder(23)
    q, k, v = [b.input(shape) for shape in ((2, 4, 1, 8), (2, 2, 1, 5, 8), (2, 2, 1, 5, 8))]
    wide = [b.add("Expand", x, b.ints(2, 2, 2, 5, 8)) for x in (k, v)]
    y = b.add("Attention", q, *[b.add("Reshape", x, b.ints(2, 4, 5, 8)) for x in wide])
    assert {"broadcast_to", "repeat"}.isdisjoint(operators(compare(b.model(y), b.feeds)))


@pytest.mark.parametrize("axis", [None, 1])
def test_quantised_and_back(axis: int | None) -> None:
    """A QDQ pair with one scale, or one a channel, and a convolution between integers."""
    b = Builder(13)
    x = b.input((2, 3, 6, 5))
    scales = b.array([0.02, 0.1, 0.03], np.float32) if axis else b.array(0.05, np.float32)
    zeros = b.array([3, 0, 200], np.uint8) if axis else b.array(128, np.uint8)
    more = {"axis": axis} if axis else {}
    y = b.add("DequantizeLinear", b.add("QuantizeLinear", x, scales, zeros, **more), scales, zeros, **more)
    compare(b.model(y), b.feeds, tol=1e-6)


@pytest.mark.parametrize("op", ["IsInf", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Sinh", "Cosh", "Tan"])
def test_inverse_and_hyperbolic_functions(op: str) -> None:
    b = Builder(13)
    x = b.input((40,))
    b.feeds[x] = np.linspace(-0.99, 0.99, 40, dtype=np.float32) + (2 if op == "Acosh" else 0)
    if op == "IsInf":
        b.feeds[x][::3] = np.inf
        b.feeds[x][1::3] = -np.inf
    y = b.add(op, x, **({"detect_negative": 0} if op == "IsInf" else {}))
    compare(b.model(y, declared={y: TensorProto.BOOL} if op == "IsInf" else None), b.feeds)


def test_zero_vectors_have_no_direction() -> None:
    b = Builder(13)
    x = b.input((3, 4))
    b.feeds[x][1] = 0
    compare(b.model(b.add("LpNormalization", x, axis=1)), b.feeds)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSum"])
def test_reductions_over_nothing(op: str) -> None:
    b = Builder(18)
    x = b.add("Slice", b.input((2, 3, 4)), b.ints(1), b.ints(1), b.ints(1))
    compare(b.model(b.add(op, x, b.ints(1))), b.feeds)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 8, 7), (1, 2, 5, 6, 7)])
def test_where_the_maxima_are(shape: tuple[int, ...], ceil: int, order: int) -> None:
    n, b = len(shape) - 2, Builder(13)
    window = {"kernel_shape": [3] * n, "strides": [2] * n, "pads": [1] * (2 * n), "ceil_mode": ceil}
    y, at = b.add("MaxPool", b.input(shape), outputs=2, storage_order=order, dilations=[1] * n, **window)
    compare(b.model(y, at, declared={at: TensorProto.INT64}), b.feeds)


@pytest.mark.parametrize("opset", [13, 18])
def test_tensors_without_elements(opset: int) -> None:
    """An empty input, an empty slice, and what is made of them: products, joins, an empty output."""
    b = Builder(opset)
    past, x = b.input((2, 0, 4)), b.input((2, 3, 4))
    joined = b.add("Concat", b.add("Relu", past), x, axis=1)
    none = b.add("Slice", x, b.ints(3), b.ints(3), b.ints(1))
    scores = b.add("MatMul", none, b.weight(4, 5))
    zeros = b.add("MatMul", b.add("Transpose", b.add("Exp", none), perm=[0, 2, 1]), b.add("Sigmoid", none))
    compare(b.model(joined, scores, b.add("Add", zeros, b.input((4,)))), b.feeds)


def test_an_extent_of_nothing_is_kept() -> None:
    """With allowzero a 0 is an extent and not a copy."""
    b = Builder(14)
    x = b.input((0, 10))
    b.feeds[x] = np.zeros((0, 10), np.float32)
    compare(b.model(b.add("Reshape", x, b.ints(3, 0), allowzero=1)), b.feeds, shape={x: (0, 10)})


def test_a_refused_dtype_names_the_node_and_its_tensors() -> None:
    b = Builder(13)
    x = b.input((2, 3), np.int32, 5)
    with pytest.raises(GraphError, match=f"ONNX Exp .*a tensor of floats is needed, got dtype='int32'; .*'{x}'"):
        from_onnx(b.model(b.add("Exp", x)))


@pytest.mark.parametrize("last", [0, 1])
def test_the_last_of_equal_elements(last: int) -> None:
    b = Builder(13)
    x = b.input((4, 6))
    b.feeds[x] = np.round(b.feeds[x])
    y = b.add("ArgMax", x, axis=1, select_last_index=last)
    compare(b.model(y, declared={y: TensorProto.INT64}), b.feeds)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [False, True])
def test_attention_with_padded_keys(causal: int, mask: bool) -> None:
    """Opset 24: each sample says how many keys count; with fewer than queries, the first queries see none."""
    b, (batch, heads, rows, columns, size) = Builder(24), (4, 2, 3, 5, 4)
    names = [b.input((batch, heads, n, size)) for n in (rows, columns, columns)]
    query, keys, values = (b.feeds[n].astype(np.float64) for n in names)
    given = b.input((rows, columns)) if mask else ""
    valid = np.array([5, 3, 1, 0])
    y = b.add("Attention", *names, given, "", "", fed(b, valid), is_causal=causal)
    scores = query @ keys.swapaxes(2, 3) / 2 + (b.feeds[given] if mask else 0)
    behind = np.arange(columns) - np.arange(rows)[:, None]
    for sample, count in enumerate(valid):
        hidden = (np.arange(columns) >= count) | (causal * (behind > count - rows)).astype(bool)
        scores[sample, :, hidden] = -np.inf
    weights = np.exp(scores)
    want = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30) @ values
    np.testing.assert_allclose(result(b, y), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_opset_24(causal: int) -> None:
    """As torch's exporter writes it, and what it shows of the scores."""
    b = Builder(24)
    names = [b.input((2, 3, n, 8)) for n in (4, 6, 6)]
    outs = b.add("Attention", *names, outputs=4, is_causal=causal, softcap=2.0, qk_matmul_output_mode=1)
    compare(b.model(outs[0], outs[3]), b.feeds)
