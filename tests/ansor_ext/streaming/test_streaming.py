"""Nests for large tensors that are read about once: right at any extent, and with the accesses they are made for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cost_model.prior import shipped_model_of
from ansor.policy.default_schedule import default_states, draws
from ansor.sketch.plain import plain_state
from ansor_ext.streaming import streaming, window_nests
from ansor_ext.streaming.streaming import streaming_state, streams
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.expr.expr import BufferLoad
from te_lite.expr.visit import walk
from te_lite.extensions import using
from te_lite.loops.stmt import Store, exprs_of, stmts_of
from te_lite.schedule.state import ATTACHED, INLINED, State
from tests.oracle import Oracle
from tests.workloads import argmax, conv2d_nchw, depthwise, matmul, max_pool, row_stats, softmax

SEED = 5
Make = Callable[..., list[te.Tensor]]
Fold = Callable[..., te.Expr]
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def emulated(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


def task_of(tensors: list[te.Tensor]) -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=tensors, target="cuda -arch=sm_90")


def permuted(shape: tuple[int, ...], order: tuple[int, ...], dtype: str = "float32") -> list[te.Tensor]:
    """y of axes `order` of x, plus a number for each place of its last axis."""
    x = te.placeholder(shape, dtype, "x")
    out = tuple([shape[a] for a in order])
    b = te.placeholder(out[-1:], dtype, "b")
    back = [order.index(a) for a in range(len(order))]
    return [x, b, te.compute(out, lambda *i: x[tuple([i[p] for p in back])] + b[i[-1]], name="y")]


def padded_turn(n: int, m: int) -> list[te.Tensor]:
    x = te.placeholder((m, n), name="x")
    inside = te.compute(
        (n + 2, m), lambda i, j: te.if_then_else(te.all(i >= 1, i <= n), x[j, i - 1], te.const(0.0)), name="pad"
    )
    return [x, inside]


def shuffled(n: int, c: int, h: int) -> list[te.Tensor]:
    """Pixels from channels that come last: (n, h, h, 4 c) to (n, c, 2 h, 2 h)."""
    x = te.placeholder((n, h, h, 4 * c), name="x")
    y = te.compute(
        (n, c, 2 * h, 2 * h),
        lambda b, k, i, j: x[b, i // 2, j // 2, (i % 2 * 2 + j % 2) * c + k],
        name="y",
    )
    return [x, y]


def summed(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[te.Tensor]:
    """Sums of squares over `axes`, then their mean."""
    x = te.placeholder(shape, name="x")
    kept = [a for a in range(len(shape)) if a not in axes]
    terms = {a: te.reduce_axis((0, shape[a]), f"k{a}") for a in axes}
    out = tuple([shape[a] for a in kept]) or (1,)

    def read(*i: te.Expr) -> te.Expr:
        at = {**terms, **dict(zip(kept, i, strict=False))}
        return x[tuple([at[a] for a in range(len(shape))])]

    total = te.compute(out, lambda *i: te.sum(read(*i) * read(*i), axis=list(terms.values())), name="total")
    count = float(np.prod([shape[a] for a in axes]))
    return [x, te.compute(out, lambda *i: total[i] * (1.0 / count), name="mean")]


def pooled(shape: tuple[int, ...], window: int, stride: int, dilation: int) -> list[te.Tensor]:
    """Averages of windows over all axes but the first one or two, with a padding of 1."""
    x = te.placeholder(shape, name="x")
    lead = max(1, min(2, len(shape) - 2))
    out = [*shape[:lead], *[(n + 2 - dilation * (window - 1) - 1) // stride + 1 for n in shape[lead:]]]
    wide = [*shape[:lead], *[n + 2 for n in shape[lead:]]]

    def inside(*i: te.Expr) -> te.Expr:
        fits = [bound for j, n in zip(i[lead:], shape[lead:], strict=True) for bound in (j >= 1, j <= n)]
        return te.if_then_else(te.all(*fits), x[tuple([*i[:lead], *[j - 1 for j in i[lead:]]])], te.const(0.0))

    padded = te.compute(wide, inside, name="padded")
    terms = [te.reduce_axis((0, window), f"k{a}") for a in range(len(shape) - lead)]
    total = te.compute(
        out,
        lambda *i: te.sum(
            padded[tuple([*i[:lead], *[j * stride + k * dilation for j, k in zip(i[lead:], terms, strict=True)]])],
            axis=terms,
        ),
        name="total",
    )
    return [x, te.compute(out, lambda *i: total[i] * (1.0 / window ** len(terms)), name="average")]


def bare_windows(shape: tuple[int, ...], axes: tuple[int, ...], window: int, stride: int) -> list[te.Tensor]:
    """The largest elements of windows along `axes`, none of which leaves the tensor."""
    x = te.placeholder(shape, name="x")
    out = [(n - window) // stride + 1 if a in axes else n for a, n in enumerate(shape)]
    terms = {a: te.reduce_axis((0, window), f"k{a}") for a in axes}

    def largest(*i: te.Expr) -> te.Expr:
        at = [i[a] * stride + terms[a] if a in terms else i[a] for a in range(len(shape))]
        return te.max(x[tuple(at)], axis=list(terms.values()))

    return [x, te.compute(tuple(out), largest, name="largest")]


def weighed(shape: tuple[int, ...], window: int, stride: int, pad: int = 0, dtype: str = "float32") -> list[te.Tensor]:
    """Windows of each channel (axis 1) times weights of its own, and the larger one of that and 0."""
    x = te.placeholder(shape, dtype, "x")
    rank = len(shape) - 2
    w = te.placeholder((shape[1], *[window] * rank), dtype, "w")
    wide = te.topi.nn.pad(x, (0, 0, *[pad] * rank), (0, 0, *[pad] * rank), 0.0, name="wide")
    terms = [te.reduce_axis((0, window), f"k{a}") for a in range(rank)]
    out = [*shape[:2], *[(n + 2 * pad - window) // stride + 1 for n in shape[2:]]]

    def total(b: te.Expr, c: te.Expr, *i: te.Expr) -> te.Expr:
        at = [j * stride + k for j, k in zip(i, terms, strict=True)]
        return te.sum(wide[tuple([b, c, *at])] * w[tuple([c, *terms])], axis=terms)

    sums = te.compute(tuple(out), total, name="total")
    return [x, w, te.compute(tuple(out), lambda *i: te.maximum(sums[i], te.const(0.0, dtype)), name="y")]


def two_pools(shape: tuple[int, int, int]) -> list[te.Tensor]:
    """The largest elements and the sums of windows of the same padded tensor."""
    x = te.placeholder(shape, name="x")
    wide = te.topi.nn.pad(x, (0, 1, 1), (0, 1, 1), 0.0, name="wide")
    folds: list[te.Tensor] = []
    for fold in (te.max, te.sum):
        axes = [te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")]

        def window(c: te.Expr, i: te.Expr, j: te.Expr, fold: Fold = fold, axes: Sequence[te.IterVar] = axes) -> te.Expr:
            return fold(wide[c, i + axes[0], j + axes[1]], axis=axes)

        folds.append(te.compute(shape, window, name=f"fold{len(folds)}"))
    return [x, *folds]


def least_place(shape: tuple[int, int, int]) -> list[te.Tensor]:
    """Where along the middle axis the smallest element is."""
    x = te.placeholder(shape, name="x")
    return [x, te.topi.argmin(x, 1)]


def scalar(terms: int, readers: int = 0) -> list[te.Tensor]:
    """A sum without axes, and a tensor that reads it."""
    x, k = te.placeholder((terms,), name="x"), te.reduce_axis((0, terms), "k")
    total = te.compute((), lambda: te.sum(x[k], axis=k), name="total")
    if not readers:
        return [x, total]
    a = te.placeholder((readers,), name="a")
    return [x, a, te.compute((readers,), lambda i: a[i] * total[()], name="scaled")]


def turned_places(n: int) -> list[te.Tensor]:
    """Sums of windows of one element, with axes exchanged."""
    x = te.placeholder((n, n, 1, 3), name="x")
    k, r = te.reduce_axis((0, 1), "k"), te.reduce_axis((0, 3), "r")
    return [x, te.compute((n, n), lambda i, j: te.sum(x[j, i, k, r], axis=[k, r]), name="total")]


TASKS: dict[str, Callable[[], list[te.Tensor]]] = {
    "turn": lambda: permuted((40, 48), (1, 0)), "turn of primes": lambda: permuted((37, 41), (1, 0)),
    "channels last": lambda: permuted((2, 17, 5, 7), (0, 2, 3, 1)),
    "halves": lambda: permuted((9, 72), (1, 0), "float16"),
    "channels first": lambda: permuted((2, 5, 7, 32), (0, 3, 1, 2)),
    "straight": lambda: permuted((7, 11, 13), (0, 1, 2)),
    "all turned": lambda: permuted((6, 5, 8), (2, 1, 0)), "one row": lambda: permuted((1, 63), (1, 0)),
    "pad": lambda: padded_turn(30, 27), "shuffle": lambda: shuffled(1, 6, 5), "shuffle 8": lambda: shuffled(2, 8, 4),
    "rows": lambda: summed((6, 301), (1,)), "columns": lambda: summed((301, 35), (0,)),
    "all": lambda: summed((7, 13, 11), (0, 1, 2)), "middle": lambda: summed((3, 67, 40), (1,)),
    "outer": lambda: summed((9, 4, 5, 7), (0, 2, 3)), "short": lambda: summed((500, 3), (1,)),
    "warps": lambda: summed((50, 64), (1,)), "parts of columns": lambda: summed((1000, 3), (0,)),
    "max pool": lambda: max_pool(2, 13, 5), "average": lambda: pooled((2, 3, 11, 12), 3, 1, 1),
    "strided average": lambda: pooled((1, 4, 9, 10, 11), 3, 2, 3),
    "large windows": lambda: pooled((1, 2, 13, 14), 7, 1, 1),
    "overlap along two axes": lambda: pooled((1, 2, 8, 6, 9), 3, 1, 1),
    "overlap along two axes, stride 2": lambda: pooled((1, 2, 8, 11, 13), 3, 2, 1),
    "overlap along primes": lambda: pooled((1, 1, 7, 11, 5), 3, 1, 1),
    "channels last windows": lambda: bare_windows((2, 8, 9, 5), (1, 2), 3, 1),
    "bare windows": lambda: bare_windows((3, 9, 13), (1, 2), 2, 1),
    "windows of one axis": lambda: bare_windows((3, 9, 13), (1,), 4, 1),
    "windows side by side": lambda: bare_windows((2, 3, 21, 24), (2, 3), 7, 7),
    "windows with gaps between": lambda: bare_windows((2, 2, 31, 29), (2, 3), 6, 8),
    "padded windows side by side": lambda: pooled((1, 5, 19, 26), 7, 7, 1),
    "wide columns": lambda: summed((70, 128), (0,)), "narrower columns": lambda: summed((2, 33, 96), (1,)),
    "weighed windows": lambda: weighed((2, 3, 14, 13), 3, 1, 1), "of one axis": lambda: weighed((2, 3, 29), 5, 1),
    "weighed primes": lambda: weighed((1, 2, 13, 13), 3, 1), "strided": lambda: weighed((1, 3, 17, 11), 3, 2, 1),
    "weighed cubes": lambda: weighed((1, 2, 6, 8, 7), 3, 1, 1), "of many terms": lambda: weighed((1, 2, 17, 19), 7, 1),
    "two pools": lambda: two_pools((2, 8, 9)), "places of few terms": lambda: argmax(300, 5),
    "places in columns": lambda: least_place((2, 67, 64)), "places in odd columns": lambda: least_place((3, 37, 41)),
    "rows of windows": lambda: pooled((3, 40), 4, 1, 1),
    "few terms of a scalar": lambda: scalar(16), "a scalar that is read": lambda: scalar(16, 50),
    "many terms of a scalar": lambda: scalar(3000, 50), "windows of extent 1": lambda: turned_places(6),
    "argmax": lambda: argmax(5, 70), "softmax": lambda: softmax(4, 90), "statistics": lambda: row_stats(4, 90),
}  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements count as many, so that each kind of nest is made of them."""
    for name, value in (("LARGE", 1), ("BLOCKS", 16), ("SHORT_PART", 40), ("RESIDENT", 256)):
        monkeypatch.setattr(streaming, name, value)
    monkeypatch.setattr(window_nests, "RESIDENT", 64)


