"""The unrolling limit of a stage is the most statements that a loop may become: that many are allowed, one more is not.

The oracle counts the statements of each loop by definition.
"""

from __future__ import annotations

import math

import pytest

import te_lite as te
from te_lite.loops.stmt import For, ForKind, Store, stmts_of
from te_lite.schedule.loop_steps import Annotate, Pragma, Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import Step


def copied(shape: tuple[int, ...], limit: int, *steps: Step) -> State:
    """An element-wise stage with an unrolling limit."""
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a(*i) + 1.0, name="B")
    return replay(te.ComputeDAG([a, b]), [*steps, Pragma(1, 0, f"auto_unroll_max_step${limit}")])


def unrolled(state: State) -> list[int]:
    """The extents of the unrolled loops, outermost first."""
    return [s.extent for s in stmts_of(te.lower(state).body) if isinstance(s, For) and s.kind is ForKind.UNROLLED]


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 5)])
def test_as_many_statements_as_the_limit_and_no_more(shape: tuple[int, ...]) -> None:
    for limit in range(1, math.prod(shape) + 2):
        within = [n for k, n in enumerate(shape) if math.prod(shape[k:]) <= limit]
        assert unrolled(copied(shape, limit)) == within, limit


def test_a_vector_is_one_statement() -> None:
    steps = (Split(1, 0, 40, (8,)), Annotate(1, 1, "vectorize"))
    assert unrolled(copied((40,), 5, *steps)) == [5]
    assert unrolled(copied((40,), 4, *steps)) == []


def test_unrolled_loops_are_nested_nine_deep_at_most() -> None:
    assert unrolled(copied((2,) * 11, 2**20)) == [2] * 9


@pytest.mark.parametrize(("most", "written_out"), [(6, True), (5, False)])
def test_as_many_copies_are_written_out_as_allowed(
    monkeypatch: pytest.MonkeyPatch, most: int, written_out: bool
) -> None:
    """A selection by the loop's variable is decided in every copy."""
    monkeypatch.setattr("te_lite.lowering.unroll.MAX_COPIES", most)
    a = te.placeholder((6,), name="A")
    b = te.compute((6,), lambda i: te.select(i < 2, a[i], te.const(0.0, "float32")), name="B")
    state = replay(te.ComputeDAG([a, b]), [Pragma(1, 0, "auto_unroll_max_step$6")])
    stores = [s for s in stmts_of(te.lower(state).body) if isinstance(s, Store)]
    assert len(stores) == (6 if written_out else 1)


@pytest.mark.parametrize(("most", "stores"), [(12, 7), (11, 6), (5, 1)])
def test_copies_are_counted_of_loops_that_stay_loops_too(
    monkeypatch: pytest.MonkeyPatch, most: int, stores: int
) -> None:
    """An unrolled loop of too many copies is left to the compiler, which makes them of what is inside of it."""
    monkeypatch.setattr("te_lite.lowering.unroll.MAX_COPIES", most)
    a = te.placeholder((12, 1), name="A")
    b = te.compute((12, 1), lambda i, j: te.select(i < 3, a[i, j], te.const(0.0, "float32")), name="B")
    state = replay(te.ComputeDAG([a, b]), [Split(1, 0, 12, (2,)), Pragma(1, 0, "auto_unroll_max_step$12")])
    assert len([s for s in stmts_of(te.lower(state).body) if isinstance(s, Store)]) == stores


def test_the_largest_extent_of_a_thread_axis() -> None:
    assert te.thread_axis((0, 2**31 - 1), "blockIdx.x").extent == 2**31 - 1
    for extent in (0, 2**31):
        with pytest.raises(te.TeError, match="a domain is"):
            te.thread_axis((0, extent), "blockIdx.x")
