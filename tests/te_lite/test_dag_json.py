"""Computations survive the trip through JSON: text, key, stage order and meaning."""

import json

import numpy as np
import pytest

import te_lite as te
from te_lite.meaning.reference import evaluate
from te_lite.printing.dag_json import dag_from_json, dag_to_json


def argmax_rows():
    a = te.placeholder((5, 7), name="A")
    k = te.reduce_axis((0, 7), name="k")
    return [a, *te.compute((5,), lambda i: te.argmax((k, a[i, k]), axis=k), name="T")]


def shared_and_guarded():
    a = te.placeholder((6, 3), "float64", name="A")
    pad = te.compute((8, 3), lambda i, j: te.if_then_else(te.all(i >= 1, i < 7), a[i - 1, j], 0.5), name="pad")
    k = te.reduce_axis((0, 3), name="k")
    total = te.compute(
        (8,), lambda i: te.max(te.select(pad[i, k] > 0, pad[i, k], -pad[i, k]), axis=k), name="m", tag="t",
        attrs={"layout_free_placeholders": [a], "n": 3, "names": ("x", "y")},
    )  # fmt: skip
    return [a, te.compute((8, 3), lambda i, j: te.exp(pad[i, j] - total[i // 2]).astype("float32"), name="e")]


def own_reducer():
    pair = te.comm_reducer(lambda x, y: x * y + 0.0, lambda d: te.const(1, d), name="mul")
    a = te.placeholder((4, 5, 2), name="A")
    j, k = te.reduce_axis((0, 5), name="j"), te.reduce_axis((0, 2), name="k")
    return [a, te.compute((4,), lambda i: pair(a[i, j, k], axis=[j, k], where=k < 1), name="p")]


def infinities_and_nan():
    a = te.placeholder((4, 5), name="A")
    r = te.reduce_axis((0, 5), name="r")
    clipped = te.compute((4, 5), lambda i, j: te.minimum(a[i, j], te.const(float("inf"), "float32")), name="c")
    largest = te.compute((4,), lambda i: te.max(clipped[i, r], axis=r), name="m")
    return [a, te.compute((4,), lambda i: te.select(largest[i] > 0, largest[i], te.const(float("nan"), "float32")),
                          name="n", attrs={"bounds": (float("-inf"), 6.0)})]  # fmt: skip


@pytest.mark.parametrize("make", [argmax_rows, shared_and_guarded, own_reducer, infinities_and_nan])
def test_round_trip(make):
    dag = te.ComputeDAG(make())
    copy = dag_from_json(json.loads(json.dumps(dag_to_json(dag), allow_nan=False)))
    assert [op.attrs for op in copy.ops if "bounds" in op.attrs] == [op.attrs for op in dag.ops if "bounds" in op.attrs]
    assert str(copy) == str(dag) and copy.workload_key() == dag.workload_key() and copy.flop_ct == dag.flop_ct
    array = np.random.default_rng(0).uniform(-1, 1, dag.inputs[0].shape).astype(dag.inputs[0].dtype)
    before, after = (evaluate(d.tensors, {d.inputs[0]: array}) for d in (dag, copy))
    for t, u in zip(dag.outputs, copy.outputs, strict=True):
        np.testing.assert_array_equal(before[t], after[u])
        assert t.dtype == u.dtype


@pytest.mark.parametrize("where", ["argument", "axis", "reduction", "value"])
def test_open_extents_are_refused(where):
    n = te.size_var("n", 1, 8)
    at = {place: n if place == where else 8 for place in ("argument", "axis", "reduction")}
    a = te.placeholder((at["argument"],), name="A")
    k = te.reduce_axis((0, at["reduction"]), "k")
    total = te.compute((8,), lambda i: te.sum(a[k], axis=k), name="S")
    factor = n.astype("float32") if where == "value" else 2.0
    b = te.compute((at["axis"],), lambda i: total[i] * factor, name="B")
    with pytest.raises(te.ExprError, match=r"^n: JSON has no open extents, give a number in place of te\.size_var$"):
        dag_to_json(te.ComputeDAG([a, b]))


def test_attributes_travel():
    copy = dag_from_json(json.loads(json.dumps(dag_to_json(te.ComputeDAG(shared_and_guarded())))))
    attrs = next(op for op in copy.ops if op.name == "m").attrs
    assert attrs["layout_free_placeholders"] == (copy.tensors[0],)
    assert attrs["n"] == 3 and attrs["names"] == ("x", "y")
    a = te.placeholder((4,), name="A")
    odd = te.compute((4,), lambda i: a[i] + 1.0, name="B", attrs={"odd": object()})
    with pytest.raises(te.ExprError, match="B: an attribute must be made of"):
        dag_to_json(te.ComputeDAG([a, odd]))


def test_shared_expressions_stay_shared():
    a = te.placeholder((4,), name="A")

    def deep(i):
        e = a[i]
        for _ in range(8):
            e = e + e
        return e

    data = dag_to_json(te.ComputeDAG([a, te.compute((4,), deep, name="B")]))
    assert len(data["nodes"]) == 10
