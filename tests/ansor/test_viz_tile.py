"""Tiles: what a turn of a loop computes against the lowered program, what it reads against how NaNs spread."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.policy.default_schedule import default_state
from ansor.viz.grid import Grid, runs
from ansor.viz.tile import ComputedTile, tile_of
from ansor.viz.tile_picture import draw_tile
from te_lite import topi
from te_lite.errors import ScheduleError
from te_lite.loops.stmt import For, If, Stmt, Store, bodies, stmts_of
from te_lite.meaning.reference import evaluate
from te_lite.schedule.state import State
from te_lite.verify.verify_points import value_at
from tests.workloads import matmul


def conv() -> list[te.Tensor]:
    data, kernel = te.placeholder((1, 3, 6, 6), name="data"), te.placeholder((4, 3, 3, 3), name="kernel")
    return [data, kernel, topi.nn.relu(topi.nn.conv2d_nchw(data, kernel, 2, 1, 1))]


def softmax() -> list[te.Tensor]:
    x = te.placeholder((4, 5), name="x")
    return [x, topi.nn.softmax(x)]


def transposed() -> list[te.Tensor]:
    x = te.placeholder((6, 4), name="x")
    return [x, te.compute((24,), lambda i: x[i % 6, i // 6] * 2.0, name="y")]


def diagonal() -> list[te.Tensor]:
    x = te.placeholder((6, 6), name="x")
    return [x, te.compute((6, 6), lambda i, j: te.if_then_else(i >= j, x[i, i] + x[i, j], 0.0), name="y")]


CASES = {"matmul": lambda: matmul(6, 8, 5), "conv": conv, "softmax": softmax, "transposed": transposed,
         "diagonal": diagonal}  # fmt: skip


def cases() -> Iterator[Any]:
    """The last stage split and fused, and a loop of it."""
    for name, make in CASES.items():
        tensors = make()
        s = te.create_schedule(tensors[-1].op)
        axes = list(tensors[-1].op.axis)
        outer = s[tensors[-1]].split(axes[-1], 3)[0]
        yield pytest.param(tensors, s.state, s.state.stages[-1].iters[1].name, id=name)
        if len(axes) > 1:
            fused = s[tensors[-1]].fuse(axes[-2], outer)
            s[tensors[-1]].split(fused, 2)
            yield pytest.param(tensors, s.state, None, id=f"{name} fused")


def stored(stmt: Stmt, name: str, standing: int, fixed: dict[Any, Any], guards: tuple[Any, ...] = ()) -> set[int]:
    """The elements that a program stores in a buffer while its outermost loops stand in the middle."""
    match stmt:
        case Store(buffer=buffer, index=index):
            if buffer.name != name:
                return set()
            grid = np.indices([len(v) for v in fixed.values()]).reshape(len(fixed), -1)
            at = {v: np.asarray(values)[n] for (v, values), n in zip(fixed.items(), grid, strict=True)}
            keep = np.ones(grid.shape[1], bool)
            for guard in guards:
                keep &= np.broadcast_to(value_at(guard, at), keep.shape)
            return set(np.broadcast_to(value_at(index, at), keep.shape)[keep].tolist())
        case For(var=var, extent=extent, body=body):
            turns = [(extent - 1) // 2] if standing else list(range(extent))
            return stored(body, name, max(0, standing - 1), {**fixed, var: turns}, guards)
        case If(cond=cond, then=then):
            return stored(then, name, standing, fixed, (*guards, cond))
    return set().union(*[stored(body, name, standing, fixed, guards) for body in bodies(stmt)])


def is_root(stmt: Stmt, name: str) -> bool:
    """Whether a statement of a program is the nest that stores a buffer."""
    return any(isinstance(x, Store) and x.buffer.name == name for x in stmts_of(stmt))


def met_by_nan(tensors: list[te.Tensor], tile: ComputedTile) -> dict[str, np.ndarray]:
    """The elements of each input that, being NaN, make an element of the tile NaN."""
    rng, out = np.random.default_rng(3), tensors[-1]
    inputs = {t: rng.uniform(1, 2, t.shape).astype("float32") for t in tensors[:-1]}
    found = {}
    for t in inputs:
        mask = np.zeros(t.shape, bool)
        for at in np.ndindex(*t.shape):
            spoiled = inputs | {t: inputs[t].copy()}
            spoiled[t][at] = np.nan
            mask[at] = np.isnan(evaluate([*inputs, out], spoiled)[out][tile.own]).any()
        found[t.op.name] = mask
    return found


@pytest.mark.parametrize(("tensors", "state", "loop"), list(cases()))
def test_tiles_against_the_program_and_nans(tensors: list[te.Tensor], state: State, loop: str | None) -> None:
    tile = tile_of(state, None, loop)
    func = te.lower(state, tensors)
    loops = tile.state.stages[tile.stage].iters
    outer = loops[: [it.name for it in loops].index(tile.loop) + 1]
    standing = len([it for it in outer if it.length > 1])
    root = next(x for x in stmts_of(func.body) if isinstance(x, For | Store) and is_root(x, tensors[-1].op.name))
    assert set(np.flatnonzero(tile.own).tolist()) == stored(root, tensors[-1].op.name, standing, {})
    for name, mask in met_by_nan(tensors, tile).items():
        (own,) = [m for j, m in tile.inputs.items() if tile.state.ops[j].name == name]
        assert np.array_equal(own, mask), name


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_tiles_of_default_schedules(target: str) -> None:
    task = ansor.SearchTask(matmul, (64, 48, 32), target=target)
    state = default_state(task)
    assert state is not None
    tile = tile_of(state)
    rows, columns = tile.own.any(axis=1), tile.own.any(axis=0)
    a, b = tile.inputs.values()
    assert np.array_equal(tile.own, np.outer(rows, columns))
    assert np.array_equal(a, np.outer(rows, np.ones(32, bool))) and np.array_equal(
        b, np.outer(np.ones(32, bool), columns)
    )


def test_terms_of_a_reduction_stand_still() -> None:
    c = matmul(8, 8, 8)[-1]
    s = te.create_schedule(c.op)
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    outer, _ = s[c].split(k, 2)
    s[c].reorder(outer, i, j)
    tile = tile_of(s.state, "C", tile_name(s.state, 0))
    assert tile.own.all() and np.flatnonzero(tile.inputs[0].any(axis=0)).tolist() == [2, 3]


def tile_name(state: State, place: int) -> str:
    return next(x for x in state.stages if x.op.name == "C").iters[place].name


def test_names_that_are_not_there() -> None:
    state = te.create_schedule(matmul(4, 4, 4)[-1].op).state
    with pytest.raises(ScheduleError, match="stage: the stages are C, got 'D'"):
        tile_of(state, "D")
    with pytest.raises(ScheduleError, match="loop: the loops of C are i, j, k, got 'x'"):
        tile_of(state, None, "x")


def test_grids_show_every_touched_cell() -> None:
    rng = np.random.default_rng(1)
    for shape in ((), (7,), (5, 9), (300, 20), (3, 70, 4, 65)):
        mask = rng.random(shape) < 0.1
        grid = Grid(np.asarray(mask))
        cells = {(r, c) for r, first, n in runs(grid.shares > 0) for c in range(first, first + n)}
        flat = np.asarray(mask).any(axis=tuple([d for d in range(mask.ndim) if d not in grid.dims])) if shape else mask
        flat = np.reshape(flat, (1,) * (2 - np.ndim(flat)) + np.shape(flat))
        steps = [grid.per_cell(n) for n in flat.shape]
        assert cells == {(int(r) // steps[0], int(c) // steps[1]) for r, c in np.argwhere(flat)}
        assert all(-(-n // step) <= 64 for n, step in zip(flat.shape, steps, strict=True))


def test_the_command(tmp_path: Path, monkeypatch: Any, refused: Any) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["draw", "tile", "matmul", "--shape", "64,48,32"]
    assert main([*command, "--target", "cuda"]) == 0
    words = [x.text for x in ElementTree.fromstring(Path("tile.svg").read_text()).iter() if x.text]
    assert any("computes" in x for x in words) and sum("reads" in x for x in words) == 2
    refused([*command, "--sketch", "0"], "is not decided yet")
    refused([*command, "--loop", "<x>"], "got '<x>'")
    a = te.placeholder((4,), name="<script>")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    assert "<script>" not in draw_tile(tile_of(te.create_schedule(b.op).state), "<script>")
