"""Programs for all sizes compute what NumPy says, at every size of a small range and at the ends of a large one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ansor
import codegen_c
import te_lite as te
from ansor.core.errors import BackendError
from ansor.core.target import registry
from ansor_ext.open_sizes.closed import closed
from codegen_c.errors import CallError
from te_lite.meaning.interp import run
from te_lite.verify.verify import verify
from tests.ansor_ext.open_sizes.programs import CASES, Case, arrays, points
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer

SEED = 20261201
DRAWS = 3


@pytest.fixture(params=sorted(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check(case: Case, func: te.LoweredFunc, sizes: tuple[int, ...], module: codegen_c.Module) -> None:
    """The interpreter and C at some sizes, beside NumPy; and the verifier on the program of these sizes."""
    *given, out = arrays(case, sizes, np.random.default_rng(sizes))
    expected, again = case.expected(*given), out.copy()
    fixed = closed(func, dict(zip(case.sizes, sizes, strict=True)))
    verify(fixed)
    run(fixed, [*given, out])
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    module(*given, again)
    np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-5)


def test_default_schedules(name: str) -> None:
    case = CASES[name](1, 9)
    func = te.lower(te.ComputeDAG(case.tensors).init_state)
    module = codegen_c.build(func)
    for sizes in nonempty(points(case, 1, 9)):
        check(case, func, sizes, module)


@pytest.mark.parametrize("draw", range(DRAWS))
def test_random_schedules(name: str, draw: int) -> None:
    """Splits by constants, fused, reordered, vectorized and parallel loops, caches and stages computed at loops."""
    case = CASES[name](1, 20)
    state, _ = Fuzzer(te.ComputeDAG(case.tensors), np.random.default_rng([SEED, draw]), False).draw()
    func = te.lower(state)
    module = codegen_c.build(func)
    for sizes in nonempty(points(case, 1, 20)[:: 1 if len(case.sizes) == 1 else 2]):
        check(case, func, sizes, module)


def test_the_ends_of_a_large_range(name: str) -> None:
    case = CASES[name](3, 300)
    state, _ = Fuzzer(te.ComputeDAG(case.tensors), np.random.default_rng([SEED, 99]), False).draw()
    func = te.lower(state)
    module = codegen_c.build(func)
    ends = itertools.product((3, 16, 33, 300), repeat=len(case.sizes))
    for sizes in nonempty(ends):
        *given, out = arrays(case, sizes, np.random.default_rng(sizes))
        module(*given, out)
        np.testing.assert_allclose(out, case.expected(*given), rtol=1e-4, atol=1e-4)


def tiled(most: int) -> tuple[te.Schedule, list[te.Tensor]]:
    case = CASES["rows_by_matrix"](1, most)
    s = te.create_schedule(case.tensors[-1])
    i, j = s[case.tensors[-1]].op.axis
    outer, _ = s[case.tensors[-1]].split(i, factor=16)
    s[case.tensors[-1]].parallel(outer)
    s[case.tensors[-1]].vectorize(j)
    return s, list(case.tensors)


def test_the_text_names_sizes_and_loops_end_with_them() -> None:
    text = str(te.lower(*tiled(4096)))
    assert "A: float32[n, 12], B: float32[12, 10], D: float32[n, 10]" in text
    assert "parallel i_0 in 0..256:\n        if i_0 < (n + 15)//16:\n" in text
    source = codegen_c.emit(te.lower(*tiled(4096)))
    assert "float *restrict D, int64_t n)" in source
    assert "i_0 < (n + 15) / 16; ++i_0" in source


def test_the_greatest_size_costs_nothing_to_prove() -> None:
    """The same program, but for its numbers, and as many steps: nothing is tried out."""
    small, large = [str(te.lower(*tiled(most))) for most in (64, 1 << 22)]
    assert small.replace("0..4:", "0..262144:").replace("[64,", "[4194304,").replace("0..64:", "0..4194304:") == large


def test_sizes_out_of_bounds_are_refused() -> None:
    module = codegen_c.build(te.lower(*tiled(100)))
    b = np.ones((12, 10), "float32")
    with pytest.raises(
        CallError,
        match=r"^default_function: argument 0 \(A\[n, 12\]\): n must be 1 to 100, the same in all arguments, got 101$",
    ):
        module(np.ones((101, 12), "float32"), b, np.empty((101, 10), "float32"))
    with pytest.raises(CallError, match=r"D\[n, 10\]\): n must be 1 to 100, the same in all arguments, got 6"):
        module(np.ones((5, 12), "float32"), b, np.empty((6, 10), "float32"))
    with pytest.raises(CallError, match="of shape"):
        module(np.ones((5, 11), "float32"), b, np.empty((5, 10), "float32"))


def test_reads_beyond_an_open_extent_are_refused() -> None:
    """Inside for the greatest size, and for all others outside of the array."""
    n = te.size_var("n", 1, 64)
    a = te.placeholder((n,), name="A")
    for b, index in nonempty([
        (te.compute((n,), lambda i: a[i + 1], name="B"), "i [+] 1"),
        (te.compute((64,), lambda i: a[i], name="B"), "i"),
        (te.compute((n,), lambda i: a[te.if_then_else(i < 9, 9, i)], name="B"), ".*"),
    ]):  # fmt: skip
        with pytest.raises(te.LowerError, match=f"in_bounds.*index {index} of dimension 0 of A is below n|outside"):
            te.lower(te.create_schedule(b), [a, b])


def test_two_sizes_of_one_greatest_value_are_not_one() -> None:
    n, m = te.size_var("n", 1, 64), te.size_var("m", 1, 64)
    a = te.placeholder((m,), name="A")
    b = te.compute((n,), lambda i: a[i], name="B")
    with pytest.raises(te.LowerError, match="index i of dimension 0 of A is below m"):
        te.lower(te.create_schedule(b), [a, b])


def test_other_targets_make_no_function_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    registry.register_backend("toy", "examples.seams.custom_backend")
    s, args = tiled(100)
    with pytest.raises(BackendError, match=r"^target 'toy': .* are for targets c and cuda, got sizes=\(n,\)$"):
        ansor.build(te.lower(s, args), target="toy")


def test_bounds_are_needed() -> None:
    with pytest.raises(
        te.ExprError, match=r"n: a size has bounds, as in te.size_var\('n', 1, 4096\), got least=0 most=4"
    ):
        te.size_var("n", 0, 4)
    n = te.size_var("n", 1, 4)
    with pytest.raises(te.ExprError, match="every dimension must be a positive integer or a size_var"):
        te.placeholder((n * 2,), name="A")


def test_a_size_is_an_extent_of_an_argument() -> None:
    n, k = te.size_var("n", 1, 4), te.reduce_axis((0, te.size_var("k", 1, 4)), "k")
    a = te.placeholder((4,), name="A")
    read = te.compute((4,), lambda i: a[i] * n.astype("float32"), name="B")
    summed = te.compute((4,), lambda i: te.sum(a[i] * k.astype("float32"), axis=k), name="B")
    for name, b in nonempty((("n", read), ("k", summed))):
        assert [v.name for v in te.ComputeDAG([a, b]).sizes] == [name]
        with pytest.raises(te.LowerError, match=f"variables: the variable {name} of .* is the extent of no argument$"):
            te.lower(te.create_schedule(b), [a, b])
