"""Strides folded into channels: values, where it is done, and that tensor cores then compute the convolution."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from ansor import extract_tasks
from ansor.core.target.target import Target
from ansor_ext.tensor_core.product_roles import roles_of
from relay_lite import reference, transform
from relay_lite.compiler.group_programs import choose_program, wanted
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Constant, Function, FunctionCall
from relay_lite.ir.visit import post_order
from relay_lite.transform.alter_op_layout import folds_stride
from relay_lite.transform.fold_stride import with_folded_stride
from te_lite.verify.verify_points import MOST_POINTS
from tests.relay_lite.pass_graphs import calls

SHAPES = [  # size, kernel, strides, padding, channels
    ((14, 14), (7, 7), (2, 2), (3, 3, 3, 3), 3),
    ((13, 17), (3, 3), (2, 2), (1, 1, 1, 1), 3),
    ((15, 12), (3, 5), (2, 1), (0, 2, 1, 0), 4),
    ((16, 24), (8, 8), (8, 8), (0, 0, 0, 0), 3),
    ((19, 21), (4, 2), (3, 4), (2, 0, 0, 1), 1),
    ((11, 9), (2, 2), (4, 3), (0, 1, 0, 1), 5),
    ((9, 9), (1, 1), (2, 2), (0, 0, 0, 0), 2),
]


def conv(size: tuple[int, ...], weight: np.ndarray, strides: tuple[int, ...], padding: tuple[int, ...]) -> Call:
    data = var("data", (2, *size, weight.shape[2]), str(weight.dtype))
    return call("nn.conv2d", data, Constant(weight), strides=strides, padding=padding, channels=weight.shape[3],
                kernel_size=weight.shape[:2], data_layout="NHWC", kernel_layout="HWIO")  # fmt: skip


def plain(x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], padding: tuple[int, ...]) -> np.ndarray:
    """The convolution by its definition, a point of the window after the other."""
    top, left, bottom, right = padding
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0))).astype("float64")
    h, v = [(n - k) // s + 1 for n, k, s in zip(x.shape[1:3], w.shape, strides, strict=False)]
    out = np.zeros((len(x), h, v, w.shape[3]))
    for i, j in np.ndindex(w.shape[:2]):
        rows, columns = (
            slice(i, i + (h - 1) * strides[0] + 1, strides[0]),
            slice(j, j + (v - 1) * strides[1] + 1, strides[1]),
        )
        out += x[:, rows, columns] @ w[i, j].astype("float64")
    return out


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("size", "kernel", "strides", "padding", "channels"), SHAPES)
def test_the_values_are_the_same(
    size: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], padding: tuple[int, ...], channels: int,
    dtype: str,
) -> None:  # fmt: skip
    """Of small integers, whose sums are exact; the channels of the new data are 32 bytes or more in units of 16."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-2, 3, (*kernel, channels, 5)).astype(dtype)
    node = conv(size, weight, strides, padding)
    folded = with_folded_stride(node)
    assert folded.type == node.type and folded.attrs["strides"] == (1, 1)
    nbytes = folded.args[0].shape[3] * np.dtype(dtype).itemsize
    assert nbytes >= 32 and nbytes % 16 == 0
    data = node.args[0]
    x = rng.integers(-2, 3, data.shape).astype(dtype)
    got = reference.run(Function((data,), folded), {"data": x})
    assert np.array_equal(got, plain(x, weight, strides, padding))


def test_where_it_is_done() -> None:
    weight = np.ones((3, 3, 3, 8), "float16")
    node = conv((8, 8), weight, (2, 2), (1, 1, 1, 1))
    assert folds_stride(node, "cuda", "strict") and not folds_stride(node, "c", "strict")
    floats = conv((8, 8), weight.astype("float32"), (2, 2), (1, 1, 1, 1))
    assert [folds_stride(floats, "cuda", p) for p in ("strict", "tf32", "fp32x3")] == [False, True, True]
    for other in (
        conv((8, 8), weight, (1, 1), (1, 1, 1, 1)),
        conv((8, 8), np.ones((3, 3, 8, 8), "float16"), (2, 2), (1, 1, 1, 1)),
        Call(node.op, node.args, {**node.attrs, "dilation": (2, 2)}),
        Call(node.op, (node.args[0], var("weight", weight.shape, "float16")), node.attrs),
    ):
        assert not folds_stride(other, "cuda", "strict")


def test_strict_networks_keep_their_convolutions() -> None:
    node = conv((8, 8), np.ones((3, 3, 3, 8), "float32"), (2, 2), (1, 1, 1, 1))
    graph = Function((node.args[0],), node)
    (kept,) = calls(transform.AlterOpLayout("cuda")(graph), "nn.conv2d")
    assert kept.attrs == node.attrs and kept.args[0].shape == node.args[0].shape


@pytest.mark.parametrize(("dtype", "target"), [("float16", "cuda"), ("float32", "cuda -precision=tf32")])
def test_tensor_cores_multiply_it(dtype: str, target: str) -> None:
    """One kernel makes the data of a picture in channels first, the next one is a product; the weight is a constant."""
    picture = var("data", (1, 3, 28, 28), "float32")
    x = call("cast", call("transpose", picture, axes=(0, 2, 3, 1)), dtype=dtype)
    weight = np.random.default_rng(0).standard_normal((7, 7, 3, 16)).astype(dtype)
    node = conv((28, 28), weight, (2, 2), (3, 3, 3, 3))
    graph = Function((picture,), Call(node.op, (x, node.args[1]), {**node.attrs, "out_dtype": "float32"}))
    fused = optimize(graph, {}, target)
    kernels = [n for n in post_order(fused.body) if isinstance(n, FunctionCall)]
    assert len(kernels) == 2 and isinstance(kernels[1].args[1], Constant)
    (task,), _ = extract_tasks(graph, {}, target)
    state = task.compute_dag.init_state
    found = [roles_of(Target.of(target), state, k) for k in range(len(state.stages))]
    assert [r is not None for r in found].count(True) == 1
    rng = np.random.default_rng(1)
    inputs = {"data": rng.standard_normal((1, 3, 28, 28)).astype("float32")}
    np.testing.assert_allclose(reference.run(fused, inputs), reference.run(graph, inputs), rtol=1e-4, atol=1e-4)


def test_what_makes_the_data_of_many_pictures_is_proven() -> None:
    """It has more elements than the verifier looks at, whose digits are those of the new data and of its blocks."""
    picture = var("data", (128, 3, 224, 224), "float32")
    x = call("cast", call("transpose", picture, axes=(0, 2, 3, 1)), dtype="float16")
    node = conv((224, 224), np.ones((7, 7, 3, 8), "float16"), (2, 2), (3, 3, 3, 3))
    moved = with_folded_stride(Call(node.op, (x, node.args[1]), node.attrs)).args[0]
    need = wanted(Function((picture,), moved), Target("cuda"))
    accepted: list[int] = []
    choose_program(need, Target("cuda"), lambda func: accepted.append(1))
    assert accepted and prod(moved.shape) > MOST_POINTS
