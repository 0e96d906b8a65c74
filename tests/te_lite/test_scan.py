"""Scans: what they mean, how they are scheduled, and what is refused; written as JSON, read again, and checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ansor
import codegen_c
import te_lite as te
from ansor.measure.check import accepted_values, mismatch
from ansor.measure.points import PointReference
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.lowering.lower import lower
from te_lite.meaning import interp
from te_lite.meaning.reference import evaluate
from te_lite.printing.dag_json import dag_from_foreign_json, dag_to_json
from te_lite.schedule.schedule import Schedule
from tests.nonempty import nonempty

Array = np.ndarray[Any, np.dtype[Any]]
GCC = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")
ROWS, COLUMNS, STEPS = 3, 5, 7


def means(dtype: str = "float32") -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Running means of doubled elements, plus one: a producer, a scan of several values, and a consumer."""
    x = te.placeholder((ROWS, COLUMNS, STEPS), dtype, "x")
    y = te.compute(x.shape, lambda i, j, t: x[i, j, t] * 2, "y")
    _, mean = te.scan(
        x.shape,
        lambda before, i, j, t: (before[0] + y[i, j, t], before[0].now / (te.cast(dtype, t) + 1)),
        (dtype, dtype),
        "mean",
    )
    return x, mean, te.compute(x.shape, lambda i, j, t: mean[i, j, t] + 1, "z")


def by_hand(x: Array) -> Array:
    out = np.empty(x.shape)
    for i, j in np.ndindex(x.shape[:2]):
        total = 0.0
        for t in range(x.shape[2]):
            total += 2 * float(x[i, j, t])
            out[i, j, t] = total / (t + 1) + 1
    return out


def drawn(seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, (ROWS, COLUMNS, STEPS)).astype("float32")


def fused(s: Schedule, mean: te.Tensor, z: te.Tensor) -> None:
    i, j, _ = s[mean].op.axis
    outer, _ = s[mean].split(s[mean].fuse(i, j), factor=4)
    s[mean].parallel(outer)


def inlined(s: Schedule, mean: te.Tensor, z: te.Tensor) -> None:
    s[mean.op.input_tensors()[0]].compute_inline()
    i, j, t = s[mean].op.axis
    s[mean].reorder(j, i, t)
    s[mean].unroll(t)


def producer_inside(s: Schedule, mean: te.Tensor, z: te.Tensor) -> None:
    s[mean.op.input_tensors()[0]].compute_at(s[mean], s[mean].op.axis[1])


def cached(s: Schedule, mean: te.Tensor, z: te.Tensor) -> None:
    y = mean.op.input_tensors()[0]
    s.cache_read(y.op.input_tensors()[0], "local", [y])


def threads(s: Schedule, mean: te.Tensor, z: te.Tensor) -> None:
    s[mean.op.input_tensors()[0]].compute_inline()
    for tensor in (mean, z):
        i, j, _ = s[tensor].op.axis
        block, thread = s[tensor].split(s[tensor].fuse(i, j), factor=4)
        s[tensor].bind(block, te.thread_axis("blockIdx.x"))
        s[tensor].bind(thread, te.thread_axis("threadIdx.x"))


def run(way: Callable[..., Any], change: Callable[..., None]) -> Array:
    x, mean, z = means()
    s = te.create_schedule(z.op)
    change(s, mean, z)
    out = np.full(z.shape, 77, "float32")
    way(lower(s, [x, z]), [drawn(), out])
    return out


@pytest.mark.parametrize("change", [lambda *_: None, fused, inlined, producer_inside, cached])
def test_schedules_do_not_change_what_is_computed(change: Callable[..., None]) -> None:
    np.testing.assert_allclose(run(interp.run, change), by_hand(drawn()), rtol=1e-5, atol=1e-6)


@GCC
@pytest.mark.parametrize("change", [fused, inlined, producer_inside])
def test_compiled(change: Callable[..., None]) -> None:
    got = run(lambda f, arrays: codegen_c.build(f)(*arrays), change)
    np.testing.assert_allclose(got, by_hand(drawn()), rtol=1e-5, atol=1e-6)


