"""What the compiler and its programs refuse, each in one sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from te_lite import Schedule, Tensor
from te_lite.errors import ExprError
from te_lite.expr.expr import if_then_else, logical_and
from tests.vta_sim.packed import Conv
from vta_sim import QueueError
from vta_sim.compiler import ACC, INP, compile_schedule
from vta_sim.compiler.module import Module, build
from vta_sim.core.errors import CompileError
from vta_sim.top import ConvKnobs, as_type, conv2d_packed, dense_packed, schedule_conv2d_packed

Elements = Callable[..., te.Expr]


def elementwise(
    f: Elements, shape: tuple[int, ...] = (4, 16), dtype: str = "int32", size: tuple[int, ...] = ()
) -> tuple[Schedule, list[Tensor]]:
    """out = int8(f(data)), computed in accumulators."""
    data = te.placeholder(shape, name="data", dtype=dtype)
    value = te.compute(size or shape, lambda *i: f(data, *i), name="value")
    out = as_type(value, "int8", "out")
    s = te.create_schedule(out)
    s.cache_read(data, ACC, [value])
    s[value].set_scope(ACC)
    outer = s[out].split(out.op.axis[0], nparts=1)[0]
    s[value].compute_at(s[out], outer)
    s[s.state.stages[1].op].compute_at(s[out], outer)
    return s, [data, out]


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda x, i, j: x[i, j] // 3, "the ALU divides by powers of two only, got divisor=3"),
        (lambda x, i, j: x[i, j] + 40000, "the constant must fit 16 bits, got constant=40000"),
        (lambda x, i, j: x[i, j] % 4, "is no chain of int32"),
        (lambda x, i, j: (x[i, j] + 1) * (x[i, j] + 2), "one operand of each operation must be accumulators as they"),
        (lambda x, i, j: x[i, j] * x[i, j] * x[i, j], "the result must take the place of an operand"),
        (lambda x, i, j: x[3 - i, j] + 1, "the result must take the place of an operand of the same shape"),
        (lambda x, i, j: x[i, j] - x[i, j], "is no chain of int32"),
        (lambda x, i, j: x[i // 2, j] + 1, "index `.*`: must be a sum of multiples of loop variables"),
    ],
)
def test_values(f: Elements, reason: str) -> None:
    s, tensors = elementwise(f)
    with pytest.raises((CompileError, te.ScheduleError), match=reason):
        compile_schedule(s, tensors)


def test_square_of_one_operand() -> None:
    """Both operands may be the accumulators that are overwritten, in the first operation."""
    s, tensors = elementwise(lambda x, i, j: x[i, j] * x[i, j] + 1)
    data = np.arange(-32, 32, dtype=np.int32).reshape(4, 16)
    out = np.zeros((4, 16), np.int8)
    build(s, tensors)(data, out)
    np.testing.assert_array_equal(out, (data * data + 1).astype(np.int8))


def copy(
    shape: tuple[int, ...], window: tuple[int, ...], f: Elements, scope: str = INP, dtype: str = "int8"
) -> tuple[Schedule, list[Tensor]]:
    """A program that begins with a copy into the chip; the rest of it does not matter."""
    data = te.placeholder(shape, name="data", dtype=dtype)
    tile = te.compute(window, lambda *i: f(data, *i), name="tile")
    out = te.compute(window, lambda *i: tile(*i), name="out")
    s = te.create_schedule(out)
    s[tile].set_scope(scope)
    s[tile].compute_at(s[out], s[out].split(out.op.axis[0], nparts=1)[0])
    return s, [data, out]


def inside(pad: int, x: Tensor, i: te.Expr, j: te.Expr, c: te.Expr) -> te.Expr:
    n, m, _ = x.shape
    return if_then_else(
        logical_and(i >= pad, i < n + pad, j >= pad, j < m + pad), x[i - pad, j - pad, c], te.const(0, x.dtype)
    )


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (copy((3, 5), (3, 5), lambda x, i, j: x[i, j]), "a tile in INP must be whole elements of 16 numbers"),
        (copy((8, 4, 16), (4, 8, 16), lambda x, i, j, c: x[j, i, c]), "rows of consecutive elements, evenly spaced"),
        (copy((16, 16), (16, 16), lambda x, i, j: x[j, i]), "an element of 16 numbers must be whole"),
        (copy((4, 20), (4, 16), lambda x, i, j: x[i, j + 4]), "rows must begin at whole elements of 16 numbers"),
        (copy((4, 64), (4, 16), lambda x, i, j: x[i, j + 4]), "the copy must begin at a whole element of 16"),
        (copy((4, 16), (4, 16), lambda x, i, j: x[i, j], dtype="int32"), "inputs and weights must be int8"),
        (copy((4, 16), (4, 16), lambda x, i, j: x[i, j], ACC, "float32"), "loaded from int8 or int32"),
        (copy((4, 16), (4, 16), lambda x, i, j: x[i, j] + x[i, j]), "computes nothing: what it copies, or 0"),
        (copy((4, 5, 16), (40, 41, 16), lambda x, *i: inside(18, x, *i)), "padding must be at most 15"),
        (
            copy((4, 16), (4, 16), lambda x, i, j: if_then_else(i + j < 9, x[i, j], te.const(0, "int8"))),
            "padding must fall on rows or columns",
        ),
        (copy((5000, 16), (5000, 16), lambda x, i, j: x[i, j]), "must fit the 2048 elements of INP"),
    ],
)
def test_copies(made: tuple[Schedule, list[Tensor]], reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        compile_schedule(*made)


def test_stores() -> None:
    """Only accumulators leave the chip, as int8."""
    made = copy((4, 16), (4, 16), lambda x, i, j: x[i, j])
    with pytest.raises(CompileError, match=r"only accumulators are stored, and only as int8, got scope='local.inp"):
        compile_schedule(*made)
    made = copy((4, 16), (4, 16), lambda x, i, j: x[i, j], ACC, "int32")
    with pytest.raises(CompileError, match=r"only accumulators are stored, and only as int8, got .* dtype='int32'"):
        compile_schedule(*made)


def conv_schedule(change: Callable[[Schedule, Tensor, Tensor], object]) -> tuple[Schedule, list[Tensor]]:
    """A valid schedule, then changed."""
    tensors = Conv(1, 4, 4, 2, 2, (3, 3), (1, 1), (1, 1)).requantized()
    s = schedule_conv2d_packed(ConvKnobs(1, 4, 4, 1, 2), tensors[-1])
    conv = next(op.output() for op in s.state.ops if op.name == "conv2d")
    change(s, conv, tensors[-1])
    return s, tensors


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s, conv, out: s[conv].set_scope("local"), "the storage must be one of local.inp_buffer"),
        (lambda s, conv, out: s[out].vectorize(s[out].leaf_iter_vars[-1]), "others must be plain"),
        (lambda s, conv, out: s[conv].tensorize(s[conv].leaf_iter_vars[-4]), r"one product of .*, of extents \[16\]"),
        (lambda s, conv, out: s[conv].reorder(*s[conv].leaf_iter_vars[::-1]), "must be whole elements of 16 numbers"),
        (lambda s, conv, out: s[out].split(s[out].leaf_iter_vars[-4], factor=3), "tiles must divide their loops"),
        (lambda s, conv, out: s[out].bind(s[out].leaf_iter_vars[-4], te.thread_axis("cthread")), "outermost"),
    ],
)
def test_schedules(change: Callable[[Schedule, Tensor, Tensor], object], reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        compile_schedule(*conv_schedule(change))


def test_arrays_that_do_not_fit() -> None:
    tensors = Conv(1, 4, 4, 2, 2, (3, 3), (1, 1), (1, 1)).requantized()
    module: Module = build(schedule_conv2d_packed(ConvKnobs(1, 4, 4), tensors[-1]), tensors)
    arrays = [np.zeros(t.shape, np.int8) for t in tensors]
    with pytest.raises(QueueError, match="module: 3 arrays are needed, got 2"):
        module(*arrays[:2])
    with pytest.raises(QueueError, match=r"weights: must be int8 \[2, 2, 3, 3, 16, 16\], got dtype='int8' shape="):
        module(arrays[0], arrays[0], arrays[2])
    with pytest.raises(QueueError, match=r"data: must be int8 .*, got dtype='float32'"):
        module(arrays[0].astype(np.float32), *arrays[1:])


def test_convolutions_that_are_none() -> None:
    data = te.placeholder((1, 2, 8, 8, 1, 16), name="data", dtype="int8")
    weights = te.placeholder((2, 2, 3, 3, 16, 16), name="weights", dtype="int8")
    for change, reason in (
        ({"layout": "NCHW"}, "the layout of this data is NCHW1n16c, got layout='NCHW'"),
        ({"dilation": (2, 1)}, "there is no dilation"),
        ({"padding": (1, 1, 0, 1)}, "padding must be the same on both sides"),
        ({"out_dtype": "int8"}, "int8 by int8 gives int32"),
        ({"padding": (0, 0), "data": te.placeholder((1, 2, 2, 8, 1, 16), dtype="int8")}, "the kernel must fit"),
        ({"data": te.placeholder((1, 3, 8, 8, 1, 16), dtype="int8")}, "the input channels of data and weights"),
        ({"data": te.placeholder((1, 2, 8, 8), dtype="int8")}, "data and weights have six dimensions"),
    ):
        given = {"data": data, "kernel": weights, "strides": (1, 1), "padding": (1, 1), **change}
        with pytest.raises(ExprError, match=reason):
            conv2d_packed(**given)  # type: ignore[arg-type]
    dense = te.placeholder((1, 2, 1, 16), dtype="int8")
    with pytest.raises(ExprError, match="the input channels of data and weights must agree"):
        dense_packed(dense, te.placeholder((1, 3, 16, 16), dtype="int8"))
    with pytest.raises(ExprError, match="int8 by int8 gives int32"):
        dense_packed(te.placeholder((1, 2, 1, 16)), te.placeholder((1, 2, 16, 16), dtype="int8"))
    conv = conv2d_packed(data, weights, (1, 1), (1, 1))
    with pytest.raises(CompileError, match="an operator after the product must be element-wise"):
        halves = te.compute((1, 2, 4, 8, 1, 16), lambda n, c, i, *r: conv(n, c, i * 2, *r).astype("int8"), name="half")
        schedule_conv2d_packed(ConvKnobs(), halves)
    with pytest.raises(CompileError, match="exactly one operator must be tagged conv2d_dense"):
        schedule_conv2d_packed(ConvKnobs(), as_type(te.placeholder((1, 1), dtype="int32"), "int8"))
