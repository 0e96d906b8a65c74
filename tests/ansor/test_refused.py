"""No way in compiles a program that the verifier refuses: a wrong lowering is planted, and each must refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import codegen_c
import codegen_cuda
import relay_lite as relay
import te_lite as te
from ansor import autotvm
from ansor.autotvm.tuner import RandomTuner
from ansor.core.tasks.measure_values import MeasureErrorNo
from ansor.measure.channel import task_payload
from ansor.measure.jobs import JobFailure, Workbench
from ansor.measure.progress import outcome_text
from ansor.policy.task_actions import Actions
from ansor.records.lines import dump_record_to_string, load_record_from_string
from te_lite.computation.tensor import Tensor
from te_lite.errors import UnsafeError
from te_lite.expr.expr import Expr, Var, const
from te_lite.loops.stmt import Buffer, For, ForKind, LoweredFunc, Store
from te_lite.lowering import lower_facts
from tests.workloads import matmul


@pytest.fixture
def wrong_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index is one too large."""
    original = lower_facts.Facts.flat_index

    def shifted(self: Any, *args: Any, **options: Any) -> Expr:
        return original(self, *args, **options) + 1

    monkeypatch.setattr(lower_facts.Facts, "flat_index", shifted)


def task(target: str) -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(8, 8, 8)), target=target)


def by_hand() -> LoweredFunc:
    """A program that nobody lowered and that stores beyond its argument."""
    i, out = Var("i"), Buffer("out", "float32", (8,))
    return LoweredFunc("f", (out,), For(i, 9, ForKind.SERIAL, Store(out, i, const(0.0))))


def lowered() -> Any:
    return te.lower(task("c").compute_dag.init_state)


def built(target: str) -> Any:
    t = task(target)
    return ansor.build(t.compute_dag.init_state, t.compute_dag.tensors, target)


def printed() -> Any:
    t = task("c")
    return Actions().source(t, t.compute_dag.init_state)


def network() -> Any:
    data, weight = relay.var("data", shape=(1, 2, 4, 4)), np.ones((2, 2, 3, 3), "float32")
    conv = relay.nn.conv2d(data, relay.const(weight), padding=(1, 1), channels=2)
    return relay.build(relay.Function([data], relay.nn.relu(conv)), target="c")


WAYS_IN: dict[str, Callable[[], Any]] = {
    "te.lower": lowered,
    "ansor.build, c": lambda: built("c"),
    "ansor.build, cuda": lambda: built("cuda"),
    "the source of a task's program": printed,
    "relay.build": network,
}
BY_HAND: dict[str, Callable[[LoweredFunc], Any]] = {
    "ansor.build": lambda func: ansor.build(func, target="c"),
    "codegen_c.build": codegen_c.build,
    "codegen_c.emit": codegen_c.emit,
    "codegen_cuda.emit": codegen_cuda.emit,
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_wrong_lowering_is_refused(way: str, wrong_lowering: None) -> None:
    with pytest.raises(UnsafeError, match=r"in_bounds: .* is outside of \d+ elements where"):
        WAYS_IN[way]()


@pytest.mark.parametrize("way", BY_HAND)
def test_a_program_by_hand_is_refused(way: str) -> None:
    with pytest.raises(UnsafeError, match=r"f: in_bounds: out\[8\] in .* where i=8"):
        BY_HAND[way](by_hand())


@pytest.mark.parametrize("target", ["c", "cuda -arch=sm_90"])
def test_a_candidate_that_is_refused_ends_so(target: str, wrong_lowering: None, tmp_path: Path) -> None:
    t = task(target)
    job = {**task_payload(t), "op": "build", "directory": str(tmp_path), "steps": []}
    with pytest.raises(JobFailure, match=r"UnsafeError: .* is outside of \d+ elements") as failure:
        Workbench().do(job)
    assert failure.value.error_no is MeasureErrorNo.REFUSED
    assert not list(tmp_path.iterdir())


def trusting() -> list[Tensor]:
    """A computation whose programs trust an index that is read from memory: all are unproven."""
    x, at = te.placeholder((9,), name="x"), te.placeholder((4,), "int32", "at")
    return [x, at, te.compute((4,), lambda i: x[at[i]] * 2.0, name="y")]


@ansor.autotvm.template("refused/trusting")
def trusting_template() -> tuple[te.Schedule, list[Tensor]]:
    tensors = trusting()
    s = te.create_schedule(tensors[-1].op)
    config = autotvm.get_config()
    config.define_split("tile_i", s[tensors[-1]].op.axis[0], num_outputs=2)
    config["tile_i"].apply(s, tensors[-1], s[tensors[-1]].op.axis[0])
    return s, tensors


def test_a_worker_tells_and_a_log_keeps_it(tmp_path: Path) -> None:
    """Nothing is planted: the worker is a process of its own."""
    t = ansor.SearchTask(compute_dag=te.ComputeDAG(trusting()), target="c")
    builder, runner = ansor.LocalBuilder(timeout=60, n_parallel=1), ansor.LocalRunner(timeout=60)
    try:
        inp = ansor.MeasureInput(t, t.compute_dag.init_state)
        (result,) = ansor.ProgramMeasurer(builder, runner, verbose=0).measure(t, None, [inp])
    finally:
        builder.close()
        runner.close()
    assert result.error_no == MeasureErrorNo.REFUSED and not result.ok and result.costs == (1e10,)
    assert outcome_text(result).startswith(
        "REFUSED: UnsafeError: default_function: unproven: nothing shows that x[at[i]]"
    )
    line = dump_record_to_string(inp, result)
    assert json.loads(line)["v"] == "ansor-v1" and json.loads(line)["r"][1] == 9
    assert load_record_from_string(line)[1].error_no == MeasureErrorNo.REFUSED
    (tmp_path / "log").write_text(line + "\n")
    assert ansor.load_best_record(tmp_path / "log", t.workload_key) == (None, None)


def test_a_template_that_is_refused(tmp_path: Path) -> None:
    log, made = tmp_path / "log", autotvm.create(trusting_template, (), "c")
    options = autotvm.measure_option(autotvm.LocalBuilder(timeout=60, n_parallel=1), autotvm.LocalRunner(timeout=60))
    tuner = RandomTuner(made, rng=np.random.default_rng(0))
    tuner.tune(2, options, callbacks=[autotvm.callback.log_to_file(log)])
    found = [r for _, r in autotvm.record.load_from_file(log)]
    assert [r.error_no for r in found] == [9, 9] and "unproven" in found[0].error_msg
