"""NaN, infinities, both zeros and ties give one answer everywhere: docs/arithmetic.md has the table.

The answers wanted are NumPy's, written here; they are asked of `te_lite.meaning.reference`, the interpreter, compiled C
and the block emulator, in serial, vectorized, split, rfactored and cross-thread programs, and of the executor of
graphs.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import ansor
import codegen_c
import relay_lite as relay
import te_lite as te
from ansor.sketch.plain import plain_state
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from relay_lite.ir.nodes import Expr
from relay_lite.ir.reference import run as run_graph
from relay_lite.op.lower_group import lower_group
from te_lite.computation.tensor import Tensor
from te_lite.expr.simplify import Simplifier
from te_lite.loops.stmt import Buffer, For, ForKind, LoweredFunc, Store, seq
from te_lite.lowering.lower import lower
from te_lite.meaning import interp
from te_lite.meaning.reference import evaluate
from te_lite.schedule.schedule import Schedule
from tests.drawn_arithmetic import DTYPES, Draw, equal_where_defined, folded, lanes, loads, meaning
from tests.drawn_arithmetic import special_values as special
from tests.nonempty import nonempty

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")

Array = np.ndarray[Any, np.dtype[Any]]
INF, NAN = np.inf, np.nan
LENGTH = 16
ROWS = np.array(
    [
        [-INF] * LENGTH,
        [INF] * LENGTH,
        [NAN] * LENGTH,
        [-INF] * 5 + [3.0] + [-INF] * 10,
        [1.0] * 7 + [NAN] + [INF] * 4 + [NAN] + [2.0] * 3,
        [2.0, 5.0, 5.0, 1.0] * 4,
        [-INF, INF] * 8,
        [0.0] * 8 + [INF] + [0.0] * 7,
        [-1.0] * 15 + [NAN],
        [100.0, -100.0] * 8,
        [600.0] * 15 + [-INF],
        [NAN] + [-INF] * 15,
    ]
)


def assert_same(got: Array, want: Array, what: str, tolerance: float = 2e-6) -> None:
    """NaN where NaN is wanted, the very infinities, and numbers closely; zeros have no sign here."""
    classes = [np.isnan, np.isposinf, np.isneginf] if got.dtype.kind == "f" else []
    for kind in classes:
        np.testing.assert_array_equal(kind(got), kind(want), what)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, what)
        return
    loose = max(tolerance, 2e-3 if got.dtype == np.float16 else 0.0)
    some = np.isfinite(want)
    np.testing.assert_allclose(got[some].astype("f8"), want[some].astype("f8"), loose, loose, err_msg=what)


# -------------------------------------------------------------------------------------------------- reductions

Scheduled = tuple[list[Tensor], Schedule]


def reduced(name: str, dtype: str) -> tuple[Tensor, list[Tensor], te.IterVar]:
    x = te.placeholder(ROWS.shape, dtype, name="x")
    r = te.reduce_axis((0, LENGTH), "r")
    reducer = {"max": te.max, "min": te.min, "sum": te.sum, "argmax": te.argmax, "argmin": te.argmin}[name]
    if name.startswith("arg"):
        return x, list(te.compute((len(ROWS),), lambda i: reducer((r, x[i, r]), axis=r), name="t")), r
    return x, [te.compute((len(ROWS),), lambda i: reducer(x[i, r], axis=r), name="t")], r


def serial(outs: list[Tensor], r: te.IterVar) -> Schedule:
    return te.create_schedule(outs[0].op)


def across_rows(outs: list[Tensor], r: te.IterVar) -> Schedule:
    s = te.create_schedule(outs[0].op)
    s[outs[0]].reorder(r, outs[0].op.axis[0])
    s[outs[0]].vectorize(outs[0].op.axis[0])
    return s


def in_parts(outs: list[Tensor], r: te.IterVar) -> Schedule:
    """Parts of the row side by side, as vectors; then the parts together."""
    s = te.create_schedule(outs[0].op)
    part = s.rfactor(outs[0], s[outs[0]].split(r, factor=4)[1])
    first = part[0] if isinstance(part, list | tuple) else part
    s[first].vectorize(s[first].op.axis[-1])
    return s


def by_threads(outs: list[Tensor], r: te.IterVar) -> Schedule:
    s = te.create_schedule(outs[0].op)
    s[outs[0]].bind(s[outs[0]].split(r, factor=8)[1], te.thread_axis("threadIdx.x"))
    s[outs[0]].bind(outs[0].op.axis[0], te.thread_axis("blockIdx.x"))
    return s


WANTED: dict[str, Callable[[Array], Array]] = {
    "max": lambda a: a.max(1),
    "min": lambda a: a.min(1),
    "sum": lambda a: a.sum(1),
    "argmax": lambda a: a.argmax(1).astype("int32"),
    "argmin": lambda a: a.argmin(1).astype("int32"),
}
CPU = {"serial": serial, "across_rows": across_rows, "in_parts": in_parts}


def reduction_case(name: str, dtype: str) -> tuple[Array, Array]:
    """The rows, and what NumPy says (of 6e4 in float16 a sum is an infinity)."""
    data = ROWS.astype(dtype)
    with np.errstate(all="ignore"):
        return data, WANTED[name](data)


def arguments(tensors: Sequence[Tensor], data: Array) -> list[Array]:
    return [data.copy(), *[np.full(t.shape, 77, t.dtype) for t in tensors[1:]]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", WANTED)
@pytest.mark.one_in(4)
def test_reductions_of_special_rows(name: str, dtype: str) -> None:
    data, want = reduction_case(name, dtype)
    tensors: list[Tensor]
    for how, schedule in CPU.items() if dtype == "float32" else [("in_parts", in_parts)]:
        x, outs, r = reduced(name, dtype)
        tensors = [x, *outs]
        made = lower(schedule(outs, r), tensors)
        for who, run in (("interpreter", interp.run), ("C", lambda f, a: codegen_c.build(f)(*a))):
            args = arguments(tensors, data)
            run(made, args)
            assert_same(args[1], want, f"{who}, {how}")
    assert_same(evaluate(tensors, {x: data})[outs[0]], want, "reference")


@pytest.mark.parametrize("name", WANTED)
def test_reductions_of_special_rows_across_threads(name: str) -> None:
    for dtype in ("float32", "float16") if name in ("max", "argmin") else ("float32",):
        data, want = reduction_case(name, dtype)
        x, outs, r = reduced(name, dtype)
        made = lower(by_threads(outs, r), [x, *outs])
        for who, run in (("interpreter", interp.run), ("emulator", lambda f, a: run_program(emit(f), a))):
            args = arguments([x, *outs], data)
            run(made, args)
            assert_same(args[1], want, who)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.one_in(3)
def test_the_lowest_integer_is_a_value_like_others(dtype: str) -> None:
    ends = np.iinfo(dtype)
    data = np.array([[ends.min] * LENGTH, [ends.max] * LENGTH] * (len(ROWS) // 2), dtype)
    for name in ("argmax", "argmin", "max", "min"):
        for schedule in (serial, in_parts) if dtype == "int8" else (serial,):
            x, outs, r = reduced(name, dtype)
            args = arguments([x, *outs], data)
            codegen_c.build(lower(schedule(outs, r), [x, *outs]))(*args)
            assert_same(args[1], WANTED[name](data), name)


# ---------------------------------------------------------------------------------------------- networks' layers


def softmax(a: Array) -> Array:
    e = np.exp(a - a.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def log_softmax(a: Array) -> Array:
    shifted = a - a.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def pool(a: Array, fold: Callable[..., Any], fill: float) -> Array:
    padded = np.pad(a, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=fill)
    return np.asarray(fold(np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2], (-2, -1)))


Layer = tuple[Callable[[Expr], Expr], Callable[[Array], Array]]
IMAGE: dict[str, Layer] = {
    "max_pool": (lambda x: relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), lambda a: pool(a, np.max, -INF)),
    "avg_pool": (
        lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1), count_include_pad=True),
        lambda a: pool(a, np.mean, 0),
    ),
    "global_max_pool": (relay.nn.global_max_pool2d, lambda a: a.max((2, 3), keepdims=True)),
    "adaptive_max_pool": (lambda x: relay.nn.adaptive_max_pool2d(x, (1, 1)), lambda a: a.max((2, 3), keepdims=True)),
}
ROW_LAYERS: dict[str, Layer] = {
    "softmax": (relay.nn.softmax, softmax),
    "log_softmax": (relay.nn.log_softmax, log_softmax),
    "reduce_max": (lambda x: relay.max(x, 1), lambda a: a.max(1)),
    "reduce_min": (lambda x: relay.min(x, 1), lambda a: a.min(1)),
    "argmax": (lambda x: relay.argmax(x, 1), lambda a: a.argmax(1).astype("int32")),
    "argmin": (lambda x: relay.argmin(x, 1), lambda a: a.argmin(1).astype("int32")),
}
POINTS: dict[str, Layer] = {
    "relu": (relay.nn.relu, lambda a: np.maximum(a, 0)),
    "clip": (lambda x: relay.clip(x, -1.5, 6.0), lambda a: np.clip(a, -1.5, 6)),
    "clip_below": (lambda x: relay.clip(x, -1.5, INF), lambda a: np.clip(a, -1.5, INF)),
    "sigmoid": (relay.sigmoid, lambda a: 1 / (1 + np.exp(-a))),
    "tanh": (relay.tanh, np.tanh),
    "exp": (relay.exp, np.exp),
    "erf": (relay.erf, lambda a: np.vectorize(math.erf)(a).astype("f4")),
    "log": (relay.log, np.log),
    "sqrt": (relay.sqrt, np.sqrt),
    "leaky_relu": (lambda x: relay.nn.leaky_relu(x, 0.25), lambda a: np.where(a > 0, a, a * 0.25)),
    "sign": (relay.sign, np.sign),
    "round": (relay.round, np.rint),
    "floor": (relay.floor, np.floor),
    "isnan": (relay.isnan, np.isnan),
    "negative": (lambda x: 1.0 / relay.negative(x), lambda a: 1 / -a),
    "floor_mod": (lambda x: relay.floor_mod(x, relay.const(1.0)), lambda a: a - np.floor(a)),
}


GROUPS = {
    "points": (POINTS, np.concatenate([special("float32"), np.linspace(-8, 8, 46, dtype="f4")])),
    "points_half": ({k: POINTS[k] for k in ("relu", "clip", "sign", "leaky_relu", "isnan")}, special("float16")),
    "rows": (ROW_LAYERS, ROWS.astype("f4")),
    "images": (IMAGE, np.resize(ROWS, (2, 7, 6, 6)).astype("f4")),
}  # fmt: skip


def layers_of(group: dict[str, Layer], data: Array) -> tuple[relay.Function, list[Array]]:
    """A graph of all layers of a group on one input, and what NumPy says."""
    x = relay.var("x", data.shape, str(data.dtype))
    with np.errstate(all="ignore"):
        wants = [np.asarray(numpy(data)) for _, numpy in group.values()]
    return relay.Function([x], relay.Tuple([make(x) for make, _ in group.values()])), wants


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.one_in(3)
def test_layers_of_networks(name: str) -> None:
    """As a graph, as tensors, and as plain programs for C and CUDA."""
    group, data = GROUPS[name]
    function, wants = layers_of(group, data)
    found = {"graph": run_graph(function, [data])}
    for target in ("c", "cuda"):
        lowered = lower_group(function, target)
        (x, *outs) = lowered.tensors
        if target == "c":
            values = evaluate(lowered.tensors, {x: data})
            found["reference"] = [values[t] for t in outs]
        made = lower(plain_state(ansor.SearchTask(compute_dag=te.ComputeDAG(lowered.tensors), target=target)),
                     lowered.tensors)  # fmt: skip
        runs = {"interpreter": interp.run, "C": lambda f, a: codegen_c.build(f)(*a)}
        for who, run in (runs if target == "c" else {"emulator": lambda f, a: run_program(emit(f), a)}).items():
            args = arguments(lowered.tensors, data)
            run(made, args)
            found[who] = args[1:]
    for who, values in found.items():
        for layer, got, want in nonempty(zip(group, values, wants, strict=True)):
            assert_same(got, want, f"{layer}: {who}")


def test_a_compiled_network_answers_as_numpy_does() -> None:
    """With the passes of a build, and the programs that it chooses."""
    group = {**ROW_LAYERS}
    function, wants = layers_of(group, ROWS.astype("f4"))
    lib = relay.build(relay.IRModule({"main": function}), "c")
    module = relay.graph_executor.GraphModule(lib["default"](ansor.device("c")))
    module.run(x=ROWS.astype("f4"))
    for k, (layer, want) in nonempty(enumerate(zip(group, wants, strict=True))):
        assert_same(module.get_output(k).numpy(), want, layer)


# ------------------------------------------------------------------------------------------------- powers

BASES = [-INF, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, INF, NAN]
EXPONENTS = [-INF, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, INF, NAN]


def c99_power(base: float, exponent: float) -> float:
    """Python's power is that of C, but for the exceptions it raises."""
    try:
        return math.pow(base, exponent)
    except ValueError:
        odd = exponent == round(exponent) and exponent % 2 == 1
        return NAN if base else math.copysign(INF, base) if odd else INF


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_special_values(dtype: str) -> None:
    """NumPy's own takes a root where the exponent is one number, 0.5, which departs at -inf and -0.0."""
    data, size = np.array(BASES, dtype), len(BASES)
    x = te.placeholder((size,), dtype, "x")
    powers = [lambda i, e=e: te.power(x[i], te.const(e, dtype)) for e in EXPONENTS]
    outs = [te.compute((size,), power, f"y{k}") for k, power in enumerate(powers)]
    wanted = [np.array([c99_power(b, e) for b in BASES], dtype) for e in EXPONENTS]
    serial, threads = te.create_schedule([y.op for y in outs]), te.create_schedule([y.op for y in outs])
    for y in outs:
        threads[y].bind(y.op.axis[0], te.thread_axis("threadIdx.x"))
    runs: dict[str, tuple[Schedule, Callable[[LoweredFunc, list[Array]], object]]] = {
        "interpreter": (serial, interp.run),
        "C": (serial, lambda f, a: codegen_c.build(f)(*a)),
        "emulator": (threads, lambda f, a: run_program(emit(f), a)),
    }
    for who, (schedule, run) in runs.items():
        args = arguments([x, *outs], data)
        run(lower(schedule, [x, *outs]), args)
        for e, got, want in zip(EXPONENTS, args[1:], wanted, strict=True):
            assert equal_where_defined(got, want, np.ones(size, bool)), f"{who}, {e}: {got}, wanted {want}"
    found = evaluate([x, *outs], {x: data})
    assert all(equal_where_defined(found[y], want, np.ones(size, bool)) for y, want in zip(outs, wanted, strict=True))


