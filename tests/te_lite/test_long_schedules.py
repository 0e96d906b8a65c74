"""Long and hostile schedules: time and text grow with the number of steps, never faster than its square."""

import time

import pytest

import te_lite as te
from te_lite.expr.element import Buffer
from te_lite.loops.stmt import Barrier, For, ForKind, Stmt, Store, seq, stmts_of
from te_lite.lowering.sync import insert_barriers
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.loop_steps import Annotate, Fuse, Pragma, Reorder, Split
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.step import Step

STEPS = 600


def schedules(n: int) -> dict[str, list[Step]]:
    """Steps that each grow something: nests, names, stages."""
    fused = [step for _ in range(n // 2) for step in (Split(1, 0, 8, (2,)), Fuse(1, (0, 1)))]
    return {
        "splits of one loop": [Split(1, 0, 8, (5,)) for _ in range(n)],
        "splits of the inner loop": [Split(1, k, 8, (1,)) for k in range(n)],
        "splits of length 1": [Split(1, 0, 8, (1,)) for _ in range(n)],
        "split and fuse in turns": fused,
        "fused out of nothing": [Fuse(1, ()) for _ in range(n)],
        "orders": [Reorder(1, (1, 0)) for _ in range(n)],
        "pragmas": [Pragma(1, 0, "auto_unroll_max_step$16") for _ in range(n)],
        "copies": [CacheRead(0, "local", (1,)) for _ in range(n // 10)],
        "annotated parts": [
            step for k in range(n // 2) for step in (Split(1, k, 8, (1,)), Annotate(1, k, "unroll"))
        ],
    }  # fmt: skip


def example() -> te.ComputeDAG:
    x = te.placeholder((8, 8), name="x")
    return te.ComputeDAG([x, te.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="y")])


@pytest.mark.parametrize("name", schedules(0))
def test_no_step_costs_more_than_those_before_it_together(name):
    """3,000 splits took 218 s to print; 50 splits and fuses made names of 30 million characters, 100 all memory."""
    dag, steps = example(), schedules(STEPS)[name]
    start = time.monotonic()
    state = replay(dag, steps)
    texts = [str(state), python_schedule(state), str(dag.infer_bound_from_state(state))]
    assert time.monotonic() - start < 5.0
    assert max(map(len, texts)) < 4_000 * STEPS


@pytest.mark.parametrize("name", schedules(0))
def test_the_printed_schedule_makes_the_same_state(name):
    dag = example()
    state = replay(dag, schedules(40)[name])
    schedule = te.Schedule(dag)
    exec(python_schedule(state), dict(python_names(dag), s=schedule, te=te))
    assert str(schedule.state) == str(state)


@pytest.mark.parametrize("depth", [1, 5, 40])
def test_barriers_of_deep_nests(depth: int) -> None:
    """What every loop wants to know of its body is found out once: 3 ** 40 visits would not end."""
    tile, out = Buffer("tile", "float32", (64,), "shared"), Buffer("out", "float32", (64,))
    body: Stmt = seq(Store(tile, te.Var("t"), te.const(1, "float32")), Store(out, te.Var("t"), tile[te.Var("u")]))
    for k in range(depth):
        body = For(te.Var(f"i{k}"), 2, ForKind.SERIAL, body)
    found = insert_barriers(body, ())
    assert sum(isinstance(s, Barrier) for s in stmts_of(found)) == 2
    assert insert_barriers(found, ()) is found