@GCC
def test_threads_of_a_gpu() -> None:
    for way in (interp.run, lambda f, arrays: run_program(emit(f), arrays)):
        np.testing.assert_allclose(run(way, threads), by_hand(drawn()), rtol=1e-5, atol=1e-6)


def test_the_reference_everywhere_and_at_points() -> None:
    x, _, z = means()
    a = drawn()
    whole = evaluate([x, z], {x: a}, "float64")[z]
    np.testing.assert_allclose(whole, by_hand(a), rtol=1e-12)
    at = [np.array([0, 2, 1]), np.array([4, 0, 2]), np.array([6, 0, 3])]
    points = PointReference([z], {x: lambda i: a[tuple(i)]}).at([z], at)[0]
    np.testing.assert_allclose(points, whole[tuple(at)], rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_scans_of_integers_wrap_as_their_dtype_does(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["int8", "uint8", "int32", "int64"]))
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    ends = np.iinfo(dtype)
    a = np.random.default_rng(data.draw(st.integers(0, 99))).integers(ends.min, ends.max, shape, dtype, endpoint=True)
    x = te.placeholder(shape, dtype, "x")
    y = te.scan(shape, lambda before, *at: before * 3 + x[at], dtype, "y")
    want = np.empty(shape, dtype)
    for place in np.ndindex(shape[:-1]):
        total = 0
        for t in range(shape[-1]):
            total = (total * 3 + int(a[place][t])) % (1 << ends.bits)
            want[place][t] = np.array(total, f"uint{ends.bits}").astype(dtype)
    np.testing.assert_array_equal(evaluate([x, y], {x: a})[y], want)
    out = np.zeros(shape, dtype)
    interp.run(lower(te.create_schedule(y.op), [x, y]), [a, out])
    np.testing.assert_array_equal(out, want)


def test_what_depends_on_memory_is_clipped_or_refused() -> None:
    x = te.placeholder((8,), "int32", "x")
    walk = te.scan((8,), lambda before, t: x[te.maximum(te.minimum(before, 7), 0)], "int32", "walk")
    jump = te.scan((8,), lambda before, t: x[before], "int32", "jump")
    a, out = np.array([3, 1, 1, 5, 0, 7, 2, 4], "int32"), np.zeros(8, "int32")
    interp.run(lower(te.create_schedule(walk.op), [x, walk]), [a, out])
    at = 0
    for got in out:
        at = a[at]
        assert got == at
    with pytest.raises(te.TeError, match=r"jump: in_bounds: index -?\d+ of dimension 0"):
        lower(te.create_schedule(jump.op), [x, jump])


def test_what_is_refused() -> None:
    x, mean, z = means()

    def scheduled(change: Callable[[Schedule], object]) -> str:
        s = te.create_schedule(z.op)
        with pytest.raises(te.TeError) as refused:
            change(s)
            lower(s, [x, z])
        return str(refused.value)

    _, j, t = mean.op.axis
    order = "mean: the last axis of a scan is its innermost loop, whole and in order"
    wrong: list[tuple[Callable[[Schedule], object], str]] = [
        (lambda s: s[mean].compute_inline(), "compute_inline mean: a scan is computed at root"),
        (lambda s: s[mean].compute_at(s[z], z.op.axis[0]), "compute_at mean: a scan is computed at root"),
        (lambda s: s[mean].reorder(t, j), order),
        (lambda s: s[mean].split(t, factor=2), order),
        (lambda s: s[mean].parallel(t), "depend on each other"),
        (lambda s: s[mean].vectorize(t), "depend on each other"),
        (lambda s: s[mean].vectorize(j), order),
        (lambda s: s[mean].bind(t, te.thread_axis("threadIdx.x")), order),
        (lambda s: s.rfactor(mean, t), "is for reductions"),
    ]
    for change, law in nonempty(wrong):
        assert law in scheduled(change)