def test_an_exponent_that_only_the_compiler_knows() -> None:
    """The root of a quarter is one half, and so is the second of four exponents when the loop over them is unrolled."""
    x = te.placeholder((len(BASES),), "float64", "x")
    known = te.compute(x.shape, lambda i: te.power(x[i], te.sqrt(te.const(0.25, "float64"))), "known")
    drawn = te.compute((4, len(BASES)), lambda k, i: te.power(x[i], k.astype("float64") * 0.5), "drawn")
    s = te.create_schedule([known.op, drawn.op])
    s[known].vectorize(s[known].split(known.op.axis[0], nparts=1)[1])
    s[drawn].unroll(drawn.op.axis[0])
    args = arguments([x, known, drawn], np.array(BASES))
    codegen_c.build(lower(s, [x, known, drawn]))(*args)
    wanted = [[c99_power(b, e) for b in BASES] for e in (0.0, 0.5, 1.0, 1.5)]
    for got, want in zip([args[1], *args[2]], [wanted[1], *wanted], strict=True):
        assert equal_where_defined(got, np.array(want), np.ones(len(BASES), bool)), f"{got}, wanted {want}"


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_in_graphs(exponent: float) -> None:
    data, want = np.array(BASES, "float32"), np.array([c99_power(b, exponent) for b in BASES], "float32")
    x = relay.var("x", shape=(len(BASES),))
    got = run_graph(relay.Function([x], relay.power(x, relay.const(exponent))), [data])
    assert equal_where_defined(got, want, np.ones(len(BASES), bool))


