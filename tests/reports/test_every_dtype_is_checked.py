"""Reductions of every dtype have one meaning, and no output of any dtype passes unchecked.

The oracle rounds exact sums, products and extremes by ml_dtypes; it shares no formula with the bounds of the check.
"""

from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.measure.check import accepted_values, mismatch, poison
from te_lite import topi
from te_lite.expr.dtype import DTYPES, FLOATS, SMALL_FLOATS, STORED
from te_lite.meaning.interp import run
from te_lite.meaning.reference import evaluate
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer

ROWS, TERMS = 4, 12
REDUCERS: dict[str, Callable[..., np.ndarray]] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


def drawn(dtype: str, seed: int, shape: tuple[int, ...] = (ROWS, TERMS)) -> np.ndarray:
    """Numbers whose sums and products fit; of a bool, false in each row at least once, and true."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        array = rng.integers(0, 2, shape)
        array[..., :2] = 0, 1
        return array.astype(dtype)
    if dtype in FLOATS:
        return (rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)).astype(dtype)
    return rng.integers(1, 4, shape).astype(dtype)


def reduced(name: str, dtype: str) -> tuple[te.Tensor, te.Tensor]:
    data, k = te.placeholder((ROWS, TERMS), dtype, "data"), te.reduce_axis((0, TERMS), "k")
    return data, te.compute((ROWS,), lambda i: getattr(te, name)(data[i, k], axis=k), "out")


def by_hand(name: str, x: np.ndarray) -> np.ndarray:
    """The exact value, rounded once; integers wrap around."""
    if x.dtype.name in FLOATS:
        exact = REDUCERS[name](x.astype("float64"), axis=1)
        return exact if x.dtype == "float64" else exact.astype("float32").astype(x.dtype)
    with np.errstate(over="ignore"):
        return REDUCERS[name](x.astype("int64"), axis=1).astype(STORED.get(x.dtype.name, x.dtype)).astype(x.dtype)


def outputs(tensors: tuple[te.Tensor, ...], x: np.ndarray, func: te.LoweredFunc | None = None) -> list[np.ndarray]:
    """What the interpreter makes of poisoned outputs."""
    args = [x.copy(), *[poison(t.shape, t.dtype) for t in tensors[1:]]]
    with np.errstate(all="ignore"):
        run(func or te.lower(te.ComputeDAG(tensors).init_state, tensors), args)
    return args[1:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCERS)
def test_reductions_are_right_and_faults_are_found(name: str, dtype: str) -> None:
    tensors, x = reduced(name, dtype), drawn(dtype, 3)
    right = accepted_values(te.ComputeDAG(tensors), {tensors[0]: x})[tensors[1]]
    good = by_hand(name, x)
    assert mismatch(good, right) == ""
    assert mismatch(outputs(tensors, x)[0], right) == ""
    exact = REDUCERS[name](x.astype("float64"), axis=1)
    off = np.abs(good.astype("float64") - exact) / np.abs(exact) if dtype in FLOATS else np.zeros(ROWS)
    live = int(np.where(good == 0, np.inf, off).argmin()) if dtype != "bool" else 0  # no tie
    unwritten = np.where(np.arange(ROWS) == live, poison((ROWS,), dtype), good).astype(dtype)
    assert bool(mismatch(unwritten, right)) == (dtype != "bool" or unwritten[live] != good[live])
    for wrong in nonempty(list(neighbours(good[live]))):
        faulty = good.copy()
        faulty[live] = wrong
        assert mismatch(faulty, right) != "", (good, faulty)


def neighbours(value: np.generic) -> list[np.generic]:
    """Values that are wrong: of integers and stored floats those next to it, of other floats some units away."""
    kind = value.dtype
    if kind.name == "bool":
        return [~value]
    if kind.name not in FLOATS:
        return [(value + kind.type(1)).astype(kind), (value - kind.type(1)).astype(kind)]
    if kind.name in SMALL_FLOATS:
        steps = [np.nextafter(value, kind.type(end)) for end in (-ml_dtypes.finfo(kind).max, ml_dtypes.finfo(kind).max)]
        return [s for s in steps if s != value]
    return [value * kind.type(1 + 512 * np.finfo(kind).eps), value * kind.type(1 - 512 * np.finfo(kind).eps)]


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != "float64"])
def test_a_sum_without_one_of_its_terms_is_found(dtype: str) -> None:
    tensors, x = reduced("sum", dtype), np.abs(drawn(dtype, 5))
    right = accepted_values(te.ComputeDAG(tensors), {tensors[0]: x})[tensors[1]]
    whole = by_hand("sum", x)
    assert mismatch(whole, right) == ""
    short = by_hand("sum", x[:, :-3])
    assert (short != whole).any() == (dtype != "float4_e2m1fn")  # float4 stops at 6
    assert bool(mismatch(short, right)) == (short != whole).any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("what", ["softmax", "a reducer of one's own", "argmax", "two sums"])
def test_what_is_made_of_reductions_is_checked(what: str, dtype: str) -> None:
    x = drawn(dtype, 7)
    data, k = te.placeholder(x.shape, dtype, "data"), te.reduce_axis((0, TERMS), "k")
    over = partial(te.compute, (ROWS,), name="out")
    if what == "softmax":
        out = (topi.nn.softmax(data),)
    elif what == "argmax":
        out = over(lambda i: te.argmax((k.astype("int32"), data[i, k]), axis=k))
    elif what == "two sums":
        pair = te.comm_reducer(lambda x, y: (x[0] + y[0], x[1] + y[1]), lambda a, b: (te.const(0, a), te.const(0, b)))
        out = over(lambda i: pair((data[i, k], data[i, k] * data[i, k]), axis=k))
    else:
        odd = te.comm_reducer(lambda a, b: a + b + a * b, lambda t: te.const(0, t), "odd")
        out = (over(lambda i: odd(data[i, k] * te.const(0.25, dtype), axis=k)),)
    tensors = (data, *out)
    right = accepted_values(te.ComputeDAG(tensors), {data: x})
    got = outputs(tensors, x)
    for t, values in nonempty(list(zip(out, got, strict=True))):
        assert mismatch(values, right[t]) == ""
        assert mismatch(poison(t.shape, t.dtype), right[t]) != ""


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_one_meaning_on_every_way(dtype: str) -> None:
    """Ten thousand ones: rounded at each step, a sum of bfloat16 stays at 256."""
    n = 10000
    data, k = te.placeholder((1, n), dtype, "data"), te.reduce_axis((0, n), "k")
    out = te.compute((1,), lambda i: te.sum(data[i, k] * te.const(1 / 64, dtype), axis=k), "out")
    ones, tensors = np.ones((1, n), dtype), (data, out)
    want = np.array([n / 64]).astype(dtype)
    np.testing.assert_array_equal(evaluate([out], {data: ones})[out], want)
    np.testing.assert_array_equal(outputs(tensors, ones)[0], want)
    got = poison((1,), dtype)
    codegen_c.build(te.lower(te.ComputeDAG(tensors).init_state, tensors))(ones, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_schedules_change_no_bit_of_a_stored_product(seed: int, gpu: bool) -> None:
    a, b = te.placeholder((6, 40), "bfloat16", "a"), te.placeholder((40, 5), "bfloat16", "b")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((6, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    dag = te.ComputeDAG((a, b, c))
    rng = np.random.default_rng(seed)
    x, y = [rng.integers(-8, 9, t.shape).astype(t.dtype) for t in (a, b)]  # every partial sum is exact in float32
    _, func = Fuzzer(dag, rng, gpu).draw()
    got = poison(c.shape, c.dtype)
    run(func, [x, y, got])
    np.testing.assert_array_equal(got, (x.astype("float64") @ y.astype("float64")).astype(c.dtype))


def test_a_program_that_rounds_at_each_step_is_refused() -> None:
    """The search that found 256 where 1,019.8 is right."""
    rng = np.random.default_rng(0)
    a, b = te.placeholder((4, 4096), "bfloat16", "a"), te.placeholder((4096, 4), "bfloat16", "b")
    k = te.reduce_axis((0, 4096), "k")
    c = te.compute((4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    x, y = [rng.uniform(0, 1, t.shape).astype("bfloat16") for t in (a, b)]
    right = accepted_values(te.ComputeDAG((a, b, c)), {a: x, b: y})[c]
    total = np.zeros((4, 4), "bfloat16")
    for t in range(4096):
        total = total + x[:, t, None] * y[None, t]
    assert float(total.max()) <= 256
    assert mismatch(total, right) != ""
    assert mismatch((x.astype("float64") @ y.astype("float64")).astype("bfloat16"), right) == ""


def test_a_conversion_of_a_reduction_is_an_operation_of_its_own() -> None:
    data, k = te.placeholder((3, 8), "float32", "data"), te.reduce_axis((0, 8), "k")
    out = te.compute((3,), lambda i: te.sum(data[i, k], axis=k).astype("float16"), "out")
    assert [op.name for op in te.ComputeDAG((data, out)).ops] == ["data", "out.sum", "out"]
    x = np.arange(24, dtype="float32").reshape(3, 8)
    np.testing.assert_array_equal(outputs((data, out), x)[0], x.sum(axis=1).astype("float16"))


def half_chain(length: int, rng: np.random.Generator) -> tuple[te.Tensor, ...]:
    """Elementwise stages of float16, each of two of those before it."""
    given = [te.placeholder((512,), "float16", f"g{k}") for k in range(2)]
    made: list[te.Tensor] = list(given)
    for n in range(length):
        a, b = [made[int(rng.integers(len(made)))] if n else given[k] for k in range(2)]
        op = "+-*"[int(rng.integers(3))]
        body = {"+": lambda i, a=a, b=b: a[i] + b[i], "-": lambda i, a=a, b=b: a[i] - b[i],
                "*": lambda i, a=a, b=b: a[i] * b[i]}[op]  # fmt: skip
        made.append(te.compute((512,), body, f"t{n}"))
    return (*given, te.compute((512,), lambda i: made[-1][i] - made[2][i], "out"))


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_inlining_changes_no_bit_of_float16(seed: int, vectorized: bool) -> None:
    rng = np.random.default_rng(seed)
    tensors = half_chain(6, rng)
    x = [rng.uniform(-2, 2, 512).astype("float16") for _ in range(2)]
    want = evaluate([tensors[-1]], dict(zip(tensors, x, strict=False)))[tensors[-1]]
    for inlined in (False, True):
        s = te.create_schedule(tensors[-1].op)
        for stage in s.stages:
            if inlined and stage.op.name.startswith("t"):
                stage.compute_inline()
        if vectorized:
            _, inner = s[tensors[-1]].split(s[tensors[-1]].op.axis[0], factor=16)
            s[tensors[-1]].vectorize(inner)
        got = np.full(512, np.nan, "float16")
        codegen_c.build(te.lower(s, tensors))(*x, got)
        np.testing.assert_array_equal(got, want)


def test_what_is_left_of_a_small_summand() -> None:
    a, b = [te.placeholder((16,), "float16", n) for n in "ab"]
    t = te.compute((16,), lambda i: a[i] + b[i], "t")
    u = te.compute((16,), lambda i: t[i] - a[i], "u")
    for inlined in (False, True):
        s = te.create_schedule(u.op)
        if inlined:
            s[t].compute_inline()
        got = np.full(16, np.nan, "float16")
        codegen_c.build(te.lower(s, [a, b, u]))(np.ones(16, "float16"), np.full(16, 2.0**-11, "float16"), got)
        np.testing.assert_array_equal(got, np.zeros(16))