def test_what_is_no_scan() -> None:
    x, k, kept = te.placeholder((4,), name="x"), te.reduce_axis((0, 4), "k"), []
    two = ("float32", "float32")
    te.scan((4,), lambda before, i: (kept.append(before[1]) or before[0] + x[i], before[1]), two)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: te.scan(x, x, x), "no tensors of states as in TVM"),
        (lambda: te.scan((), lambda before: before), "has an axis to run along"),
        (lambda: te.scan((4,), lambda before, i: before + x[i], "int32"), "are the elements of its own outputs"),
        (lambda: te.scan((4,), lambda before, i: te.sum(x[k] + before, axis=k)), "a reduction is a compute of its own"),
        (lambda: te.compute((4,), lambda i: x[i] + kept[0]), "are the elements of its own outputs"),
        (lambda: te.scan((4,), lambda before, i: before + kept[0]), "are the elements of its own outputs"),
        (lambda: te.scan((4,), lambda before, i: before + x[i], "int33"), "int33"),
        (lambda: te.scan((4,), lambda b, i: (b[1].now, x[i]), ("float32", "float32")), "in front of it"),
        (lambda: te.scan((4,), lambda before, i, j: before), "one index per dimension"),
        (lambda: te.scan((4,), lambda b, i: (x[i],), ("float32", "float32")), "has the dtype of the one before"),
    ]
    for make, law in nonempty(wrong):
        with pytest.raises(te.ExprError, match=law):
            make()


def test_written_as_json_and_read_again() -> None:
    x, _, z = means()
    dag = te.ComputeDAG([x, z])
    text = json.dumps(dag_to_json(dag))
    again = dag_from_foreign_json(json.loads(text))
    assert str(again) == str(dag) and again.workload_key() == dag.workload_key()
    a = drawn()
    given_, out = again.tensors
    np.testing.assert_array_equal(evaluate([given_, out], {given_: a})[out], evaluate([x, z], {x: a})[z])
    changes = [
        ('["before", "mean.before.v0", "float32", 0, ', '["before", "mean.before.v0", "float32", 0, 999'),
        ('["carried", "mean.now.v0", "float32", 0]', '["carried", "mean.now.v0", "float33", 0]'),
    ]
    for old, new in nonempty(changes):
        assert old in text
        with pytest.raises(te.ExprError):
            dag_from_foreign_json(json.loads(text.replace(old, new)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_check_lets_rounding_pass_and_nothing_else(dtype: str) -> None:
    steps = {"float16": 20, "bfloat16": 8}.get(dtype, 300)  # a step of a half may lose as much as a term has
    x = te.placeholder((2, steps), dtype, "x")
    y = te.scan((2, steps), lambda before, i, t: before + x[i, t], dtype, "y")
    dag = te.ComputeDAG([x, y])
    a = np.random.default_rng(3).uniform(0.5, 1, (2, steps)).astype(dtype)
    right = accepted_values(dag, {x: a})[y]
    got = np.zeros(y.shape, dtype)
    interp.run(lower(dag.init_state, [x, y]), [a, got])
    assert not mismatch(got, right)
    missed = got.copy()
    missed[1, steps // 2 :] -= a[1, steps // 2]
    for wrong in (missed, np.full_like(got, np.nan), np.zeros_like(got), np.roll(got, 1, 1)):
        assert mismatch(wrong, right)


@GCC
def test_a_search_tunes_what_is_around_a_scan(tmp_path: Any) -> None:
    x, _, z = means()
    for target in ("c",):
        task = ansor.SearchTask(compute_dag=te.ComputeDAG([x, z]), target=target)
        log = tmp_path / f"{target}.json"
        options = ansor.TuningOptions(num_measure_trials=8, measure_callbacks=[ansor.RecordToFile(str(log))], verbose=0)
        task.tune(options)
        found = list(ansor.RecordReader(str(log)))
        assert found and all(result.error_no == 0 for _, result in nonempty(found))
        ansor.SearchTask(compute_dag=te.ComputeDAG([x, z]), target=target).apply_best(str(log))