@pytest.mark.parametrize("source, dtype", [("float32", "int32"), ("float64", "int64"), ("float32", "int8")])
def test_floats_in_registers_become_integers_as_others_do(source: str, dtype: str) -> None:
    """In C an element that many products share is read once, into a variable, and is not a loop variable for that."""
    rng, ends = np.random.default_rng(4), [INF, -INF, NAN, 1e30, -3e9, 2.5, -2.5]
    x, y = rng.choice(ends, (8, 6)).astype(source), rng.choice(ends, (6, 16)).astype(source)
    a, b = te.placeholder(x.shape, source, "a"), te.placeholder(y.shape, source, "b")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute(
        (8, 16), lambda i, j: te.min(te.maximum(te.cast(dtype, a[i, k]), te.cast(dtype, b[k, j])), axis=k), "c"
    )
    s = te.create_schedule(c.op)
    (rows, row), (columns, column) = s[c].split(c.op.axis[0], factor=4), s[c].split(c.op.axis[1], factor=2)
    s[c].reorder(rows, columns, k, row, column)
    func = lower(s, [a, b, c])
    assert "a_v" in codegen_c.emit(func)
    got = np.full((8, 16), 77, dtype)
    codegen_c.build(func)(x, y, got)
    nearest = [np.array([[whole(v, dtype) for v in row] for row in t.tolist()], dtype) for t in (x, y)]
    np.testing.assert_array_equal(got, np.maximum(nearest[0][:, :, None], nearest[1][None]).min(1))


