"""Several reductions of one compute are outputs of one reducer, which reads its operands alone; all else is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import te_lite as te
from te_lite.errors import ExprError
from te_lite.meaning.interp import run

A, B = te.placeholder((4, 6), name="A"), te.placeholder((4, 6), name="B")
K, M = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "m")


def best(i: Any) -> Any:
    return te.argmax((K.astype("int32"), A[i, K]), axis=K)


TWO: dict[str, Callable[[Any], Any]] = {
    "a sum and a maximum": lambda i: (te.sum(A[i, K], axis=K), te.max(A[i, K], axis=K)),
    "sums of two tensors": lambda i: (te.sum(A[i, K], axis=K), te.sum(B[i, K], axis=K)),
    "one sum twice": lambda i: (te.sum(A[i, K], axis=K), te.sum(A[i, K], axis=K)),
    "two axes": lambda i: (te.sum(A[i, K], axis=K), te.sum(A[i, M], axis=M)),
    "two conditions": lambda i: (te.sum(A[i, K], axis=K, where=K < 3), te.sum(A[i, K], axis=K)),
    "outputs exchanged": lambda i: best(i)[::-1],
    "two reducers": lambda i: (best(i)[0], te.argmin((K.astype("int32"), A[i, K]), axis=K)[1]),
    "one output twice": lambda i: (best(i)[0], best(i)[0]),
    "of a stored dtype": lambda i: (te.sum(A[i, K].astype("bfloat16"), axis=K), te.max(A[i, K], axis=K)),
}


@pytest.mark.parametrize("name", TWO)
def test_what_is_not_one_reducer_is_refused(name: str) -> None:
    with pytest.raises(ExprError, match=r"C(\.sum)?: several reductions of one compute are the outputs of one reducer"):
        te.compute((4,), TWO[name], "C")


@pytest.mark.parametrize("reads", ["an axis", "a tensor", "the axis that is reduced"])
@pytest.mark.parametrize("where", ["result", "identity"])
def test_a_reducer_that_reads_more_than_its_operands_is_refused(reads: str, where: str) -> None:
    def reduced(i: Any) -> Any:
        other = {"an axis": i.astype("float32"), "a tensor": B[0, 0], "the axis that is reduced": K.astype("float32")}
        one, zero = te.const(1.0, "float32"), te.const(0.0, "float32")
        by, start = (other[reads], zero) if where == "result" else (one, other[reads])
        return te.comm_reducer(lambda x, y: x + y * by, lambda t: start, "weighted")(A[i, K], axis=K)

    with pytest.raises(ExprError, match="C: a reducer combines its two operands, and reads nothing else"):
        te.compute((4,), reduced, "C")


def test_the_outputs_of_one_reducer_are_right() -> None:
    position, value = te.compute((4,), best, "C")
    x = np.random.default_rng(0).permutation(24).reshape(4, 6).astype("float32")
    got = np.full(4, -1, "int32"), np.full(4, np.nan, "float32")
    tensors = (A, position, value)
    run(te.lower(te.ComputeDAG(tensors).init_state, tensors), [x, *got])
    np.testing.assert_array_equal(got, (x.argmax(1), x.max(1)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_one_output_of_a_reducer_of_stored_dtypes(dtype: str) -> None:
    """Each is a tensor by itself; all together they are what a tuple of them is."""
    pair = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda s, t: (te.const(0.0, s), te.const(1.0, t)), "pair"
    )
    a, k = te.placeholder((3, 4), dtype, "a"), te.reduce_axis((0, 4), "k")
    x = np.array([[1, 2, 3, 4], [0.5, -1, 2, 2], [4, 4, 4, 4]], dtype)
    sums, products = np.array([10, 3.5, 16], dtype), np.array([24, -2, 256], dtype)
    for which, want in enumerate((sums, products)):
        out = te.compute((3,), lambda i, which=which: pair((a[i, k], a[i, k]), axis=k)[which], name="out")
        assert isinstance(out, te.Tensor) and out.dtype == dtype
        got = np.zeros(3, dtype)
        run(te.lower(te.ComputeDAG([a, out]).init_state, [a, out]), [x, got])
        np.testing.assert_array_equal(got.astype("float32"), want.astype("float32"))
