"""The verdicts of the verifier against an oracle that looks at every access: programs as drawn, and spoilt ones."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ansor
import te_lite as te
from ansor.sketch import generate_sketches
from te_lite.errors import InterpError, LowerError, UnsafeError
from te_lite.expr.expr import Binary, BufferLoad, Const, Expr, Var, as_expr, binary, const, if_then_else
from te_lite.expr.visit import transform
from te_lite.loops.stmt import (
    Alloc,
    Buffer,
    For,
    ForKind,
    If,
    LoweredFunc,
    Stmt,
    Store,
    bodies,
    map_exprs,
    seq,
    with_bodies,
)
from te_lite.lowering.lower import unverified
from te_lite.meaning.interp import run
from te_lite.verify import verify_access
from te_lite.verify.verify import Proven, Refuted, Unproven, verdict, verify
from tests.amount import examples
from tests.drawn_programs import drawn_program
from tests.every_access import first_fault
from tests.schedule_fuzz import Fuzzer, iterations
from tests.workloads import WORKLOADS

MOST_ITERATIONS = 4000
PER_KIND = 3
NAMES = ("matmul_relu", "conv2d_stride", "depthwise", "max_pool", "shuffle", "softmax")


# ------------------------------------------------------------------------------------------------ spoilt programs


def stmts_mapped(s: Stmt, f: dict[int, Stmt]) -> Stmt:
    """`s` with the statements of `f`, by identity, in place of others."""
    return f[id(s)] if id(s) in f else with_bodies(s, tuple([stmts_mapped(b, f) for b in bodies(s)]))


def every_stmt(s: Stmt) -> Iterator[Stmt]:
    yield s
    for b in bodies(s):
        yield from every_stmt(b)


def spoilt(func: LoweredFunc, rng: np.random.Generator) -> Iterator[tuple[str, LoweredFunc]]:
    """Programs with one thing wrong: an index, an extent raised, a guard dropped, a buffer shrunk, a divisor."""

    def one(kind: type) -> Stmt | None:
        found = [s for s in every_stmt(func.body) if isinstance(s, kind)]
        return found[int(rng.integers(len(found)))] if found else None

    store, loop, guard, alloc = one(Store), one(For), one(If), one(Alloc)
    if isinstance(store, Store):
        for by in (1, -1):
            new: Stmt = replace(store, index=binary("+", store.index, by))
            yield "index", replace(func, body=stmts_mapped(func.body, {id(store): new}))
            read = Store(store.buffer, store.index, _shifted_load(store.value, by))
            yield "read", replace(func, body=stmts_mapped(func.body, {id(store): read}))
    if isinstance(loop, For):
        longer = replace(loop, extent=loop.extent + 1)
        yield "extent", replace(func, body=stmts_mapped(func.body, {id(loop): longer}))
    if isinstance(guard, If):
        yield "guard", replace(func, body=stmts_mapped(func.body, {id(guard): guard.then}))
    if isinstance(alloc, Alloc):
        yield "allocation", replace(func, body=_shrunk(func.body, alloc.buffer))
    for by in (1, -1):
        yield "divisor", replace(func, body=map_exprs(func.body, partial(transform, f=partial(_divided, by=by))))


def _shifted_load(e: Expr, by: int) -> Expr:
    return transform(e, lambda x: BufferLoad(x.buffer, binary("+", x.index, by)) if isinstance(x, BufferLoad) else None)


def _divided(x: Expr, by: int) -> Expr | None:
    match x:
        case Binary(op="//" | "%" as op, a=a, b=Const(value=value)) if value + by > 0:
            return Binary(op, a, Const(int(value) + by, a.dtype))
    return None


def _shrunk(s: Stmt, buffer: Buffer) -> Stmt:
    small = Buffer(buffer.name, buffer.dtype, (max(buffer.size - 1, 0),), buffer.scope)

    def load(x: Expr) -> Expr | None:
        return BufferLoad(small, x.index) if isinstance(x, BufferLoad) and x.buffer is buffer else None

    def visit(x: Stmt) -> Stmt:
        x = with_bodies(x, tuple([visit(b) for b in bodies(x)]))
        if isinstance(x, Alloc | Store) and x.buffer is buffer:
            return replace(x, buffer=small)
        return x

    return visit(map_exprs(s, lambda e: transform(e, load)))


def check(func: LoweredFunc, tally: Counter[str], name: str) -> None:
    """Proven means that no access is outside, refuted in `in_bounds` that one is."""
    found, fault = verdict(func), first_fault(func)
    tally[f"{name} {'outside' if fault else 'inside'}"] += 1
    assert not (isinstance(found, Proven) and fault), f"{name}: proven, but {fault}\n{func}"
    wrongly = isinstance(found, Refuted) and found.law == "in_bounds" and not fault
    assert not wrongly, f"{name}: {found}, but all are inside\n{func}"


def random_programs(gpu: bool) -> Iterator[tuple[LoweredFunc, np.random.Generator]]:
    for name, i in itertools.product(NAMES, range(PER_KIND)):
        rng = np.random.default_rng([14, i])
        func = Fuzzer(te.ComputeDAG(WORKLOADS[name]()), rng, gpu).draw()[1]
        if iterations(func.body) <= MOST_ITERATIONS:
            yield func, rng


@pytest.mark.parametrize("few", [verify_access.FEW_POINTS, 0], ids=["points", "forms"])
@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.one_in(3)
def test_verdicts_agree_with_every_access(gpu: bool, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_access, "FEW_POINTS", few)
    tally: Counter[str] = Counter()
    for func, rng in random_programs(gpu):
        check(func, tally, "as drawn")
        for name, wrong in spoilt(func, rng):
            check(wrong, tally, name)
    assert tally["as drawn inside"] > 5 and not tally["as drawn outside"]
    for name in ("index", "read", "extent", "allocation"):
        assert tally[f"{name} outside"] > 2, tally


# -------------------------------------------------------------------------------------------------- random indices

K, J = Var("i"), Var("j")
numbers = st.integers(-6, 12)


@st.composite
def indices(draw: st.DrawFn, depth: int = 3) -> Expr:
    """Sums, products, quotients, remainders, minima and maxima of two loop variables."""
    if depth == 0:
        return draw(st.sampled_from([K, J])) if draw(st.booleans()) else as_expr(draw(numbers))
    op = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]))
    a = draw(indices(depth - 1))
    b = as_expr(draw(st.integers(1, 7))) if op in ("*", "//", "%") else draw(indices(depth - 1))
    return binary(op, a, b)


@examples(100)
@given(indices(), indices(2), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers, st.booleans(),
       st.sampled_from([0, verify_access.FEW_POINTS]))  # fmt: skip
def test_random_indices_under_a_condition(
    index: Expr, left: Expr, op: str, right: int, negated: bool, few: int
) -> None:
    x = Buffer("x", "float32", (9,))
    cond = te.expr.expr.compare(op, left, right)
    value = if_then_else(te.logical_not(cond) if negated else cond, x[index], const(0.0))
    body = For(K, 5, ForKind.SERIAL, For(J, 7, ForKind.SERIAL, Store(Buffer("y", "float32", (1,)), as_expr(0), value)))
    func = LoweredFunc("f", (x, body.body.body.buffer), body)  # type: ignore[attr-defined]
    known = verify_access.FEW_POINTS
    try:
        verify_access.FEW_POINTS = few
        check(func, Counter(), "index")
        assert isinstance(verdict(func), Proven) == (first_fault(func) is None), "35 points are few"
    finally:
        verify_access.FEW_POINTS = known


# --------------------------------------------------------------------------------------------------- single programs


def test_a_backward_read_of_one_element_is_refuted() -> None:
    """`t = x + 1; s = t * 2; y[i] = s[8 - i]`, with `t` given room for one element and read where it began at i = 0."""
    x, y = Buffer("x", "float32", (9,)), Buffer("y", "float32", (9,))
    s, t = Buffer("s", "float32", (1,)), Buffer("t", "float32", (1,))
    fill = Store(t, as_expr(0), x[K * -1 + 8] + 1.0)
    double = Store(s, as_expr(0), t[K * -1] * 2.0)
    body = Alloc(s, Alloc(t, seq(fill, double, Store(y, K, s[0]))))
    func = LoweredFunc("f", (x, y), For(K, 9, ForKind.SERIAL, body))
    found = verdict(func)
    assert isinstance(found, Refuted) and found.law == "in_bounds"
    assert found.sentence.startswith("t[-8] in `s[0] = t[i*-1]*2.0f` is outside of 1 elements where i=8")
    with pytest.raises(UnsafeError, match=r"f: in_bounds: t\[-8\]"):
        verify(func)


def fused(extent: int, size: int, index: Expr) -> LoweredFunc:
    x = Buffer("x", "float32", (size,))
    return LoweredFunc("f", (x,), For(K, extent, ForKind.SERIAL, Store(x, index, const(0.0))))


WIDE = 46341 * 46341


@pytest.mark.parametrize(("func", "kind"), [
    (fused(WIDE, WIDE, K), Proven),
    (fused(WIDE, WIDE - 1, K), Refuted),
    (fused(WIDE, WIDE, K // 46341 * 46341 + K % 46341), Proven),
    (fused(100_000, 100_000, K * K // 100_000), Proven),
    (fused(100_000, 99_998, K * K // 100_000), Refuted),
    (fused(1 << 70, 1 << 70, K), Proven),
    (fused(1 << 40, 9, K % 10), Refuted),
    (fused(1 << 40, 1 << 40, K * K // (1 << 40)), Proven),
    (fused(1 << 40, 1 << 40, K * (K - 1) // (1 << 40)), Unproven),
])  # fmt: skip
def test_extents_and_indices_of_more_than_32_and_64_bits(func: LoweredFunc, kind: type) -> None:
    assert isinstance(verdict(func), kind)


def test_what_a_schedule_gives_with_a_fused_axis_of_more_than_32_bits_is_proven() -> None:
    x = te.placeholder((46341, 46341), "int8", "x")
    y = te.compute((46341, 46341), lambda i, j: x[i, j] + x[j, i], name="y")
    s = te.create_schedule(y.op)
    s[y].fuse(*s[y].op.axis)
    assert isinstance(verdict(unverified(s, [x, y])), Proven)


@pytest.mark.unverified
@pytest.mark.parametrize("clip", [True, False])
def test_an_index_from_memory_is_proven_when_it_is_clipped(clip: bool) -> None:
    x, at = te.placeholder((9,), name="x"), te.placeholder((4,), "int32", "at")

    def index(i: Expr) -> Expr:
        return te.minimum(te.maximum(at[i], 0), 8) if clip else at[i]

    y = te.compute((4,), lambda i: x[index(i)], name="y")
    found = verdict(unverified(te.create_schedule(y.op), [x, at, y]))
    assert isinstance(found, Proven if clip else Unproven)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_gathered_elements_are_proven(dtype: str) -> None:
    x, at = te.placeholder((5, 7), name="x"), te.placeholder((5, 4), dtype, "at")
    several = te.placeholder((2, 3), dtype, "several")
    for out in (te.topi.gather(x, 1, at), te.topi.gather_nd(x, several), te.topi.take(x, at, 0, "fast")):
        args = [x, several if out.op.tag == "T_gather_nd" or out.ndim == 1 else at, out]
        assert isinstance(verdict(unverified(te.create_schedule(out.op), args)), Proven)


Reads = Callable[[te.Tensor, te.Tensor, Expr, Expr], Expr]
READS: dict[str, Reads] = {  # of an argument, and of another stage that reads its own element of that
    "own": lambda t, v, i, j: t[i, j] + t[i, j],
    "backward": lambda t, v, i, j: t[i, j] + t[5 - i, j],
    "backward only": lambda t, v, i, j: t[5 - i, j] * 2.0,
    "turned": lambda t, v, i, j: t[i, j] + t[j, i],
    "one row": lambda t, v, i, j: t[i, j] + t[0, j],
    "a neighbour": lambda t, v, i, j: if_then_else(i > 0, t[binary("max", i - 1, 0), j], 0.0) + t[i, j],
    "by two": lambda t, v, i, j: t[i, j] + v[j, i],
}


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("reduces", [True, False])
def test_a_search_draws_no_races_of_arguments_that_are_read(reduces: bool, target: str) -> None:
    x, r = te.placeholder((6, 6), name="x"), te.reduce_axis((0, 3), name="r")
    t = te.compute((6, 6), lambda i, j: te.sum(x[i, j] * 2.0, axis=r) if reduces else x[i, j] * 2.0, name="t")
    v = te.compute((6, 6), lambda i, j: te.exp(t[i, j]), name="v")
    where, rng = ansor.Target(target), np.random.default_rng(0)
    hardware = ansor.HardwareParams.for_target(where)
    inside: Counter[str] = Counter()
    for name, reads in READS.items():
        u = te.compute((6, 6), lambda i, j, reads=reads: reads(t, v, i, j), name="u")
        dag = te.ComputeDAG([x, t, u])
        sketches = generate_sketches(dag, where, hardware)
        count = 8 if target == "c" else 2
        drawn = [drawn_program(sketches[k % len(sketches)], where, hardware, rng) for k in range(count)]
        for state in filter(None, drawn):
            assert isinstance(verdict(unverified(state)), Proven), name
            inside[name] += any(s.op.name == "t" and s.attach is not None for s in state.stages)
    assert inside["own"] > 0 or target == "cuda"


def bound(reads: Reads, reduces: bool, tags: tuple[str, ...], at: int) -> te.LoweredFunc:
    """`t` inside of a loop of its reader `u`, whose loops are bound to `tags`."""
    x, r = te.placeholder((6, 6), name="x"), te.reduce_axis((0, 3), name="r")
    t = te.compute((6, 6), lambda i, j: te.sum(x[i, j] * 2.0, axis=r) if reduces else x[i, j] * 2.0, name="t")
    u = te.compute((6, 6), lambda i, j: reads(t, t, i, j), name="u")
    s = te.create_schedule([t.op, u.op])
    for axis, tag in zip(s[u].op.axis, tags, strict=True):
        if tag:
            s[u].bind(axis, te.thread_axis(tag))
    s[t].compute_at(s[u], s[u].op.axis[at])
    return unverified(s, [x, t, u])


@pytest.mark.unverified
@pytest.mark.parametrize("tags", [
    ("threadIdx.x", ""), ("", "threadIdx.x"), ("threadIdx.x", "threadIdx.y"), ("threadIdx.y", "threadIdx.x"),
    ("blockIdx.x", "threadIdx.x"), ("threadIdx.x", "blockIdx.x")])  # fmt: skip
@pytest.mark.one_in(2)
def test_threads_race_where_the_interpreter_finds_it(tags: tuple[str, ...]) -> None:
    """Of an argument that is computed inside of its reader; the interpreter looks at every element that is touched."""
    tally: Counter[str] = Counter()
    for name, reduces, at in itertools.product(READS, (True, False), (0, 1)):
        try:
            func = bound(READS[name], reduces, tags, at)
        except LowerError:
            continue
        found, race = verdict(func), None
        try:
            run(func, [np.zeros((6, 6), "float32") for _ in func.args])
        except InterpError as error:
            race = error
        tally[type(found).__name__] += 1
        assert isinstance(found, Proven if race is None else Refuted), f"{name}: {found}, {race}\n{func}"
    assert tally["Proven"] > 1 and tally["Refuted"] > 1, tally
