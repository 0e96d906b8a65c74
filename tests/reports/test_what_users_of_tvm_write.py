"""What people who know TVM write: it works, or one sentence says what to write instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from te_lite import topi
from te_lite.meaning.interp import run

A, N = te.placeholder((4, 6), name="A"), te.placeholder((4, 6), "int32", name="N")
K = te.reduce_axis((0, 6), "k")
C = te.compute((4, 6), lambda i, j: A[i, j] + 1.0, "C")


@ansor.register_workload
def without_arguments() -> list[te.Tensor]:
    return [A, C]


def of(body: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: te.compute((4, 6), body, "out")


def unnamed() -> te.Tensor:
    a, b = te.reduce_axis((0, 4)), te.reduce_axis((0, 6))
    return te.compute((2,), lambda i: te.sum(A[a, b], axis=[a, b]), "out")


def cached_late() -> Any:
    total = te.compute((4,), lambda i: te.sum(A[i, K], axis=K), "total")
    s = te.create_schedule(total.op)
    s[total].split(total.op.axis[0], 2)
    return s.cache_write(total, "local")


def with_a_target() -> Any:
    with ansor.Target("cuda"):
        return None


INSTEAD: dict[str, tuple[Callable[[], Any], str]] = {
    "A[i][k]": (of(lambda i, j: A[i][j]), r"2 indices are needed, as in A\[i, j\]"),
    "unnamed axes": (unnamed, r"name each one, as in te.reduce_axis\(\(0, n\), 'k'\)"),
    "x >> 1": (of(lambda i, j: N[i, j] >> 1), r"write x // 2\*\*n"),
    "x & 1": (of(lambda i, j: N[i, j] & 1), r"te.call\('bit_and', x, y\)"),
    "~x": (of(lambda i, j: ~N[i, j]), "-1 - x of a signed integer"),
    "tensor.astype": (lambda: A.astype("float16"), r"write topi.cast\(x, dtype\)"),
    "cache_write after a split": (cached_late, "it must come before other steps"),
    "s.normalize": (lambda: te.create_schedule(C.op).normalize(), "s has no 'normalize'; it has"),
    "te.var": (lambda: te.var("n"), r"write te.size_var\(name, least, most\)"),
    "te.div": (lambda: te.div(A[0, 0], 2.0), r"write a / b of floats, te.truncdiv\(a, b\) of integers"),
    "te.asin": (lambda: te.asin(A[0, 0]), r"write te.call\(name, x\), as in te.call\('acos', x\)"),
    "te.fmod": (lambda: te.fmod(A[0, 0], 2.0), r"write topi.mod\(a, b\) of tensors of floats"),
    "te.truncmod": (lambda: te.truncmod(N[0, 0], 2), r"write a - te.truncdiv\(a, b\) \* b"),
    "te.multiply": (lambda: te.multiply(A[0, 0], 2.0), r"write a \+ b, a - b, a \* b"),
    "te.scan": (lambda: te.scan(A, A, A), r"a shape is needed, then lambda before, i: before \+ x\[i\]"),
    "te.extern": (lambda: te.extern(), "is no operation here"),
    "ComputeDAG(schedule)": (lambda: ansor.ComputeDAG(te.create_schedule(C.op)), "a list of tensors is needed"),
    "with Target": (with_a_target, r"give it to what needs it, as in SearchTask\(func, args, target=target\)"),
    "another host": (lambda: ansor.Target("cuda", host="cuda"), "the host of every target is the processor"),
}


@pytest.mark.parametrize("name", INSTEAD)
def test_a_sentence_says_what_to_write(name: str) -> None:
    write, sentence = INSTEAD[name]
    with pytest.raises((te.TeError, AttributeError, TypeError), match=sentence):
        write()


WORKS: dict[str, Callable[[], bool]] = {
    "axis.dom.extent": lambda: (C.op.axis[0].dom.extent, K.dom.extent, K.dom.min) == (4, 6, 0),
    "axis.var": lambda: C.op.axis[0].var is C.op.axis[0],
    "op.input_tensors()": lambda: C.op.input_tensors() == (A,),
    "SearchTask(func)": lambda: ansor.SearchTask(without_arguments, target="c").compute_dag.tensors == (A, C),
    "Target(host=...)": lambda: ansor.Target("llvm", host="llvm") == ansor.Target("llvm"),
    "pickled DAG": lambda: str(pickle.loads(pickle.dumps(ansor.ComputeDAG([A, C])))) == str(ansor.ComputeDAG([A, C])),
    "copied DAG": lambda: str(copy.deepcopy(ansor.ComputeDAG([A, C]))) == str(ansor.ComputeDAG([A, C])),
}


@pytest.mark.parametrize("name", WORKS)
def test_it_works(name: str) -> None:
    assert WORKS[name]()


def test_pickled_tasks_and_states_replay() -> None:
    """TenSet keeps tasks so; the product itself never reads a pickle."""
    task = pickle.loads(pickle.dumps(ansor.SearchTask(without_arguments, target="c")))
    assert task.workload_key == ansor.SearchTask(without_arguments, target="c").workload_key
    s = te.create_schedule(C.op)
    s[C].split(C.op.axis[1], factor=4)
    state = pickle.loads(pickle.dumps(s.state))
    assert state.steps == s.state.steps and str(te.lower(state)) == str(te.lower(s.state))


def test_a_pragma_marks_a_loop() -> None:
    s = te.create_schedule(C.op)
    s[C].pragma(s[C].op.axis[1], "vectorize")
    x, got = np.ones((4, 6), "float32"), np.full((4, 6), np.nan, "float32")
    run(te.lower(s, [A, C]), [x, got])
    np.testing.assert_array_equal(got, x + 1)


def test_every_injective_stage_is_inlined_by_hand() -> None:
    """`AutoInlineInjective`, as docs/differs_from_tvm.md writes it."""
    out = topi.exp(topi.nn.relu(C))
    s = te.create_schedule(out.op)
    for stage in s.stages:
        if stage.op is not out.op and stage.op.axis and not stage.op.reduce_axis:
            stage.compute_inline()
    assert str(te.lower(s, [A, out])).count("exp") == 1 and "alloc" not in str(te.lower(s, [A, out]))
