"""The text of kernels: launches, arguments, storage, unrolling, index arithmetic, dtypes, refusals."""

from __future__ import annotations

import re
import shutil
import sys

import numpy as np
import pytest

from codegen_cuda import EmitError, emit
from te_lite.expr.expr import Expr, Var, as_expr, binary, call, cast, compare, const, if_then_else, minimum, select
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, If, LoweredFunc, Stmt, Store, ThreadReduce, seq
from tests.codegen_cuda.golden_states import golden_func
from tests.codegen_cuda.gpu_nests import check, func, kernel, nest, sum_of, v

S, U, V, P = ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED, ForKind.PARALLEL
needs_emulator = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")


def threaded(args: list[Buffer], threads: int, body: Stmt, t: Var) -> LoweredFunc:
    return func(args, kernel([("threadIdx.x", t, threads)], body))


def elementwise(dtype: str, value: Expr, inputs: list[Buffer], i: Var, size: int) -> LoweredFunc:
    o = Buffer("O", dtype, (size,))
    return threaded([*inputs, o], size, Store(o, i, value), i)


# ------------------------------------------------------------------------------------------------ programs


@needs_emulator
def test_kernels_get_only_what_they_use_and_scratch_lies_between_them() -> None:
    t, u, b = v("t", "u", "b")
    a, c, o, tmp = [Buffer(n, "float32", (24,)) for n in ("A", "C", "O", "tmp")]
    first = kernel([("blockIdx.x", b, 4), ("threadIdx.x", t, 6)], Store(tmp, b * 6 + t, a[b * 6 + t] * 2))
    second = kernel([("threadIdx.x", u, 24)], Store(o, u, tmp[23 - u] + c[u]))
    program = check(func([a, c, o], Alloc(tmp, seq(first, second)), "two"))
    assert [k.name for k in program.kernels] == ["two_kernel0", "two_kernel1"]
    assert [k.arguments for k in program.kernels] == [(0, 3), (1, 2, 3)]
    assert [(k.grid, k.block) for k in program.kernels] == [((4, 1, 1), (6, 1, 1)), ((1, 1, 1), (24, 1, 1))]
    assert program.buffers == (a, c, o, tmp) and program.scratch == (tmp,)
    assert "const float *__restrict__ A, float *__restrict__ tmp" in program.source
    assert "float *__restrict__ O, const float *__restrict__ tmp" in program.source


