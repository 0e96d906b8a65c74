"""`Moments`: a mean and a variance are one reading of what no block keeps, and no digit is lost by it."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
import pytest

import ansor
import relay_lite as relay
import te_lite as te
from ansor_ext.streaming import streaming
from ansor_ext.streaming.streaming import streaming_state
from codegen_cuda import available_compilers, emit
from codegen_cuda.emulation.emulator import run_program
from relay_lite.compiler.build import build
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function
from relay_lite.ir.op_registry import get
from relay_lite.ir.reference import run
from relay_lite.ir.visit import free_vars, is_op, post_order
from relay_lite.op.moments import moments
from relay_lite.transform import PassContext
from relay_lite.transform import moments as rule
from relay_lite.transform.moments import Moments
from te_lite.meaning import interp
from tests.relay_lite import op_case
from tests.relay_lite.sound_calls import f
from tests.relay_lite.test_build_cuda import TARGET, emulate

Array = np.ndarray
Norm = Callable[[Expr, tuple[int, ...]], Expr]
EPSILON = 1e-5
needs_emulator = pytest.mark.skipif(
    shutil.which("g++") is None or not available_compilers(), reason="the emulator needs g++, kernels a compiler"
)


# -------------------------------------------------------------------------------------------------- the operator


def rows(kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Data that hurt: a first element far away from all others, or an offset of ten thousand times the spread."""
    x = np.random.default_rng(len(kind)).standard_normal(shape)
    if kind == "outlier":
        x[tuple([0 if a in axes else slice(None) for a in range(len(shape))])] = 1e4
    return np.asarray(x + (1e4 if kind == "offset" else 0), "float32")


@pytest.mark.parametrize("axis", [None, 0, (1,), (0, 2), (-1,)])
def test_the_operator_agrees_with_its_meaning(axis: int | tuple[int, ...] | None) -> None:
    count, mean, squares = op_case.check(moments(f(3, 5, 7), axis))
    assert count.shape == mean.shape == squares.shape
    with pytest.raises(relay.GraphError, match="float32 or float64"):
        moments(relay.var("h", (2, 3), "float16"), axis=1)