@needs_gxx
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", sorted(TASKS))
def test_nests_compute_the_task(name: str) -> None:
    task = task_of(TASKS[name]())
    oracle = Oracle(task.compute_dag, np.random.default_rng(SEED))
    assert oracle.mismatch(te.lower(streaming_state(task), task.compute_dag.tensors), emulated) is None


@needs_gxx
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(8))
def test_random_axes(seed: int) -> None:
    rng = np.random.default_rng([SEED, seed])
    shape = tuple(int(n) for n in rng.integers(1, 14, size=rng.integers(2, 5)))
    order = tuple(int(a) for a in rng.permutation(len(shape)))
    axes = tuple(sorted(int(a) for a in rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)]))
    for tensors in (permuted(shape, order), summed(shape, axes)):
        task = task_of(tensors)
        oracle = Oracle(task.compute_dag, np.random.default_rng(SEED))
        found = oracle.mismatch(te.lower(streaming_state(task), task.compute_dag.tensors), emulated)
        assert found is None, (shape, order, axes)


def loops(state: State, k: int = -1) -> list[tuple[str, object]]:
    return [(it.annotation or it.kind, it.extent) for it in state.stages[k].iters]


def test_tiles_of_a_turn_read_and_write_whole_sectors() -> None:
    state = streaming_state(task_of(permuted((4096, 4096), (1, 0))))
    blocks = 4096 // 32 * (4096 // 64)
    assert loops(state) == [("blockIdx.x", blocks), ("threadIdx.x", 128), ("unroll", 4), ("vectorize", 4)]
    straight = streaming_state(task_of(permuted((4096, 4096), (0, 1))))
    assert loops(straight)[-1] == ("vectorize", 4) and len(loops(straight)) == 3


