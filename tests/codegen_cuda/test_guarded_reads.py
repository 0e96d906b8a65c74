"""Reads of guarded updates of several numbers stand before the first update, and nothing else changes."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor_ext.streaming import streaming
from ansor_ext.streaming.streaming import streaming_state
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from relay_lite.ir.op_registry import get

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def moments(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[te.LoweredFunc, int]:
    """The program of `moments` of data times a number, and how many results it has."""
    x, scale = te.placeholder(shape, name="x"), te.placeholder((1,), name="scale")
    data = te.compute(shape, lambda *i: x[i] * scale[0], name="data")
    compute = get("moments").compute
    assert compute is not None
    outs = compute([data], {"axis": axes}, "cuda")
    task = ansor.SearchTask(compute_dag=[x, scale, *outs], target="cuda -arch=sm_90")
    return te.lower(streaming_state(task), task.compute_dag.tensors), len(outs)


@needs_gxx
@pytest.mark.parametrize(
    "shape, axes", [((3, 2050), (1,)), ((1021, 33), (0,)), ((5, 2048), (1,)), ((7, 3, 331), (0, 2))]
)
def test_what_they_give_stays(shape: tuple[int, ...], axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SHORT_PART", 300)
    func, count = moments(shape, axes)
    program = emit(func)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    found = [np.full([1 if a in axes else n for a, n in enumerate(shape)], np.nan, "float32") for _ in range(count)]
    run_program(program, [x, np.full(1, 3, "float32"), *found])
    wide = x.astype("f8") * 3
    np.testing.assert_allclose(found[1], wide.mean(axes, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2] / found[0], wide.var(axes, keepdims=True), rtol=1e-5)


def test_reads_stand_before_updates_where_there_is_a_condition() -> None:
    for shape, guarded in (((3, 2050), True), ((3, 4096), False)):
        text = emit(moments(shape, (1,))[0]).source
        assert ("x_first" in text) == guarded
        if guarded:
            reads = [m.start() for m in re.finditer(r"x_first\[\d\] = x\[", text)]
            updates = [m.start() for m in re.finditer(r"_next = .*x_first\[", text)]
            assert len(reads) > 1 and max(reads) < min(updates)