@pytest.mark.parametrize("kind", ["plain", "outlier", "offset"])
@pytest.mark.parametrize("shape, axes", [((3, 1009), (1,)), ((997, 5), (0,)), ((13, 3, 7, 31), (0, 2, 3))])
@pytest.mark.parametrize("parts", [False, True])
def test_nests_lose_no_digits(
    kind: str, shape: tuple[int, ...], axes: tuple[int, ...], parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the emulator, and by the interpreter; with `parts` a second kernel puts some parts of each row together.

    Of data with an offset the mean is rounded to the size of that, as every mean is; the pass takes it away first.
    """
    monkeypatch.setattr(streaming, "SHORT_PART", 100 if parts else 1 << 11)
    x = te.placeholder(shape, name="x")
    compute = get("moments").compute
    assert compute is not None
    outs = compute([x], {"axis": axes}, "cuda")
    task = ansor.SearchTask(compute_dag=[x, *outs], target="cuda -arch=sm_90")
    func = te.lower(streaming_state(task), task.compute_dag.tensors)
    data, wide = rows(kind, shape, axes), rows(kind, shape, axes).astype("f8")
    mean = wide.mean(axes, keepdims=True)
    want = np.square(wide - mean).sum(axes, keepdims=True)
    for emulated in (False, True) if shutil.which("g++") else (False,):
        args = [data, *[np.full(t.shape, np.nan, "float32") for t in outs]]
        if emulated:
            run_program(emit(func), args)
        else:
            interp.run(func, args)
        assert (args[1] == wide.size / mean.size).all()
        np.testing.assert_allclose(args[2], mean, rtol=2e-6, atol=1e-6)
        np.testing.assert_allclose(args[3], want, rtol=1e-3 if kind == "offset" else 1e-5)


# ------------------------------------------------------------------------------------------------------ the pass


def mean(x: Expr, axes: tuple[int, ...]) -> Expr:
    return call("mean", x, axis=axes, keepdims=True)


def divided(x: Expr, centred: Expr, variance: Expr) -> Expr:
    return call("multiply", centred, call("rsqrt", call("add", variance, relay.const(EPSILON))))


def plain(x: Expr, axes: tuple[int, ...]) -> Expr:
    centred = call("subtract", x, mean(x, axes))
    return divided(x, centred, mean(call("multiply", centred, centred), axes))


def powered(x: Expr, axes: tuple[int, ...]) -> Expr:
    centred = call("subtract", x, mean(x, axes))
    return divided(x, centred, mean(call("power", centred, relay.const(2.0)), axes))


def twice(x: Expr, axes: tuple[int, ...]) -> Expr:
    """As `SimplifyInference` spells a norm: the mean is taken out twice."""
    once = call("subtract", x, mean(x, axes))
    centred = call("subtract", once, mean(once, axes))
    return divided(x, centred, mean(call("multiply", centred, centred), axes))


def from_some(x: Expr, axes: tuple[int, ...]) -> Expr:
    """As PyTorch's norms are read: distances from one of the elements, each written in its own way."""
    begin = tuple([x.shape[a] // 2 for a in axes])
    end = tuple([b + 1 for b in begin])
    some = call("strided_slice", x, begin=begin, end=end, strides=(1,) * len(axes), axes=axes)
    shifted = call("add", x, call("negative", some))
    off = mean(mean(shifted, axes[1:]), axes[:1]) if axes[1:] else mean(shifted, axes)
    less = call("add", call("subtract", some, x), off)
    square = call("multiply", less, less)
    variance = mean(mean(square, axes[1:]), axes[:1]) if axes[1:] else mean(square, axes)
    return divided(x, call("subtract", call("subtract", x, some), off), variance)


def own_operator(x: Expr, axes: tuple[int, ...]) -> Expr:
    m = mean(x, axes)
    return divided(x, call("subtract", x, m), call("variance", x, m, axis=axes, keepdims=True))


def summed(x: Expr, axes: tuple[int, ...]) -> Expr:
    centred = call("subtract", x, mean(x, axes))
    total = call("sum", call("multiply", centred, centred), axis=axes, keepdims=True)
    return divided(x, centred, call("divide", total, relay.const(float(np.prod([x.shape[a] for a in axes])))))


NORMS = (plain, powered, twice, from_some, own_operator, summed)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LARGE", "LONG_ROW", "LONG_COLUMN"):
        monkeypatch.setattr(rule, name, 1)


def function_of(body: Expr) -> Function:
    return Function(free_vars(body), body)


def count(function: Function, *names: str) -> int:
    return sum([is_op(node, *names) for node in post_order(function.body)])


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", ["plain", "outlier", "offset"])
@pytest.mark.parametrize("shape, axes", [((3, 4, 101), (2,)), ((37, 5), (0,)), ((5, 3, 7, 11), (0, 2, 3))])
def test_every_spelling_is_one_reading(norm: Norm, kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    function = function_of(norm(relay.var("x", shape), axes))
    made, x = Moments()(function), rows(kind, shape, axes)
    assert count(made, "moments") == 1 and count(made, "variance") == 0
    assert count(made, "mean") == (1 if norm is twice else 0)
    wide = x.astype("f8")
    centred = wide - wide.mean(axes, keepdims=True)
    want = centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + EPSILON)
    error = {name: np.abs(run(g, {"x": x})[0] - want).max() for name, g in (("before", function), ("after", made))}
    assert error["after"] <= 2 * error["before"] + 2e-6


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name, axes", [("nn.layer_norm", (3,)), ("nn.instance_norm", (2, 3))])
def test_norms_of_long_rows_are_spelled_out(name: str, axes: tuple[int, ...]) -> None:
    rng, shape = np.random.default_rng(0), (2, 3, 5, 7)
    size = shape[3] if name == "nn.layer_norm" else shape[1]
    names = {"x": shape, "gamma": (size,), "beta": (size,)}
    function = function_of(call(name, *[relay.var(k, s) for k, s in names.items()]))
    made, given = Moments()(function), {k: rng.standard_normal(s).astype("f4") for k, s in names.items()}
    assert count(made, "moments") == 1 and count(made, name) == 0
    np.testing.assert_allclose(run(made, given)[0], run(function, given)[0], rtol=1e-5, atol=2e-6)


@pytest.mark.usefixtures("short")
def test_what_is_no_variance_stays() -> None:
    x, other = relay.var("x", (6, 6)), relay.var("y", (6, 6))
    flat = call("mean", x, axis=(1,), keepdims=False)
    for d in (
        call("add", x, mean(x, (1,))),
        call("subtract", x, mean(other, (1,))),
        call("subtract", x, mean(x, (0,))),
        call("subtract", x, flat),  # which lies along the other axis
        call("subtract", call("add", x, x), mean(x, (1,))),
    ):
        function = function_of(mean(call("multiply", d, d), (1,)))
        assert Moments()(function) is function


def test_rows_that_a_block_keeps_and_little_work_stay() -> None:
    for shape, axes, changes in (
        ((64, 1 << 14), (1,), False), ((32, 1 << 15), (1,), True), ((1 << 14, 64), (0,), True),
        ((128, 1 << 13), (0,), False), ((1 << 10, 64), (0,), False),
    ):  # fmt: skip
        assert count(Moments()(function_of(plain(relay.var("x", shape), axes))), "moments") == changes, shape


@needs_emulator
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("shape, axes", [((3, 4, 300), (2,)), ((6, 2, 5, 11), (0, 2, 3))])
def test_a_network_of_halves_on_the_emulator(
    shape: tuple[int, ...], axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves are read as they are, and counted, summed up and squared as floats; two of three kernels read them."""
    for name, value in (("LARGE", 1), ("LONG_ROW", 1), ("SHORT_PART", 40)):
        monkeypatch.setattr(streaming, name, value)
    x = relay.var("x", shape, "float16")
    function = function_of(call("cast", from_some(call("cast", x, dtype="float32"), axes), dtype="float16"))
    given = np.asarray(rows("plain", shape, axes) + 30, "float16")
    with PassContext(opt_level=3):
        library = build(function, target=TARGET)
    (got,) = emulate(library, {"x": given})
    wide = given.astype("f8")
    centred = wide - wide.mean(axes, keepdims=True)
    want = centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + EPSILON)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    assert sum("float16" in code.source.split("*/")[0] for code in library.kernels.values()) == 3