def test_few_long_rows_are_cut_into_parts() -> None:
    state = streaming_state(task_of(summed((4, 1 << 22), (1,))))
    (part,) = [k for k, s in enumerate(state.stages) if s.op.name.endswith(".rf")]
    assert dict(loops(state, part))["blockIdx.x"] == 2048
    many = streaming_state(task_of(summed((4096, 1 << 14), (1,))))
    assert not any(s.op.name.endswith(".rf") for s in many.stages)


def test_columns_are_read_by_neighbouring_threads() -> None:
    (state, k) = streaming_state(task_of(summed((4096, 1 << 14), (0,)))), 1
    assert loops(state, k)[:2] == [("blockIdx.x", 512), ("threadIdx.x", 32)]
    assert ("threadIdx.y", 16) in loops(state, k)


def test_many_columns_have_wide_blocks_and_no_condition_around_terms() -> None:
    for shape, wide in (((8, 4096, 1 << 14), 128), ((1, 4096, (1 << 15) + 64), 64), ((1, 4096, (1 << 16) + 32), 32)):
        state = streaming_state(task_of(summed(shape, (1,))))
        assert ("threadIdx.x", wide) in loops(state, 1)
        assert ("threadIdx.y", min(16, 1024 // wide)) in loops(state, 1)
    primes = streaming_state(task_of(summed((3, 512, 40_009), (1,))))
    assert primes.stages[1].where == ATTACHED and ("threadIdx.x", 128) in loops(primes)


def test_what_a_thread_sums_up_alone_is_written_once() -> None:
    for tensors in (max_pool(16, 512, 64), summed((3, 512, 40_009), (1,)), pooled((16, 32, 64, 64, 64), 3, 2, 3)):
        body = te.lower(streaming_state(task_of(tensors)), tensors).body
        written = {s.buffer for s in stmts_of(body) if isinstance(s, Store) and s.buffer.storage == "global"}
        read = {x.buffer for s in stmts_of(body) for e in exprs_of(s) for x in walk(e) if isinstance(x, BufferLoad)}
        assert len(written) == 1 and not written & read


def test_windows_that_overlap_share_what_they_read() -> None:
    state = streaming_state(task_of(pooled((8, 16, 256, 256), 3, 1, 1)))
    assert [s.where for s in state.stages if s.op.name in ("padded", "total")] == [ATTACHED, ATTACHED]
    assert loops(state)[-1] == ("unroll", 4) and all(kind == "unroll" for kind, _ in loops(state, -2)[-2:])
    cube = streaming_state(task_of(pooled((4, 16, 64, 64, 64), 3, 2, 1)))
    assert loops(cube)[-3:] == [("threadIdx.x", 128), ("unroll", 2), ("unroll", 2)]
    apart = streaming_state(task_of(pooled((8, 16, 256, 256), 3, 2, 3)))
    assert [s.where for s in apart.stages if s.op.name in ("padded", "total")] == [INLINED, ATTACHED]
    large = streaming_state(task_of(pooled((8, 16, 256, 256), 11, 1, 1)))
    assert loops(large)[-1][0] == "threadIdx.x"


def test_windows_that_overlap_share_what_they_weigh() -> None:
    state = streaming_state(task_of(weighed((16, 64, 256, 256), 3, 1, 1)))
    assert [s.where for s in state.stages if s.op.name in ("wide", "total")] == [ATTACHED, ATTACHED]
    assert loops(state)[-1] == ("unroll", 4)
    line = streaming_state(task_of(weighed((16, 64, 1 << 16), 3, 1, 1)))
    assert [s.where for s in line.stages if s.op.name in ("wide", "total")] == [INLINED, ATTACHED]


def test_columns_of_windows_side_by_side_are_read_by_neighbours() -> None:
    state = streaming_state(task_of(bare_windows((16, 64, 1023, 1023), (2, 3), 11, 11)))
    assert loops(state)[1:] == [("threadIdx.y", 31), ("unroll", 11), ("threadIdx.x", 11)]
    few = streaming_state(task_of(bare_windows((1, 8, 1023, 1023), (2, 3), 33, 33)))
    assert ("threadIdx.x", 11) not in loops(few)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (summed((4096, 4096), (1,)), True), (summed((64, 64), (1,)), False), (permuted((4096, 4096), (1, 0)), True),
        (matmul(2048, 2048, 2048), False), (softmax(4096, 1024), False), (softmax(64, 1 << 20), True),
        (max_pool(16, 512, 64), True), (conv2d_nchw(16, 64, 64, 64, 3, 1, 1), False),
        (depthwise(8, 256, 64), True), (weighed((16, 64, 256, 256), 7, 1), False),
    ],
)  # fmt: skip
def test_large_tasks_that_read_once_are_not_drawn(tensors: list[te.Tensor], expected: bool) -> None:
    task = task_of(tensors)
    assert streams(task) is expected
    if expected:
        assert not draws(task)
        assert next(default_states(task)).steps == streaming_state(task).steps


