"""Random schedules compute what the workload says: by the interpreter, and by compiled C where they bind no threads."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

import codegen_c
import te_lite as te
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from te_lite.verify.verify import verify
from tests.nonempty import nonempty
from tests.oracle import Oracle
from tests.schedule_fuzz import Fuzzer
from tests.workloads import WORKLOADS

# 17 workloads: 34 CPU schedules in CI (interpreter and C) and as many GPU ones; `make fuzz` draws 3,060 of each
PER_KIND = int(os.environ.get("ANSOR_FUZZ", "2"))
SEED = int(os.environ.get("ANSOR_FUZZ_SEED", "20261121"))


@pytest.fixture(scope="module", params=sorted(WORKLOADS))
def oracle(request: pytest.FixtureRequest) -> Oracle:
    return Oracle(te.ComputeDAG(WORKLOADS[request.param]()), np.random.default_rng(SEED))


def compiled(func: te.LoweredFunc, args: list[np.ndarray]) -> None:
    codegen_c.build(func)(*args)


def compiled_with_heap(func: te.LoweredFunc, args: list[np.ndarray]) -> None:
    """As `compiled`; scratch buffers live on the heap, as large ones do, vectors are whole, and registers few."""
    codegen_c.build(func, options=replace(codegen_c.host_options(), stack_bytes=0, masks=False, registers=3))(*args)


def executed(state: te.State) -> te.State:
    """The state that the printed Python schedule makes."""
    s = te.Schedule(state.dag)
    exec(compile(python_schedule(state), "schedule", "exec"), dict(python_names(state.dag), s=s, te=te))
    return s.state


@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.one_in(2)
def test_random_schedules(oracle: Oracle, gpu: bool) -> None:
    for i in nonempty(range(PER_KIND)):
        state, func = Fuzzer(oracle.dag, np.random.default_rng([SEED, i]), gpu).draw()
        where = f"seed [{SEED}, {i}], steps {[to_json(s) for s in state.steps]}"
        verify(func)
        assert oracle.mismatch(func, run) is None, where
        if not gpu:
            binary = compiled_with_heap if i % 3 == 0 else compiled
            assert oracle.mismatch(func, binary) is None, where  # type: ignore[arg-type]
        assert replay(oracle.dag, [from_json(to_json(s)) for s in state.steps]) == state, where
        if i % 5 == 0:
            assert oracle.mismatch(te.lower(executed(state)), run) is None, where