def whole(value: float, dtype: str) -> int:
    """The nearest integer of a dtype, towards zero; 0 for NaN."""
    ends = np.iinfo(dtype)
    return 0 if math.isnan(value) else int(min(max(value, ends.min), ends.max))


# ------------------------------------------------------------------------------------------ drawn expressions


@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_expressions_on_every_backend(seed: int) -> None:
    """What is stored is folded and simplified; what is compared with is neither."""
    count = 24
    buffers, at = loads(count)
    values = lanes(seed, count)
    env = {b: values[b.dtype] for b in buffers}
    i = te.Var("i")
    draw = Draw(np.random.default_rng(seed), at(i), separate=True)
    wanted = [draw.expr(d, 1 + k % 3) for k in range(5) for d in DTYPES]
    outs = [Buffer(f"out_{k}", e.dtype, (count,)) for k, e in enumerate(wanted)]
    stores = seq(*[Store(b, i, Simplifier().simplify(folded(e))) for b, e in zip(outs, wanted, strict=True)])
    thread = For(i, count, ForKind.THREAD, stores, "threadIdx.x")
    runs = {
        "interpreter": (For(i, count, ForKind.SERIAL, stores), interp.run),
        "C": (For(i, count, ForKind.SERIAL, stores), lambda f, a: codegen_c.build(f)(*a)),
        "emulator": (For(te.Var("b"), 1, ForKind.BLOCK, thread, "blockIdx.x"), lambda f, a: run_program(emit(f), a)),
    }
    for who, (body, run) in runs.items():
        args = [*[values[b.dtype].copy() for b in buffers], *[np.zeros(count, b.dtype) for b in outs]]
        run(LoweredFunc("drawn", (*buffers, *outs), body), args)
        for e, got in nonempty(zip(wanted, args[len(buffers) :], strict=True)):
            want, ok = meaning(e, env)
            assert equal_where_defined(got, want, ok), f"{who}: {e!r}\n{got[ok]}\n{want[ok]}"
