"""Features say what programs do: counted while the interpreter runs them, or by hand."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.features.count import flops, op_counts
from ansor.sketch.generate import generate_sketches
from te_lite.expr.expr import BufferLoad
from te_lite.expr.visit import walk
from te_lite.loops.stmt import Alloc, For, ForKind, LoweredFunc, Stmt, Store, bodies, stmts_of
from te_lite.lowering.lower import lower
from te_lite.meaning import interp, interp_memory, interp_scope
from te_lite.schedule.loop_steps import Annotate, Reorder, Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import Step
from tests.ansor.feature_values import HARDWARE, rows_of
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.te_lite.test_loop_scope import kernel
from tests.workloads import WORKLOADS, matmul


@dataclass
class Tally:
    """Accesses, and the elements of one storage that they met."""

    times: int = 0
    elements: set[int] = field(default_factory=set)

    def note(self, indices: Any) -> int:
        self.times += indices.size
        self.elements.update(np.unique(indices).tolist())
        return int(indices.size)


@dataclass
class Measured:
    """Stores by buffer (the initial ones of a reduction apart), loads by stored and loaded buffer, flops by buffer."""

    stores: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    loads: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    flops: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def counting(patch: pytest.MonkeyPatch) -> Iterator[Measured]:
    """Count what the interpreter does."""
    found = Measured()
    plain_store, plain_load = interp_memory.store_code, interp_memory.load_code

    def store(place: Any, mem: Any, index: Any, value: Any, levels: Any) -> Any:
        run, statement = plain_store(place, mem, index, value, levels), place._statement
        loads = [x for x in walk(statement.value) if isinstance(x, BufferLoad)]
        cost = flops(op_counts([statement.value]))

        def counted(mask: Any) -> None:
            if loads:
                times = found.stores[mem.buffer.name].note(np.ravel(place.full(index.run(mask), mask)))
                found.flops[mem.buffer.name] += cost * times
            run(mask)

        return counted

    def load(place: Any, mem: Any, index: Any, levels: Any) -> Any:
        code = plain_load(place, mem, index, levels)
        statement = place._statement
        assert isinstance(statement, Store)
        tally = found.loads[statement.buffer.name, mem.buffer.name]

        def counted(mask: Any) -> Any:
            tally.note(np.ravel(place.full(index.run(mask), mask)))
            return code.run(mask)

        return type(code)(counted, pure=False)

    with patch.context() as within:
        within.setattr(interp, "store_code", store)
        within.setattr(interp_scope, "load_code", load)
        yield found


def measure(state: State, patch: pytest.MonkeyPatch) -> tuple[LoweredFunc, Measured]:
    func = lower(state)
    args = [np.ones(b.shape, b.dtype) for b in func.args]
    with counting(patch) as found:
        interp.run(func, args)
    return func, found


def extents_of(func: LoweredFunc, kind: ForKind) -> int:
    """The product of the extents of all loops of a kind."""
    return math.prod([s.extent for s in stmts_of(func.body) if isinstance(s, For) and s.kind is kind])


def loops_around(s: Stmt, name: str) -> list[For] | None:
    """The loops around the first statement that computes buffer `name` from others; None when there is none."""
    if isinstance(s, Store):
        computes = any(isinstance(x, BufferLoad) for x in walk(s.value))
        return [] if s.buffer.name == name and computes else None
    for body in bodies(s):
        inner = loops_around(body, name)
        if inner is not None:
            return [s, *inner] if isinstance(s, For) else inner
    return None


def check(state: State, target: str, patch: pytest.MonkeyPatch) -> None:
    """Points, flops, elements of every buffer, launch and shared memory of a program whose regions are boxes."""
    func, found = measure(state, patch)
    rows = rows_of(state, target)
    names = {k: op.output().name for k, op in enumerate(state.ops)}
    for k, row in nonempty(rows.items()):
        own = found.stores[names[k]]
        assert row["points"] == pytest.approx(own.times), names[k]
        assert row["B0.unique_bytes"] == pytest.approx(4 * len(own.elements)), names[k]
        fused = row["float_mad"] + sum(row[f"float_{kind}"] for kind in ("mad", "addsub", "mul", "divmod", "cmp"))
        assert fused == pytest.approx(found.flops[names[k]]), names[k]
        largest = sorted(state.access.read_from[k], key=lambda p: -int(np.prod(state.ops[p].shape)))
        for b, producer in nonempty(enumerate(largest, 1)):
            loads = found.loads[names[k], names[producer]]
            assert row[f"B{b}.bytes"] == pytest.approx(4 * loads.times), (names[k], names[producer])
            assert row[f"B{b}.unique_bytes"] == pytest.approx(4 * len(loads.elements)), (names[k], names[producer])
    roots = [row for k, row in rows.items() if state.stages[k].where == "root"]
    if target == "c":
        for k, row in nonempty(rows.items()):
            loops = loops_around(func.body, names[k])
            assert loops is not None
            assert row["outer_prod"] == pytest.approx(math.prod([s.extent for s in loops]))
            for name, kind in (("parallel", ForKind.PARALLEL), ("vec", ForKind.VECTORIZED)):
                extents = [s.extent for s in loops if s.kind is kind]
                assert row[f"{name}_prod"] == pytest.approx(math.prod(extents) if extents else 0)
    else:
        shared = [s.buffer for s in stmts_of(func.body) if isinstance(s, Alloc) and s.buffer.scope == "shared"]
        local = [s.buffer for s in stmts_of(func.body) if isinstance(s, Alloc) and s.buffer.scope == "local"]
        assert sum(row["shared_bytes"] for row in roots) == pytest.approx(4 * sum(b.size for b in shared))
        assert sum(row["accumulators"] for row in roots) == pytest.approx(sum(b.size for b in local))
        assert np.prod([row["blocks"] for row in roots]) == pytest.approx(extents_of(func, ForKind.BLOCK))
        assert np.prod([row["threads"] for row in roots]) == pytest.approx(extents_of(func, ForKind.THREAD))


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", ["matmul", "matmul_relu", "batch_matmul", "double_matmul"])
@pytest.mark.one_in(3)
def test_sampled_programs(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    dag = te.ComputeDAG(WORKLOADS[name]())
    checked = 0
    for sketch in generate_sketches(dag, target, HARDWARE[target]):
        if any("rf" in s.op.name for s in sketch.stages):
            continue
        for _ in range(2):
            state = drawn_program(sketch, target, HARDWARE[target], rng)
            if state is not None and not any(s.where == "inlined" for s in state.stages):
                check(state, target, monkeypatch)
                checked += 1
    assert checked or name == "matmul_relu"


def test_lengths_that_do_not_divide(monkeypatch: pytest.MonkeyPatch) -> None:
    dag = te.ComputeDAG(matmul(7, 10, 5))
    steps: list[Step] = [
        Split(2, 0, 7, (3,)),
        Split(2, 2, 10, (4,)),
        Reorder(2, (0, 2, 4, 1, 3)),
        Annotate(2, 0, "parallel"),
    ]
    check(replay(dag, steps), "c", monkeypatch)


@pytest.mark.parametrize("name", ["conv2d_stride", "depthwise", "conv2d_nchw", "conv2d_dilated"])
@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.one_in(3)
def test_elements_of_convolutions(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides leave holes, padding cuts regions; the elements are still counted right."""
    rng = np.random.default_rng(2)
    for sketch in nonempty(generate_sketches(te.ComputeDAG(WORKLOADS[name]()), target, HARDWARE[target])):
        state = drawn_program(sketch, target, HARDWARE[target], rng)
        assert state is not None
        _, found = measure(state, monkeypatch)
        names = {k: op.output().name for k, op in enumerate(state.ops)}
        for k, row in nonempty(rows_of(state, target).items()):
            own = found.stores[names[k]]
            assert row["points"] == pytest.approx(own.times)
            assert row["B0.unique_bytes"] == pytest.approx(4 * len(own.elements))
            for producer in nonempty(state.access.read_from[k]):
                loads = found.loads.get((names[k], names[producer]))
                seen = [row[f"B{b}.unique_bytes"] for b in range(1, 5)]
                assert loads is None or pytest.approx(4 * len(loads.elements)) in seen, (names[k], names[producer])


def test_what_is_computed_inside_a_shared_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs once for every turn of the copy's threads, not again for those of the product around the copy."""
    state, _ = kernel("shared", "local")
    check(state, "cuda", monkeypatch)