@needs_emulator
def test_three_launch_axes() -> None:
    names = v("bz", "by", "bx", "tz", "ty", "tx")
    extents = (2, 3, 1, 2, 1, 5)
    tags = ("blockIdx.z", "blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
    index: Expr = as_expr(0)
    for var, n in zip(names, extents, strict=True):
        index = binary("+", binary("*", index, n), var)
    a, o = Buffer("A", "float32", (60,)), Buffer("O", "float32", (60,))
    program = check(func([a, o], kernel(list(zip(tags, names, extents, strict=True)), Store(o, index, a[59 - index]))))
    assert (program.kernels[0].grid, program.kernels[0].block) == ((1, 3, 2), (5, 1, 2))
    assert "blockIdx.x" not in program.source and "__launch_bounds__(10)" in program.source


@needs_emulator
def test_nests_without_threads_run_in_one_thread() -> None:
    i, j, t = v("i", "j", "t")
    a, o, p, tmp = [Buffer(n, "float32", (7,)) for n in ("A", "O", "P", "tmp")]
    body = seq(
        nest((i, 7, P), Store(o, i, a[i] + 1)),
        Store(o, const(3), as_expr(9.0)),
        Alloc(tmp, seq(nest((j, 7, S), Store(tmp, j, o[j] * 2)), nest((j, 7, V), Store(p, j, tmp[6 - j])))),
        kernel([("threadIdx.x", t, 7)], Store(o, t, p[t])),
    )
    program = check(func([a, o, p], body))
    assert [k.block for k in program.kernels] == [(1, 1, 1), (7, 1, 1)]


def test_the_header_names_the_program_its_launches_and_the_comment() -> None:
    (t,) = v("t")
    a, o = Buffer("A", "float32", (4, 8)), Buffer("O", "float32", (4, 8))
    f = func([a, o], kernel([("threadIdx.x", t, 32)], Store(o, t, a[t])), "copy")
    head = emit(f, "task: copy */\nsecond line").source.split("*/")[0]
    assert "copy: A[4, 8] float32, O[4, 8] float32" in head
    assert "copy_kernel0: grid 1 x 1 x 1, block 32 x 1 x 1, 0 bytes of shared memory" in head
    assert "task: copy * /" in head and " * second line" in head


@needs_emulator
def test_names_are_identifiers_of_their_own() -> None:
    t, i, other = Var("threadIdx.x"), Var("k.0"), Var("k_0")
    a, o = Buffer("half", "float32", (5, 3)), Buffer("float4", "float32", (5, 3))
    local = Buffer("A.local", "float32", (3,), "local")
    body = Alloc(local, seq(nest((i, 3, S), Store(local, i, a[t * 3 + i])), nest((other, 3, S),
                 Store(o, t * 3 + other, local[2 - other]))))  # fmt: skip
    source = check(threaded([a, o], 5, body, t)).source
    assert "float A_local[3];" in source and "half_1" in source and "float4_1" in source and "cuda_fp16" not in source


# -------------------------------------------------------------------------------------------------- storage


@needs_emulator
@pytest.mark.parametrize(("size", "dynamic"), [(3072, 0), (3073, 2 * 8 * 3073 + 16)])
def test_shared_memory_beyond_48_kib_is_asked_for_at_launch(size: int, dynamic: int) -> None:
    t, i, j = v("t", "i", "j")
    a, o = Buffer("A", "float64", (size,)), Buffer("O", "float64", (size,))
    x, y = Buffer("x", "float64", (size,), "shared"), Buffer("y", "float64", (size,), "shared")
    steps = -(-size // 64)

    def each(var: Var, store: Stmt) -> Stmt:
        return For(var, steps, S, guard(var, store))

    def guard(var: Var, store: Stmt) -> Stmt:
        return If(compare("<", var * 64 + t, size), store)

    body = seq(
        each(i, seq(Store(x, i * 64 + t, a[i * 64 + t]), Store(y, i * 64 + t, a[i * 64 + t] * 2))),
        Barrier(),
        each(j, Store(o, j * 64 + t, x[size - 1 - (j * 64 + t)] + y[j * 64 + t])),
    )
    program = check(threaded([a, o], 64, Alloc(x, Alloc(y, body)), t))
    k = program.kernels[0]
    assert k.dynamic_bytes == dynamic and k.shared_bytes == (dynamic or 49152)
    assert ("extern __shared__ __align__(16)" in program.source) == bool(dynamic)
    assert "(double *)(shared_memory + 0)" in program.source or not dynamic


def test_register_arrays_are_declared_once_at_the_top() -> None:
    lines = emit(golden_func(60)).source.splitlines()
    assert lines.index("  float C_local[32];") < lines.index("  for (int k_0 = 0; k_0 < 64; ++k_0) {")


# ------------------------------------------------------------------------------------------------ unrolling


def loops_over(source: str) -> dict[str, bool]:
    """Each loop variable and whether a pragma unrolls it."""
    lines = source.splitlines()
    found = [(m[1], lines[k - 1].strip() == "#pragma unroll") for k, x in enumerate(lines)
             if (m := re.search(r"for \(int (\w+) = 0", x))]  # fmt: skip
    return dict(found)


def test_loops_that_index_registers_are_unrolled_and_others_are_not() -> None:
    loops = loops_over(emit(golden_func(60)).source)
    assert not loops["k_0"] and not loops["k_2"] and not loops["ax0_ax1_0_0"]
    assert all(loops[name] for name in ("j_c_3", "i_c_4", "j_c_4", "i_3"))


def test_virtual_threads_are_copied_out() -> None:
    source = emit(golden_func(60)).source
    back = "((i_c_4 & 1) == 1 ? 1 - j_c_4 : j_c_4)"
    assert "i_1_j_1" not in source and f"C_local[i_c_4 * 4 + j_c_3 * 2 + {back} + 16] += " in source


def test_arrays_beyond_the_registers_stay_in_memory() -> None:
    loops = loops_over(emit(golden_func(22)).source)
    of_starts = [loops[name] for name in loops if name.endswith("_init")]
    assert of_starts and not any(of_starts)


def test_kernels_with_many_registers_say_that_one_block_is_enough() -> None:
    assert "__launch_bounds__(64, 1)" in emit(golden_func(60)).source
    assert "__launch_bounds__(512)" in emit(golden_func(54)).source


# ------------------------------------------------------------------------------------------ index arithmetic


def test_powers_of_two_are_shifts_and_masks() -> None:
    source = emit(golden_func(54)).source
    assert "(int)threadIdx.x >> 6" in source and "((int)threadIdx.x & 63)" in source
    assert "/" not in source.split("*/")[1] and "%" not in source


@needs_emulator
def test_division_rounds_down_also_below_zero() -> None:
    (t,) = v("t")
    outs = [Buffer(f"O{k}", "int32", (60,)) for k in range(4)]
    x = t - 31
    stores = [Store(o, t, e) for o, e in zip(outs, (x // 8, x % 8, x // 7, x % 7), strict=True)]
    source = check(threaded(outs, 60, seq(*stores), t)).source
    assert ">> 3" in source and "& 7" in source and "floordiv_i32(" in source and "floormod_i32(" in source


@needs_emulator
def test_division_of_nonnegative_operands_is_plain() -> None:
    (t,) = v("t")
    outs = [Buffer(f"O{k}", "int32", (60,)) for k in range(2)]
    source = check(threaded(outs, 60, seq(Store(outs[0], t, t // 7), Store(outs[1], t, t % 7)), t)).source
    assert "(int)threadIdx.x / 7" in source and "(int)threadIdx.x % 7" in source and "floordiv" not in source


@needs_emulator
def test_padding_reads_only_where_the_condition_holds() -> None:
    (t,) = v("t")
    a = Buffer("A", "float32", (5,))
    inside = if_then_else(compare("<", t, 5), a[t], as_expr(-1.0))
    check(elementwise("float32", inside, [a], t, 16))


# --------------------------------------------------------------------------------------------------- dtypes

UNARY = ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "abs", "floor", "ceil", "round",
         "trunc", "sin", "cos", "sinh", "cosh", "atan", "asin", "acos",
         "asinh", "acosh", "atanh"]  # fmt: skip


@needs_emulator
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_functions(dtype: str) -> None:
    (t,) = v("t")
    a = Buffer("A", dtype, (16,))
    outs = [Buffer(f"O{k}", dtype, (16,)) for k in range(len(UNARY))]
    f = threaded([a, *outs], 16, seq(*[Store(o, t, call(n, a[t])) for o, n in zip(outs, UNARY, strict=True)]), t)
    program = check(f, inputs=[np.random.default_rng(0).uniform(0.3, 2.0, 16).astype(dtype)])
    assert ("#include <cuda_fp16.h>" in program.source) == (dtype == "float16")


@needs_emulator
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "int8", "uint8", "int16"])
def test_arithmetic(dtype: str) -> None:
    (t,) = v("t")
    a, c = Buffer("A", dtype, (16,)), Buffer("C", dtype, (16,))
    x, y = a[t], c[t]
    values = [x + y, x - y, x * y, binary("min", x, y), binary("max", x, y), select(compare("<", x, y), x, y)]
    values += [minimum(x, 3) + const(2, dtype)]
    if dtype not in ("int8", "uint8", "int16", "int32", "int64"):
        values += [x / (call("abs", y) + 1), binary("//", x, call("abs", y) + 1), binary("%", x, call("abs", y) + 1)]
    outs = [Buffer(f"O{k}", dtype, (16,)) for k in range(len(values))]
    check(threaded([a, c, *outs], 16, seq(*[Store(o, t, e) for o, e in zip(outs, values, strict=True)]), t))


@needs_emulator
@pytest.mark.parametrize("source", ["float16", "float32", "int8", "int32", "int64", "bool", "float64"])
def test_conversions(source: str) -> None:
    (t,) = v("t")
    kinds = ["float16", "float32", "float64", "int32", "int64", "bool"]
    a = Buffer("A", source, (16,))
    outs = [Buffer(f"O_{k}", k, (16,)) for k in kinds]
    check(threaded([a, *outs], 16, seq(*[Store(o, t, cast(o.dtype, a[t])) for o in outs]), t))


@needs_emulator
def test_odd_constants() -> None:
    (t,) = v("t")
    values = [
        const(float("inf"), "float32"), const(float("-inf"), "float64"), const(float("nan"), "float32"),
        const(-(2**31), "int32"), const(-(2**63), "int64"), const(2**40, "int64"), const(-65504.0, "float16"),
        const(float("inf"), "float16"), const(True, "bool"), const(1e-30, "float32"),
    ]  # fmt: skip
    outs = [Buffer(f"O{k}", e.dtype, (2,)) for k, e in enumerate(values)]
    check(threaded(outs, 2, seq(*[Store(o, t, e) for o, e in zip(outs, values, strict=True)]), t))


# -------------------------------------------------------------------------------------------------- refusals


def test_refusals_name_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emitter's own, for those that do not ask the verifier first."""
    monkeypatch.setattr(sys.modules["codegen_cuda.emission.emit"], "verify", lambda func: None)
    t, u, i = v("t", "u", "i")
    a = Buffer("A", "float32", (8,))
    store = Store(a, t, as_expr(1.0))
    inner = For(i, 2, S, For(t, 8, ForKind.THREAD, store, "threadIdx.x"))
    with pytest.raises(EmitError, match="stand outermost"):
        emit(func([a], kernel([("blockIdx.x", u, 2)], inner)))
    with pytest.raises(EmitError, match=r"one loop per launch axis, got axis='threadIdx.x'"):
        emit(func([a], kernel([("threadIdx.x", u, 2), ("threadIdx.x", t, 4)], store)))
    tmp = Buffer("tmp", "float32", (8,))
    with pytest.raises(EmitError, match="tmp: threads cannot allocate global memory"):
        emit(func([a], kernel([("threadIdx.x", t, 8)], Alloc(tmp, Store(tmp, t, as_expr(1.0))))))
    for tag, extent in (("blockIdx.x", 2**31), ("blockIdx.y", 65536), ("blockIdx.z", 65536), ("threadIdx.z", 65)):
        with pytest.raises(EmitError, match=f"{tag}: no device has more than {extent - 1} along it, got {extent=}"):
            emit(func([a], kernel([(tag, t, extent)], Store(a, t, as_expr(1.0)))))
    total = Buffer("total", "float32", (1,), "local")
    reduce = Alloc(total, ThreadReduce(sum_of("float32"), (total,), (a[i],), i, 8))
    with pytest.raises(EmitError, match="i is no thread axis"):
        emit(func([a], kernel([("threadIdx.x", t, 8)], For(i, 8, S, reduce))))


@needs_emulator
def test_stores_to_one_element_go_through_a_register() -> None:
    (t,) = v("t")
    a, o, p = [Buffer(n, "float32", (8,)) for n in ("A", "O", "P")]
    run = [Store(o, t + 1, as_expr(0.0)), *[Store(o, t + 1, o[t + 1] + a[t] * k) for k in (2.0, 3.0, 4.0)]]
    other = [Store(p, t, as_expr(1.0)), Store(p, t, p[t] * 2), Store(p, t + 1, p[t] + 1)]
    last = seq(Store(o, const(0), as_expr(5.0)), Store(p, const(0), as_expr(6.0)))
    source = check(func([a, o, p], kernel([("threadIdx.x", t, 1)], seq(*run, *other, last)))).source
    assert source.count("O_value") == 5 and "P_value" not in source


@needs_emulator
def test_a_run_ends_where_another_element_is_read() -> None:
    (t,) = v("t")
    a, o = Buffer("A", "float32", (4,)), Buffer("O", "float32", (8,))
    stores = [Store(o, t + 4, a[t]), Store(o, t, a[t] * 2), Store(o, t, o[t] + 1), Store(o, t, o[t] + o[t + 4]),
              Store(o, t, o[t] * 3)]  # fmt: skip
    source = check(threaded([a, o], 4, seq(*stores), t)).source
    assert "_value" not in source
