"""Copies with the axes of the read: what they hold, schedules of them, records and text, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from te_lite import ComputeDAG, Tensor
from te_lite.errors import ScheduleError
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.replay import replay
from te_lite.schedule.schedule import Schedule
from te_lite.schedule.step import from_json, to_json

N, C, K, R, STRIDE, DILATION = 9, 5, 4, 3, 2, 3
WIDTH = (N - 1) * STRIDE + (R - 1) * DILATION + 1


def strided() -> list[Tensor]:
    x, w = te.placeholder((WIDTH - 2, C), name="x"), te.placeholder((R, C, K), name="w")
    inside = te.compute(
        (WIDTH, C), lambda i, c: te.if_then_else(te.all(i >= 1, i < WIDTH - 1), x[i - 1, c], 0.0), name="pad"
    )
    r, c = te.reduce_axis((0, R), name="r"), te.reduce_axis((0, C), name="c")
    y = te.compute(
        (N, K),
        lambda i, k: te.sum(inside[i * STRIDE + r * DILATION, c] * w[r, c, k], axis=[r, c]),
        name="y",
    )
    return [x, w, inside, y]


def by_hand(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype("float64"), ((1, 1), (0, 0)))
    rows = [[padded[i * STRIDE + r * DILATION] for r in range(R)] for i in range(N)]
    return np.einsum("irc,rck->ik", np.array(rows), w.astype("float64"))


def assert_right(s: Schedule, x: Tensor, w: Tensor, y: Tensor) -> None:
    """The interpreter's result is that by hand."""
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(t.shape).astype("float32") for t in (x, w)]
    out = np.full((N, K), np.nan, "float32")
    run(te.lower(s.state, [x, w, y]), [*arrays, out])
    np.testing.assert_allclose(out, by_hand(*arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("tile", [3, 4, N])
def test_a_copy_of_what_a_strided_read_reads(scope: str, tile: int) -> None:
    """At the root or in a tile, whether or not tiles divide; the padding goes into the copy."""
    x, w, inside, y = strided()
    s = te.create_schedule(y)
    copy = s.reindex(inside, scope, y)
    assert copy.shape == (N, R, C) and [op.name for op in s.state.ops].index(copy.name) < len(s.state.ops) - 1
    s[inside].compute_inline()
    outer, _ = s[y].split(y.op.axis[0], tile)
    s[copy].compute_at(s[y], outer)
    assert_right(s, x, w, y)


@pytest.mark.parametrize("tile", [3, 4, N])
@pytest.mark.parametrize("axis", [0, 2])
def test_an_axis_of_the_copy_in_tiles(axis: int, tile: int) -> None:
    """Whose inside is the last axis, filled up with zeros where tiles do not divide; at the root or for parts of N."""
    x, w, inside, y = strided()
    for placed in (False, True):
        s = te.create_schedule(y)
        copy = s.reindex(inside, "local", y, (axis, tile))
        counts = [N, R, C]
        counts[axis] = -(-counts[axis] // tile)
        assert copy.shape == (*counts, tile)
        s[inside].compute_inline()
        outer, rest = s[y].split(y.op.axis[0], 2 * tile)
        s[y].split(rest, tile)
        if placed:
            s[copy].compute_at(s[y], outer)
        assert_right(s, x, w, y)


def test_tiles_that_are_none_are_refused() -> None:
    *_, inside, y = strided()
    for tile in ((3, 4), (-1, 4), (0, 0), (0,)):
        with pytest.raises(ScheduleError, match="reindex pad: a tile is one of 3 axes and its length"):
            te.create_schedule(y).reindex(inside, "local", y, tile)


@pytest.mark.parametrize("tile", [(), (0, 4)])
def test_records_and_text(tile: tuple[int, ...]) -> None:
    x, w, inside, y = strided()
    dag = ComputeDAG([x, w, y])
    s = Schedule(dag.init_state)
    s.reindex(inside, "shared", y, tile)
    steps = [from_json(to_json(step)) for step in s.state.steps]
    at = [dag.ops.index(t.op) for t in (inside, y)]
    assert to_json(steps[0]) == ["RIX", at[0], "shared", at[1], *([list(tile)] if tile else [])]
    assert str(replay(dag, steps)) == str(s.state)
    assert "s.reindex(pad" in python_schedule(s.state)
    again = Schedule(dag.init_state)
    exec(compile(python_schedule(s.state), "schedule", "exec"), dict(python_names(dag), s=again, te=te))
    assert again.state.steps == s.state.steps


def twice(a: Tensor, i: te.expr.expr.Var) -> te.Expr:
    return a[i] * a[i + 1]


def chosen(a: Tensor, i: te.expr.expr.Var) -> te.Expr:
    return te.if_then_else(i < 4, a[i], 0.0)


def fixed(a: Tensor, i: te.expr.expr.Var) -> te.Expr:
    return a[3] + te.const(0.0, "float32")


@pytest.mark.parametrize("body", [twice, chosen, fixed])
def test_other_reads_are_refused(body: Callable[[Tensor, te.expr.expr.Var], te.Expr]) -> None:
    """Reads in two ways; reads that a condition protects, which a copy would make anyway; one element."""
    a = te.placeholder((8,), name="a")
    b = te.compute((7,), lambda i: body(a, i), name="b")
    with pytest.raises(ScheduleError, match="reindex a: it must be read in one way alone"):
        te.create_schedule(b).reindex(a, "local", b)


def test_who_does_not_read_is_refused() -> None:
    a, other = te.placeholder((8,), name="a"), te.placeholder((8,), name="other")
    b = te.compute((8,), lambda i: other[i] + a[i], name="b")
    c = te.compute((8,), lambda i: b[i] + 1, name="c")
    with pytest.raises(ScheduleError, match="reindex a: the reader must read it"):
        te.create_schedule(c).reindex(a, "local", c)