def test_without_the_extension_copies_are_plain_and_sums_are_drawn() -> None:
    copied, total = task_of(permuted((4096, 4096), (1, 0))), task_of(summed((4096, 4096), (1,)))
    assert not draws(copied) and not draws(total)
    with using("analysis"):
        plain = [plain_state(copied, vectors=True), plain_state(copied)]
        assert [state.steps for state in default_states(copied)] == [state.steps for state in plain]
        assert not draws(copied) and draws(total)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int8"])
def test_large_tensors_of_any_dtype_get_default_programs(dtype: str) -> None:
    x = te.placeholder((2048, 2048), dtype, "x")
    k = te.reduce_axis((0, 2048), "k")
    turned = te.compute((2048, 2048), lambda i, j: x[j, i].astype("float32"), name="turned")
    sums = te.compute((2048,), lambda i: te.sum(x[i, k].astype("float32"), axis=k), name="sums")
    for made in (turned, sums):
        task = task_of([x, made])
        assert shipped_model_of(task) is not None
        assert te.lower(next(default_states(task)), task.compute_dag.tensors)


def beside(shape: tuple[int, ...], dtype: str, broadcast: bool = False) -> list[te.Tensor]:
    """What becomes of two tensors element by element; of the second only the last axis, where it is `broadcast`."""
    a = te.placeholder(shape, dtype, name="a")
    b = te.placeholder(shape[-1:] if broadcast else shape, dtype, name="b")
    return [a, b, te.compute(shape, lambda *i: a(*i) * b(*(i[-1:] if broadcast else i)) + a(*i), name="y")]


@needs_gxx
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
@pytest.mark.parametrize("shape", [(7, 13), (31, 67), (3,), (2, 521), (1, 1), (4, 257, 3)])
def test_a_vector_may_be_cut_by_the_end_of_a_tensor(shape: tuple[int, ...], dtype: str) -> None:
    task = task_of(beside(shape, dtype))
    func = te.lower(streaming_state(task), task.compute_dag.tensors)
    assert Oracle(task.compute_dag, np.random.default_rng(5)).mismatch(func, emulated) is None


def test_vectors_are_read_whatever_the_size_where_all_lies_alike() -> None:
    for broadcast in (False, True):
        task = task_of(beside((31, 67), "float32", broadcast))
        source = emit(te.lower(streaming_state(task), task.compute_dag.tensors)).source
        assert ("const float4" in source) is not broadcast
    task = task_of(beside((65537, 32771), "float32"))  # more than 32 bits can count
    source = emit(te.lower(streaming_state(task), task.compute_dag.tensors)).source
    assert "(long long)" in source and "const float4" in source
