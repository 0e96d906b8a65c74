"""Products on tensor cores whose rows are the pixels of all images: where there are such sketches, and that they are
right for windows, strides, dilation, images and channels of any size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor.analytical import machine_of, seconds
from ansor.core.target.target import TF32
from ansor.space.programs import programs
from ansor.space.spaces import home, space_of
from ansor_ext.analysis.product_roles import joinable
from ansor_ext.axes.steps import JoinAxes
from codegen_cuda import emit
from te_lite import ComputeDAG, Tensor, topi
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import State
from te_lite.schedule.step import to_json
from tests.amount import examples
from tests.ansor_ext.tensor_core.test_tensor_core_rule import (
    HARDWARE,
    TARGET,
    Checker,
    drawn,
    emulated,
    every_row,
    in_groups,
    linear,
    matmul,
    sketches,
    spaces,
)


def conv(
    shape: tuple[int, int, int, int], filters: int, window: tuple[int, int], dtype: str, stride: int = 1,
    dilation: int = 1, pad: bool = True, tail: str = "relu",
) -> list[Tensor]:  # fmt: skip
    """With what is elementwise behind: relu, a bias and a residual, or nothing."""
    x = te.placeholder(shape, name="X", dtype=dtype)
    w = te.placeholder((*window, shape[-1], filters), name="W", dtype=dtype)
    padding = tuple([(k - 1) * dilation // 2 if pad else 0 for k in window])
    y = topi.nn.conv2d_nhwc(x, w, stride, padding, dilation, out_dtype="float32")
    if tail == "residual":
        r, b = te.placeholder(tuple(y.shape), name="R"), te.placeholder((filters,), name="B")
        return [x, w, r, b, topi.nn.relu(y + r + b)]
    return [x, w, topi.nn.relu(y) if tail == "relu" else y]


def tokens(batch: int, count: int, out: int, terms: int, dtype: str) -> list[Tensor]:
    """A linear layer of a batch of texts."""
    x, w = te.placeholder((batch, count, terms), name="X", dtype=dtype), te.placeholder((out, terms), "float16", "W")
    k = te.reduce_axis((0, terms), "k")
    return [x, w, te.compute((batch, count, out), lambda b, i, j: te.sum(
        x[b, i, k].astype("float32") * w[j, k].astype("float32"), axis=k), name="Y")]  # fmt: skip


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "7 x 7, groups": lambda: conv((3, 7, 7, 64), 56, (3, 3), "float16"),
    "13 x 13, every second": lambda: conv((3, 13, 13, 24), 40, (3, 3), "float32", stride=2),
    "one image of 14 x 14, split sums, a residual": lambda: conv(
        (1, 14, 14, 64), 40, (3, 3), "float32", tail="residual"),
    "dilation, bfloat16": lambda: conv((2, 9, 11, 32), 40, (3, 3), "bfloat16", dilation=2),
    "dilation and every second, a residual": lambda: conv(
        (2, 15, 11, 32), 40, (3, 3), "float16", 2, 3, tail="residual"),
    "windows of 1 x 7, groups": lambda: conv((3, 5, 17, 64), 53, (1, 7), "float16"),
    "windows of 7 x 1, groups": lambda: conv((3, 17, 5, 64), 53, (7, 1), "float32", tail="sums"),
    "channels that divide nothing": lambda: conv((3, 9, 9, 19), 27, (3, 3), "float16"),
    "channels that divide nothing, groups": lambda: conv((1, 9, 13, 67), 51, (3, 3), "float32"),
    "no padding": lambda: conv((2, 12, 10, 64), 32, (3, 3), "float32", pad=False, tail="sums"),
    "1 x 1, groups": lambda: conv((4, 7, 7, 64), 56, (1, 1), "float32"),
    "1 x 1, every second": lambda: conv((4, 13, 13, 40), 48, (1, 1), "float16", stride=2),
    "images of 4 x 4": lambda: conv((8, 4, 4, 32), 24, (3, 3), "float16"),
    "tokens of several texts, groups": lambda: tokens(5, 14, 56, 64, "float16"),
}  # fmt: skip


def is_joined(sketch: State) -> bool:
    return any(isinstance(step, JoinAxes) for step in sketch.steps)


def agrees(name: str, n: int, seed: int, on_emulator: bool) -> None:
    checker = Checker(ComputeDAG(CASES[name]()), TF32)
    states = [s for s in drawn(checker.dag, n, seed) if is_joined(s)]
    assert states and any(map(in_groups, states)) == ("groups" in name)
    for state in states:
        func = te.lower(state, checker.dag.tensors)
        wrong = checker.emulated(func) if on_emulator else checker.interpreted(func)
        assert not wrong, (wrong, [to_json(step) for step in state.steps])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["channels that divide nothing", "1 x 1, groups"])
@pytest.mark.one_in(2)
def test_programs_compute_the_convolution(name: str) -> None:
    agrees(name, 1, 0, on_emulator=False)


@emulated
@pytest.mark.parametrize("name", ["images of 4 x 4", "tokens of several texts, groups"])
@pytest.mark.one_in(2)
def test_kernels_compute_the_convolution(name: str) -> None:
    agrees(name, 1, 1, on_emulator=True)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(7)
def test_many_kernels_compute_the_convolution(name: str) -> None:
    agrees(name, 1, 2, on_emulator=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_programs_compute_the_convolution(name: str) -> None:
    agrees(name, 5, 3, on_emulator=False)


@pytest.mark.slow
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(4, 40), st.integers(4, 40), st.sampled_from([16, 19, 64, 96])),
    filters=st.sampled_from([24, 49, 64, 200]),
    window=st.sampled_from([(1, 1), (3, 3), (1, 7), (5, 1), (5, 5)]),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pad=st.booleans(),
    seed=st.integers(0, 2**16),
)
@examples(60)
def test_programs_of_any_convolution_are_proven(
    shape: tuple[int, int, int, int], filters: int, window: tuple[int, int], stride: int, dilation: int, pad: bool,
    seed: int,
) -> None:  # fmt: skip
    """`te.lower` and `emit` refuse what is not."""
    if not pad and any((k - 1) * dilation >= size for k, size in zip(window, shape[1:3], strict=True)):
        return
    dag = ComputeDAG(conv(shape, filters, window, "float16", stride, dilation, pad, "residual"))
    for state in [s for s in drawn(dag, 1, seed) if is_joined(s)]:
        emit(te.lower(state, dag.tensors))


@pytest.mark.parametrize(
    "tensors, axes",
    [(conv((32, 14, 14, 32), 48, (3, 3), "float16"), (0, 3)), (conv((1, 14, 14, 32), 48, (3, 3), "float16"), (1, 2)),
     (conv((2, 4, 64, 32), 48, (1, 1), "float16"), None), (linear(197, 64, 64, "float16"), None),
     (tokens(2, 14, 64, 64, "float16"), (0, 2)), (matmul(64, 64, 64, "float32"), None)],
)  # fmt: skip
def test_pixels_are_joined_where_lines_do_not_fill_tiles(
    tensors: list[Tensor], axes: tuple[int, int] | None
) -> None:  # fmt: skip
    dag = ComputeDAG(tensors)
    (k,) = [k for k, op in enumerate(dag.ops) if op.reduce_axis]
    assert joinable(dag.init_state, k) == axes
    assert any(map(is_joined, sketches(dag))) == (axes is not None)


def test_lines_of_four_points_are_no_rows_by_themselves() -> None:
    found = sketches(ComputeDAG(conv((8, 4, 4, 32), 24, (3, 3), "float16")))
    assert found and all(map(is_joined, found))


def test_split_sums_are_joined_too() -> None:
    found = [s for s in sketches(ComputeDAG(conv((1, 7, 7, 256), 64, (3, 3), "float16"))) if is_joined(s)]
    assert any(isinstance(step, RFactor) for s in found for step in s.steps)
    assert any(in_groups(s) for s in found)


def test_estimates_prefer_them_for_short_lines() -> None:
    """Of 32 images of 14 x 14, by a third at least."""
    best: dict[bool, float] = {}
    for space in spaces(ComputeDAG(conv((32, 14, 14, 256), 256, (3, 3), "float16"))):
        found = seconds(programs(home(space), every_row(space), TARGET, HARDWARE), machine_of(TARGET, HARDWARE))
        joined = is_joined(space_of(space.sketch, TARGET, HARDWARE).sketch)
        best[joined] = min(best.get(joined, 1.0), float(found.min()))
    assert best[True] < best[False] / 1.25
