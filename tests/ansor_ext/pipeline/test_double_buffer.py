"""Double-buffered tiles: the same results with one barrier an iteration, refusals where there are none, and faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor_ext.pipeline import lowering as double_buffer
from ansor_ext.pipeline.steps import DoubleBuffer
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.loop_scope import tile_count, tile_loops
from te_lite.errors import InterpError, LowerError, ScheduleError
from te_lite.expr.storage import stored_elements
from te_lite.loops.stmt import Alloc, Barrier, For, If, Seq, Stmt, bodies, seq, stmts_of, with_bodies
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.place_steps import ComputeAt
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.step import from_json, to_json
from te_lite.verify.verify import verify
from tests.nonempty import nonempty
from tests.oracle import Oracle
from tests.te_lite.tiled_programs import CONVOLUTIONS, PRODUCTS, PROGRAMS, Product

AHEAD = [name for name in PROGRAMS if name != "one turn"]


def pipelines(func: te.LoweredFunc) -> list[For]:
    """The loops whose iterations are tiles."""
    found = [s for s in stmts_of(func.body) if isinstance(s, For)]
    return [s for s in found if any(isinstance(b, Barrier) and b.publishes for b in bodies(s.body))]


def barriers(s: Stmt) -> int:
    return sum(isinstance(x, Barrier) for x in stmts_of(s))


# ----------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str) -> None:
    state = PROGRAMS[name].state()
    func = te.lower(state)
    verify(func)
    assert Oracle(state.dag, np.random.default_rng(1)).mismatch(func, run) is None


@pytest.mark.parametrize("name", AHEAD)
def test_a_turn_has_one_barrier_instead_of_two(name: str) -> None:
    (loop,) = pipelines(te.lower(PROGRAMS[name].state()))
    assert barriers(loop) == 1
    plain = te.lower(PROGRAMS[name].state(ahead=False))
    inside = [s for s in stmts_of(plain.body) if isinstance(s, For) and barriers(s.body) == 2]
    assert inside and not pipelines(plain)


def test_nested_reduction_loops_are_one_pipeline() -> None:
    state = CONVOLUTIONS["three loops"].state()
    (loop,) = pipelines(te.lower(state))
    assert loop.extent == 3 * 3 * 1  # channels in threes, rows of the kernel, and all its columns at once
    assert [state.stages[5].vars[u].name for u in tile_loops(state, 2)] == ["rc.0", "ry.0", "rx.0"]


def test_a_loop_of_one_turn_has_nothing_to_fetch_ahead() -> None:
    one = PRODUCTS["one turn"]
    assert str(te.lower(one.state())) == str(te.lower(one.state(ahead=False)))


@pytest.mark.parametrize("depth, again", [(5, 2), (4, 1)])
def test_a_pipeline_that_runs_again_meets_before_it_only_for_odd_turns(depth: int, again: int) -> None:
    """Three iterations of 5, or four iterations of 4."""
    func = te.lower(Product(17, 8, 15, 4, 8, depth, serial=True).state())
    assert barriers(func.body) == again


def test_only_one_of_two_copies_is_fetched_ahead() -> None:
    state = PRODUCTS["cut tiles"].state(ahead=False)
    for k in nonempty((k for k, s in enumerate(state.stages) if s.op.name.endswith(".shared"))):
        one = apply(state, DoubleBuffer(k))
        func = te.lower(one)
        verify(func)
        assert Oracle(one.dag, np.random.default_rng(1)).mismatch(func, run) is None
        (loop,) = pipelines(func)
        assert barriers(loop) == 2, "the other copy still needs its own"


def test_copies_at_different_loops_are_pipelines_of_their_own() -> None:
    state = CONVOLUTIONS["three loops"].state(ahead=False)
    rc = next(p for p, it in enumerate(state.stages[5].iters) if it.name == "rc.0")
    state = replay(state.dag, [*state.steps, ComputeAt(4, 5, rc), DoubleBuffer(4), DoubleBuffer(2)])
    func = te.lower(state)
    verify(func)
    assert len(pipelines(func)) == 2
    assert Oracle(state.dag, np.random.default_rng(1)).mismatch(func, run) is None


# -------------------------------------------------------------------------------------------------- the step


def test_the_step_is_recorded_printed_and_replayed() -> None:
    state = PRODUCTS["cut tiles"].state()
    steps = [from_json(to_json(s)) for s in state.steps]
    assert replay(state.dag, steps) == state
    assert to_json(DoubleBuffer(3)) == ["DBF", 3]
    assert str(state).count("A.shared double_buffer") == str(state).count("B.shared double_buffer") == 1
    s = te.Schedule(state.dag)
    text = python_schedule(state)
    assert "A_shared].double_buffer()" in text
    exec(compile(text, "schedule", "exec"), dict(python_names(state.dag), s=s, te=te))
    assert s.state.stages[1].double_buffer and str(te.lower(s.state)) == str(te.lower(state))


def aligned(name: str) -> bool:
    """Whether every shared copy of a program has rows of a length that is asked for."""
    stages = PROGRAMS[name].state().stages
    return all(stage.storage_align is not None for stage in stages if stage.op.name.endswith(".shared"))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not aligned(name)])
def test_storage_is_counted_twice_and_tiles_are_aligned(name: str) -> None:
    state = PROGRAMS[name].state()
    bounds = infer_bounds(state)
    sizes = {s.buffer.name: s.buffer.size for s in stmts_of(te.lower(state).body) if isinstance(s, Alloc)}
    copies = ((k, s) for k, s in enumerate(bounds.state.stages) if s.op.name.endswith(".shared"))
    for k, stage in nonempty((k, s) for k, s in copies if s.storage_align is None):
        points = int(np.prod([r.extent for r in bounds.regions[k][: len(stage.op.axis)]]))
        tiles = tile_count(bounds.state, k)
        assert tiles == (1 if name == "one turn" else 2)
        assert sizes[stage.op.name] == stored_elements(points, 4, tiles)
        assert (sizes[stage.op.name] - points) % 4 == 0


# ------------------------------------------------------------------------------------------------- refusals


def refusal(error: type[Exception], make: Callable[[te.Schedule, dict[str, te.Tensor]], object]) -> str:
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    with pytest.raises(error) as caught:
        make(s, {"A": a, "B": b, "C": c})
        te.lower(s)
    return str(caught.value)


def attached(s: te.Schedule, t: dict[str, te.Tensor], scope: str, loop: str) -> te.Tensor:
    """A copy of A at a loop of C, whose rows are blocks and columns threads."""
    copy = s.cache_read(t["A"], scope, [t["C"]])
    i, j = s[t["C"]].op.axis
    (k,) = s[t["C"]].op.reduce_axis
    s[t["C"]].bind(i, "blockIdx.x")
    s[t["C"]].bind(j, "threadIdx.x")
    s[copy].compute_at(s[t["C"]], {"j": j, "k": k}[loop])
    return copy


def test_refusals_of_the_step() -> None:
    text = refusal(ScheduleError, lambda s, t: s[t["A"]].double_buffer())
    assert text.startswith("double_buffer A: an input is not computed")
    assert "an output has one place" in refusal(ScheduleError, lambda s, t: s[t["C"]].double_buffer())
    text = refusal(ScheduleError, lambda s, t: s[s.cache_read(t["A"], "local", [t["C"]])].double_buffer())
    assert text.startswith("double_buffer A.local: the storage must be shared memory, got scope='local'")
    text = refusal(ScheduleError, lambda s, t: s[s.cache_write(t["C"], "shared")].double_buffer())
    assert "a reduction cannot be fetched ahead" in text

    def twice(s: te.Schedule, t: dict[str, te.Tensor]) -> None:
        copy = attached(s, t, "shared", "k")
        s[copy].double_buffer()
        s[copy].double_buffer()

    assert "it is double-buffered already" in refusal(ScheduleError, twice)


def test_refusals_of_the_place() -> None:
    law = "it must be computed at a loop that runs in turn"
    text = refusal(LowerError, lambda s, t: s[attached(s, t, "shared", "j")].double_buffer())
    assert text.startswith(f"double_buffer A.shared: {law}, got loop='j'")

    def inlined(s: te.Schedule, t: dict[str, te.Tensor]) -> None:
        copy = attached(s, t, "shared", "k")
        s[copy].double_buffer()
        s[copy].compute_inline()

    assert law in refusal(LowerError, inlined)


def test_what_passes_through_shared_memory_is_not_fetched_ahead() -> None:
    def chained(s: te.Schedule, t: dict[str, te.Tensor]) -> None:
        copy = attached(s, t, "shared", "k")
        second = s.cache_read(copy, "shared", [t["C"]])
        (k,) = s[t["C"]].op.reduce_axis
        s[second].compute_at(s[t["C"]], k)
        s[copy].compute_at(s[t["C"]], k)
        s[second].double_buffer()

    text = refusal(LowerError, chained)
    assert "must not come through shared memory or from a stage of the same loop, got reads=['A.shared']" in text


def test_what_an_output_gets_in_the_same_loop_is_not_fetched_ahead() -> None:
    """The output is an argument, so no allocation in the loop tells that it is made there."""
    a = te.placeholder((4, 8), name="A")
    t = te.compute((4,), lambda i: a[i, 0] + 1.0, name="T")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k] * t[i], axis=k), name="C")
    s = te.create_schedule([t.op, c.op])
    copy = s.cache_read(t, "shared", [c])
    (i,), (k,) = s[c].op.axis, s[c].op.reduce_axis
    s[c].bind(i, "blockIdx.x")
    s[copy].compute_at(s[c], k)
    s[t].compute_at(s[c], k)
    te.lower(s)
    s[copy].double_buffer()
    with pytest.raises(LowerError, match=r"from a stage of the same loop, got reads=\['T'\]"):
        te.lower(s)


def test_a_double_buffered_stage_is_not_cached_afterwards() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((8,), lambda i: b[i] + 1.0, name="C")
    s = te.create_schedule(c.op)
    s[b].double_buffer()
    with pytest.raises(ScheduleError, match="it must come before other steps"):
        s.cache_write(b, "local")


# -------------------------------------------------------------------------------------------- planted faults


def edited(func: te.LoweredFunc, f: Callable[[Stmt], Stmt | None]) -> te.LoweredFunc:
    """The program with statements replaced where `f` gives one."""

    def visit(s: Stmt) -> Stmt:
        new = f(s)
        return with_bodies(s, tuple([visit(b) for b in bodies(s)])) if new is None else new

    return replace(func, body=visit(func.body))


def without_publishing(s: Stmt) -> Stmt | None:
    return seq() if isinstance(s, Barrier) and s.publishes else None


def without_other_barriers(s: Stmt) -> Stmt | None:
    return seq() if isinstance(s, Barrier) and not s.publishes else None


def copying_before_the_barrier(s: Stmt) -> Stmt | None:
    match s:
        case Seq(stmts=(Barrier(publishes=True) as barrier, If() as copies, *rest)):
            return seq(copies, barrier, *rest)
    return None


# the second of two tiles is free at the start
TWO_TURNS = ("two turns", "vectors")
FAULTS = {
    "no barrier": (without_publishing, AHEAD),
    "copies before the barrier": (copying_before_the_barrier, [name for name in AHEAD if name not in TWO_TURNS]),
    "no barrier before the second time": (without_other_barriers, ["run again, odd turns"]),
}


@pytest.mark.parametrize("fault, name", [(fault, name) for fault, (_, names) in FAULTS.items() for name in names])
def test_every_barrier_is_needed(fault: str, name: str) -> None:
    state = PROGRAMS[name].state()
    func = edited(te.lower(state), FAULTS[fault][0])
    with pytest.raises(InterpError, match=r"race|uninitialised"):
        Oracle(state.dag, np.random.default_rng(1)).mismatch(func, run)


@pytest.mark.parametrize("name", AHEAD)
def test_tiles_that_do_not_alternate_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(double_buffer._Iteration, "count", 1)
    state = PROGRAMS[name].state()
    with pytest.raises(InterpError, match="race"):
        Oracle(state.dag, np.random.default_rng(1)).mismatch(te.lower(state), run)
