"""The schedule fuzzer finds compiler bugs: each is planted, and must be reported within 2,400 programs.

(Halide judges its fuzzers the same way.)  A bug counts as found when the verifier or the interpreter refuses a
program, or its result is wrong.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor_ext.pipeline import lowering as double_buffer
from te_lite.bounds import bounds, reads
from te_lite.computation import derive
from te_lite.expr import storage
from te_lite.expr.expr import binary, compare
from te_lite.loops.stmt import Barrier, For, Seq, Stmt, seq
from te_lite.lowering import edges, lower_facts, lower_nest, lower_point, sync, unroll, vthread
from te_lite.meaning.interp import run
from te_lite.schedule import loop_value, region
from te_lite.verify.verify import verify
from tests.oracle import Oracle
from tests.schedule_fuzz import Fuzzer
from tests.workloads import WORKLOADS

MAX_PROGRAMS = 2400
NAMES = ("matmul", "row_stats", "softmax", "double_matmul", "shuffle", "argmax", "conv2d_dilated", "matmul_relu")

Patch = Callable[[pytest.MonkeyPatch], None]
lowering = importlib.import_module("te_lite.lowering.lower")


def no_split_guard(m: pytest.MonkeyPatch) -> None:
    m.setattr(lower_point, "split_guards", lambda stage, variables, free: [])


def guard_one_too_far(m: pytest.MonkeyPatch) -> None:
    m.setattr(loop_value, "compare", lambda op, a, b: compare(op, a, b + 1))


def guard_one_too_early(m: pytest.MonkeyPatch) -> None:
    m.setattr(loop_value, "compare", lambda op, a, b: compare(op, a, b - 1))


def only_the_first_guard(m: pytest.MonkeyPatch) -> None:
    original = loop_value.split_guards
    m.setattr(lower_point, "split_guards", lambda stage, variables, free: original(stage, variables, free)[:1])


def swapped_strides(m: pytest.MonkeyPatch) -> None:
    original = loop_value.split_strides
    m.setattr(
        loop_value,
        "split_strides",
        lambda stage, rel: original(stage, rel)[:-2][::-1] + original(stage, rel)[-2:][::-1],
    )


def split_off_by_one(m: pytest.MonkeyPatch) -> None:
    original = loop_value.split_strides
    m.setattr(loop_value, "split_strides", lambda stage, rel: [original(stage, rel)[0] + 1, *original(stage, rel)[1:]])


def fused_parts_swapped(m: pytest.MonkeyPatch) -> None:
    original = loop_value._unfuse
    m.setattr(loop_value, "_unfuse", lambda stage, parts, fused: original(stage, parts[::-1], fused))


def fused_without_remainder(m: pytest.MonkeyPatch) -> None:
    m.setattr(loop_value, "binary", lambda op, a, b: a if op == "%" else binary(op, a, b))


def no_barriers(m: pytest.MonkeyPatch) -> None:
    m.setattr(lowering, "insert_barriers", lambda kernel, threads: kernel)


def no_barrier_between_iterations(m: pytest.MonkeyPatch) -> None:
    def visit_loop(self: sync._Barriers, loop: For, pending: sync.Pending) -> tuple[Stmt, sync.Pending]:
        body, after = self.visit(loop.body, pending)
        return replace(loop, body=body), after

    m.setattr(sync._Barriers, "visit_loop", visit_loop)


def barriers_after_reads_only(m: pytest.MonkeyPatch) -> None:
    m.setattr(sync.Pending, "conflicts", lambda self, later: bool(self.reads & later.writes))


def every_thread_stores(m: pytest.MonkeyPatch) -> None:
    m.setattr(lower_nest.NestBuilder, "_one_thread", lambda self, k: [])


def surplus_threads_unguarded(m: pytest.MonkeyPatch) -> None:
    m.setattr(lower_point.Points, "_thread_guards", lambda self, k, variables: [])


def shared_between_virtual_threads(m: pytest.MonkeyPatch) -> None:
    m.setattr(vthread, "_differing_buffers", lambda loop: set())


def no_initialisation(m: pytest.MonkeyPatch) -> None:
    m.setattr(lower_nest.NestBuilder, "_init_nest", lambda self, k, first: Seq(()))


def initialised_inside(m: pytest.MonkeyPatch) -> None:
    original = lower_nest.NestBuilder._update
    m.setattr(
        lower_nest.NestBuilder,
        "_update",
        lambda self, k, point: (
            seq(self._init_nest(k, 99), original(self, k, point))
            if self.low.stages[k].op.reduce_axis
            else original(self, k, point)
        ),
    )


def region_start_ignored(m: pytest.MonkeyPatch) -> None:
    original = lower_facts.Facts.linear_expr
    m.setattr(lower_facts.Facts, "linear_expr", lambda self, low: original(self, region.Linear({}, low.const)))


def region_one_too_small(m: pytest.MonkeyPatch) -> None:
    m.setattr(region.Region, "add", lambda a, b: region.Region(a.min.add(b.min), a.extent + max(b.extent - 2, 0)))


def union_forgets_the_second(m: pytest.MonkeyPatch) -> None:
    m.setattr(bounds, "unite", lambda a, b: a)


def remainder_always_tight(m: pytest.MonkeyPatch) -> None:
    m.setattr(region, "_offset", lambda base, divisor: base.const % divisor)


def threads_not_relaxed(m: pytest.MonkeyPatch) -> None:
    m.setitem(storage.SCOPE_RANK, "shared", 3)


def cache_read_transposed(m: pytest.MonkeyPatch) -> None:
    original = derive.redirect_reads

    def swapped(op: Any, old: Any, new: Any) -> Any:
        out = original(op, old, new)
        flip = lambda e: te.expr.expr.Load(new, e.indices[::-1]) if getattr(e, "tensor", None) == new else None  # noqa: E731
        return replace(out, body=tuple(te.expr.visit.transform(b, flip) for b in out.body))

    m.setattr("te_lite.schedule.stage_steps.redirect_reads", swapped)


def inlined_with_swapped_axes(m: pytest.MonkeyPatch) -> None:
    original = reads.substitute
    m.setattr(reads, "substitute", lambda e, env: original(e, dict(zip(env, list(env.values())[::-1], strict=True))))


def combined_in_place(m: pytest.MonkeyPatch) -> None:
    def combine(self: Any, k: int, combiner: Any, own: Any, sources: Any, point: Any) -> Stmt:
        results = lower_nest.combined(combiner, own, sources)
        return seq(*[self._store(k, o, point, r) for o, r in reversed(list(enumerate(results)))])

    m.setattr(lower_nest.NestBuilder, "_combine", combine)


def last_thread_left_out(m: pytest.MonkeyPatch) -> None:
    original = lower_nest.ThreadReduce
    m.setattr(lower_nest, "ThreadReduce", lambda c, d, s, t, extent, lanes: original(c, d, s, t, max(extent - 1, 1)))


def unrolled_once_too_few(m: pytest.MonkeyPatch) -> None:
    original = unroll._mark

    def mark(s: Stmt) -> Any:
        marked = original(s)
        out = marked.stmt
        if isinstance(out, For) and out.kind.name == "UNROLLED" and out.extent > 1:
            return replace(marked, stmt=replace(out, extent=out.extent - 1))
        return marked

    m.setattr(unroll, "_mark", mark)


def rfactor_at_the_wrong_place(m: pytest.MonkeyPatch) -> None:
    original = derive.rfactor_ops

    def wrong(op: Any, values: Any, loops: Any, factored: int, position: int, condition: Any) -> Any:
        rf, repl = original(op, values, loops, factored, position, condition)
        (load,) = repl.reduction.sources[:1]
        flipped = te.expr.expr.Load(load.tensor, load.indices[::-1])
        return rf, replace(repl, body=(replace(repl.reduction, sources=(flipped,) * len(repl.reduction.sources)),))

    m.setattr("te_lite.schedule.stage_steps.rfactor_ops", wrong)


def rfactor_condition_dropped(m: pytest.MonkeyPatch) -> None:
    original = derive.rfactor_ops
    m.setattr("te_lite.schedule.stage_steps.rfactor_ops", lambda *a: original(*a[:-1], None))


def aligned_storage_too_small(m: pytest.MonkeyPatch) -> None:
    m.setattr(
        te.loops.stmt.Buffer, "size", property(lambda self: int(np.prod(self.shape, dtype=int)) if self.shape else 1)
    )


def loop_forgets_its_last_iteration(m: pytest.MonkeyPatch) -> None:
    original = lower_nest.For
    m.setattr(
        lower_nest, "For", lambda v, e, k, b, **more: original(v, e - (k.name == "VECTORIZED" and e > 1), k, b, **more)
    )


def one_tile_for_all_iterations(m: pytest.MonkeyPatch) -> None:
    m.setattr(double_buffer._Iteration, "count", 1)


def fetched_beyond_the_last_iteration(m: pytest.MonkeyPatch) -> None:
    m.setattr(double_buffer, "compare", lambda op, a, b: compare(op, a, b + 1))


def fetched_before_the_barrier(m: pytest.MonkeyPatch) -> None:
    def swapped(*stmts: Stmt) -> Stmt:
        publishes = isinstance(stmts[0], Barrier) and stmts[0].publishes
        return seq(stmts[1], stmts[0], *stmts[2:]) if publishes else seq(*stmts)

    m.setattr(double_buffer, "seq", swapped)


def folded_beyond_the_edge(m: pytest.MonkeyPatch) -> None:
    m.setattr(edges.Edges, "neutral_axes", lambda self, k: list(range(self.low.stages[k].num_roots)))


def copies_repeat_the_edge(m: pytest.MonkeyPatch) -> None:
    m.setattr(lower_nest.NestBuilder, "_zero_beyond", lambda self, k, e, point: self.points.value(e, point))


BUGS: list[Patch] = [
    no_split_guard, guard_one_too_far, guard_one_too_early, only_the_first_guard, swapped_strides, split_off_by_one,
    fused_parts_swapped, fused_without_remainder, no_barriers, no_barrier_between_iterations,
    barriers_after_reads_only, every_thread_stores, surplus_threads_unguarded, shared_between_virtual_threads,
    no_initialisation, initialised_inside, region_start_ignored, region_one_too_small, union_forgets_the_second,
    remainder_always_tight, threads_not_relaxed, cache_read_transposed, inlined_with_swapped_axes, combined_in_place,
    last_thread_left_out, unrolled_once_too_few, rfactor_at_the_wrong_place, rfactor_condition_dropped,
    aligned_storage_too_small, loop_forgets_its_last_iteration, one_tile_for_all_iterations,
    fetched_beyond_the_last_iteration,
    fetched_before_the_barrier, folded_beyond_the_edge, copies_repeat_the_edge,
]  # fmt: skip


SHY: list[Patch] = [
    folded_beyond_the_edge, copies_repeat_the_edge, union_forgets_the_second, rfactor_condition_dropped,
    rfactor_at_the_wrong_place, remainder_always_tight,
]  # fmt: skip
"""Bugs that show in one of dozens, or of hundreds."""


def timed(bug: Patch) -> Any:
    """The parameter of a test: bugs that take seconds to find are for `make fuzz`."""
    marks = [pytest.mark.slow] if bug in SHY else []
    return pytest.param(bug, id=bug.__name__, marks=marks)


def programs_until_found(oracles: list[Oracle], limit: int = MAX_PROGRAMS) -> int | None:
    """How many random programs it takes until one is refused or wrong; None when all pass."""
    drawn = itertools.product(range(limit // len(oracles) // 2), (True, False), oracles)
    for count, (i, gpu, oracle) in enumerate(drawn, start=1):
        try:
            _, func = Fuzzer(oracle.dag, np.random.default_rng([17, i]), gpu).draw(attempts=50)
            verify(func)
            wrong = oracle.mismatch(func, run)
        except (te.TeError, IndexError, KeyError, AssertionError, ValueError) as refusal:
            wrong = str(refusal)
        if wrong is not None:
            return count
    return None


def fresh_oracles() -> list[Oracle]:
    """Oracles on computations of their own: derived operations are remembered by operation."""
    reads.expanded_bodies.cache_clear()
    reads.reads_by_producer.cache_clear()
    return [Oracle(te.ComputeDAG(WORKLOADS[name]()), np.random.default_rng(0)) for name in NAMES]


@pytest.mark.parametrize("bug", list(map(timed, BUGS)))
def test_planted_bug_is_found(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles = fresh_oracles()
    bug(monkeypatch)
    found = programs_until_found(oracles)
    monkeypatch.undo()
    fresh_oracles()
    assert found is not None, f"{MAX_PROGRAMS} programs passed in spite of the bug"


@pytest.mark.long
def test_without_a_bug_all_pass() -> None:
    assert programs_until_found(fresh_oracles(), limit=320) is None
