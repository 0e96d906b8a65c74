"""The passes keep the meaning: random nests before and after them, run by the interpreter and as C."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import numpy as np
import pytest

import codegen_c
from codegen_c.indices import Indices
from codegen_c.promote import promote
from codegen_c.registers import scalarise
from codegen_c.vectorize import legalise, unroll
from te_lite.expr.expr import Expr, Var, cast, const, if_then_else, maximum
from te_lite.loops.stmt import Alloc, Buffer, For, If, LoweredFunc, Stmt, Store, seq, stmts_of
from te_lite.meaning.interp import run

from .c_programs import P, S, U, V, assert_close, func, nest, poisoned, random_array, v


def passes(f: LoweredFunc, options: codegen_c.Options) -> LoweredFunc:
    indices = Indices(f.body)
    body, lanes = legalise(f.body, options, indices)
    body = scalarise(promote(body, options, lanes, indices), options, lanes, indices)
    return LoweredFunc(f.name, f.args, body)


def random_program(rng: np.random.Generator) -> LoweredFunc:
    """acc[i, j] over split, fused and reordered loops, two reduction loops, perhaps guarded, in a local tile."""
    pick = lambda *options: options[int(rng.integers(len(options)))]  # noqa: E731
    ti, tj, tr, ts = pick(1, 2, 3, 4), pick(1, 3, 7, 8, 14, 16, 24, 33), pick(1, 4, 5), pick(1, 3)
    dtype, acc = pick(("float64", "float64"), ("int8", "int32"), ("int32", "int32"), ("float64", "float64"))
    rows, columns = 2 * ti, 2 * tj
    stride = pick(1, 1, 2)
    a = Buffer("a", dtype, (rows, tr * ts))
    b = Buffer("b", dtype, (tr * ts, stride * columns + 3))
    c = Buffer("c", acc, (rows, columns))
    io, jo, i, j, r, s, zi, zj, ci, cj, f = v("i.o", "j.o", "i", "j", "r", "s", "zi", "zj", "ci", "cj", "f")
    fused, local = bool(rng.integers(2)), bool(rng.integers(2))
    di, dj = (f // tj, f % tj) if fused else (i, j)
    t = Buffer("tile", acc, (ti, tj), "local") if local else c

    def at(x: Expr, y: Expr) -> Expr:
        return x * tj + y if local else (io * ti + x) * columns + jo * tj + y

    k, gi, gj = r * ts + s, io * ti + di, jo * tj + dj
    read = b[k * (stride * columns + 3) + gj * stride + pick(0, 2)]
    if rng.random() < 0.3:
        read = if_then_else(pick(gj + s > 2, r > 0, gi < 3), read, const(1, dtype))
    left, right = cast(acc, a[gi * (tr * ts) + k]), cast(acc, read)
    old = t[at(di, dj)]
    update = Store(t, at(di, dj), pick(old + left * right, maximum(old, left - right), left * right + old))
    spatial = [(f, ti * tj, pick(S, V, U))] if fused else [(i, ti, pick(S, U)), (j, tj, pick(S, V, V, U))]
    loops = [(r, tr, pick(S, U)), (s, ts, pick(S, U)), *spatial[:-1]]
    rng.shuffle(loops)  # type: ignore[arg-type]
    inner = If(gi + gj < pick(4, 9), update) if rng.random() < 0.15 else update
    work = nest(*loops, spatial[-1], inner)
    init = nest((zi, ti, S), (zj, tj, V), Store(t, at(zi, zj), const(2, acc)))
    body = seq(init, work)
    if local:
        out = Store(c, (io * ti + ci) * columns + jo * tj + cj, t[ci * tj + cj])
        body = Alloc(t, seq(body, nest((ci, ti, S), (cj, tj, pick(S, V)), out)))
    return func([a, b, c], nest((io, 2, P), (jo, 2, S), body), "fuzz")


def arrays(f: LoweredFunc, rng: np.random.Generator):
    return [*(random_array(rng, x) for x in f.args[:2]), poisoned(f.args[2])]


@pytest.mark.parametrize("seed", range(80))
def test_passes_keep_the_meaning(seed):
    rng = np.random.default_rng([1, seed])
    f = random_program(rng)
    options = codegen_c.Options(vector_bytes=[16, 32, 64][seed % 3], registers=[4, 12, 28][seed % 3])
    given = arrays(f, rng)
    want = [x.copy() for x in given]
    run(f, want)
    run(passes(f, options), given)
    np.testing.assert_array_equal(given[2], want[2])


@pytest.mark.parametrize("seed", range(12))
def test_compiled_programs_agree_with_the_interpreter(seed):
    rng = np.random.default_rng([2, seed])
    f = random_program(rng)
    given = arrays(f, rng)
    want = [x.copy() for x in given]
    run(f, want)
    codegen_c.build(f)(*given)
    wide = "float64" if f.args[2].dtype.startswith("float") else f.args[2].dtype
    assert_close(given[2], want[2].astype(wide), f.args[2].dtype)


def test_a_guard_inside_the_tile_prevents_promotion():
    a, c = Buffer("a", "float32", (9, 4)), Buffer("c", "float32", (4,))
    r, j = v("r", "j")
    update = Store(c, j, c[j] + a[r * 4 + j])
    plain = func([a, c], nest((r, 9, S), (j, 4, S), update))
    guarded = func([a, c], nest((r, 9, S), (j, 4, S), If(j < 3, update)))
    options = codegen_c.Options()
    assert any(isinstance(s, Alloc) for s in stmts_of(passes(plain, options).body))
    assert not any(isinstance(s, Alloc) for s in stmts_of(passes(guarded, options).body))


def test_the_outermost_nest_that_fits_is_promoted():
    """for k: for i (16): for j (4 vectors): 64 vectors do not fit, the 4 of one row do - but only inside k."""
    n = 64
    a, b, c = (Buffer(x, "float32", (n, n)) for x in "abc")
    k0, i, k1, j = v("k0", "i", "k1", "j")
    k = k0 * 8 + k1
    update = Store(c, i * n + j, c[i * n + j] + a[i * n + k] * b[k * n + j])
    f = func([a, b, c], nest((k0, 8, S), (i, 16, S), (k1, 8, S), (j, n, V), update))
    body = passes(f, codegen_c.Options()).body
    assert isinstance(body, For) and body.var is k0 and isinstance(body.body, For) and body.body.var is i
    assert isinstance(body.body.body, Alloc) and body.body.body.buffer.size == 64


def around_a_copy(rest: Callable[[Buffer, Buffer, Buffer, Var], Stmt]) -> LoweredFunc:
    """t = x; then for every k a copy u of t[k], what `rest(t, u, y, k)` does, and z[k] = t[k]."""
    x, y, z = (Buffer(n, "float32", (2,)) for n in "xyz")
    t, u = Buffer("t", "float32", (2,)), Buffer("u", "float32", (1,))
    i, k = v("i", "k")
    copied = Alloc(u, seq(Store(u, const(0), t[k]), rest(t, u, y, k)))
    after = nest((k, 2, S), seq(Store(y, k, const(0.0)), copied, Store(z, k, t[k])))
    return func([x, y, z], Alloc(t, seq(nest((i, 2, S), Store(t, i, x[i])), after)))


RESTS: dict[str, Callable[[Buffer, Buffer, Buffer, Var], Stmt]] = {
    "read": lambda t, u, y, k: Store(y, k, u[0] * const(2.0)),
    "read by a condition": lambda t, u, y, k: If(u[0] > const(0.0), Store(y, k, const(1.0))),
    "the other changes": lambda t, u, y, k: seq(Store(t, k, t[k] + const(1.0)), Store(y, k, u[0])),
    "the copy changes": lambda t, u, y, k: seq(Store(u, const(0), u[0] + const(1.0)), Store(y, k, u[0])),
    "the copy changes and goes back": lambda t, u, y, k: seq(
        Store(u, const(0), u[0] + const(1.0)), Store(y, k, u[0]), Store(t, k, u[0])
    ),
    "it goes back too early": lambda t, u, y, k: seq(
        Store(u, const(0), u[0] + const(1.0)),
        Store(t, k, u[0]),
        Store(u, const(0), u[0] + const(1.0)),
        Store(y, k, u[0]),
    ),
    "the copy changes after it went back": lambda t, u, y, k: seq(
        Store(t, k, u[0]), Store(u, const(0), u[0] + const(1.0)), Store(y, k, u[0])
    ),
}


@pytest.mark.parametrize("name", RESTS)
def test_copies_of_registers(name: str) -> None:
    f = around_a_copy(RESTS[name])
    x = np.array([1.5, -2.5], "float32")
    wanted, got = ([np.full(2, np.nan, "float32") for _ in range(2)] for _ in range(2))
    run(f, [x, *wanted])
    codegen_c.build(f)(x, *got)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("size", [28, 29])
def test_loops_are_not_written_out_for_elements_without_a_register(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Not even to find that out: it takes time, and text of hundreds of statements is thrown away."""
    a, b, kept = [Buffer(name, "float32", (size,)) for name in ("a", "b", "kept")]
    i, j = v("i", "j")
    body = Alloc(kept, seq(nest((i, size, S), Store(kept, i, a[i])), nest((j, size, S), Store(b, j, kept[j]))))
    calls = Mock(side_effect=unroll)
    monkeypatch.setattr("codegen_c.registers.unroll", calls)
    made = scalarise(body, codegen_c.Options(registers=28), set(), Indices(body))
    loops = [s for s in stmts_of(made) if isinstance(s, For)]
    assert (calls.call_count, len(loops)) == ((1, 0) if size == 28 else (0, 2))
