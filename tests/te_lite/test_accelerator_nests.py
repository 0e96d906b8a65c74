"""Storage in the memories of an accelerator, tensorized loops, and the nest before virtual threads are sunk."""

from __future__ import annotations

import json

import numpy as np
import pytest

import te_lite as te
from ansor.core.tasks.measure_values import MeasureInput, MeasureResult
from ansor.core.tasks.task import SearchTask
from ansor.records.lines import dump_record_to_string, load_record_from_string
from te_lite import Schedule, Tensor
from te_lite.errors import LowerError, RecordError, ScheduleError
from te_lite.loops.stmt import Alloc, For, ForKind, LoweredFunc, stmts_of
from te_lite.lowering.lower import loop_nest
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.step import from_json, to_json
from te_lite.schedule.storage_steps import SetScope
from tests.oracle import Oracle

VECTORS, MATRICES, SUMS = "local.vectors", "local.matrices", "local.sums"


def blocked(n: int = 6, ci: int = 3, co: int = 4, block: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A blocked product of integers and its doubled result."""
    a = te.placeholder((n, ci, block), name="a", dtype="int32")
    b = te.placeholder((co, ci, block, block), name="b", dtype="int32")
    k_o, k_i = te.reduce_axis((0, ci), "k_o"), te.reduce_axis((0, block), "k_i")
    product = te.compute(
        (n, co, block), lambda i, j, c: te.sum(a[i, k_o, k_i] * b[j, k_o, c, k_i], axis=[k_o, k_i]), name="product"
    )
    return a, b, product, te.compute(product.shape, lambda *i: product(*i) * 2, name="out")


def scheduled(threads: int = 2, tile: int = 2) -> tuple[Schedule, list[Tensor]]:
    a, b, product, out = blocked()
    s = te.create_schedule(out)
    vectors = s.cache_read(a, VECTORS, [product])
    matrices = s.cache_read(b, MATRICES, [product])
    s[product].set_scope(SUMS)
    i, j, c = s[out].op.axis
    j0, j1 = s[out].split(j, factor=tile)
    j0, thread = s[out].split(j0, factor=threads)
    i0, i1 = s[out].split(i, factor=3)
    s[out].reorder(thread, i0, j0, i1, j1, c)
    s[out].bind(thread, te.thread_axis("cthread"))
    s[product].compute_at(s[out], j0)
    i, j, c = s[product].op.axis
    k_o, k_i = s[product].op.reduce_axis
    s[product].reorder(k_o, i, j, c, k_i)
    s[vectors].compute_at(s[product], k_o)
    s[matrices].compute_at(s[product], k_o)
    s[product].tensorize(c)
    return s, [a, b, out]


def test_the_nest_means_what_the_computation_means() -> None:
    """Virtual threads are loops around all, and each has tiles of its own."""
    s, tensors = scheduled()
    facts, stmt = loop_nest(s.state, tensors)
    func = LoweredFunc("nest", tuple(facts.arg_buffers.values()), stmt)
    assert Oracle(s.state.dag, np.random.default_rng(1)).mismatch(func, run) is None
    assert isinstance(stmt, For) and stmt.kind is ForKind.VTHREAD and stmt.extent == 2
    tiles = {x.buffer.scope: x.buffer.shape for x in stmts_of(stmt) if isinstance(x, Alloc)}
    assert tiles == {SUMS: (3, 2, 4), VECTORS: (3, 1, 4), MATRICES: (2, 1, 4, 4)}
    marked = [x for x in stmts_of(stmt) if isinstance(x, For) and x.kind is ForKind.TENSORIZED]
    assert [x.extent for x in marked] == [4, 4]
    assert "tensorized c in 0..4:" in str(func) and "(local.sums)" in str(func)


def test_a_tensorized_loop_of_one_turn_is_kept() -> None:
    a = te.placeholder((1, 8), name="a")
    out = te.compute((1, 8), lambda i, j: a[i, j] + 1.0, name="out")
    s = te.create_schedule(out)
    s[out].tensorize(out.op.axis[0])
    _, stmt = loop_nest(s.state)
    assert isinstance(stmt, For) and stmt.kind is ForKind.TENSORIZED and stmt.extent == 1


def test_replay_and_printed_code_give_the_same_state() -> None:
    s, _ = scheduled()
    state = s.state
    assert replay(state.dag, state.steps) == state
    assert replay(state.dag, [from_json(to_json(step)) for step in state.steps]) == state
    names: dict[str, object] = {**python_names(state.dag), "te": te}
    names["s"] = again = te.create_schedule([t for t in state.dag.tensors if t.name == "out"])
    exec(python_schedule(state), names)
    assert [to_json(x) for x in again.state.steps] == [to_json(x) for x in state.steps]


def test_records_keep_the_letters_of_tvm() -> None:
    """A copy into a memory of an accelerator is a copy into `local`, which is then moved by a letter of our own."""
    s, _ = scheduled()
    assert [to_json(x) for x in s.state.steps if isinstance(x, CacheRead | SetScope)] == [
        ["CHR", 0, "local", [2]],
        ["SSC", 1, VECTORS],
        ["CHR", 2, "local", [3]],
        ["SSC", 3, MATRICES],
        ["SSC", 4, SUMS],
    ]
    for wrong in (["SSC", 0, "local."], ["SSC", 0, "warp"], ["SSC", 0, "shared.a"], ["CHR", 0, VECTORS, [2]]):
        with pytest.raises(RecordError):
            from_json(wrong)


def test_refusals() -> None:
    a, _, product, out = blocked()
    s = te.create_schedule(out)
    for tensor, scope, reason in (
        (product, "warp", "the scope must be one of global, shared, local, local.<name> or fragment"),
        (a, VECTORS, "an input is not computed"),
        (out, VECTORS, "an output is in global storage"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            s[tensor].set_scope(scope)
    with pytest.raises(LowerError, match="all stages must be computed inside one"):
        loop_nest(s.state)
    s, tensors = scheduled()
    with pytest.raises(LowerError, match="no intrinsic fits here"):
        te.lower(s, tensors)


def test_a_record_with_our_letter_says_so() -> None:
    """It has a version of our own, and reads back as the same program."""
    s, _ = scheduled()
    task = SearchTask(compute_dag=s.state.dag, target="c")
    line = dump_record_to_string(MeasureInput(task, s.state), MeasureResult((1.0,), 0, "", 1.0, 1))
    assert json.loads(line)["v"] == "ansor-v1"
    assert load_record_from_string(line)[0].steps == s.state.steps
