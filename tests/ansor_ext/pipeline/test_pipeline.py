"""Pipelines of several tiles (see `test_double_buffer.py`): results, barriers, storage, records, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from ansor_ext.pipeline.steps import DoubleBuffer, Pipeline
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.loop_scope import tile_count
from te_lite.errors import InterpError, LowerError, ScheduleError
from te_lite.expr.storage import stored_elements
from te_lite.loops.stmt import Alloc, Barrier, For, LoweredFunc, Stmt, bodies, seq, stmts_of, with_bodies
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_schedule
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from te_lite.verify.verify import verify
from tests.oracle import Oracle
from tests.te_lite.test_python_text import assert_same_program
from tests.te_lite.tiled_programs import PROGRAMS


def piped(name: str, tiles: int) -> State:
    """A program with room for so many tiles instead of two."""
    state = PROGRAMS[name].state()
    steps = [Pipeline(x.stage, tiles) if isinstance(x, DoubleBuffer) else x for x in state.steps]
    return replay(state.dag, steps)


@pytest.mark.parametrize(("name", "tiles"), [*[(name, 3) for name in PROGRAMS], ("three loops", 5), ("vectors", 4)])
def test_results(name: str, tiles: int) -> None:
    state = piped(name, tiles)
    func = te.lower(state)
    verify(func)
    assert Oracle(state.dag, np.random.default_rng(1)).mismatch(func, run) is None


def test_two_tiles_are_a_double_buffer() -> None:
    assert str(te.lower(piped("cut tiles", 2))) == str(te.lower(PROGRAMS["cut tiles"].state()))


def test_tiles_are_no_more_than_turns_and_barriers_count_groups() -> None:
    assert str(te.lower(piped("two turns", 4))) == str(te.lower(PROGRAMS["two turns"].state()))
    func = te.lower(piped("whole tiles", 3))  # four iterations
    (loop,) = [s for s in stmts_of(func.body) if isinstance(s, For) and _publishes(s.body)]
    assert loop.extent == 4 and [s.left for s in _barriers(loop)] == [1]
    assert [s.left for s in _barriers(func.body)] == [1, 1], "one between the copies before the loop"
    assert "barrier(publish all but 1)" in str(func)


def _barriers(s: Stmt) -> list[Barrier]:
    return [x for x in stmts_of(s) if isinstance(x, Barrier)]


def _publishes(s: Stmt) -> bool:
    return any(isinstance(x, Barrier) and x.publishes for x in bodies(s))


@pytest.mark.parametrize("tiles", [3, 4])
def test_storage_is_counted(tiles: int) -> None:
    bounds = infer_bounds(piped("one long loop", tiles))
    sizes = {s.buffer.name: s.buffer.size for s in stmts_of(te.lower(bounds.state).body) if isinstance(s, Alloc)}
    counted = 0
    for k, stage in enumerate(bounds.state.stages):
        if stage.op.name.endswith(".shared"):
            points = int(np.prod([r.extent for r in bounds.regions[k][: len(stage.op.axis)]]))
            assert sizes[stage.op.name] == stored_elements(points, 4, tile_count(bounds.state, k))
            counted += tile_count(bounds.state, k) == tiles
    assert counted == 2


def test_without_its_barrier_threads_race() -> None:
    """The interpreter sees a tile that is overwritten while other threads read it."""
    state = piped("cut tiles", 3)

    def without(s: Stmt) -> Stmt:
        kept = tuple([without(b) for b in bodies(s) if not isinstance(b, Barrier)])
        return seq(*kept) if len(kept) < len(bodies(s)) else with_bodies(s, kept)

    func = te.lower(state)
    broken = LoweredFunc(func.name, func.args, without(func.body))
    with pytest.raises(InterpError, match="race"):
        Oracle(state.dag, np.random.default_rng(1)).mismatch(broken, run)


def test_texts_and_records() -> None:
    state = piped("cut tiles", 4)
    steps = [from_json(to_json(s)) for s in state.steps]
    assert replay(state.dag, steps) == state and to_json(Pipeline(3, 4)) == ["PIP", 3, 4]
    assert str(state).count("shared pipeline: 4") == 2 and ".pipeline(4)" in python_schedule(state)
    assert_same_program(state)


def test_refusals() -> None:
    plain = PROGRAMS["cut tiles"].state(ahead=False)
    copies = [k for k, s in enumerate(plain.stages) if s.op.name.endswith(".shared")]
    for tiles in (1, 9):
        with pytest.raises(ScheduleError, match=rf"pipeline .*: 2 to 8 tiles are possible, got tiles={tiles}"):
            apply(plain, Pipeline(copies[0], tiles))
    with pytest.raises(ScheduleError, match=r"pipeline A: an input is not computed"):
        apply(plain, Pipeline(0, 3))
    mixed = apply(apply(plain, Pipeline(copies[0], 3)), DoubleBuffer(copies[1]))
    with pytest.raises(LowerError, match=r"copies of one loop have as many tiles each, got tiles=\[2, 3\]"):
        te.lower(mixed)
