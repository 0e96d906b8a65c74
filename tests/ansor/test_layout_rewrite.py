"""A program with packed weights computes what it computed, reading its weights from front to back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.core.errors import TaskError
from ansor.core.target.hardware import HardwareParams
from ansor.core.values.options import LayoutRewriteOption
from ansor.layout.packing import PackedLayout, PackedView, packed_layouts
from ansor.layout.rewrite import Rewritten, rewrite_layout_from_state
from ansor.sketch import generate_sketches
from te_lite import ComputeDAG, Tensor, topi
from te_lite.expr.expr import Binary, BufferLoad, Const, Expr, Var
from te_lite.expr.visit import walk
from te_lite.loops.stmt import Alloc, Buffer, For, If, LoweredFunc, Seq, Stmt, Store
from te_lite.lowering.lower import lower
from te_lite.meaning.interp import run as interpret
from te_lite.meaning.reference import evaluate, random_inputs
from te_lite.printing.dag_json import dag_from_json, dag_to_json
from te_lite.schedule.loop_steps import Annotate, Fuse, Reorder, Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import poisoned

NONE, INSERT, PACKED = LayoutRewriteOption
HARDWARE = HardwareParams(4, 64, 64, 0, 0, 0, 0, 0)
Array = np.ndarray


def conv2d() -> list[Tensor]:
    data, weight = te.placeholder((2, 7, 5, 8), name="data"), te.placeholder((3, 2, 8, 12), name="weight")
    bias = te.placeholder((1, 1, 1, 12), name="bias")
    return [data, weight, bias, topi.nn.relu(topi.nn.conv2d_nhwc(data, weight, (2, 1), 1, 1) + bias)]


def conv3d() -> list[Tensor]:
    data, weight = te.placeholder((1, 3, 4, 4, 3), name="data"), te.placeholder((2, 3, 1, 3, 8), name="weight")
    return [data, weight, topi.nn.conv3d_ndhwc(data, weight, 1, 0, 1, 1)]


def winograd() -> list[Tensor]:
    data, weight = te.placeholder((1, 6, 6, 4), name="data"), te.placeholder((4, 4, 6, 4), name="weight")
    return [data, weight, topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, weight, 1, 1, 1, None, 2)]


def dense() -> list[Tensor]:
    data, weight = te.placeholder((5, 12), name="data"), te.placeholder((20, 12), name="weight")
    bias = te.placeholder((20,), name="bias")
    return [data, weight, bias, topi.nn.relu(topi.add(topi.nn.dense(data, weight), bias))]


def matmul() -> list[Tensor]:
    a, b = te.placeholder((6, 16), name="a"), te.placeholder((16, 24), name="b")
    return [a, b, topi.nn.matmul(a, b)]


def batch_matmul() -> list[Tensor]:
    a, b = te.placeholder((3, 4, 8), name="a"), te.placeholder((3, 10, 8), name="b")
    return [a, b, topi.nn.batch_matmul(a, b)]


WORKLOADS: dict[str, Callable[[], list[Tensor]]] = {
    f.__name__: f for f in (conv2d, conv3d, winograd, dense, matmul, batch_matmul)
}

COUNT = {**dict.fromkeys(WORKLOADS, 9), "winograd": 3}


def programs(dag: ComputeDAG, count: int, seed: int = 0) -> list[State]:
    rng = np.random.default_rng(seed)
    sketches = generate_sketches(dag, "c", HARDWARE)
    drawn = [drawn_program(sketches[k % len(sketches)], "c", HARDWARE, rng) for k in range(count)]
    return [s for s in drawn if s is not None]


Run = Callable[[LoweredFunc, list[Array]], None]


def with_c(func: LoweredFunc, args: list[Array]) -> None:
    codegen_c.build(func)(*args)


def outputs(before: ComputeDAG, program: Rewritten, inputs: dict[Tensor, Array], run: Run) -> list[Array]:
    """What a rewritten program gives; inputs are packed as its layouts say."""
    args = []
    for old, new in zip(before.tensors, program.dag.tensors, strict=True):
        if old not in inputs:
            args.append(poisoned(new.shape, new.dtype))
        elif new.shape == old.shape:
            args.append(inputs[old].copy())
        else:
            args.append(program.layouts[old].pack(inputs[old]))
    run(lower(program.state, program.dag.tensors), args)
    return [a for a, t in zip(args, before.tensors, strict=True) if t not in inputs]


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.one_in(4)
def test_random_programs_keep_their_values(name: str) -> None:
    """The loops are the same, so in the interpreter the bits are: packing changes where a weight is, not when."""
    dag = ComputeDAG(WORKLOADS[name]())
    rng = np.random.default_rng(1)
    inputs = random_inputs(dag.tensors, rng)
    reference = evaluate(dag.tensors, inputs, "float64")
    packed = 0
    for state in programs(dag, COUNT[name]):
        want = outputs(dag, Rewritten(state, {}), inputs, interpret)
        for got, t in zip(want, dag.outputs, strict=True):
            np.testing.assert_allclose(got, reference[t], rtol=0, atol=2e-5 * np.abs(reference[t]).max())
        for option in (INSERT, PACKED):
            new = rewrite_layout_from_state(state, option)
            assert replay(new.dag, new.state.steps) == new.state
            packed += bool(new.layouts)
            for got, same in zip(outputs(dag, new, inputs, interpret), want, strict=True):
                np.testing.assert_array_equal(got, same)
    assert packed >= COUNT[name]


@pytest.mark.long
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.one_in(2)
def test_compiled_programs_keep_their_values(name: str) -> None:
    dag = ComputeDAG(WORKLOADS[name]())
    inputs = random_inputs(dag.tensors, np.random.default_rng(2))
    reference = evaluate(dag.tensors, inputs, "float64")
    for state in nonempty([s for s in programs(dag, COUNT[name], seed=3) if packed_layouts(s)][:2]):
        for option in (INSERT, PACKED):
            got = outputs(dag, rewrite_layout_from_state(state, option), inputs, with_c)
            for a, t in nonempty(zip(got, dag.outputs, strict=True)):
                np.testing.assert_allclose(a, reference[t], rtol=0, atol=2e-5 * np.abs(reference[t]).max())


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.one_in(4)
def test_packed_weights_are_read_from_front_to_back(name: str) -> None:
    """Every place of a packed weight is read for the first time after all places before it."""
    dag = ComputeDAG(WORKLOADS[name]())
    (weight,) = {t for op in dag.ops for t in op.attrs.get("layout_free_placeholders", ())}
    seen = 0
    for state in programs(dag, 2 * COUNT[name], seed=5):
        new = rewrite_layout_from_state(state, PACKED)
        after, before = first_reads(new.state, dag.tensors.index(weight)), first_reads(state, dag.tensors.index(weight))
        if new.layouts and after is not None and before is not None:
            assert np.all(np.diff(after) > 0) and not np.all(np.diff(before) > 0), str(new.layouts[weight])
            seen += 1
    assert seen >= 2


def first_reads(state: State, argument: int) -> Array | None:
    """The flat places of an argument in the order of their first reading; None when several statements read it."""
    func = lower(state, state.dag.tensors)
    found = list(reads(func.body, func.args[argument], ()))
    if len(found) != 1:
        return None
    loops, index = found[0]
    grid = np.meshgrid(*[np.arange(loop.extent) for loop in loops], indexing="ij")
    places = value_of(index, {loop.var: g.reshape(-1) for loop, g in zip(loops, grid, strict=True)})
    _, first = np.unique(places, return_index=True)
    return places[np.sort(first)]


def reads(stmt: Stmt, buffer: Buffer, loops: tuple[For, ...]) -> Iterator[tuple[tuple[For, ...], Expr]]:
    match stmt:
        case For(body=body):
            yield from reads(body, buffer, (*loops, stmt))
        case Alloc(body=body) | If(then=body):
            yield from reads(body, buffer, loops)
        case Seq(stmts=stmts):
            for s in stmts:
                yield from reads(s, buffer, loops)
        case Store(value=value):
            yield from [(loops, e.index) for e in walk(value) if isinstance(e, BufferLoad) and e.buffer is buffer]


def value_of(e: Expr, env: dict[Var, Array]) -> Array:
    match e:
        case Const(value=value):
            return np.asarray(value)
        case Var():
            return env[e]
        case Binary(op=op, a=a, b=b):
            x, y = value_of(a, env), value_of(b, env)
            return {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod}[op](x, y)
    raise AssertionError(e)


def test_the_layout_of_the_specification() -> None:
    """512 x 512 matmul: j split in [8, 4, 4], k whole; the loops are i0 j0 i1 j1 i2 j2 i3 j3 k."""
    a, b = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    dag = ComputeDAG([a, b, topi.nn.matmul(a, b)])
    split = (Split(2, 0, 512, (4, 4, 8)), Split(2, 4, 512, (8, 4, 4)), Reorder(2, (0, 4, 1, 5, 2, 6, 3, 7, 8)))
    layout = packed_layouts(replay(dag, split))[b]
    assert (layout.before, str(layout)) == ("512k512j", "4j8j4j4j512k")
    assert layout.packed_shape == (4, 8, 4, 4, 512)
    new = rewrite_layout_from_state(replay(dag, split), PACKED)
    assert [t.shape for t in new.dag.inputs] == [(512, 512), (4, 8, 4, 4, 512)]
    assert new.state.steps == split
    inserted = rewrite_layout_from_state(replay(dag, split), INSERT)
    assert [t.shape for t in inserted.dag.inputs] == [(512, 512), (512, 512)]
    assert [op.name for op in inserted.dag.ops] == ["A", "B", "auto_scheduler_layout_transform", "T_matmul_NN"]
    assert inserted.state.steps[3:] == (Fuse(2, (0, 1, 2)), Annotate(2, 0, "parallel"))
    assert [s.stage for s in inserted.state.steps[:3]] == [3, 3, 3]


def test_splits_that_do_not_divide_are_padded_with_zeros() -> None:
    a, b = te.placeholder((3, 7), name="A"), te.placeholder((7, 10), name="B")
    dag = ComputeDAG([a, b, topi.nn.matmul(a, b)])
    steps = (Split(2, 2, 7, (4,)), Split(2, 1, 10, (3,)), Reorder(2, (1, 3, 0, 4, 2)))
    state = replay(dag, steps)
    layout = packed_layouts(state)[b]
    assert layout.packed_shape == (4, 2, 4, 3) and str(layout) == "4j2k4k3j"
    inputs = random_inputs(dag.tensors, np.random.default_rng(0))
    want = evaluate(dag.tensors, inputs, "float64")[dag.outputs[0]]
    for option in (INSERT, PACKED):
        (got,) = outputs(dag, rewrite_layout_from_state(state, option), inputs, interpret)
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert layout.pack(inputs[b]).size == 96 and np.count_nonzero(layout.pack(inputs[b])) == 70


@pytest.mark.parametrize("seed", range(20))
def test_packing_is_what_the_index_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, int(rng.integers(1, 4))).tolist())
    digits = []
    for d, extent in enumerate(shape):
        reach = 1
        while reach < extent:
            digits.append((d, int(rng.integers(2, 5))))
            reach *= digits[-1][1]
    digits = [digits[k] for k in rng.permutation(len(digits))]
    layout = PackedLayout(shape, tuple("abc"[: len(shape)]), tuple(digits))
    array = rng.standard_normal(shape).astype("float32")
    packed = layout.pack(array)
    assert packed.shape == layout.packed_shape and packed.sum(dtype="float64") == pytest.approx(
        array.sum(dtype="float64")
    )
    np.testing.assert_array_equal(layout.unpack(packed), array)
    source = te.placeholder(layout.packed_shape, name="packed")
    view = PackedView(source, layout)
    read = te.compute(shape, lambda *i: view[i] + 0.0, "read")
    np.testing.assert_array_equal(evaluate([source, read], {source: packed})[read], array)


def test_layouts_that_lose_elements_are_refused() -> None:
    with pytest.raises(TaskError, match="dimension 1 of extent 6 must be counted through"):
        PackedLayout((4, 6), ("a", "b"), ((0, 4), (1, 5)))
    layout = PackedLayout((4, 6), ("a", "b"), ((1, 6), (0, 4)))
    with pytest.raises(TaskError, match=r"the shape \(4, 6\) is needed"):
        layout.pack(np.zeros((6, 4)))
    with pytest.raises(TaskError, match=r"\(6, 4\) is needed"):
        layout.unpack(np.zeros((4, 6)))
    assert not layout.moves_nothing and PackedLayout((4, 6), ("a", "b"), ((0, 4), (1, 2), (1, 3))).moves_nothing


def test_what_cannot_or_need_not_be_packed_is_left_alone() -> None:
    dag = ComputeDAG(matmul())
    depthwise = te.placeholder((1, 6, 6, 4), name="d"), te.placeholder((3, 3, 4, 1), name="w")
    other = ComputeDAG([*depthwise, topi.nn.depthwise_conv2d_nhwc(*depthwise, 1, 1, 1)])
    fused_and_split = (Fuse(2, (0, 1)), Split(2, 0, 144, (7,)))
    whole = (Reorder(2, (0, 2, 1)),)
    cases = [dag.init_state, programs(other, 1)[0], replay(dag, fused_and_split), replay(dag, whole)]
    for state in cases:
        for option in (INSERT, PACKED):
            assert rewrite_layout_from_state(state, option).state is state
    tuned = next(s for s in programs(dag, 9) if packed_layouts(s))
    assert rewrite_layout_from_state(tuned, NONE).state is tuned


def test_a_weight_with_two_readers_is_packed_for_both() -> None:
    a, b = te.placeholder((6, 8), name="a"), te.placeholder((8, 12), name="b")
    first = topi.nn.matmul(a, b)
    dag = ComputeDAG([a, b, te.compute((6, 12), lambda i, j: first[i, j] + b[i, j], "sum")])
    inputs = random_inputs(dag.tensors, np.random.default_rng(0))
    want = evaluate(dag.tensors, inputs, "float64")[dag.outputs[0]]
    found = [rewrite_layout_from_state(s, o) for s in programs(dag, 6) for o in (INSERT, PACKED)]
    assert any(new.layouts for new in found)
    for new in found:
        np.testing.assert_allclose(outputs(dag, new, inputs, interpret)[0], want, rtol=1e-4, atol=1e-5)


def test_packed_computations_have_keys_and_json_of_their_own() -> None:
    dag = ComputeDAG(conv2d())
    new = next(r for r in (rewrite_layout_from_state(s, PACKED) for s in programs(dag, 9)) if r.layouts)
    assert new.dag.workload_key() != dag.workload_key()
    again = dag_from_json(json.loads(json.dumps(dag_to_json(new.dag))))
    assert str(again) == str(new.dag) and again.workload_key() == new.dag.workload_key()
    assert rewrite_layout_from_state(new.state, PACKED).state is new.state
